"""Watermarks and event times in microseconds since 1970.

Holds no clock. Called by all operators.
"""

import numpy as np
import pyarrow as pa

from rekindle.errors import InputError
from rekindle_spark.operators import columns
from rekindle_spark.operators.columns import Integers

__all__ = [
    "FINAL_WATERMARK",
    "INITIAL_WATERMARK",
    "NO_TIME",
    "TIMESTAMP",
    "duration_microseconds",
    "late",
    "microseconds",
    "timestamps",
]

TIMESTAMP = pa.timestamp("us")
FINAL_WATERMARK = 2**63 - 1
INITIAL_WATERMARK = -(2**63)
# A row without event time gets one before every real one (the year -144,000): it is always late,
# and arithmetic on it does not overflow.
NO_TIME = -(2**62)
LATE_FOR_EVER = -(2**61)


def microseconds(column: pa.ChunkedArray) -> Integers:
    """Event times as int64; a null lies before everything."""
    array = columns.whole(column).view(pa.int64())
    return np.asarray(array.fill_null(NO_TIME) if array.null_count else array)


def timestamps(times: Integers) -> pa.Array:
    """The inverse of `microseconds` for times that are there."""
    return pa.array(times).view(TIMESTAMP)


def late(previous_watermark: int) -> int:
    """The last event time in microseconds that comes too late."""
    return max(previous_watermark, LATE_FOR_EVER)


def duration_microseconds(where: str, seconds: float) -> int:
    """A duration that a user gave; raises InputError unless it is at least a microsecond."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 1e-6 <= seconds <= 1e11:
        raise InputError(
            where=where,
            what=f"is {seconds!r}",
            remedy="give a number of seconds above 0 (at least a microsecond)",
        )
    return round(seconds * 1_000_000)
