"""Which executors are slow: by when their tasks end, beside those of the others in the same stage.

    ordinary ──holds most epochs up, for `WINDOW_SECONDS`──► slow
        ▲                                                     │
        └──holds hardly any up, or has not been tried for long┘

What an executor measures of itself says little: one that stands still now and then, is throttled,
or has a bad disk, sees no time pass or blames its tasks. So times are the driver's: from the moment
when a stage could begin to the moment when a task's report came in. An executor *holds up* an epoch
that takes longer than it should when its tasks end so much later than those of the others that this
is a large part of the epoch, and that it has more to do does not explain it. Executors are new for
a while, until their code is compiled; what they do then counts for nothing. Sources that go ahead
wait for their turn beside the epoch before, so they may be late by all that their executor does.
What stands still holds up both at once, and then the second epoch is over in no time: that says
nothing for it. Pure: `control_loop` gives times.

While the second class runs behind the epochs (`priority_classes`), most of them are *crowded*: an
executor may be late because of what it does beside. So there is doubt first, and the second class
rests until enough epochs have run without it. Those decide, as any others do.

    no doubt ──an executor holds most crowded epochs up──► doubt: the second class rests
       ▲                                                     │
       └──enough epochs without it, or `REST_SECONDS_MAX`────┘ and none again for `DOUBT_SECONDS`
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from statistics import median

from rekindle_spark.jobs.job_results import TaskTiming

# A task is late that takes so many times what those of the others take, by their median.
LATE_FACTOR = 3.0
# Of the time of an epoch, what late tasks must have taken so that it counts as held up; and above
# its target by how much an epoch is too long.
HELD_SHARE, OVERTIME = 0.25, 1.1
EPOCHS_MIN, WINDOW_SECONDS, FINE_SECONDS = 10, 15.0, 60.0
# Of the epochs of a window, those that are held up: at least so many, or at most.
SLOW_SHARE, FINE_SHARE = 0.7, 0.1
NEW_SECONDS = 45.0
# How long one that has nothing to do counts as slow, the first time and at most: each time that it
# is found slow again twice as long.
UNTRIED_SECONDS, UNTRIED_SECONDS_MAX = 300.0, 3_600.0
# How long the second class rests at most, and how long it runs at least before it rests again: what
# it does may be what holds up epochs, and then it would lose much of its time.
REST_SECONDS_MAX, DOUBT_SECONDS = 60.0, 300.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """How an epoch went: its length and the one that it should have, the tasks of its stages by
    executor, and what each partition costs with its share of what executors take beside them.
    `ahead`: its sources, the first stage, ran beside the epoch before."""

    seconds: float
    target_seconds: float
    stages: Sequence[Mapping[str, TaskTiming]]
    costs: Mapping[int, float]
    ahead: bool = False


@dataclass(slots=True)
class WatchedExecutor:
    """What is known of one executor: since when, the epochs that it ran and held up or not, and
    how often it was found slow."""

    since: float
    epochs: deque[tuple[float, bool]] = field(default_factory=deque)
    tried_at: float = 0.0
    times_slow: int = 0
    slow: bool = False


@dataclass(slots=True)
class Stragglers:
    """Takes epochs one by one, with moments in seconds of a clock that is never set; executors are
    new for `new_seconds`."""

    new_seconds: float = NEW_SECONDS
    records: dict[str, WatchedExecutor] = field(default_factory=dict)

    @property
    def slow(self) -> frozenset[str]:
        """Executors that are slow."""
        return frozenset(name for name, record in self.records.items() if record.slow)

    def look(self, executors: Iterable[str], now: float) -> None:
        """These executors are there, others are forgotten; what was not tried for long is ordinary
        again."""
        self.records = {
            name: self.records.get(name) or WatchedExecutor(since=now, tried_at=now)
            for name in executors
        }
        for record in self.records.values():
            rest = UNTRIED_SECONDS * 2 ** max(0, record.times_slow - 1)
            if record.slow and now - record.tried_at > min(UNTRIED_SECONDS_MAX, rest):
                record.slow = False
                record.epochs.clear()

    def keep(self, executors: Set[str], now: float) -> None:
        """These are still known to be slow, though by no epoch that counts."""
        for name in executors & self.records.keys():
            self.records[name].tried_at = now

    def add(self, epoch: Epoch, now: float) -> None:
        """An epoch has run, all of it for live partitions only."""
        held = _held_seconds(epoch)
        too_long = epoch.seconds > OVERTIME * epoch.target_seconds
        for name, seconds in held.items():
            record = self.records.get(name)
            if record is None or now - record.since < self.new_seconds:
                continue
            late = seconds > HELD_SHARE * epoch.seconds and (too_long or record.slow)
            record.tried_at = now
            was_late = bool(record.epochs) and record.epochs[-1][1]
            if late or too_long or not (epoch.ahead and was_late):
                record.epochs.append((now, late))
                _judge(record, now)


@dataclass(slots=True)
class CrowdedEpochs:
    """Takes epochs during which the second class ran too, and those without it while there is doubt
    of some executors; `stragglers` is of crowded epochs alone."""

    stragglers: Stragglers
    rests_until: float = 0.0
    next_at: float = 0.0
    clean_since: float = 0.0
    clean_epochs: int = 0

    def rests(self, now: float) -> bool:
        """Whether no job of the second class should begin."""
        return now < self.rests_until

    def add(self, epoch: Epoch, known: Set[str], now: float, *, may_rest: bool) -> frozenset[str]:
        """A crowded epoch has run, and some executors are `known` to be slow. Returns those of
        which there is doubt from now on, where the second class `may_rest`."""
        self.stragglers.add(epoch, now)
        doubtful = self.stragglers.slow - known
        if not doubtful or not may_rest or now < self.next_at:
            return frozenset()
        self.rests_until, self.clean_epochs = now + REST_SECONDS_MAX, 0
        self.next_at = self.rests_until + DOUBT_SECONDS
        return doubtful

    def ran_clean(self, now: float) -> None:
        """An epoch has run that was not crowded."""
        if not self.rests(now):
            return
        self.clean_since = now if self.clean_epochs == 0 else self.clean_since
        self.clean_epochs += 1
        if self.clean_epochs >= EPOCHS_MIN and now - self.clean_since >= WINDOW_SECONDS:
            self.rests_until, self.next_at = now, now + DOUBT_SECONDS


def _judge(record: WatchedExecutor, now: float) -> None:
    """Forget what is older than the window, and see what the rest says once it is full."""
    window = FINE_SECONDS if record.slow else WINDOW_SECONDS
    epochs = record.epochs
    while len(epochs) > EPOCHS_MIN and now - epochs[1][0] >= window:
        epochs.popleft()
    if len(epochs) < EPOCHS_MIN or now - epochs[0][0] < window:
        return
    share = sum(late for _, late in epochs) / len(epochs)
    if not record.slow and share >= SLOW_SHARE:
        record.slow, record.times_slow = True, record.times_slow + 1
        epochs.clear()
    elif record.slow and share <= FINE_SHARE:
        record.slow = False
        epochs.clear()


def _held_seconds(epoch: Epoch) -> dict[str, float]:
    """By how much each executor's late tasks took longer than they should have, in all stages.

    Executors that ran alone in every stage are left out: nothing says how long they should take.
    """
    held: dict[str, float] = {}
    for number, stage in enumerate(epoch.stages):
        if epoch.ahead and number == 0:
            work = {name: _all_work(epoch, name) for name in stage}
        else:
            work = {name: _work(task, epoch.costs) for name, task in stage.items()}
        for name, task in stage.items():
            others = [other for other in stage if other != name]
            if not others:
                continue
            more = max(1.0, work[name] / median(work[other] for other in others))
            should = more * median(stage[other].seconds for other in others)
            late = task.seconds - should if task.seconds > LATE_FACTOR * should else 0.0
            held[name] = held.get(name, 0.0) + late
    return held


def _all_work(epoch: Epoch, executor: str) -> float:
    """What all costs that it does in an epoch."""
    tasks = (stage[executor] for stage in epoch.stages if executor in stage)
    return sum(_work(task, epoch.costs) for task in tasks)


def _work(task: TaskTiming, costs: Mapping[int, float]) -> float:
    """What its partitions cost; as many as they are, where that is not known."""
    return sum(costs.get(number, 0.0) for number in task.partitions) or float(len(task.partitions))
