"""Delay carried over by an aircraft: which legs count, and that nothing hangs on how rows come."""

from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from rekindle_local.flights.flight_queries import CARRIED, CarryOver
from rekindle_spark.operators import ValueState

MORNING = datetime(2013, 1, 1, 12)


def leg(
    hour: float, late: int, arrived: int | None, origin: str = "EWR", sequence: int = 0
) -> dict[str, Any]:
    return {
        "event_time": MORNING + timedelta(hours=hour),
        "tailnum": "N1",
        "origin": origin,
        "carrier": "UA",
        "flight": 7,
        "dep_delay": late,
        "arr_delay": arrived,
        "sequence": sequence,
    }


def carried(*calls: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What the calls give: hour, previous arrival delay, departure delay, legs."""
    value, rows = ValueState(None), []
    for call in calls:
        for row in CarryOver().handle(("N1",), call, value):
            found = dict(zip(CARRIED.names, row, strict=True))
            hour = (found["event_time"] - MORNING) / timedelta(hours=1)
            rows.append((hour, found["previous_arr_delay"], found["dep_delay"], found["legs"]))
    return rows


@pytest.mark.parametrize(
    ("legs", "expected"),
    [
        ([leg(0, 30, 40), leg(4, 20, 5)], [(4, 40, 20, 1)]),
        ([leg(0, 30, 40), leg(4, 20, 16), leg(8, 16, 0)], [(4, 40, 20, 1), (8, 16, 16, 2)]),
        ([leg(0, 30, 40), leg(12, 20, 5)], [(12, 40, 20, 1)]),
        ([leg(0, 30, 40), leg(12.5, 20, 5)], []),
        ([leg(0, 30, 15), leg(4, 20, 5)], []),
        ([leg(0, 30, 40), leg(4, 15, 5)], []),
        ([leg(0, 30, None), leg(4, 20, 5)], []),
        ([leg(0, 30, 40), leg(4, 0, 20), leg(8, 20, 5)], [(8, 20, 20, 1)]),
    ],
    ids=[
        "late twice",
        "a chain of two",
        "twelve hours apart",
        "more than twelve hours apart",
        "arrived in time",
        "departed in time",
        "never arrived",
        "departed in time, arrived late: a new chain",
    ],
)
def test_a_leg_carries_delay_when_the_one_before_arrived_late(
    legs: list[dict[str, Any]], expected: list[tuple[Any, ...]]
) -> None:
    assert carried(legs) == expected
    assert carried(*[[row] for row in legs]) == expected


def test_legs_of_one_minute_count_in_the_order_of_the_data_however_they_come() -> None:
    legs = [leg(0, 30, 40, "JFK", 3), leg(0, 20, 2, "LGA", 1), leg(0, 50, 60, "EWR", 9)]
    results = {tuple(carried(list(order))) for order in permutations(legs)}
    assert results == {((0, 60, 30, 1), (0, 40, 20, 2))}
