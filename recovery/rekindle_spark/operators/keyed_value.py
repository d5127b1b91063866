"""What a user derives from for a value per key, and the value of one key. Run by `stateful`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rekindle_spark.operators.python_rows import Value

__all__ = ["Emitted", "StatefulOperator", "ValueState"]

Emitted = Mapping[str, Any] | tuple[Any, ...]


class ValueState:
    """The value of one key, a tuple in the order of the operator's `value_schema`."""

    __slots__ = ("_value",)

    def __init__(self, value: Value | None) -> None:
        self._value = value

    def exists(self) -> bool:
        """Whether the key has a value."""
        return self._value is not None

    def get(self) -> Value | None:
        """The value, or None."""
        return self._value

    def update(self, value: Sequence[Any]) -> None:
        """Give the key a value."""
        self._value = tuple(value)

    def clear(self) -> None:
        """Take the key's value away."""
        self._value = None


class StatefulOperator:
    """What a user derives from. One instance serves all keys and threads: keep nothing in it.

    A key's value is dropped after `ttl_seconds` of event time without a row of that key.
    """

    value_schema: pa.Schema
    ttl_seconds: float | None = None

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterable[Emitted]:
        """Take a key's next rows; return rows of the output, as dicts or as tuples in its order.

        How many rows come at once depends on the cut of epochs: treat them one by one. No clock
        and no chance in here: a repeat must give the same rows.
        """
        raise NotImplementedError
