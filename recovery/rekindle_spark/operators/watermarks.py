"""Watermarks and event times in microseconds since 1970.

Holds no clock. Called by all operators.
"""

import numpy as np
import pyarrow as pa

from rekindle.model.errors import ColumnError
from rekindle_spark.operators import arrow_columns, state_tables
from rekindle_spark.operators.arrow_columns import TIMESTAMP, Integers, Mask
from rekindle_spark.user_code import argument_checks

FINAL_WATERMARK = 2**63 - 1
INITIAL_WATERMARK = -(2**63)
# A row without event time gets one before every real one (the year -144,000): it is always late,
# and arithmetic on it does not overflow.
NO_TIME = -(2**62)
LATE_FOR_EVER = -(2**61)
# Event times that rows may have: the years -71,000 to 148,000.
EARLIEST, LATEST = LATE_FOR_EVER + 1, 2**62
DURATION_SECONDS_MAX = 1e11


def microseconds(column: pa.ChunkedArray) -> Integers:
    """Event times as int64; a null lies before everything."""
    array = arrow_columns.whole(column).view(pa.int64())
    return np.asarray(array.fill_null(NO_TIME) if array.null_count else array)


def arriving(rows: pa.Table, name: str) -> Integers:
    """Event times of rows that come to an operator. Raises ColumnError for one that is so early, or
    so late, that windows and bounds could not be reckoned from it."""
    found = microseconds(rows[name])
    if len(found) and (int(found.min()) < EARLIEST or int(found.max()) > LATEST):
        present = arrow_columns.valid(arrow_columns.whole(rows[name]))
        wrong = (found < EARLIEST) | (found > LATEST)
        places = np.flatnonzero(wrong if present is None else wrong & present)
        if len(places):
            raise ColumnError(
                where=f"column {name!r}, row {places[0]}",
                what=f"has the event time {found[places[0]]} us, which is in no calendar",
                remedy="leave such rows out in a filter before",
            )
    return found


def timestamps(times: Integers) -> pa.Array:
    """The inverse of `microseconds` for times that are there."""
    return pa.array(times).view(TIMESTAMP)


def are_late(moments: Integers, previous_watermark: int) -> Mask:
    """Which event times in microseconds come too late."""
    return np.asarray(moments <= max(previous_watermark, LATE_FOR_EVER))


def in_time(rows: pa.Table, name: str, previous_watermark: int) -> tuple[pa.Table, int]:
    """Rows that do not come too late by their event time, the column `name`, and the number of
    those that do. Raises ColumnError as `arriving` does."""
    if rows.num_rows == 0:
        return rows, 0
    late = are_late(arriving(rows, name), previous_watermark)
    count = int(np.count_nonzero(late))
    return (state_tables.select_rows(rows, ~late) if count else rows), count


def duration_microseconds(where: str, seconds: float, *, zero: bool = False) -> int:
    """A duration that a user gave; refuses less than a microsecond, but for 0 where that will do.

    At most 100,000,000,000 s, 3,170 years, so that sums with event times do not overflow.
    """
    if not (zero and argument_checks.is_number(seconds, 0, 0)):
        begin = "0 or " if zero else ""
        remedy = f"give a number of seconds, {begin}from 0.000001 to {DURATION_SECONDS_MAX:,.0f}"
        argument_checks.check_number(where, seconds, 1e-6, DURATION_SECONDS_MAX, remedy)
    return round(seconds * 1_000_000)
