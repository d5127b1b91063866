"""Reading objects as they come from the API: mappings of which any part may be missing.

Objects of others change with their versions, so whatever is not there, or is of another type, reads
as nothing. Judges nothing; the modules of the providers call it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object, and how the API addresses it."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True


@dataclass(frozen=True, slots=True)
class ObjectCondition:
    """A condition of an object; `status` is "True", "False" or "Unknown"."""

    status: str
    reason: str
    message: str


def mapping(body: object, *path: str) -> Mapping[str, Any]:
    """The mapping at `path`; an empty one where there is none."""
    found = _at(body, path)
    return found if isinstance(found, Mapping) else {}


def text(body: object, *path: str) -> str:
    """The text at `path`; empty where there is none."""
    found = _at(body, path)
    return found if isinstance(found, str) else ""


def count(body: object, *path: str) -> int:
    """The whole number at `path`; 0 where there is none."""
    found = _at(body, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def items(body: object, *path: str) -> list[Mapping[str, Any]]:
    """The mappings in the list at `path`; none where there is no list."""
    found = _at(body, path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def condition(body: object, type_: str) -> ObjectCondition | None:
    """The condition of that type."""
    for item in items(body, "status", "conditions"):
        if text(item, "type") == type_:
            return ObjectCondition(
                text(item, "status"), text(item, "reason"), text(item, "message")
            )
    return None


def is_true(body: object, type_: str) -> bool:
    """Whether the condition of that type is there, and True."""
    found = condition(body, type_)
    return found is not None and found.status == "True"


def is_deleting(body: object) -> bool:
    """Whether the object only waits for its finalizers."""
    return bool(text(body, "metadata", "deletionTimestamp"))


def moment(written: str) -> float | None:
    """Seconds since 1970 of a moment as the API writes it."""
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return None


def _at(body: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(body, Mapping):
            return None
        body = body.get(key)
    return body
