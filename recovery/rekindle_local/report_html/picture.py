"""The picture alone, as an SVG file: with its colours, a headline and the key to its marks.

Light and dark by the reader's preference, as the page; nothing from outside. For documents: the
end-to-end scenarios call it.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle.events import Event
from rekindle_local.report_html import style, timeline, words
from rekindle_local.report_html.nodes import PIXELS_PER_SIGN

__all__ = ["draw"]

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
    width = timeline.WIDTH + 2 * MARGIN
    height = timeline.height(report) + HEAD + MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-labelledby="picture-title picture-text">',
            timeline.description(report),
            f"<style>\n{style.VARIABLES}\n{style.MARKS}\n{OWN}\n</style>",
            f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" '
            'rx="12"/>',
            f'<g transform="translate({MARGIN} 0)">',
            f'<text class="eyebrow" y="34">{escape(name)}</text>',
            f'<text class="headline" y="64">{escape(words.headline(report))}</text>',
            _keys(),
            f'<g transform="translate(0 {HEAD})">',
            timeline.marks(report, events),
            "</g>",
            "</g>",
            "</svg>",
            "",
        )
    )


def _keys() -> str:
    x, drawn = 0.0, []
    for mark, text in timeline.KEYS:
        drawn.append(
            f'<g transform="translate({x:.1f} {KEYS_Y})">{SHAPES[mark]}'
            f'<text class="key" x="28" y="4">{escape(text)}</text></g>'
        )
        x += 28 + len(text) * PIXELS_PER_SIGN + 22
    return "\n".join(drawn)
