"""The picture alone, as an SVG file: with its colours, a headline and the key to its marks.

Light and dark by the reader's preference, as the page; nothing from outside. For documents: the
end-to-end scenarios call it.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle import page_style
from rekindle.model.run_events import Event
from rekindle_cli.report_html import report_style, report_text, timeline
from rekindle_cli.report_html.timeline import PIXELS_PER_SIGN

MARGIN = 24
HEAD = 118
KEYS_Y = 94

# What only the file has.
OWN = """
svg { font-family: var(--font); }
svg .ground { fill: var(--card); stroke: var(--rule); }
svg .eyebrow { font-size: 13px; font-weight: 650; fill: var(--unavailable); }
svg .headline { font-size: 22px; font-weight: 680; }
svg .key { fill: var(--soft); }
""".strip()

# The marks of the key, each in 20 pixels around a middle at 0.
SHAPES: Mapping[str, str] = {
    "available": '<rect class="available" y="-5" width="20" height="9" rx="2"/>',
    "unavailable": '<rect class="unavailable" y="-5" width="20" height="9" rx="2"/>',
    "lag": '<polygon class="lag" points="0,5 20,5 20,-7"/>',
    "planned": '<circle class="planned" cx="10" r="3.4"/>',
    "returned": '<line class="returned" x1="10" x2="10" y1="-8" y2="7"/>',
    "kill": '<line class="kill" x1="10" x2="10" y1="-8" y2="7"/>',
}


def draw(report: Mapping[str, Any], events: Sequence[Event], name: str) -> str:
    """Draw a report (as in `report.json`) of the run `name` with its events; the file's text."""
    return framed(
        timeline.marks(report, events),
        width=timeline.WIDTH,
        height=timeline.height(report),
        eyebrow=name,
        headline=report_text.headline(report),
        description=timeline.description(report),
        keys=[(SHAPES[mark], text) for mark, text in timeline.KEYS],
    )


def framed(
    marks: str,
    *,
    width: float,
    height: float,
    eyebrow: str,
    headline: str,
    description: str,
    keys: Sequence[tuple[str, str]],
    marks_style: str = report_style.MARKS,
) -> str:
    """The text of an SVG file around marks of so many pixels. `description` is its `<title>` and
    `<desc>`; `keys` are shapes with what they mean."""
    width, height = width + 2 * MARGIN, height + HEAD + MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            'role="img" aria-labelledby="picture-title picture-text">',
            description,
            f"<style>\n{page_style.VARIABLES}\n{marks_style}\n{OWN}\n</style>",
            f'<rect class="ground" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" '
            'rx="12"/>',
            f'<g transform="translate({MARGIN} 0)">',
            f'<text class="eyebrow" y="34">{escape(eyebrow)}</text>',
            f'<text class="headline" y="64">{escape(headline)}</text>',
            _keys(keys),
            f'<g transform="translate(0 {HEAD})">',
            marks,
            "</g>",
            "</g>",
            "</svg>",
            "",
        )
    )


def _keys(keys: Sequence[tuple[str, str]]) -> str:
    x, drawn = 0.0, []
    for shape, text in keys:
        drawn.append(
            f'<g transform="translate({x:.1f} {KEYS_Y})">{shape}'
            f'<text class="key" x="28" y="4">{escape(text)}</text></g>'
        )
        x += 28 + len(text) * PIXELS_PER_SIGN + 22
    return "\n".join(drawn)
