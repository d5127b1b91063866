"""Epochs on their way: the one whose end is awaited and, over links, a few behind it.

    begun ──those before it count──► awaited ──its job has ended well──► counts
      │                                 │
      └──one before it does not count───┴──► called off, and run again from what counts

An epoch follows another one once all sources have run that, so that it only takes time in which
executors would have nothing to do: hosts run the awaited epoch's work first. A partition runs its
epochs in order, for each task waits on its executor for the one of the epoch before. Epochs count
one by one, in order. So whatever runs behind the awaited one, what counts is what would count
without it.

Only the same partitions at the same places follow, an epoch each. Whatever needs more than that
waits until nothing is on its way, as the epoch loop sees to.

Why: docs/decisions/0058-several-epochs-on-their-way.md.
"""

import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rekindle.model.switch_mode import ON
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.jobs import job_runner
from rekindle_spark.jobs.job_runner import Result, RunningJob
from rekindle_spark.jobs.job_specs import Ranges

# Behind the awaited epoch. A pipeline has hardly ever more levels than that.
FOLLOWING_MAX = 4


@dataclass(frozen=True, slots=True)
class ConcurrentWork:
    """What runs beside an epoch. `is_quiet`: nothing is being done for partitions that catch up,
    `trails`: some run behind the epochs, by jobs of which so many have ended."""

    is_quiet: bool
    trails: bool
    jobs_ended: int


@dataclass(frozen=True, slots=True)
class BegunEpoch:
    """An epoch on its way: what it runs and where, what ran `beside` it when it was begun, and
    `following` how many others that had not counted then."""

    epoch: int
    work: Ranges
    placed: Mapping[int, str]
    job: RunningJob
    beside: ConcurrentWork
    following: int = 0


@dataclass(slots=True)
class EpochPipeline:
    """The epochs of one application that are on their way, the oldest first. `ended_at`: when the
    newest one that counts had run, by the clock of `time.monotonic`. Epochs up to
    `called_off_until` were begun and called off: each runs again in a job of its own, for one job
    of them all may need more memory than hosts have. `counted`: rows and seconds of the newest
    ones that have counted since nothing was on its way. `crowded_by`: the epoch that was awaited
    when a process held too much."""

    application: DriverContext
    begun: deque[BegunEpoch] = field(default_factory=deque)
    ended_at: float = 0.0
    called_off_until: int = 0
    crowded_by: BegunEpoch | None = None
    counted: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=FOLLOWING_MAX + 1)
    )

    @property
    def awaited(self) -> BegunEpoch | None:
        """The oldest epoch on its way."""
        return self.begun[0] if self.begun else None

    def begin(
        self, epoch: int, work: Ranges, beside: ConcurrentWork, checkpoint: int | None
    ) -> BegunEpoch:
        """Run an epoch while no other is on its way."""
        assert not self.begun, "an epoch on its way has to be followed"
        job = job_runner.start(
            self.application, work, urgency=job_runner.URGENT, checkpoint=checkpoint
        )
        return self._add(epoch, work, job, beside)

    @property
    def is_full(self) -> bool:
        """Whether no more epochs may be on their way."""
        return len(self.begun) > FOLLOWING_MAX

    @property
    def has_room(self) -> bool:
        """Whether one more epoch may be on its way: all sources have run the newest one, and no
        process holds too much of those that are."""
        if self.is_full or self.crowded_by is self.begun[0]:
            return False
        if not self.begun[-1].job.job.is_past_first_stage:
            return False
        held_bytes = Counter[str]()
        for one in self.begun:
            held_bytes.update(one.job.job.held_bytes())
        limit_bytes = self.application.settings.runtime.following_bytes_max
        is_crowded = max(held_bytes.values(), default=0) >= limit_bytes
        # what is held becomes less only once the awaited epoch counts
        self.crowded_by = self.begun[0] if is_crowded else None
        return not is_crowded

    def may_be_followed(self, ready: Collection[int]) -> bool:
        """Whether one more epoch may be begun behind these, which leave room for it, where those
        that are `ready` run in it."""
        application, last = self.application, self.begun[-1]
        if application.losses != last.job.losses or not _may_several_run(application):
            return False
        if any(first != end for first, end in last.work.values()) or set(ready) != set(last.work):
            return False
        return _places(application, last.work) == last.placed

    def follow(self, beside: ConcurrentWork) -> BegunEpoch | None:
        """Begin the next epoch behind those on their way, which may be followed. None where that
        cannot be any more."""
        last = self.begun[-1]
        epoch = last.epoch + 1
        work = dict.fromkeys(last.work, (epoch, epoch))
        job = job_runner.follow(self.application, last.job, work)
        return None if job is None else self._add(epoch, work, job, beside)

    def poll(self, seconds: float) -> Result | None:
        """The awaited epoch's result once it has ended, waiting up to `seconds`. Its `seconds` are
        those since it was begun, or since the one before it had run. Where it does not count, all
        behind it are called off."""
        result = job_runner.poll(self.application, self.begun[0].job, seconds)
        if result is None:
            return None
        now, ended = time.monotonic(), self.begun.popleft()
        result.seconds = now - max(ended.job.began, self.ended_at)
        if result.finished:
            self.ended_at = now
        else:
            self._call_off(result)
            self.application.begun = ended.epoch
        return result

    def usual(self, ended: BegunEpoch, rows: int, seconds: float) -> tuple[float, float]:
        """Rows and seconds of an epoch that counts, after it took so long. Behind a late epoch
        others count at once, as if any rows took no time. So these are the means of what has
        counted since nothing was on its way."""
        if not ended.following:
            self.counted.clear()
        self.counted.append((rows, seconds))
        all_rows, all_seconds = (sum(column) for column in zip(*self.counted, strict=True))
        return all_rows / len(self.counted), all_seconds / len(self.counted)

    def _add(self, epoch: int, work: Ranges, job: RunningJob, beside: ConcurrentWork) -> BegunEpoch:
        with self.application.lock:
            self.application.begun = epoch
            placed = _places(self.application, work)
        begun = BegunEpoch(epoch, work, placed, job, beside, len(self.begun))
        self.begun.append(begun)
        return begun

    def _call_off(self, result: Result) -> None:
        """Nothing counts that is on its way. Of what hosts have said, only which states are written
        goes into the result: what went wrong followed from what went wrong before."""
        if self.begun:
            self.called_off_until = self.begun[-1].epoch
        while self.begun:
            job = self.begun.pop().job
            given_up = job_runner.give_up(self.application, job, "the epoch before failed")
            result.acknowledgements += given_up.acknowledgements


def has_caught_up(application: DriverContext, partition: int) -> bool:
    """Whether a partition may join the next epoch that begins."""
    gap = join_gap(application, partition)
    return application.progress.caught_up(partition, application.newest, gap)


def join_gap(application: DriverContext, partition: int) -> int:
    """How many epochs a partition may be behind the newest one to join the next: the gap of all, or
    less where its executor has memory for fewer. One that was close enough while epochs were on
    their way stays so until they have counted, for nothing follows them meanwhile."""
    executor = application.progress.placed.get(partition, "")
    gap = application.budget.piece_epochs(executor, common_gap(application))
    gap = max(gap, application.settings.runtime.join_gap_epochs)
    return gap + FOLLOWING_MAX + 1 if partition in application.joining else gap


def common_gap(application: DriverContext) -> int:
    """How many epochs partitions may be behind to join the next. As many may be missing as came
    during the newest piece of catching up, of the executor where that were most: another piece
    would bring nobody closer. All have one gap, so that producers and readers join together."""
    coming = max(application.coming.values(), default=0)
    return max(coming, application.settings.runtime.join_gap_epochs)


def _may_several_run(application: DriverContext) -> bool:
    """Whether what hosts and executors keep has room for more than one epoch, all of it is kept,
    and a repeat gives the same."""
    if application.paused or application.program.uncertain:
        return False
    if application.buffering != ON or application.ordering != ON:
        return False
    if application.budget.starved or application.budget.tight:
        return False
    with application.lock:
        kept_bytes = max(application.progress.retained.held.values(), default=0)
    return kept_bytes <= application.settings.runtime.retained_bytes_max / 2


def _places(application: DriverContext, work: Ranges) -> dict[int, str]:
    with application.lock:
        placed = application.progress.placed
        return {number: placed[number] for number in work if number in placed}
