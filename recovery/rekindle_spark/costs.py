"""What each operator partition costs, and what rate of rows makes a wanted load.

The paper's rule (section 2.3): usage of a task times the partition's share of the task's rows.
A task is an operator on one executor. What an executor spends beside its operators (Spark's
tasks, reading and writing exchanges) goes with the stages of an epoch and hardly with what is
placed there: partitions have a share of it as on an executor that is full, so that as many are
planned onto a node as it can run. Percent of one core, smoothed. Pure: the driver gives times and
readings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rekindle_spark.program import Program

__all__ = ["Costs", "calibrated"]

Name = TypeVar("Name")

SMOOTHING = 0.5
LOAD_TOLERANCE = 0.05
STEP_MIN, STEP_MAX, STEP_BACK = 0.7, 1.5, 0.8
STRETCH_MAX = 1.3
# Of what a node may carry, what its executor spends beside its operators at most, as costs reckon.
BESIDE_SHARE_MAX = 0.7
# What a partition takes at least: one that costs nothing would go anywhere, and have no time to
# catch up.
OWN_PERCENT_MIN = 0.1


@dataclass(slots=True)
class Costs:
    """Collects readings over a window of input time; `close` turns them into percents.

    In percent of one core: `node_percent` is what a node may carry, `own` what partitions'
    operators take, `beside` what executors that run any take apart from those.
    """

    program: Program
    node_percent: float
    own: dict[int, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)
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
        for executor in self.newest if seconds > 0 else ():
            own_seconds = self._own_seconds(executor, placed)
            if not own_seconds:
                self.beside.pop(executor, None)
                continue
            spent_seconds = self.newest[executor] - self.first[executor]
            beside_seconds = max(0.0, spent_seconds - sum(own_seconds.values()))
            _smooth(self.beside, {executor: 100 * beside_seconds / seconds})
            _smooth(self.own, {number: 100 * own / seconds for number, own in own_seconds.items()})
        self.restart(until)
        return self.percent

    @property
    def percent(self) -> dict[int, float]:
        """What each partition costs: its own, and its share of what is beside on a full node."""
        beside = sum(self.beside.values()) / max(1, len(self.beside))
        share = min(BESIDE_SHARE_MAX, beside / self.node_percent)
        return {
            number: max(OWN_PERCENT_MIN, own) / (1.0 - share) for number, own in self.own.items()
        }

    @property
    def used_percent(self) -> float:
        """What executors that run partitions take now."""
        return sum(self.own.values()) + sum(self.beside.values())

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

    def _own_seconds(self, executor: str, placed: Mapping[int, str]) -> dict[int, float]:
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


def _smooth(known: dict[Name, float], measured: Mapping[Name, float]) -> None:
    """Move what is known half the way to what has been measured."""
    for name, percent in measured.items():
        before = known.get(name, percent)
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
