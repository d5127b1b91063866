"""Files in the user's cache: whole with their digest or not used, and changed by one process."""

import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_local import cached_files

DAY = 86_400.0


def keep(folder: Path, text: str = "content") -> Path:
    """A file that was put into the folder."""
    with cached_files.locked(folder, lambda _: None), cached_files.workshop(folder) as workshop:
        (workshop / "made").write_text(text)
        cached_files.put(workshop / "made", folder / "file")
    return folder / "file"


def test_a_file_that_was_put_is_intact_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = keep(tmp_path / "entry")
    assert cached_files.is_intact(file)
    assert sorted(path.name for path in file.parent.iterdir()) == ["file", "file.sha256", "lock"]
    assert file.read_text() == "content"


def test_others_can_check_the_digests_too(tmp_path: Path) -> None:
    file = keep(tmp_path)
    checked = subprocess.run(["sha256sum", "--check", "file.sha256"], cwd=file.parent, check=False)
    assert checked.returncode == 0


@pytest.mark.parametrize("damage", ["", "conten", "contenT", "content and more"])
def test_a_damaged_file_is_not_used_and_can_be_put_again(tmp_path: Path, damage: str) -> None:
    file = keep(tmp_path)
    assert cached_files.is_intact(file)
    file.write_text(damage)
    assert not cached_files.is_intact(file)
    assert cached_files.is_intact(keep(tmp_path))


@pytest.mark.parametrize("name", ["file", "file.sha256"])
def test_a_file_with_a_folder_in_its_place_can_be_put_again(tmp_path: Path, name: str) -> None:
    keep(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name / "below").mkdir(parents=True)
    assert not cached_files.is_intact(tmp_path / "file")
    assert cached_files.is_intact(keep(tmp_path))


@pytest.mark.parametrize("record", [None, "", "0000  file\n"])
def test_a_file_without_its_digest_is_not_used(tmp_path: Path, record: str | None) -> None:
    file = keep(tmp_path)
    digest = tmp_path / "file.sha256"
    digest.unlink()
    if record is not None:
        digest.write_text(record)
    assert not cached_files.is_intact(file)


def test_at_no_moment_of_a_replacement_is_a_file_there_without_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = keep(tmp_path, "old")
    seen: list[bool] = []
    replace = Path.replace

    def watched(path: Path, target: Path) -> Path:
        seen.append(file.exists() and not cached_files.is_intact(file))
        done = replace(path, target)
        seen.append(file.exists() and not cached_files.is_intact(file))
        return done

    monkeypatch.setattr(Path, "replace", watched)
    keep(tmp_path, "new")
    assert seen == [False] * 4
    assert file.read_text() == "new"


def test_a_removed_file_is_gone_with_its_digest(tmp_path: Path) -> None:
    file = keep(tmp_path)
    for _ in range(2):
        cached_files.remove(file)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_second_process_waits_says_so_and_learns_that_it_has_waited(tmp_path: Path) -> None:
    said: list[str] = []
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def end_the_other(line: str) -> None:
            said.append(line)
            fcntl.flock(other, fcntl.LOCK_UN)

        with cached_files.locked(tmp_path, end_the_other) as waited:
            assert waited
    assert said == [f"another process builds into {tmp_path}: waiting for it"]
    with cached_files.locked(tmp_path, said.append) as waited:
        assert not waited


def hold_for_ever(folder: Path, held: "multiprocessing.synchronize.Event") -> None:
    with cached_files.locked(folder, print), cached_files.workshop(folder) as workshop:
        (workshop / "half").touch()
        held.set()
        signal.pause()


def test_a_process_that_is_killed_frees_the_folder_and_its_leftovers_go(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold_for_ever, args=(tmp_path, held))
    process.start()
    assert held.wait(60)
    process.kill()
    process.join()
    assert any(tmp_path.glob("building-*/half"))
    with (
        cached_files.locked(tmp_path, print) as waited,
        cached_files.workshop(tmp_path) as workshop,
    ):
        assert not waited
        assert [*tmp_path.glob("building-*")] == [workshop]


def test_a_folder_that_was_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "entry"
    folder.mkdir()
    with (folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def remove_it(_: str) -> None:
            shutil.rmtree(folder)
            fcntl.flock(other, fcntl.LOCK_UN)

        with cached_files.locked(folder, remove_it):
            assert not cached_files.discard(folder), "the new one is locked"
    assert cached_files.discard(folder)
    assert not folder.exists()


def test_a_folder_that_was_made_again_meanwhile_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, take = tmp_path / "entry", fcntl.flock

    def make() -> None:
        folder.mkdir()
        (folder / "lock").touch()

    def take_after_others_did(lock: IO[str], operation: int) -> None:
        shutil.rmtree(folder)
        make()
        take(lock, operation)

    make()
    monkeypatch.setattr(fcntl, "flock", take_after_others_did)
    assert not cached_files.discard(folder)
    assert folder.exists()


def test_a_folder_in_use_may_be_changed_and_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "entry"
    file = keep(folder)
    with cached_files.in_use(folder), cached_files.in_use(folder):
        assert keep(folder) == file
        assert not cached_files.discard(folder)
    assert cached_files.discard(folder)
    with cached_files.in_use(folder):
        assert not folder.exists()


@pytest.mark.parametrize("entry", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused_with_the_remedy(
    tmp_path: Path, entry: str
) -> None:
    (tmp_path / "file").touch()
    refused = r"cannot be written \(.*\); name another"
    with (
        pytest.raises(InputError, match=refused),
        cached_files.locked(tmp_path / entry, print, remedy="name another"),
    ):
        pass


def test_folders_that_nobody_has_used_for_long_are_removed_and_others_are_not(
    tmp_path: Path,
) -> None:
    old, used, in_use, theirs = (tmp_path / name for name in ("old", "used", "in_use", "theirs"))
    now = 1_000 * DAY
    for folder in (old, used, in_use):
        keep(folder)
    theirs.mkdir()
    for folder in (old, in_use, theirs):
        os.utime(folder, (now - 61 * DAY, now - 61 * DAY))
    os.utime(used, (now - 59 * DAY, now - 59 * DAY))
    said: list[str] = []
    with (in_use / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cached_files.remove_unused(tmp_path, now=now, progress=said.append)
    assert {path.name for path in tmp_path.iterdir()} == {"used", "in_use", "theirs"}
    assert f"removing {old}, unused for 60 days" in said
    cached_files.mark_used(used)
    assert used.stat().st_mtime > now


def test_the_cache_lies_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached_files.find_folder({"XDG_CACHE_HOME": "/a"}) == Path("/a/rekindle")
    assert cached_files.find_folder({}) == Path.home() / ".cache" / "rekindle"

    def nobodys() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobodys)
    with pytest.raises(InputError, match=r"HOME: is not set.* let XDG_CACHE_HOME name a folder"):
        cached_files.find_folder({})


def test_a_failure_is_recorded_until_the_next_success_and_counts_for_a_while(
    tmp_path: Path,
) -> None:
    wrong = RunError(where="go", what="is too old", remedy="install another one")
    with pytest.raises(RunError), cached_files.recording_failures(tmp_path):
        raise wrong
    record = cached_files.failure_record(tmp_path)
    os.utime(record, (1_000.0, 1_000.0))
    assert cached_files.newest_failure(tmp_path, 999.0) == str(wrong)
    assert cached_files.newest_failure(tmp_path, 1_001.0) == ""
    with cached_files.recording_failures(tmp_path):
        pass
    assert cached_files.newest_failure(tmp_path, 0.0) == ""


def test_a_failure_that_is_not_wanted_leaves_no_record(tmp_path: Path) -> None:
    with pytest.raises(RunError), cached_files.recording_failures(tmp_path, lambda _: False):
        raise RunError(where="go", what="was stopped", remedy="start it again")
    assert not cached_files.failure_record(tmp_path).exists()
