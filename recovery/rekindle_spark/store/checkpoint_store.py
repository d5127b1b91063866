"""The checkpoint store as the driver sees it: generations, offset log, commit log, checkpoints.

    generations/N.json     one per driver start; the highest number is the driver that may write
    offsets/EPOCH.json     the input of an epoch, written before it runs, never again
    commits/N.json         what became finished, in order; readers ignore output that none names
    branches/N.json        what runs without a step that raised, from an epoch on
    checkpoints/EPOCH.json a global checkpoint; its files are in the folder EPOCH, and in older ones
    generations/program-N.pickle   the program that hosts load, and its checksum beside it
    outputs/QUERY/*.parquet
    finish, savepoint      files by which users ask for the end, and for a checkpoint to end at
    drain                  a file by which they ask for the rest of a replayed input at once

Every record is created only if it is absent, so of two drivers one is told that it is late: a
driver that starts seals the commit log with an empty record, at which an older one fails. The seal
names the checkpoints and branches that count. A record of an older driver that is on its way
meanwhile, and comes later, is void: nobody goes by it, and it is in nobody's way.

A driver may stand still before any removal, and the file go when others have long gone further. So
no name is removed that another driver may write after that: checkpoints, offsets and states only
where they are older than a checkpoint that counts, and void records with them. An epoch is
checkpointed by one driver alone (`CheckpointCoordinator.due`, `savepoint_upgrade`).
Formats: docs/formats.md. Where the files lie, and how they are made, is up to `store_files`.
"""

import os
import re
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, FencedError, InputError, first_line
from rekindle_spark.store import commit_summary, library_versions
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_spark.store.user_requests import UserRequests
from rekindle_store import checkpoint_records, commit_log, commit_segments, store_files
from rekindle_store.checkpoint_records import Seal

DRAIN_REQUEST, FINISH_REQUEST, SAVEPOINT_REQUEST = "drain", "finish", "savepoint"
# While it is there, a rate that is calibrated stays as it is.
RATE_REQUEST = "hold-rate"
# In this order: who asks for a drain and then for the end has both seen, or the drain alone.
REQUESTS = (FINISH_REQUEST, DRAIN_REQUEST, RATE_REQUEST, SAVEPOINT_REQUEST)

# where the newest turns out to be damaged, the one before is gone on from
CHECKPOINTS_KEPT = 2
# Records that are read at the same time, of the many that a long outage leaves.
READERS = 16
# Looks at a store whose driver removes what has been listed. What is listed and never there, as a
# link to nothing, is waited for as a store that is away.
LOOKS_MAX = 20
# Commit records that are taken in before what the checkpoint makes needless is let go.
RECORDS_TOGETHER = 256
FOLDERS = (
    "generations",
    "offsets",
    "commits",
    "branches",
    "checkpoints",
    "outputs",
    commit_segments.FOLDER,
)
BEGINNING: Mapping[str, Any] = {"epoch": 0}
PROGRAM = re.compile(r"program-([0-9]+)\.pickle(\.sha256)?")
RECORD = re.compile(r"([0-9]+)\.json")
# Storage systems have folders of their own anywhere (`.snapshot`, `@eaDir`): left as they are.
IN_CHECKPOINT = re.compile(r"([0-9]+)/")


@dataclass(frozen=True, slots=True)
class StoreHistory:
    """What earlier drivers left: the start of this one. Of commit records it has what they say
    together; the store goes on with that `commit_summary` as it commits. `sound` are the epochs of
    the checkpoints that count, with the one to go on from; `branches` are the records that count,
    in the order of their numbers. `owner` says whose the store at `place` is, as far as that is
    known."""

    offsets: dict[int, dict[str, Any]]
    fold: CommitSummary
    checkpoint: dict[str, Any] | None
    branches: list[dict[str, Any]] = field(default_factory=list)
    sound: frozenset[int] = frozenset()
    owner: str = ""
    place: str = ""


class CheckpointStore:
    """One application's place in the checkpoint store: a folder or a URL."""

    def __init__(self, place: str | Path, patience: StoreRetry | None = None) -> None:
        self.files = store_files.at(place)
        self.patience = patience or StoreRetry()
        self.generation = 0
        # which records of older drivers count, by this one's seal
        self.inherited = Seal(0)
        self.fold = CommitSummary()
        # of the checkpoint for which it has all digests; None before the first look
        self.begin: Mapping[str, Any] | None = None
        # the last commit that all checkpoints cover: whichever of them is gone on from, its fold
        # has the digests that older records had
        self.covered = 0
        # the newest epoch that no start runs again, of this driver's checkpoints
        self.settled = 0
        # the epochs that the kept ones begin with, of which that is the least
        self.begins: frozenset[int] = frozenset()
        # why what the newest checkpoint made needless could not be removed; "" where it could
        self.not_removed = ""
        # steps that branches which are left out begin with, or were, and which records say so
        self.branches: set[str] = set()
        self.branch_numbers: frozenset[int] = frozenset()
        self.lock = threading.Lock()
        self.requests: UserRequests | None = None

    @property
    def commits(self) -> int:
        """The number of the newest commit record that this driver knows."""
        return self.fold.commits

    def open(
        self,
        now: float,
        outputs: Iterable[str] = (),
        pipeline: str = "",
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> StoreHistory:
        """Take the next generation, fence older ones, and read what they left.

        `outputs` are the pipeline's queries and outputs of dead letters, for readers who look for
        one that has no rows yet; `pipeline` is its name, for who comes with another one. `more`
        gives further fields of the start's record, once it is known which starts were before.
        """
        names = sorted(set(outputs))
        start = {"started_at": now, **_starter(), **({"outputs": names} if names else {})}
        start |= {"pipeline": pipeline} if pipeline else {}
        return self.patience.through(lambda: self._open(now, start, more))

    def _open(
        self, now: float, start: Mapping[str, Any], more: Callable[[], Mapping[str, Any]]
    ) -> StoreHistory:
        for name in FOLDERS:
            self.files.make_folder(name)
        while True:
            self.generation = max(numbered(self.files, "generations"), default=0) + 1
            try:
                self._create("generations", self.generation, "generation", {**start, **more()})
                break
            except FencedError:
                continue
        while self.generation > 1:
            history = self.read()
            try:
                self._seal(now, history)
                return history
            except FencedError:
                self.check_generation()
        return self.read()

    def _seal(self, now: float, history: StoreHistory) -> None:
        """Fence older drivers. A checkpoint of theirs that was not seen before has made nothing
        public, and will not: the commit that says so fails at this record, or this one fails. So
        has nothing been made public without a branch whose record was not seen."""
        self._write_seal(now, history.sound, self.branch_numbers)

    def _write_seal(
        self, now: float, checkpoints: frozenset[int], branches: frozenset[int]
    ) -> None:
        """Say which records of older drivers count from now on."""
        empty: dict[str, Any] = {"at": now, "plan_epoch": 0, "finished": {}, "outputs": []}
        found = {"checkpoints": sorted(checkpoints), "branch_records": sorted(branches)}
        self.commit({**empty, **found})
        self.inherited = Seal(self.generation, checkpoints, branches)
        self.branch_numbers = branches

    def identity(self) -> str:
        """A name that this store shares with its copies alone; generations count within it."""
        return self.patience.through(lambda: commit_log.identity(self.files))

    def next_generation(self) -> int:
        """The generation that a driver would get which started now."""
        return (
            self.patience.through(lambda: max(numbered(self.files, "generations"), default=0)) + 1
        )

    def read(self) -> StoreHistory:
        """What drivers have left up to now; changes nothing.

        A driver that runs may remove what has been listed, and what an older checkpoint needs.
        """
        return self.patience.through(self._look)

    def _look(self) -> StoreHistory:
        if commit_log.is_being_copied(self.files):
            raise InputError(
                where=f"checkpoint store {self.files.place}",
                what="is a copy of a store that was not made to its end",
                remedy="make it again, with `rekindle store copy`: it goes on where it was",
            )
        damage: DamagedError | None = None
        looks = 0
        while True:
            looks += 1
            try:
                return self._history()
            except FileNotFoundError:  # the driver that runs has just removed it
                if looks == LOOKS_MAX:
                    raise
            except DamagedError as error:
                if damage is not None:
                    raise
                damage = error

    def log_offsets(self, epoch: int, offsets: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fix the input of an epoch; returns the record that stands.

        That is an older driver's where it was faster. Raises FencedError when a newer one has
        started.
        """
        record = {"epoch": epoch, **offsets}
        try:
            self._create("offsets", epoch, "offsets", record)
        except FencedError:
            self.patience.through(self.check_generation)
            found = self.patience.through(lambda: self._read("offsets", epoch, "offsets"))
            # a folder may hide for a while that there is a newer generation
            if found["generation"] > self.generation:
                raise
            return found
        return record

    def log_branch(self, content: Mapping[str, Any]) -> None:
        """Fix from where a branch is left out. Raises FencedError when a newer driver has
        started.

        The number of a void record is passed over. Were that removed, one of a newer driver could
        have come under its name meanwhile.
        """
        number = max(self.branch_numbers, default=0) + 1
        while not self._creates("branches", number, content):
            number += 1
        self.branch_numbers |= {number}
        self.branches.add(content["step"])

    def join_branches(self, now: float) -> None:
        """Let no branch that is known count any more: the log is sealed once more, without them.

        Were their records removed, this driver might stand still before it does so, and remove that
        of a newer driver's branch under the same number. Raises FencedError when a newer driver has
        started.
        """
        self._write_seal(now, self.inherited.checkpoints, frozenset())

    def commit(self, content: Mapping[str, Any]) -> None:
        """Make results finished. Raises FencedError when a newer generation is there."""
        with self.lock:  # both loops commit, and numbers have no gaps
            number = self.fold.commits + 1
            try:
                # Without a look at generations, which on a server takes as long again: where a
                # newer driver has started, its seal has this very number.
                self._create("commits", number, "commit", content, looks=False)
            except FencedError:
                self.patience.through(self.check_generation)  # it says who has started
                raise
            self.fold.take_in(number, {"generation": self.generation, **content})

    def make_outputs(self, queries: Iterable[str]) -> None:
        """Make the folders of the queries' output files: hosts make none."""
        for folder in ("outputs", *(f"outputs/{query}" for query in sorted(set(queries)))):
            self.patience.through(partial(self.files.make_folder, folder))

    def begin_checkpoint(self, epoch: int) -> None:
        """Make the folder for the states after an epoch."""
        self.patience.through(lambda: self.files.make_folder(f"checkpoints/{epoch}"))

    def holds(self, name: str) -> bool:
        """Whether there is such a file, as far as the store can be asked now: as was seen last,
        where somebody looks for it."""
        if self.requests is not None and name in self.requests.names:
            return name in self.requests.seen
        try:
            return store_files.exists(self.files, name)
        except OSError:
            return False

    def drop(self, name: str) -> None:
        """Remove a file."""
        self.patience.through(lambda: self.files.remove([name]))

    def complete_checkpoint(self, epoch: int, content: Mapping[str, Any]) -> bool:
        """Record a global checkpoint; remove what neither it nor the one before it needs. Returns
        whether there is one now: not where a void record has its name.

        The record says what all commits up to now say together: who starts from it reads only what
        lies behind them. Raises FencedError when a newer driver has started. One that starts after
        the second look finds the new record, so it needs nothing of what goes.
        """
        record = {"epoch": epoch, **content}
        with self.lock:
            fold = commit_summary.from_record({"fold": self.fold.record()})
        fold.forget(record)
        record["fold"] = fold.record()
        if not self._creates("checkpoints", epoch, record):
            return False
        with self.lock:  # it may have taken in more meanwhile
            self.fold.forget(record)
        self.not_removed = ""
        try:
            self.check_generation()
            self._prune(self._sound_checkpoints())
        except OSError as error:  # what cannot be removed now goes with the next one
            self.not_removed = first_line(error)
        return True

    def _creates(
        self, folder: Literal["branches", "checkpoints"], number: int, content: Mapping[str, Any]
    ) -> bool:
        """Create a record; whether that was done: not where a void one has its name. Raises
        FencedError when a newer driver has started."""
        kind = "branch" if folder == "branches" else "checkpoint"

        def finds_void() -> bool:
            self.check_generation()
            return self._is_void(folder, number, self._read(folder, number, kind))

        try:
            self._create(folder, number, kind, content)
        except FencedError:
            if not self.patience.through(finds_void):
                raise
            return False
        return True

    def _is_void(self, folder: str, number: int, record: Mapping[str, Any]) -> bool:
        """Whether a checkpoint, or a branch, came from an older driver once this one had sealed the
        log."""
        seal = self.inherited
        known = seal.checkpoints if folder == "checkpoints" else seal.branches or frozenset()
        return record["generation"] < self.generation and number not in known

    def _sound_checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints that are whole and count."""
        whole, _ = self._checkpoints()
        return [one for one in whole if not self._is_void("checkpoints", one["epoch"], one)]

    def _prune(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Remove checkpoints that nobody would go on from, and what only they needed."""
        if not records:  # the store has just gone
            return
        kept = _kept(records)
        needed = {name for record in kept for name in checkpoint_records.files(record)}
        begins = frozenset(checkpoint_records.oldest(record) for record in kept)
        begin = min(begins)
        self.files.remove(f"checkpoints/{one['epoch']}.json" for one in records if one not in kept)
        # starts go by these records alone
        self.begins, self.settled, self.covered = begins, begin, _all_cover(kept)
        for folder, first in (("checkpoints", kept[0]["epoch"]), ("offsets", begin)):
            old = [number for number in numbered(self.files, folder) if number < first]
            self.files.remove(f"{folder}/{number}.json" for number in old)
        within = (IN_CHECKPOINT.match(name) for name in self.files.names("checkpoints"))
        older = (
            f"checkpoints/{found.string}"
            for found in within
            if found is not None and int(found[1]) < kept[-1]["epoch"]
        )
        self.files.remove(name for name in older if name not in needed)
        self._prune_branches(begin)

    def _prune_branches(self, begin: int) -> None:
        """Remove what has waited for branches up to an epoch behind which all starts begin."""
        for step in sorted(self.branches):
            folder = f"outputs/{step}~branch"
            names = [f"{folder}/{name}" for name in self.files.names(folder)]
            self.files.remove(
                name for name in names if checkpoint_records.is_read_no_more(name, begin)
            )

    def set_aside(self, damage: DamagedError) -> DamagedError:
        """Take the newest checkpoints out of use, which need a damaged file; what to end with.

        Not where all need it, or the one before them is another pipeline's, or output has become
        public with one of them.
        """
        self.patience.through(self.check_generation)
        whole = self.patience.through(self._sound_checkpoints)
        sound = [record for record in whole if damage.where not in checkpoint_records.files(record)]
        if not sound or sound[-1] is whole[-1]:
            return damage
        later = [record for record in whole if record["epoch"] > sound[-1]["epoch"]]
        if any(record["program"] != sound[-1]["program"] for record in later):  # carried over
            return damage
        self.patience.through(self._follow)
        published = any(record.get("published") is not None for record in later)
        if published or self.fold.public > sound[-1]["epoch"]:
            return damage
        for record in reversed(later):
            self._put_aside(f"checkpoints/{record['epoch']}")
        return DamagedError(
            where=damage.where,
            what=damage.what,
            remedy=f"start again: checkpoint {sound[-1]['epoch']} is gone on from",
        )

    def _put_aside(self, name: str) -> None:
        """Step by step: with all of it done again, the next one would go."""
        data = self.patience.through(lambda: self.files.read(f"{name}.json"))
        self.patience.through(lambda: self.files.put({f"{name}.damaged": data}))
        self.patience.through(lambda: self.files.remove([f"{name}.json"]))

    def write_program(self, data: bytes) -> str:
        """Put the program where hosts read it, one file per generation; gives the file's name.

        Those of drivers before the last one are removed: they are fenced, and start no host.
        """
        name = f"generations/program-{self.generation}.pickle"
        made = {name: data, f"{name}.sha256": f"{sha256(data).hexdigest()}\n".encode()}
        self.patience.through(lambda: self.files.put(made))
        with suppress(OSError):  # what cannot be removed now goes at the next start
            found = ((PROGRAM.fullmatch(one), one) for one in self.files.names("generations"))
            old = [one for match, one in found if match and int(match[1]) < self.generation - 1]
            self.files.remove(f"generations/{one}" for one in old)
        return name

    def check_generation(self) -> None:
        """Raise FencedError when a newer driver has started: it took the next number first."""
        newer = self.generation + 1
        if store_files.exists(self.files, f"generations/{newer}.json"):
            raise self._fenced(f"generation {newer} has started")

    def _create(
        self,
        folder: str,
        number: int,
        kind: str,
        content: Mapping[str, Any],
        *,
        looks: bool = True,
    ) -> None:
        name = f"{folder}/{number}.json"
        data = record_format.encode(kind, {"generation": self.generation, **content})

        def put() -> None:
            if looks:
                self.check_generation()  # a newer driver may have come while the store was away
            self.files.create(name, data)

        try:
            self.patience.through(put)
        except FileExistsError:
            raise self._fenced(f"{name} is there already") from None

    def _fenced(self, what: str) -> FencedError:
        return FencedError(
            where=f"driver of generation {self.generation}",
            what=what,
            remedy="let the newer driver go on; this one has stopped",
        )

    def _history(self) -> StoreHistory:
        """Commits before offsets: a driver that runs logs the input of what it commits first."""
        whole, damaged = self._checkpoints()
        self._begin(whole, damaged)
        self._follow()
        counting = checkpoint_records.counting(whole, self.fold.seal)
        if _epoch(self.begin) > _epoch(counting[-1] if counting else None):
            self.begin = None  # it was of a checkpoint that is void
            self._begin(counting, damaged)
            self._follow()
        whole, damaged = self._checkpoints()
        counting = checkpoint_records.counting(whole, self.fold.seal)
        checkpoint = _chosen(counting, damaged, self.fold.public)
        begin = 1 if checkpoint is None else checkpoint_records.first_input(checkpoint)
        offsets = self._read_all("offsets", "offsets", needed=begin)
        if checkpoint is not None and "cut" in checkpoint:
            offsets[checkpoint["epoch"]] = checkpoint["cut"]
        if _epoch(checkpoint) < _epoch(self.begin):
            raise FileNotFoundError("a checkpoint was set aside meanwhile")
        _check_gaps("offsets", offsets, begin, max([*offsets, self.fold.newest], default=0))
        found = self._read_all("branches", "branch")
        branches = checkpoint_records.counting_branches(found, self.fold.seal)
        _check_gaps("branches", found, 1, max(branches, default=0))
        told = [one for _, one in sorted(branches.items())]
        self.branches |= {one["step"] for one in told}
        self.branch_numbers = frozenset(branches)
        sound = frozenset(record["epoch"] for record in counting)
        self.covered = _all_cover(counting)
        place = str(self.files.place)
        return StoreHistory(offsets, self.fold, checkpoint, told, sound, self._owner(), place)

    def _owner(self) -> str:
        """Which pipeline the newest driver before this one had."""
        before = [
            number
            for number in numbered(self.files, "generations")
            if number < self.generation or not self.generation
        ]
        try:
            record = self._read("generations", before[-1], "generation") if before else {}
        except (FileNotFoundError, DamagedError):  # it only says whose the rest is
            return ""
        if record.get("pipeline"):
            return f"pipeline {record['pipeline']}"
        names = record.get("outputs", ())
        return f"a pipeline with the outputs {', '.join(names)[:200]}" if names else ""

    def _begin(self, whole: Sequence[dict[str, Any]], damaged: Sequence[DamagedError]) -> None:
        """Begin with the fold of the newest checkpoint. Not where an earlier look has done so:
        what it has taken in is not read again."""
        if damaged and not whole:
            raise damaged[-1]
        newest = whole[-1] if whole else BEGINNING
        known = self.begin is not None and _epoch(self.begin) <= newest["epoch"]
        if known and commit_log.newest(self.files) >= self.fold.commits:  # not begun anew
            return
        covered = commit_summary.from_record(newest)
        if covered.commits:
            commit_log.check_next(self.files, covered.commits - 1)
        with self.lock:
            self.fold = covered
            self.begin = {"epoch": newest["epoch"], "older": newest.get("older", {})}

    def _follow(self) -> None:
        """Take in the commit records behind those that the fold has, as a stream."""
        newest = commit_log.newest(self.files)
        with self.lock:
            while self.fold.commits < newest:
                with closing(commit_log.commits(self.files, self.fold.commits)) as found:
                    for number, record in found:
                        self.fold.take_in(number, record)
                        if number % RECORDS_TOGETHER == 0 and self.begin is not None:
                            self.fold.forget(self.begin)
                if self.fold.commits < newest:
                    commit_log.check_next(self.files, self.fold.commits)

    def _checkpoints(self) -> tuple[list[dict[str, Any]], list[DamagedError]]:
        """The records of checkpoints that are whole, and what is wrong with others."""
        whole, damaged = [], []
        for number in numbered(self.files, "checkpoints"):
            try:
                whole.append(self._read("checkpoints", number, "checkpoint"))
            except DamagedError as error:
                damaged.append(error)
        return whole, damaged

    def _read(self, folder: str, number: int, kind: str) -> dict[str, Any]:
        name = f"{folder}/{number}.json"
        return record_format.decode(kind, self.files.read(name), f"{self.files.place}/{name}")

    def _read_all(self, folder: str, kind: str, needed: int = 1) -> dict[int, dict[str, Any]]:
        """The records of a folder by number; some at a time, for a server may be far away. Damage
        is passed over in those before the first that is `needed`."""
        numbers = numbered(self.files, folder)

        def read(number: int) -> dict[str, Any] | None:
            try:
                return self._read(folder, number, kind)
            except DamagedError:
                if number < needed:
                    return None
                raise

        with ThreadPoolExecutor(READERS) as pool:
            found = zip(numbers, pool.map(read, numbers), strict=True)
            return {number: record for number, record in found if record is not None}


def _starter() -> dict[str, Any]:
    """Who starts: no other driver's record is the same, so of two that take one generation at one
    moment one is told."""
    return {
        "host": socket.gethostname(),
        "process_id": os.getpid(),
        "id": uuid.uuid4().hex,
        "libraries": library_versions.installed(),
    }


def numbered(place: store_files.Files, folder: str) -> list[int]:
    """The numbers of the records in a folder, the smallest first."""
    found = (RECORD.fullmatch(name) for name in place.names(folder))
    return sorted(int(match[1]) for match in found if match)


def _kept(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest checkpoints, and one from before the states of what is behind, which all those of
    a long outage share: the newest that needs none of their files where there is one still. A state
    that was written as changes needs the files that it builds on."""
    begin = checkpoint_records.oldest(records[-1])
    shared = set(checkpoint_records.older_files(records[-1]))
    before = [record for record in records[:-CHECKPOINTS_KEPT] if record["epoch"] < begin]
    newest = list(records[-CHECKPOINTS_KEPT:])
    if shared.isdisjoint(checkpoint_records.files(newest[0])):
        return newest
    apart = [record for record in before if shared.isdisjoint(checkpoint_records.files(record))]
    if newest[0]["epoch"] < begin:
        before = []  # as good as any that needs some of these files
    return [*(apart or before)[-1:], *newest]


def _all_cover(checkpoints: Iterable[Mapping[str, Any]]) -> int:
    """The last commit that each of some checkpoints covers."""
    return min(map(checkpoint_records.covered, checkpoints), default=0)


def _epoch(checkpoint: Mapping[str, Any] | None) -> int:
    return 0 if checkpoint is None else int(checkpoint["epoch"])


def _chosen(
    whole: Sequence[dict[str, Any]],
    damaged: Sequence[DamagedError],
    public: int,
) -> dict[str, Any] | None:
    """The checkpoint to go on from: the newest that is whole.

    Not where output has become `public` with a later one: what is run again unordered may give
    something else.
    """
    newest = whole[-1] if whole else None
    if damaged and (newest is None or public > newest["epoch"]):
        raise damaged[-1]
    return newest


def _check_gaps(folder: str, numbers: Collection[int], first: int, last: int) -> None:
    """Raise DamagedError where one from `first` to `last` is not there."""
    for number in range(first, last + 1):
        if number not in numbers:
            raise DamagedError(
                where=f"{folder}/{number}.json",
                what="is not there, but what came later is",
                remedy="restore it from a copy of the store, or start with an empty store",
            )
