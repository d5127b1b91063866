"""The page of a query: the causes of its waiting, and how it would come back.

Values in, values out; the template `query.html` shows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rekindle.coordination import node_load
from rekindle.coordination.application_status import Phase, QueryProgress
from rekindle.coordination.coordination_state import CoordinationState
from rekindle.coordination.query_explanation import Explanation, missing_partitions
from rekindle_console import page_text
from rekindle_console.application_summaries import Summary
from rekindle_console.overview_page import Tile
from rekindle_console.page_addresses import Address, PageKind, link

ROWS_MAX = 200
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition that a query misses."""

    name: str
    steady: str
    behind: str
    state: str
    kept_on: str


@dataclass(frozen=True, slots=True)
class QueryPage:
    """All that the page of a query shows; `pending`: the explanation is being worked out."""

    name: str
    application: str
    up: str
    title: str
    state: str
    mark: str
    tiles: tuple[Tile, ...]
    sentences: tuple[str, ...]
    pending: bool
    trouble: str
    partitions: tuple[PartitionRow, ...]
    free: tuple[tuple[str, str], ...]


def query_page(
    address: Address,
    summary: Summary,
    state: CoordinationState | None,
    explanation: Explanation | None,
    trouble: str,
    now: float,
) -> QueryPage | None:
    """The page of a query; None when the application has no such query. `explanation` is None
    while it is being worked out, and where that has failed, as `trouble` says."""
    query = next((item for item in summary.standing.queries if item.name == address.query), None)
    if query is None or state is None:
        return None
    rows = tuple(_partitions(state, query, now))
    free = {} if explanation is None or explanation.free is None else explanation.free
    return QueryPage(
        name=query.name,
        application=summary.name,
        up=link(Address(PageKind.APPLICATION, summary.name)),
        title=_title(query),
        state=str(query.phase),
        mark=page_text.MARKS[query.phase],
        tiles=(
            Tile(f"{query.priority:g}", "priority", page_text.override(query, now)),
            Tile(page_text.duration(query.lag_seconds), "lag, as the driver reported it last"),
            *_goal_tiles(query),
            Tile(f"{query.live:,} of {query.partitions:,}", "query partitions live"),
            Tile(f"{len(rows):,}", "partitions missing", mark="bad" if rows else "good"),
        ),
        sentences=() if explanation is None else explanation.sentences,
        pending=explanation is None and not trouble,
        trouble=trouble,
        partitions=rows[:ROWS_MAX],
        free=tuple((node, page_text.percent(cpu)) for node, cpu in list(free.items())[:ROWS_MAX]),
    )


def _goal_tiles(query: QueryProgress) -> Iterable[Tile]:
    """For how long it was further behind than its goal, if it has one."""
    if query.beyond_goal_seconds is not None:
        goal = page_text.duration(query.lag_goal_seconds)
        seconds = page_text.duration(query.beyond_goal_seconds)
        yield Tile(seconds, f"lag above its goal of {goal}, in all")


def _title(query: QueryProgress) -> str:
    said = {
        Phase.LIVE: "is live",
        Phase.CATCHING_UP: "catches up",
        Phase.WAITING: "waits",
        Phase.STOPPED: "has stopped",
        Phase.FINISHED: "has ended",
    }
    return f"{query.name} {said[query.phase]}."


def _partitions(
    state: CoordinationState, query: QueryProgress, now: float
) -> Iterable[PartitionRow]:
    if query.phase is not Phase.WAITING:
        return
    steady = node_load.steady(state)
    for item in missing_partitions(state, query, steady, node_load.catching_up(state, steady, now)):
        yield PartitionRow(
            name=item.partition,
            steady=page_text.percent(item.steady_percent),
            behind=page_text.percent(item.catching_up_percent),
            state=f"{item.state_bytes / MIB:,.1f}\u00a0MiB",
            kept_on=item.resident or page_text.NOTHING,
        )
