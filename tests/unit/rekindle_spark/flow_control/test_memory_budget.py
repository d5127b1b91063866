"""Hosts' memory in the driver: epochs and pieces shrink, grow again, and the run ends in order."""

import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from host_world import COUNTS, ROWS, build
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import RunError
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.flow_control import memory_budget, memory_pressure
from rekindle_spark.flow_control.catch_up_pace import PIECE_EPOCHS_MAX
from rekindle_spark.flow_control.memory_budget import (
    CALM_FIRST,
    CALM_MAX,
    EASED,
    REFUSED_SECONDS_MAX,
    ROWS_MIN,
    TIGHT,
    TIGHT_SHARE,
    MemoryBudget,
    MemoryReading,
)
from rekindle_spark.jobs.job_runner import Result

MIB = 2**20
LIMIT = 1_000 * MIB
ROWS_MAX = 2_000_000
LIVE = {"7"}


def reading(used: float, peak: float) -> MemoryReading:
    return MemoryReading(int(used * MIB), int(peak * MIB), LIMIT)


def epoch(held: MemoryBudget, used: float, peak: float, rows: int) -> list[str]:
    """An epoch of live partitions has run; kinds of what has changed."""
    readings = {"7": reading(used, peak)}
    changes = held.note(readings, LIVE, rows, 0)
    held.finished(readings, rows, 0)
    return [change.kind for change in changes]


@pytest.mark.parametrize(
    ("used", "peak", "is_tight", "is_work", "has_room"),
    [
        (100, 200, False, True, True),
        (100, 450, False, True, True),
        (100, 460, False, True, False),
        (100, 800, False, True, False),
        (100, 801, True, True, False),
        (790, 795, False, False, True),
        (790, 830, True, False, False),
        (900, 900, True, False, False),
    ],
)
def test_a_reading_says_how_close_a_host_is_and_whether_work_or_state_fills_it(
    used: int, peak: int, is_tight: bool, is_work: bool, has_room: bool
) -> None:
    found = reading(used, peak)
    assert (found.is_tight, found.is_work, found.has_room) == (is_tight, is_work, has_room)


def test_without_a_budget_nothing_is_ever_tight() -> None:
    held = MemoryBudget(ROWS_MAX)
    unbounded = {"7": MemoryReading(10**12, 10**13, None)}
    assert held.note(unbounded, LIVE, 10**6, 0) == []
    assert (held.rows_max, held.piece_epochs("7", 64)) == (ROWS_MAX, 64)


def test_epochs_are_halved_until_their_work_fits() -> None:
    held, rows, seen = MemoryBudget(ROWS_MAX), 100_000, []
    for _ in range(20):
        seen.append(rows)
        epoch(held, 100, 100 + rows * 0.02, rows)
        rows = min(rows, held.rows_max)
    assert seen[:4] == [100_000, 50_000, 25_000, 25_000]
    assert rows == 25_000


def test_reports_of_epochs_from_before_the_change_change_nothing_more() -> None:
    held = MemoryBudget(ROWS_MAX)
    for _ in range(5):
        epoch(held, 100, 900, 8_000)
    assert held.rows_max == 4_000


def test_epochs_are_never_smaller_than_the_floor() -> None:
    held = MemoryBudget(ROWS_MAX)
    for _ in range(30):
        epoch(held, 100, 900, held.rows_max)
    assert held.rows_max == ROWS_MIN


def test_where_state_fills_a_host_or_nothing_on_it_is_live_epochs_stay_as_they_are() -> None:
    held = MemoryBudget(ROWS_MAX)
    assert epoch(held, 850, 870, 10_000) == [TIGHT]
    held.note({"8": reading(100, 900)}, LIVE, 10_000, 0)
    assert held.rows_max == ROWS_MAX
    assert held.piece_epochs("8", 64) == 1


def test_a_piece_of_several_epochs_that_was_too_much_makes_pieces_smaller_and_not_epochs() -> None:
    held = MemoryBudget(ROWS_MAX)
    held.note({"7": reading(100, 900)}, LIVE, 10_000, 8)
    assert (held.rows_max, held.piece_epochs("7", 64)) == (ROWS_MAX, 1)
    held.note({"7": reading(100, 900)}, LIVE, 10_000, 1)
    assert held.rows_max == 5_000


def test_each_change_is_told_once() -> None:
    held, kinds = MemoryBudget(ROWS_MAX), []
    for peak in (200, 900, 900, 700, 900, 700, *[200] * CALM_FIRST, 200, 900):
        kinds += epoch(held, 100, peak, 100)
    assert kinds == [TIGHT, EASED, TIGHT]


def test_a_load_that_is_now_high_and_now_low_is_tight_all_the_time() -> None:
    held, kinds = MemoryBudget(ROWS_MAX), []
    for _ in range(100):
        kinds += epoch(held, 100, 900, 500) + epoch(held, 100, 200, 100)
    assert kinds == [TIGHT]


def test_epochs_grow_again_after_a_while_with_room_until_nothing_limits_them() -> None:
    held = MemoryBudget(8_000)
    epoch(held, 100, 900, 8_000)
    for _ in range(CALM_FIRST - 1):
        epoch(held, 100, 200, 4_000)
    assert held.rows_max == 4_000
    epoch(held, 100, 200, 4_000)
    assert (held.rows_max, held.epochs.limit) == (8_000, None)


def test_an_epoch_may_be_twice_as_large_as_the_last_where_there_is_room_for_that() -> None:
    held = MemoryBudget(ROWS_MAX)
    assert held.rows_proved == 0
    epoch(held, 100, 200, 1_000)
    assert held.rows_proved == 2_000
    epoch(held, 100, 500, 2_000)
    assert held.rows_proved == 2_500


def test_epochs_that_do_not_reach_their_limit_say_nothing_about_larger_ones() -> None:
    held = MemoryBudget(ROWS_MAX)
    epoch(held, 100, 900, 8_000)
    for _ in range(10 * CALM_FIRST):
        epoch(held, 100, 200, 1_900)
    assert held.rows_max == 4_000


def test_pieces_grow_again_by_themselves() -> None:
    held, readings = MemoryBudget(ROWS_MAX), {"7": reading(100, 200)}
    held.note({"7": reading(100, 900)}, set(), 0, 64)
    seen = []
    while (piece := held.piece_epochs("7", 64)) < PIECE_EPOCHS_MAX:
        seen.append(piece)
        held.note(readings, set(), 0, piece)
        held.finished(readings, 0, piece)
    assert sorted(set(seen)) == [1, 2, 4, 8, 16, 32]
    assert len(seen) == 6 * CALM_FIRST


@given(
    st.floats(50, 700), st.floats(0.001, 1.0), st.integers(2_000, 200_000), st.integers(1, 2_000)
)
def test_a_steady_load_changes_epochs_ever_more_rarely(
    state: float, mib_per_row: float, arriving: int, epochs: int
) -> None:
    held, limits = MemoryBudget(ROWS_MAX), []
    for _ in range(epochs):
        rows = min(arriving, held.rows_max)
        epoch(held, state, state + rows * mib_per_row, rows)
        limits.append(held.rows_max)
    changes = sum(before != after for before, after in pairwise(limits))
    assert changes <= 10 + 2 * sum(1 for n in range(12) if CALM_FIRST * 2**n <= epochs)
    assert ROWS_MIN <= held.rows_max <= ROWS_MAX


@given(st.lists(st.tuples(st.floats(0, 1_200), st.floats(0, 1_200), st.integers(0, 10**6))))
def test_whatever_is_read_limits_stay_within_bounds(
    readings: list[tuple[float, float, int]],
) -> None:
    held = MemoryBudget(ROWS_MAX)
    for used, peak, rows in readings:
        epoch(held, used, max(used, peak), rows)
        assert ROWS_MIN <= held.rows_max <= ROWS_MAX
        assert 1 <= held.piece_epochs("7", 64) <= 64
        assert held.epochs.patience <= CALM_MAX
        assert ("7" in held.tight) or max(used, peak) <= TIGHT_SHARE * 1_000


def test_a_piece_of_several_epochs_that_is_refused_is_no_end_however_often() -> None:
    held = MemoryBudget(ROWS_MAX)
    assert not any(held.refused("7", 4, now, waits=False) for now in (0.0, 50.0, 100.0))
    assert held.piece_epochs("7", 64) == 1


def test_an_epoch_that_is_refused_waits_for_what_catches_up_and_then_is_the_end() -> None:
    held = MemoryBudget(ROWS_MAX)
    assert not any(held.refused("7", 0, now, waits=True) for now in (0.0, 50.0, 100.0))
    assert held.starved == {"7"}
    assert not held.refused("7", 0, 101.0, waits=False)
    assert not held.refused("7", 0, 101.0 + REFUSED_SECONDS_MAX, waits=False)
    assert held.refused("7", 0, 101.1 + REFUSED_SECONDS_MAX, waits=False)


def test_work_of_the_same_kind_that_goes_well_is_the_end_of_a_row_of_refusals() -> None:
    held, readings = MemoryBudget(ROWS_MAX), {"7": reading(100, 200)}
    for piece in (0, 1):
        held.refused("7", piece, 0.0, waits=False)
    held.finished(readings, 10, 0)
    assert held.starved == set()
    assert not held.refused("7", 0, 50.0, waits=False)
    assert held.refused("7", 1, 50.0, waits=False)


def test_what_is_known_of_an_executor_goes_with_it() -> None:
    held = MemoryBudget(ROWS_MAX)
    epoch(held, 100, 900, 100)
    held.refused("7", 0, 0.0, waits=False)
    held.keep({"8"})
    assert held == MemoryBudget(ROWS_MAX)


def test_reports_of_one_job_are_one_reading_by_executor() -> None:
    def report(executor: str, used: int, peak: int) -> dict[str, Any]:
        memory = {"used_bytes": used, "peak_bytes": peak, "max_bytes": 9}
        return {"executor": executor, "memory": memory}

    found = memory_budget.readings(
        [report("7", 3, 5), {"executor": "9"}, report("8", 1, 1), report("7", 2, 4)]
    )
    assert found == {"7": MemoryReading(2, 5, 9), "8": MemoryReading(1, 1, 9)}


def test_the_end_names_executor_sizes_steps_and_remedy() -> None:
    held = MemoryBudget(ROWS_MAX)
    application = cast(DriverContext, _application(held))
    result = Result(False, 0.0, memory={"7": MemoryReading(LIMIT, LIMIT + MIB, LIMIT)})
    result.over_budget = {"7": {str(COUNTS): 600 * MIB, str(ROWS): 0}}
    held.refused_since["7", False] = -1e9  # for long
    with pytest.raises(RunError) as caught:
        memory_pressure.refuse(application, result)
    assert str(caught.value) == (
        "executor 7 on node-1: its host needs 1,001.0 MiB of memory and may use 1,000.0 MiB; "
        "the largest states: counts 600.0 MiB; give hosts more memory "
        "(runtime.host_memory_mib_max, or spark.executor.memoryOverhead), add nodes and "
        "parallelism, or make windows shorter; committed output stays"
    )


def test_a_refusal_of_an_executor_that_has_gone_is_of_no_account() -> None:
    application = cast(DriverContext, _application(MemoryBudget(ROWS_MAX)))
    result = Result(False, 0.0, over_budget={"9": {}})
    memory_pressure.refuse(application, result)
    assert application.budget.starved == set()


def _application(held: MemoryBudget) -> Any:
    """As much of an application as is asked."""
    return SimpleNamespace(
        budget=held,
        progress=SimpleNamespace(placed={}),
        claimed=set(),
        lock=threading.RLock(),
        executors={"7": "node-1"},
        program=build(),
    )
