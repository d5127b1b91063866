"""Server-side apply of a part of a policy, again when somebody else has changed it meanwhile.

What to apply is decided anew from each reading, by whoever calls.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from rekindle.model.errors import InputError, RunError
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.recovery_policy import QueryPriority
from rekindle_operator.kubectl.api_connection import POLICIES, ApiConnection, ApiRefusal, Object
from rekindle_operator.kubectl.durations import stamp

# Finds the fields of an object that a field manager owns, from `metadata.managedFields`.

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Record = Mapping[str, Any]


def managers_of(record: Record, *path: str) -> tuple[str, ...]:
    """The managers that have a field, such as "spec", "paused", in order of their names."""
    found = {
        str(entry.get("manager"))
        for entry in _entries(record)
        if _below(entry.get("fieldsV1") or {}, path) is not None
    }
    return tuple(sorted(found))


def is_default(record: Record, *path: str) -> bool:
    """Whether only a default has put a field there: whoever creates or updates an object otherwise
    than by server-side apply is said to have its defaults too, and what `kubectl apply` had in its
    manifest stands in an annotation."""
    entries = [
        entry for entry in _entries(record) if _below(entry.get("fieldsV1") or {}, path) is not None
    ]
    if any(entry.get("operation") != "Update" for entry in entries):
        return False
    applied = ((record.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    return not applied or not _has(_parsed(applied), path)


def items_of(record: Record, manager: str, key: str, *path: str) -> tuple[str, ...]:
    """The keys of a list's items that a manager has; `key` is the list's map key."""
    found: set[str] = set()
    for entry in _entries(record):
        if entry.get("manager") == manager:
            found.update(_keys(_below(entry.get("fieldsV1") or {}, path) or {}, key))
    return tuple(sorted(found))


def _entries(record: Record) -> Iterator[Record]:
    yield from (record.get("metadata") or {}).get("managedFields") or ()


def _below(fields: Record, path: tuple[str, ...]) -> Record | None:
    for name in path:
        below = fields.get(f"f:{name}")
        if below is None:
            return None
        fields = below
    return fields


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _has(value: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True


def _keys(fields: Record, key: str) -> Iterator[str]:
    """Items of a map list are written as k:{"query":"worst-delays"}."""
    for name in fields:
        if name.startswith("k:"):
            named = json.loads(name.removeprefix("k:"))
            if key in named:
                yield str(named[key])


TRIES = 5


def apply(
    cluster: ApiConnection,
    record: Object,
    manager: str,
    change: Callable[[Object], Object],
    *,
    force: bool = False,
) -> Object:
    """The policy after `change(policy)` has been applied under a field manager.

    Raises Refusal with the managers that have a field of it, unless `force` takes it from them.
    """
    for _ in range(TRIES):
        try:
            return cluster.apply(POLICIES, change(record), manager, force=force)
        except ApiRefusal as refusal:
            if refusal.status != 409 or refusal.managers:
                raise
        metadata = record["metadata"]
        record = cluster.get(POLICIES, metadata["name"], metadata["namespace"])
    raise RunError(
        where=POLICIES.place(record["metadata"]["namespace"], record["metadata"]["name"]),
        what=f"has changed {TRIES} times while it was being changed",
        remedy="try again",
    )


# Entries of spec.priorities under the plugin's own field manager.
#
# Every apply says all that the manager wants, so what it has must be said again with what is new;
# what has expired is left out, and so removed. What others have is never said, and so never
# touched.

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


def bare(record: Record) -> dict[str, Any]:
    """An apply that claims nothing."""
    metadata = record["metadata"]
    named = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        "metadata": {name: metadata[name] for name in named},
    }


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
