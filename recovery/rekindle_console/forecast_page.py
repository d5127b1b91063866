"""The page of failure domains: the effect of the loss of each, and when the rest would be back.

Shares come from the placement at once. What comes back when is rehearsed, which takes seconds, so
it may come later (`console_questions`). Values in, values out; the template `forecast.html` shows
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rekindle.coordination import domain_placement
from rekindle.coordination.coordination_state import CoordinationState, NodeStatus, active
from rekindle.forecast.outage_forecasts import DomainForecast, hit
from rekindle.model.sentences import counted
from rekindle_console import page_text
from rekindle_console.application_summaries import Summary
from rekindle_console.console_questions import ConsoleAnswer
from rekindle_console.page_addresses import Address, PageKind, link

DOMAINS_MAX = 50


@dataclass(frozen=True, slots=True)
class DomainRow:
    """A failure domain; `share` (of 100) is the priority that its loss would stop. Without
    rehearsals `back` and `weighted` are ""."""

    name: str
    nodes: str
    stops: str
    share: float
    queries_hit: str
    survives: str
    back: str = ""
    weighted: str = ""


@dataclass(frozen=True, slots=True)
class ForecastPage:
    """All that the page shows; `unsteady` says why nothing can be said now, "" where it can."""

    name: str
    up: str
    title: str
    rows: tuple[DomainRow, ...]
    rehearsed: str
    pending: bool
    trouble: str
    unsteady: str


def forecast_page(
    summary: Summary, state: CoordinationState | None, answer: ConsoleAnswer | None, now: float
) -> ForecastPage:
    """The page; `answer` is None while the rehearsals run."""
    why = unsteady(summary, state)
    domains = None if answer is None or answer.trouble else answer.domains
    rows = () if state is None or why else domain_rows(state, domains)
    worst = max(rows, key=lambda row: row.share, default=None)
    rehearsed = ""
    if answer is not None and domains is not None:
        times = counted(answer.rehearsals, "time")
        rehearsed = f"Each loss was rehearsed {times} at {page_text.clock(answer.at, now)}."
    return ForecastPage(
        name=summary.name,
        up=link(Address(PageKind.APPLICATION, summary.name)),
        title=(
            "Nothing can be said now."
            if worst is None
            else f"The loss of {worst.name} would stop {worst.stops} of all priority."
        ),
        rows=rows,
        rehearsed=rehearsed,
        pending=answer is None and not why,
        trouble="" if answer is None else answer.trouble,
        unsteady=why,
    )


def unsteady(summary: Summary, state: CoordinationState | None) -> str:
    """Why no forecast can be made now; "" where one can."""
    if state is None or state.starting or not state.placement:
        return "The application has not started yet."
    incident = summary.standing.incident
    if incident is not None:
        return f"The application is in the middle of incident {incident.number}."
    if summary.nodes.get(NodeStatus.SUSPECTED):
        return "Some of its nodes are silent."
    if state.catching_up:
        return f"{counted(len(state.catching_up), 'query partition')} still catch up."
    return ""


def domain_rows(
    state: CoordinationState, forecasts: Sequence[DomainForecast] | None
) -> tuple[DomainRow, ...]:
    """Failure domains, that whose loss stops most first; none where there is only one."""
    domains = domain_placement.domains_of(state)
    if not state.placement:
        return ()
    shares = domain_placement.stopped_shares(state, {})
    rehearsed = {item.domain: item for item in forecasts or ()}
    order = sorted(domains, key=lambda name: (-shares.get(name, 0.0), name))
    return tuple(
        _row(state, name, domains, shares.get(name, 0.0), rehearsed.get(name))
        for name in order[:DOMAINS_MAX]
    )


def _row(
    state: CoordinationState,
    name: str,
    domains: Mapping[str, tuple[str, ...]],
    stopped: float,
    forecast: DomainForecast | None,
) -> DomainRow:
    queries = [query.name for query in state.topology.queries]
    lost = hit(state, frozenset(domains[name]))
    running = {query.rpartition("/")[0] for query in active(state)}
    survives = [query for query in queries if query in running - lost]
    back = weighted = ""
    if forecast is not None:
        times = [interval.mean for interval in forecast.back.values()]
        if times:
            back = f"{page_text.duration(min(times))} to {page_text.duration(max(times))}"
        weighted = page_text.duration(forecast.weighted.mean)
    return DomainRow(
        name=name,
        nodes=f"{len(domains[name]):,}",
        stops=page_text.share(stopped),
        share=round(100 * stopped, 1),
        queries_hit=f"{len(lost):,} of {len(queries):,}",
        survives=page_text.listed(survives) or "nothing",
        back=back,
        weighted=weighted,
    )
