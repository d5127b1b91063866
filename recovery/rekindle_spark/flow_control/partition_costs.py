"""Measures the cost of each operator partition, and the rate of rows for a wanted load.

The paper's rule (section 2.3): usage of a task times the partition's share of the task's rows.
A task is an operator on one executor. What an executor spends beside its operators (Spark's
tasks, reading and writing exchanges) goes with the stages of an epoch and hardly with how many
partitions are there: it is overhead of the executor, and no cost of theirs. Percent of one core,
smoothed. Pure: the driver gives times and readings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
