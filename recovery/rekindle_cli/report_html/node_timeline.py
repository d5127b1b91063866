"""The nodes in the picture: how many are alive, and the moments at which they go and return.

Draws SVG fragments; `timeline` places rows and plans below them.
"""

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle.model import run_events
from rekindle.model.run_events import Event
from rekindle_cli.report_html import report_text, time_axis
from rekindle_cli.report_html.time_axis import TimeScale

LABELS_Y = 16
TOP = 26
HEIGHT = 58
BOTTOM = TOP + HEIGHT
PIXELS_PER_SIGN = 6.2
# Losses so close to each other are one event, as for the coordinator.
TOGETHER_SECONDS = 1.0

Loss = tuple[float, list[str]]


def draw(
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
    heights = [(t, BOTTOM - HEIGHT * count / total) for t, count in steps]
    line: list[str] = [f"{scale.left:g},{heights[0][1]:.2f}"]
    for (_, before), (t, after) in itertools.pairwise(heights):
        line += [f"{scale.x(t)},{before:.2f}", f"{scale.x(t)},{after:.2f}"]
    line.append(f"{scale.right:g},{heights[-1][1]:.2f}")
    area = [f"{scale.left:g},{BOTTOM}", *line, f"{scale.right:g},{BOTTOM}"]
    told = "".join(f", {count} from {report_text.seconds(t)}" for t, count in steps[1:])
    return (
        f'<polygon class="nodes" points="{" ".join(area)}">'
        f"<title>{total} nodes{told}</title></polygon>"
        f'<polyline class="nodes-line" points="{" ".join(line)}"/>'
        f'<text class="tick" x="{scale.left - 12:g}" y="{TOP + 8}">{total}</text>'
        f'<text class="tick" x="{scale.left - 12:g}" y="{BOTTOM}">0</text>'
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
