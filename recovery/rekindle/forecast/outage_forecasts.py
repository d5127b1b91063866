"""Forecasts of outages: which nodes are lost, and for how long each query gives nothing.

Nodes are lost by name, all of a domain, or by chance.
"""

import math
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

from rekindle.coordination import CoordinationState, NodeStatus, domain_placement
from rekindle.coordination.coordination_state import active, with_status
from rekindle.forecast.failure_simulation import (
    Arrival,
    Model,
    NodeArrivals,
    SimulatedFailure,
    rehearse,
)
from rekindle.model.errors import InputError


class FailureModel(Protocol):
    """A way in which nodes are lost."""

    def victims(self, rng: random.Random) -> tuple[str, ...]:
        """The nodes, in order of name."""
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """Always the same ones."""

    nodes: tuple[str, ...]

    def victims(self, rng: random.Random) -> tuple[str, ...]:
        """The same whatever the chance."""
        del rng
        return self.nodes


@dataclass(frozen=True, slots=True)
class Random:
    """So many of all."""

    count: int
    nodes: tuple[str, ...]

    def victims(self, rng: random.Random) -> tuple[str, ...]:
        """Each node as likely as any other."""
        return tuple(sorted(rng.sample(self.nodes, self.count)))


def parse(text: str, state: CoordinationState, where: str) -> FailureModel:
    """`nodes:A,B`, `domain:NAME` or `random:COUNT`; raises InputError that names `where`."""
    kind, _, rest = text.partition(":")
    up = with_status(state, NodeStatus.UP)
    if kind == "nodes":
        named = tuple(sorted(set(rest.split(","))))
        for node in named:
            if node not in up:
                _refuse(where, f"names node {node!r:.60}", up)
        return Named(named)
    if kind == "domain":
        known = domain_placement.domains_of(state)
        if rest not in known:
            _refuse(where, f"names domain {rest!r:.60}", tuple(known))
        return Named(known[rest])
    count = int(rest) if kind == "random" and re.fullmatch("[0-9]{1,6}", rest) else 0
    if 1 <= count <= len(up):
        return Random(count, up)
    raise InputError(
        where=where,
        what=f"is {text!r:.60}",
        remedy=f"give nodes:NAME,NAME or domain:NAME or random:COUNT of {len(up)} nodes",
    )


def _refuse(where: str, what: str, known: tuple[str, ...]) -> None:
    shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
    raise InputError(where=where, what=what, remedy=f"name one of: {shown}")


# Many rehearsals of a failure: for how long each query gives nothing, with intervals.

LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds: the mean, and what all but one in twenty are above and below. Outages that never
    end count as long as the simulation looks; `never` is their share."""

    mean: float
    low: float
    high: float
    never: float = 0.0


@dataclass(frozen=True, slots=True)
class Outages:
    """Of one strategy: of each query that ran, and weighted by priority (sum of priority x outage
    over sum of priorities; `never`: the share of failures after which some query never was back).
    """

    strategy: str
    queries: Mapping[str, Interval]
    weighted: Interval


def simulate(
    state: CoordinationState,
    failure: FailureModel,
    arrivals: NodeArrivals,
    model: Model,
    *,
    strategies: Sequence[str],
    seeds: Iterable[int],
    until_seconds: float,
    clock: Callable[[], float],
) -> tuple[Outages, ...]:
    """The same failures and arrivals for every strategy; one rehearsal for each seed."""
    numbers = tuple(seeds)
    found = []
    for strategy in strategies:
        chosen = replace(state, policy=replace(state.policy, strategy=strategy))
        courses = [_course(chosen, failure, arrivals, model, seed, clock) for seed in numbers]
        found.append(_summary(strategy, state, courses, until_seconds))
    return tuple(found)


def by_query(
    state: CoordinationState, course: SimulatedFailure, until_seconds: float
) -> dict[str, float]:
    """Seconds until the last partition of each query was back that ran before, 0 for one that
    survived; queries of which nothing ran are left out."""
    found: dict[str, float] = {}
    for partition in state.closures.keys() & course.ran:
        query = partition.rpartition("/")[0]
        seconds = course.outage_seconds(partition, until_seconds)
        found[query] = max(found.get(query, 0.0), seconds)
    return found


def _course(
    state: CoordinationState,
    failure: FailureModel,
    arrivals: NodeArrivals,
    model: Model,
    seed: int,
    clock: Callable[[], float],
) -> SimulatedFailure:
    rng = random.Random(seed)
    victims = failure.victims(rng)
    moments = arrivals.seconds(len(victims), rng)
    order = rng.sample(victims, len(victims))
    coming = [
        Arrival(at, node, state.nodes[node].capacity_percent, state.nodes[node].domain)
        for at, node in zip(moments, order, strict=False)
    ]
    return rehearse(state, victims, coming, model, clock=clock)


def _summary(
    strategy: str,
    state: CoordinationState,
    courses: Sequence[SimulatedFailure],
    until_seconds: float,
) -> Outages:
    priorities = {query.name: query.priority for query in state.topology.queries}
    priorities |= {name: state.policy.priorities[name] for name in state.policy.priorities}
    runs = [by_query(state, course, until_seconds) for course in courses]
    names = [name for name in priorities if name in runs[0]]
    total = sum(priorities[name] for name in names)
    weighted = [sum(priorities[name] * run[name] for name in names) / total for run in runs]
    never = sum(max(run.values()) >= until_seconds for run in runs) / len(runs)
    return Outages(
        strategy,
        {name: _interval([run[name] for run in runs], until_seconds) for name in names},
        replace(_interval(weighted, math.inf), never=never),
    )


def _interval(values: Sequence[float], until_seconds: float) -> Interval:
    ordered = sorted(values)
    last = len(ordered) - 1
    never = sum(value >= until_seconds for value in ordered) / len(ordered)
    low, high = ordered[math.floor(LOW * last)], ordered[math.ceil(HIGH * last)]
    return Interval(fmean(ordered), low, high, never)


# Forecasts for each failure domain: the queries that its loss stops, and when they are back.
#
# A query survives the loss of a domain if no partition that it needs is there. What returns on
# the survivors alone is what there is room for at once; the rest waits for nodes.

HOUR_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class DomainForecast:
    """If `domain` with its `nodes` were lost now: `survives` are queries that would not notice,
    `back` (query -> seconds) when the others would be back; `stopped_share` is the share of the
    priority of all that runs that would stop, `weighted` the outage weighted by priority."""

    domain: str
    nodes: tuple[str, ...]
    survives: tuple[str, ...]
    back: Mapping[str, Interval]
    stopped_share: float
    weighted: Interval


def forecast(
    state: CoordinationState,
    arrivals: NodeArrivals,
    model: Model,
    *,
    seeds: range,
    clock: Callable[[], float],
    until_seconds: float = HOUR_SECONDS,
) -> tuple[DomainForecast, ...]:
    """For every domain, by its name."""
    found = []
    shares = domain_placement.stopped_shares(state, {})
    for domain, nodes in domain_placement.domains_of(state).items():
        (outages,) = simulate(
            state,
            Named(nodes),
            arrivals,
            model,
            strategies=(state.policy.strategy,),
            seeds=seeds,
            until_seconds=until_seconds,
            clock=clock,
        )
        lost = hit(state, nodes)
        back = {name: one for name, one in outages.queries.items() if name in lost}
        survives = tuple(sorted(outages.queries.keys() - lost))
        share = shares[domain]
        found.append(DomainForecast(domain, nodes, survives, back, share, outages.weighted))
    return tuple(found)


def hit(state: CoordinationState, nodes: Collection[str]) -> frozenset[str]:
    """The queries of which a partition runs that needs something on these nodes."""
    lost = {partition for partition, node in state.placement.items() if node in nodes}
    return frozenset(
        query.rpartition("/")[0]
        for query in active(state)
        if not state.closures[query].isdisjoint(lost)
    )
