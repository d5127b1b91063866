"""The records of a checkpoint store as readers see them, while a driver may be running.

    commits/N.json       numbered from 1 without gaps; `commits` streams them in order
    commits/segments/    where older ones are once a driver has put them together
    (`commit_segments`) generations/N.json   one for each start of a driver; `generations` and
    `identity`

All readers list records here, so that nobody else has to know how the log is laid out. A log gets
long: it is read as a stream, some records ahead, and never held as a whole.
"""

import re
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from typing import Any

from rekindle.model import record_format
from rekindle.model.errors import DamagedError
from rekindle_store import commit_segments
from rekindle_store.store_files import Files

Record = dict[str, Any]

# Records that are read at the same time: a server may be far away. It starts with one, so that a
# reader who asks for the next record again and again does not ask for sixteen.
READERS_MAX = 16
NUMBERED = re.compile(r"([0-9]+)\.json")
REMEDY = "restore it from a copy of the store"
# Of which store this one is a copy, with what sets it apart from it and from other copies.
COPY = "copy.json"
# A file that is there while a store is being copied to this place: no driver starts on it.
COPYING = "generations/copying"


def commits(
    files: Files, after: int = 0, *, followed: bool = False
) -> Generator[tuple[int, Record]]:
    """Yield the commit records behind number `after`, in order, up to the newest one.

    Whoever has `followed` the log up to there asks for one file where there is no news. It misses a
    record that has been put into a segment since, so now and then it has to ask without.

    A record that is in a segment has no digests (`commit_segments.kept`). Raises DamagedError,
    RunError for a record of another version, and OSError while the store is away. Where the next
    record is missing, and as many behind it as are read together, it ends: compare the last number
    with `newest` to be sure of the end.
    """
    number = after + 1
    with ThreadPoolExecutor(READERS_MAX) as pool:
        while True:
            data = _read(files, "commits", number)
            if data is None and followed:
                return
            # A record loses its own file once its segment is there: so in this order. And where
            # there is a segment, it counts.
            segment = commit_segments.read(files, number)
            if segment is not None:
                found = segment.records(number)
            elif data is not None:
                yield number, _decoded(files, "commits", "commit", number, data)
                found = _own_files(files, number + 1, pool)
            else:
                return
            for number, record in found:
                yield number, record
            number += 1


def _own_files(files: Files, begin: int, pool: ThreadPoolExecutor) -> Iterator[tuple[int, Record]]:
    """The records from one on that have files of their own, up to where their segment will end.
    They are read together, more and more of them."""
    count, end = 2, commit_segments.first_of(begin - 1) + commit_segments.LENGTH
    while begin < end:
        numbers = range(begin, min(begin + count, end))
        found = list(pool.map(partial(_read, files, "commits"), numbers))
        for number, data in zip(numbers, found, strict=True):
            if data is None:
                if any(data is not None for data in found[number - begin :]):
                    check_next(files, number - 1)  # it may have come while others were read
                return
            yield number, _decoded(files, "commits", "commit", number, data)
        begin, count = numbers[-1] + 1, min(READERS_MAX, 2 * count)


def check_next(files: Files, after: int) -> None:
    """Raise DamagedError where the record behind number `after` is not there. To be called where a
    later one is: records get their numbers without gaps."""
    number = after + 1
    if _read(files, "commits", number) is None and commit_segments.read(files, number) is None:
        where = f"{files.place}/commits/{number}.json"
        raise _missing(where, "is not there, but what came later is")


def newest(files: Files) -> int:
    """The number of the newest commit record, 0 where there is none. Lists the folder, so it is not
    for each look at a log that is followed. The newest record always has a file of its own."""
    return max(_numbers(files, "commits"), default=0)


def fingerprint(files: Files, number: int) -> str:
    """What sets a commit record apart from those of the same number in other logs, 16 hex digits;
    empty where it is not there. It stays the same when the record is put into a segment.

    Raises DamagedError, RunError and OSError as `commits`.
    """
    with closing(commits(files, number - 1)) as found:
        for _, record in found:
            return _name_of(record_format.canonical_line(commit_segments.kept(record)))
    return ""


def restore_newest(files: Files) -> str:
    """Give the newest record a file of its own again, where it is in a segment alone; the file's
    name, empty where nothing was to be done.

    Raises DamagedError, RunError for another version's, and OSError while the store is away.
    """
    last = commit_segments.newest(files)
    if last <= newest(files):
        return ""
    name = f"commits/{last}.json"
    files.put({name: commit_segments.own_file(files, last)})
    return name


def is_seal(record: Record) -> bool:
    """Whether a driver has sealed the log at its start with a commit record: no other names
    nothing. It keeps its own file for good."""
    return not record["finished"] and not record["outputs"]


def generations(files: Files) -> list[int]:
    """The numbers of the drivers that have started on a store, ascending; none where no pipeline
    has run."""
    return numbers(files, "generations")


def numbers(files: Files, folder: str) -> list[int]:
    """The numbers of the records that have files of their own in a folder, ascending."""
    return sorted(_numbers(files, folder))


def generation(files: Files, number: int) -> Record:
    """The record of a driver's start. Raises DamagedError, RunError and OSError as `commits`."""
    data = _read(files, "generations", number)
    if data is None:
        raise _missing(f"{files.place}/generations/{number}.json", "is not there")
    return _decoded(files, "generations", "generation", number, data)


def is_being_copied(files: Files) -> bool:
    """Whether this is a copy that has not been made to its end."""
    folder, _, name = COPYING.partition("/")
    return name in files.stream_names(folder)


def origin(files: Files) -> str:
    """A name that this store shares with its copies and with no other, 16 hex digits; empty where
    no driver has started.

    It is made of the record of the first generation, which is written once and never removed.
    """
    data = _read(files, "generations", 1)
    return "" if data is None else _name_of(data)


def identity(files: Files) -> str:
    """A name that this store shares with no other, 16 hex digits; empty where no driver has
    started. A copy has another one than the store that it was made of (`store_copies`): drivers go
    on with both, and are not to be taken for each other."""
    data = _read(files, "generations", 1)
    if data is None:
        return ""
    try:
        return _name_of(data + files.read(COPY))
    except FileNotFoundError:
        return _name_of(data)


def copied_from(files: Files) -> tuple[str, ...]:
    """The identities of the stores of which this one is a copy: of which it was made, of which that
    one was, and so on; none where it is no copy. Records of older copies have the first alone."""
    try:
        data = files.read(COPY)
    except FileNotFoundError:
        return ()
    record = record_format.decode("copy", data, f"{files.place}/{COPY}")
    return (str(record["of"]), *(str(one) for one in record.get("before", ())))


def _name_of(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


def _numbers(files: Files, folder: str) -> Iterator[int]:
    found = (NUMBERED.fullmatch(name) for name in files.stream_names(folder))
    return (int(match[1]) for match in found if match)


def _read(files: Files, folder: str, number: int) -> bytes | None:
    try:
        return files.read(f"{folder}/{number}.json")
    except FileNotFoundError:
        return None


def _decoded(files: Files, folder: str, kind: str, number: int, data: bytes) -> Record:
    return record_format.decode(kind, data, f"{files.place}/{folder}/{number}.json")


def _missing(where: str, what: str) -> DamagedError:
    return DamagedError(where=where, what=what, remedy=REMEDY)
