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

Why: docs/decisions/0034-costs-are-measured-by-the-time-of-the-input.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.flow_control import partition_costs
from rekindle_spark.flow_control.partition_costs import PartitionCosts
from rekindle_spark.jobs.job_runner import Result

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
    wants the rate to stay."""

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
        if stretch > partition_costs.STRETCH_MAX and backlog_seconds < self.behind_seconds < before:
            return
        target, there = self.application.settings.runtime.load_target_percent, True
        if target is not None and self.rate_is_held():
            return
        if target is not None:
            self.rows_per_second, there = partition_costs.calibrated(
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
