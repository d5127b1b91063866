"""A picture of stacks: each frame as wide as what was spent in it and below, the callers on top.

    (role, outer, inner) -> spent  ──►  one row for each depth, frames side by side by name

Frames narrower than half a pixel are left out, the deepest rows too. `rekindle bench profile`
calls it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

from rekindle_cli.report_html import svg_picture
from rekindle_cli.report_html.timeline import PIXELS_PER_SIGN

WIDTH = 1160.0
ROW_PIXELS, ROWS_MAX = 18, 40
NARROWEST_PIXELS = 0.5
SIGNS_MIN = 3

STYLE = """
svg text { font-size: 11px; fill: var(--ink); }
svg .c0 { fill: var(--nodes); }
svg .c1 { fill: var(--lag); }
svg .c2 { fill: var(--available); }
svg .frame { stroke: var(--card); stroke-width: .6; }
""".strip()


@dataclass(slots=True)
class _Node:
    """A frame: what was spent in it and in all that it calls."""

    spent: float = 0.0
    calls: dict[str, "_Node"] = field(default_factory=dict)


def draw(stacks: Mapping[tuple[str, ...], float], *, eyebrow: str, headline: str, unit: str) -> str:
    """The text of an SVG file; `stacks` has frames, outermost first, and what was spent."""
    top = _Node()
    for stack, spent in stacks.items():
        top.spent += spent
        node = top
        for frame in stack[:ROWS_MAX]:
            node = node.calls.setdefault(frame, _Node())
            node.spent += spent
    scale = WIDTH / top.spent if top.spent else 0.0
    frames = list(_frames(top, 0.0, 0, scale, unit))
    depth = max((row for row, _ in frames), default=0) + 1
    description = (
        f'<title id="picture-title">{escape(headline)}</title>'
        f'<desc id="picture-text">Frames of stacks, as wide as what was spent in them: '
        f"{top.spent:.2f} {escape(unit)} in all.</desc>"
    )
    return svg_picture.framed(
        "\n".join(drawn for _, drawn in frames),
        width=WIDTH,
        height=depth * ROW_PIXELS,
        eyebrow=eyebrow,
        headline=headline,
        description=description,
        keys=[],
        marks_style=STYLE,
    )


def _frames(node: _Node, x: float, row: int, scale: float, unit: str) -> Iterator[tuple[int, str]]:
    """Row and drawing of each frame below a node that begins at `x`."""
    for name, call in sorted(node.calls.items()):
        width = call.spent * scale
        if width >= NARROWEST_PIXELS:
            yield row, _drawn(name, call.spent, x, row, width, unit)
            yield from _frames(call, x, row + 1, scale, unit)
        x += width


def _drawn(name: str, spent: float, x: float, row: int, width: float, unit: str) -> str:
    y, signs = row * ROW_PIXELS, int(width / PIXELS_PER_SIGN) - 1
    short = name if len(name) <= signs else name.rpartition(".")[2][: max(0, signs)]
    text = (
        f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(short)}</text>' if signs >= SIGNS_MIN else ""
    )
    return (
        f"<g><title>{escape(name)}: {spent:.3f} {escape(unit)}</title>"
        f'<rect class="frame {_colour(name)}" x="{x:.1f}" y="{y}" width="{width:.1f}" '
        f'height="{ROW_PIXELS}"/>{text}</g>'
    )


def _colour(name: str) -> str:
    """Ours, other Python, and names of operators and roles."""
    if name.startswith("rekindle"):
        return "c2"
    return "c1" if "." in name else "c0"
