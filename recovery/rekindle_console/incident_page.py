"""An incident on a page: its facts, its plans, and a picture of nodes and partitions over time.

    picture         steps of both as points of a drawing, for the template `picture.html`
    incident_rows   past incidents as rows of a table
    incident_page   one of them with all that is recorded

Values in, values out. What nobody has recorded is left out; the page says who recorded the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rekindle.coordination.incident_history import ProgressPoint
from rekindle.model.sentences import counted
from rekindle_console import page_text
from rekindle_console.console_reader import PastIncident, PastPlan
from rekindle_console.page_addresses import Address, PageKind, link

ROWS_MAX = 20
PLANS_MAX = 50
QUERIES_MAX = 200
# The picture, in its own pixels.
WIDTH, LEFT, RIGHT = 1120.0, 150.0, 1090.0
NODES_TOP, NODES_BOTTOM = 22.0, 92.0
PARTS_TOP, PARTS_BOTTOM = 132.0, 202.0
HEIGHT = 232.0
PLANS_Y = 112.0
PLAN_PIXELS = 19.0
LEVEL_PIXELS_MIN = 26.0
TICKS_MAX = 8
TICK_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)


@dataclass(frozen=True, slots=True)
class PlacedText:
    """A text at a place."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class PartFigures:
    """A band of the picture: a polygon, the line above it, and figures where there is room."""

    area: str
    line: str
    labels: tuple[PlacedText, ...]
    top: float
    bottom: float
    most: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Nodes up and partitions placed, from the beginning of an incident on; `text` says the same in
    words, for who does not see it."""

    text: str
    width: float
    height: float
    left: float
    right: float
    nodes: PartFigures
    placed: PartFigures
    ticks: tuple[PlacedText, ...]
    plans: tuple[PlacedText, ...]
    plans_y: float


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """A past incident in a table."""

    number: str
    href: str
    kind: str
    began: str
    took: str
    lost: str
    plans: str
    outcome: str


@dataclass(frozen=True, slots=True)
class PastQueryRow:
    """A query of a past incident."""

    name: str
    priority: str
    lost: str
    planned: str
    back: str
    text: str


@dataclass(frozen=True, slots=True)
class PastPlanRow:
    """A plan of an incident."""

    number: str
    at: str
    reason: str
    text: str
    outcome: str


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """All that the page of an incident shows."""

    application: str
    up: str
    number: str
    title: str
    source: str
    facts: tuple[tuple[str, str], ...]
    picture: Picture | None
    plans: tuple[PastPlanRow, ...]
    plans_more: int
    queries: tuple[PastQueryRow, ...]
    queries_more: int


def picture(incident: PastIncident, partitions: int, now: float) -> Picture | None:
    """The drawing; None where nothing was seen of the course of the incident."""
    points = incident.points
    if not points:
        return None
    begin = min(points[0].at, incident.began_at or points[0].at)
    # an open one goes on in steps, so that a page without news stays the same
    end = incident.ended_at or max(points[-1].at, now - now % 5)
    end = max(end, begin + 1.0)

    def x(at: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (at - begin) / (end - begin), 2)

    most_nodes = max([1, *(point.nodes_up for point in points)])
    most_nodes = max(most_nodes, points[0].nodes_up + len(incident.lost))
    most_parts = max([1, partitions, *(point.placed for point in points)])
    steps = [(x(point.at), point) for point in points]
    nodes = [(at, point.nodes_up) for at, point in steps]
    placed = [(at, point.placed) for at, point in steps]
    first, last = points[0], points[-1]
    return Picture(
        text=(
            f"{counted(first.nodes_up, 'node')} up at the beginning, {last.nodes_up} at the end; "
            f"{first.placed:,} and then {last.placed:,} of {most_parts:,} partitions placed."
        ),
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        nodes=_band(nodes, most_nodes, NODES_TOP, NODES_BOTTOM),
        placed=_band(placed, most_parts, PARTS_TOP, PARTS_BOTTOM),
        ticks=tuple(PlacedText(x(begin + at), HEIGHT - 8, f"{at:g}") for at in _ticks(end - begin)),
        plans=tuple(_plan_marks(steps)),
        plans_y=PLANS_Y,
    )


def incident_rows(
    application: str, incidents: Iterable[PastIncident], now: float
) -> tuple[IncidentRow, ...]:
    """Past incidents, the newest first."""
    over = [item for item in incidents if item.outcome != "open"]
    return tuple(_row(application, item, now) for item in over[:ROWS_MAX])


def incident_page(
    address: Address, incidents: Sequence[PastIncident], partitions: int, now: float
) -> IncidentPage | None:
    """The page of an incident; None when nobody has recorded one of that number."""
    found = next((item for item in incidents if item.number == address.incident), None)
    if found is None:
        return None
    row = _row(address.application, found, now)
    queries = sorted(found.queries, key=lambda query: (-query.priority, query.name))
    return IncidentPage(
        application=address.application,
        up=link(Address(PageKind.APPLICATION, address.application)),
        number=row.number,
        title=_title(found),
        source=found.source,
        facts=(
            ("kind", row.kind),
            ("began", row.began),
            ("ended", page_text.clock(found.ended_at, now)),
            ("took", row.took),
            ("nodes lost", page_text.listed(found.lost) or page_text.NOTHING),
            ("impaired domains", found.domains or page_text.NOTHING),
            ("outcome", row.outcome),
        ),
        picture=picture(found, partitions, now),
        plans=tuple(_plan(plan, now) for plan in found.plans[:PLANS_MAX]),
        plans_more=max(0, len(found.plans) - PLANS_MAX),
        queries=tuple(
            PastQueryRow(
                name=query.name,
                priority=f"{query.priority:g}",
                lost=page_text.clock(query.lost_at, now),
                planned=_after(query.planned_at, query.lost_at),
                back=_after(query.back_at, query.lost_at),
                text=query.text,
            )
            for query in queries[:QUERIES_MAX]
        ),
        queries_more=max(0, len(queries) - QUERIES_MAX),
    )


def _title(found: PastIncident) -> str:
    lost = len(found.lost)
    what = f"Incident {found.number}: {counted(lost, 'node')} lost" if lost else ""
    what = what or f"Incident {found.number}"
    if found.began_at is not None and found.ended_at is not None:
        return f"{what}, over after {page_text.duration(found.ended_at - found.began_at)}."
    return f"{what}."


def _row(application: str, found: PastIncident, now: float) -> IncidentRow:
    whole = found.began_at is not None and found.ended_at is not None
    took = (found.ended_at or 0.0) - (found.began_at or 0.0) if whole else None
    return IncidentRow(
        number=f"{found.number}",
        href=link(Address(PageKind.INCIDENT, application, incident=found.number)),
        kind=found.kind.lower() or page_text.NOTHING,
        began=page_text.clock(found.began_at, now),
        took=page_text.duration(took),
        lost=counted(len(found.lost), "node") if found.lost else page_text.NOTHING,
        plans=f"{len(found.plans):,}",
        outcome=found.outcome or page_text.NOTHING,
    )


def _plan(plan: PastPlan, now: float) -> PastPlanRow:
    at = page_text.clock(plan.at, now)
    return PastPlanRow(f"{plan.number}", at, plan.reason, plan.text, plan.outcome)


def _after(moment: float | None, begin: float | None) -> str:
    if moment is None or begin is None:
        return page_text.NOTHING
    return page_text.duration(max(0.0, moment - begin))


def _band(steps: Sequence[tuple[float, int]], most: int, top: float, bottom: float) -> PartFigures:
    """Levels that hold until the next step, and the last one to the end."""

    def y(level: int) -> float:
        return round(bottom - (bottom - top) * min(level, most) / most, 2)

    line: list[str] = []
    labels = []
    for number, (x, level) in enumerate(steps):
        until = steps[number + 1][0] if number + 1 < len(steps) else RIGHT
        line += [f"{max(x, LEFT):g},{y(level):g}", f"{until:g},{y(level):g}"]
        if until - x > LEVEL_PIXELS_MIN:
            labels.append(
                PlacedText(round((x + until) / 2, 2), max(y(level) - 5, top - 6), f"{level:,}")
            )
    start = steps[0][0]
    area = [f"{start:g},{bottom:g}", *line, f"{RIGHT:g},{bottom:g}"]
    return PartFigures(" ".join(area), " ".join(line), tuple(labels), top, bottom, f"{most:,}")


def _ticks(seconds: float) -> list[int]:
    step = next((step for step in TICK_SECONDS if seconds / step <= TICKS_MAX), TICK_SECONDS[-1])
    return list(range(0, int(seconds) + 1, step))[: 2 * TICKS_MAX]


def _plan_marks(steps: Sequence[tuple[float, ProgressPoint]]) -> Iterable[PlacedText]:
    """Where a new plan was first seen, as far as there is room for its number."""
    newest, free_from = steps[0][1].plan_epoch, 0.0
    for x, point in steps[1:]:
        if point.plan_epoch > newest:
            newest = point.plan_epoch
            if x >= free_from:
                free_from = x + PLAN_PIXELS
                yield PlacedText(x, PLANS_Y + 3.6, str(newest))
