"""Folders with files that cannot be looked at, or are others than before: which, and what then."""

import errno
import hashlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_inputs import (
    SCHEMA,
    ends,
    everything,
    form_of,
    lines,
    on_a_node,
    source,
    values,
    write,
)

from rekindle.model.errors import DataLossError, InputError, RunError, SourceAwayError
from rekindle_spark.connectors import file_folders, file_listing, file_rows
from rekindle_spark.connectors.file_listing import Listing
from rekindle_spark.connectors.file_source import MISSING_SECONDS_MAX, FileSource


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files; `faults` of the module say what the system answers about one."""
    folder, stat = tmp_path / "in", os.stat
    folder.mkdir()

    def answer(path: Any, **given: Any) -> os.stat_result:
        fault = faults.get(Path(str(path)).name) if isinstance(path, str) else None
        if fault is not None:
            raise OSError(fault, os.strerror(fault), path)
        return stat(path, **given)

    monkeypatch.setattr(os, "stat", answer)
    faults.clear()
    return folder


faults: dict[str, int] = {}


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (errno.EIO, SourceAwayError, "cannot be read now (Input/output error)"),
        (errno.ESTALE, SourceAwayError, "cannot be read now (Stale file handle)"),
        (errno.EACCES, RunError, "cannot be read (Permission denied)"),
    ],
)
def test_what_is_wrong_with_one_file_is_said_of_it_and_not_of_the_store(
    fault: int, kind: type[RunError], text: str, inputs: Path
) -> None:
    (inputs / "a").write_text(lines(1))
    (inputs / "b").write_text(lines(2))
    found = source(inputs)
    faults["b"] = fault
    with pytest.raises(kind) as failed:
        ends(found)
    assert type(failed.value) is kind
    assert failed.value.where == f"file {inputs}/b"
    assert failed.value.what == text
    faults.clear()
    assert values(everything(found)) == [1, 2]


def test_a_link_to_nothing_and_one_to_itself_are_no_files(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    (inputs / "nothing").symlink_to("nowhere")
    (inputs / "itself").symlink_to("itself")
    (inputs / "other").symlink_to("a")
    assert values(everything(source(inputs))) == [1, 1]


@pytest.mark.parametrize("fault", [errno.EIO, errno.EACCES])
def test_columns_that_cannot_be_found_out_are_refused_with_the_file(
    fault: int, inputs: Path
) -> None:
    write("parquet", inputs / "a", [1])
    faults["a"] = fault
    with pytest.raises(InputError) as refused:
        FileSource(inputs, "parquet", event_time="at")
    assert refused.value.where == f"file {inputs}/a"
    assert "give the source a schema" in refused.value.remedy
    faults.clear()
    (inputs / "a").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match=r"cannot be read as Parquet .*; mend or remove it"):
        FileSource(inputs, "parquet", event_time="at")
    (inputs / "a").unlink()
    with pytest.raises(InputError, match="have none that says which columns there are"):
        FileSource(inputs, "parquet", event_time="at")


@pytest.mark.parametrize("suffix", ["parquet", "json", "csv"])
@pytest.mark.parametrize("in_place", [False, True], ids=["by another file", "in its place"])
def test_a_file_of_equal_size_and_time_is_another_one_by_what_it_holds(
    in_place: bool, suffix: str, inputs: Path, tmp_path: Path
) -> None:
    name, other = f"a.{suffix}", tmp_path / f"other.{suffix}"
    write(suffix, inputs / name, range(10, 17))
    found = source(inputs, form_of(suffix))
    assert ends(found) == {"0": (0, 7)}
    assert values(on_a_node(found).read("0", 0, 7)) == [*range(10, 17)]
    copy = tmp_path / "copy"
    shutil.copy2(inputs / name, copy)
    before = (inputs / name).stat()
    for begin in range(20, 90):  # Parquet packs some of them better
        write(suffix, other, range(begin, begin + 7))
        if other.stat().st_size == before.st_size:
            break
    assert other.stat().st_size == before.st_size
    if in_place:
        (inputs / name).write_bytes(other.read_bytes())
    else:
        other.replace(inputs / name)
    os.utime(inputs / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    file_rows._readers.idle.clear()  # as on a node that has not read it
    with pytest.raises(DataLossError, match="replaced or changed, and its rows are logged"):
        on_a_node(found).read("0", 0, 7)
    # a copy has another inode and another time of its change of state
    copy.replace(inputs / name)
    assert values(on_a_node(found).read("0", 0, 7)) == [*range(10, 17)]
    assert values(source(inputs, form_of(suffix)).read("0", 0, 7)) == [*range(10, 17)]


def test_a_digest_is_of_both_ends_and_kept_by_a_record_that_is_whole(inputs: Path) -> None:
    data = os.urandom(300_000)
    (inputs / "a").write_bytes(data)
    folder = file_folders.at(str(inputs))
    (one,) = folder.found(recursive=True)
    ends_of_it = data[: 1 << 16] + data[-(1 << 16) :]
    digest = hashlib.blake2b(ends_of_it, digest_size=16).hexdigest()
    with folder.open("a", one.version) as file:
        assert folder.digest_of_ends(file) == digest
        assert file.read() == data, "a digest leaves the place of reading alone"
    with folder.open("a", file_folders.marked(one.version, digest)) as file:
        assert file.read() == data
    listed = file_listing.ListedFile("a", 300_000, one.version, 0, "0", 0, 5, digest=digest)
    old = replace(listed, name="b", begin=5, digest="")
    written, again = Listing(), Listing()
    written.take_in(1, file_listing.of_files([listed, old]))
    again.take_in(2, written.whole({}, {}, set()))
    assert again.files == written.files == {"0": [listed, old]}
    assert "digest" not in listed.record(), "a release before would not read the file's record"


def test_reads_that_give_less_than_was_asked_for_make_no_other_digest(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inputs / "a").write_bytes(os.urandom(200_000))
    folder, read = file_folders.at(str(inputs)), os.pread
    (one,) = folder.found(recursive=True)
    with folder.open("a", one.version) as file:
        digest = folder.digest_of_ends(file)
        monkeypatch.setattr(os, "pread", lambda fd, count, at: read(fd, min(count, 1_000), at))
        assert folder.digest_of_ends(file) == digest
    folder.open("a", file_folders.marked(one.version, digest)).close()


def test_a_file_is_opened_once_when_it_is_listed_and_its_digest_takes_128_kib(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inputs / "a").write_text(lines(*range(20_000)))
    opened, read_bytes = list[str](), list[int]()
    opening, read = file_folders.LocalFolder.open, os.pread

    def counted_open(self: file_folders.LocalFolder, name: str, version: str) -> Any:
        opened.append(name)
        return opening(self, name, version)

    def counted_read(descriptor: int, count: int, at: int) -> bytes:
        read_bytes.append(count)
        return read(descriptor, count, at)

    monkeypatch.setattr(file_folders.LocalFolder, "open", counted_open)
    monkeypatch.setattr(os, "pread", counted_read)
    found = source(inputs)
    for _ in range(3):
        assert ends(found) == {"0": (0, 20_000)}
    assert (opened, sum(read_bytes)) == (["a"], 1 << 17)
    assert ends(source(inputs)) == {"0": (0, 20_000)}
    assert (opened, sum(read_bytes)) == (["a"] * 2, 1 << 18), "a driver that starts looks once"


def rewrite(path: Path, text: str) -> None:
    """Write a file in its place, with its time of change."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_a_file_that_a_node_has_open_is_compared_again_once_it_was_written(inputs: Path) -> None:
    (inputs / "a").write_text(lines(*range(200_000, 260_000)))
    found = source(inputs)
    assert ends(found) == {"0": (0, 60_000)}
    node = on_a_node(found)
    assert values(node.read("0", 0, 2)) == [200_000, 200_001]
    os.chmod(inputs / "a", 0o600)  # changes the inode alone
    assert values(node.read("0", 59_999, 60_000)) == [259_999]
    rewrite(inputs / "a", lines(*range(300_000, 360_000)))
    with pytest.raises(DataLossError, match="replaced or changed, and its rows are logged"):
        node.read("0", 30_000, 30_001)


def test_a_file_that_was_changed_between_its_ends_alone_is_another_by_its_time(
    inputs: Path,
) -> None:
    path, rows = inputs / "a", [*range(200_000, 260_000)]
    path.write_text(lines(*rows))
    node, before = on_a_node(source(inputs)), path.stat()
    assert ends(node) == {"0": (0, 60_000)}
    path.write_text(lines(*rows[:30_000], 999_999, *rows[30_001:]))
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
    with pytest.raises(DataLossError, match="replaced or changed, and its rows are logged"):
        node.read("0", 0, 60_000)


def test_of_what_differs_between_the_ends_alone_the_checksums_of_pages_tell(inputs: Path) -> None:
    path, count = inputs / "a", 12_000
    at = pa.array([0] * count, pa.timestamp("us"))
    table = pa.table({"at": at, "key": ["k"] * count, "value": range(count)}, schema=SCHEMA)
    pq.write_table(
        table,
        path,
        compression="none",
        use_dictionary=["key"],
        data_page_size=8_192,
        row_group_size=2_000,
        write_page_checksum=True,
    )
    found = source(inputs, "parquet")
    assert ends(found) == {"0": (0, count)}
    before, data = path.stat(), path.read_bytes()
    value = (7_000).to_bytes(8, "little")
    assert (data.count(value), data.index(value) >> 16) == (1, 1)
    assert len(data) - data.index(value) > 1 << 16
    path.write_bytes(data.replace(value, (7).to_bytes(8, "little")))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    read = on_a_node(found).read("0", 0, count)
    assert values(read) == [*range(6_000), *range(8_000, count)]
    assert read.rejects.num_rows == 2_000


def test_a_driver_that_starts_takes_a_file_with_another_digest_for_a_changed_one(
    inputs: Path,
) -> None:
    (inputs / "a").write_text(lines(10, 11, 12))
    assert ends(source(inputs)) == {"0": (0, 3)}
    rewrite(inputs / "a", lines(20, 21, 22))
    (inputs / "b").write_text(lines(13))
    found, now = source(inputs), time.monotonic()
    assert ends(found) == {"0": (0, 0)}
    assert ends(found, at=now + 2 * MISSING_SECONDS_MAX) == {"0": (3, 4)}
    assert found.latest_offsets()["0"].why == "file a was changed"
    rewrite(inputs / "a", lines(10, 11, 12))
    assert ends(found, at=now + 3 * MISSING_SECONDS_MAX) == {"0": (0, 4)}


def test_files_that_a_release_without_digests_has_listed_are_read_by_size_and_time(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("json", inputs / "a", range(3))
    with monkeypatch.context() as before:
        before.setattr(file_folders.LocalFolder, "digest_of_ends", lambda *_: "")
        found = source(inputs)
        assert ends(found) == {"0": (0, 3)}
    (record,) = (inputs.parent / "store" / "listings").rglob("1.json")
    assert b"digest" not in record.read_bytes()
    write("json", inputs / "b", range(3, 5))
    again = source(inputs)
    assert ends(again) == {"0": (0, 5)}
    assert values(on_a_node(again).read("0", 0, 5)) == [*range(5)]
