"""Two classes of partitions: the second runs behind the epochs, so that the first waits for nobody.

    together ──the second holds up the first in three epochs in a row──► apart
       ▲                                                                   │
       └──it has held up nobody in ten jobs in a row, and none is on its way──┘
       └──once it has run what it is behind: the end of the input, a drain, a savepoint──┘

With `classes: apart` they run apart from the start, and go on so. The functions of all that the
queries which matter most do not need run beside the host then, also while it catches up.

The first class is the closure of the live query partitions that matter most. One that has almost
caught up counts as live, so that it joins the epochs. A producer that the first class
shares with others belongs to it, so it reads nothing of the second class. While the classes are
apart, the job of an epoch has the first class alone. The second stays live and runs behind in jobs
of its own, one at a time, from retained frames, as partitions that catch up do. What it has got
behind by it takes on in larger pieces. It may fall behind only so far: then no epoch is cut until
it has gone on, and epochs take as long as they would together.

A host runs one piece of work at a time in each of two lanes (`host_scheduler`). The second class
has the second lane, so a function that sleeps there, or hangs, holds up nobody of the first.

A commit record names the epochs that a job has finished of each partition, so each query partition
gets its output exactly once and without a gap, whatever class it is in. A checkpoint of an epoch
waits until the second class has run that epoch too; its states are written by the job that does.

Why: docs/decisions/0053-less-important-queries-run-behind.md.
"""

import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from rekindle.model.settings import ALWAYS, APART, SINGLE
from rekindle_spark.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from rekindle_spark.control import partition_migration
from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.driver import away_sources, epoch_pipeline
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.jobs import job_results, job_runner, job_specs
from rekindle_spark.jobs.job_runner import POLL_SECONDS, RETRY_SECONDS, Attempts, Result, RunningJob
from rekindle_spark.pipeline.program import Program

# Queries with at least this share of the greatest priority that is live are in the first class.
FIRST_SHARE = 0.8
# For how long the second class may hold up the first in an epoch, in seconds, and as a ratio of the
# time that the first takes by itself; while something lost is not back that ratio is smaller.
HELD_UP_SECONDS_MIN = 0.15
HELD_UP_RATIO, HELD_UP_RATIO_OUTAGE = 1.0, 0.5
# Below this share of the limits it holds up nobody.
CALM_SHARE = 0.5
EPOCHS_TO_SPLIT, JOBS_TO_JOIN = 3, 10
# How far the second class may be behind: longer than a function may hang by default.
BEHIND_EPOCHS_MAX = 64
PIECE_EPOCHS_MAX, PIECE_ROWS_MAX = 16, 4_000_000
# How long a job behind the epochs is to take, as a ratio of a piece of catching up.
PIECE_STRETCH = 2.0
# How far one may be behind that runs in the job of an epoch again.
JOIN_EPOCHS_MAX = 4
# Task slots of an executor: one for an epoch, for the sources of the next one, for what catches up,
# and for the second class. Each of these may keep its slot for as long as a slow function takes.
SLOTS_MIN = 4


# The partitions that are live or soon will be, and the priorities that the first class was chosen
# by.
Chosen = tuple[frozenset[int], dict[str, float]]


@dataclass(slots=True)
class SplitRule:
    """Decides whether the classes run apart: from the times that they take, in seconds, or always
    where it `is_fixed`; `votes` are epochs or jobs in a row that speak for a change."""

    is_apart: bool = False
    is_fixed: bool = False
    votes: int = 0

    def ran_together(self, first: float, second: float, *, is_outage: bool) -> None:
        """An epoch of both has run: on the executor where that took longest, the first class took
        so long, and the second."""
        is_held_up = second >= HELD_UP_SECONDS_MIN and second >= first * _ratio(is_outage)
        self._vote(is_held_up, EPOCHS_TO_SPLIT)

    def ran_behind(self, first: float, second: float, *, is_outage: bool) -> None:
        """A job of the second class has run, in so long for each epoch; the newest epoch of the
        first took so long."""
        limit = max(HELD_UP_SECONDS_MIN, first * _ratio(is_outage))
        self._vote(second < CALM_SHARE * limit, JOBS_TO_JOIN)

    def _vote(self, is_for: bool, needed: int) -> None:
        self.votes = self.votes + 1 if is_for and not self.is_fixed else 0
        if self.votes >= needed:
            self.is_apart, self.votes = not self.is_apart, 0


def _ratio(is_outage: bool) -> float:
    return HELD_UP_RATIO_OUTAGE if is_outage else HELD_UP_RATIO


def first_class(program: Program, live: Set[int], priorities: Mapping[str, float]) -> set[int]:
    """The closure of the live query partitions that matter most; `priorities` are by query
    partition. Empty where nothing is live that a query ends in."""
    best: dict[int, float] = {}
    for number in live:
        parts = program.output_parts(number).values()
        known = [priorities[part] for part in parts if part in priorities]
        if known:
            best[number] = max(known)
    least = FIRST_SHARE * max(best.values(), default=0.0)
    found = {number for number, priority in best.items() if priority >= least}
    for number in reversed(program.in_order(range(len(program.owner)))):
        if number in found:
            found.update(program.upstream(number))
    return found


def soon_live(progress: PartitionTable, newest: int, gap: int = 0) -> set[int]:
    """Partitions that will soon be live: they are at most four epochs, or `gap`, behind the newest
    one, or behind those that they read and that run behind the epochs."""
    finished, reach = progress.finished, dict[int, int]()
    for number in progress.program.in_order(progress.catching_up):
        producers = set(progress.program.upstream(number))
        is_led = all(producer in progress.live or producer in reach for producer in producers)
        if is_led and number not in progress.suspects.alone:
            ends = (reach.get(producer, finished[producer]) for producer in producers)
            reach[number] = min([newest, *ends])
    most = max(JOIN_EPOCHS_MAX, gap)
    return {number for number, end in reach.items() if end - finished[number] <= most}


def seconds_of(
    result: Result, placed: Mapping[int, str], members: Iterable[int]
) -> dict[str, float]:
    """How long each executor has worked on some partitions in a job."""
    found: dict[str, float] = {}
    for number in members:
        if number in result.seconds_by_partition and number in placed:
            where = placed[number]
            found[where] = found.get(where, 0.0) + result.seconds_by_partition[number]
    return found


def next_piece(
    progress: PartitionTable,
    goal: int,
    rows: Mapping[int, int],
    epochs_max: int,
    gap_epochs: int = 0,
) -> dict[int, tuple[int, int]]:
    """What the second class runs next: up to `goal`, by input of `rows` for each epoch, at most so
    many epochs of each partition.

    One that is not live joins once it is at most `gap_epochs` behind those that are, and all that
    it reads is live or in the same job.
    """
    trailing = progress.trailing
    live = [progress.finished[number] for number in trailing & progress.live]
    reference = min(live, default=goal)
    work: dict[int, tuple[int, int]] = {}
    for number in progress.program.in_order(trailing & progress.placed.keys()):
        is_live, first = number in progress.live, progress.finished[number] + 1
        if not is_live and (number in progress.suspects.alone or first + gap_epochs <= reference):
            continue
        last = _piece_end(first, min(goal, first + epochs_max - 1), rows)
        last = job_specs.reachable(progress, number, last, work)
        if last < first:
            continue
        reads = progress.program.upstream(number)
        if is_live or all(u in progress.live or u in work for u in reads):
            work[number] = (first, last)
    return work


def next_size(epochs: int, seconds: float, target_seconds: float) -> int:
    """Of how many epochs the next job is, after one of so many that took so long: an epoch cannot
    wait for long for a job to end, and no job is more than twice as large as the one before."""
    wanted = int(target_seconds * epochs / max(seconds, 1e-3))
    return max(1, min(wanted, 2 * epochs, PIECE_EPOCHS_MAX))


def _piece_end(first: int, last: int, rows: Mapping[int, int]) -> int:
    taken = 0
    for epoch in range(first, last + 1):
        taken += rows.get(epoch, 0)
        if taken > PIECE_ROWS_MAX:
            return epoch
    return last


@dataclass(slots=True)
class PriorityClasses:
    """Runs the second class of one application: at most one job, of `piece_epochs` at most, or of
    what `joins` the first class. `first_seconds` is what the first class took of the newest epoch,
    on the executor where that took longest, `chosen` has the first class, `counted` the executors
    whose task slots are known."""

    application: DriverContext
    control: ControlLoop
    checkpointing: CheckpointCoordinator
    rule: SplitRule = field(default_factory=SplitRule)
    job: RunningJob | None = None
    joins: bool = False
    together: bool = True
    jobs_started: int = 0
    attempts: Attempts = field(default_factory=Attempts)
    rests_until: float = 0.0
    first_seconds: float = 0.0
    piece_epochs: int = 1
    chosen: tuple[Chosen, frozenset[int]] | None = None
    weighed: tuple[int, dict[str, float]] | None = None
    is_refused: bool = False
    counted: frozenset[str] = frozenset()
    lacks_slots: bool = False

    def __post_init__(self) -> None:
        if self.application.settings.runtime.classes == APART:
            self.rule = SplitRule(is_apart=True, is_fixed=True)

    def begin_epoch(self, *, together: bool) -> None:
        """Before an epoch's work is chosen: choose what runs behind it. Where all are to run
        `together`, what is behind goes on first as far as it can, in pieces."""
        self.together = together = together or not self._may_be_apart
        while together and self.application.progress.trailing and self._goes_on():
            self.control.pump()
        with self.application.lock:
            self._choose(together)

    def _choose_beside(self) -> None:
        """Choose whose functions run beside hosts: with `apart`, of all that the queries which
        matter most of all do not need, be they live or not."""
        if not self.rule.is_fixed:
            return
        program, progress = self.application.program, self.application.progress
        weighed = len(program.owner), dict(self.control.priorities)
        if weighed == self.weighed:
            return
        every = set(range(len(program.owner)))
        with self.application.lock:
            most = first_class(program, every, weighed[1])
            progress.beside = frozenset(every - most) if most else frozenset()
        self.weighed = weighed

    def _goes_on(self) -> bool:
        """Wait a moment for the job of the second class; whether one is on its way, or will be."""
        self.advance(POLL_SECONDS)
        return self.job is not None or time.monotonic() < self.rests_until

    def _choose(self, together: bool) -> None:
        application, progress = self.application, self.application.progress
        before = progress.trailing
        second = progress.trailing = self._second_class(together)
        if bool(before) != bool(second):
            kind = "classes-apart" if second else "classes-together"
            names = application.names(second & progress.live)
            application.events.write(kind, epoch=application.newest, behind=names)

    @property
    def is_settled(self) -> bool:
        """Whether an epoch that began now would have the classes of the newest one."""
        with self.application.lock:
            second = self._second_class(not self._may_be_apart)
            return second == self.application.progress.trailing

    def _second_class(self, together: bool) -> frozenset[int]:
        application, progress = self.application, self.application.progress
        before, second = progress.trailing, set[int]()
        if not together and self.rule.is_apart:
            second = set(range(len(application.program.owner))) - self._first_class()
        # what is far behind would hold up an epoch for as long, and take as much memory
        behind = {
            number
            for number in before & progress.live
            if application.newest - progress.finished[number] > JOIN_EPOCHS_MAX
        }
        running = set(self.claimed)
        if running or (behind and not together):
            second = _with_downstream(application.program, second | running | behind)
        return frozenset(second)

    @property
    def _may_be_apart(self) -> bool:
        """Whether that is wanted, and certain in all repeats: nothing is held back or dropped."""
        application, policy = self.application, self.application.settings.policy
        if application.settings.runtime.classes == SINGLE:
            return False
        if application.program.uncertain:
            steps = ", ".join(sorted(application.program.uncertain_steps))
            self._refuse(f"what steps with deterministic=False give is uncertain: {steps}")
        elif not policy.buffering == policy.ordering == ALWAYS:
            self._refuse("buffering and ordering are not both `always`")
        else:
            return self._have_slots()
        return False

    def _refuse(self, why: str) -> None:
        """Write once why the classes do not run apart, where they always should."""
        if self.rule.is_fixed and not self.is_refused:
            self.is_refused = True
            text = f"runtime.classes: apart: all queries run in one class, because {why}"
            self.application.events.write("classes-stay-together", text=text)

    def _have_slots(self) -> bool:
        """Whether executors can run the second class beside all else. Asked again only where other
        executors are there."""
        application, present = self.application, frozenset(self.application.executors)
        if present != self.counted:
            slots = application.exchange.slots()
            # Spark enters one a moment after it has come
            self.counted = present if present <= slots.keys() else frozenset()
            few = {executor: slots.get(executor, SLOTS_MIN) for executor in present}
            few = {executor: number for executor, number in few.items() if number < SLOTS_MIN}
            if few and not self.lacks_slots:
                self._report_slots(few)
            self.lacks_slots = bool(few)
        return not self.lacks_slots

    def _report_slots(self, few: Mapping[str, int]) -> None:
        """Write once which executors have too few task slots, and what to do about it."""
        application = self.application
        executor, number = min(few.items(), key=lambda item: item[::-1])
        node = application.executors[executor]
        application.events.write(
            "slots-few",
            executors=len(few),
            node=node,
            slots=number,
            needed=SLOTS_MIN,
            text=f"runtime.classes: {application.settings.runtime.classes} needs {SLOTS_MIN} task "
            f"slots of each executor, but {node} has {number}: all queries run in one class "
            "until all have enough; set spark.executor.cores, or the worker's --cores, to "
            f"{SLOTS_MIN}",
        )

    def _first_class(self) -> frozenset[int]:
        """All where nothing is live that a query ends in. Computed again only after a change: with
        many partitions that takes long."""
        program, progress = self.application.program, self.application.progress
        gap = epoch_pipeline.common_gap(self.application)
        live = frozenset(progress.live | soon_live(progress, self.application.newest, gap))
        key = live, dict(self.control.priorities)
        if self.chosen is None or self.chosen[0] != key:
            found = first_class(program, live, key[1])
            self.chosen = key, frozenset(found or range(len(program.owner)))
        return self.chosen[1]

    @property
    def is_full(self) -> bool:
        """Whether the second class is so far behind that no epoch may be cut."""
        return self.job is not None and self._is_far_behind

    @property
    def may_rest(self) -> bool:
        """Whether the second class can wait, so that epochs show which executors are slow."""
        return not self.together and not self._is_far_behind

    @property
    def _rests(self) -> bool:
        return self.may_rest and self.control.crowded.rests(time.monotonic())

    @property
    def _is_far_behind(self) -> bool:
        application = self.application
        with application.lock:
            progress = application.progress
            trailing = progress.trailing & progress.live
            reached = min((progress.finished[number] for number in trailing), default=None)
            kept_bytes = max(progress.retained.held.values(), default=0)
        if reached is None:
            return False
        behind = application.newest - reached
        limit_bytes = application.settings.runtime.retained_bytes_max
        return behind >= BEHIND_EPOCHS_MAX or (behind > 1 and kept_bytes > limit_bytes / 2)

    def ran(self, result: Result, work: Iterable[int]) -> None:
        """The job of an epoch, without a backlog, has run."""
        if not self._may_be_apart:
            return
        with self.application.lock:
            progress, placed = self.application.progress, dict(self.application.progress.placed)
            first = self._first_class()
        seconds = seconds_of(result, placed, first & set(work))
        self.first_seconds = max(seconds.values(), default=0.0)
        tight = self.application.budget.tight or self.application.budget.starved
        if not progress.trailing and not tight and not self.rule.is_apart:
            second = set(work) - first
            others = seconds_of(result, placed, second)
            where = max(others, key=others.__getitem__, default="")
            self.rule.ran_together(
                seconds.get(where, 0.0), others.get(where, 0.0), is_outage=not progress.complete
            )

    def advance(self, seconds: float = 0.0) -> None:
        """Take the result of a job that has ended, waiting up to `seconds`; start the next one."""
        self._choose_beside()
        if self.job is not None:
            self._take(self.job, seconds)
        application = self.application
        if self.job is not None or not application.progress.trailing:
            return
        # live partitions that had no memory for an epoch come first, and so do moves
        waits = application.paused or application.budget.starved or self._is_moving
        if not waits and time.monotonic() >= self.rests_until:
            self._start()

    @property
    def _is_moving(self) -> bool:
        """Whether partitions are to move once no job of the second class is on its way."""
        if self.checkpointing.epoch is not None or self.application.moves is None:
            return False
        state_bytes = self.checkpointing.state_bytes
        return partition_migration.wait_for_jobs(self.application, state_bytes)

    @property
    def jobs_ended(self) -> int:
        """How many jobs have ended."""
        return self.jobs_started - (self.job is not None)

    @property
    def claimed(self) -> Set[int]:
        """The partitions in the job that is on its way."""
        return frozenset() if self.job is None else self.job.specification.ranges.keys()

    def _start(self) -> None:
        application = self.application
        with application.lock:
            work, urgency = self._piece(self._joining, PIECE_EPOCHS_MAX), job_runner.CATCH_UP
            self.joins = bool(work)
            if not work and not self._rests:
                trailing = application.progress.trailing
                work, urgency = self._piece(trailing, self.piece_epochs), job_runner.BEHIND
            if not work:
                return
            application.claimed |= set(work)
            try:
                checkpoint = self.checkpointing.within(work)
                self.job = job_runner.start(
                    application, work, urgency=urgency, checkpoint=checkpoint
                )
                self.jobs_started += 1
            except BaseException:
                application.claimed -= set(work)
                raise

    @property
    def _joining(self) -> Set[int]:
        """Trailing partitions that the first class needs by now. In a job with slow ones they would
        stay behind for as long as these take, so they have one of their own, and it comes first."""
        trailing = self.application.progress.trailing
        return trailing & self._first_class() if self.rule.is_apart else frozenset()

    def _piece(self, members: Set[int], epochs_max: int) -> dict[int, tuple[int, int]]:
        """What can go on of some trailing partitions, at most so many epochs of each."""
        if not members:
            return {}
        application, progress = self.application, self.application.progress
        # what the catch-up loop works on, or cannot be read, is behind for a while
        busy = application.claimed | {
            number for number in progress.placed if away_sources.is_held(application, number)
        }
        executors = {progress.placed[number] for number in members & progress.placed.keys()}
        sizes = [application.budget.piece_epochs(e, epochs_max) for e in executors]
        rows = {epoch: cut.rows for epoch, cut in application.cuts.items()}
        work = next_piece(
            progress,
            application.newest,
            rows,
            min(sizes, default=1),
            epoch_pipeline.common_gap(application),
        )
        reached: dict[int, tuple[int, int]] = {}
        for number in progress.program.in_order(work.keys() & members - busy):
            first, last = work[number]
            last = job_specs.reachable(progress, number, last, reached)
            if first <= last:
                reached[number] = (first, last)
        return away_sources.without_held(application, job_specs.together(progress, reached))

    def _take(self, job: RunningJob, seconds: float) -> None:
        application = self.application
        result = job_runner.poll(application, job, seconds)
        if result is None:
            return
        self.job = None
        ranges = job.specification.ranges
        result.piece_epochs = max(last - first + 1 for first, last in ranges.values())
        with application.lock:
            application.claimed -= set(ranges)
            placed = dict(application.progress.placed)
            if result.finished:
                self._join(ranges)
        self.control.results.put(result)
        if result.finished:
            self.attempts.clear()
            self._note(result, placed, ranges)
        elif result.reason != "interrupted":
            self.rests_until = time.monotonic() + RETRY_SECONDS
            self.control.pump()
            self.control.fail_after(result, self.attempts)

    def _join(self, partitions: Iterable[int]) -> None:
        """These have run: they are live, but where what they read has been held back meanwhile."""
        program, live = self.application.program, self.application.progress.live
        for number in program.in_order(partitions):
            if all(producer in live for producer in program.upstream(number)):
                live.add(number)

    def _note(self, result: Result, placed: Mapping[int, str], ranges: job_specs.Ranges) -> None:
        """Write how long a job has taken, and see whether the classes should go on apart. What
        joins the first class says nothing of the second."""
        application = self.application
        application.events.write(
            "ran-behind",
            epoch=max(last for _, last in ranges.values()),
            epochs=result.piece_epochs,
            partitions=len(ranges),
            seconds=result.seconds,
            stage_seconds=job_results.longest(result.stages),
        )
        if self.joins:
            return
        self.piece_epochs = next_size(
            result.piece_epochs,
            result.seconds,
            PIECE_STRETCH * application.settings.runtime.catch_up_piece_seconds,
        )
        if self.rule.is_apart:
            spent = max(seconds_of(result, placed, ranges).values(), default=0.0)
            self.rule.ran_behind(
                self.first_seconds,
                spent / result.piece_epochs,
                is_outage=not application.progress.complete,
            )


def _with_downstream(program: Program, partitions: Iterable[int]) -> set[int]:
    found = set(partitions)
    for number in program.in_order(range(len(program.owner))):
        if any(producer in found for producer in program.upstream(number)):
            found.add(number)
    return found
