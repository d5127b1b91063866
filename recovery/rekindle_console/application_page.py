"""The page of an application: queries by priority, the open incident, nodes, domains, the past.

Values in, values out; the template `application.html` shows them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rekindle.coordination import application_status, node_load
from rekindle.coordination.application_status import (
    ApplicationStatus,
    Notice,
    Phase,
    PlanProgress,
    QueryProgress,
)
from rekindle.coordination.coordination_state import CoordinationState, NodeStatus
from rekindle.coordination.query_explanation import missing_partitions
from rekindle.model.incidents import Incident
from rekindle.model.sentences import counted
from rekindle_console import page_text
from rekindle_console.application_summaries import Summary, by_importance, view_of
from rekindle_console.console_reader import PastIncident, PlanRecord
from rekindle_console.forecast_page import DomainRow, domain_rows
from rekindle_console.incident_page import IncidentRow, Picture, incident_rows, picture
from rekindle_console.overview_page import Pager, Tile, pager
from rekindle_console.page_addresses import Address, PageKind, link
from rekindle_console.page_text import Segment

QUERIES_MAX = 50
WAITING_MAX = 20
NODES_MAX = 200
NOTICES_MAX = 20
PLANS_MAX = 10


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A query in the table; `lag_share` is its lag beside the largest one, of 100, `beyond` for how
    long it was further behind than its goal."""

    name: str
    href: str
    priority: str
    note: str
    state: str
    mark: str
    live: str
    lag: str
    lag_share: float
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A query that waits, with what it misses."""

    name: str
    href: str
    priority: str
    misses: str
    partitions: str
    cost: str
    kept: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: what it carries, and how much of it is used."""

    name: str
    domain: str
    state: str
    mark: str
    partitions: str
    capacity: str
    used: str


@dataclass(frozen=True, slots=True)
class IncidentSection:
    """The open incident as it goes."""

    facts: tuple[tuple[str, str], ...]
    picture: Picture | None
    plans: tuple[PlanProgress, ...]
    waiting: tuple[WaitingRow, ...]
    waiting_more: str


@dataclass(frozen=True, slots=True)
class StateFilter:
    """A state that the list of queries can be narrowed to."""

    text: str
    href: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ApplicationPage:
    """All that the page of an application shows; `goals`: some queries have a goal for their
    lag."""

    name: str
    title: str
    story: str
    tiles: tuple[Tile, ...]
    bar: tuple[Segment, ...]
    notices: tuple[Notice, ...]
    notices_more: int
    incident: IncidentSection | None
    choices: tuple[StateFilter, ...]
    queries: tuple[QueryRow, ...]
    goals: bool
    pager: Pager
    find: str
    state: str
    nodes: tuple[NodeRow, ...]
    nodes_text: str
    domains: tuple[DomainRow, ...]
    forecast: str
    past: tuple[IncidentRow, ...]


def application_page(
    address: Address,
    summary: Summary,
    state: CoordinationState | None,
    plans: Sequence[PlanRecord],
    incidents: Sequence[PastIncident],
    now: float,
) -> ApplicationPage:
    """The page; `state` is None before the application's driver has reported."""
    found = summary.standing
    shown, parts = pager(_chosen(found.queries, address), address, QUERIES_MAX, "query", "queries")
    largest = max((query.lag_seconds or 0.0 for query in found.queries), default=0.0)
    nodes = _nodes(state, found)
    return ApplicationPage(
        name=summary.name,
        title=_title(summary),
        story=_story(found, now),
        tiles=_tiles(summary),
        bar=page_text.bar(summary.counts),
        notices=found.notices[:NOTICES_MAX],
        notices_more=max(0, len(found.notices) - NOTICES_MAX),
        incident=_incident(summary, state, plans, incidents, now),
        choices=_choices(address, summary.counts),
        queries=tuple(_query(summary.name, query, largest, now) for query in shown),
        goals=found.weighted_beyond_goal_seconds is not None,
        pager=parts,
        find=address.find,
        state=address.state,
        nodes=tuple(nodes[:NODES_MAX]),
        nodes_text=_nodes_text(summary, len(nodes)),
        domains=() if state is None else domain_rows(state, None),
        forecast=link(Address(PageKind.FORECAST, summary.name)),
        past=incident_rows(summary.name, incidents, now),
    )


def _title(summary: Summary) -> str:
    found, counts = summary.standing, summary.counts
    total, live = sum(counts.values()), counts.get(Phase.LIVE, 0)
    if summary.record.trouble and not total:
        return "Its records cannot be read."
    if not total:
        return "Its driver has not reported yet."
    if counts.get(Phase.FINISHED) == total:
        return "The run is over."
    if found.incident is not None:
        lost = len(found.incident.lost)
        what = f"{counted(lost, 'node')} lost" if lost else "A driver started again"
        if found.incident.is_announced:
            what = f"{counted(len(set(found.incident.announced)), 'node')} announced to go"
        return f"{what}. {live:,} of {counted(total, 'query', 'queries')} run."
    if live == total:
        return "The query runs." if total == 1 else f"All {total:,} queries run."
    return f"{live:,} of {counted(total, 'query', 'queries')} run."


def _story(found: ApplicationStatus, now: float) -> str:
    if not found.generation:
        return ""
    since = (
        "" if found.driver_since is None else f" since {page_text.clock(found.driver_since, now)}"
    )
    driver = f"Driver {found.generation} {page_text.DRIVERS[found.driver]}{since}."
    return f"{driver} Paused by order." if found.paused else driver


def _tiles(summary: Summary) -> tuple[Tile, ...]:
    counts, nodes = summary.counts, summary.nodes
    total = sum(counts.values())
    short = counts.get(Phase.WAITING, 0) + counts.get(Phase.STOPPED, 0)
    lost, suspected = nodes.get(NodeStatus.LOST, 0), nodes.get(NodeStatus.SUSPECTED, 0)
    silent = f", {suspected:,} silent" if suspected else ""
    name, lag = summary.worst or ("", None)
    return (
        Tile(
            f"{counts.get(Phase.LIVE, 0):,}",
            "queries live",
            f"of {total:,}, {counts.get(Phase.CATCHING_UP, 0):,} catching up",
        ),
        Tile(
            f"{short:,}",
            "queries down",
            f"{counts.get(Phase.WAITING, 0):,} waiting, {counts.get(Phase.STOPPED, 0):,} stopped",
            "bad" if short else "good",
        ),
        Tile(
            f"{nodes.get(NodeStatus.UP, 0):,}",
            "nodes up",
            f"{lost:,} lost{silent}",
            "bad" if lost else "",
        ),
        Tile(page_text.duration(lag), "largest lag", name),
        *_goal_tiles(summary.standing),
    )


def _goal_tiles(found: ApplicationStatus) -> Iterable[Tile]:
    """For how long queries were further behind than their goals, where some have one."""
    seconds = found.weighted_beyond_goal_seconds
    if seconds is not None:
        yield Tile(page_text.duration(seconds), "beyond lag goals", "in all, weighted by priority")


def _chosen(queries: Iterable[QueryProgress], address: Address) -> list[QueryProgress]:
    wanted = address.find.casefold()
    return [
        query
        for query in by_importance(queries)
        if wanted in query.name.casefold() and address.state in ("", page_text.MARKS[query.phase])
    ]


def _choices(address: Address, counts: Mapping[Phase, int]) -> tuple[StateFilter, ...]:
    def choice(text: str, count: int, state: str) -> StateFilter:
        target = Address(PageKind.APPLICATION, address.application, state=state, find=address.find)
        return StateFilter(f"{text} {count:,}", link(target), state == address.state)

    found = [choice("all", sum(counts.values()), "")]
    for phase, mark in page_text.MARKS.items():
        if counts.get(phase) or address.state == mark:
            found.append(choice(str(phase), counts.get(phase, 0), mark))
    return tuple(found)


def _query(application: str, query: QueryProgress, largest: float, now: float) -> QueryRow:
    lag = query.lag_seconds
    return QueryRow(
        name=query.name,
        href=link(Address(PageKind.QUERY, application, query.name)),
        priority=f"{query.priority:g}",
        note=page_text.override(query, now),
        state=str(query.phase),
        mark=page_text.MARKS[query.phase],
        live=f"{query.live:,}/{query.partitions:,}",
        lag=page_text.duration(lag),
        lag_share=round(100 * lag / largest, 1) if lag and largest else 0.0,
        beyond=page_text.beyond_goal(query),
    )


def _incident(
    summary: Summary,
    state: CoordinationState | None,
    plans: Sequence[PlanRecord],
    incidents: Sequence[PastIncident],
    now: float,
) -> IncidentSection | None:
    incident = summary.standing.incident
    if incident is None or state is None:
        return None
    waiting = [query for query in summary.standing.queries if query.phase is Phase.WAITING]
    more = len(waiting) - WAITING_MAX
    recorded = next((item for item in incidents if item.number == incident.number), None)
    requests = summary.record.case.requests.values()
    asked = [counted(item.count, "node") for item in requests if item.what == "nodes"]
    return IncidentSection(
        facts=(
            ("incident", f"{incident.number}, {incident.kind}"),
            ("since", page_text.clock(incident.began_at, now)),
            ("announced to go", _announced(incident)),
            ("lost", page_text.listed(incident.lost) or page_text.NOTHING),
            ("impaired domains", page_text.listed(incident.domains) or page_text.NOTHING),
            ("plans so far", f"{incident.plans:,}"),
            ("requested", ", ".join(asked) or "nothing now"),
        ),
        picture=None if recorded is None else picture(recorded, len(state.partitions), now),
        plans=tuple(_plans(summary, plans, incident.number)),
        waiting=tuple(_waiting(summary.name, state, waiting, now)),
        waiting_more=f"and {counted(more, 'query', 'queries')} more" if more > 0 else "",
    )


def _announced(incident: Incident) -> str:
    """Nodes with a notice, those that are lost by now included."""
    names = tuple(dict.fromkeys(incident.announced))
    return page_text.listed(names) or page_text.NOTHING


def _plans(summary: Summary, plans: Sequence[PlanRecord], incident: int) -> Iterable[PlanProgress]:
    """What the newest plans of an incident bring back, and what the driver did with them."""
    own = [item for item in plans if getattr(item.directive.order, "incident", None) == incident]
    for record in own[:PLANS_MAX]:
        # of the newest one the driver's report may say more than its answer
        view = view_of(summary.record, [record]) if record is plans[0] else None
        newest = None if view is None else application_status.plan_standing(view)
        directive, answer = record.directive, record.answer
        yield newest or PlanProgress(
            directive.plan_epoch,
            directive.reason,
            directive.text,
            "awaited" if answer is None else answer.outcome,
        )


def _waiting(
    application: str, state: CoordinationState, waiting: Iterable[QueryProgress], now: float
) -> Iterable[WaitingRow]:
    steady = node_load.steady(state)
    behind = node_load.catching_up(state, steady, now)
    for query in by_importance(waiting)[:WAITING_MAX]:
        missing = missing_partitions(state, query, steady, behind)
        kept = Counter(item.resident for item in missing if item.resident)
        yield WaitingRow(
            name=query.name,
            href=link(Address(PageKind.QUERY, application, query.name)),
            priority=f"{query.priority:g}",
            misses=counted(len(missing), "partition"),
            partitions=page_text.listed([item.partition for item in missing]),
            cost=page_text.percent(sum(item.catching_up_percent for item in missing)),
            kept=f"{sum(kept.values()):,} of {len(missing):,}",
        )


def _nodes(state: CoordinationState | None, found: ApplicationStatus) -> list[NodeRow]:
    """Lost and silent ones first: they are what one looks for."""
    if state is None:
        return []
    costs, carried = node_load.steady(state), Counter(state.placement.values())
    used: defaultdict[str, float] = defaultdict(float)
    for partition, node in state.placement.items():
        used[node] += state.charges.get(partition, costs[partition])
    order = (NodeStatus.LOST, NodeStatus.SUSPECTED, NodeStatus.UP)
    names = sorted(found.nodes, key=lambda node: (order.index(found.nodes[node]), node))
    return [
        NodeRow(
            name=node,
            domain=state.nodes[node].domain or page_text.NOTHING,
            state="slow" if state.nodes[node].slow else str(found.nodes[node]),
            mark="behind" if state.nodes[node].slow else page_text.NODES[found.nodes[node]],
            partitions=f"{carried[node]:,}",
            capacity=page_text.percent(state.nodes[node].capacity_percent),
            used=page_text.percent(used[node]),
        )
        for node in names
        if node in state.nodes
    ]


def _nodes_text(summary: Summary, count: int) -> str:
    nodes = summary.nodes
    parts = [f"{nodes[status]:,} {status}" for status in NodeStatus if nodes.get(status)]
    more = f"; the first {NODES_MAX} are shown" if count > NODES_MAX else ""
    return ", ".join(parts) + more
