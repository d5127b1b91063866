"""Server-side apply of a part of a policy, again when somebody else has changed it meanwhile.

What to apply is decided anew from each reading, by whoever calls.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rekindle.model.errors import RunError
from rekindle_operator.kubectl.api_connection import POLICIES, ApiConnection, ApiRefusal, Object

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


def bare(record: Record) -> dict[str, Any]:
    """An apply that claims nothing."""
    metadata = record["metadata"]
    named = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        "metadata": {name: metadata[name] for name in named},
    }
