"""A folder or bucket to which others add files, as a source: each row of each file once.

    folder ──found──► new files, in order ──counted, logged──► `file_listing`, in the store
    offsets of a partition ──listing──► rows of files ──decoded──► rows, and what could not be

The driver lists the folder, counts what new files have, and adds them to the listing before it says
that there are these offsets; so a repeat reads the same rows in the same order, whatever is added
between. A name is read once. A file that is gone or changed before it was read is lost: what became
of it is said by `PartitionOffsets.why`, once all before it has been read. For users: docs/files.md.

Why: docs/decisions/0049-files-are-listed-before-they-are-read.md.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rekindle.model import errors
from rekindle.model.errors import refuse
from rekindle.model.topology import PARALLELISM_MAX
from rekindle_spark.connectors import file_folders, file_listing, file_rows
from rekindle_spark.connectors.file_folders import FileFolder, Found, LocalFolder
from rekindle_spark.connectors.file_listing import ListedFile, Listing, ListingLog
from rekindle_spark.connectors.file_rows import CSV, FORMATS, PARQUET, FileContents, FileForm
from rekindle_spark.operators import column_types
from rekindle_spark.operators.arrow_columns import TIMESTAMP
from rekindle_spark.pipeline.unbounded_source import (
    SECONDS_MAX,
    PartitionOffsets,
    RowsAndRejects,
    SourceTerms,
    SourceWork,
)
from rekindle_spark.user_code import argument_checks, dead_letter_sieve
from rekindle_store import store_files
from rekindle_store.store_files import Files

BY_NAME, BY_TIME = "name", "modified"
ORDERS = (BY_NAME, BY_TIME)
# Columns that rows can have beside those of files.
OF_FILES = pa.schema(
    [
        ("file_path", pa.string()),
        ("file_row", pa.int64()),
        ("file_modified", pa.timestamp("us")),
    ]
)
REJECTS = pa.schema([OF_FILES.field("file_path"), OF_FILES.field("file_row")])
REJECTS = REJECTS.append(pa.field("file_line", pa.binary()))
NO_TIME = "has no event time"
# So long a file may be missing, or seem another one: who has mounted a folder sees it late.
MISSING_SECONDS_MAX = 15.0
# One that could not be read is listed again once it was changed, and then not for so long.
MENDED_SECONDS = 10.0
# A folder is left alone for so many times as long as it took to look at it.
REST = 2.0
# One listing counts files for so long at most: the rest are for the next one.
COUNTING_SECONDS = 2.0
COUNTED_AT_ONCE, COUNTED_TOGETHER = 4, 32
# A name is known until it was not found for so long, by a look in so many seconds: what is
# mounted below the folder may be away for days.
ABSENT_SECONDS_MAX, ABSENCE_SECONDS = 7 * 86_400.0, 60.0


@dataclass(slots=True)
class FileSource:
    """The files that are added to `path`, a folder of all nodes or s3://BUCKET/PREFIX.

    `format` is "parquet", "json" (lines) or "csv"; `schema` has the columns that are read, and may
    be left out for Parquet where a file is there. `event_time` is one of these, or of `columns`,
    which are those of OF_FILES that rows get too. New files are read in the order of "name" or
    "modified", dealt out to so many source `partitions`. Only names that match `pattern` count, at
    any depth where `recursive`. A file that is still written must have another name until it is
    whole, or has to be unchanged for `settle_seconds`. The folder is listed every `list_seconds`.

    Raises InputError for arguments that do not fit, and where a schema is wanted and there is none.
    """

    path: str | Path
    format: str
    schema: pa.Schema | None = None
    event_time: str = ""
    partitions: int = 1
    pattern: str = "*"
    order: str = BY_NAME
    recursive: bool = True
    settle_seconds: float = 0.0
    list_seconds: float = 1.0
    include_existing_files: bool = True
    units: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    header: bool = True
    columns: Sequence[str] = ()
    terms: SourceTerms = field(default_factory=SourceTerms)
    reject_schema: pa.Schema = field(init=False)
    _form: FileForm = field(init=False)
    _folder: FileFolder = field(init=False)
    _kept: tuple[str, str] | None = field(init=False, default=None)
    _dead_letters: bool = field(init=False, default=False)
    _log: ListingLog | None = field(init=False, default=None)
    _asking: "_Asking | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        _check_arguments(self)
        self._folder = file_folders.at(str(self.path))
        declared = self._declared_schema()
        self._form = FileForm(self.format, declared, dict(self.units), self.delimiter, self.header)
        if self.format != PARQUET:
            self._form.decoder(()).check("FileSource")
        taken = [name for name in declared.names if name in OF_FILES.names]
        if taken:
            what = f"is {taken[0]!r}, as a column that the source itself has"
            refuse("FileSource: a column", what, "rename it in the files")
        self.schema = pa.schema([*declared, *(OF_FILES.field(name) for name in self.columns)])
        if self.event_time not in self.schema.names:
            what = f"is {argument_checks.shown(self.event_time)}"
            remedy = f"name one of: {', '.join(self.schema.names)}"
            refuse("FileSource: event_time", what, remedy)
        self.reject_schema = REJECTS

    def __getstate__(self) -> dict[str, Any]:
        names = (name for name in self.__slots__ if name not in ("_asking", "_log"))
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved.items():
            setattr(self, name, value)
        self._asking = self._log = None

    def check(self, step: str) -> None:
        """Raise InputError where there is no such folder; a bucket is not asked."""
        if isinstance(self._folder, LocalFolder) and not Path(self._folder.place).is_dir():
            place = Path(self._folder.place)
            what = "is no folder" if place.exists() else "is not there"
            remedy = "name a folder that the driver and all nodes have; make it first"
            refuse(f"step {step}: files at {place}", what, remedy)

    def keep_in(self, store: Files, step: str, *, dead_letters: bool = False) -> None:
        """See `unbounded_source.RecordKeeping`."""
        self._kept, self._log, self._dead_letters = (store.place, step), None, dead_letters
        self._asking = None
        self._records().make_folder()

    def check_records(self, store: Files, step: str) -> None:
        """See `unbounded_source.RecordChecking`."""
        log = ListingLog(store, _listings(step), self._folder.place)
        log.catch_up()
        log.check_place()

    def initial_offsets(self) -> Mapping[str, int]:
        """Where reading begins."""
        return {name: one.oldest for name, one in self.latest_offsets().items()}

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        """The rows of all files that are listed. Without a store, before there is one, none are.

        Raises SourceAwayError while folder or store cannot be reached, RunError where the folder
        may not be listed.
        """
        if self._kept is None:
            for _ in self._folder.found(recursive=self.recursive):
                break
            return {}
        if self._asking is None:
            self._asking = _Asking(self, self._records())
        return self._asking.offsets()

    def work(self) -> SourceWork | None:
        """See `unbounded_source.WorkReporting`."""
        return None if self._asking is None else self._asking.work

    def read(self, partition: str, start: int, end: int) -> RowsAndRejects:
        """The rows of a range, and what of it cannot be decoded."""
        return self.read_again(partition, start, end, frozenset())

    def read_again(self, partition: str, start: int, end: int, left: Set[int]) -> RowsAndRejects:
        """See `unbounded_source.RejectRepeating`: a row group may have been unreadable then."""
        try:
            files = self._records().covering(partition, start, end)
        except OSError as error:
            raise _store_away(error) from error
        rows, rejects, offsets = [self._nothing()], [_no_rejects()], list[int]()
        for one in files:
            span = max(start, one.begin) - one.begin, min(end, one.end) - one.begin
            some, others = self._read_file(one, span, left)
            rows.append(some)
            rejects.append(others)
            # the row of a file that cannot be read at all has no number
            offsets += (one.begin + (row or 1) - 1 for row in others["file_row"].to_pylist())
        return RowsAndRejects(pa.concat_tables(rows), pa.concat_tables(rejects), offsets)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Have the listing forget what nobody will read again."""
        if self._asking is not None:
            self._asking.commit(offsets)

    def first(self, rows: int) -> RowsAndRejects:
        """The first rows of the first file that has some, in order; none without files. For a look
        at them before anything runs."""
        for one in sorted(self._matching(), key=self._key):
            found = file_rows.contents(self._folder, one.name, one.version, self._form)
            if found.rows:
                listed = _listed(one, "0", 0, found)
                return RowsAndRejects(*self._read_file(listed, (0, min(rows, found.rows))))
        return RowsAndRejects(self._nothing(), _no_rejects())

    def _declared_schema(self) -> pa.Schema:
        """The columns of files."""
        if self.schema is not None:
            return self.schema
        where = f"files at {self.path}"
        if self.format != PARQUET:
            what = f"are {self.format}, which has no types"
            refuse(where, what, "give the source a schema")
        try:
            first = min(self._matching(), key=self._key, default=None)
            found = None if first is None else self._columns_of(first)
        except errors.RunError as error:
            remedy = f"{error.remedy}; or give the source a schema, which needs no file"
            raise errors.InputError(where=error.where, what=error.what, remedy=remedy) from error
        if found is None:
            what = "have none that says which columns there are"
            refuse(where, what, "give the source a schema, or add a file")
        return pa.schema([self._field(one) for one in found])

    def _columns_of(self, one: Found) -> pa.Schema:
        try:
            return file_rows.schema_of(self._folder, one.name, one.version)
        except (OSError, pa.ArrowException) as error:
            what = f"cannot be read as Parquet ({errors.first_line(error)})"
            refuse(f"file {self.path}/{one.name}", what, "mend or remove it")

    def _field(self, given: pa.Field) -> pa.Field:
        if given.name == self.event_time and pa.types.is_timestamp(given.type):
            return pa.field(given.name, TIMESTAMP)
        return column_types.plain_field(given)

    def _matching(self) -> Iterator[Found]:
        """The files that are there and count."""
        found = self._folder.found(recursive=self.recursive)
        return (one for one in found if self._matches(one.name) and one.bytes)

    def _matches(self, name: str) -> bool:
        return fnmatchcase(name.rpartition("/")[2], self.pattern)

    def _key(self, one: Found) -> tuple[int, str]:
        return (one.modified if self.order == BY_TIME else 0, one.name)

    def _records(self) -> ListingLog:
        if self._log is None:
            assert self._kept is not None, "a source without a store has no offsets to be read"
            place, step = self._kept
            self._log = ListingLog(store_files.at(place), _listings(step), self._folder.place)
        return self._log

    def _nothing(self) -> pa.Table:
        assert self.schema is not None
        return self.schema.empty_table()

    def _is_there(self, one: ListedFile) -> bool:
        """Whether a file is as it was. Without dead letters one that cannot be read holds its
        queries up, until it is mended or removed; no epoch with it has counted before."""
        try:
            with self._folder.open(one.name, one.marked) as file:
                # a bucket compares versions when it is read; no file that is listed is empty
                return bool(file.read(1))
        except errors.DataLossError:
            return False

    def _read_file(
        self, one: ListedFile, rows: tuple[int, int], left: Set[int] = frozenset()
    ) -> tuple[pa.Table, pa.Table]:
        """Rows of a file, and those that are rejected; all of it where it cannot be read. Rows at
        the offsets `left` are rejected again."""
        path = f"{self._folder.place}/{one.name}"
        if one.error and (self._dead_letters or self._is_there(one)):
            return self._nothing(), _rejects(path, {-1: (one.error, None)})
        if one.error:
            return self._nothing(), _no_rejects()
        found = file_rows.piece(self._folder, one.name, one.marked, self._form, one.contents, rows)
        table, count = found.rows, len(found.numbers)
        own = {
            "file_path": lambda: pa.repeat(pa.scalar(path), count),
            "file_row": lambda: pc.add(pa.array(found.numbers, pa.int64()), 1),
            "file_modified": lambda: pa.repeat(pa.scalar(one.modified), count).cast(TIMESTAMP),
        }
        for name in self.columns:
            table = table.append_column(OF_FILES.field(name), own[name]())
        rejected = dict(found.rejected)
        timeless = table[self.event_time].is_null()
        if pc.any(timeless).as_py():
            places = pc.indices_nonzero(timeless).to_pylist()
            rejected |= {found.numbers[place]: (NO_TIME, None) for place in places}
            table = table.filter(pc.invert(timeless))
        if left:
            numbers = [number for number in found.numbers if number not in rejected]
            again = [one.begin + number in left for number in numbers]
            rejected |= {
                number: (dead_letter_sieve.LEFT_OUT, None)
                for number, is_left in zip(numbers, again, strict=True)
                if is_left
            }
            table = table.filter(pc.invert(pa.array(again, pa.bool_())))
        return table.cast(self.schema), _rejects(path, rejected)


@dataclass(slots=True)
class _Asking:
    """What the driver does: it lists the folder, and the files that are new. `clock` gives seconds
    for the intervals of listings, of files that have to settle, and of those that are missing.
    `rest_seconds` lie between the beginnings of listings at least."""

    source: FileSource
    log: ListingLog
    clock: Callable[[], float] = time.monotonic
    there: dict[str, Found] = field(default_factory=dict)
    listed_at: float | None = None
    rest_seconds: float = 0.0
    empty_since: float | None = None
    has_more: bool = False
    absences: "_Absences" = field(default_factory=lambda: _Absences())
    missing: dict[str, float] = field(default_factory=dict)
    settling: dict[str, tuple[str, float]] = field(default_factory=dict)
    # Files that are to be read: those that have the digest of the listing, and those that have not.
    checked: set[tuple[str, str]] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    # Files that could not be read and have another digest now, with what they were listed as.
    mended: dict[str, str] = field(default_factory=dict)
    compared_at: float | None = None
    committed: Mapping[str, int] = field(default_factory=dict)
    work: SourceWork | None = None

    def offsets(self) -> dict[str, PartitionOffsets]:
        """The offsets of all files that are listed, once new ones are."""
        now = self.clock()
        seconds = max(self.source.list_seconds, self.rest_seconds)
        is_due = self.listed_at is None or now - self.listed_at >= seconds
        try:
            if is_due or self.has_more:
                while not self._list(now):  # another driver was faster: what it listed is there
                    continue
                self._check_digests()
                self.listed_at = now
        except errors.SourceAwayError:
            self.missing.clear()  # who has it back may see some files late
            self.absences.interrupt()
            raise
        except OSError as error:
            raise _store_away(error) from error
        finally:
            self.work = None
        listing = self.log.listing
        return {name: self._offered(listing, name, now) for name in sorted(listing.files)}

    def commit(self, offsets: Mapping[str, int]) -> None:
        """No start from any kept checkpoint reads what lies before these offsets."""
        self.committed = offsets
        listing = self.log.listing
        waiting = {one.name for one in self._waiting(listing)}
        self.missing = {name: at for name, at in self.missing.items() if name in waiting}
        self.log.shorten(offsets, *self.absences.told(self.there))

    def _list(self, now: float) -> bool:
        """See what is there, and add what is new to the listing; False where another driver has
        added something meanwhile."""
        source, listing = self.source, self.log.catch_up()
        self.log.check_place()  # another driver may have been the first
        there: dict[str, Found] = {}
        begin = self.clock()
        for one in source._matching():
            there[one.name] = one
            self._get_on(1, "lists its files")
        self.there, looked = there, self.clock() - begin
        self.rest_seconds = looked + REST * looked
        self.absences.look(listing, self.there, now, max(ABSENCE_SECONDS, source.list_seconds))
        if self.there or not self._waits(listing):
            self.empty_since = None
        elif self.empty_since is None:
            self.empty_since = now
        elif now - self.empty_since >= MISSING_SECONDS_MAX:
            raise errors.SourceAwayError(
                where=f"files at {source.path}",
                what="is empty, and listed files are still to be read",
                remedy="see that what is mounted there is there, and bring the files back",
            )
        self._compare_unreadable(listing, now)
        new = [one for one in self.there.values() if self._is_new(one, listing)]
        if not listing.number and not source.include_existing_files:
            return self.log.add_record({"files": [], "seen": sorted(one.name for one in new)})
        settled = [one for one in new if self._has_settled(one, now)]
        self.settling = {name: kept for name, kept in self.settling.items() if name in self.there}
        counted = self._counted(sorted(settled, key=source._key))
        self.has_more = len(counted) < len(settled)
        known = [(one, found) for one, found in counted if found is not None]
        files = self._dealt(known)
        if not files:
            return True
        if not self.log.add_record(file_listing.of_files(files)):
            return False
        self.checked |= {(one.name, one.marked) for one in files}
        return True

    def _is_new(self, one: Found, listing: Listing) -> bool:
        known = one.name in listing.seen and not listing.is_mended(one.name, one.version)
        return not known or self._is_mended(one.name, listing)

    def _is_mended(self, name: str, listing: Listing) -> bool:
        """Whether it was the newest version of an unreadable file that has another digest now."""
        return name in self.mended and self.mended[name] == listing.unreadable.get(name)

    def _compare_unreadable(self, listing: Listing, now: float) -> None:
        """See once a minute which files that could not be read have other content, but the same
        size and time of change."""
        if self.compared_at is not None and now - self.compared_at < ABSENCE_SECONDS:
            return
        self.compared_at = now
        same = [
            (name, marked)
            for name, marked in listing.unreadable.items()
            if name in self.there and marked.startswith(f"{self.there[name].version} ")
        ]
        with ThreadPoolExecutor(COUNTED_AT_ONCE) as pool:
            are_same = list(pool.map(lambda one: self._has_digest(*one), same))
        found = zip(same, are_same, strict=True)
        self.mended = {name: marked for (name, marked), is_same in found if not is_same}

    def _check_digests(self) -> None:
        """Compare files that are to be read with the digests of the listing: each once, before its
        offsets are first offered, and one that differs at each listing, since it may come back."""
        waiting = [one for one in self._waiting(self.log.listing) if one.digest and not one.error]
        there = [one for one in waiting if self._has_version(one)]
        self.checked &= {(one.name, one.marked) for one in there}
        unchecked = [one for one in there if (one.name, one.marked) not in self.checked]
        with ThreadPoolExecutor(COUNTED_AT_ONCE) as pool:
            are_same = list(pool.map(lambda one: self._has_digest(one.name, one.marked), unchecked))
        found = list(zip(unchecked, are_same, strict=True))
        self.checked |= {(one.name, one.marked) for one, is_same in found if is_same}
        self.replaced = {one.name for one, is_same in found if not is_same}

    def _has_version(self, one: ListedFile) -> bool:
        found = self.there.get(one.name)
        return found is not None and found.version == one.version

    def _has_digest(self, name: str, marked: str) -> bool:
        self._get_on(1, f"compares {name} with what was listed")
        try:
            with self.source._folder.open(name, marked):
                return True
        except errors.DataLossError:
            return False

    def _has_settled(self, one: Found, now: float) -> bool:
        version = f"{one.version} {self.mended.get(one.name, '')}"
        before, since = self.settling.get(one.name, ("", now))
        if before != version:
            self.settling[one.name] = (version, now)
            since = now
        is_mended = one.name in self.log.listing.unreadable
        seconds = self.source.settle_seconds
        return now - since >= (max(seconds, MENDED_SECONDS) if is_mended else seconds)

    def _counted(self, files: Sequence[Found]) -> list[tuple[Found, FileContents | None]]:
        """The first of these files with what they have, None for those that changed meanwhile."""
        found: list[tuple[Found, FileContents | None]] = []
        until = time.monotonic() + COUNTING_SECONDS
        with ThreadPoolExecutor(COUNTED_AT_ONCE) as pool:
            while len(found) < len(files) and (not found or time.monotonic() < until):
                some = files[len(found) : len(found) + COUNTED_TOGETHER]
                found += pool.map(self._contents, some)
        return found

    def _contents(self, one: Found) -> tuple[Found, FileContents | None]:
        source, folder = self.source, self.source._folder
        try:
            found = file_rows.contents(
                folder,
                one.name,
                one.version,
                source._form,
                lambda count: self._get_on(count, f"counts the rows of {one.name}"),
            )
        except errors.DataLossError:
            return one, None
        return one, found

    def _get_on(self, count: int, text: str) -> None:
        """So much was done of what takes long where there is much of it."""
        done = 0 if self.work is None else self.work.done
        self.work = SourceWork(done + count, text)

    def _dealt(self, files: Iterable[tuple[Found, FileContents]]) -> list[ListedFile]:
        """Each file with its offsets: the partition with the fewest rows gets the next one."""
        ends = {str(n): self.log.listing.end(str(n)) for n in range(self.source.partitions)}
        dealt = []
        for one, found in files:
            partition = min(ends, key=lambda name: (ends[name], int(name)))
            listed = _listed(one, partition, ends[partition], found)
            ends[partition] = listed.end
            dealt.append(listed)
        return dealt

    def _waits(self, listing: Listing) -> bool:
        """Whether files are listed that may still be read."""
        return any(not one.error for one in self._waiting(listing))

    def _waiting(self, listing: Listing) -> Iterator[ListedFile]:
        """The files with rows that are not read for good."""
        for partition, files in listing.files.items():
            committed = self._committed(listing, partition)
            yield from (one for one in files if one.end > committed)

    def _committed(self, listing: Listing, partition: str) -> int:
        return max(self.committed.get(partition, 0), listing.begins.get(partition, 0))

    def _offered(self, listing: Listing, partition: str, now: float) -> PartitionOffsets:
        """What can be read of a partition. At a file that is gone it ends, until all before that
        has been read for good; then it begins behind it."""
        oldest, latest, why = listing.begins[partition], listing.end(partition), ""
        committed = self._committed(listing, partition)
        for one in listing.files[partition]:
            if one.end <= committed or not one.rows or one.error:
                continue
            if self._has_version(one) and one.name not in self.replaced:
                self.missing.pop(one.name, None)
                continue
            since = self.missing.setdefault(one.name, now)
            if one.begin > committed or now - since < MISSING_SECONDS_MAX:
                latest = max(one.begin, oldest)
                break
            oldest = one.end
            became = "was changed" if one.name in self.there else "is not there any more"
            why = f"file {one.name} {became}"
        return PartitionOffsets(oldest, max(oldest, latest), why=why)


@dataclass(slots=True)
class _Absences:
    """For how long names of the listing were not found. What counts is the time
    between looks at a folder in which there is something: an empty one may not be mounted.

    `seconds` is how much time has counted, `since` what it was when a name was first not there.
    """

    seconds: float = 0.0
    since: dict[str, float] | None = None
    looked_at: float | None = None

    def look(
        self, listing: Listing, there: Mapping[str, Found], now: float, seconds_max: float
    ) -> None:
        """See which names are not there, where some time has passed; at most `seconds_max` of it
        count, for a look may hang."""
        if not there:
            self.interrupt()
            return
        passed = seconds_max if self.looked_at is None else now - self.looked_at
        if passed < ABSENCE_SECONDS:
            return
        if self.since is None:
            self.since = {name: -seconds for name, seconds in listing.absent.items()}
        if self.looked_at is not None:
            self.seconds += min(passed, seconds_max)
        self.looked_at = now
        gone = listing.seen - there.keys()
        self.since = {name: self.since.get(name, self.seconds) for name in gone}

    def interrupt(self) -> None:
        """Until the next look no time counts."""
        self.looked_at = None

    def told(self, there: Mapping[str, Found]) -> tuple[dict[str, float], set[str]]:
        """The seconds of absence by name, and whose name is no longer known."""
        absent = {
            name: self.seconds - since
            for name, since in (self.since or {}).items()
            if name not in there
        }
        return absent, {name for name, at in absent.items() if at >= ABSENT_SECONDS_MAX}


def _listings(step: str) -> str:
    return f"listings/{step}"


def _listed(one: Found, partition: str, begin: int, found: FileContents) -> ListedFile:
    known = (found.rows, found.marks, found.columns, found.error, found.digest)
    return ListedFile(one.name, one.bytes, one.version, one.modified, partition, begin, *known)


def _rejects(path: str, rejected: Mapping[int, tuple[str, bytes | None]]) -> pa.Table:
    """Rejected rows by their numbers from 0; that of a whole file is -1."""
    rows = sorted(rejected)
    columns = [
        pa.array([path] * len(rows), pa.string()),
        pa.array([None if row < 0 else row + 1 for row in rows], pa.int64()),
        pa.array([rejected[row][1] for row in rows], pa.binary()),
        pa.array([rejected[row][0] for row in rows], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=_no_rejects().schema)


def _no_rejects() -> pa.Table:
    return pa.schema([*REJECTS, pa.field("error", pa.string())]).empty_table()


def _store_away(error: OSError) -> errors.SourceAwayError:
    return errors.SourceAwayError(
        where="list of files in the checkpoint store",
        what=f"cannot be reached ({errors.first_line(error)})",
        remedy="see that the store is there",
    )


def _check_arguments(source: FileSource) -> None:
    """Raise InputError for arguments that do not fit."""
    where, path = "FileSource", source.path
    if not isinstance(path, str | Path) or not str(path):
        remedy = "name a folder that all nodes have, or s3://BUCKET/PREFIX"
        refuse(f"{where}: path", f"is {argument_checks.shown(path)}", remedy)
    for name, words in (("format", FORMATS), ("order", ORDERS)):
        value = getattr(source, name)
        if value not in words:
            what, remedy = (
                f"is {argument_checks.shown(value)}",
                f"choose one of: {', '.join(words)}",
            )
            refuse(f"{where}: {name}", what, remedy)
    if source.schema is not None:
        argument_checks.check_kind(
            f"{where}: schema", source.schema, pa.Schema, "give a pyarrow.Schema"
        )
    argument_checks.check_whole(f"{where}: partitions", source.partitions, PARALLELISM_MAX)
    for name, low in (("settle_seconds", 0.0), ("list_seconds", 0.05)):
        remedy = f"give seconds from {low:g} to {SECONDS_MAX:,.0f}"
        number = getattr(source, name)
        argument_checks.check_number(f"{where}: {name}", number, low, SECONDS_MAX, remedy)
    for name in ("recursive", "include_existing_files", "header"):
        argument_checks.check_kind(
            f"{where}: {name}", getattr(source, name), bool, "give True or False"
        )
    pattern = source.pattern
    if not isinstance(pattern, str) or not pattern or "/" in pattern:
        what = f"is {argument_checks.shown(pattern)}"
        refuse(f"{where}: pattern", what, 'give one of names alone, as "*.csv"')
    argument_checks.check_list(f"{where}: columns", source.columns)
    for column in source.columns:
        if column not in OF_FILES.names:
            what = f"name {argument_checks.shown(column)}"
            remedy = f"choose of: {', '.join(OF_FILES.names)}"
            refuse(f"{where}: columns", what, remedy)
    for name, given, formats in (
        ("units", bool(source.units), "json and csv"),
        ("delimiter", source.delimiter != ",", CSV),
        ("header", not source.header, CSV),
    ):
        if given and source.format not in formats.split(" and "):
            refuse(f"{where}: {name}", f"is for {formats} alone", "leave it out")
