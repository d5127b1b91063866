"""Checks users' arguments of pipelines and sources: names, kinds of values, numbers, lists.

A check raises InputError with the place, what is wrong there and the remedy, and nothing else,
whatever it is given. Places are texts such as "step late: keys". Columns are checked against their
schema in `operators.arrow_columns`. Called by `steps`, `replay` and the operators.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any

from rekindle.model.errors import refuse

# Names become folders and files, with suffixes, on whatever the nodes share.
NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")
SHOWN_LENGTH_MAX = 60


def place(kind: str, name: object) -> str:
    """The place "KIND NAME" of messages; refuses a name that cannot be a folder's."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        refuse(
            f"{kind} {shown(name)}",
            "is no usable name",
            "use 1 to 100 letters from a to z or A to Z, digits, '-', '_' and '.', no '.' first",
        )
    return f"{kind} {name}"


def check_kind(where: str, value: object, kind: Any, remedy: str) -> None:
    """Refuse what is not an instance of `kind`, and classes, which are taken for instances."""
    if isinstance(value, type) or not isinstance(value, kind):
        refuse(where, f"is {shown(value)}", remedy)


def check_not_async(where: str, function: object) -> None:
    """Refuse a function whose calls only make coroutines, which nobody would await."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        refuse(where, "is async, and nothing awaits it", "write it with def, without async")


def check_list(where: str, value: object) -> None:
    """Refuse what is not a list of columns, above all a text, whose letters would be columns."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        remedy = f"write [{shown(value)}]" if isinstance(value, str) else "give a list of columns"
        refuse(where, f"is {shown(value)}, not a list", remedy)


def check_whole(where: str, value: object, high: int) -> None:
    """Refuse what is not a whole number from 1 to `high`."""
    if not is_number(value, 1, high) or not isinstance(value, int):
        refuse(where, f"is {shown(value)}", f"give a whole number from 1 to {high:,}")


def check_number(where: str, value: object, low: float, high: float, remedy: str) -> None:
    """Refuse what is not a number from `low` to `high`."""
    if not is_number(value, low, high):
        refuse(where, f"is {shown(value)}", remedy)


def is_number(value: object, low: float, high: float) -> bool:
    """Whether it is a number from `low` to `high`; NaN and booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return low <= value <= high


def shown(value: object) -> str:
    """A value in a message, short and on one line."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is not None and not isinstance(value, int | float | str):
        return f"of type {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number beyond all limits"
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[: SHOWN_LENGTH_MAX - 3]}..."
