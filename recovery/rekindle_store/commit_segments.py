"""Segments: many commit records in one file, once a driver needs their own files no more.

    commits/1.json ... commits/500.json  ──seal──►  commits/segments/1-500.jsonl.gz

A segment has the lines of `LENGTH` records whose numbers follow each other, byte for byte, and its
name can be made from any of the numbers, so that nobody has to list segments to find a record. Its
content follows from its name: the log before it never changes, so whoever makes it makes the same,
and a driver that was superseded does no harm with it. `segment_writer` makes them for the driver,
and `commit_log` reads them for all. Format: docs/formats.md.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.model import record_format
from rekindle.model.errors import DamagedError
from rekindle_store.store_files import Files

FOLDER = "commits/segments"
# Three megabytes of records where thirty queries have 60 partitions.
LENGTH = 500
NAME = re.compile(r"([0-9]+)-([0-9]+)\.jsonl\.gz")


def first_of(number: int) -> int:
    """The first record of the segment that has a record, or will have it."""
    return number - (number - 1) % LENGTH


def name_of(number: int) -> str:
    """The file of the segment that has a record, or will have it, by its name in the store."""
    first = first_of(number)
    return f"{FOLDER}/{first}-{first + LENGTH - 1}.jsonl.gz"


def pack(lines: Sequence[bytes]) -> bytes:
    """A segment's content from its records' bytes, of which each is a line."""
    assert len(lines) == LENGTH, f"a segment has {LENGTH} records, not {len(lines)}"
    return gzip.compress(b"".join(lines), mtime=0)


def read(files: Files, number: int) -> list[bytes] | None:
    """The lines of the segment that has a record; None where there is none.

    Raises DamagedError for one that is not what was written, and OSError while the store is away.
    """
    try:
        data = files.read(name_of(number))
    except FileNotFoundError:
        return None
    try:
        lines = gzip.decompress(data).splitlines(keepends=True)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(files, number, f"cannot be unpacked ({error})") from error
    if len(lines) != LENGTH:
        raise damaged(files, number, f"has {len(lines)} records, not {LENGTH}")
    return lines


def decoded(
    files: Files, begin: int, lines: Sequence[bytes]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records from `begin` on that are lines of its segment, with their numbers. Raises
    DamagedError for one that is not what was written, RunError for another version's."""
    for number, line in enumerate(lines[begin - first_of(begin) :], begin):
        where = f"{files.place}/{name_of(begin)}: record {number}"
        yield number, record_format.decode("commit", line, where)


def newest(files: Files) -> int:
    """The last record that is in a segment; 0 without any. Segments are made in order."""
    names = (NAME.fullmatch(name) for name in files.stream_names(FOLDER))
    return max((int(match[2]) for match in names if match), default=0)


def made(files: Files) -> tuple[set[int], list[tuple[int, int]]]:
    """The first records of the segments that are there; and first and last record of files that
    are named as segments, though no segment has these records together."""
    found = (NAME.fullmatch(name) for name in files.names(FOLDER))
    spans = {(int(match[1]), int(match[2])) for match in found if match}
    right = {(first, last) for first, last in spans if _is_span(first, last)}
    return {first for first, _ in right}, sorted(spans - right)


def _is_span(first: int, last: int) -> bool:
    return first % LENGTH == 1 % LENGTH and last == first + LENGTH - 1


def damaged(files: Files, number: int, what: str) -> DamagedError:
    """What is wrong with the segment that has a record, with place and remedy."""
    where = f"{files.place}/{name_of(number)}"
    return DamagedError(where=where, what=what, remedy="restore it from a copy of the store")
