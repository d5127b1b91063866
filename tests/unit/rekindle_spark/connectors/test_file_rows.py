"""Packed texts: each is unpacked once by who goes on reading it, whatever stretches are read."""

import gzip
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_inputs import ends, lines, on_a_node, source, values

from rekindle_spark.connectors import file_rows
from rekindle_spark.connectors.file_rows import Piece
from rekindle_spark.connectors.file_source import FileSource

COUNT = 4_000


class Gzip(gzip.GzipFile):
    """Counts how often files are opened, and gone back in: that begins at the start again."""

    opened = 0
    back = 0
    closed_files = 0

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        Gzip.opened += 1

    def seek(self, offset: int, whence: int = 0) -> int:
        Gzip.back += whence == 0 and offset < super().seek(0, 1)
        return super().seek(offset, whence)

    def close(self) -> None:
        Gzip.closed_files += not self.closed
        super().close()


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSource:
    """A source with a packed file of many marks, as a node has it, and none of it read yet."""
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "a.json.gz").write_bytes(gzip.compress(lines(*range(COUNT)).encode()))
    monkeypatch.setattr(file_rows, "MARK_BYTES", 4_096)
    found = source(inputs)
    assert ends(found) == {"0": (0, COUNT)}
    monkeypatch.setattr(gzip, "GzipFile", Gzip)
    monkeypatch.setattr(file_rows, "_readers", file_rows._Readers())
    Gzip.opened = Gzip.back = Gzip.closed_files = 0
    return on_a_node(found)


class Unread(list[int]):
    """Numbers that nobody goes through."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("went through all rows")


def test_where_no_row_is_wrong_none_is_looked_at() -> None:
    piece = Piece(pa.table({"n": [1, 2]}), Unread([0, 1]), {})
    assert file_rows._without(piece, {}) is piece


def read_on(found: FileSource, step: int) -> None:
    for begin in range(0, COUNT, step):
        end = min(COUNT, begin + step)
        assert values(found.read("0", begin, end)) == [*range(begin, end)]


@pytest.mark.parametrize("step", [7, 333])
def test_epochs_one_after_the_other_unpack_a_file_once(packed: FileSource, step: int) -> None:
    read_on(packed, step)
    assert (Gzip.opened, Gzip.back) == (1, 0)
    assert Gzip.closed_files == 1, "nobody goes on with it"
    assert file_rows._readers.idle == []


def test_readers_of_one_process_that_share_a_file_each_unpack_it_once(packed: FileSource) -> None:
    readers, epoch = 4, 500
    for begin in range(0, COUNT, epoch):
        for number in range(readers):
            low, high = (begin + epoch * n // readers for n in (number, number + 1))
            assert values(packed.read("0", low, high)) == [*range(low, high)]
    assert Gzip.back == 0
    assert Gzip.opened <= readers


def test_who_begins_anywhere_and_goes_back_reads_the_same(packed: FileSource) -> None:
    rng = random.Random(5)
    for _ in range(60):
        begin = rng.randrange(COUNT)
        end = rng.randint(begin + 1, min(COUNT, begin + 400))
        assert values(packed.read("0", begin, end)) == [*range(begin, end)]
    assert Gzip.back == 0, "another one is opened for it"


def test_files_that_nobody_reads_are_closed(packed: FileSource) -> None:
    now, readers = [100.0], file_rows._readers
    readers.clock = lambda: now[0]
    packed.read("0", 0, 10)
    assert [begin for _, _, begin in readers.idle] == [100.0]
    now[0] += file_rows.IDLE_SECONDS + 1
    packed.read("0", 0, 10)
    now[0] += 1
    packed.read("0", 3_000, 3_010)
    assert len(readers.idle) == 1
    for _ in range(3):
        readers.idle += [(("x", str(n), ""), packed_text(), now[0]) for n in range(10)]
        packed.read("0", 3_500, 3_510)
        assert len(readers.idle) == file_rows.OPEN_MAX


def packed_text() -> Any:
    """A reader of another file."""
    return file_rows._PackedText(io.BytesIO())  # type: ignore[arg-type]
