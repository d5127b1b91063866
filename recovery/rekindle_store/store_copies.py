"""Copies a checkpoint store to another place, on which a driver can go on: a folder, S3 or HDFS.

    programs ─► states, input ─► outputs, indices, segments, commits ─► offsets ─► branches
      ─► listings ─► generations ─► the newest checkpoint's record ─► check ─► it may be used

A driver may write to the source meanwhile: each part is copied before what names it, and what came
later than the names that were read is left for the next copy. So are commits that came after the
checkpoint that is copied. Where the driver removes a checkpoint before it is copied, or puts output
together, the copy goes on with what is there then. While the file `copying` is beside the target's
generations no driver starts there. A copy that was interrupted, or an older one, is gone on with:
what is there and equal is not copied again, and what a driver would have removed is removed.

The target becomes a store of its own, by the record `copy` (`commit_log.identity`): as soon as a
driver has started on it, nothing is copied there any more. For users: docs/operations.md.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, InputError, RunError
from rekindle_store import (
    checkpoint_records,
    commit_log,
    commit_segments,
    compacted_outputs,
    store_errors,
    store_files,
    store_integrity,
)
from rekindle_store.checkpoint_records import Record, Seal
from rekindle_store.compacted_outputs import Index, Part, Places
from rekindle_store.store_files import Files
from rekindle_store.store_integrity import Findings, OfOutput
from rekindle_store.store_readers import opened, read_ahead

# How often a driver may replace what is being copied, a checkpoint mostly.
ROUNDS_MAX = 20
# Commit records whose output files are copied together, before them.
RECORDS_TOGETHER = 64
FOLDERS = ("generations", "offsets", "commits", "branches", "checkpoints", "outputs")
# What a driver removes, and a later copy too. Storage systems have folders of their own anywhere.
PASSING = re.compile(
    r"checkpoints/[0-9]+(\.json|/[^/]+)|offsets/[0-9]+\.json|commits/[0-9]+\.json"
    r"|generations/program-[^/]+"
)
LISTING = re.compile(r"[^/]+/[0-9]+\.json")
# Stores that a copy names, of which it was made one after the other. A sink is not taken over from
# one that lies further back.
ORIGINS_MAX = 1_000
EMPTY = "name a place where nothing is, or a copy of this store on which no driver has started"
DAMAGED = "see `rekindle store check`, and restore it from another copy of the store"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, and how much was there and equal already; what the check of the target
    says."""

    files: int
    bytes: int
    equal: int
    findings: Findings


class _ReplacedError(Exception):
    """The driver has removed a checkpoint while it was copied, or has put output together."""


def copy(source: str, target: str, say: Say = lambda _: None, *, quick: bool = False) -> Copied:
    """Copy a store to a target, and check that, without reading output files where it is to be
    `quick`. `say` is told how far it is.

    Raises InputError for a source that is no store or cannot be read, and for a target that is
    something else than an older copy of it, or cannot be written; DamagedError for what is damaged
    in the source; RunError where a driver replaces checkpoints faster than they are copied, and
    where a server does not answer.
    """
    found = opened(source)
    store_files.check(target)
    copying = _Copying(found, store_files.at(target), say, quick=quick)
    copying.check_places()
    copying.check_source()
    copying.begin()
    copying.run()
    findings = copying.checked()
    if not findings.damages:
        copying.end()
    return Copied(copying.copied, copying.copied_bytes, copying.equal, findings)


@dataclass(slots=True)
class _Copying:
    """A copy on its way. `made` are folders of the target that are there, `needed` the files that
    it is to have of those that drivers remove sooner or later."""

    source: Files
    target: Files
    say: Say
    quick: bool
    copied: int = 0
    copied_bytes: int = 0
    equal: int = 0
    made: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    # The newest commit of an older copy.
    last_there: int = 0
    # The last commit that is copied: none with which something has become public behind the
    # checkpoint that is copied. A start would make that again from older states.
    limit: int = 0
    # Where output is in the source, and the data files whose indices were copied.
    places: Places = field(init=False)
    data_files: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = Places(self.source)

    def check_places(self) -> None:
        """Refuse a source that is half a copy, and a target that is no copy of the source, or on
        which a driver has started."""
        source, target = (place.place.rstrip("/") for place in (self.source, self.target))
        if f"{source}/".startswith(f"{target}/") or f"{target}/".startswith(f"{source}/"):
            what = "is the store that is to be copied" if source == target else "lies in the other"
            self._refuse(what, "name another place")
        with _reading(self.source):
            if commit_log.is_being_copied(self.source):
                where = f"checkpoint store {source}"
                what = "is a copy that was not made to its end"
                raise InputError(where=where, what=what, remedy="copy it to its end first")
        with _reading(self.target):
            if not any(any(True for _ in self.target.stream_names(name)) for name in FOLDERS):
                return
            if not store_files.exists(self.target, commit_log.COPY):
                self._refuse("has a store, which is no copy", EMPTY)
            starts = commit_log.generations(self.target)
        for number in starts:
            name = f"generations/{number}.json"
            if self._get(name) != self._there(name):
                what = (
                    f"has a driver's start of its own, generation {number}, and goes on by itself"
                )
                self._refuse(what, EMPTY)

    def check_source(self) -> None:
        """Refuse a source that is damaged, but for its output, before a copy that is there is
        touched: while one is gone on with, it is no store."""
        found = store_integrity.check(self.source, of_output="nothing", say=self.say)
        if found.damages:
            damage = found.damages[0]
            where = f"{self.source.place}/{damage.place}"
            raise DamagedError(where=where, what=damage.what, remedy=DAMAGED)

    def begin(self) -> None:
        """Mark the target as a copy on its way, of this store and of no other."""
        with _writing(self.target):
            for name in (*FOLDERS, commit_segments.FOLDER):
                self.target.make_folder(name)
        with _reading(self.source):
            of, before = commit_log.identity(self.source), commit_log.copied_from(self.source)
        if not of:
            where = f"{self.source.place}/generations/1.json"
            raise DamagedError(where=where, what="is not there", remedy=DAMAGED)
        data = self._there(commit_log.COPY)
        if data is None:
            record = {"of": of, "id": uuid.uuid4().hex, "at": time.time()}
            if before:
                record["before"] = before[:ORIGINS_MAX]
            data = record_format.encode("copy", record)
            with _writing(self.target):
                self.target.create(commit_log.COPY, data)
        place = f"{self.target.place}/{commit_log.COPY}"
        if record_format.decode("copy", data, place)["of"] != of:
            self._refuse("is a copy of another store", EMPTY)
        with _writing(self.target):
            self.target.put({commit_log.COPYING: b""})

    def end(self) -> None:
        """Let drivers start on the target."""
        with _writing(self.target):
            self.target.remove([commit_log.COPYING])

    def run(self) -> None:
        """Copy all that counts, with the newest checkpoint that can be had."""
        for _ in range(ROUNDS_MAX):
            try:
                self._round()
                return
            except _ReplacedError:
                self.say("the driver has replaced what was copied: going on with what is there")
        raise RunError(
            where=f"checkpoint store {self.source.place}",
            what=f"had its checkpoint replaced {ROUNDS_MAX} times before it was copied",
            remedy="end the driver with `rekindle savepoint` and copy then, or make checkpoints "
            "rarer than a copy of one takes (checkpoint_seconds); what is copied stays",
        )

    def checked(self) -> Findings:
        """The check of the target, once what it found was copied once more."""
        findings = self._findings()
        if findings.damages:
            places = {damage.place.partition(":")[0] for damage in findings.damages}
            self._all(sorted(places), _by_content)
            findings = self._findings()
        return findings

    def _findings(self) -> Findings:
        of_output: OfOutput = "sizes" if self.quick else "rows"
        return store_integrity.check(self.target, of_output=of_output, begun=True, say=self.say)

    def _round(self) -> None:
        self.needed = set()
        with _reading(self.source):
            names = self.source.names("generations")
        programs = [f"generations/{name}" for name in names if name.startswith("program-")]
        self._all(programs, _by_content)
        with _reading(self.source):  # before the checkpoint is chosen
            newest = commit_log.newest(self.source)
        record, data = self._newest_checkpoint()
        self.limit = max(newest, 0 if record is None else checkpoint_records.covered(record))
        if record is not None:
            self._needed_by(record, set(checkpoint_records.files(record)))
        self._branch_files(record)
        self._log()
        begin = 1 if record is None else checkpoint_records.first_input(record)
        offsets = [number for number in self._numbers("offsets") if number >= begin]
        self._needed_by(record, {f"offsets/{number}.json" for number in offsets})
        self._listings()
        for folder in ("branches", "generations"):
            self._all([f"{folder}/{number}.json" for number in self._numbers(folder)], _by_content)
        if record is not None:
            self._put(f"checkpoints/{record['epoch']}.json", data)
        self._remove_needless()

    def _listings(self) -> None:
        """Copy the lists of files that sources read, behind the input that needs them. Where the
        driver puts records of one together meanwhile, what is there then is copied."""
        for _ in range(ROUNDS_MAX):
            with _reading(self.source):
                found = self.source.names("listings")
            names = [f"listings/{name}" for name in sorted(found) if LISTING.fullmatch(name)]
            if names:
                with _writing(self.target):
                    self.target.make_folder("listings")
            if not self._all(names, _by_content):
                return
        raise _ReplacedError

    def _newest_checkpoint(self) -> tuple[Record | None, bytes]:
        """The newest checkpoint that counts, and its record's bytes; None without one."""
        found: dict[int, bytes] = {}
        for number in self._numbers("checkpoints"):
            data = self._get(f"checkpoints/{number}.json")
            if data is not None:  # else the driver has just removed it
                found[number] = data
        decoded = [
            self._decoded("checkpoint", f"checkpoints/{number}.json", data)
            for number, data in found.items()
        ]
        generation = max(self._numbers("generations"))
        if all(record["generation"] == generation for record in decoded):
            counting = decoded
        else:
            counting = checkpoint_records.counting(decoded, self._seal())
        if not counting:
            return None, b""
        return counting[-1], found[counting[-1]["epoch"]]

    def _seal(self) -> Seal | None:
        """What the newest driver that sealed the log said of checkpoints: that record keeps a file
        of its own for good."""
        numbers = reversed(self._numbers("commits"))
        names = (f"commits/{number}.json" for number in numbers)
        for name, data in read_ahead(names, lambda name: (name, self._get(name))):
            if data is None:  # it is in a segment by now
                continue
            seal = checkpoint_records.seal_of(self._decoded("commit", name, data))
            if seal:
                return seal
        return None

    def _needed_by(self, record: Record | None, names: set[str]) -> None:
        """Copy what a checkpoint needs, as it was listed. Raises _ReplacedError where the driver
        may have removed some of it, DamagedError where it is not there all the same."""
        missing = self._all(sorted(names), _by_content)
        if record is None:
            is_gone = self._newest_checkpoint()[0] is not None
        else:  # whose record goes before its files, and before offsets
            is_gone = self._get(f"checkpoints/{record['epoch']}.json") is None
        if is_gone:
            raise _ReplacedError
        if missing:
            where = f"{self.source.place}/{missing[0]}"
            raise DamagedError(where=where, what="is not there", remedy=DAMAGED)

    def _branch_files(self, record: Record | None) -> None:
        """Copy the rows that wait for branches which are left out."""
        after = 0 if record is None else checkpoint_records.oldest(record)
        names = [f"branches/{number}.json" for number in self._numbers("branches")]
        found = [
            self._decoded("branch", name, data)
            for name in names
            if (data := self._get(name)) is not None
        ]
        with _reading(self.source):
            waiting = store_integrity.branch_files(self.source, found, after)
        for by_epoch in waiting.values():
            self._all([by_epoch[epoch] for epoch in sorted(by_epoch)], _by_size)

    def _log(self) -> None:
        """Copy the commit log, each record behind the output files that it names."""
        # In this order: a record loses its own file only once its segment is there.
        own = [number for number in self._numbers("commits") if number <= self.limit]
        with _reading(self.source):
            segments, _ = commit_segments.made(self.source)
        made = {first for first in segments if first <= self.limit}
        self._indices()
        for first in sorted(made):
            self._segment(first)
        for begin in range(0, len(own), RECORDS_TOGETHER):
            numbers = own[begin : begin + RECORDS_TOGETHER]
            names = [f"commits/{number}.json" for number in numbers]
            found = dict(zip(numbers, read_ahead(names, self._get), strict=True))
            gone = {
                commit_segments.first_of(number) for number, data in found.items() if data is None
            }
            for first in sorted(gone - made):  # its segment was made meanwhile
                self._segment(first)
            made |= gone
            self._own_files(
                {number: data for number, data in found.items() if data is not None}, made
            )
        self._keep_newest(own, max(made, default=0))

    def _segment(self, first: int) -> None:
        """Copy a segment. Where it is there and equal so is what it names: that came first."""
        self._check_limit(first + commit_segments.LENGTH - 1)
        name = commit_segments.name_of(first)
        data = self._get(name)
        if data is None or data != self._there(name):
            if data is None:
                where = f"{self.source.place}/commits/{first}.json"
                raise DamagedError(where=where, what="is not there", remedy=DAMAGED)
            self._outputs(self._records(first))
        self._put(name, data)

    def _check_limit(self, last: int) -> None:
        """Raise _ReplacedError for what has commits behind the limit: a later checkpoint than the
        one that is copied covers them."""
        if last > self.limit:
            raise _ReplacedError

    def _records(self, first: int) -> list[tuple[int, Record]]:
        """The records of a segment; none where there is none."""
        with _reading(self.source):
            segment = commit_segments.read(self.source, first)
            return [] if segment is None else list(segment.records())

    def _indices(self) -> None:
        """Copy the indices of output that was put together, each behind its data files."""
        self.places, self.data_files = Places(self.source), set()
        with _reading(self.source):
            found, _ = compacted_outputs.made(self.source)
        with _reading(self.target):
            self.last_there = max(
                commit_log.newest(self.target), commit_segments.newest(self.target)
            )
        number = 1
        while True:
            level = compacted_outputs.highest(found, number)
            if level is None:
                return
            self._index(number, level)
            number = compacted_outputs.block_of(number, level)[1] + 1

    def _index(self, first: int, level: int) -> None:
        """Copy an index. What it has made needless in the target goes before it is there: until
        then an interrupted copy begins here again."""
        self._check_limit(compacted_outputs.block_of(first, level)[1])
        name = compacted_outputs.name_of(first, level)
        data = self._get(name)
        if data is None:
            raise _ReplacedError
        index = compacted_outputs.decoded(data, f"{self.source.place}/{name}")
        if data != self._there(name):
            self._data_files(index)
            self._remove_replaced(index, level)
        self._put(name, data)
        self.data_files.update(index.data_files())

    def _data_files(self, index: Index) -> None:
        missing = self._all(sorted(index.data_files()), _by_size)
        if missing:
            with _reading(self.source):
                now = compacted_outputs.find(self.source, index.first)
            if now is not None and missing[0] not in now.data_files():
                raise _ReplacedError
            where = f"{self.source.place}/{missing[0]}"
            what = f"is not there, but the index of commit {index.first} names it"
            raise DamagedError(where=where, what=what, remedy=DAMAGED)

    def _remove_replaced(self, index: Index, level: int) -> None:
        """Remove what an older copy has of the output that an index is for: lower indices with
        their data files, and single files."""
        kept = index.data_files()
        for lower in range(level):
            width = commit_segments.LENGTH * compacted_outputs.FAN**lower
            for first in range(index.first, index.last, width):
                data = [name for name in self._replaced(first, lower) if name not in kept]
                with _writing(self.target):
                    self.target.remove(data)
                    self.target.remove([compacted_outputs.name_of(first, lower)])
        for first in range(index.first, index.last, commit_segments.LENGTH):
            if first <= self.last_there:
                with _reading(self.source):
                    where = f"{self.source.place}/{index.name}"
                    parts = compacted_outputs.parts(index, first, self._records(first), where)
                single = [name for (_, name), part in parts.items() if part]
                with _writing(self.target):
                    self.target.remove(filter(compacted_outputs.is_single, single))

    def _replaced(self, first: int, level: int) -> Iterable[str]:
        """The data files of an index in the target; none where that cannot be read."""
        with _reading(self.target), suppress(DamagedError):
            index = compacted_outputs.read(self.target, first, level)
            return () if index is None else index.data_files()
        return ()

    def _own_files(self, found: dict[int, bytes], made: set[int]) -> None:
        """Copy records in files of their own, but for those that are in a segment as well and may
        lose theirs; seals keep it."""
        decoded = {
            number: self._decoded("commit", f"commits/{number}.json", data)
            for number, data in found.items()
        }
        kept = [
            number
            for number, record in decoded.items()
            if commit_segments.first_of(number) not in made or commit_log.is_seal(record)
        ]
        self._outputs([(number, decoded[number]) for number in kept])
        for number in kept:
            self._put(f"commits/{number}.json", found[number])

    def _keep_newest(self, own: list[int], first: int) -> None:
        """Give the newest record a file of its own where that went while the log was copied: a
        driver of an earlier version leaves the checkpoint that is copied meanwhile."""
        last = first + commit_segments.LENGTH - 1 if first else 0
        if first and last >= max(own, default=0):
            self._put(f"commits/{last}.json", commit_segments.own_file(self.target, last))

    def _outputs(self, found: Iterable[tuple[int, Record]]) -> None:
        """Copy the output files that records name, but for those whose rows are elsewhere."""
        named = [
            (number, name)
            for number, record in found
            for _, name, _ in compacted_outputs.output_names(record)
        ]
        parts = {name: self._part(number, name) for number, name in named}
        if any(part and part.file.name not in self.data_files for part in parts.values()):
            raise _ReplacedError  # its index was made since indices were copied
        own = [name for name, part in parts.items() if part is None]
        self.say(f"{self.copied:,} files copied, {self.equal:,} there already")
        missing = self._all(own, _by_size)
        if missing:
            self.places.look_again()
            if any(name in missing and self._part(number, name) for number, name in named):
                raise _ReplacedError
            where = f"{self.source.place}/{missing[0]}"
            what = "is not there, but a commit record names it"
            raise DamagedError(where=where, what=what, remedy=DAMAGED)

    def _part(self, number: int, name: str) -> Part | None:
        with _reading(self.source):
            return self.places.part(number, name)

    def _all(self, names: list[str], is_equal: "IsEqual") -> list[str]:
        """Copy files, some at a time; the names of those that the source does not have. Raises
        DamagedError for a name that leads elsewhere, which no driver writes into a record."""
        for name in names:
            if not {"", ".", ".."}.isdisjoint(name.split("/")):
                what = f"has a record that names {name!r:.120}, which no driver does"
                raise DamagedError(where=self.source.place, what=what, remedy=DAMAGED)
        for folder in sorted({name.rpartition("/")[0] for name in names} - self.made):
            with _writing(self.target):
                self.target.make_folder(folder)
            self.made.add(folder)
        missing = []
        for name, size in zip(
            names, read_ahead(names, partial(self._one, is_equal=is_equal)), strict=True
        ):
            if size is None:
                missing.append(name)
            else:
                self._count(name, size)
        return missing

    def _one(self, name: str, is_equal: "IsEqual") -> int | None:
        """Copy a file: its bytes, -1 where it is there and equal, None where the source has
        none."""
        if is_equal(self, name):
            return -1
        data = self._get(name)
        if data is None:
            return None
        with _writing(self.target):
            self.target.put({name: data})
        return len(data)

    def _put(self, name: str, data: bytes) -> None:
        """Put a file's content there, unless it is there."""
        size = -1
        if self._there(name) != data:
            with _writing(self.target):
                self.target.put({name: data})
            size = len(data)
        self._count(name, size)

    def _count(self, name: str, size: int) -> None:
        if PASSING.fullmatch(name):
            self.needed.add(name)
        self.equal += size < 0
        self.copied += size >= 0
        self.copied_bytes += max(0, size)

    def _remove_needless(self) -> None:
        """Remove what an earlier copy has left that a driver would have removed since."""
        for folder in ("checkpoints", "offsets", "commits", "generations"):
            with _reading(self.target):
                names = {f"{folder}/{name}" for name in self.target.names(folder)}
            old = [name for name in sorted(names - self.needed) if PASSING.fullmatch(name)]
            with _writing(self.target):
                self.target.remove(old)

    def _numbers(self, folder: str) -> list[int]:
        with _reading(self.source):
            return commit_log.numbers(self.source, folder)

    def _get(self, name: str) -> bytes | None:
        with _reading(self.source):
            return _read(self.source, name)

    def _there(self, name: str) -> bytes | None:
        with _reading(self.target):
            return _read(self.target, name)

    def _decoded(self, kind: str, name: str, data: bytes) -> Record:
        return record_format.decode(kind, data, f"{self.source.place}/{name}")

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise InputError(where=f"target {self.target.place}", what=what, remedy=remedy)


IsEqual = Callable[[_Copying, str], bool]


def _by_content(copying: _Copying, name: str) -> bool:
    there = copying._there(name)
    return there is not None and there == copying._get(name)


def _by_size(copying: _Copying, name: str) -> bool:
    """For output files, of which a repeat writes the same rows; the check reads all of them."""
    with _reading(copying.target):
        there = _size(copying.target, name)
    if there is None:
        return False
    with _reading(copying.source):
        return there == _size(copying.source, name)


def _read(place: Files, name: str) -> bytes | None:
    try:
        return place.read(name)
    except FileNotFoundError:
        return None


def _size(place: Files, name: str) -> int | None:
    try:
        return place.size(name)
    except FileNotFoundError:
        return None


@contextmanager
def _reading(place: Files) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_local = store_files.folder(place.place) is not None
        raise store_errors.unreadable(place.place, error, is_local=is_local) from error


@contextmanager
def _writing(place: Files) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        is_local = store_files.folder(place.place) is not None
        raise store_errors.unwritable(place.place, error, is_local=is_local) from error
