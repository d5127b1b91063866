"""A source that gives the rows of an Arrow table, in their order.

It keeps the protocol `steps.Source` as `replay.Replay` does, and is pickled with its rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rekindle.model.errors import refuse
from rekindle_spark.operators import arrow_columns, column_types, python_rows, watermarks
from rekindle_spark.user_code import argument_checks


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table as a source; `event_time` names its time column, by which it must be sorted."""

    table: pa.Table
    event_time: str

    @property
    def schema(self) -> pa.Schema:
        """The table's schema."""
        return self.table.schema

    @property
    def rows(self) -> int:
        """Count the rows."""
        return int(self.table.num_rows)

    def check(self, step: str) -> None:
        """Raise InputError that names the row without event time, or out of order."""
        check_times(f"step {step}: its table", self.table, self.event_time)

    def read(self, begin: int, end: int) -> pa.Table:
        """Return the rows [begin, end), at most those that there are."""
        return self.table.slice(begin, max(0, end - begin))

    def rows_at(self, event_time: int) -> int:
        """Count the rows with event time at most `event_time` (microseconds)."""
        moment = min(max(event_time, watermarks.INITIAL_WATERMARK), watermarks.FINAL_WATERMARK)
        return int(np.searchsorted(self._moments(), moment, side="right"))

    def event_time_at(self, offset: int) -> int:
        """Return the event time (microseconds) of a row, beyond the end that of the last row.

        Without rows it is 0, which holds up no other source.
        """
        moments = self._moments()
        return int(moments[min(offset, len(moments) - 1)]) if len(moments) else 0

    def _moments(self) -> arrow_columns.Integers:
        return watermarks.microseconds(self.table[self.event_time])


def check_times(
    where: str, table: pa.Table, event_time: str, row: Callable[[int], str] = "row {}".format
) -> None:
    """Raise InputError for a row without event time or out of order; `row` names one by number."""
    moments = watermarks.microseconds(table[event_time])
    absent = np.flatnonzero(moments == watermarks.NO_TIME)
    if len(absent):
        what = f"has no {event_time!r} in {row(int(absent[0]))}"
        refuse(where, what, "give every row an event time")
    earlier = np.flatnonzero(np.diff(moments) < 0) + 1
    if len(earlier):
        what = f"is not sorted by {event_time!r}: {row(int(earlier[0]))} is earlier than"
        refuse(where, f"{what} the row before", "sort the rows by event time")


def table_of(where: str, rows: Any, schema: pa.Schema) -> pa.Table:
    """Make a table with the columns and types of a schema, of what a user gave as rows.

    That is a table of Arrow, polars or pandas, whose other columns are left out, or a list of
    dicts, in which a column that is missing is null. Raises InputError for anything else.
    """
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return _of_dicts(where, rows, schema)
    try:
        table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    except (TypeError, ValueError, pa.ArrowException):
        remedy = "give a table of Arrow, polars or pandas, or a list of dicts"
        refuse(where, f"is {argument_checks.shown(rows)}, no table", remedy)
    for name in schema.names:
        if name not in table.column_names:
            what = f"has no column {name!r}"
            refuse(where, what, f"give it all of: {', '.join(schema.names)}")
    try:
        return column_types.exact(table.select(schema.names), schema)
    except (ValueError, pa.ArrowException) as error:
        refuse(where, f"does not fit the source's columns ({error})", "cast them before")


def _of_dicts(where: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    known = set(schema.names)
    for number, row in enumerate(rows):
        unknown = [name for name in row if name not in known]
        if unknown:
            what = f"has the column {unknown[0]!r} in row {number}"
            refuse(where, what, f"the source has: {', '.join(schema.names)}")
    try:
        columns = [python_rows.typed([row.get(f.name) for row in rows], f.type) for f in schema]
        return pa.Table.from_arrays(columns, schema=schema)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        what = f"does not fit the source's columns ({' '.join(str(error).split())[:200]})"
        refuse(where, what, "give values of the columns' types")
