"""Pictures of figures that are no run: curves of a study, and outages with their intervals.

    curves    panels beside each other, x and y from 0 to 1, a line for each name and variant
    intervals a row for each query, a mark at the mean and a line over the interval for each name

Each gives the text of an SVG file, as `svg_picture` does. `rekindle simulate` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rekindle_cli.report_html import report_style, svg_picture, time_axis
from rekindle_cli.report_html.time_axis import TimeScale

PANEL_WIDTH, PANEL_HEIGHT, PANEL_GAP = 320, 260, 60
PANEL_LEFT, PANEL_TOP = 40, 30
ROW_PIXELS, ROWS_LEFT, ROWS_RIGHT, ROWS_WIDTH = 16, 240, 1080, 1120
AXIS_PIXELS = 34
COLOURS = 4


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A curve of `name` in a panel; `variant` is what it was measured on."""

    panel: str
    name: str
    variant: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Span:
    """Of one row and name: the mean, and from where to where most of it lies."""

    row: str
    name: str
    mean: float
    low: float
    high: float


def curves(lines: Sequence[ChartLine], *, eyebrow: str, headline: str, text: str) -> str:
    """Panels in the order of their lines; the second variant of a panel is dashed."""
    panels = list(dict.fromkeys(line.panel for line in lines))
    names = list(dict.fromkeys(line.name for line in lines))
    drawn = []
    for number, panel in enumerate(panels):
        there = [line for line in lines if line.panel == panel]
        x = PANEL_LEFT + number * (PANEL_WIDTH + PANEL_GAP)
        drawn.append(f'<g transform="translate({x} {PANEL_TOP})">{_panel(panel, there, names)}</g>')
    return svg_picture.framed(
        "\n".join(drawn),
        width=PANEL_LEFT + len(panels) * (PANEL_WIDTH + PANEL_GAP),
        height=PANEL_TOP + PANEL_HEIGHT + 2 * AXIS_PIXELS,
        eyebrow=eyebrow,
        headline=headline,
        description=_description(headline, text),
        keys=[(_key(index), name) for index, name in enumerate(names)],
        marks_style=report_style.CHART_MARKS,
    )


def intervals(
    spans: Sequence[Span], *, eyebrow: str, headline: str, text: str, unit: str = "s"
) -> str:
    """Rows in the order of their first spans, on one scale from 0."""
    rows = list(dict.fromkeys(span.row for span in spans))
    names = list(dict.fromkeys(span.name for span in spans))
    most = max((span.high for span in spans), default=0.0)
    scale = TimeScale(0.0, max(most, 1.0), ROWS_LEFT, ROWS_RIGHT)
    row_height = ROW_PIXELS * len(names) + 10
    bottom = len(rows) * row_height
    drawn = [
        f'<line class="grid" x1="{scale.x(at)}" x2="{scale.x(at)}" y1="0" y2="{bottom}"/>'
        f'<text class="tick" text-anchor="middle" x="{scale.x(at)}" y="{bottom + 20}">'
        f"{at:g} {unit}</text>"
        for at in time_axis.ticks(scale)
    ]
    for number, row in enumerate(rows):
        y = number * row_height + row_height / 2
        drawn.append(f'<text class="name" x="0" y="{y + 4:g}">{escape(row)}</text>')
    for span in spans:
        y = rows.index(span.row) * row_height + ROW_PIXELS * (names.index(span.name) + 0.5) + 5
        drawn.append(_span(span, scale, y, names.index(span.name), unit))
    return svg_picture.framed(
        "\n".join(drawn),
        width=ROWS_WIDTH,
        height=bottom + AXIS_PIXELS,
        eyebrow=eyebrow,
        headline=headline,
        description=_description(headline, text),
        keys=[(_key(index), name) for index, name in enumerate(names)],
        marks_style=report_style.CHART_MARKS,
    )


def _span(span: Span, scale: TimeScale, y: float, index: int, unit: str) -> str:
    said = f"{span.name}: {span.mean:.1f} {unit} ({span.low:.1f} to {span.high:.1f})"
    return (
        f'<g class="c{index % COLOURS}"><title>{escape(said)}</title>'
        f'<line class="line" x1="{scale.x(span.low)}" x2="{scale.x(span.high)}" '
        f'y1="{y:g}" y2="{y:g}"/>'
        f'<circle cx="{scale.x(span.mean)}" cy="{y:g}" r="4"/></g>'
    )


def _panel(title: str, lines: Sequence[ChartLine], names: Sequence[str]) -> str:
    variants = list(dict.fromkeys(line.variant for line in lines))
    parts = [f'<text class="name" x="0" y="-12">{escape(_titled(title, variants))}</text>']
    for tenth in range(0, 11, 2):
        at = tenth / 10
        x, y = round(at * PANEL_WIDTH, 1), round((1 - at) * PANEL_HEIGHT, 1)
        parts.append(
            f'<line class="grid" x1="0" x2="{PANEL_WIDTH}" y1="{y}" y2="{y}"/>'
            f'<text class="tick" text-anchor="end" x="-8" y="{y + 4}">{at:.0%}</text>'
            f'<text class="tick" text-anchor="middle" x="{x}" y="{PANEL_HEIGHT + 18}">{at:.0%}'
            "</text>"
        )
    for line in lines:
        # names that agree lie upon each other: the earlier ones are drawn over the later
        parts.insert(1, _line(line, names.index(line.name), variants.index(line.variant)))
    return "\n".join(parts)


def _line(line: ChartLine, index: int, variant: int) -> str:
    pixels = [(round(x * PANEL_WIDTH, 1), round((1 - y) * PANEL_HEIGHT, 1)) for x, y in line.points]
    path = " ".join(f"{x},{y}" for x, y in pixels)
    dots = "".join(
        f'<circle class="c{index % COLOURS} hollow" cx="{x}" cy="{y}" r="{2.5 + 1.5 * index}"/>'
        for x, y in pixels
    )
    dashed = " second" if variant else ""
    return (
        f"<g><title>{escape(f'{line.name}, {line.variant}')}</title>"
        f'<polyline class="line c{index % COLOURS}{dashed}" points="{path}"/>{dots}</g>'
    )


def _titled(title: str, variants: Sequence[str]) -> str:
    return f"{title}: {variants[0]}" + "".join(f"; dashed {name}" for name in variants[1:])


def _key(index: int) -> str:
    return f'<line class="line c{index % COLOURS}" x1="0" x2="20" y1="0" y2="0"/>'


def _description(headline: str, text: str) -> str:
    return (
        f'<title id="picture-title">{escape(headline)}</title>\n'
        f'<desc id="picture-text">{escape(text)}</desc>'
    )
