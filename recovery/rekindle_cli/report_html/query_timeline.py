"""The rows of the picture, one per query: name, priority, lag, bar and plans.

Draws SVG fragments; `timeline` places them.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle.model.run_events import Event
from rekindle.report import lag
from rekindle.report.lag import Commit, Cuts, Tooth
from rekindle_cli.report_html import report_text
from rekindle_cli.report_html.time_axis import TimeScale

ROW_PIXELS = 38
LAG_PIXELS = 17
BAR_PIXELS = 9
BAR_TOP = 24


def draw(
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
