"""What the loss of each failure domain would stop, and when it would be back.

A query survives the loss of a domain if no partition that it needs is there. What returns on the
survivors alone is what there is room for at once; the rest waits for nodes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rekindle.coordination import State, survival
from rekindle.forecast.arrivals import Arrivals
from rekindle.forecast.failures import Named
from rekindle.forecast.outages import Interval, simulate
from rekindle.forecast.rehearsal import Model

__all__ = ["DomainForecast", "forecast"]

HOUR_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class DomainForecast:
    """If `domain` with its `nodes` were lost now: `survives` are queries that would not notice,
    `back` (query -> seconds) when the others would be back; `stopped_share` is the share of all
    priority that would stop, `weighted` the outage weighted by priority."""

    domain: str
    nodes: tuple[str, ...]
    survives: tuple[str, ...]
    back: Mapping[str, Interval]
    stopped_share: float
    weighted: Interval


def forecast(
    state: State,
    arrivals: Arrivals,
    model: Model,
    *,
    seeds: range,
    clock: Callable[[], float],
    until_seconds: float = HOUR_SECONDS,
) -> tuple[DomainForecast, ...]:
    """For every domain, by its name."""
    found = []
    for domain, nodes in survival.domains_of(state).items():
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
        back = {name: one for name, one in outages.queries.items() if one.high > 0}
        survives = tuple(sorted(outages.queries.keys() - back.keys()))
        share = _stopped_priority(state, nodes) / sum(state.priorities.values())
        found.append(DomainForecast(domain, nodes, survives, back, share, outages.weighted))
    return tuple(found)


def _stopped_priority(state: State, nodes: tuple[str, ...]) -> float:
    """The sum of priorities of query partitions that run and need something on these nodes."""
    lost = {partition for partition, node in state.placement.items() if node in nodes}
    return sum(
        state.priorities[query]
        for query, closure in state.closures.items()
        if closure <= state.placement.keys() and not closure.isdisjoint(lost)
    )
