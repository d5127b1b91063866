"""A picture of several systems in the same failure: how far the output of each is behind.

One line over time for each system; the failures are lines from top to bottom. Gives the text of an
SVG file, as `picture` does. `rekindle bench recovery` calls it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rekindle_cli.report_html import report_style, svg_picture, time_axis
from rekindle_cli.report_html.time_axis import TimeScale

LEFT, RIGHT, WIDTH, HEIGHT, AXIS_PIXELS = 56, 1080, 1120, 380, 40
COLOURS = 5
STYLE = "\n".join(
    (
        report_style.CHART_MARKS,
        "svg .c4 { stroke: var(--nodes-line); } svg .line.c4 { fill: none; }",
        "svg .kill { stroke: var(--kill); stroke-width: 1.6; }",
    )
)


@dataclass(frozen=True, slots=True)
class Curve:
    """The lag of a system, `points` of (seconds since the failure, seconds of lag)."""

    name: str
    points: Sequence[tuple[float, float]]


def draw(curves: Sequence[Curve], failures: Sequence[float], *, eyebrow: str, headline: str) -> str:
    """The file's text; at least one curve has points."""
    times = [t for curve in curves for t, _ in curve.points]
    most = max(value for curve in curves for _, value in curve.points)
    scale = TimeScale(min(times), max(times), LEFT, RIGHT)
    upright = TimeScale(0.0, max(most, 1.0) * 1.05, HEIGHT, 0)
    drawn = [_upright_grid(upright), _grid(scale)]
    drawn += [
        f'<line class="kill" x1="{scale.x(t)}" x2="{scale.x(t)}" y1="0" y2="{HEIGHT}"/>'
        for t in failures
    ]
    drawn += [_line(curve, index, scale, upright) for index, curve in enumerate(curves)]
    title, text = escape(headline), escape(_told(curves))
    return svg_picture.framed(
        "\n".join(drawn),
        width=WIDTH,
        height=HEIGHT + AXIS_PIXELS,
        eyebrow=eyebrow,
        headline=headline,
        description=f'<title id="picture-title">{title}</title>\n'
        f'<desc id="picture-text">{text}</desc>',
        keys=[(_key(index), curve.name) for index, curve in enumerate(curves)],
        marks_style=STYLE,
    )


def _upright_grid(upright: TimeScale) -> str:
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{upright.x(value)}" '
        f'y2="{upright.x(value)}"/><text class="tick" text-anchor="end" x="{LEFT - 8}" '
        f'y="{upright.x(value) + 4:g}">{value:g} s</text>'
        for value in time_axis.ticks(upright)
    )


def _grid(scale: TimeScale) -> str:
    return "".join(
        f'<line class="grid" x1="{scale.x(t)}" x2="{scale.x(t)}" y1="0" y2="{HEIGHT}"/>'
        f'<text class="tick" text-anchor="middle" x="{scale.x(t)}" y="{HEIGHT + 20}">{t:g} s'
        "</text>"
        for t in time_axis.ticks(scale)
    )


def _line(curve: Curve, index: int, scale: TimeScale, upright: TimeScale) -> str:
    path = " ".join(f"{scale.x(t)},{upright.x(value)}" for t, value in curve.points)
    return (
        f"<g><title>{escape(curve.name)}</title>"
        f'<polyline class="line c{index % COLOURS}" points="{path}"/></g>'
    )


def _key(index: int) -> str:
    return f'<line class="line c{index % COLOURS}" x1="0" x2="20" y1="0" y2="0"/>'


def _told(curves: Sequence[Curve]) -> str:
    peaks = (
        f"{curve.name} lags {max((value for _, value in curve.points), default=math.nan):.0f} s at "
        "most"
        for curve in curves
    )
    return f"Lag of the output, mean over the queries weighted by priority: {'; '.join(peaks)}."
