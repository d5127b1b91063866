"""The page of all applications: which of them run, and which need to be looked at.

Values in, values out; the template `overview.html` shows them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from rekindle.coordination.application_status import Phase
from rekindle.coordination.coordination_state import NodeStatus
from rekindle.model.sentences import counted
from rekindle_console import page_text
from rekindle_console.application_summaries import Summary
from rekindle_console.console_reader import ProcessRecord
from rekindle_console.page_addresses import Address, PageKind, link
from rekindle_console.page_text import Segment

ROWS_MAX = 50
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure at a glance; `mark` is "good", "bad" or ""."""

    value: str
    name: str
    note: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Pager:
    """A part of a long list: addresses of the parts beside it, None where there is none."""

    text: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ApplicationRow:
    """An application in the table; `href` is below the folder of all pages."""

    name: str
    href: str
    driver: str
    nodes: str
    nodes_lost: str
    bar: tuple[Segment, ...]
    live: str
    lag: str
    incident: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """All that the page shows."""

    title: str
    story: str
    tiles: tuple[Tile, ...]
    rows: tuple[ApplicationRow, ...]
    pager: Pager
    find: str


def overview(
    address: Address, process: ProcessRecord, summaries: Sequence[Summary], now: float
) -> Overview:
    """The page, from summaries in the order of their urgency."""
    wanted = address.find.casefold()
    found = [summary for summary in summaries if wanted in summary.name.casefold()]
    shown, parts = pager(found, address, ROWS_MAX, "application")
    return Overview(
        title=_title(summaries),
        story=_story(process),
        tiles=_tiles(summaries),
        rows=tuple(_row(summary, now) for summary in shown),
        pager=parts,
        find=address.find,
    )


def pager(
    items: Sequence[Item], address: Address, size: int, noun: str, plural: str = ""
) -> tuple[Sequence[Item], Pager]:
    """The part of a list that an address asks for, and where the others are."""
    last = max(1, -(-len(items) // size))
    page = min(max(1, address.page), last)
    begin = (page - 1) * size
    shown = items[begin : begin + size]
    text = counted(len(items), noun, plural)
    if last > 1:
        text = f"{begin + 1:,} to {begin + len(shown):,} of {text}"
    before = link(address.at(page - 1)) if page > 1 else None
    after = link(address.at(page + 1)) if page < last else None
    return shown, Pager(text, before, after)


def _title(summaries: Sequence[Summary]) -> str:
    if not summaries:
        return "No application has reported yet."
    troubled = sum(summary.standing.incident is not None for summary in summaries)
    total = sum(_totals(summaries).values())
    waiting = _totals(summaries)[Phase.WAITING]
    if troubled:
        are = "is" if troubled == 1 else "are"
        waits = f" {counted(waiting, 'query waits', 'queries wait')}." if waiting else ""
        return f"{troubled:,} of {counted(len(summaries), 'application')} {are} recovering.{waits}"
    if waiting:
        return f"{waiting:,} of {counted(total, 'query', 'queries')} wait."
    count = len(summaries)
    return "The application runs." if count == 1 else f"All {count:,} applications run."


def _story(process: ProcessRecord) -> str:
    store = "" if process.store_reachable else " The store does not answer: this is the last known."
    role = "It decides." if process.leads else "Another one decides; this one follows."
    return f"Served by the {process.kind} {process.identity}. {role}{store}"


def _totals(summaries: Sequence[Summary]) -> Counter[Phase]:
    found: Counter[Phase] = Counter()
    for summary in summaries:
        found.update(summary.counts)
    return found


def _tiles(summaries: Sequence[Summary]) -> tuple[Tile, ...]:
    totals = _totals(summaries)
    running = sum(totals.values()) - totals[Phase.FINISHED]
    short = totals[Phase.WAITING] + totals[Phase.STOPPED]
    open_incidents = sum(summary.standing.incident is not None for summary in summaries)
    lost = sum(summary.nodes.get(NodeStatus.LOST, 0) for summary in summaries)
    return (
        Tile(f"{len(summaries):,}", "applications", f"{counted(lost, 'node')} lost"),
        Tile(
            f"{open_incidents:,}",
            "incident open" if open_incidents == 1 else "incidents open",
            "",
            "bad" if open_incidents else "good",
        ),
        Tile(
            f"{totals[Phase.LIVE]:,}",
            "queries live",
            f"of {running:,}, {totals[Phase.CATCHING_UP]:,} catching up",
        ),
        Tile(
            f"{short:,}",
            "queries down",
            f"{totals[Phase.WAITING]:,} waiting, {totals[Phase.STOPPED]:,} stopped",
            "bad" if short else "good",
        ),
    )


def _row(summary: Summary, now: float) -> ApplicationRow:
    found, counts = summary.standing, summary.counts
    lost = summary.nodes.get(NodeStatus.LOST, 0)
    incident = found.incident
    began = "" if incident is None else f"since {page_text.clock(incident.began_at, now)}"
    total = sum(counts.values())
    return ApplicationRow(
        name=summary.name,
        href=link(Address(PageKind.APPLICATION, summary.name)),
        driver=str(found.driver) if found.generation else "not reported",
        nodes=f"{sum(summary.nodes.values()) - lost:,} up",
        nodes_lost=f"{lost:,} lost" if lost else "",
        bar=page_text.bar(counts),
        live=f"{counts.get(Phase.LIVE, 0):,} of {total:,}" if total else page_text.NOTHING,
        lag=page_text.duration(summary.worst[1] if summary.worst else None),
        incident="" if incident is None else f"{incident.kind} {began}",
        reasons=tuple(dict.fromkeys(str(notice.reason) for notice in found.notices)),
    )
