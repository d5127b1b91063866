"""A failure as it would go: the coordinator core decides, the model of backlogs does the work.

    failure ──detected──► NodesLost ──Tick──► plan ──restored, worked off──► caught up ─┐
                             ▲                  ▲                                       │
    arrivals ──NodeBack──────┴──────────────────┴───────────────────────────────────────┘

Nothing of the core's rules is repeated here: `advance` gets the events that a driver and a node
provider would report, and what it publishes is what happens. Pure; time is simulated.
"""

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from rekindle.coordination import CoordinationState, advance, node_load
from rekindle.coordination import coordination_events as happened
from rekindle.coordination.coordination_state import NodeStatus, active, with_status
from rekindle.coordination.instructions import Plan, PublishPlan
from rekindle.model.errors import InputError

# When nodes come after a failure, in seconds since it.

SECONDS_MAX = 86_400.0
NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"


class NodeArrivals(Protocol):
    """A way in which nodes come."""

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """When so many nodes come, ascending; fewer than `count`: the others never do."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """One after the other at a fixed distance."""

    first: float
    every: float

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """The same whatever the chance."""
        del rng
        return [self.first + number * self.every for number in range(count)]


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each at a moment between two, whichever. From 120 to 360 it is what was measured of 180
    virtual machines on EC2 (Su and Zhou, figure 7: two to six minutes)."""

    low: float
    high: float

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """Independent of each other."""
        return sorted(rng.uniform(self.low, self.high) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Trace:
    """As it was somewhere; nodes beyond its end never come."""

    moments: Sequence[float]

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """The first ones of the trace."""
        del rng
        return sorted(self.moments)[:count]


def parse(text: str, where: str) -> NodeArrivals:
    """`fixed:FIRST,EVERY`, `uniform:LOW..HIGH`, or `trace:FILE` with a JSON list of seconds.

    Raises InputError that names `where`.
    """
    kind, _, rest = text.partition(":")
    fixed = re.fullmatch(f"{NUMBER},{NUMBER}", rest)
    uniform = re.fullmatch(rf"{NUMBER}\.\.{NUMBER}", rest)
    if kind == "fixed" and fixed:
        return Fixed(float(fixed[1]), float(fixed[2]))
    if kind == "uniform" and uniform and float(uniform[1]) <= float(uniform[2]):
        return Uniform(float(uniform[1]), float(uniform[2]))
    if kind == "trace" and rest:
        return Trace(_moments(Path(rest), where))
    raise InputError(
        where=where,
        what=f"is {text!r:.60}",
        remedy="give fixed:FIRST,EVERY or uniform:LOW..HIGH in seconds, or trace:FILE",
    )


def _moments(path: Path, where: str) -> list[float]:
    remedy = "give a JSON file with a list of seconds from 0 to 86,400"
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            where=f"{where} {path}", what=f"cannot be read ({str(error)[:100]})", remedy=remedy
        ) from error
    if not isinstance(found, list):
        raise InputError(where=f"{where} {path}", what="is no list", remedy=remedy)
    for number, seconds in enumerate(found):
        sound = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not sound or not 0 <= seconds <= SECONDS_MAX:
            raise InputError(
                where=f"{where} {path}: [{number}]", what=f"is {seconds!r:.60}", remedy=remedy
            )
    return [float(seconds) for seconds in found]


# How partitions that have been restored work off what they have missed: a fluid model.
#
# A partition owes as many seconds of input as it is behind. Once its state is restored it takes
# part in what its node has left beside the live partitions there: those that catch up share it by
# their cost, so all on one node go at the same speed. A second of backlog costs `ratio` of what a
# second of live input does (fewer and larger jobs). While the set of partitions stays the same,
# speeds do, so the next moment at which anything changes can be computed.

# Seconds of input in a second, however cheap a partition is.
SPEED_MAX = 1_000.0
# seconds that count as nothing owed: sums of times are not exact
LEVEL_SECONDS = 1e-6


@dataclass(slots=True)
class Backlogs:
    """`owed` (partition -> seconds of input) of what catches up, `ready_at` when each is restored;
    `costs` and `capacities` in percent of one core."""

    costs: Mapping[str, float]
    ratio: float
    now: float = 0.0
    owed: dict[str, float] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)

    def begin(self, partition: str, behind_seconds: float, ready_at: float) -> None:
        """A partition is placed, so far behind, and runs from `ready_at` on."""
        self.owed[partition] = behind_seconds
        self.ready_at[partition] = max(self.now, ready_at)

    def keep(self, placed: Iterable[str]) -> None:
        """Forget all others: their nodes are gone."""
        for partition in self.owed.keys() - set(placed):
            del self.owed[partition], self.ready_at[partition]

    def next_change(self, placement: Mapping[str, str], capacities: Mapping[str, float]) -> float:
        """When something is restored or has caught up, if nothing else happens; infinity: never."""
        speeds = self._speeds(placement, capacities)
        found = [at for at in self.ready_at.values() if at > self.now]
        for partition, seconds in self.owed.items():
            gain = speeds.get(placement[partition], 0.0) - 1.0
            if self.ready_at[partition] <= self.now and gain > 0:
                found.append(self.now + seconds / gain)
        return min(found, default=math.inf)

    def advance(
        self, until: float, placement: Mapping[str, str], capacities: Mapping[str, float]
    ) -> frozenset[str]:
        """Let time pass up to `until`, no further than `next_change`; what has caught up then."""
        speeds = self._speeds(placement, capacities)
        seconds = until - self.now
        for partition in self.owed:
            running = self.ready_at[partition] <= self.now
            speed = speeds.get(placement[partition], 0.0) if running else 0.0
            self.owed[partition] += seconds * (1.0 - speed)
        self.now = until
        level = frozenset(
            partition
            for partition, owed in self.owed.items()
            if owed <= LEVEL_SECONDS and self.ready_at[partition] <= until
        )
        for partition in level:
            del self.owed[partition], self.ready_at[partition]
        return level

    def _speeds(
        self, placement: Mapping[str, str], capacities: Mapping[str, float]
    ) -> dict[str, float]:
        """Per node, seconds of input that those who catch up there take in a second."""
        left, wanted = dict(capacities), dict.fromkeys(capacities, 0.0)
        for partition, node in placement.items():
            if partition not in self.owed:
                left[node] -= self.costs[partition]
            elif self.ready_at[partition] <= self.now:
                wanted[node] += self.costs[partition]
        speeds = {}
        for node, cost in wanted.items():
            needed, free = self.ratio * cost, max(0.0, left[node])
            speeds[node] = min(SPEED_MAX, free / needed) if needed else SPEED_MAX
        return speeds


MIB = 2**20
HORIZON_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Model:
    """What the runtime needs besides CPU: `detect_seconds` until a loss is known,
    `restore_seconds` and the time to read its state until a placed partition runs,
    `checkpoint_age_seconds` that lost partitions are behind when they are lost. A second of backlog
    costs `backlog_cost_ratio` of what one of live input does: there are fewer and larger jobs."""

    detect_seconds: float = 1.0
    restore_seconds: float = 2.0
    restore_mib_per_second: float = 50.0
    checkpoint_age_seconds: float = 5.0
    backlog_cost_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Arrival:
    """A node that comes, seconds after the failure."""

    at: float
    node: str
    capacity_percent: float
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class SimulatedFailure:
    """How it went, in seconds since the failure. `ran` are the query partitions that ran before it,
    `back_at` (query partition -> when it has caught up, infinity: never) those of them that were
    lost; `plans` what was planned when."""

    ran: frozenset[str]
    back_at: Mapping[str, float]
    plans: tuple[Plan, ...]

    def outage_seconds(self, query_partition: str, until: float = math.inf) -> float:
        """For how long it gave nothing, up to `until`; 0 for what survived."""
        return min(self.back_at.get(query_partition, 0.0), until)


def rehearse(
    state: CoordinationState,
    victims: Sequence[str],
    arrivals: Sequence[Arrival],
    model: Model,
    *,
    clock: Callable[[], float],
) -> SimulatedFailure:
    """Lose `victims` at 0 out of a steady `state` and see it through; `clock` bounds solvers."""
    rehearsal = _Rehearsal(
        state=_rebased(state, model),
        model=model,
        clock=clock,
        arrivals=sorted(arrivals, key=lambda arrival: (arrival.at, arrival.node)),
        backlogs=Backlogs(node_load.steady(state), model.backlog_cost_ratio),
    )
    return rehearsal.run(tuple(victims))


def _rebased(state: CoordinationState, model: Model) -> CoordinationState:
    """The same with 0 for now, and nothing on its way."""
    return replace(
        state,
        due=None,
        losses=(),
        moving=None,
        uneven_since=None,
        surveyed_at=None,
        seen_at=0.0,
        last_checkpoint_at=-model.checkpoint_age_seconds,
    )


@dataclass(slots=True)
class _Rehearsal:
    """Where it is: what the core knows, what is still to come, what is worked off."""

    state: CoordinationState
    model: Model
    clock: Callable[[], float]
    arrivals: list[Arrival]
    backlogs: Backlogs
    back_at: dict[str, float] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)

    def run(self, victims: tuple[str, ...]) -> SimulatedFailure:
        before = active(self.state)
        self._pass(self.model.detect_seconds)
        self._tell(happened.NodesLost(victims))
        self.back_at = dict.fromkeys(before - active(self.state), math.inf)
        self._plan()
        while math.inf in self.back_at.values() or self.state.catching_up:
            at = self._next()
            if at > HORIZON_SECONDS:
                break
            self._pass(at)
            self._arrive()
            self._plan()
        return SimulatedFailure(before, self.back_at, tuple(self.plans))

    @property
    def now(self) -> float:
        return self.backlogs.now

    def _next(self) -> float:
        """When something happens next."""
        arrival = self.arrivals[0].at if self.arrivals else math.inf
        due = self.state.due.at if self.state.due is not None else math.inf
        change = self.backlogs.next_change(self.state.placement, self._capacities())
        return max(self.now, min(arrival, due, change))

    def _pass(self, until: float) -> None:
        """Let work be done up to a moment, and tell of queries that have caught up."""
        self.backlogs.keep(self.state.placement)
        level = self.backlogs.advance(until, self.state.placement, self._capacities())
        if not level:
            return
        behind = self.backlogs.owed.keys()
        for query in sorted(self.state.catching_up):
            if self.state.closures[query].isdisjoint(behind):
                self._tell(happened.QueryCaughtUp(query))
                if query in self.back_at:
                    self.back_at[query] = until
        if not self.state.catching_up:
            self._tell(happened.CheckpointCompleted((self.state.last_checkpoint or 0) + 1))

    def _arrive(self) -> None:
        while self.arrivals and self.arrivals[0].at <= self.now:
            one = self.arrivals.pop(0)
            incarnation = f"{one.node}@{one.at:g}"
            self._tell(happened.NodeBack(one.node, one.capacity_percent, one.domain, incarnation))

    def _plan(self) -> None:
        if self.state.due is not None and self.state.due.at <= self.now:
            self._tell(happened.Tick(may_move=False))

    def _tell(self, event: happened.Event) -> None:
        """One event to the core, and what it publishes to the model."""
        resident = self.state.resident
        self.state, told = advance(self.state, event, self.now, clock=self.clock)
        self.backlogs.keep(self.state.placement)
        for instruction in told:
            if isinstance(instruction, PublishPlan):
                self._carry_out(instruction.plan, resident)
                self._tell(happened.PlanAcknowledged(instruction.plan.plan_epoch))

    def _carry_out(self, plan: Plan, resident: Mapping[str, str]) -> None:
        """What stays where its state is goes on from there; the rest is read from the store."""
        self.plans.append(plan)
        for partition, node in plan.placement.items():
            ready_at, behind_seconds = self.now, self.now
            if resident.get(partition) != node:
                size = self.state.state_bytes.get(partition, 0) / MIB
                ready_at += self.model.restore_seconds + size / self.model.restore_mib_per_second
                behind_seconds += self.model.checkpoint_age_seconds
            self.backlogs.begin(partition, behind_seconds, ready_at)

    def _capacities(self) -> dict[str, float]:
        """All CPU of each node that is there for partitions: the cap is for planning only."""
        up = with_status(self.state, NodeStatus.UP, NodeStatus.SUSPECTED)
        all_percent = {node: self.state.nodes[node].capacity_percent for node in up}
        overhead = self.state.overhead_percent
        return {node: max(0.0, percent - overhead) for node, percent in all_percent.items()}
