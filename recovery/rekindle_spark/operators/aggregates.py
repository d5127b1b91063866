"""What a window can compute, in two halves: partial values that add up, and the result of them.

Nulls are ignored as in SQL. Integer sums are exact modulo 2**64; float sums are added in the order
of the rows, first within one producer's epoch. A NaN makes a sum and a mean NaN and is above all
numbers. Called by `windows`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from rekindle_spark import arguments
from rekindle_spark.operators import columns, grouping
from rekindle_spark.operators.grouping import Groups

__all__ = ["ROWS", "Aggregate", "Partial", "check", "combine", "merge", "partials", "result"]

FUNCTIONS = ("count", "sum", "min", "max", "mean")
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function` (count, sum, min, max or mean) of a column; `count` without column counts rows."""

    function: str
    column: str | None = None

    def parts(self) -> tuple["Partial", ...]:
        """The partial values that the result is made of, the main one first."""
        if self.column is None:
            return (ROWS,)
        if self.function in ("sum", "mean"):
            return (Partial("sum", self.column), Partial("count", self.column))
        return (Partial(self.function, self.column),)

    def kind(self, schema: pa.Schema) -> pa.DataType:
        """The type of the result."""
        return pa.float64() if self.function == "mean" else self.parts()[0].kind(schema)


@dataclass(frozen=True, slots=True)
class Partial:
    """A partial value: `function` rows, count, sum, min or max; shared between aggregates."""

    function: str
    column: str = ""

    @property
    def name(self) -> str:
        """Its column in combined tables; no user's column is likely to be called so."""
        return f"#{self.function} {self.column}".strip()

    def kind(self, schema: pa.Schema) -> pa.DataType:
        """Its type."""
        if self.function in ("rows", "count"):
            return pa.int64()
        kind = schema.field(self.column).type
        if self.function == "sum":
            return pa.float64() if kinds.is_floating(kind) else pa.int64()
        return kind


ROWS = Partial("rows")


def check(where: str, aggregates: Any, schema: pa.Schema) -> None:
    """Refuse what is not aggregates by name, of columns that they can take."""
    remedy = 'give at least one by its name, as {"n": count()}'
    arguments.check_kind(where, aggregates, Mapping, remedy)
    if not aggregates:
        arguments.refuse(where, "is empty", remedy)
    for name, aggregate in aggregates.items():
        if not isinstance(name, str) or not name:
            arguments.refuse(where, f"has the name {arguments.shown(name)}", "use texts as names")
        _check_aggregate(f"{where}: {name}", aggregate, schema)


def _check_aggregate(where: str, aggregate: Any, schema: pa.Schema) -> None:
    remedy = "use count(), or total, mean, smallest or largest of a column"
    arguments.check_kind(where, aggregate, Aggregate, remedy)
    function, column = aggregate.function, aggregate.column
    if function not in FUNCTIONS:
        what = f"has the function {arguments.shown(function)}"
        arguments.refuse(where, what, f"use one of: {', '.join(FUNCTIONS)}")
    if column is None:
        if function != "count":
            arguments.refuse(where, f"{function} has no column", "name the column to aggregate")
        return
    columns.check_columns(where, schema, [column])
    kind = schema.field(column).type
    if function in ("min", "max"):
        columns.check_keys(where, schema, [column])
    number = kinds.is_integer(kind) or kinds.is_floating(kind)
    if function in ("sum", "mean") and not number:
        arguments.refuse(
            where, f"column {column!r} has type {kind}", "use a column of integers or floats"
        )


def partials(aggregates: Mapping[str, Aggregate]) -> tuple[Partial, ...]:
    """The partial values of all aggregates, each once, the number of rows first."""
    parts = (part for aggregate in aggregates.values() for part in aggregate.parts())
    return tuple(dict.fromkeys([ROWS, *parts]))


def combine(partial: Partial, table: pa.Table, groups: Groups) -> pa.Array:
    """A partial value per group from rows as they come."""
    if partial.function == "rows":
        return pa.array(np.bincount(groups.ids, minlength=groups.count))
    array = columns.whole(table[partial.column])
    if partial.function == "count":
        present = columns.valid(array)
        ids = groups.ids if present is None else groups.ids[present]
        return pa.array(np.bincount(ids, minlength=groups.count))
    if partial.function == "sum":
        return pa.array(grouping.add(groups, _numbers(array)))
    return grouping.extreme(groups, array, partial.function == "min")


def merge(partial: Partial, array: pa.Array, groups: Groups) -> pa.Array:
    """A partial value per group from partial values."""
    if partial.function in ("min", "max"):
        return grouping.extreme(groups, array, partial.function == "min")
    return pa.array(grouping.add(groups, array.to_numpy()))


def result(aggregate: Aggregate, table: pa.Table) -> pa.Array:
    """The aggregate per row of a table of partial values."""
    parts = aggregate.parts()
    main = columns.whole(table[parts[0].name])
    if len(parts) == 1:
        return main
    counts = columns.whole(table[parts[1].name]).to_numpy()
    values = main.to_numpy()
    if aggregate.function == "mean":
        values = values / np.maximum(counts, 1)
    return pa.array(values, mask=counts == 0)


def _numbers(array: pa.Array) -> np.ndarray:
    """Values as int64 or float64, nulls as 0."""
    if kinds.is_integer(array.type):
        return columns.integers(array)
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled, np.float64)
