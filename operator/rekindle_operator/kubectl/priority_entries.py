"""Entries of spec.priorities under the plugin's own field manager.

Every apply says all that the manager wants, so what it has must be said again with what is new;
what has expired is left out, and so removed. What others have is never said, and so never touched.
Pure; the command `priority` applies the outcome.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.recovery_policy import QueryPriority
from rekindle_operator.kubectl.durations import stamp
from rekindle_operator.kubectl.server_side_apply import Record, bare, items_of

MANAGER = "kubectl-rekindle-priority"
PRIORITY_MIN, PRIORITY_MAX = 1, 10
QUERY_LENGTH_MAX = 200


def parse(text: str, until: datetime | None) -> QueryPriority:
    """`QUERY=PRIORITY`; InputError for anything else."""
    query, _, number = text.rpartition("=")
    if not query or len(query) > QUERY_LENGTH_MAX or not number.strip().isdecimal():
        raise _unreadable(text, "is not QUERY=PRIORITY")
    priority = int(number)
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise _unreadable(text, f"{priority} is no priority")
    return QueryPriority(query=query, priority=priority, until=until)


def kept(record: Record, now: datetime) -> tuple[tuple[QueryPriority, ...], tuple[str, ...]]:
    """The manager's entries that hold, and the queries of those that have expired."""
    own = items_of(record, MANAGER, "query", "spec", "priorities")
    entries = recovery_policy.from_object(record).spec.priorities
    mine = [entry for entry in entries if entry.query in own]
    held = tuple(entry for entry in mine if entry.until is None or now < entry.until)
    return held, tuple(entry.query for entry in mine if entry not in held)


def part(record: Record, entries: Iterable[QueryPriority]) -> dict[str, Any]:
    """What to apply, so that the manager has these entries and no others.

    With the object's version: who has changed it meanwhile is not overwritten.
    """
    written = [_written(entry) for entry in entries]
    body = bare(record)
    if written:
        body["spec"] = {"priorities": written}
    return body


def owners(record: Record) -> dict[str, tuple[str, ...]]:
    """By query, the managers that have its entry."""
    found: dict[str, list[str]] = {}
    managers = {entry.get("manager") for entry in record["metadata"].get("managedFields") or ()}
    for manager in sorted(str(name) for name in managers):
        for query in items_of(record, manager, "query", "spec", "priorities"):
            found.setdefault(query, []).append(manager)
    return {query: tuple(names) for query, names in found.items()}


def shown(record: Record) -> tuple[QueryPriority, ...]:
    """All entries of a policy, the most important first."""
    entries = recovery_policy.from_object(record).spec.priorities
    return tuple(sorted(entries, key=lambda entry: (-entry.priority, entry.query)))


def _written(entry: QueryPriority) -> dict[str, Any]:
    record = {"query": entry.query, "priority": entry.priority}
    return record if entry.until is None else {**record, "until": stamp(entry.until)}


def _unreadable(text: str, what: str) -> InputError:
    return InputError(
        where=f"argument {text!r:.100}",
        what=what,
        remedy="write QUERY=PRIORITY with a priority from 1 to 10, such as worst-delays=9",
    )
