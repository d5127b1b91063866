"""The records of a checkpoint store as readers see them, while a driver may be running.

    commits/N.json       numbered from 1 without gaps; `commits` streams them in order
    generations/N.json   one for each start of a driver; `generations` and `identity`

All readers list records here, so that nobody else has to know how the log is laid out. A log gets
long: it is read as a stream, some records ahead, and never held as a whole.
"""

import re
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import Any

from rekindle import records
from rekindle.errors import DamagedError
from rekindle_store.files import Files

__all__ = ["Record", "check_next", "commits", "generation", "generations", "identity", "newest"]

Record = dict[str, Any]

# Records that are read at the same time: a server may be far away. It starts with one, so that a
# reader who asks for the next record again and again does not ask for sixteen.
READERS_MAX = 16
NUMBERED = re.compile(r"([0-9]+)\.json")
REMEDY = "restore it from a copy of the store"


def commits(files: Files, after: int = 0) -> Generator[tuple[int, Record]]:
    """Yield the commit records behind number `after`, in order, up to the newest one.

    Raises DamagedError, RunError for a record of another version, and OSError while the store is
    away. Where the next sixteen records are missing too, it ends: compare the last number with
    `newest` to be sure of the end.
    """
    count = 1
    with ThreadPoolExecutor(READERS_MAX) as pool:
        while True:
            numbers = range(after + 1, after + 1 + count)
            found = list(pool.map(partial(_read, files, "commits"), numbers))
            for number, data in zip(numbers, found, strict=True):
                if data is None:
                    break
                yield number, _decoded(files, "commits", "commit", number, data)
                after = number
            if after < numbers[-1]:
                if not any(data is not None for data in found[after + 1 - numbers[0] :]):
                    return
                check_next(files, after)  # it may have come while those behind it were read
                count = 1
            count = min(READERS_MAX, 2 * count)


def check_next(files: Files, after: int) -> None:
    """Raise DamagedError where the record behind number `after` is not there. To be called where a
    later one is: records get their numbers without gaps."""
    if _read(files, "commits", after + 1) is None:
        where = f"{files.place}/commits/{after + 1}.json"
        raise _missing(where, "is not there, but what came later is")


def newest(files: Files) -> int:
    """The number of the newest commit record, 0 where there is none. Lists the folder, so it is not
    for each look at a log that is followed."""
    return max(_numbers(files, "commits"), default=0)


def generations(files: Files) -> list[int]:
    """The numbers of the drivers that have started on a store, ascending; none where no pipeline
    has run."""
    return sorted(_numbers(files, "generations"))


def generation(files: Files, number: int) -> Record:
    """The record of a driver's start. Raises DamagedError, RunError and OSError as `commits`."""
    data = _read(files, "generations", number)
    if data is None:
        raise _missing(f"{files.place}/generations/{number}.json", "is not there")
    return _decoded(files, "generations", "generation", number, data)


def identity(files: Files) -> str:
    """A name that this store shares with its copies and with no other, 16 hex digits; empty where
    no driver has started.

    It is made of the record of the first generation, which is written once and never removed.
    """
    data = _read(files, "generations", 1)
    return "" if data is None else sha256(data).hexdigest()[:16]


def _numbers(files: Files, folder: str) -> Iterator[int]:
    found = (NUMBERED.fullmatch(name) for name in files.stream_names(folder))
    return (int(match[1]) for match in found if match)


def _read(files: Files, folder: str, number: int) -> bytes | None:
    try:
        return files.read(f"{folder}/{number}.json")
    except FileNotFoundError:
        return None


def _decoded(files: Files, folder: str, kind: str, number: int, data: bytes) -> Record:
    return records.decode(kind, data, f"{files.place}/{folder}/{number}.json")


def _missing(where: str, what: str) -> DamagedError:
    return DamagedError(where=where, what=what, remedy=REMEDY)
