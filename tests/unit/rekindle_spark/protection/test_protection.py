"""The loop behind `protect`: what ends it, what does not, and what it leaves behind."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from streaming_world import Job, Spark, Stream, batch

from rekindle.model.errors import FencedError, InputError, RunError
from rekindle_spark.protection import protected_query, protection
from rekindle_spark.protection.protected_query import ProtectedQuery
from rekindle_spark.protection.protection import Protection, protect
from rekindle_spark.protection.spark_view import RunTimes

NAMES = ("orders", "stock", "clicks")
NODES = [(str(number), f"n{number}", 1) for number in range(1, 5)]
SECONDS_MAX = 60.0


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.005)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    monkeypatch.setattr(protection, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(protection, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(protection, "STEADY_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(protected_query, "PYTHON_SECONDS", 0.0)
    monkeypatch.setattr(protected_query, "START_REST_SECONDS", (0.0, 0.0))
    made = Spark()
    made.context.executors = list(NODES)
    return made


@pytest.fixture
def protected(spark: Spark) -> Iterator[Protection]:
    starts = {name: spark.start(name) for name in NAMES}
    made = protect(spark, starts, priorities={"orders": 9}, alone=True)
    wait_until(lambda: bool(made._state.nodes))
    yield made
    made._stopping.set()
    made._thread.join()
    made._pool.shutdown()


def newest(spark: Spark, name: str) -> Stream:
    return spark.made[name][-1]


def lose_nodes(spark: Spark, protected: Protection) -> frozenset[str]:
    """Queries that wait after a loss."""
    spark.context.executors = NODES[:1]
    wait_until(lambda: protected.running < frozenset(NAMES) and protected._state.waits)
    wait_until(lambda: protected.running == protected._state.wanted)
    assert "orders" in protected.running
    return frozenset(NAMES) - protected.running


def test_after_one_loss_upon_another_the_most_important_query_goes_on(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(protection, "MEASURE_SECONDS", float("inf"))
    settings = tmp_path / "settings.yaml"
    settings.write_text("policy:\n  cpu_cap: 0.6\n")
    starts = {name: spark.start(name) for name in NAMES}
    made = protect(spark, starts, priorities={"orders": 9}, settings=settings, alone=True)
    with made:
        reports: Any = made._guidance.reports  # type: ignore[union-attr]
        reports.measure(dict.fromkeys(NAMES, 85.0))
        looks = reports.sequence
        wait_until(lambda: reports.sequence > looks + 10 and bool(made._state.nodes))
        spark.context.executors = NODES[:3]
        wait_until(lambda: made._state.losses == 1 and len(made._state.wanted) == 2)
        spark.context.executors = NODES[:1]
        wait_until(lambda: made._state.losses == 2 and len(made._state.wanted) == 1)
        assert made._state.wanted == {"orders"}


def test_the_most_important_query_goes_on_though_it_takes_all_and_is_behind(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(protection, "MEASURE_SECONDS", float("inf"))
    monkeypatch.setattr(protection, "CHECKPOINT_SECONDS", float("inf"))
    settings = tmp_path / "settings.yaml"
    settings.write_text("policy:\n  cpu_cap: 0.6\n  catch_up_seconds: 1\n")
    starts = {name: spark.start(name) for name in NAMES}
    made = protect(spark, starts, priorities={"orders": 9}, settings=settings, alone=True)
    with made:
        reports: Any = made._guidance.reports  # type: ignore[union-attr]
        reports.measure({"orders": 85.0, "stock": 50.0, "clicks": 50.0})
        wait_until(lambda: reports.checkpoint and time.time() - reports.checkpoint.at > 0.5)
        spark.context.executors = NODES[:1]
        wait_until(lambda: made._state.losses == 1 and len(made._state.wanted) == 1)
        assert made._state.wanted == {"orders"}


def test_when_spark_is_stopped_waiting_ends_with_an_error(
    spark: Spark, protected: Protection
) -> None:
    spark.context.is_stopped = True
    with pytest.raises(RunError, match="Spark has been stopped"):
        protected.await_termination(SECONDS_MAX)


def test_an_error_that_passes_stops_and_starts_nothing(spark: Spark, protected: Protection) -> None:
    lose_nodes(spark, protected)
    before = {name: len(made) for name, made in spark.made.items()}
    looks = protected._guidance.reports.sequence  # type: ignore[union-attr]
    spark.context.failure = Py4JError("the stage is gone")
    time.sleep(3 * protection.LOOK_SECONDS)
    spark.context.failure = None
    reports: Any = protected._guidance.reports  # type: ignore[union-attr]
    wait_until(lambda: reports.sequence > looks + 3)
    assert {name: len(made) for name, made in spark.made.items()} == before
    assert protected._thread.is_alive()


def test_while_looks_go_on_to_fail_all_run_and_then_plans_are_followed_again(
    spark: Spark, protected: Protection
) -> None:
    waiting = lose_nodes(spark, protected)
    spark.context.failure = Py4JError("no answer")
    wait_until(lambda: protected.running == frozenset(NAMES))
    spark.context.failure = None
    wait_until(lambda: protected.running == frozenset(NAMES) - waiting)


def test_one_query_that_cannot_be_looked_at_keeps_no_other_waiting(
    spark: Spark, protected: Protection
) -> None:
    waiting = lose_nodes(spark, protected)
    newest(spark, "orders").look_error = Py4JError("no answer")
    wait_until(lambda: all(newest(spark, name).is_active for name in waiting))
    newest(spark, "orders").look_error = None


def test_a_newer_driver_stops_all_queries_also_where_a_stop_fails(
    spark: Spark, protected: Protection
) -> None:
    newest(spark, "orders").stop_error = TimeoutError("it takes too long")
    fenced = FencedError(where="application a/b", what="has a newer driver", remedy="let it go on")
    contact = type("Contact", (), {"fenced": fenced})
    protected._guidance.contact = contact()  # type: ignore[union-attr]
    with pytest.raises(FencedError, match="newer driver"):
        protected.await_termination(SECONDS_MAX)
    assert protected.running == {"orders"}


def test_a_stop_that_fails_is_raised_once_everything_else_is_done(
    spark: Spark, protected: Protection
) -> None:
    newest(spark, "orders").stop_error = TimeoutError("it takes too long")
    with pytest.raises(TimeoutError):
        protected.stop()
    assert protected.running == {"orders"}
    assert protected._guidance.reports.finished  # type: ignore[union-attr]
    assert protected.await_termination(SECONDS_MAX), "who waits in another thread waits no longer"


def test_what_a_start_function_raises_in_an_incident_is_raised_to_who_waits(
    spark: Spark, protected: Protection
) -> None:
    waiting = lose_nodes(spark, protected)

    def start() -> Stream:
        raise OSError("no broker answers")

    for one in protected._protected:
        one.start = start if one.name in waiting else one.start
    spark.context.executors = [*NODES[:1], *((f"1{name}", host, 1) for name, host, _ in NODES[1:])]
    with pytest.raises(OSError, match="no broker answers"):
        protected.await_termination(SECONDS_MAX)


def test_a_query_that_is_behind_keeps_no_other_from_being_measured(
    spark: Spark, protected: Protection
) -> None:
    late = newest(spark, "clicks")
    late.message, late.progress = "Processing new data", batch(1, 1.0, offsets=(1, 9))
    wait_until(lambda: not protected._protected[2].is_caught_up)
    runs = {name: newest(spark, name).runId for name in NAMES}
    jobs = spark.context.jobs
    jobs |= {number: Job(run, 0, 0) for number, run in enumerate(runs.values())}
    wait_until(lambda: len(protected._times.windows) == 2)
    jobs |= {10 + number: Job(run, 10_000, 4_000) for number, run in enumerate(runs.values())}
    wait_until(lambda: bool(protected.loads))
    assert protected.loads == {"orders": 40.0, "stock": 40.0}


def test_run_times_that_cannot_be_read_are_no_figure_and_no_failure(
    spark: Spark, protected: Protection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise Py4JError("no answer")

    monkeypatch.setattr(protected._times, "context", type("None", (), {"statusTracker": fail})())
    spark.context.executors = NODES[:3]
    wait_until(lambda: protected._state.losses == 1)
    assert protected.loads == {}


@pytest.fixture
def looks(protected: Protection, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which queries are looked at, from when all have caught up and are looked at once an hour."""
    found: list[str] = []
    look = ProtectedQuery.look

    def noted(one: ProtectedQuery, *arguments: Any) -> None:
        found.append(one.name)
        look(one, *arguments)

    wait_until(lambda: all(one.is_settled for one in protected._protected))
    monkeypatch.setattr(protection, "STEADY_LOOK_SECONDS", 3_600.0)
    monkeypatch.setattr(ProtectedQuery, "look", noted)
    let_turns_pass(protected)
    found.clear()
    return found


def let_turns_pass(protected: Protection) -> None:
    """Until the loop has gone round some times more."""
    reports: Any = protected._guidance.reports  # type: ignore[union-attr]
    sequence = reports.sequence
    wait_until(lambda: reports.sequence > sequence + 5)


def test_queries_that_have_caught_up_are_looked_at_now_and_then(
    protected: Protection, looks: list[str]
) -> None:
    let_turns_pass(protected)
    assert not looks
    protected._protected[0].looked_at -= 7_200.0
    let_turns_pass(protected)
    assert looks == ["orders"]


def test_a_query_that_ends_is_noticed_by_the_number_that_run(
    spark: Spark, protected: Protection, looks: list[str]
) -> None:
    newest(spark, "clicks").is_active = False
    wait_until(lambda: "clicks" in protected.ended)
    let_turns_pass(protected)
    assert looks == list(NAMES), "and then all are left alone"


def test_after_a_loss_queries_are_looked_at_each_time(
    spark: Spark, protected: Protection, looks: list[str]
) -> None:
    lose_nodes(spark, protected)
    let_turns_pass(protected)
    looks.clear()
    let_turns_pass(protected)
    assert all(looks.count(name) > 3 for name in NAMES)


def test_costs_are_measured_less_often_the_longer_they_are_steady(
    protected: Protection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: Any = protected._guidance.reports  # type: ignore[union-attr]
    protected._stopping.set()
    protected._thread.join()
    monkeypatch.setattr(protection, "MEASURE_SECONDS", 10.0)
    monkeypatch.setattr(RunTimes, "loads", lambda *_: dict.fromkeys(NAMES, 10.0))
    protected._measured_at = float("-inf")

    def measured_at(start: int, end: int, count: int) -> list[int]:
        found = []
        for second in range(start, end):
            protected._measure(reports, list(protected._protected[:count]), float(second))
            if protected._measured_at == second:
                found.append(second)
        return found

    assert measured_at(0, 240, 3) == [0, 15, 38, 72, 123, 183]
    assert measured_at(240, 271, 2) == [240, 250, 260, 270], "one of them is behind"


def test_a_start_function_that_needs_too_much_is_refused_before_anything_is_started(
    spark: Spark,
) -> None:
    def start(name: str, limit: object) -> None:
        raise AssertionError(f"{name} was started with {limit}")

    with pytest.raises(InputError, match="needs name, limit"):
        protect(spark, {"orders": spark.start("orders"), "stock": start})
    assert not spark.made


@pytest.mark.parametrize("said", ["true", "TRUE", " True "])
def test_dynamic_allocation_is_refused_however_it_is_spelled(spark: Spark, said: str) -> None:
    spark.settings["spark.dynamicAllocation.enabled"] = said
    with pytest.raises(InputError, match="dynamicAllocation"):
        protect(spark, {"orders": spark.start("orders")}, alone=True)
    assert not spark.made


def test_a_second_call_is_refused_while_the_first_one_plans_for_all_executors(
    spark: Spark, protected: Protection
) -> None:
    """The second driver of an application stops the queries of the first."""
    more = {"returns": spark.start("returns")}
    with pytest.raises(InputError, match="protects other queries of this application already"):
        protect(spark, more, alone=True)
    assert "returns" not in spark.made
    assert protected.running == frozenset(NAMES)
    protected.stop()
    protect(spark, more, alone=True).stop()
    assert len(spark.made["returns"]) == 1


def test_a_spark_that_is_too_old_is_refused_before_anything_starts(spark: Spark) -> None:
    spark.version = "3.4.4"
    with pytest.raises(InputError, match=r"is Spark 3\.4\.4, which is too old"):
        protect(spark, {"orders": spark.start("orders")})
    assert not spark.made


@pytest.mark.parametrize(
    ("version", "is_tried"), [("3.5.0", False), ("4.3.1-SNAPSHOT", False), ("4.10.0", True)]
)
def test_a_newer_spark_is_tried_with_a_warning(
    spark: Spark, version: str, is_tried: bool, caplog: pytest.LogCaptureFixture
) -> None:
    spark.version = version
    protect(spark, {"orders": spark.start("orders")}).stop()
    warned = f"are made for Spark 3.5 to 4.3, and this is Spark {version}" in caplog.text
    assert warned == is_tried


def test_a_spark_that_says_nothing_of_its_executors_is_refused(spark: Spark) -> None:
    spark.context.failure = Py4JError("method is not whitelisted")
    with pytest.raises(InputError, match=r"which executors it has: method is not whitelisted"):
        protect(spark, {"orders": spark.start("orders")})
    assert not spark.made
