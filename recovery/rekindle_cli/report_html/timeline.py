"""The picture: nodes alive on top, plans below them, then a row per query by priority.

Time runs from 20 s before the failure to the end of the run. An SVG drawn by hand, coloured by
the page's style sheet, with a title on every mark. `render` calls it, and `svg_picture` for a file.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle.model.run_events import Event
from rekindle.report import lag
from rekindle_cli.report_html import node_timeline, query_timeline, report_text, time_axis
from rekindle_cli.report_html.time_axis import TimeScale

BEFORE_SECONDS = 20.0
WIDTH = 1120
LEFT = 232
RIGHT = 1020
PLANS_Y = node_timeline.BOTTOM + 26
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
            node_timeline.draw(report, events, scale, bottom),
            _heads(),
            _rows(report, events, names, scale),
            _plans(report, scale),
            node_timeline.kills(events, scale, bottom),
        )
    )


def height(report: Mapping[str, Any]) -> int:
    """Give the picture's pixels from top to bottom."""
    return ROWS_TOP + len(report["queries"]) * query_timeline.ROW_PIXELS + AXIS_PIXELS


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
        f'<text class="head" x="{LEFT - 30}" y="{node_timeline.TOP + 12}" text-anchor="end">'
        "nodes alive</text>"
        f'<text class="head" x="{LEFT - 30}" y="{PLANS_Y + 4}" text-anchor="end">plans</text>'
    )


def _rows(
    report: Mapping[str, Any], events: Sequence[Event], names: Sequence[str], scale: TimeScale
) -> str:
    teeth = {name: query_timeline.teeth(report, events, name) for name in names}
    lag_max = max(
        (lag.worst(found, scale.start, scale.end) for found in teeth.values()), default=0.0
    )
    return "\n".join(
        query_timeline.draw(
            report, name, teeth[name], lag_max, scale, ROWS_TOP + n * query_timeline.ROW_PIXELS
        )
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
