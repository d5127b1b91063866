"""Segments: many commit records in one file, once a driver needs their own files no more.

    commits/1.json ... commits/500.json  ──seal──►  commits/segments/1-500.jsonl.gz

A segment has `LENGTH` records whose numbers follow each other, a line for each, and its name can be
made from any of the numbers, so that nobody has to list segments to find a record. Its content
follows from its name: the log before it never changes, so whoever makes it makes the same, and a
driver that was superseded does no harm with it. `segment_writer` makes them for the driver, and
`commit_log` reads them for all.

A segment keeps what readers need (`kept`), and no digests: these are for epochs that may run again.
Moments and epochs are differences, since other digits in each line are what does not compress. The
first line has a checksum of its own, and the digest of the others. Segments of the version before
have the lines of records as they were, byte for byte, and are read as well. Format:
docs/formats.md.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from rekindle.model import record_format
from rekindle.model.errors import DamagedError
from rekindle_store.store_files import Files

Record = dict[str, Any]

FOLDER = "commits/segments"
# A megabyte of lines where thirty queries have 60 partitions.
LENGTH = 500
NAME = re.compile(r"([0-9]+)-([0-9]+)\.jsonl\.gz")
# Of the first line. Those of 1 have whole records as lines.
VERSION, OF_WHOLE_RECORDS = 2, 1
# What the first line has beside its record.
OF_THE_SEGMENT = (*record_format.OF_THE_RECORD, "lines")
# Lists of a record whose entries have an epoch at their second place.
WITH_EPOCHS = ("late", "choices")
ENDING = ".parquet"


@dataclass(frozen=True, slots=True)
class CommitSegment:
    """The lines of a segment, whose place is `where`; `first` is the number of its first record."""

    where: str
    first: int
    version: int
    lines: Sequence[bytes]

    def records(self, begin: int = 0) -> Iterator[tuple[int, Record]]:
        """The records from number `begin` on, with their numbers.

        Raises DamagedError for one that is not what was written, RunError for another version's.
        """
        for number, found in self.checked():
            if number >= begin:
                if isinstance(found, DamagedError):
                    raise found
                yield number, found

    def checked(self) -> Iterator[tuple[int, Record | DamagedError]]:
        """All records with their numbers; of each that is not what was written, what is wrong."""
        before = _Before()
        for number, line in enumerate(self.lines, self.first):
            if self.version == OF_WHOLE_RECORDS:
                yield number, self._whole(number, line)
            else:
                record, before = _unpacked(json.loads(line), before)
                yield number, record

    def own_file(self, number: int) -> bytes:
        """What one of the records has as a file of its own. Raises as `records`."""
        _, record = next(self.records(number))
        return record_format.encode("commit", record)

    def _whole(self, number: int, line: bytes) -> Record | DamagedError:
        try:
            return record_format.decode("commit", line, f"{self.where}: record {number}")
        except DamagedError as error:
            return error


@dataclass(frozen=True, slots=True)
class _Before:
    """What the next line's differences are from: milliseconds, and an epoch."""

    at: int = 0
    epoch: int = 0


def first_of(number: int) -> int:
    """The first record of the segment that has a record, or will have it."""
    return number - (number - 1) % LENGTH


def name_of(number: int) -> str:
    """The file of the segment that has a record, or will have it, by its name in the store."""
    first = first_of(number)
    return f"{FOLDER}/{first}-{first + LENGTH - 1}.jsonl.gz"


def kept(record: Mapping[str, Any]) -> Record:
    """What a segment keeps of a record. Digests are left out, as `[]` of what is finished and None
    of an output file, and moments are those of milliseconds."""
    found = {
        **record,
        "at": _seconds(_milliseconds(record["at"])),
        "finished": {name: [a, b, []] for name, (a, b, _) in record["finished"].items()},
        "outputs": [[*output, None] for *output, _ in record["outputs"]],
    }
    if "lag_goals" in record:
        goals = record["lag_goals"]
        seconds = {name: round(value, 3) for name, value in goals["seconds"].items()}
        at = _seconds(_milliseconds(goals["at"]))
        found["lag_goals"] = {**goals, "at": at, "seconds": seconds}
    return found


def pack(records: Iterable[Mapping[str, Any]]) -> bytes:
    """A segment's content from its records, which may be a stream."""
    first: Record = {}
    others: list[bytes] = []
    before = _Before()
    for record in records:
        content, before = _packed(kept(record), before)
        if first:
            others.append(record_format.canonical_line(content))
        else:
            first = content
    assert len(others) == LENGTH - 1, f"a segment has {LENGTH} records"
    first["lines"] = sha256(b"".join(others)).hexdigest()
    data = [record_format.encode("commit", first, VERSION), *others]
    return gzip.compress(b"".join(data), mtime=0)


def read(files: Files, number: int) -> CommitSegment | None:
    """The segment that has a record; None where there is none.

    Raises DamagedError for one that is not what was written, RunError for another version's, and
    OSError while the store is away.
    """
    try:
        data = files.read(name_of(number))
    except FileNotFoundError:
        return None
    try:
        lines = gzip.decompress(data).splitlines(keepends=True)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(files, number, f"cannot be unpacked ({error})") from error
    where, version = f"{files.place}/{name_of(number)}", _version(lines)
    digest = ""
    if version != OF_WHOLE_RECORDS:
        digest = record_format.decode("commit", lines[0], where, VERSION)["lines"]
    if len(lines) != LENGTH:
        raise damaged(files, number, f"has {len(lines)} records, not {LENGTH}")
    if digest and digest != sha256(b"".join(lines[1:])).hexdigest():
        raise damaged(files, number, "does not match its checksum")
    return CommitSegment(where, first_of(number), version, lines)


def own_file(files: Files, number: int) -> bytes:
    """What a record that is in a segment has as a file of its own. Raises as `read`."""
    segment = read(files, number)
    assert segment is not None, f"{name_of(number)} is not there any more"
    return segment.own_file(number)


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


def _version(lines: Sequence[bytes]) -> int:
    """The version of a segment. Where its first line is no record it counts as one of whole
    records, of which each that is damaged is told."""
    try:
        return int(json.loads(lines[0])["version"])
    except (LookupError, ValueError, TypeError, RecursionError):
        return OF_WHOLE_RECORDS


def _packed(record: Record, before: _Before) -> tuple[Record, _Before]:
    """A line's content from what is kept of a record, and what the next one is counted from."""
    assert not {"epoch", *OF_THE_SEGMENT} & record.keys(), "these names are the segment's"
    finished = record["finished"].items()
    ends = [last for _, (_, last, _) in finished]
    epoch = max([*ends, *(output[1] for output in record["outputs"])], default=before.epoch)
    at = _milliseconds(record["at"])
    content = {
        **record,
        "at": at - before.at,
        "epoch": epoch - before.epoch,
        "finished": {name: [a - epoch, b - epoch] for name, (a, b, _) in finished},
        "outputs": [
            [part, of - epoch, rows, *_short(file, part, of)]
            for part, of, rows, file, _ in record["outputs"]
        ],
    }
    for name in record.keys() & WITH_EPOCHS:
        content[name] = [[part, of - epoch, *rest] for part, of, *rest in record[name]]
    if "lag_goals" in record:
        since = _milliseconds(record["lag_goals"]["at"]) - at
        content["lag_goals"] = {**record["lag_goals"], "at": since}
    return content, _Before(at, epoch)


def _unpacked(content: Record, before: _Before) -> tuple[Record, _Before]:
    """What is kept of a record from a line's content, and what the next one is counted from."""
    at, epoch = before.at + content["at"], before.epoch + content["epoch"]
    record = {name: value for name, value in content.items() if name not in OF_THE_SEGMENT}
    del record["epoch"]
    record["at"] = _seconds(at)
    record["finished"] = {
        name: [epoch + a, epoch + b, []] for name, (a, b) in content["finished"].items()
    }
    record["outputs"] = [
        [part, epoch + of, rows, _long(short, part, epoch + of), None]
        for part, of, rows, *short in content["outputs"]
    ]
    for name in content.keys() & WITH_EPOCHS:
        record[name] = [[part, epoch + of, *rest] for part, of, *rest in content[name]]
    if "lag_goals" in content:
        since = content["lag_goals"]["at"]
        record["lag_goals"] = {**content["lag_goals"], "at": _seconds(at + since)}
    return record, _Before(at, epoch)


def _short(file: str, part: str, epoch: int) -> list[str]:
    """What an output file's name has behind partition and epoch, nothing where that is `ENDING`; or
    the whole name behind a `/`."""
    begin = _begin(part, epoch)
    if not file.startswith(begin) or file.startswith(f"{begin}/"):
        return [f"/{file}"]
    return [] if file == begin + ENDING else [file.removeprefix(begin)]


def _long(short: Sequence[str], part: str, epoch: int) -> str:
    end = short[0] if short else ENDING
    return end[1:] if end.startswith("/") else _begin(part, epoch) + end


def _begin(part: str, epoch: int) -> str:
    return f"{part.rpartition('/')[2]}-{epoch:09d}"


def _milliseconds(at: float) -> int:
    return round(at * 1000)


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000
