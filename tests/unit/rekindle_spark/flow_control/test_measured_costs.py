"""Costs by the paper's rule, and the way to a rate that makes a wanted load."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_spark.flow_control import cost_statistics
from rekindle_spark.flow_control.cost_statistics import COST_PERCENT_MIN, PartitionCosts
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
ROWS0, ROWS1, COUNTED = range(3)


def build() -> Program:
    built = Pipeline("costs")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"), parallelism=2)
    rows.window("counted", keys=["key"], size_seconds=1, aggregates={"n": count()}).sink("out")
    return program.build(built)


def reading(processes: float, **work: float) -> dict[str, Any]:
    return {"processes": processes, "work": {name.strip("p"): s for name, s in work.items()}}


def started(*executors: str) -> PartitionCosts:
    """A window that begins at 100 s, executors having used 50 s each before it."""
    measured = PartitionCosts(build())
    measured.add({executor: reading(50.0) for executor in executors}, {})
    measured.restart(100.0)
    return measured


def test_partitions_of_one_operator_on_one_executor_share_its_time_by_rows() -> None:
    measured = started("a")
    measured.add({"a": reading(51.0, p0=0.5, p1=0.5)}, {ROWS0: 300, ROWS1: 100})
    assert measured.close({ROWS0: "a", ROWS1: "a"}, 110.0) == pytest.approx(
        {ROWS0: 7.5, ROWS1: 2.5}
    )


def test_what_an_executor_spends_besides_is_no_cost_of_what_is_placed_on_it() -> None:
    measured = started("a")
    measured.add({"a": reading(53.0, p0=0.5, p2=0.5)}, {ROWS0: 10, COUNTED: 10})
    percent = measured.close({ROWS0: "a", COUNTED: "a"}, 110.0)
    assert percent == pytest.approx({ROWS0: 5.0, COUNTED: 5.0})
    assert measured.overhead_percent == pytest.approx(20.0)
    assert measured.with_overhead == pytest.approx({ROWS0: 15.0, COUNTED: 15.0})


def test_overhead_is_the_mean_of_executors_that_run_anything() -> None:
    measured = started("a", "b", "c")
    readings = {"a": reading(53.0, p0=1.0), "b": reading(52.0, p1=1.0), "c": reading(50.1)}
    measured.add(readings, {ROWS0: 10, ROWS1: 10})
    measured.close({ROWS0: "a", ROWS1: "b"}, 110.0)
    assert measured.overhead_percent == pytest.approx(15.0)


def test_an_executor_that_was_emptied_says_nothing_any_more() -> None:
    measured = started("a", "b")
    measured.add({"a": reading(51.0, p0=1.0), "b": reading(56.0, p1=1.0)}, {ROWS0: 1, ROWS1: 1})
    measured.close({ROWS0: "a", ROWS1: "b"}, 110.0)
    assert measured.overhead_percent > 0.0
    measured.add({"a": reading(53.0, p0=1.0, p1=1.0), "b": reading(60.0)}, {ROWS0: 1, ROWS1: 1})
    percent = measured.close({ROWS0: "a", ROWS1: "a"}, 120.0)
    assert percent == pytest.approx({ROWS0: 10.0, ROWS1: 10.0})
    assert measured.used_percent == pytest.approx(20.0)
    assert measured.overhead_percent == 0.0


def test_an_executor_that_has_gone_has_no_overhead_any_more() -> None:
    measured = started("a", "b")
    measured.add({"a": reading(51.0, p0=1.0), "b": reading(56.0, p1=1.0)}, {ROWS0: 1, ROWS1: 1})
    measured.close({ROWS0: "a", ROWS1: "b"}, 110.0)
    assert measured.overhead_percent > 0.0
    measured.forget("b")
    assert measured.overhead_percent == 0.0


def test_what_is_idle_costs_something() -> None:
    measured = started("a")
    measured.add({"a": reading(52.0)}, {})
    percent = measured.close({ROWS0: "a", COUNTED: "a"}, 110.0)
    assert percent == dict.fromkeys((ROWS0, COUNTED), COST_PERCENT_MIN)


def test_what_is_used_in_a_first_window_is_the_time_of_all_executors() -> None:
    measured = started("a", "b")
    measured.add({"a": reading(51.0, p0=0.4), "b": reading(52.0, p1=1.0, p2=0.2)}, {ROWS0: 4})
    measured.close({ROWS0: "a", ROWS1: "b", COUNTED: "b"}, 120.0)
    assert measured.used_percent == pytest.approx(100 * 3.0 / 20)
    assert sum(measured.with_overhead.values()) == pytest.approx(measured.used_percent)


def test_costs_are_smoothed_over_windows() -> None:
    measured = started("a")
    measured.add({"a": reading(51.0, p0=1.0)}, {ROWS0: 1})
    assert measured.close({ROWS0: "a"}, 110.0) == pytest.approx({ROWS0: 10.0})
    measured.add({"a": reading(54.0, p0=3.0)}, {ROWS0: 1})
    assert measured.close({ROWS0: "a"}, 120.0) == pytest.approx({ROWS0: 20.0})


def test_a_window_that_was_restarted_counts_for_nothing() -> None:
    measured = started("a")
    measured.add({"a": reading(90.0, p0=40.0)}, {ROWS0: 1})
    measured.restart(110.0)
    measured.add({"a": reading(91.0, p0=1.0)}, {ROWS0: 1})
    assert measured.close({ROWS0: "a"}, 120.0) == pytest.approx({ROWS0: 10.0})


def test_an_executor_that_has_gone_is_measured_no_more() -> None:
    measured = started("a", "b")
    measured.add({"a": reading(51.0, p0=1.0), "b": reading(59.0, p1=9.0)}, {ROWS0: 1, ROWS1: 1})
    measured.forget("b")
    assert set(measured.close({ROWS0: "a"}, 110.0)) == {ROWS0}


@given(rate=st.floats(1, 1e6), load=st.floats(0, 3), target=st.floats(0.1, 0.9))
def test_a_new_rate_is_nearer_to_the_target_and_never_far_off(
    rate: float, load: float, target: float
) -> None:
    found, there = cost_statistics.calibrated(rate, load, target, 1.0)
    assert 0.69 * rate <= found <= 1.51 * rate
    assert there == (found == rate) or load == target
    if not there:
        assert (found > rate) == (load < target)


def test_nodes_that_do_not_keep_up_get_fewer_rows_whatever_the_load_says() -> None:
    found, there = cost_statistics.calibrated(1000.0, 0.5, 0.7, 2.0)
    assert found < 1000
    assert not there
