"""Windows of measured cost, and the calibration of the replay's rate.

A window counts only when every partition was live all the time and nothing was lost: what is
measured during a recovery says nothing of the steady state. Where an outage lasts, and nothing
catches up, what runs is measured as well, for its input may have grown meanwhile; but only what
costs clearly more than before counts, since the longer epochs of an outage make all look cheaper.
A window is as long as the time in which its
rows came in: while a loss that nobody has noticed yet holds up the epochs, nothing is computed, and
that must not look as if nothing would have to be. A move begins another one. A drain uses all the
CPU that there is, so no window counts while it lasts. While the file `hold-rate` is in the store,
the rate stays as it is. Called by `control_loop`.

The cost of a partition is by the paper's rule (section 2.3): usage of a task times the partition's
share of the task's rows. A task is an operator on one executor. What an executor spends beside its
operators (Spark's tasks, reading and writing exchanges) goes with the stages of an epoch and hardly
with how many partitions are there: it is overhead of the executor, and no cost of theirs. Percent
of one core, smoothed (`PartitionCosts`, which is pure).

Why: docs/decisions/0034-costs-are-measured-by-the-time-of-the-input.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.jobs.job_runner import Result
from rekindle_spark.pipeline.program import Program

Name = TypeVar("Name")

SMOOTHING = 0.5
# What a partition costs at least: of those that cost nothing any number would go anywhere at once.
COST_PERCENT_MIN = 0.1
LOAD_TOLERANCE = 0.05
# In an outage what has been measured counts where it is so much more than what is known.
RISE = 1.25
STEP_MIN, STEP_MAX, STEP_BACK = 0.7, 1.5, 0.8
STRETCH_MAX = 1.3


@dataclass(slots=True)
class PartitionCosts:
    """Collects readings over a window of input time; `close` turns them into percents of one core.

    `percent` is what each partition's operator takes, `beside` what each executor that has any
    takes beside them, `shares` the equal parts of that by partition.
    """

    program: Program
    percent: dict[int, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)
    work: dict[tuple[str, int], float] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    newest: dict[str, float] = field(default_factory=dict)
    began_at: float = 0.0

    def add(self, cpu: Mapping[str, Mapping[str, Any]], rows: Mapping[int, int]) -> None:
        """Enter the readings of one job: CPU by executor, rows by partition."""
        for executor, reading in cpu.items():
            self.first.setdefault(executor, reading["processes"])
            self.newest[executor] = max(reading["processes"], self.newest.get(executor, 0.0))
            for number, seconds in reading["work"].items():
                key = (executor, int(number))
                self.work[key] = self.work.get(key, 0.0) + seconds
        for number, count in rows.items():
            self.rows[number] = self.rows.get(number, 0) + count

    def close(
        self, placed: Mapping[int, str], until: float, *, rising: bool = False
    ) -> dict[int, float]:
        """Costs after this window, whose input came in until then; the next one begins. `rising`:
        only what is clearly more than before counts."""
        seconds = until - self.began_at
        for executor in self.newest if seconds > 0 else ():
            spent = self._spent(executor, placed)
            if not spent:
                self.beside.pop(executor, None)
                continue
            used_seconds = self.newest[executor] - self.first[executor]
            beside = 100 * max(0.0, used_seconds - sum(spent.values())) / seconds
            percent = {number: 100 * cpu_seconds / seconds for number, cpu_seconds in spent.items()}
            least = {n: max(COST_PERCENT_MIN, cost) for n, cost in percent.items()}
            _smooth(self.beside, {executor: beside}, rising=rising)
            _smooth(self.percent, least, rising=rising)
            self.shares |= dict.fromkeys(spent, self.beside[executor] / len(spent))
        for executor in self.newest.keys() - placed.values():  # perhaps gone, with a late reading
            self.forget(executor)
        self.restart(until)
        return dict(self.percent)

    @property
    def overhead_percent(self) -> float:
        """What an executor takes beside the operators on it, in the mean."""
        return sum(self.beside.values()) / len(self.beside) if self.beside else 0.0

    @property
    def with_overhead(self) -> dict[int, float]:
        """`percent`, each with its share of what its executor takes beside operators."""
        return {number: cost + self.shares[number] for number, cost in self.percent.items()}

    @property
    def used_percent(self) -> float:
        """What all executors that run anything take together."""
        return sum(self.percent.values()) + sum(self.beside.values())

    def restart(self, at: float) -> None:
        """Begin a window without using the one so far."""
        self.work.clear()
        self.rows.clear()
        self.first = dict(self.newest)
        self.began_at = at

    def forget(self, executor: str) -> None:
        """An executor has gone."""
        for known in (self.first, self.newest, self.beside):
            known.pop(executor, None)

    def _spent(self, executor: str, placed: Mapping[int, str]) -> dict[int, float]:
        """Seconds in the operator of each partition there."""
        here = [number for number, where in placed.items() if where == executor]
        operators: dict[str, list[int]] = {}
        for number in here:
            operators.setdefault(self.program.owner[number].name, []).append(number)
        spent = {}
        for partitions in operators.values():
            task = sum(self.work.get((executor, number), 0.0) for number in partitions)
            rows = sum(self.rows.get(number, 0) for number in partitions)
            for number in partitions:
                share = self.rows.get(number, 0) / rows if rows else 1 / len(partitions)
                spent[number] = task * share
        return spent


def _smooth(
    known: dict[Name, float], measured: Mapping[Name, float], *, rising: bool = False
) -> None:
    """Move what is known half the way to what has been measured."""
    for name, percent in measured.items():
        before = known.get(name, percent)
        if rising and name in known and percent <= RISE * before:
            continue
        known[name] = before + SMOOTHING * (percent - before)


def calibrated(rate: float, load: float, target: float, stretch: float) -> tuple[float, bool]:
    """A rate nearer to the target load, and whether the load is there already.

    Loads are shares of the capped capacity; `stretch` is the time between two epochs over the
    wanted one: above 1 the nodes do not keep up, whatever the load says. Steps are bounded: part
    of the load does not depend on the rate, and a first reading may be far off.
    """
    if stretch > STRETCH_MAX:
        return rate * STEP_BACK, False
    if abs(load - target) <= LOAD_TOLERANCE:
        return rate, True
    return rate * min(STEP_MAX, max(STEP_MIN, target / max(load, 0.01))), False


WINDOW_SECONDS = 5.0
SETTLED_WINDOWS = 2
CALIBRATION_WINDOWS_MAX = 24
STRETCH_EPOCHS = 6
# Input that is behind by more is a backlog, and not the age of the newest cut.
BACKLOG_EPOCHS = 5


@dataclass(slots=True)
class CostStatistics:
    """Costs by partition name, in percent of one core, and the rate of rows. `state_bytes` is what
    the store holds of each partition's state, by its number; `rate_is_held` says whether somebody
    wants the rate to stay. `link_waiting_bytes`: what has last waited on links."""

    application: DriverContext
    state_bytes: Mapping[int, int] = field(default_factory=dict)
    rate_is_held: Callable[[], bool] = lambda: False
    costs: PartitionCosts = field(init=False)
    rows_per_second: float = field(init=False)
    calibrated: bool = False
    losses: int = 0
    moved_at: int = -1
    steady: tuple[bool, bool] = (False, False)  # whether a window is under way, and of all
    settled: int = 0
    windows: int = 0
    behind_seconds: float = math.inf
    link_waiting_bytes: int = 0

    def __post_init__(self) -> None:
        self.costs = PartitionCosts(self.application.program, began_at=self._computed_until())
        runtime = self.application.settings.runtime
        self.rows_per_second = runtime.rows_per_second
        if runtime.load_target_percent is not None:  # as it was calibrated
            self.rows_per_second = self.application.arrivals.last.rows_per_second

    def add(self, result: Result) -> None:
        """Enter the readings of a job."""
        self.costs.add(result.cpu, result.rows_by_partition)

    def forget(self, executor: str) -> None:
        """An executor has gone, and with it the window."""
        self.costs.forget(executor)
        self.steady = (False, False)

    def closed_window(self) -> dict[str, float] | None:
        """Costs when a window has ended that counts, else None."""
        application, until = self.application, self._computed_until()
        if self.moved_at != application.moved_at:
            self.moved_at = application.moved_at
            self._report(self._named(self.costs.percent))
        # what was moved runs some epochs again in the next job
        complete = application.progress.complete and application.newest > self.moved_at
        settled = (complete or self._is_outage) and not application.arrivals.drains
        if not settled or self.steady != (True, complete) or self.losses != application.losses:
            self.losses, self.steady = application.losses, (settled, complete)
            self.costs.restart(until)
            return None
        if until - self.costs.began_at < WINDOW_SECONDS:
            return None
        since = self.costs.began_at
        percent = self.costs.close(application.progress.placed, until, rising=not complete)
        named = self._named(percent)
        self._report(named)
        if application.losses == 0:
            self._calibrate(self._load_percent, since)
        return named

    @property
    def _is_outage(self) -> bool:
        """Whether something has been missing for so long that what runs has nothing to do with
        it."""
        progress = self.application.progress
        return not progress.complete and bool(progress.live) and not progress.catching_up

    @property
    def named_state_bytes(self) -> dict[str, int]:
        """`state_bytes` by partition name."""
        names = self.application.program.partition_names
        return {names[number]: size for number, size in sorted(self.state_bytes.items())}

    def _named(self, percent: Mapping[int, float]) -> dict[str, float]:
        names = self.application.program.partition_names
        return {names[number]: cost for number, cost in sorted(percent.items())}

    def _computed_until(self) -> float:
        """Up to when input has been computed, by the driver's clock."""
        return self.application.cuts[self.application.newest].cut_at

    def _report(self, named: Mapping[str, float]) -> None:
        application = self.application
        progress = application.progress
        names = application.program.partition_names
        application.events.write(
            "statistics",
            costs=dict(named),
            state_bytes=self.named_state_bytes,
            placement={
                names[number]: application.executors[executor]
                for number, executor in sorted(progress.placed.items())
            },
            overhead_percent=self.costs.overhead_percent,
            load_percent=self._load_percent,
            rows_per_second=self.rows_per_second,
            epoch=application.newest,
            late_rows=application.late.seen,
            retained_shuffles=application.exchange.retained_count(),
            retained_bytes=max(progress.retained.held.values(), default=0),
            host_memory_bytes=application.budget.peak_bytes,
            link_waiting_bytes=self.link_waiting_bytes,
            driver_heap_bytes=application.exchange.live_heap_bytes(),
        )

    @property
    def _load_percent(self) -> float:
        """Percent of what all nodes may carry."""
        settings = self.application.settings
        nodes = len(self.application.executors)
        capacity = nodes * settings.runtime.node_cpu_percent * settings.policy.cpu_cap
        return 100 * self.costs.used_percent / capacity

    def _calibrate(self, load_percent: float, since: float) -> None:
        """Move the rate towards the wanted load, measured in a window since then, until the first
        loss; say once that it is there.

        Nodes get faster while their code is compiled, so that the rate of the first minute would
        be too low a minute later. Long epochs say nothing while a backlog gets smaller.
        """
        stretch, before = self._stretch(since), self.behind_seconds
        self.behind_seconds = driver_clock.now() - self._computed_until()
        backlog_seconds = BACKLOG_EPOCHS * self.application.settings.runtime.epoch_seconds
        if stretch > STRETCH_MAX and backlog_seconds < self.behind_seconds < before:
            return
        target, there = self.application.settings.runtime.load_target_percent, True
        if target is not None and self.rate_is_held():
            return
        if target is not None:
            self.rows_per_second, there = calibrated(
                self.rows_per_second, load_percent / 100, target / 100, stretch
            )
        self.settled = self.settled + 1 if there else 0
        self.windows += 1
        settled = self.settled >= SETTLED_WINDOWS or self.windows >= CALIBRATION_WINDOWS_MAX
        if settled and not self.calibrated:
            self.calibrated = True
            self.application.events.write("calibrated", rows_per_second=self.rows_per_second)

    def _stretch(self, since: float) -> float:
        """Time between the newest epochs over the wanted time; 1 when all is well. Of a window, if
        it has two: those of a start or recovery before it are longer."""
        found = [cut.cut_at for _, cut in sorted(self.application.cuts.items())][-STRETCH_EPOCHS:]
        cuts = [cut_at for cut_at in found if cut_at > since]
        cuts = cuts if len(cuts) > 1 else found[-2:]
        if len(cuts) < 2:
            return 1.0
        wanted = self.application.settings.runtime.epoch_seconds
        return (cuts[-1] - cuts[0]) / (len(cuts) - 1) / wanted
