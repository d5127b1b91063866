"""Where output files are once they were put together: one file for the rows of many epochs.

    outputs/QUERY/0-000000001.parquet ... ──compact──► outputs/QUERY/commits-1-500-7-1-0.parquet
                                                       commits/segments/1-500.files

An *index* says it, for the commits of one segment, or of several that follow each other. It is
created only if it is absent, once the new files are there, and only then the old ones go. Commit
records stay as they are: they name the old files, and count their rows. So an index says of each
query how many of its files, in the order in which they are named, follow each other in which new
file; from which row on one of them begins follows from the rows of those before it.

Levels: an index of level 0 is for one segment, one of level L for `FAN` of those below. An index of
a higher level is there before those that it replaces go. So who looks for them from the lowest to
the highest misses none, and the highest one counts. `rekindle_spark.output.output_compaction` makes
them. Format: docs/formats.md.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rekindle.model import record_format
from rekindle.model.errors import DamagedError
from rekindle_store import commit_segments
from rekindle_store.store_files import Files

# Indices of a level that are put together in one of the next.
FAN = 8
# The highest index is for 256,000 commits: three days of epochs of a second.
LEVELS = 4
NAME = re.compile(r"([0-9]+)-([0-9]+)\.files")
SINGLE = re.compile(r"outputs/[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*")
DATA = re.compile(
    r"outputs/[A-Za-z0-9_-][A-Za-z0-9._-]*/"
    r"commits-([0-9]+)-([0-9]+)-([0-9]+)-[0-9]+-[0-9]+\.parquet"
)
OWN = -1
REMEDY = "restore it from a copy of the store"

Record = dict[str, Any]
# Of an output file: the commit record that names it, and its path below the store.
Key = tuple[int, str]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with the rows of many output files of one query; `name` is its path below the
    store."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many output files of a query that follow each other: their `rows` are in `file` from
    `first_row` on, or where the files' own names say if it is None."""

    file: DataFile | None
    first_row: int
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class Part:
    """Where the rows of one output file are: so many of a data file, from `first_row` on."""

    file: DataFile
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Index:
    """Where the output of commits `first` to `last` is: by query, for each segment of them."""

    first: int
    last: int
    generation: int
    spans: Sequence[Mapping[str, Sequence[Stretch]]]

    @property
    def name(self) -> str:
        """Its file, by its name in the store."""
        return f"{commit_segments.FOLDER}/{self.first}-{self.last}.files"

    def data_files(self) -> dict[str, DataFile]:
        """The data files that it names, by name."""
        files = (stretch.file for stretch in self.stretches())
        return {file.name: file for file in files if file is not None}

    def stretches(self) -> Iterator[Stretch]:
        """All its stretches."""
        for span in self.spans:
            for stretches in span.values():
                yield from stretches

    def span(self, number: int) -> Mapping[str, Sequence[Stretch]]:
        """The stretches of the segment that has a commit."""
        return self.spans[(number - self.first) // commit_segments.LENGTH]


def block_of(number: int, level: int) -> tuple[int, int]:
    """First and last commit of the index of a level that a commit belongs to."""
    width = commit_segments.LENGTH * FAN**level
    first = number - (number - 1) % width
    return first, first + width - 1


def level_of(first: int, last: int) -> int | None:
    """The level of an index for these commits; None where no index is."""
    levels = range(LEVELS) if first > 0 else ()
    return next((level for level in levels if block_of(first, level) == (first, last)), None)


def name_of(number: int, level: int) -> str:
    """The file of the index of a level that a commit belongs to, by its name in the store."""
    first, last = block_of(number, level)
    return f"{commit_segments.FOLDER}/{first}-{last}.files"


def is_index(name: str) -> bool:
    """Whether a path below the store is that of an index."""
    folder, _, file = name.rpartition("/")
    return folder == commit_segments.FOLDER and NAME.fullmatch(file) is not None


def is_single(name: str) -> bool:
    """Whether a path below the store may be that of an output file: one of a query's folder."""
    return SINGLE.fullmatch(name) is not None


def data_name(query: str, block: tuple[int, int], generation: int, attempt: int, count: int) -> str:
    """A name for the data file `count` of a query in a block of commits. No other attempt has the
    same, of whatever driver: a file that an index names is never written again."""
    first, last = block
    return f"outputs/{query}/commits-{first}-{last}-{generation}-{attempt}-{count}.parquet"


def data_span(name: str) -> tuple[int, int, int] | None:
    """First and last commit of the block that a data file was made for, and the generation that
    made it; None for another file's name."""
    match = DATA.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def encoded(index: Index) -> bytes:
    """An index as it lies in the store."""
    named = index.data_files()
    numbers = {name: number for number, name in enumerate(named)}
    content = {
        "first": index.first,
        "last": index.last,
        "generation": index.generation,
        "files": [[file.name, file.rows, file.bytes] for file in named.values()],
        "spans": [
            {
                query: [
                    [
                        OWN if one.file is None else numbers[one.file.name],
                        one.first_row,
                        one.files,
                        one.rows,
                    ]
                    for one in stretches
                ]
                for query, stretches in span.items()
            }
            for span in index.spans
        ],
    }
    return record_format.encode("compaction", content)


def decoded(data: bytes, where: str) -> Index:
    """The index that such bytes are. Raises DamagedError, and RunError for another version."""
    content = record_format.decode("compaction", data, where)
    named = [DataFile(*file) for file in content["files"]]
    for file in named:
        if DATA.fullmatch(file.name) is None:
            what = f"names {file.name!r:.120}, which no driver does"
            raise DamagedError(where=where, what=what, remedy=REMEDY)
    spans = [
        {
            query: tuple(
                Stretch(None if number == OWN else named[number], *rest)
                for number, *rest in stretches
            )
            for query, stretches in span.items()
        }
        for span in content["spans"]
    ]
    index = Index(content["first"], content["last"], content["generation"], spans)
    for stretch in index.stretches():
        if stretch.file is not None and stretch.first_row + stretch.rows > stretch.file.rows:
            what = f"takes more rows of {stretch.file.name} than it has"
            raise DamagedError(where=where, what=what, remedy=REMEDY)
    return index


def read(files: Files, number: int, level: int) -> Index | None:
    """The index of a level that a commit belongs to; None where there is none.

    Raises DamagedError, RunError for one of another version, and OSError while the store is away.
    """
    name = name_of(number, level)
    try:
        data = files.read(name)
    except FileNotFoundError:
        return None
    index = decoded(data, f"{files.place}/{name}")
    if (index.first, index.last) != block_of(number, level):
        what = f"is for commits {index.first} to {index.last}"
        raise DamagedError(where=f"{files.place}/{name}", what=what, remedy=REMEDY)
    return index


def find(files: Files, number: int) -> Index | None:
    """The highest index that a commit belongs to; None where there is none. Raises as `read`."""
    found = all_of(files, number)
    return found[-1] if found else None


def all_of(files: Files, number: int, lowest: int = 0) -> list[Index]:
    """The indices that a commit belongs to, from the level `lowest` on; the last one counts. Raises
    as `read`."""
    # from the lowest on: what is not there yet, or any more, is in one that is looked for later
    found = [read(files, number, level) for level in range(lowest, LEVELS)]
    return [index for index in found if index is not None]


def made(files: Files) -> tuple[list[set[int]], list[str]]:
    """The first commits of the indices that are there, by level; and the names of files that are
    named as indices, though none has these commits."""
    found: list[set[int]] = [set() for _ in range(LEVELS)]
    others = []
    for name in files.stream_names(commit_segments.FOLDER):
        match = NAME.fullmatch(name)
        if match is None:
            continue
        first = int(match[1])
        level = level_of(first, int(match[2]))
        if level is None:
            others.append(f"{commit_segments.FOLDER}/{name}")
        else:
            found[level].add(first)
    return found, sorted(others)


def highest(made: Sequence[Collection[int]], number: int, level: int = 0) -> int | None:
    """The highest level, from one on, that has an index for a commit, by the first commits of the
    indices of each; None for none."""
    levels = range(LEVELS - 1, level - 1, -1)
    return next((one for one in levels if block_of(number, one)[0] in made[one]), None)


def output_names(record: Record) -> Iterator[tuple[str, str, int]]:
    """Of the output files that a commit record names, in order: the query, the path below the
    store, and the rows."""
    for query_partition, _, rows, file, _ in record["outputs"]:
        query = query_partition.rpartition("/")[0]
        yield query, f"outputs/{query}/{file}", rows


def parts(
    index: Index, first: int, named: Iterable[tuple[int, Record]], where: str
) -> dict[Key, Part | None]:
    """Where the rows of all output files are that the records of the segment from `first` on, with
    their numbers, name; None for those that are under their own names.

    Raises DamagedError where the index, which is at the place `where`, knows of others.
    """
    counters = {query: _Counter(stretches) for query, stretches in index.span(first).items()}
    found: dict[Key, Part | None] = {}
    for number, record in named:
        for query, name, rows in output_names(record):
            try:
                found[number, name] = counters[query].next(rows)
            except LookupError:
                raise _other(where, query) from None
    for query, counter in counters.items():
        if counter.is_left:
            raise _other(where, query)
    return found


@dataclass(slots=True)
class _Counter:
    """Goes through the output files of a query in a segment, in the order of their commits."""

    stretches: Sequence[Stretch]
    at: int = 0
    files: int = 0
    rows: int = 0

    @property
    def is_left(self) -> bool:
        """Whether the stretches have more files than were asked for, or other rows."""
        rest = [(one.files, one.rows) for one in self.stretches[self.at :]]
        return rest != [(self.files, self.rows)]

    def next(self, rows: int) -> Part | None:
        """Where the next file's rows are. Raises IndexError behind the last, and where a stretch
        has other rows."""
        while self.files == self.stretches[self.at].files:
            if self.rows != self.stretches[self.at].rows:
                raise IndexError
            self.at, self.files, self.rows = self.at + 1, 0, 0
        stretch = self.stretches[self.at]
        first = stretch.first_row + self.rows
        self.files, self.rows = self.files + 1, self.rows + rows
        return None if stretch.file is None else Part(stretch.file, first, rows)


def _other(where: str, query: str) -> DamagedError:
    what = f"knows other files of query {query} than the commit records"
    return DamagedError(where=where, what=what, remedy=REMEDY)


@dataclass(slots=True)
class Places:
    """Where readers find output while a driver puts it together. Keeps what it has looked up of one
    segment, and looks again when a file is not there. May be used by several threads."""

    files: Files
    _index: Index | None = None
    _first: int = 0
    _parts: dict[Key, Part | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def part(self, commit: int, name: str) -> Part | None:
        """Where the rows of an output file are that a commit record names; None: under its name.

        Raises DamagedError, RunError for an index of another version, and OSError.
        """
        first = commit_segments.first_of(commit)
        with self._lock:
            if first != self._first:
                self._look_up(first)
            return self._parts.get((commit, name))

    def of(self, commit: int, name: str, action: Callable[[Part | None], Result]) -> Result:
        """What an action gives that reads an output file at its place: again where that has been
        put together with others meanwhile.

        Raises DamagedError where it is not there, and as `part`.
        """
        before: list[Part | None] = []
        while True:
            part = self.part(commit, name)
            try:
                return action(part)
            except FileNotFoundError as error:
                if part in before:
                    raise self._missing(commit, name, part) from error
                before.append(part)
                self.look_again()

    def look_again(self) -> None:
        """Forget what was looked up."""
        with self._lock:
            self._index, self._first = None, 0

    def _look_up(self, first: int) -> None:
        index = self._index
        if index is None or not index.first <= first <= index.last:
            index = find(self.files, first)
        found: dict[Key, Part | None] = {}
        if index is not None:
            segment = commit_segments.read(self.files, first)
            where = f"{self.files.place}/{index.name}"
            if segment is None:
                what = f"is not there, but {index.first}-{index.last}.files is for its commits"
                raise commit_segments.damaged(self.files, first, what)
            found = parts(index, first, segment.records(), where)
        self._index, self._first, self._parts = index, first, found

    def _missing(self, commit: int, name: str, part: Part | None) -> DamagedError:
        missing, by = name, f"commit record {commit}"
        if part is not None:
            missing, by = part.file.name, f"the index of commit {commit}"
        return DamagedError(
            where=f"{self.files.place}/{missing}",
            what=f"is not there, but {by} names it",
            remedy=REMEDY,
        )
