"""Puts output files of old commits together, in the background of a driver.

    single files ──read──► data files ──read again──► index ──a minute──► single files removed
    FAN indices of a level ──► larger data files ──► index of the next level ──► these removed

Readers go by indices (`rekindle_store.compacted_outputs`). One is created only if it is absent, so
of two drivers one makes it, and the other removes what it has made for its own. It may end
anywhere: without an index nothing has happened, and with one only what it has made needless is left
to be removed, which the next driver does. No data file has a name that was used before.

A driver may stand still before any removal, and go on when another one has long gone further. So it
removes only what the index that counts has replaced. Each later index that counts is made from that
one, and names none of it: what was needless once stays so, however late it is removed.

Output is put together once its commits are in a segment and nobody runs their epochs again: a
repeat would put single files there once more. What has been listed is there for a minute.
Called by `driver_main`. Decided in docs/decisions/0007-output-is-compacted.md.
"""

import errno
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from rekindle.model.errors import DamagedError, FencedError, RunError, first_line
from rekindle_spark.output import row_packing
from rekindle_spark.output.row_packing import RowPacker
from rekindle_store import checkpoint_records, commit_segments, compacted_outputs, output_rows
from rekindle_store.compacted_outputs import DataFile, Index, Record, Stretch
from rekindle_store.output_rows import OpenedFile
from rekindle_store.store_files import Files
from rekindle_store.store_readers import read_ahead

# Between two steps: an old store with a million commits is not put together at once.
PAUSE_SECONDS = 5.0
# How long files are there after something else has taken their place.
GRACE_SECONDS = 60.0
# Single files of this size and above are left alone, and not read: there are few for what they
# hold, and one may be larger than a driver's memory.
LARGE_BYTES = 4 * 2**20
REMOVED_TOGETHER = 1_000
# Troubles that are told, of a store in which much is damaged.
TOLD_MAX = 100
REMEDY = "restore it from a copy of the store"
# What pyarrow raises for rows that it cannot put together.
UNPACKABLE = (pa.ArrowException, ValueError, TypeError, NotImplementedError)

Block = tuple[int, int]  # level and first commit of an index
Named = tuple[int, str, int]  # of an output file: commit, path below the store, rows
Stretches = tuple[Stretch, ...]
Span = Mapping[str, Sequence[Stretch]]  # by query, of one segment
Names = Callable[[str, int], str]  # gives a data file of a query its name, by its number


class _EndedError(Exception):
    """The driver ends."""


@dataclass(slots=True)
class Compaction:
    """Puts together output up to the epoch that `settled` gives, behind which epochs may run again.
    `check_generation` is called before removals, and raises FencedError when a newer driver has
    started. `trouble` is told of what cannot be put together, once each; it stays as it is."""

    files: Files
    generation: int
    settled: Callable[[], int]
    check_generation: Callable[[], None]
    trouble: Callable[[str], None] = lambda _: None
    now: Callable[[], float] = time.monotonic
    ending: threading.Event = field(default_factory=threading.Event)
    # The first commits of the indices that are there, by level; None before they were listed.
    made: list[set[int]] | None = None
    # Blocks that have made others needless, and since when: these are removed some time later.
    due: dict[Block, float] = field(default_factory=dict)
    # The newest epoch of the next segment: it waits until that is settled.
    awaited: tuple[int, int] = (0, 0)
    attempt: int = 0
    swept: bool = False
    told: set[str] = field(default_factory=set)

    def start(self) -> threading.Thread:
        """Begin in a thread, which goes on until `stop`."""
        thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Have the thread end soon: what it is at is left undone."""
        self.ending.set()

    def _run(self) -> None:
        while not self.ending.wait(PAUSE_SECONDS):
            try:
                if not self.advance() and not self.swept and self.settled():
                    self.sweep()
            except (_EndedError, FencedError):
                return  # the newer driver goes on with it
            except RunError as error:
                self._tell(str(error))
                return
            except OSError:
                continue  # the store is away: what is not put together now will be later
            except Exception as error:  # a bug: it is not to end this thread unnoticed
                traceback.print_exc()
                self._tell(f"ended by {type(error).__name__}: {first_line(error)}")
                return

    def advance(self) -> bool:
        """Do the next thing, if there is one: remove what is needless, put a segment's output
        together, or that of several segments. Returns whether it has.

        Raises DamagedError for an index or a segment that is not whole, FencedError when a newer
        driver has started, OSError while the store is away. Done again after an error, it goes on
        where it was.
        """
        made = self._listed()
        try:
            return self._clear_due(made) or self._compact_next(made) or self._merge_next(made)
        except FileNotFoundError:  # another driver was faster: what there is has to be seen again
            self.made = None
            return True

    def sweep(self) -> None:
        """Remove what other drivers have left: data files of theirs that no index names where there
        is one for their commits, and rows of branches that nobody reads any more."""
        settled = self.settled()
        written: list[str] = []
        waited: list[str] = []
        for name in (f"outputs/{one}" for one in self.files.stream_names("outputs")):
            # not a list of all: queries that stand still leave millions of files of single epochs
            if compacted_outputs.data_span(name) is not None:
                written.append(name)
            elif checkpoint_records.is_read_no_more(name, settled):
                waited.append(name)
        self._remove(self._left(written))
        self._remove(waited)
        self.swept = True

    def _left(self, found: Iterable[str]) -> Iterator[str]:
        """Of the names of files, those of older drivers' data files that will never count."""
        made, _ = compacted_outputs.made(self.files)
        named = {name for index in self._indices(made) for name in index.data_files()}
        by_block: dict[Block, list[str]] = {}
        for name in found:
            span = compacted_outputs.data_span(name)
            if span is None or span[2] >= self.generation or name in named:
                continue
            level = compacted_outputs.level_of(*span[:2])
            if level is not None:
                by_block.setdefault((level, span[0]), []).append(name)
        # Listing and reading take a while, in which an index may have given way to a higher one. So
        # that it names none of them is asked of the store by name, for the few that are left.
        for (level, first), names in by_block.items():
            indices = compacted_outputs.all_of(self.files, first, level)
            if not indices:  # their driver may still make one
                continue
            kept = {name for index in indices for name in index.data_files()}  # readers have these
            yield from (name for name in names if name not in kept)

    def _listed(self) -> list[set[int]]:
        """The indices that are there. At the first look it is not known what those before have left
        to be removed: so all of them may have."""
        if self.made is None:
            made, _ = compacted_outputs.made(self.files)
            begin = self.now()
            self.due = {
                (level, first): begin
                for level, firsts in enumerate(made)
                for first in sorted(firsts)
                if compacted_outputs.highest(made, first, level + 1) is None
            }
            self.made = made
        return self.made

    def _indices(self, made: Sequence[set[int]]) -> Iterator[Index]:
        for level, firsts in enumerate(made):
            for first in sorted(firsts):
                index = compacted_outputs.read(self.files, first, level)
                if index is not None:
                    yield index

    # ---- what is needless

    def _clear_due(self, made: list[set[int]]) -> bool:
        """Remove what one block has made needless."""
        for block, since in self.due.items():
            if self.now() - since >= GRACE_SECONDS:
                self._clear(made, *block)
                del self.due[block]
                return True
        return False

    def _clear(self, made: list[set[int]], level: int, first: int) -> None:
        index = compacted_outputs.find(self.files, first)
        if index is None or (index.first, index.last) != compacted_outputs.block_of(first, level):
            # Another driver was faster, perhaps before this one made its index: that may have other
            # rows in data files than the index that counts, which may need the single files.
            self.made = None
            return
        kept = index.data_files()
        self._check_there(index)
        if level == 0:
            self._remove(self._single_files(index))
            return
        last = compacted_outputs.block_of(first, level)[1]
        for lower in range(level):
            below = sorted(one for one in made[lower] if first <= one <= last)
            for one in below:
                replaced = compacted_outputs.read(self.files, one, lower)
                if replaced is not None:
                    self._remove(name for name in replaced.data_files() if name not in kept)
                # its data first: who finds it there begins here once more
                self._remove([compacted_outputs.name_of(one, lower)])
                made[lower].discard(one)
                self.due.pop((lower, one), None)

    def _single_files(self, index: Index) -> Iterator[str]:
        """The names of the files whose rows are in data files."""
        where = f"{self.files.place}/{index.name}"
        found = compacted_outputs.parts(index, index.first, self._records(index.first), where)
        return (name for (_, name), part in found.items() if part is not None)

    def _check_there(self, index: Index) -> None:
        """Raise DamagedError where a data file is not there as it was made: then what it has taken
        the place of stays."""
        for file in index.data_files().values():
            try:
                size = self.files.size(file.name)
            except FileNotFoundError:
                if compacted_outputs.find(self.files, index.first) != index:
                    raise  # another driver has put it together with others
                size = -1
            if size != file.bytes:
                what = "is not there" if size < 0 else f"has {size} bytes, and had {file.bytes}"
                where = f"{self.files.place}/{file.name}"
                raise DamagedError(where=where, what=what, remedy=REMEDY)

    def _remove(self, names: Iterable[str]) -> None:
        batch: list[str] = []
        for name in names:
            batch.append(name)
            if len(batch) == REMOVED_TOGETHER:
                self._remove_batch(batch)
                batch = []
                self._go_on()
        self._remove_batch(batch)

    def _remove_batch(self, names: Sequence[str]) -> None:
        if names:
            self.check_generation()
            self.files.remove(names)

    # ---- a segment

    def _compact_next(self, made: list[set[int]]) -> bool:
        """Put the output of the next segment together, if it is sealed and settled."""
        first = self._next_segment(made)
        awaited, epoch = self.awaited
        if awaited == first and epoch > self.settled():
            return False
        found = list(self._records(first))
        if not found:
            return False
        epoch = max((one[1] for _, record in found for one in record["outputs"]), default=0)
        if epoch > self.settled():
            self.awaited = (first, epoch)
            return False
        self._make(made, (0, first), lambda name: [self._packed(found, name)])
        return True

    def _next_segment(self, made: Sequence[set[int]]) -> int:
        """The first commit of the first segment whose output was not put together."""
        number = 1
        while True:
            level = compacted_outputs.highest(made, number)
            if level is None:
                return number
            number = compacted_outputs.block_of(number, level)[1] + 1

    def _records(self, first: int) -> Iterator[tuple[int, Record]]:
        """The commit records of a segment; none where it is not sealed."""
        segment = commit_segments.read(self.files, first)
        yield from () if segment is None else segment.records()

    def _packed(self, found: Sequence[tuple[int, Record]], name: Names) -> dict[str, Stretches]:
        """The output of a segment, by query."""
        by_query: dict[str, list[Named]] = {}
        for number, record in found:
            for query, path, rows in compacted_outputs.output_names(record):
                by_query.setdefault(query, []).append((number, path, rows))
        return {query: self._packed_query(query, by_query[query], name) for query in by_query}

    def _packed_query(self, query: str, named: Sequence[Named], name: Names) -> Stretches:
        self._go_on()
        own = Stretch(None, 0, len(named), sum(rows for _, _, rows in named))
        if not all(compacted_outputs.is_single(path) for _, path, _ in named):
            return (own,)
        packer = RowPacker(self.files, lambda number: name(query, number))
        places = []
        try:
            for file in read_ahead(named, self._small_file):
                self._go_on()
                places.append(None if file is None else packer.add(file.pieces()))
            made = packer.finish()
        except (*UNPACKABLE, FileNotFoundError, DamagedError) as error:
            self._tell(f"commits from {named[0][0]} on, query {query}: {error}")
            return (own,)
        return _joined(
            Stretch(None, 0, 1, rows)
            if place is None
            else Stretch(made[place[0]], place[1], 1, rows)
            for place, (_, _, rows) in zip(places, named, strict=True)
        )

    def _small_file(self, named: Named) -> OpenedFile | None:
        """A single file in memory; None for one that is large enough."""
        number, path, rows = named
        if self.files.size(path) >= LARGE_BYTES:
            return None
        where = f"{self.files.place}/{path}"
        file = output_rows.opened(where, self.files.read(path))
        if file.rows != rows:
            what = f"has {file.rows} rows, where commit record {number} says {rows}"
            raise DamagedError(where=where, what=what, remedy=REMEDY)
        return file

    # ---- several segments

    def _merge_next(self, made: list[set[int]]) -> bool:
        """Put blocks of a level together whose own work is done."""
        for level in range(1, compacted_outputs.LEVELS):
            width = commit_segments.LENGTH * compacted_outputs.FAN ** (level - 1)
            firsts = {compacted_outputs.block_of(one, level)[0] for one in made[level - 1]}
            for first in sorted(firsts):
                below = [first + number * width for number in range(compacted_outputs.FAN)]
                is_done = not any((level - 1, one) in self.due for one in below)
                is_new = compacted_outputs.highest(made, first, level) is None
                if is_new and is_done and made[level - 1].issuperset(below):
                    self._make(made, (level, first), partial(self._merged, level, below))
                    return True
        return False

    def _merged(self, level: int, below: Sequence[int], name: Names) -> list[dict[str, Stretches]]:
        """The output of several blocks; small data files are put together."""
        indices: list[Index] = []
        for one in below:
            index = compacted_outputs.read(self.files, one, level - 1)
            if index is None:
                gone = compacted_outputs.name_of(one, level - 1)
                raise FileNotFoundError(errno.ENOENT, "is not there any more", gone)
            indices.append(index)
        try:
            return self._merged_spans([span for index in indices for span in index.spans], name)
        except FileNotFoundError:
            for index in indices:  # with the same index the next try would be no better
                self._check_there(index)
            raise

    def _merged_spans(self, spans: Sequence[Span], name: Names) -> list[dict[str, Stretches]]:
        merged: list[dict[str, Stretches]] = [{} for _ in spans]
        for query in sorted({query for span in spans for query in span}):
            moved = self._moved(query, [one for span in spans for one in span.get(query, ())], name)
            for span, after in zip(spans, merged, strict=True):
                if query in span:
                    after[query] = _joined(_moved_to(one, moved) for one in span[query])
        return merged

    def _moved(
        self, query: str, stretches: Iterable[Stretch], name: Names
    ) -> dict[str, tuple[DataFile, int]]:
        """Where the rows of data files go, and from which row on: of those that do not stay."""
        files = {one.file.name: one.file for one in stretches if one.file is not None}
        few = [file for file in files.values() if 2 * file.bytes <= row_packing.FILE_BYTES_MAX]
        if len(few) < 2:
            return {}
        self._go_on()
        packer = RowPacker(self.files, lambda number: name(query, number))
        try:
            places = [packer.add(self._groups(file)) for file in few]
            made = packer.finish()
        except (*UNPACKABLE, DamagedError) as error:
            self._tell(f"query {query}: {error}")
            return {}
        return {
            file.name: (made[number], first)
            for file, (number, first) in zip(few, places, strict=True)
        }

    def _groups(self, file: DataFile) -> Iterator[pa.Table]:
        """The rows of a data file, some at a time."""
        where = f"{self.files.place}/{file.name}"
        found = output_rows.opened(where, self.files.read(file.name))
        if found.rows != file.rows:
            what = f"has {found.rows} rows, where its index says {file.rows}"
            raise DamagedError(where=where, what=what, remedy=REMEDY)
        if not found.ends:
            yield found.parquet.schema_arrow.empty_table()
        for number in range(len(found.ends)):
            yield found.group(number)

    # ---- an index

    def _make(
        self, made: list[set[int]], block: Block, spans_of: Callable[[Names], Sequence[Span]]
    ) -> None:
        """Make the index of a block, with its data files before it, unless another driver has made
        it, or a higher one."""
        level, number = block
        index = compacted_outputs.find(self.files, number)
        there = None if index is None else compacted_outputs.level_of(index.first, index.last)
        if there is None or there < level:
            self._create(level, compacted_outputs.block_of(number, level), spans_of)
            there = level
        first, _ = compacted_outputs.block_of(number, there)
        made[there].add(first)
        self.due[there, first] = self.now()

    def _create(
        self, level: int, span: tuple[int, int], spans_of: Callable[[Names], Sequence[Span]]
    ) -> None:
        self.attempt += 1
        named: list[str] = []

        def name(query: str, count: int) -> str:
            own = (self.generation, self.attempt, count)
            named.append(compacted_outputs.data_name(query, span, *own))
            return named[-1]

        try:
            index = Index(*span, self.generation, spans_of(name))
        except (OSError, RunError, _EndedError):
            # nobody else ever names them; a later driver sweeps them if they stay
            with suppress(OSError):
                self.files.remove(named)
            raise
        kept = index.data_files()
        try:
            self.files.create(
                compacted_outputs.name_of(span[0], level), compacted_outputs.encoded(index)
            )
        except FileExistsError:  # another driver was faster, and its files count
            kept = {}
        self.files.remove([one for one in named if one not in kept])

    def _go_on(self) -> None:
        if self.ending.is_set():
            raise _EndedError

    def _tell(self, text: str) -> None:
        if text not in self.told and len(self.told) < TOLD_MAX:
            self.told.add(text)
            self.trouble(text)


def _joined(stretches: Iterable[Stretch]) -> Stretches:
    """The same stretches, those together that follow each other in one file."""
    found: list[Stretch] = []
    for one in stretches:
        last = found[-1] if found else None
        follows = last is not None and (
            one.file is None or last.first_row + last.rows == one.first_row
        )
        if last is not None and last.file == one.file and follows:
            found[-1] = replace(last, files=last.files + one.files, rows=last.rows + one.rows)
        else:
            found.append(one)
    return tuple(found)


def _moved_to(one: Stretch, moved: Mapping[str, tuple[DataFile, int]]) -> Stretch:
    if one.file is None or one.file.name not in moved:
        return one
    file, first = moved[one.file.name]
    return replace(one, file=file, first_row=first + one.first_row)
