"""Windows of cost: they are as long as the input that was computed in them."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.settings import Policy, RuntimeSettings, Settings
from rekindle_spark.driver.partition_table import Retained
from rekindle_spark.flow_control.cost_statistics import STEP_BACK, WINDOW_SECONDS, CostStatistics
from rekindle_spark.flow_control.memory_budget import MemoryBudget
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_testing.runtime_builders import UnreadSource


def running(target: float | None = None) -> Any:
    """An application of one partition on one executor, whose epoch 0 was cut at 1000 s; `target`
    is the load in percent that its rate is chosen for."""
    built = Pipeline("one")
    built.source("rows", UnreadSource(pa.schema([("at", pa.timestamp("us"))]), "at")).sink("out")
    return SimpleNamespace(
        program=program.build(built),
        arrivals=SimpleNamespace(last=SimpleNamespace(rows_per_second=100.0), drains=False),
        cuts={0: SimpleNamespace(cut_at=1000.0)},
        late=SimpleNamespace(seen={}),
        newest=0,
        losses=0,
        moved_at=-1,
        progress=SimpleNamespace(
            complete=True, placed={0: "a"}, live={0}, catching_up=set(), retained=Retained()
        ),
        budget=MemoryBudget(1),
        executors={"a": "node-a"},
        settings=Settings(
            policy=Policy(cpu_cap=0.8),
            runtime=RuntimeSettings(rows_per_second=50.0, load_target_percent=target),
        ),
        events=SimpleNamespace(write=lambda *_, **__: None),
        exchange=SimpleNamespace(retained_count=lambda: 0, live_heap_bytes=lambda: 0),
    )


def compute(application: Any, statistics: CostStatistics, epoch: int, cpu_seconds: float) -> None:
    """An epoch whose input came in until `epoch` seconds after the first; CPU in all so far, all of
    it the partition's own."""
    application.cuts[epoch] = SimpleNamespace(cut_at=1000.0 + epoch)
    application.newest = epoch
    spent = cpu_seconds - statistics.costs.newest.get("a", 0.0)
    cpu = {"a": {"processes": cpu_seconds, "work": {"0": spent}}}
    statistics.add(SimpleNamespace(cpu=cpu, rows_by_partition={0: 10}))


def test_a_late_reading_of_an_executor_that_has_gone_is_not_kept() -> None:
    statistics = CostStatistics(running())
    statistics.forget("lost")
    late = {"lost": {"processes": 3.0, "work": {"0": 1.0}}}
    statistics.add(SimpleNamespace(cpu=late, rows_by_partition={}))
    statistics.costs.close({0: "a"}, 1010.0)
    assert "lost" not in {**statistics.costs.first, **statistics.costs.newest}


def test_epochs_that_a_silent_loss_holds_up_do_not_make_partitions_look_cheap() -> None:
    application = running()
    statistics = CostStatistics(application)
    assert statistics.closed_window() is None
    compute(application, statistics, 1, 0.5)
    statistics.costs.restart(1001.0)
    compute(application, statistics, int(WINDOW_SECONDS), 0.5 * WINDOW_SECONDS)
    # However often and late it is asked: nothing more has been computed.
    assert statistics.closed_window() is None
    compute(application, statistics, int(WINDOW_SECONDS) + 1, 0.5 * WINDOW_SECONDS + 0.5)
    (cost,) = (statistics.closed_window() or {}).values()
    assert cost == pytest.approx(50.0)


def test_a_window_in_which_the_input_was_drained_says_nothing_of_the_steady_state() -> None:
    application = running()
    statistics = CostStatistics(application)
    assert statistics.closed_window() is None
    application.arrivals.drains = True
    compute(application, statistics, 1, 0.9)
    assert statistics.closed_window() is None
    application.arrivals.drains = False
    for epoch in range(2, int(WINDOW_SECONDS) + 2):
        compute(application, statistics, epoch, 0.9 + 0.5 * (epoch - 2))
        assert statistics.closed_window() is None
    compute(application, statistics, int(WINDOW_SECONDS) + 2, 0.9 + 0.5 * WINDOW_SECONDS)
    (cost,) = (statistics.closed_window() or {}).values()
    assert cost == pytest.approx(50.0)


def test_a_start_takes_the_rate_of_the_settings_unless_it_was_calibrated() -> None:
    assert CostStatistics(running()).rows_per_second == 50.0
    assert CostStatistics(running(target=66.0)).rows_per_second == 100.0


def test_a_move_begins_a_window_with_the_epoch_after_the_one_that_ran_some_again() -> None:
    application = running()
    told: list[str] = []
    application.events.write = lambda kind, **_: told.append(kind)
    statistics = CostStatistics(application)
    statistics.closed_window()
    compute(application, statistics, 1, 1.0)
    assert statistics.closed_window() is None
    application.moved_at = 1
    assert statistics.closed_window() is None
    assert told == ["statistics"], "where everything is now"
    compute(application, statistics, 2, 90.0)
    assert statistics.closed_window() is None
    compute(application, statistics, 2 + int(WINDOW_SECONDS), 91.0)
    (cost,) = (statistics.closed_window() or {}).values()
    assert cost == pytest.approx(100 / WINDOW_SECONDS)


def test_a_rate_that_is_held_stays_until_it_is_released() -> None:
    application = running(target=66.0)
    held = True
    statistics = CostStatistics(application, rate_is_held=lambda: held)
    statistics.closed_window()
    rates = []
    for number, held in enumerate((False, True, True, False)):  # noqa: B007 (the lambda reads it)
        for epoch in range(6 * number + 1, 6 * number + 7):
            compute(application, statistics, epoch, 0.1 * epoch)  # a load far below the target
            statistics.closed_window()
        rates.append(statistics.rows_per_second)
    assert rates[0] > 100.0
    assert rates[0] == rates[1] == rates[2]
    assert rates[3] > rates[2]


def test_long_epochs_lower_the_rate_only_where_the_backlog_does_not_get_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = running(target=66.0)
    statistics = CostStatistics(application)
    statistics.closed_window()
    rates = []
    for epoch, now in ((6, 1060.0), (12, 1065.0), (18, 1090.0)):
        monkeypatch.setattr("rekindle_spark.driver.driver_clock.now", lambda now=now: now)
        for cut in range(epoch - 5, epoch + 1):  # three seconds of input each
            compute(application, statistics, 3 * cut, 1.5 * cut)
        assert statistics.closed_window() is not None
        rates.append(statistics.rows_per_second)
    # behind by 42 s, by 29 s, by 36 s
    assert rates == [100.0, 100.0, 100.0 * STEP_BACK]


def test_long_epochs_of_a_start_are_no_sign_of_nodes_that_do_not_keep_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = running(target=66.0)
    application.progress.complete = False
    statistics = CostStatistics(application)
    cuts = [2, 4, 6, 8, 9, 10, 11]  # all run from the third on
    for number, cut in enumerate(cuts):
        compute(application, statistics, cut, 0.528 * cut)
        application.progress.complete = number >= 2
        monkeypatch.setattr("rekindle_spark.driver.driver_clock.now", lambda cut=cut: 1000.0 + cut)
        closed = statistics.closed_window()
    assert closed is not None
    assert statistics.rows_per_second == 100.0


def test_what_is_told_has_the_bytes_of_states_by_partition() -> None:
    application, told = running(), []
    application.events = SimpleNamespace(write=lambda *_, **fields: told.append(fields))
    sizes: dict[int, int] = {}
    statistics = CostStatistics(application, sizes)
    statistics.closed_window()
    statistics.costs.restart(1000.0)
    sizes[0] = 4096  # of a checkpoint since
    compute(application, statistics, 1, 0.5)
    compute(application, statistics, int(WINDOW_SECONDS) + 1, 1.0)
    assert statistics.closed_window() is not None
    assert told[-1]["state_bytes"] == {"rows/0": 4096}


def outage(*cpu_seconds: float, catching_up: bool = False) -> list[float | None]:
    """A partition's cost after each window of five seconds that took so much CPU; the first is of
    the steady state, the others of an outage of something else."""
    application, told = running(), list[float | None]()
    statistics = CostStatistics(application)
    statistics.closed_window()
    spent = 0.0
    for number, cpu in enumerate(cpu_seconds, 1):
        spent += cpu
        compute(application, statistics, 10 * number - 5, spent)
        found = statistics.closed_window()
        told.append(None if found is None else found["rows/0"])
        application.progress.complete = False
        application.progress.catching_up = {1} if catching_up else set()
        compute(application, statistics, 10 * number, spent)
        statistics.closed_window()  # another window begins
    return told


def test_costs_that_rise_in_an_outage_are_measured() -> None:
    assert outage(0.5, 2.0) == [pytest.approx(10.0), pytest.approx(10.0 + 15.0)]


@pytest.mark.parametrize("cpu_seconds", [0.1, 0.5, 0.6])
def test_epochs_of_an_outage_do_not_make_partitions_look_cheap(cpu_seconds: float) -> None:
    assert outage(0.5, cpu_seconds) == [pytest.approx(10.0), pytest.approx(10.0)]


def test_nothing_is_measured_while_something_catches_up() -> None:
    assert outage(0.5, 2.0, catching_up=True) == [pytest.approx(10.0), None]
