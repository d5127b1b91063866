"""Finds the fields of an object that a field manager owns, from `metadata.managedFields`.

Pure; `priority_entries` and the commands that end a pause ask.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

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
