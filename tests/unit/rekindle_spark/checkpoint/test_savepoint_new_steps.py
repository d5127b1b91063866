"""What is made of rows of which earlier ones have gone by begins where it is whole."""

from typing import Any

import pyarrow as pa
import pytest

from rekindle_spark.checkpoint import savepoint_upgrade
from rekindle_spark.operators import (
    INITIAL_WATERMARK,
    Aggregate,
    IntervalJoin,
    Top,
    WindowAggregate,
)

SECOND = 1_000_000
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])


def window(size: int, slide: int | None = None, of: pa.Schema = SCHEMA) -> WindowAggregate:
    time = of.names[0] if of is SCHEMA else "window_end"
    return WindowAggregate("w", of, time, [], size, slide, {"n": Aggregate("count", None)})


def ends(operator: WindowAggregate, state: Any, seconds: range, watermark: int) -> list[int]:
    """When the windows end that are emitted of a row a second."""
    times = pa.array([at * SECOND for at in seconds], pa.timestamp("us"))
    rows = pa.table([times, [1] * len(seconds)], schema=SCHEMA)
    inputs = [operator.combine(rows)]
    _, output = operator.process(state, inputs, INITIAL_WATERMARK, watermark * SECOND - 1)
    return [moment // SECOND for moment in output["window_end"].cast(pa.int64()).to_pylist()]


@pytest.mark.parametrize(("size", "slide", "first"), [(10, None, 30), (20, 10, 40), (15, 10, 35)])
def test_the_first_window_is_the_first_whole_one_and_what_is_made_of_it_is_whole_then(
    size: int, slide: int | None, first: int
) -> None:
    operator, moment = window(size, slide), 12 * SECOND + 1
    state = savepoint_upgrade.initial_from(operator, moment)
    found = ends(operator, state, range(13, 100), 100)
    assert found[0] == first
    whole = savepoint_upgrade.new_from(operator, moment)
    missing = ends(operator, operator.initial(), range(100), first)[:-1]
    assert missing[-1] * SECOND < whole <= first * SECOND


def test_a_step_that_goes_on_has_emitted_all_up_to_its_watermark() -> None:
    operator = window(10)
    for watermark, whole in ((20 * SECOND - 2, 20 * SECOND), (20 * SECOND - 1, 20 * SECOND + 1)):
        assert savepoint_upgrade.kept_from(operator, watermark) == whole
    top = Top("t", SCHEMA, "at", "n", 1)
    assert savepoint_upgrade.kept_from(top, 7) == 8


def test_a_new_join_has_all_pairs_once_rows_of_both_sides_that_are_near_have_come() -> None:
    join = IntervalJoin("j", SCHEMA, SCHEMA.set(1, pa.field("m", pa.int64())), "at", "at", [], 5)
    assert savepoint_upgrade.new_from(join, 7) == 7 + 5 * SECOND
    assert savepoint_upgrade.initial_from(join, 7) == join.initial()
