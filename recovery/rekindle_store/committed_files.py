"""Which output files of a checkpoint store count: those that a commit record names, and no others.

    commit_log ──► OutputLog ──► rekindle.committed_files: path, epoch, rows, bytes of each
                       └───────► query_output: their rows

Output files lie in the store before they count, and some never will. So readers do not list
folders: they go by the commit log, and this is their supported way to it.

For users: docs/output.md.
"""

import difflib
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from rekindle.model.errors import DamagedError, InputError
from rekindle_store import commit_log
from rekindle_store.commit_log import Record
from rekindle_store.compacted_outputs import Part, Places
from rekindle_store.store_files import Files
from rekindle_store.store_readers import opened, read_ahead, reading

# The output of a step's dead letters has the step's name with this behind.
DEAD_LETTERS = ".dead-letters"
# That of its late rows has this one, and that of a join one for each of its inputs.
LATE, LATE_SIDES = ".late", (".late-left", ".late-right")
# What a step keeps beside, by the ending of its output: in words, and the option that asks for it.
BESIDE = (
    (DEAD_LETTERS, "dead letters", "dead_letters=True"),
    (LATE, "late rows", "late=True"),
)
# Commit records of one look at the log: the files that they name are in memory together.
RECORDS_MAX = 256
NAMES_SHOWN_MAX = 8
# Of so many looks at the end of the log one asks for a segment as well: the next record is in one
# only if its follower stood still while hundreds of others came.
LOOKS_TO_SEGMENTS = 30
# Of the listing: whole files, or parts of files.
VERSIONS = (1, 2)
# Data files whose sizes are kept, so that each is asked for once.
SIZES_MAX = 64
PARTITION = re.compile(r"([A-Za-z0-9._-]+)/([0-9]{1,9})")
FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as a commit record names it; `name` is its path below the store."""

    query: str
    partition: int
    epoch: int
    rows: int
    name: str
    commit: int
    committed_at: float


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A Parquet file whose rows count: those of one query partition and epoch.

    `path` is absolute, or a URL where the store is elsewhere. `commit` is the number of the commit
    record that names the file, and `committed_at` that record's time in seconds since 1970. The
    output of a step's dead letters is a `query` named `STEP.dead-letters`, that of its late rows
    `STEP.late`, or of a join `STEP.late-left` and `STEP.late-right`.

    Where output was put together, several have one `path`: their rows are `rows` ones from
    `first_row` on, counted from 0, and `bytes` are those of the whole file. A `first_row` of None
    says that the file has these rows alone.
    """

    query: str
    partition: int
    epoch: int
    rows: int
    bytes: int
    path: str
    commit: int
    committed_at: float
    first_row: int | None = None


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """What a query has committed; epochs and the time of the newest file are None without files."""

    query: str
    files: int = 0
    rows: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None
    committed_at: float | None = None

    def with_file(self, file: NamedFile) -> "QuerySummary":
        """The same with a file more."""
        first = file.epoch if self.first_epoch is None else min(self.first_epoch, file.epoch)
        last = file.epoch if self.last_epoch is None else max(self.last_epoch, file.epoch)
        return QuerySummary(
            self.query, self.files + 1, self.rows + file.rows, first, last, file.committed_at
        )


@dataclass(slots=True)
class OutputLog:
    """The output files that a store's commit log names, from one look at it to the next.

    `last` is the number of the newest commit record that has been read, and `outputs` are the
    queries that the records read so far name. `skipped` is the newest file of an epoch before
    `since`. `ended` says that the end of the log has been seen.
    """

    files: Files
    query: str | None = None
    since: int = 0
    last: int = 0
    outputs: set[str] = field(default_factory=set)
    skipped: NamedFile | None = None
    ended: bool = False
    empty_looks: int = 0
    places: Places = field(init=False)
    _whole_sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = Places(self.files)

    def look(self) -> list[NamedFile] | None:
        """The files that the next commit records name; None at the end of the log.

        After an error the next look begins where this one has: nothing is left out.
        """
        found: list[NamedFile] = []
        last = self.last
        followed = self.ended and self.empty_looks % LOOKS_TO_SEGMENTS != 0
        with reading(self.files.place):
            with closing(commit_log.commits(self.files, last, followed=followed)) as commits:
                for number, record in islice(commits, RECORDS_MAX):
                    found += self._files_of(number, record)
                    last = number
            self.empty_looks = self.empty_looks + 1 if last == self.last else 0
            if last == self.last:
                return None if self._is_end() else []
        self.last = last
        return found

    def declared(self) -> set[str]:
        """The queries, and outputs that steps keep beside, that drivers have recorded at starts."""
        return self._declared()[0]

    def check_declared(self) -> None:
        """Raise InputError for a query that no driver has had, as far as drivers have recorded
        their queries: older ones have not."""
        declared, all_recorded = self._declared()
        if self.query is not None and all_recorded and self.query not in declared:
            raise self._unknown(declared)

    def check_known(self) -> None:
        """Raise InputError for a query that no record of the log, which has been read to its end,
        and no driver knows."""
        if self.query is not None and self.query not in self.outputs:
            declared, _ = self._declared()
            if self.query not in declared:
                raise self._unknown(declared | self.outputs)

    def located(self, file: NamedFile) -> CommittedFile:
        """The file as it is shown to users, at its place. Raises InputError where it is not
        there."""
        with reading(self.files.place):
            return self.places.of(file.commit, file.name, partial(self._counted, file))

    def _counted(self, file: NamedFile, part: Part | None) -> CommittedFile:
        name = file.name if part is None else part.file.name
        size = self._whole_sizes.get(name)
        if size is None:
            size = self.files.size(name)
            if part is not None:  # many more are in it
                if len(self._whole_sizes) >= SIZES_MAX:
                    self._whole_sizes.clear()
                self._whole_sizes[name] = size
        return CommittedFile(
            query=file.query,
            partition=file.partition,
            epoch=file.epoch,
            rows=file.rows,
            bytes=size,
            path=f"{self.files.place.rstrip('/')}/{name}",
            commit=file.commit,
            committed_at=file.committed_at,
            first_row=None if part is None else part.first_row,
        )

    def _is_end(self) -> bool:
        """Whether there is no further record. The log is listed once, and not for each look of
        somebody who follows it."""
        if self.ended:
            return True
        newest = commit_log.newest(self.files)
        if newest < self.last:
            raise InputError(
                where=f"commit record {self.last} of checkpoint store {self.files.place}",
                what=f"is not there: the newest one is {newest}",
                remedy="begin with the first record: the store is another one, or was begun anew",
            )
        if newest > self.last:
            commit_log.check_next(self.files, self.last)
        self.ended = newest == self.last
        return self.ended

    def _files_of(self, number: int, record: Record) -> Iterator[NamedFile]:
        for query_partition, epoch, rows, file, _ in record["outputs"]:
            query, partition = self._checked(query_partition, file, number)
            self.outputs.add(query)
            if self.query not in (None, query):
                continue
            name = f"outputs/{query}/{file}"
            found = NamedFile(query, partition, epoch, rows, name, number, record["at"])
            if epoch >= self.since:
                yield found
            else:
                self.skipped = found

    def _checked(self, query_partition: str, file: str, number: int) -> tuple[str, int]:
        """Query and partition of a name in a commit record. Raises DamagedError for what no driver
        writes, so that no record leads a reader out of the store's folder."""
        match = PARTITION.fullmatch(query_partition)
        if match is None or match[1].startswith(".") or FILE.fullmatch(file) is None:
            raise DamagedError(
                where=f"{self.files.place}/commits/{number}.json",
                what=f"names {query_partition!r:.120} and {file!r:.120}, which no driver does",
                remedy="restore it from a copy of the store",
            )
        return match[1], int(match[2])

    def _declared(self) -> tuple[set[str], bool]:
        """The outputs that drivers have recorded at their starts, and whether all of them have."""
        outputs: set[str] = set()
        all_recorded = True
        with reading(self.files.place):
            starts = reversed(commit_log.generations(self.files))
            for start in read_ahead(starts, partial(commit_log.generation, self.files)):
                outputs.update(start.get("outputs", ()))
                all_recorded &= "outputs" in start
                if self.query in outputs:  # the newest driver knows what is asked for mostly
                    break
        return outputs, all_recorded

    def _unknown(self, known: set[str]) -> InputError:
        assert self.query is not None
        for ending, keeps, option in BESIDE:
            if self.query.endswith(ending):
                return self._without(ending, keeps, option, known)
        close = difflib.get_close_matches(self.query, sorted(known), n=5, cutoff=0.5)
        shown = close or sorted(known)
        more = f" and {len(shown) - NAMES_SHOWN_MAX} more" if len(shown) > NAMES_SHOWN_MAX else ""
        remedy = f"name one of: {', '.join(shown[:NAMES_SHOWN_MAX])}{more}"
        beside = [name for name in sorted(known) if name.startswith(self.query + ".")]
        beside = [name for name in beside if name.endswith((DEAD_LETTERS, LATE, *LATE_SIDES))]
        if beside:
            remedy = f"it is a step that keeps rows beside: name {' or '.join(beside)}"
        return InputError(
            where=f"query {self.query!r:.120}",
            what=f"is no query of checkpoint store {self.files.place}",
            remedy=remedy if known else "wait until a run of its pipeline has started",
        )

    def _without(self, ending: str, keeps: str, option: str, known: set[str]) -> InputError:
        """A step that keeps no rows of that kind, or a name that is no step's."""
        assert self.query is not None
        step = self.query.removesuffix(ending)
        sides = [step + side for side in LATE_SIDES if ending == LATE and step + side in known]
        others = sorted(name.removesuffix(ending) for name in known if name.endswith(ending))
        remedy = f"give the step {option} to have them kept from the next start on"
        if sides:
            remedy = f"it is a join: name {' or '.join(sides)} as a query"
        elif others:
            remedy = f"name one that does: {', '.join(others[:NAMES_SHOWN_MAX])}; or {remedy}"
        return InputError(
            where=f"step {step!r:.120}",
            what=f"keeps no {keeps} in checkpoint store {self.files.place}",
            remedy=remedy,
        )


def committed_files(
    store: str | Path,
    query: str | None = None,
    *,
    since: int = 0,
    after: int = 0,
    version: int = 1,
) -> Iterator[CommittedFile]:
    """Yield the output files that count, in the order in which they came to count.

    Only those of one query, or of all; only those of epochs from `since` on; only those that a
    commit record behind number `after` names. To go on later from where a listing has ended, pass
    the highest `commit` of it as `after`. An epoch may come to count after a later one of another
    partition, so `since` does not replace `after` for that.

    A driver puts older output together. With `version=2` the same files are yielded then, with the
    path and first row of where their rows are. Version 1 knows no first rows: it raises InputError
    there, since who reads its paths would get the rows of other epochs with each.

    It is a stream: memory does not grow with the log. A path that it has yielded is there for a
    minute at least. Raises InputError for a store that is not there, cannot be read or is damaged,
    and for a query that it does not have; RunError when its server does not answer.
    """
    if version not in VERSIONS:
        known = " or ".join(map(str, VERSIONS))
        raise InputError(where="version", what=f"is {version!r}", remedy=f"give {known}")
    log = OutputLog(opened(store), query, since=since, last=after)
    log.check_declared()
    return _listed(log, whole=after == 0, version=version)


def summaries(store: str | Path) -> list[QuerySummary]:
    """What each query of a store, and each output of dead letters, has committed so far, by name.

    Raises what `committed_files` does.
    """
    log = OutputLog(opened(store))
    found = {query: QuerySummary(query) for query in log.declared()}
    while (files := log.look()) is not None:
        for file in files:
            found[file.query] = found.get(file.query, QuerySummary(file.query)).with_file(file)
    return [found[query] for query in sorted(found)]


def _listed(log: OutputLog, *, whole: bool, version: int) -> Iterator[CommittedFile]:
    while (found := log.look()) is not None:
        for file in read_ahead(found, log.located):
            if version == 1 and file.first_row is not None:
                raise InputError(
                    where=f"checkpoint store {log.files.place}",
                    what="has output that was put together: one file has the rows of many epochs",
                    remedy="use rekindle.read, or pass version=2 and take `rows` rows from "
                    "`first_row` on of each path (docs/output.md)",
                )
            yield file
    if whole:
        log.check_known()
