"""Forecasts for each failure domain: the queries that its loss stops, and when they are back.

A query survives the loss of a domain if no partition that it needs is there. What returns on the
survivors alone is what there is room for at once; the rest waits for nodes.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rekindle.coordination import CoordinationState, domain_placement
from rekindle.coordination.coordination_state import active
from rekindle.forecast.failure_models import Named
from rekindle.forecast.failure_simulation import Model
from rekindle.forecast.node_arrivals import NodeArrivals
from rekindle.forecast.outage_statistics import Interval, simulate

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
