"""Delay that an aircraft carries over from one leg to its next.

A leg carries delay over when it departs more than 15 minutes late and the same aircraft's leg
before it, scheduled at most 12 hours earlier, arrived more than 15 minutes late. Legs in a row
that do so form a chain, counted in `legs`.

    first leg  ──arrived late──►  second leg departs late: legs = 1  ──arrived late──►  legs = 2
               ──on time, or 12 hours pass──►  the chain ends

Only legs from New York are known. Called by the runtime through the step `carry-over`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rekindle_local.flights.flight_columns import LATE_MINUTES
from rekindle_spark.operators import StatefulOperator, ValueState

__all__ = ["CARRIED", "CarryOver"]

CARRIED = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("previous_arr_delay", pa.int64()),
        ("dep_delay", pa.int64()),
        ("legs", pa.int64()),
    ]
)
BETWEEN_LEGS_MAX = timedelta(hours=12)
# An aircraft is listed twice for one minute now and then, at two origins too. Rows of one event
# time come in one call but in the order of the sources; this order is that of the data alone.
_IN_ORDER = itemgetter("event_time", "origin", "sequence")


class CarryOver(StatefulOperator):
    """Emits a row of `CARRIED` for each leg that carries delay over; keyed by tailnum.

    Value: when the last leg was scheduled, its arrival delay, and the chain so far.
    """

    value_schema = pa.schema(
        [
            ("event_time", pa.timestamp("us")),
            ("arr_delay", pa.int64()),
            ("legs", pa.int64()),
        ]
    )

    def handle(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: ValueState
    ) -> Iterator[tuple[Any, ...]]:
        """Take the next legs of one aircraft."""
        last: tuple[datetime | None, int | None, int] = value.get() or (None, None, 0)
        then, arrival, legs = last
        for row in sorted(rows, key=_IN_ORDER) if len(rows) > 1 else rows:
            now, delay = row["event_time"], row["dep_delay"]
            late = delay > LATE_MINUTES and arrival is not None and arrival > LATE_MINUTES
            if late and then is not None and now - then <= BETWEEN_LEGS_MAX:
                legs += 1
                leg = row["origin"], row["carrier"], row["flight"]
                yield now, key[0], *leg, arrival, delay, legs
            else:
                legs = 0
            then, arrival = now, row["arr_delay"]
        value.update((then, arrival, legs))
