"""The committed rows of a query, as Arrow, pandas or polars.

    rekindle.read(store, query) ──► Output ──► arrow(), pandas(), polars()    all rows
                                       ├─────► tables()                      a file at a time
                                       ├─────► follow()                      and what comes later
                                       └─────► paths()                       files, for engines

Rows come in the order in which they came to count. Within one partition of a query that is the
order of epochs; partitions may be at different epochs. Where the rows lie is up to `output_rows`.
For users: docs/output.md.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rekindle.model.errors import InputError, RunError, first_line
from rekindle_store import commit_log
from rekindle_store.committed_files import (
    DEAD_LETTERS,
    LATE,
    CommittedFile,
    NamedFile,
    OutputLog,
    committed_files,
)
from rekindle_store.output_rows import OutputRows
from rekindle_store.store_readers import opened, read_ahead, reading

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


POLL_SECONDS = 1.0
# How long somebody who follows waits for a store that does not answer.
PATIENCE_SECONDS = 600.0
RETRY_SECONDS = 1.0
# A driver puts files together once in minutes, so the second listing is undisturbed.
LISTINGS_MAX = 10


def read(
    store: str | Path,
    query: str,
    *,
    since: int = 0,
    limit: int | None = None,
    dead_letters: bool = False,
    late: bool = False,
) -> "Output":
    """The committed output of a query of a checkpoint store; a driver may be running.

    `store` is what `rekindle run --store` was given. Rows are those of epochs from `since` on,
    `limit` of them at most. With `dead_letters` `query` names a step, and the rows are those that
    it left out; with `late` those that came too late for it.

    Raises InputError for both of them, for a store that is not there, cannot be read or is damaged,
    and for a query that it does not have; RunError when its server does not answer.
    """
    if limit is not None and not _is_count(limit):
        remedy = "give a number of rows, or None"
        raise InputError(where="limit", what=f"is {limit!r}", remedy=remedy)
    if not _is_count(since):
        remedy = "give the number of an epoch, or 0 for all"
        raise InputError(where="since", what=f"is {since!r}", remedy=remedy)
    if dead_letters and late:
        raise InputError(
            where="read", what="is asked for dead letters and late rows", remedy="leave one out"
        )
    ending = DEAD_LETTERS if dead_letters else LATE if late else ""
    output = Output(str(store), f"{query}{ending}", since, limit)
    output.check()
    return output


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


class NoOutputYet(InputError):
    """A query, or what a step keeps beside, is known and has no rows so far."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a query. Nothing is read before it is asked for, and each call reads anew, so
    a later one has more of a query that runs."""

    store: str
    query: str
    since: int = 0
    limit: int | None = None

    def check(self) -> None:
        """Raise what is wrong with store or query, as far as that can be known at once."""
        self._log().check_declared()

    def files(self, *, version: int = 1) -> Iterator[CommittedFile]:
        """Yield the files with these rows, without reading them: see `committed_files`."""
        return committed_files(self.store, self.query, since=self.since, version=version)

    def paths(self) -> list[str]:
        """Each Parquet file with rows of the query once, for engines that read whole files: all
        rows of these files count, and there are no others. Read them soon: a driver that puts files
        together removes the single ones a minute later.

        Raises InputError for an output with `since` or `limit`, as files have rows of other epochs,
        and what `committed_files` does.
        """
        if self.since or self.limit is not None:
            raise InputError(
                where="paths()",
                what="is asked for a part of the rows",
                remedy="use files(version=2), which says from which row on a file has them",
            )
        for _ in range(LISTINGS_MAX):
            log = self._log()
            log.check_declared()
            found = _paths(log)
            if found is not None:
                return found
        raise RunError(
            where=f"checkpoint store {self.store}",
            what=f"had output put together {LISTINGS_MAX} times while it was listed",
            remedy="ask again, or use tables()",
        )

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of one file after the other; memory does not grow with the output.

        Without any rows it is one table of no rows. Raises InputError for a query without output
        so far, too.
        """
        yield from self._limited(self._parts(self._log()))

    def follow(
        self, *, only_new: bool = False, waiting: Callable[[str | None], None] = lambda _: None
    ) -> Iterator[pa.Table]:
        """Yield the same, and then what comes to count, within a second or two, without an end but
        for `limit`.

        With `only_new` it begins with what comes from now on. It waits for a query that has no
        output yet, and for a store that does not answer: `waiting` is called with the cause, and
        with None when the store answers again. Raises RunError when it does not for ten minutes.
        """
        yield from self._limited(_Follower(self._log(), waiting).tables(only_new=only_new))

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table.

        Raises InputError where the pipeline was changed such that columns have another type.
        """
        try:
            return pa.concat_tables(self.tables(), promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(
                where=f"query {self.query!r:.120}",
                what=f"has columns whose type was changed ({first_line(error)})",
                remedy="read it table by table, with tables(), or with `since` behind the change",
            ) from error

    def polars(self) -> "pl.DataFrame":
        """All rows as a polars DataFrame."""
        import polars as pl

        frame = pl.from_arrow(self.arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def pandas(self) -> "pd.DataFrame":
        """All rows as a pandas DataFrame. Raises InputError where pandas is not installed."""
        try:
            return self.arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise InputError(
                where="pandas()",
                what=f"needs {error.name}, which is not installed",
                remedy="install it, or use polars() or arrow()",
            ) from error

    def _log(self) -> OutputLog:
        return OutputLog(opened(self.store), self.query, since=self.since)

    def _parts(self, log: OutputLog) -> Iterator[pa.Table]:
        rows, has_rows = OutputRows(log.files, log.places), False
        while (found := log.look()) is not None:
            has_rows |= bool(found)
            yield from read_ahead(found, partial(_table, rows))
        if not has_rows and log.skipped is not None:
            yield _table(rows, log.skipped).slice(0, 0)
        log.check_known()
        if self.query not in log.outputs:
            raise NoOutputYet(
                where=f"query {self.query!r:.120}",
                what="has no output yet",
                remedy="wait until rows of it are committed, as `rekindle output --follow` does",
            )

    def _limited(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        left = self.limit
        for table in tables:
            if left is None:
                yield table
                continue
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                return


@dataclass(slots=True)
class _Follower:
    """Reads a log whose driver goes on writing; `waiting` is called as `Output.follow` says."""

    log: OutputLog
    waiting: Callable[[str | None], None]
    away_since: float | None = None

    def tables(self, *, only_new: bool) -> Iterator[pa.Table]:
        """Yield the rows of each file, and wait for more at the end of the log."""
        with reading(self.log.files.place):
            store = commit_log.origin(self.log.files)
            if only_new:
                self.log.last = commit_log.newest(self.log.files)
                self.log.ended = True
        known = only_new
        while True:
            try:
                self._check_same(store)
                found = self.log.look()
                if found is None and not known:
                    known = True
                    self._check_known()
            except RunError as trouble:
                self._wait(trouble)
                continue
            self._answers()
            if found is None:
                time.sleep(POLL_SECONDS)
            yield from self._read(found or [])

    def _read(self, found: list[NamedFile]) -> Iterator[pa.Table]:
        rows, done = OutputRows(self.log.files, self.log.places), 0
        while done < len(found):
            try:
                for table in read_ahead(found[done:], partial(_table, rows)):
                    self._answers()
                    yield table
                    done += 1
            except RunError as trouble:
                self._wait(trouble)

    def _check_known(self) -> None:
        self.log.check_known()
        if self.log.query not in self.log.outputs:
            self.waiting(f"query {self.log.query!r:.120}: has no output yet")

    def _check_same(self, store: str) -> None:
        """Raise InputError where the store is another one now, whose records would follow those
        that were read without belonging to them."""
        with reading(self.log.files.place):
            now = commit_log.origin(self.log.files)
        if now != store:
            raise InputError(
                where=f"checkpoint store {self.log.files.place}",
                what="was begun anew while it was followed",
                remedy="start again to read it from its first record",
            )

    def _wait(self, trouble: RunError) -> None:
        now = time.monotonic()
        if self.away_since is None:
            self.away_since = now
            self.waiting(str(trouble))
        if now - self.away_since > PATIENCE_SECONDS:
            raise trouble
        time.sleep(RETRY_SECONDS)

    def _answers(self) -> None:
        if self.away_since is not None:
            self.away_since = None
            self.waiting(None)


def _table(rows: OutputRows, file: NamedFile) -> pa.Table:
    """The rows of a file. Raises InputError where it is missing or damaged."""
    with reading(rows.files.place):
        return rows.table(file.commit, file.name, file.rows)


def _paths(log: OutputLog) -> list[str] | None:
    """The paths of all files, each once; None where a driver has put files together meanwhile, so
    that one of them has rows of others as well."""
    left: dict[str, int] = {}  # rows that have not been named yet
    while (found := log.look()) is not None:
        for file in found:
            with reading(log.files.place):
                part = log.places.part(file.commit, file.name)
            name, rows = (
                (file.name, file.rows) if part is None else (part.file.name, part.file.rows)
            )
            left[name] = left.get(name, rows) - file.rows
    log.check_known()
    place = log.files.place.rstrip("/")
    return None if any(left.values()) else [f"{place}/{name}" for name in left]
