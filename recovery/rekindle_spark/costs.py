"""What each operator partition costs, and what rate of rows makes a wanted load.

The paper's rule (section 2.3): usage of a task times the partition's share of the task's rows.
A task is an operator on one executor. What an executor spends beside its operators (Spark's
tasks, reading and writing exchanges) is shared by the partitions on it: a plan that moves them
moves that too. Percent of one core, smoothed. Pure: the driver gives times and readings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark.program import Program

__all__ = ["Costs", "calibrated"]

SMOOTHING = 0.5
LOAD_TOLERANCE = 0.05
STEP_MIN, STEP_MAX, STEP_BACK = 0.7, 1.5, 0.8
STRETCH_MAX = 1.3


@dataclass(slots=True)
class Costs:
    """Collects readings over a window of input time; `close` turns them into percents."""

    program: Program
    percent: dict[int, float] = field(default_factory=dict)
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

    def close(self, placed: Mapping[int, str], until: float) -> dict[int, float]:
        """Costs after this window, whose input came in until then; the next one begins."""
        seconds = until - self.began_at
        if seconds > 0 and self.newest:
            for executor in self.newest:
                for number, spent in self._shares(executor, placed).items():
                    percent = 100 * spent / seconds
                    before = self.percent.get(number, percent)
                    self.percent[number] = before + SMOOTHING * (percent - before)
        self.restart(until)
        return dict(self.percent)

    def restart(self, at: float) -> None:
        """Begin a window without using the one so far."""
        self.work.clear()
        self.rows.clear()
        self.first = dict(self.newest)
        self.began_at = at

    def forget(self, executor: str) -> None:
        """An executor has gone."""
        self.first.pop(executor, None)
        self.newest.pop(executor, None)

    def _shares(self, executor: str, placed: Mapping[int, str]) -> dict[int, float]:
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
        rest = self.newest[executor] - self.first[executor] - sum(spent.values())
        return {number: cost + max(0.0, rest) / len(here) for number, cost in spent.items()}


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
