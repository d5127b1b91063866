"""Figures, moments and states as the console writes them.

Plain text, not escaped: the templates do that. Moments are in UTC.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rekindle.coordination.application_status import Phase, QueryProgress
from rekindle.coordination.coordination_state import NodeStatus
from rekindle.coordination.session import Driver
from rekindle.model import sentences

NOTHING = "–"
LISTED_MAX = 12
TEXT_LENGTH_MAX = 600
# Classes of the style sheet.
MARKS: Mapping[Phase, str] = {
    Phase.LIVE: "live",
    Phase.CATCHING_UP: "behind",
    Phase.WAITING: "waiting",
    Phase.STOPPED: "stopped",
    Phase.FINISHED: "finished",
}
DRIVERS: Mapping[Driver, str] = {
    Driver.THERE: "is there",
    Driver.SILENT: "is silent",
    Driver.GONE: "is gone",
    Driver.FINISHED: "has finished",
}
NODES: Mapping[NodeStatus, str] = {
    NodeStatus.UP: "live",
    NodeStatus.SUSPECTED: "behind",
    NodeStatus.LOST: "waiting",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: where it begins and how long it is, in shares of 100."""

    mark: str
    begin: float
    length: float
    text: str


def duration(seconds: float | None) -> str:
    """A time that passed: 0.4 s, 12.3 s, 3 min 20 s, 2 h 5 min, 4 d 2 h."""
    if seconds is None:
        return NOTHING
    if seconds < 100:
        return f"{seconds:.1f}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours < 1:
        return f"{minutes}\u00a0min {rest}\u00a0s"
    days, hours_left = divmod(hours, 24)
    if days < 1:
        return f"{hours}\u00a0h {minutes_left}\u00a0min"
    return f"{days}\u00a0d {hours_left}\u00a0h"


def clock(moment: float | None, now: float) -> str:
    """The time of day of a moment (seconds since 1970), with the date unless it is today's."""
    if moment is None:
        return NOTHING
    at, today = (datetime.fromtimestamp(item, UTC) for item in (moment, now))
    form = "%H:%M:%S" if at.date() == today.date() else "%Y-%m-%d %H:%M:%S"
    return at.strftime(form)


def amount(value: float) -> str:
    """A number with groups of three digits and no needless decimals."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"


def override(query: QueryProgress, now: float) -> str:
    """Whether somebody has given a query another priority, and until when."""
    if query.priority == query.own_priority:
        return ""
    until = "" if query.until is None else f" until {clock(query.until, now)}"
    return f"by order{until}; its own is {query.own_priority:g}"


def beyond_goal(query: QueryProgress) -> str:
    """For how long a query was further behind than its goal; empty where it has none."""
    if query.beyond_goal_seconds is None:
        return ""
    return f"{duration(query.beyond_goal_seconds)} beyond {duration(query.lag_goal_seconds)}"


def percent(cpu: float) -> str:
    """CPU in percent of one core."""
    return sentences.percent(cpu).replace(" ", "\u00a0")


def share(value: float) -> str:
    """A share of 1 in percent."""
    return f"{100 * value:.0f}\u00a0%"


def clipped(text: str) -> str:
    """A text that somebody else has written, not too long."""
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]} …"


def listed(names: Sequence[str]) -> str:
    """Names in a line, not too many of them."""
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def bar(counts: Mapping[Phase, int]) -> tuple[Segment, ...]:
    """How many queries are in each state, as a bar; none where there is no query."""
    total = sum(counts.values())
    segments: list[Segment] = []
    begin = 0.0
    for phase, mark in MARKS.items():
        count = counts.get(phase, 0)
        if count:
            length = 100 * count / total
            segments.append(Segment(mark, round(begin, 2), round(length, 2), f"{count} {phase}"))
            begin += length
    return tuple(segments)
