"""When the machine of a run could not give the CPU that the run's processes were ready to use.

Takes the `machine` events of a run, each about the time since the one before; pure. A node that
has used up its quota waits as well, but not for the machine: whoever writes the events has told
that apart (docs/report.md). `report_figures` calls `measure`, the demo's display `is_limited`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report import lag

# With more of its CPU at rest a machine is not the limit, whatever waits.
IDLE_SHARE_MAX = 0.1
# Of the time in which processes want a CPU, what they wait for one; below it they hardly notice.
WAITING_SHARE_MIN = 0.25

Record = Mapping[str, Any]


def is_limited(sample: Record) -> bool:
    """Whether the machine was the limit in the time of one `machine` record.

    Its CPU was used up, or its own limit was reached, and processes of the run waited. Where the
    kernel does not tell how long they waited, the CPU alone decides.
    """
    idle, waiting = sample.get("idle_share"), sample.get("waiting_share")
    used_up = idle is not None and idle <= IDLE_SHARE_MAX
    waits = waiting is None or waiting >= WAITING_SHARE_MIN
    return (used_up or bool(sample.get("outer_throttled"))) and waits


def measure(events: Sequence[Event]) -> dict[str, Any] | None:
    """Give what `report.json` says as `machine_limit`; None where a run has not measured it.

    From the `warm` event on: `seconds` of `of_seconds`, the `intervals` (s), and the cores that
    other programs used in them, in the mean. Raises InputError for an event without a length.
    """
    warm = run_events.last(events, "warm")
    since = warm.t if warm is not None else 0.0
    samples = [event for event in run_events.of_kind(events, "machine") if event.t > since]
    if not samples:
        return None
    limited = [event for event in samples if is_limited(event.extra)]
    seconds = sum(_seconds(event) for event in limited)
    others = sum(_seconds(event) * float(event.extra.get("other_cores", 0)) for event in limited)
    return {
        "seconds": seconds,
        "of_seconds": sum(_seconds(event) for event in samples),
        "intervals": [list(interval) for interval in _joined(limited, since)],
        "cores": samples[-1].extra.get("cores"),
        "other_cores": others / seconds if seconds else 0.0,
    }


def _joined(limited: Sequence[Event], since: float) -> list[lag.Interval]:
    intervals: list[lag.Interval] = []
    for event in limited:
        begin = round(max(since, event.t - _seconds(event)), 6)
        # samples follow each other, but for the time that taking one takes
        if intervals and begin - intervals[-1][1] < 0.5 * _seconds(event):
            intervals[-1] = (intervals[-1][0], event.t)
        else:
            intervals.append((begin, event.t))
    return intervals


def _seconds(event: Event) -> float:
    seconds = event.extra.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(
            where="events.jsonl: machine: seconds",
            what=f"is {seconds!r}, not above 0",
            remedy="restore the file from the run, or run the demo again",
        )
    return float(seconds)
