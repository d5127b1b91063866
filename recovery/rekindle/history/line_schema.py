"""One JSON line of a history, field by field: known fields, their types, unknown fields.

Every refusal is an InputError that names file, line and field, and says what to write instead.
`history_reader` calls it.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from rekindle.history.operations import Value
from rekindle.model.errors import InputError

NAME_LENGTH_MAX = 200
VALUE_LENGTH_MAX = 10_000
VALUE_DEPTH_MAX = 20
INTEGER_MAX = 2**63 - 1
SHOWN_LENGTH_MAX = 60
CHOICES_SHOWN_MAX = 12
Read = TypeVar("Read")
MISSING: Any = object()


class _Wrong(Exception):
    """What is wrong with a field, and the remedy."""


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of line `number`. `where` is file and line, `path` leads to what is nested."""

    where: str
    number: int
    record: Mapping[str, Any]
    path: str = ""

    def take(self, field: str, read: Callable[[Any], Read], default: Any = MISSING) -> Read:
        """The field as `read` gives it, or `default` where it is absent."""
        if field not in self.record:
            if default is MISSING:
                self.refuse(field, "is missing", "add it (docs/history.md)")
            absent: Read = default
            return absent
        try:
            return read(self.record[field])
        except _Wrong as wrong:
            self.refuse(field, *wrong.args)

    def inner(self, field: str) -> "Fields":
        """A field that is an object itself."""
        found = self.take(field, lambda item: item)
        if not isinstance(found, dict):
            self.refuse(field, f"is {shown(found)}", "give an object")
        return Fields(self.where, self.number, found, f"{self.path}{field}.")

    def choose(self, field: str, choices: Collection[str], default: Any = MISSING) -> str:
        """A field that is one of these words."""
        found = self.take(field, lambda item: item, default)
        if not isinstance(found, str) or found not in choices:
            known = [*choices][:CHOICES_SHOWN_MAX]
            more = ", …" if len(choices) > len(known) else ""
            self.refuse(field, f"is {shown(found)}", f"give {' or '.join(known)}{more}")
        return found

    def only(self, *known: str) -> None:
        """Refuse fields that are not known."""
        for field in self.record:
            if field not in known:
                remedy = f"remove it; known here are {', '.join(known)}"
                self.refuse(field, "is not a known field", remedy)

    def refuse(self, field: str, what: str, remedy: str) -> NoReturn:
        """Raise the InputError for a field."""
        raise InputError(where=f"{self.where}: {self.path}{field}", what=what, remedy=remedy)


def fields_of(line: str, where: str, number: int) -> Fields:
    """The object that a line holds; InputError when it is none."""
    try:
        record = json.loads(line, object_pairs_hook=_once)
    except _Wrong as wrong:
        what, remedy = wrong.args
        raise InputError(where=where, what=what, remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            where=where,
            what=f"is no JSON ({str(error)[:SHOWN_LENGTH_MAX]})",
            remedy="write one JSON object per line",
        ) from None
    if not isinstance(record, dict):
        raise InputError(
            where=where, what=f"is {shown(record)}", remedy="write one JSON object per line"
        )
    return Fields(where, number, record)


def name(item: Any) -> str:
    """A name of a channel, an operation, or a digest."""
    if not isinstance(item, str) or not item.isprintable() or len(item) > NAME_LENGTH_MAX:
        raise _Wrong(
            f"is {shown(item)}", f"give printable text of at most {NAME_LENGTH_MAX} characters"
        )
    return item


def names(item: Any) -> tuple[str, ...]:
    """A list of names, none twice."""
    if not isinstance(item, list) or not item:
        raise _Wrong(f"is {shown(item)}", "give a list of names")
    found = tuple(name(part) for part in item)
    if len(set(found)) < len(found):
        raise _Wrong("has a name twice", "leave one of them out")
    return found


def time(item: Any) -> float:
    """Logical time: any finite number."""
    number = isinstance(item, int | float) and not isinstance(item, bool)
    if not number or not abs(item) <= INTEGER_MAX:  # also not a number
        raise _Wrong(f"is {shown(item)}", "give a number")
    return item  # type: ignore[no-any-return]  # whole times stay whole, for people


def flag(item: Any) -> bool:
    """true or false."""
    if not isinstance(item, bool):
        raise _Wrong(f"is {shown(item)}", "give true or false")
    return item


def integer(lowest: int) -> Callable[[Any], int]:
    """A reader of whole numbers from `lowest`."""

    def read(item: Any) -> int:
        if not whole(item) or not lowest <= item <= INTEGER_MAX:
            raise _Wrong(f"is {shown(item)}", f"give a whole number from {lowest}")
        found: int = item
        return found

    return read


def whole(item: Any) -> bool:
    """Whether it is a whole number; true and false are none."""
    return isinstance(item, int) and not isinstance(item, bool)


def value(item: Any, depth: int = 0) -> Value:
    """An element or a state; lists become tuples."""
    if isinstance(item, list) and len(item) <= VALUE_LENGTH_MAX and depth < VALUE_DEPTH_MAX:
        return tuple(value(part, depth + 1) for part in item)
    if item is None or (isinstance(item, str) and _is_text(item)):
        return item
    if whole(item) and abs(item) <= INTEGER_MAX:
        found: int = item
        return found
    raise _Wrong(
        f"is {shown(item)}",
        "give a string, a whole number, null, or a list of them (floats and true would not be "
        "equal to themselves in every order of a sum; write them as strings)",
    )


def _is_text(item: str) -> bool:
    """Whether it is short enough and can be printed: JSON knows halves of characters."""
    return len(item) <= VALUE_LENGTH_MAX and not any("\ud800" <= sign <= "\udfff" for sign in item)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise _Wrong(f"has the field {shown(twice)} twice", "leave one of them out")
    return record


def shown(item: Any) -> str:
    """JSON, short enough for a message."""
    try:
        text = json.dumps(item)
    except (ValueError, RecursionError):
        return "a value beyond all limits"
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"
