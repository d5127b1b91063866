"""The picture: nodes alive on top, plans below them, then a row per query by priority.

Time runs from 20 s before the failure to the end of the run. An SVG drawn by hand, coloured by
the page's style sheet, with a title on every mark. `render` calls it, and `svg_picture` for a file.
"""

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle.model import run_events
from rekindle.model.run_events import Event
from rekindle.report import lag
from rekindle.report.lag import Commit, Cuts, Tooth
from rekindle_cli.report_html import report_text, time_axis
from rekindle_cli.report_html.time_axis import TimeScale

LABELS_Y = 16
NODES_TOP = 26
NODES_HEIGHT = 58
NODES_BOTTOM = NODES_TOP + NODES_HEIGHT
PIXELS_PER_SIGN = 6.2
# Losses so close to each other are one event, as for the coordinator.
TOGETHER_SECONDS = 1.0

Loss = tuple[float, list[str]]


def draw_nodes(
    report: Mapping[str, Any], events: Sequence[Event], scale: TimeScale, picture_bottom: float
) -> str:
    """Draw the area of nodes alive, and a line down to `picture_bottom` for each return."""
    return "\n".join(
        (
            _area(report, events, scale),
            _labels(report, _losses(events), scale),
            _returns(report, scale, picture_bottom),
        )
    )


def kills(events: Sequence[Event], scale: TimeScale, picture_bottom: float) -> str:
    """Draw a line for each loss, the last thing of all: it is not to be covered by rows."""
    losses = _losses(events)
    first = len(losses[0][1]) if losses else 0
    text = f"{first or 'no'} node{'' if first == 1 else 's'} killed"
    later = "".join(
        _kill(scale.x(t), picture_bottom, f"{', '.join(nodes)} killed at {report_text.seconds(t)}")
        for t, nodes in losses[1:]
    )
    x = scale.x(0.0)
    return (
        f"{_kill(x, picture_bottom, text)}{later}"
        f'<text class="kill-label" x="{x - 5:g}" y="{LABELS_Y}">{text}</text>'
    )


def alive(report: Mapping[str, Any], events: Sequence[Event]) -> list[tuple[float, int]]:
    """Give (t, nodes alive from t on) after the failure; kills of one moment are one step.

    A node that nobody has heard of before comes in the place of one that was killed.
    """
    total = count = int(report["nodes"])
    here: set[str | None] = set()
    dead: set[str | None] = set()
    steps: dict[float, int] = {}
    for event in run_events.of_kind(events, "kill", "returned"):
        known = event.node in (dead if event.kind == "kill" else here)
        (dead if event.kind == "kill" else here).add(event.node)
        (here if event.kind == "kill" else dead).discard(event.node)
        if not known and event.t >= 0:
            count += -1 if event.kind == "kill" else 1
            count = min(max(count, 0), total)
            steps[round(event.t, 1)] = count
    return sorted(steps.items())


def _losses(events: Sequence[Event]) -> list[Loss]:
    losses: list[Loss] = []
    for event in run_events.of_kind(events, "kill"):
        if not losses or event.t - losses[-1][0] > TOGETHER_SECONDS:
            losses.append((event.t, []))
        losses[-1][1].append(str(event.node))
    return losses


def _area(report: Mapping[str, Any], events: Sequence[Event], scale: TimeScale) -> str:
    total = report["nodes"]
    steps = [(scale.start, total), *alive(report, events)]
    heights = [(t, NODES_BOTTOM - NODES_HEIGHT * count / total) for t, count in steps]
    line: list[str] = [f"{scale.left:g},{heights[0][1]:.2f}"]
    for (_, before), (t, after) in itertools.pairwise(heights):
        line += [f"{scale.x(t)},{before:.2f}", f"{scale.x(t)},{after:.2f}"]
    line.append(f"{scale.right:g},{heights[-1][1]:.2f}")
    area = [f"{scale.left:g},{NODES_BOTTOM}", *line, f"{scale.right:g},{NODES_BOTTOM}"]
    told = "".join(f", {count} from {report_text.seconds(t)}" for t, count in steps[1:])
    return (
        f'<polygon class="nodes" points="{" ".join(area)}">'
        f"<title>{total} nodes{told}</title></polygon>"
        f'<polyline class="nodes-line" points="{" ".join(line)}"/>'
        f'<text class="tick" x="{scale.left - 12:g}" y="{NODES_TOP + 8}">{total}</text>'
        f'<text class="tick" x="{scale.left - 12:g}" y="{NODES_BOTTOM}">0</text>'
        f"{_counts(heights, steps, scale)}"
    )


def _counts(
    heights: Sequence[tuple[float, float]], steps: Sequence[tuple[float, int]], scale: TimeScale
) -> str:
    ends = [*(t for t, _ in steps[1:]), scale.end]
    return "".join(
        f'<text class="count" x="{(scale.x(t) + scale.x(end)) / 2:.2f}" y="{y + 14:.2f}">'
        f"{count}</text>"
        for (t, y), (_, count), end in zip(heights, steps, ends, strict=True)
        if count and scale.x(end) - scale.x(t) > 3 * PIXELS_PER_SIGN
    )


def _labels(report: Mapping[str, Any], losses: Sequence[Loss], scale: TimeScale) -> str:
    """Names of nodes that return and numbers of those lost later, as far as there is room."""
    short = report_text.short_names(
        [*(entry["node"] for entry in report["returns"]), *report["victims"]]
    )
    found = [(scale.x(entry["at"]), f"+{short[entry['node']]}") for entry in report["returns"]]
    found += [(scale.x(t), f"−{len(nodes)}") for t, nodes in losses[1:]]
    return "".join(
        f'<text class="node" x="{x}" y="{LABELS_Y}">{escape(text)}</text>'
        for x, text in time_axis.spread(sorted(found), PIXELS_PER_SIGN)
    )


def _returns(report: Mapping[str, Any], scale: TimeScale, bottom: float) -> str:
    return "".join(
        f'<line class="returned" x1="{scale.x(entry["at"])}" x2="{scale.x(entry["at"])}" '
        f'y1="{LABELS_Y + 4}" y2="{bottom}"><title>{escape(entry["node"])} returned at '
        f"{report_text.seconds(entry['at'])}</title></line>"
        for entry in report["returns"]
    )


def _kill(x: float, bottom: float, title: str) -> str:
    return (
        f'<line class="kill" x1="{x}" x2="{x}" y1="{LABELS_Y + 4}" y2="{bottom}">'
        f"<title>{escape(title)}</title></line>"
    )


BEFORE_SECONDS = 20.0
WIDTH = 1120
LEFT = 232
RIGHT = 1020
PLANS_Y = NODES_BOTTOM + 26
ROWS_TOP = PLANS_Y + 32
AXIS_PIXELS = 34
# What a mark means, by its class in the style sheet.
KEYS = (
    ("available", "available"),
    ("unavailable", "unavailable: lag above its limit"),
    ("lag", "lag, one scale for all"),
    ("planned", "planned"),
    ("returned", "node returned"),
    ("kill", "failure"),
)


def draw(report: Mapping[str, Any], events: Sequence[Event]) -> str:
    """Draw the whole picture, for a page that has the style sheet."""
    return "\n".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {height(report)}" role="img" '
            'aria-labelledby="picture-title picture-text" xmlns="http://www.w3.org/2000/svg">',
            description(report),
            marks(report, events),
            "</svg>",
        )
    )


def description(report: Mapping[str, Any]) -> str:
    """Give title and description of an SVG that holds the marks."""
    title = f"Availability of {len(report['queries'])} queries, {report_text.headline(report)}"
    return (
        f'<title id="picture-title">{escape(title)}</title>\n'
        f'<desc id="picture-text">{escape(report_text.story(report))}</desc>'
    )


def marks(report: Mapping[str, Any], events: Sequence[Event]) -> str:
    """Draw everything that is in the picture, `WIDTH` pixels wide and `height` high."""
    scale = TimeScale(-BEFORE_SECONDS, max(report["end"], 1.0), LEFT, RIGHT)
    names = report_text.by_priority(report)
    bottom = height(report) - AXIS_PIXELS
    return "\n".join(
        (
            _grid(scale, bottom),
            draw_nodes(report, events, scale, bottom),
            _heads(),
            _rows(report, events, names, scale),
            _plans(report, scale),
            kills(events, scale, bottom),
        )
    )


def height(report: Mapping[str, Any]) -> int:
    """Give the picture's pixels from top to bottom."""
    return ROWS_TOP + len(report["queries"]) * ROW_PIXELS + AXIS_PIXELS


def legend() -> str:
    """Give the key to the picture as HTML."""
    keys = "".join(f'<span><i class="key {mark}"></i>{text}</span>' for mark, text in KEYS)
    return f'<p class="legend">{keys}</p>'


def _grid(scale: TimeScale, bottom: float) -> str:
    lines = "".join(
        f'<line class="grid" x1="{scale.x(t)}" x2="{scale.x(t)}" y1="{ROWS_TOP}" '
        f'y2="{bottom}"/><text class="tick" x="{scale.x(t)}" y="{bottom + 20}">{t:g}</text>'
        for t in time_axis.ticks(scale)
    )
    return (
        f'{lines}<text class="head" x="{RIGHT + 88}" y="{bottom + 20}" text-anchor="end">'
        "seconds</text>"
    )


def _heads() -> str:
    y = ROWS_TOP - 6
    return (
        f'<text class="head" x="2" y="{y}">priority</text>'
        f'<text class="head" x="56" y="{y}">query</text>'
        f'<text class="head" x="{RIGHT + 88}" y="{y}" text-anchor="end">unavailable</text>'
        f'<text class="head" x="{LEFT - 30}" y="{NODES_TOP + 12}" text-anchor="end">'
        "nodes alive</text>"
        f'<text class="head" x="{LEFT - 30}" y="{PLANS_Y + 4}" text-anchor="end">plans</text>'
    )


def _rows(
    report: Mapping[str, Any], events: Sequence[Event], names: Sequence[str], scale: TimeScale
) -> str:
    all_teeth = {name: teeth(report, events, name) for name in names}
    lag_max = max(
        (lag.worst(found, scale.start, scale.end) for found in all_teeth.values()), default=0.0
    )
    return "\n".join(
        draw_query(report, name, all_teeth[name], lag_max, scale, ROWS_TOP + n * ROW_PIXELS)
        for n, name in enumerate(names)
    )


def _plans(report: Mapping[str, Any], scale: TimeScale) -> str:
    """Numbered as in the table of plans; the run's first ones may lie before the picture."""
    marks, free_from = [], 0.0
    for number, plan in enumerate(report["plans"], start=1):
        if plan["at"] < scale.start:
            continue
        x = max(scale.x(plan["at"]), free_from)
        free_from = x + 19
        title = (
            f"Plan {number} at {report_text.seconds(plan['at'])} brings back "
            f"{', '.join(plan['queries']) or 'nothing'}"
        )
        marks.append(
            f'<g class="plan"><title>{escape(title)}</title>'
            f'<circle cx="{x:g}" cy="{PLANS_Y}" r="8.5"/>'
            f'<text x="{x:g}" y="{PLANS_Y + 3.6}">{number}</text></g>'
        )
    return "".join(marks)


ROW_PIXELS = 38
LAG_PIXELS = 17
BAR_PIXELS = 9
BAR_TOP = 24


def draw_query(
    report: Mapping[str, Any],
    query: str,
    lag_teeth: Sequence[Tooth],
    lag_max: float,
    scale: TimeScale,
    top: float,
) -> str:
    """Draw the row of a query with its upper edge at `top`; `lag_max` fills its height."""
    record = report["queries"][query]
    return "\n".join(
        (
            f'<g class="query" transform="translate(0 {top:g})">',
            _name(query, record, scale),
            _lag_area(lag_teeth, lag_max, scale),
            _bars(query, record, scale),
            _plan_marks(report, query, scale),
            _sum(record, scale),
            "</g>",
        )
    )


def teeth(report: Mapping[str, Any], events: Sequence[Event], query: str) -> tuple[Tooth, ...]:
    """Give the lag of a query from its commit events, for the eye only."""
    commits = [
        Commit(event.t, event.query_partition, event.epoch)
        for event in events
        if event.kind == "commit" and event.query == query
        if event.query_partition is not None and event.epoch is not None
    ]
    cuts = Cuts.of(
        (
            (event.epoch, float(event.extra.get("cut_at", event.t)))
            for event in events
            if event.kind == "cut" and event.query in (None, query) and event.epoch is not None
        ),
        final=next((event.epoch for event in events if event.kind == "finish"), None),
    )
    partitions = sorted({commit.query_partition for commit in commits})
    start = events[0].t if events else 0.0
    return lag.sawtooth(cuts, lag.progress(commits, partitions), start, report["end"])


def _name(query: str, record: Mapping[str, Any], scale: TimeScale) -> str:
    strength = 0.25 + 0.75 * min(1.0, record["priority"] / 10)
    shown = query if len(query) <= 25 else f"{query[:24]}…"
    return (
        f'<text class="name" x="44" y="{BAR_TOP + 8}">{escape(shown)}'
        f"<title>{escape(query)}</title></text>"
        f'<rect class="priority" x="2" y="{BAR_TOP - 7}" width="30" height="20" rx="10" '
        f'fill-opacity="{strength * 0.28:.2f}"/>'
        f'<text class="priority-value" x="17" y="{BAR_TOP + 7.5}">'
        f"{report_text.amount(record['priority'])}</text>"
        f'<line class="rule" x1="0" x2="{scale.right + 92:g}" y1="{ROW_PIXELS}" '
        f'y2="{ROW_PIXELS}"/>'
    )


def _lag_area(lag_teeth: Sequence[Tooth], lag_max: float, scale: TimeScale) -> str:
    shown = [tooth for tooth in lag_teeth if tooth.end > scale.start and tooth.start < scale.end]
    if not shown or lag_max <= 0:
        return ""
    base = BAR_TOP - 3
    points = [f"{scale.x(shown[0].start)},{base}"]
    for tooth in shown:
        begin, end = max(tooth.start, scale.start), min(tooth.end, scale.end)
        points += [
            f"{scale.x(t)},{base - LAG_PIXELS * min(1.0, (t - tooth.reference) / lag_max):.2f}"
            for t in (begin, end)
        ]
    points.append(f"{scale.x(shown[-1].end)},{base}")
    return f'<polygon class="lag" points="{" ".join(points)}"/>'


def _bars(query: str, record: Mapping[str, Any], scale: TimeScale) -> str:
    width = scale.right - scale.left
    whole = (
        f'<rect class="available" x="{scale.left:g}" y="{BAR_TOP}" width="{width:g}" '
        f'height="{BAR_PIXELS}" rx="2"><title>{escape(query)}: available</title></rect>'
    )
    return whole + "".join(
        _outage(query, start, end, scale) for start, end in record["unavailable"]
    )


def _outage(query: str, start: float, end: float, scale: TimeScale) -> str:
    left, right = scale.x(start), scale.x(end)
    title = f"{query}: unavailable from {report_text.interval(start, end)}"
    return (
        f'<rect class="unavailable" x="{left}" y="{BAR_TOP - 1}" '
        f'width="{max(1.5, right - left):.2f}" height="{BAR_PIXELS + 2}" rx="2">'
        f"<title>{escape(title)} ({report_text.seconds(end - start)})</title></rect>"
    )


def _plan_marks(report: Mapping[str, Any], query: str, scale: TimeScale) -> str:
    return "".join(
        f'<circle class="planned" cx="{scale.x(plan["at"])}" cy="{BAR_TOP + BAR_PIXELS / 2}" '
        f'r="3.4"><title>{escape(query)}: planned at {report_text.seconds(plan["at"])} '
        f"(plan {number})</title></circle>"
        for number, plan in enumerate(report["plans"], start=1)
        if plan["at"] >= scale.start and query in _queries_of(plan)
    )


def _queries_of(plan: Mapping[str, Any]) -> set[str]:
    """A plan may name query partitions, "QUERY/INDEX": those count for their query."""
    return {name for full in plan["queries"] for name in (full, full.rpartition("/")[0])}


def _sum(record: Mapping[str, Any], scale: TimeScale) -> str:
    value = record["unavailable_seconds"]
    kind = "sum" if value else "sum none"
    text = report_text.seconds(value) if value else "none"
    if record["unavailable"] and record["back_at"] is None:
        kind, text = "sum never", f"{text}+"
    return f'<text class="{kind}" x="{scale.right + 88:g}" y="{BAR_TOP + 8}">{text}</text>'
