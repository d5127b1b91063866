"""Reads and writes custom resources: the fields and names that all kinds share.

A resource is a value: identity, spec, and what was written to its status. Unknown fields are
ignored, so that an older operator reads what a newer one has stored. What a resource is about is
for `recovery_policy`, `recovery_class` and `recovery_resource`, which call this; nothing here talks
to an API server.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

import msgspec

from rekindle.model.errors import InputError

GROUP = "rekindle.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
COUNT_MAX = 2**53 - 1  # what JSON numbers hold exactly everywhere
SHOWN_MAX = 200

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Label = Annotated[str, msgspec.Meta(max_length=63)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=86_400)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """Part of a resource: snake_case here is camelCase there."""


class ResourceMetadata(Value, frozen=True):
    """What identifies an object; `namespace` is empty for those of the cluster."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None


class Resource(Value, frozen=True):
    """An object of ours; `kind` is the same for all of a type."""

    kind: ClassVar[str]
    metadata: ResourceMetadata


Kind = TypeVar("Kind", bound=Resource)


def read(record: object, kind: type[Kind]) -> Kind:
    """The resource in an object from the API; InputError names kind, namespace/name and field."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `")
        field = path.rstrip("`").removeprefix("$").removeprefix(".")
        where = f"{kind.kind} {_shown_identity(record)}"
        _refuse(f"{where}: {field}" if field else where, what[:1].lower() + what[1:])


def written(value: Value) -> dict[str, Any]:
    """A value as JSON holds it, without what is not there (None, empty lists and mappings).

    Times are in UTC and whole seconds, or milliseconds where they have any.
    """
    record = _without_nothing(msgspec.to_builtins(value, builtin_types=(datetime,)))
    assert isinstance(record, dict)
    return record


def identity(resource: Resource) -> str:
    """`namespace/name`, or the name of an object of the cluster."""
    metadata = resource.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def clipped(text: str, length_max: int) -> str:
    """A text, cut where it would be refused for its length."""
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def _shown_identity(record: object) -> str:
    """Of an object that cannot be read, as far as it says."""
    metadata = record.get("metadata") if isinstance(record, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "without a name"
    names = [metadata.get("namespace"), metadata.get("name")]
    found = [name for name in names if isinstance(name, str) and name]
    return clipped("/".join(found), SHOWN_MAX) if found else "without a name"


def _without_nothing(value: Any) -> Any:
    if isinstance(value, Mapping):
        cleaned = {key: _without_nothing(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if not _is_nothing(item)}
    if isinstance(value, list | tuple):
        return [_without_nothing(item) for item in value]
    if isinstance(value, datetime):
        precision = "milliseconds" if value.microsecond >= 1_000 else "seconds"
        return value.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
    return value


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, list | dict) and not value)


def _refuse(where: str, what: str) -> NoReturn:
    raise InputError(where=where, what=clipped(what, SHOWN_MAX), remedy="see docs/resources.md")
