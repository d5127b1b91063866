"""Where a store lies, and its files in a folder; on a server: tests/integration."""

import errno
import os
import resource
import sys
import tempfile
from pathlib import Path

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_store import store_files
from rekindle_store.store_files import Files

sys.path.insert(0, str(Path(__file__).parents[2]))
from file_stories import STORIES, Story, output_is_read_as_it_was_committed

FOLDERS = ("commits", "offsets", "checkpoints")


@pytest.fixture
def store(tmp_path: Path) -> Files:
    made = store_files.at(tmp_path / "store")
    for folder in FOLDERS:
        made.make_folder(folder)
    return made


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_in_a_folder(story: Story, store: Files) -> None:
    story(store)


def test_output_in_a_folder_is_read_as_it_was_committed(tmp_path: Path) -> None:
    output_is_read_as_it_was_committed(str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("/shared/store", "/shared/store"),
        ("file:///shared/my%20store", "/shared/my store"),
        ("s3://bucket/store", None),
        ("S3://bucket", None),
        ("hdfs://name-node:8020/store", None),
    ],
)
def test_a_place_is_a_folder_or_a_url(place: str, folder: str | None) -> None:
    assert store_files.folder(place) == (None if folder is None else Path(folder))


@pytest.mark.parametrize(
    "place",
    [
        *("gs://bucket/store", "http://host/x", "s3://", "file://a/b"),
        # with a slash too few these would be folders of the one where the command runs
        *("s3:/bucket/store", "S3a:bucket", "hdfs:/store", "file:/shared/store"),
    ],
)
def test_another_kind_of_place_is_refused(place: str) -> None:
    with pytest.raises(InputError, match="is no place that is known; name a folder, s3://BUCKET"):
        store_files.at(place)


@pytest.mark.parametrize("bucket", ["me:secret@bucket", "bucket:9000", "", "-x", "bücket"])
def test_what_is_beside_a_bucket_is_refused_and_not_dropped(bucket: str) -> None:
    with pytest.raises(InputError, match="has no bucket, or a port or a name beside") as caught:
        store_files.folder(f"s3://{bucket}/store")
    assert "secret" not in str(caught.value)


def test_a_folder_may_have_a_colon_in_its_name() -> None:
    assert store_files.folder("runs/s3:a") == Path("runs/s3:a")


@pytest.mark.parametrize("place", ["", " "])
def test_a_place_without_a_name_is_refused_and_not_taken_for_this_folder(place: str) -> None:
    with pytest.raises(InputError, match="checkpoint store: has an empty name; name a folder, s3"):
        store_files.at(place)


@pytest.mark.parametrize("scheme", ["s3://bucket", "s3a://bucket", "hdfs://host:8020"])
@pytest.mark.parametrize(
    "path", ["a?b", "a#b", "a//b", "a%20b", "a b", "./a", "a/../b", "a*", "a\\b", "a//"]
)
def test_a_url_that_says_another_place_than_it_seems_to_is_refused(scheme: str, path: str) -> None:
    with pytest.raises(InputError, match="which does not mean the same everywhere"):
        store_files.folder(f"{scheme}/{path}")


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/", "/a/b=1/c+d@e", "/ä"])
def test_a_url_of_usual_characters_is_a_place(path: str) -> None:
    assert store_files.folder(f"s3://bucket{path}") is None


def test_what_could_not_be_written_takes_no_room(
    store: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match="No space left"):
        store.put({"commits/1.json": b"one", "commits/2.json": b"two"})
    assert store.names("commits") == []


def test_what_is_put_together_is_on_disk_before_the_first_gets_its_name(
    store: Files, tmp_path: Path, flushed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    named_after: list[int] = []
    replace = Path.replace

    def note(draft: Path, path: Path) -> Path:
        named_after.append(len(flushed))
        return replace(draft, path)

    monkeypatch.setattr(Path, "replace", note)
    store.put({"commits/1.json": b"one", "commits/2.json": b"two"})
    assert named_after == [2, 2]
    assert [path.name.split(".")[1] for path in flushed[:2]] == ["1", "2"]
    assert flushed[2:] == [tmp_path / "store/commits"]
    assert store.read("commits/2.json") == b"two"


def test_nothing_is_made_in_a_store_that_is_away(store: Files, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "away")
    attempts = (
        lambda: store.create("commits/1.json", b"one"),
        lambda: store.put({"commits/1.json": b"one"}),
        lambda: store.make_folder("checkpoints/1"),
        lambda: store.read("commits/1.json"),
        lambda: store.size("commits/1.json"),
    )
    for attempt in attempts:
        with pytest.raises(OSError, match=r"is away|No such file"):
            attempt()
    assert [path.name for path in tmp_path.iterdir()] == ["away"]


def test_what_a_killed_process_has_left_goes_when_it_is_old_and_nothing_else(
    store: Files, tmp_path: Path
) -> None:
    outputs = tmp_path / "store" / "outputs"
    (outputs / "hourly").mkdir(parents=True)
    old = outputs / "hourly" / ".0-000000001.parquet.ab12.unfinished"
    young = outputs / ".1.json.ab12.unfinished"
    for path in (old, young, outputs / "unfinished", outputs / ".hidden"):
        path.write_bytes(b"")
        if path != young:
            os.utime(path, (1.0, 1.0))
    store.remove_leftovers(3_600.0)
    assert sorted(store.names("outputs")) == [".1.json.ab12.unfinished", ".hidden", "unfinished"]


def test_folders_of_checkpoints_that_came_to_nothing_go_when_they_are_old(
    store: Files, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "store" / "checkpoints"
    for name in ("7", "8", "9", "@eaDir"):
        (checkpoints / name).mkdir(parents=True)
    (checkpoints / "8" / "counts-0.state").write_bytes(b"state")
    for name in ("7", "8", "@eaDir"):
        os.utime(checkpoints / name, (1.0, 1.0))
    store.remove_leftovers(3_600.0)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["8", "9", "@eaDir"]
    assert store.names("checkpoints") == ["8/counts-0.state"]


def test_two_that_put_the_same_file_at_once_do_not_meet(store: Files, tmp_path: Path) -> None:
    replace, other = Path.replace, store_files.at(tmp_path / "store")

    def overtaken(unfinished: Path, path: Path) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            other.put({"commits/1.json": b"other"})
        return replace(unfinished, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", overtaken)
        store.put({"commits/1.json": b"one"})
    assert store.names("commits") == ["1.json"]
    assert store.read("commits/1.json") == b"one"


def test_a_server_that_is_not_there_is_no_mistake_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    with pytest.raises(RunError, match="checkpoint store s3://nobody/x: does not answer") as error:
        store_files.check("s3://nobody/x")
    assert "AWS_ENDPOINT_URL" in error.value.remedy
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS])
def test_a_folder_without_hard_links_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(_: object, path: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(InputError, match="is on a file system without hard links") as refused:
        store_files.check(tmp_path / "store")
    assert str(tmp_path) in str(refused.value)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_whose_links_replace_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda _, path: Path(path).write_bytes(b""))
    with pytest.raises(InputError, match="whose hard links take the place of what is there"):
        store_files.check(tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_will_do_is_left_as_it_was(tmp_path: Path) -> None:
    store_files.check(tmp_path / "store/of/one")
    assert [*tmp_path.iterdir()] == []


def test_a_store_without_room_is_refused_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    store = tmp_path / "folder" / "store"
    store_files.check_room(store)
    store_files.check_room("s3://bucket/prefix")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(InputError) as caught:
            store_files.check_room(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == (
        f"checkpoint store {store}: cannot be written (File too large); make room there, or name "
        "another place"
    )
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room there, or name another place"),
        (errno.EDQUOT, "make room there, or name another place"),
        (errno.EROFS, "name a place in a folder that is there and may be written"),
        (errno.EACCES, "name a place in a folder that is there and may be written"),
    ],
    ids=["full", "quota", "read-only", "no-right"],
)
def test_the_remedy_for_a_folder_that_cannot_be_written_fits_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    for check in (store_files.check_room, store_files.check):
        with pytest.raises(InputError) as caught:
            check(tmp_path)
        assert str(caught.value) == (
            f"checkpoint store {tmp_path}: cannot be written (no); {remedy}"
        )
