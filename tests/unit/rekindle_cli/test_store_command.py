"""`rekindle store`: what it shows, its exit codes, and what it says of bad input."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3Server, serving
from whole_stores import Driver, all_files, whole

import rekindle
from rekindle_cli import command_line
from rekindle_cli.commands import store as command
from rekindle_store import commit_segments, store_files, store_integrity

PLACES = itertools.count()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    driver = Driver(tmp_path / "store")
    driver.run(1, 2)
    driver.checkpoint()
    return tmp_path / "store"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SSL_CERT"))]:
        monkeypatch.delenv(name)
    with serving() as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        yield found


def said(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0
) -> tuple[str, str]:
    """What the command prints on each stream."""
    line = ["store", *map(str, arguments)]
    assert command_line.run(command_line.application, line) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.out, printed.err


def test_a_sound_store_is_shown_as_a_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "check", place)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "what files size"
    assert [line.split(" ")[-3] for line in lines if line.startswith("output files")] == ["4"]
    assert lines[-1] == f"{place}: no damage; generation 1, commit 2, checkpoint 2"
    assert err == ""


def test_damage_is_told_with_place_meaning_and_remedy_and_exit_code_1(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "checkpoints/2/rows-0.state").unlink()
    out, _ = said(capsys, "check", place, code=1)
    assert (
        f"{place}/checkpoints/2/rows-0.state: is not there\n"
        "  what it means: a start from this checkpoint is refused, and sets it aside for the one "
        "before\n  what to do: restore it from a copy of the store\n"
    ) in out
    assert "1 damage; generation 1" in out


def test_json_is_one_object_for_scripts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "outputs/hourly/0-000000002.parquet").unlink()
    out, _ = said(capsys, "check", place, "--json", code=1)
    found = json.loads(out)
    assert (found["commits"], found["checkpoint"], found["files"]["outputs"]) == (2, 2, 4)
    (damage,) = found["damages"]
    assert damage["place"] == "outputs/hourly/0-000000002.parquet"
    assert damage["what"] == "is not there, but commit record 2 names it"


def test_a_copy_to_s3_and_back_is_the_store_again(
    server: S3Server, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = f"s3://bucket/copies-{next(PLACES)}"
    out, _ = said(capsys, "copy", place, bucket)
    count = len(server.objects) - 1  # its own record is none of the store
    assert f"{bucket}: {count} files copied" in out
    said(capsys, "check", bucket)
    out, _ = said(capsys, "copy", bucket, tmp_path / "back", "--json")
    assert json.loads(out)["copied"]["files"] == count
    before, after = all_files(place), all_files(tmp_path / "back")
    assert after.pop("copy.json")
    assert after == before
    rows = rekindle.read(tmp_path / "back", "hourly").arrow()
    assert rows.equals(rekindle.read(place, "hourly").arrow())
    out, _ = said(capsys, "copy", place, bucket)
    assert f"0 files copied (0 bytes), {count} were there already" in out


@pytest.mark.usefixtures("server")
def test_output_on_s3_is_put_together_and_checked_copied_and_read_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_segments, "LENGTH", 4)
    bucket = f"s3://bucket/compacted-{next(PLACES)}"
    driver = whole(bucket)
    rows = rekindle.read(bucket, "hourly").arrow()
    driver.compact()
    assert len(rekindle.read(bucket, "hourly").paths()) == 2 + 5
    assert rekindle.read(bucket, "hourly").arrow().equals(rows)
    out, _ = said(capsys, "check", bucket)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "indices of output that was put together 2" in [line.rsplit(" ", 2)[0] for line in lines]
    out, _ = said(capsys, "copy", bucket, tmp_path / "back", "--json")
    found = store_integrity.check(store_files.at(tmp_path / "back"))
    assert json.loads(out)["files"] == dict.fromkeys(command.KINDS, 0) | found.files
    assert rekindle.read(tmp_path / "back", "hourly").arrow().equals(rows)


BAD = [
    (["check"], "STORE: is missing"),
    (["check", "nothing"], "is not there, or no pipeline has run on it"),
    (["check", "ftp://a/b"], "is no place that is known"),
    (["copy", "nothing", "target"], "is not there, or no pipeline has run on it"),
    (["copy", "STORE", "STORE"], "is the store that is to be copied; name another place"),
    (["copy", "STORE", "ftp://a/b"], "is no place that is known"),
    (["copy", "STORE", "/proc/nothing"], "cannot be written"),
    (["move", "STORE"], "no such command"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(line) for line, _ in BAD])
def test_bad_input_is_one_line_with_exit_code_2(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    names = {"STORE": str(place), "nothing": str(place.parent / "nothing")}
    out, err = said(capsys, *[names.get(one, one) for one in arguments], code=2)
    assert out == ""
    assert message in err
    assert err.count("\n") == 1, err


def test_a_damaged_copy_ends_with_exit_code_1(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "outputs/hourly/0-000000002.parquet").write_bytes(b"PAR1")
    out, _ = said(capsys, "copy", place, tmp_path / "copy", code=1)
    assert "outputs/hourly/0-000000002.parquet: cannot be read" in out


def test_what_takes_a_while_says_how_far_it_is(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUIET_SECONDS", 0.0)
    out, err = said(capsys, "check", place, "--json")
    assert json.loads(out)["damages"] == []
    assert "commit 1 of 2" in err


def test_help_of_each_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("check", "copy"):
        out, _ = said(capsys, name, "--help")
        assert "Example: rekindle store" in out


def test_it_needs_nothing_of_the_runtime(place: Path) -> None:
    code = (
        "import sys; from rekindle_cli import command_line as cli; "
        f"code = cli.run(cli.application, ['store', 'check', {str(place)!r}]); "
        "loaded = [name for name in sys.modules if name.split('.')[0] in "
        "('rekindle_spark', 'pyspark', 'kazoo', 'aiohttp')]; print(loaded); sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("[]\n")
