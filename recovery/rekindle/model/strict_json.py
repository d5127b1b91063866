"""JSON from a file of people's: read once, with nothing in it twice, or refused with the place.

Python's reader keeps the last of two equal keys without a word. What the fields mean is for the
caller to check. Called by whatever reads files that people write or mend.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rekindle.model.errors import InputError

DIGITS_MAX = 100
SHOWN_MAX = 60  # characters of a value, or of a field's name, in a message


def read(content: bytes, where: str, remedy: str = "write one JSON object in UTF-8") -> object:
    """What `content`, JSON in UTF-8, holds; `where` is the file in messages.

    Raises InputError where it is no JSON, or an object has a key twice.
    """
    repeated: dict[int, str] = {}  # by the identity of the object, which the record keeps alive
    objects: list[dict[str, Any]] = []

    def noticed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated[id(record)] = next(key for key in keys if keys.count(key) > 1)
            objects.append(record)
        return record

    try:
        record = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=noticed,
            # No field takes more digits, and int() itself refuses thousands, without the field.
            parse_int=lambda digits: int(digits[:DIGITS_MAX]),
        )
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(where=where, what=f"is not JSON ({why})", remedy=remedy) from error
    for place, found in _objects(record) if repeated else ():
        if id(found) in repeated:
            inside = f"{short(place)}: " if place else ""
            raise InputError(
                where=f"{where}: {inside}{short(repr(repeated[id(found)]))}",
                what="is there twice in one object",
                remedy="keep one of them",
            )
    return record


def short(text: str) -> str:
    """Both ends of a text that is too long for a message."""
    return text if len(text) <= SHOWN_MAX else f"{text[:37]}...{text[-20:]}"


def _objects(record: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object with its place, as in `queries.q/0`, the outermost first."""
    waiting = [("", record)]
    for place, value in waiting:
        if isinstance(value, dict):
            yield place, value
            dot = f"{place}." if place else ""
            waiting.extend((f"{dot}{key}", inner) for key, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((f"{place}[{i}]", inner) for i, inner in enumerate(value))
