"""The picture: nodes alive on top, plans below them, then a row per query by priority.

Time runs from 20 s before the failure to the end of the run. An SVG drawn by hand, coloured by
the page's style sheet, with a title on every mark. `render` calls it.
"""

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle import lag
from rekindle.events import Event
from rekindle_local.report_html import axis, rows, words
from rekindle_local.report_html.axis import Scale

__all__ = ["draw", "legend"]

BEFORE_SECONDS = 20.0
WIDTH = 1120
LEFT = 232
RIGHT = 1020
LABELS_Y = 16
NODES_TOP = 26
NODES_PIXELS = 58
PLANS_Y = NODES_TOP + NODES_PIXELS + 26
ROWS_TOP = PLANS_Y + 32
AXIS_PIXELS = 34
PIXELS_PER_SIGN = 6.2


def draw(report: Mapping[str, Any], events: Sequence[Event]) -> str:
    """Draw the whole picture."""
    scale = Scale(-BEFORE_SECONDS, max(report["end"], 1.0), LEFT, RIGHT)
    names = words.by_priority(report)
    bottom = ROWS_TOP + len(names) * rows.ROW_PIXELS
    title = f"Availability of {len(names)} queries, {words.headline(report)}"
    return "\n".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {bottom + AXIS_PIXELS}" role="img" '
            'aria-labelledby="picture-title picture-text" xmlns="http://www.w3.org/2000/svg">',
            f'<title id="picture-title">{escape(title)}</title>',
            f'<desc id="picture-text">{escape(words.story(report))}</desc>',
            _grid(scale, bottom),
            _nodes(report, events, scale),
            _moments(report, scale, bottom),
            _heads(),
            _rows(report, events, names, scale),
            _plans(report, scale),
            _kill(report, scale, bottom),
            "</svg>",
        )
    )


def legend() -> str:
    """Give the key to the picture."""
    return (
        '<p class="legend"><span><i class="key available"></i>available</span>'
        '<span><i class="key unavailable"></i>unavailable: lag above its limit</span>'
        '<span><i class="key lag"></i>lag, one scale for all</span>'
        '<span><i class="key planned"></i>planned</span>'
        '<span><i class="key returned"></i>node returned</span>'
        '<span><i class="key kill"></i>failure</span></p>'
    )


def _grid(scale: Scale, bottom: float) -> str:
    lines = "".join(
        f'<line class="grid" x1="{scale.x(t)}" x2="{scale.x(t)}" y1="{ROWS_TOP}" '
        f'y2="{bottom}"/><text class="tick" x="{scale.x(t)}" y="{bottom + 20}">{t:g}</text>'
        for t in axis.ticks(scale)
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
    report: Mapping[str, Any], events: Sequence[Event], names: Sequence[str], scale: Scale
) -> str:
    teeth = {name: rows.teeth(report, events, name) for name in names}
    lag_max = max(
        (lag.worst(found, scale.start, scale.end) for found in teeth.values()), default=0.0
    )
    return "\n".join(
        rows.draw(report, name, teeth[name], lag_max, scale, ROWS_TOP + n * rows.ROW_PIXELS)
        for n, name in enumerate(names)
    )


def _nodes(report: Mapping[str, Any], events: Sequence[Event], scale: Scale) -> str:
    steps = _alive(report, events)
    total, base = report["nodes"], NODES_TOP + NODES_PIXELS
    heights = [(t, base - NODES_PIXELS * count / total) for t, count in steps]
    line: list[str] = [f"{scale.left:g},{heights[0][1]:.2f}"]
    for (_, before), (t, after) in itertools.pairwise(heights):
        line += [f"{scale.x(t)},{before:.2f}", f"{scale.x(t)},{after:.2f}"]
    line.append(f"{scale.right:g},{heights[-1][1]:.2f}")
    area = [f"{scale.left:g},{base}", *line, f"{scale.right:g},{base}"]
    told = ", ".join(f"{count} from {words.seconds(t)}" for t, count in steps[1:])
    return (
        f'<polygon class="nodes" points="{" ".join(area)}">'
        f"<title>{total} nodes, {told}</title></polygon>"
        f'<polyline class="nodes-line" points="{" ".join(line)}"/>'
        f'<text class="tick" x="{LEFT - 12}" y="{NODES_TOP + 8}">{total}</text>'
        f'<text class="tick" x="{LEFT - 12}" y="{base}">0</text>'
        f"{_counts(heights, steps, scale)}"
    )


def _counts(
    heights: Sequence[tuple[float, float]], steps: Sequence[tuple[float, int]], scale: Scale
) -> str:
    ends = [*(t for t, _ in steps[1:]), scale.end]
    return "".join(
        f'<text class="count" x="{(scale.x(t) + scale.x(end)) / 2:.2f}" y="{y + 14:.2f}">'
        f"{count}</text>"
        for (t, y), (_, count), end in zip(heights, steps, ends, strict=True)
        if count and scale.x(end) - scale.x(t) > 3 * PIXELS_PER_SIGN
    )


def _alive(report: Mapping[str, Any], events: Sequence[Event]) -> list[tuple[float, int]]:
    """Give (t, nodes alive from t on); kills of one moment are one step."""
    alive = {f"node {n}" for n in range(report["nodes"] - report["killed"])}
    alive |= set(report["victims"])
    steps = {-BEFORE_SECONDS: report["nodes"]}
    for event in events:
        if event.kind == "kill":
            alive.discard(str(event.node))
        elif event.kind == "returned" and event.t >= 0:
            alive.add(str(event.node))
        else:
            continue
        steps[round(event.t, 1)] = len(alive)
    return sorted(steps.items())


def _moments(report: Mapping[str, Any], scale: Scale, bottom: float) -> str:
    nodes = [entry["node"] for entry in report["returns"]]
    short = words.short_names([*nodes, *report["victims"]])
    lines = "".join(
        f'<line class="returned" x1="{scale.x(entry["at"])}" x2="{scale.x(entry["at"])}" '
        f'y1="{LABELS_Y + 4}" y2="{bottom}"><title>{escape(entry["node"])} returned at '
        f"{words.seconds(entry['at'])}</title></line>"
        for entry in report["returns"]
    )
    labels = axis.spread(
        ((scale.x(entry["at"]), f"+{short[entry['node']]}") for entry in report["returns"]),
        PIXELS_PER_SIGN,
    )
    return lines + "".join(
        f'<text class="node" x="{x}" y="{LABELS_Y}">{escape(text)}</text>' for x, text in labels
    )


def _plans(report: Mapping[str, Any], scale: Scale) -> str:
    marks, free_from = [], 0.0
    for number, plan in enumerate(report["plans"], start=1):
        x = max(scale.x(plan["at"]), free_from)
        free_from = x + 19
        title = (
            f"Plan {number} at {words.seconds(plan['at'])} brings back "
            f"{', '.join(plan['queries']) or 'nothing'}"
        )
        marks.append(
            f'<g class="plan"><title>{escape(title)}</title>'
            f'<circle cx="{x:g}" cy="{PLANS_Y}" r="8.5"/>'
            f'<text x="{x:g}" y="{PLANS_Y + 3.6}">{number}</text></g>'
        )
    return "".join(marks)


def _kill(report: Mapping[str, Any], scale: Scale, bottom: float) -> str:
    x = scale.x(0.0)
    text = f"{report['killed']} nodes killed"
    return (
        f'<line class="kill" x1="{x}" x2="{x}" y1="{LABELS_Y + 4}" y2="{bottom}">'
        f"<title>{text}</title></line>"
        f'<text class="kill-label" x="{x - 5:g}" y="{LABELS_Y}">{text}</text>'
    )
