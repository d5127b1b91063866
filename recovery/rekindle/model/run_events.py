"""The events of one run: one JSON object per line, times in seconds since the failure.

Reads and writes the lines of `events.jsonl` (DESIGN 9, docs/report.md); opens no file and draws
no conclusion. The demo turns its processes' records, which carry wall-clock time `at`, into
events with `relative`; `report` and `verification` read them.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.errors import InputError

VERSION = 1

NUMBERS = ("generation", "plan_epoch", "epoch")
NAMES = ("query", "query_partition", "executor", "node")

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "kill": ("node",),
    "returned": ("node",),
    "plan": ("plan_epoch", "queries", "n"),
    "ack": ("plan_epoch", "epoch"),
    "cut": ("epoch",),
    "commit": ("query", "query_partition", "epoch"),
    "statistics": ("costs", "placement"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened `t` seconds after the failure (before it: negative).

    `extra` holds the fields that only this kind has, as they stand in the JSON.
    """

    t: float
    kind: str
    generation: int | None = None
    plan_epoch: int | None = None
    epoch: int | None = None
    query: str | None = None
    query_partition: str | None = None
    executor: str | None = None
    node: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def relative(records: Iterable[Mapping[str, Any]], failure_at: float) -> tuple[Event, ...]:
    """Turn records with wall-clock `at` (epoch seconds) into events, in order of time.

    `failure_at` is the wall-clock time of the kill. `cut_at` of cuts is converted as well. Times
    are rounded to microseconds, so that events read back from disk are equal to these.
    """
    events = []
    for number, record in enumerate(records, start=1):
        where = f"event records: record {number}"
        converted = {**record, "t": round(_time(record, "at", where) - failure_at, 6)}
        if "cut_at" in record:
            converted["cut_at"] = round(_time(record, "cut_at", where) - failure_at, 6)
        events.append(_event(converted, where))
    return tuple(sorted(events, key=lambda event: event.t))


def parse(text: str, where: str = "events.jsonl") -> tuple[Event, ...]:
    """Read the lines of an events file, in order of time; InputError names a bad line."""
    lines = [line for line in text.splitlines() if line.strip()]
    events = [
        _event(_record(line, place), place)
        for place, line in ((f"{where}: line {n}", line) for n, line in enumerate(lines, 1))
    ]
    return tuple(sorted(events, key=lambda event: event.t))


def serialize(events: Iterable[Event]) -> str:
    """Write events as lines of JSON, one each, ending in a newline."""
    return "".join(json.dumps(_as_record(event)) + "\n" for event in events)


def of_kind(events: Iterable[Event], *kinds: str) -> tuple[Event, ...]:
    """Give the events of these kinds, in their order."""
    return tuple(event for event in events if event.kind in kinds)


def last(events: Sequence[Event], kind: str, until: float = math.inf) -> Event | None:
    """Give the newest event of a kind at or before `until`, or None."""
    found = [event for event in events if event.kind == kind and event.t <= until]
    return found[-1] if found else None


def _record(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_once)
    except ValueError as error:
        raise _bad(where, f"is no JSON ({error})") from error
    if not isinstance(record, dict):
        raise _bad(where, "is no JSON object")
    if record.get("version") != VERSION:
        raise _bad(where, f"has version {record.get('version')!r}, known is {VERSION}")
    return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key is twice: Python keeps the last one without a word."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(k for k in keys if keys.count(k) > 1)!r:.60} is there twice")
    return record


def _event(record: Mapping[str, Any], where: str) -> Event:
    kind = record.get("kind")
    if not isinstance(kind, str):
        raise _bad(where, "has no kind")
    missing = [name for name in REQUIRED.get(kind, ()) if record.get(name) is None]
    if missing:
        raise _bad(where, f"is a {kind} event without {', '.join(missing)}")
    _check_types(record, where)
    if "cut_at" in record:
        _time(record, "cut_at", where)
    known = {"version", "t", "at", "kind", *NUMBERS, *NAMES}
    return Event(
        t=_time(record, "t", where),
        kind=kind,
        **{name: record.get(name) for name in (*NUMBERS, *NAMES)},
        extra={name: value for name, value in record.items() if name not in known},
    )


def _check_types(record: Mapping[str, Any], where: str) -> None:
    for names, kind, words in ((NUMBERS, int, "a whole number"), (NAMES, str, "a string")):
        for name in names:
            value = record.get(name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise _bad(where, f"{name} is {value!r}, not {words}")


def _time(record: Mapping[str, Any], name: str, where: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad(where, f"{name} is {value!r}, not a time in seconds")
    return float(value)


def _as_record(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = {"version": VERSION, "t": event.t, "kind": event.kind}
    for name in (*NUMBERS, *NAMES):
        if (value := getattr(event, name)) is not None:
            record[name] = value
    return record | dict(event.extra)


def _bad(where: str, what: str) -> InputError:
    return InputError(
        where=where, what=what, remedy="restore the file from the run, or run the demo again"
    )
