"""The list of a source's files: of which place it is, and what is listed again."""

import errno
import gzip
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from file_inputs import ends, everything, lines, on_a_node, source, values

from rekindle.model import record_format
from rekindle.model.errors import InputError
from rekindle_spark.connectors import file_folders, file_listing
from rekindle_spark.connectors.file_folders import BucketFolder
from rekindle_spark.connectors.file_listing import ListedFile, Listing, ListingLog
from rekindle_spark.connectors.file_source import ABSENCE_SECONDS, MENDED_SECONDS, FileSource
from rekindle_store import store_files
from rekindle_store.object_files import ObjectFiles


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name in ("in", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(lines(1) if name == "in" else lines(7, 8))
    return tmp_path / "in"


def check(found: FileSource, inputs: Path) -> None:
    """As a driver does before it takes a generation."""
    found.check_records(store_files.at(inputs.parent / "store"), "orders")


def record(inputs: Path, number: int) -> Path:
    return inputs.parent / f"store/listings/orders/{number}.json"


def test_another_folder_on_the_same_store_is_refused_though_names_are_the_same(
    inputs: Path,
) -> None:
    assert values(everything(source(inputs))) == [1]
    check(source(inputs), inputs)
    moved = source(inputs.parent / "other")
    with pytest.raises(InputError) as refused:
        check(moved, inputs)
    said = str(refused.value)
    assert said.startswith(f"step orders: files at {inputs.parent / 'other'}: are others than")
    assert f"which are at {inputs}" in said
    assert "give the step another name" in said
    with pytest.raises(InputError, match="are others than"):
        ends(moved)
    assert not record(inputs, 2).exists()


def test_the_place_stays_known_once_records_were_put_together(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    found = source(inputs)
    for number in range(2, 5):
        (inputs / f"{number}").write_text(lines(number))
        found.commit({"0": ends(found)["0"][1]})
    ends(found)
    names = sorted(path.name for path in record(inputs, 1).parent.iterdir())
    assert names[0] != "1.json"
    with pytest.raises(InputError, match="are others than"):
        check(source(inputs.parent / "other"), inputs)


def test_an_older_list_without_a_place_is_taken_and_gets_one_with_its_next_record(
    inputs: Path,
) -> None:
    ends(source(inputs))
    path = record(inputs, 1)
    content = record_format.decode("listing", path.read_bytes(), "here")
    assert content.pop("place") == str(inputs)
    path.write_bytes(record_format.encode("listing", content))
    check(source(inputs.parent / "other"), inputs)
    found = source(inputs)
    check(found, inputs)
    (inputs / "b").write_text(lines(2))
    assert values(everything(found)) == [1, 2]
    with pytest.raises(InputError, match="are others than"):
        check(source(inputs.parent / "other"), inputs)
    (inputs / "c").write_text(lines(3))
    assert values(everything(found)) == [1, 2, 3]
    assert "place" not in record_format.decode("listing", record(inputs, 3).read_bytes(), "here")


def test_a_bucket_is_the_same_place_however_it_is_written() -> None:
    places = {file_folders.at(name).place for name in ("s3://in/orders", "S3://in/orders/")}
    assert places == {"s3://in/orders"}


def test_s3a_is_another_word_for_s3_and_no_other_place(tmp_path: Path) -> None:
    def log(place: str) -> ListingLog:
        made = ListingLog(store_files.at(tmp_path), "listings/orders", file_folders.at(place).place)
        made.make_folder()
        made.catch_up()
        return made

    assert log("s3a://in/orders").add_record({"files": []})
    log("s3://in/orders/").check_place()
    log("S3A://in/orders").check_place()
    for other in ("s3://in/others", "s3a://other/orders"):
        with pytest.raises(InputError, match=r"For the same files at a new place see docs/files"):
            log(other).check_place()


def rejected(found: FileSource) -> int:
    return everything(found).rejects.num_rows


@pytest.mark.parametrize("dead_letters", [True, False])
def test_a_file_that_could_not_be_read_is_read_once_it_is_mended(
    inputs: Path, dead_letters: bool
) -> None:
    """Its dead letter stays where it is kept: epochs with it have counted. Without, none has."""
    bad = inputs / "b.json.gz"
    bad.write_bytes(gzip.compress(lines(2, 3).encode())[:-9])
    found = source(inputs)
    found.keep_in(store_files.at(inputs.parent / "store"), "orders", dead_letters=dead_letters)
    assert ends(found, at=0.0) == {"0": (0, 2)}
    assert (values(everything(found)), rejected(found)) == ([1], 1)
    assert ends(found, at=100.0) == {"0": (0, 2)}, "it is as it was"
    bad.write_bytes(gzip.compress(lines(2, 3).encode()))
    assert ends(found, at=101.0) == {"0": (0, 2)}, "it may still be written"
    assert ends(found, at=101.0 + MENDED_SECONDS) == {"0": (0, 4)}
    assert (values(everything(found)), rejected(found)) == ([1, 2, 3], int(dead_letters))
    found.commit({"0": 4})
    bad.write_bytes(gzip.compress(lines(4).encode()))
    for at in (200.0, 300.0):
        assert ends(found, at=at)["0"][1] == 4, "it was read, and a name is read once"


@pytest.mark.parametrize("dead_letters", [True, False])
def test_one_that_is_mended_with_its_size_and_time_is_read_as_well(
    inputs: Path, dead_letters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    good, bad = gzip.compress(lines(2, 3).encode()), inputs / "b.json.gz"
    bad.write_bytes(good[:-9] + bytes(9))
    before = bad.stat()
    found = source(inputs)
    found.keep_in(store_files.at(inputs.parent / "store"), "orders", dead_letters=dead_letters)
    assert ends(found, at=0.0) == {"0": (0, 2)}
    found.commit({"0": 2})
    assert not record(inputs, 1).exists(), "put together"
    start = time.monotonic()
    again = source(inputs)
    again.keep_in(store_files.at(inputs.parent / "store"), "orders", dead_letters=dead_letters)
    ends(again)
    assert ends(again, at=start) == {"0": (2, 2)}, "it is as it was"
    bad.write_bytes(good)
    os.utime(bad, ns=(before.st_atime_ns, before.st_mtime_ns))
    start = time.monotonic()
    assert ends(again, at=start + ABSENCE_SECONDS)["0"][1] == 2, "it may still be written"
    later = start + ABSENCE_SECONDS + MENDED_SECONDS
    for seconds in (0, 100, 200):
        assert ends(again, at=later + seconds)["0"][1] == 4
    assert values(on_a_node(again).read("0", 2, 4)) == [2, 3]


def test_without_dead_letters_a_file_that_could_not_be_read_may_be_removed(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    (inputs / "b.gz").write_bytes(b"nothing packed")
    found = source(inputs)
    assert (ends(found)["0"], rejected(found)) == ((0, 2), 1)
    (inputs / "b.gz").unlink()
    assert (values(everything(found)), rejected(found)) == ([1], 0)


def test_versions_that_could_not_be_read_stay_known_once_records_were_put_together(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    (inputs / "b.gz").write_bytes(b"nothing packed")
    found = source(inputs)
    for number in range(3, 8):
        (inputs / f"{number}").write_text(lines(number))
        found.commit({"0": ends(found, at=0.0)["0"][1]})
    assert not record(inputs, 1).exists()
    high = ends(found, at=50.0)["0"][1]
    (inputs / "b.gz").write_bytes(gzip.compress(lines(9).encode()))
    again = source(inputs)
    assert ends(again)["0"][1] == high
    later = time.monotonic() + MENDED_SECONDS
    assert ends(again, at=later)["0"][1] == high + 1
    assert values(on_a_node(again).read("0", high, high + 1)) == [9]


def test_a_mended_file_is_read_once_in_whichever_partition_it_is(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that could not be read is in a later partition than the one that can."""
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    (inputs / "b.gz").write_bytes(b"nothing packed")
    found = source(inputs, partitions=2)
    assert ends(found) == {"0": (0, 1), "1": (0, 1)}
    (inputs / "b.gz").write_bytes(gzip.compress(lines(5).encode()))
    now = time.monotonic()
    ends(found, at=now)
    mended = {"0": (0, 2), "1": (0, 1)}
    assert ends(found, at=now + MENDED_SECONDS) == mended
    found.commit({"0": 0, "1": 0})
    assert not record(inputs, 1).exists(), "put together"
    for name in ("here", "elsewhere"):
        again = found if name == "here" else source(inputs, partitions=2)
        ends(again)
        assert ends(again, at=time.monotonic() + 100) == mended


def test_a_whole_record_of_a_release_before_lists_no_mended_file_again() -> None:
    """It does not have which versions could not be read, and its files are by partition."""
    mended = ListedFile("b.gz", 9, "new", 5, "0", 0, 2)
    broken = ListedFile("b.gz", 7, "old", 4, "1", 0, 1, error="ends too soon")
    listing = Listing()
    listing.take_in(1, {"files": [broken.record()]})
    assert listing.is_mended("b.gz", "new")
    files = [mended.record(), broken.record()]
    listing.take_in(2, {"whole": True, "files": files, "begins": {"0": 0, "1": 0}, "seen": []})
    assert "b.gz" in listing.seen
    assert not any(listing.is_mended("b.gz", version) for version in ("old", "new", "newer"))


class Bucket:
    """What a client of S3 answers, in place of one. `found` has content and ETag of each object."""

    def __init__(self, found: dict[str, tuple[bytes, str]]) -> None:
        self.found = found

    def objects(self) -> Iterator[dict[str, Any]]:
        for name, (data, tag) in self.found.items():
            changed = datetime.fromtimestamp(0, UTC)
            yield {"path": name, "size": len(data), "e_tag": tag, "last_modified": changed}

    def size(self, name: str) -> int:
        if name not in self.found:
            raise FileNotFoundError(errno.ENOENT, "no such key", name)
        return len(self.found[name][0])

    def read_range(self, name: str, begin: int, end: int, version: str) -> bytes:
        data, tag = self.found[name]
        if tag != version:
            raise OSError(errno.ESTALE, "precondition failed", name)
        return data[begin:end]


def test_an_object_that_could_not_be_read_holds_nothing_up_once_it_is_another_one(
    inputs: Path,
) -> None:
    bucket = Bucket({"a": (lines(1).encode(), '"1"'), "b.gz": (b"nothing packed", '"2"')})
    found = source(inputs)
    found._folder = BucketFolder("s3://in/orders", cast("ObjectFiles", bucket))
    assert ends(found) == {"0": (0, 2)}

    def rejects() -> int:
        read = found.read("0", 0, 2)
        assert values(read) == [1]
        count: int = read.rejects.num_rows
        return count

    assert rejects() == 1, "it is as it was"
    bucket.found["b.gz"] = (gzip.compress(lines(2, 3).encode()), '"3"')
    assert rejects() == 0
    bucket.found["b.gz"] = (b"", '"4"')
    assert rejects() == 0
    del bucket.found["b.gz"]
    assert rejects() == 0
