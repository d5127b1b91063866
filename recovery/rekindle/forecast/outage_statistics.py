"""Many rehearsals of a failure: for how long each query gives nothing, with intervals."""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rekindle.coordination import CoordinationState
from rekindle.forecast.failure_models import FailureModel
from rekindle.forecast.failure_simulation import Arrival, Model, SimulatedFailure, rehearse
from rekindle.forecast.node_arrivals import NodeArrivals

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
