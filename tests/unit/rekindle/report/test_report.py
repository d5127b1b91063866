"""The figures of a report, for made-up runs in which every figure is known."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from rekindle import report
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event
from rekindle.report import availability
from rekindle_testing import run_builders
from rekindle_testing.run_builders import BuiltRun, BuiltScenario

RIGHT = {"expected_rows": 10, "missing": 0, "duplicated": 0, "wrong": 0}
# 3 nodes: a and d lie on the one that survives, b, c, e and f are lost. A node's cap is 40 %.
PRIORITIES = {"a": 1.0, "b": 2.0, "c": 9.0, "d": 1.0, "e": 5.0, "f": 3.0}
SMALL = {"closures": {"a/0": []}, "priorities": {"a": 1}}
SCENARIO = BuiltScenario(PRIORITIES, nodes=3, killed=2, returns=(10.0, 16.0), cpu_quota=0.75)


def compute(run: BuiltRun) -> dict[str, Any]:
    return report.compute(
        run.events,
        run.facts,
        run.input_record,
        run.problems,
        run.answers,
        RIGHT,
        time.monotonic,
    )


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return compute(run_builders.make(SCENARIO))


def test_a_query_on_surviving_nodes_was_never_lost(figures: dict[str, Any]) -> None:
    assert figures["queries"]["a"] == {
        "priority": 1.0,
        "survived": True,
        "normal_worst_lag_seconds": pytest.approx(1.25),
        "unavailable": [],
        "unavailable_seconds": 0.0,
        "lost_at": None,
        "back_at": None,
        "epochs_lost": 0,
    }


def test_a_lost_query_is_unavailable_from_its_limit_until_its_first_complete_commit(
    figures: dict[str, Any],
) -> None:
    # Last commit before the failure: the epoch cut at -0.5. Limit: 1.25 s and an epoch of 1 s.
    # Planned half a second after the return at 10 s, back 1.5 s later.
    query = figures["queries"]["c"]
    assert query["unavailable"] == [[pytest.approx(1.75), pytest.approx(12.0)]]
    assert query["unavailable_seconds"] == pytest.approx(10.25)
    assert (query["lost_at"], query["back_at"]) == (0.0, 12.0)


def test_unavailability_is_weighed_by_priority(figures: dict[str, Any]) -> None:
    seconds = {name: query["unavailable_seconds"] for name, query in figures["queries"].items()}
    weighed = sum(PRIORITIES[name] * seconds[name] for name in seconds) / 21.0
    assert figures["weighted_unavailable_seconds"] == pytest.approx(weighed)


def test_the_time_beyond_a_goal_is_counted_from_the_failure_on_and_weighed_by_priority() -> None:
    run = run_builders.make(SCENARIO)
    topology = {**run.input_record["topology"], "lag_goals": {"c": 5.0, "a": 1.0}}
    found = compute(replace(run, input_record={**run.input_record, "topology": topology}))
    queries = found["queries"]
    # c: an epoch cut at -0.5 is its newest until 12.0; a lags up to 1.25 s, in each epoch of 1 s.
    assert queries["c"]["lag_goal_seconds"] == 5.0
    assert queries["c"]["beyond_goal_seconds"] == pytest.approx(12.0 - 4.5)
    beyond_of_a = queries["a"]["beyond_goal_seconds"]
    assert 0.0 < beyond_of_a < 0.3 * found["end"]
    weighed = (9.0 * 7.5 + 1.0 * beyond_of_a) / 10.0
    assert found["weighted_beyond_goal_seconds"] == pytest.approx(weighed)
    assert "beyond_goal_seconds" not in queries["b"], "it has no goal"


def test_a_run_without_goals_says_nothing_of_them(figures: dict[str, Any]) -> None:
    assert "weighted_beyond_goal_seconds" not in figures


def test_the_bound_has_the_same_plans_without_delay(figures: dict[str, Any]) -> None:
    # Costs are equal, so importance alone decides, and each plan takes effect 2 s earlier.
    lost = sum(PRIORITIES[name] for name in "bcef")
    expected = figures["weighted_unavailable_seconds"] - 2.0 * lost / 21.0
    assert figures["weighted_unavailable_seconds_bound"] == pytest.approx(expected)


def test_plans_tell_what_they_brought_back_and_with_what(figures: dict[str, Any]) -> None:
    assert [plan["queries"] for plan in figures["plans"]] == [["c", "e", "f"], ["b"]]
    assert figures["plans"][0] == {
        "at": 10.5,
        "capacity_cpu_percent": pytest.approx(60.0),
        "queries": ["c", "e", "f"],
        "priority_sum": 17.0,
        "solver": "best-density",
        "gap": 0.0,
        "skipped": [
            {
                "query": "b",
                "priority": 2.0,
                "reason": "no-capacity",
                "needed_cpu_percent": 20.0,
                "free_cpu_percent": 0.0,
            }
        ],
        "why": "b (priority 2) waits while a (priority 1) runs: it needs 20 % of a core and "
        "nothing is left, and what runs is not stopped for it.",
    }
    assert figures["plans"][1]["skipped"] == []


def test_the_first_plan_is_counted_in_epochs_from_the_return_that_made_it_possible(
    figures: dict[str, Any],
) -> None:
    assert figures["first_plan_epochs"] == 2
    assert figures["first_plan_seconds"] == pytest.approx(10.6)


def test_nodes_are_listed_as_killed_and_returned(figures: dict[str, Any]) -> None:
    assert figures["killed"] == 2
    assert figures["victims"] == ["127.0.0.3", "127.0.0.4"]
    assert figures["returns"] == [
        {"node": "127.0.0.3", "at": 10.0},
        {"node": "127.0.0.4", "at": 16.0},
    ]


def test_the_bound_reckons_with_a_node_that_is_lost_later(figures: dict[str, Any]) -> None:
    run = run_builders.make(SCENARIO)
    events = sorted([*run.events, Event(12.0, "kill", node="127.0.0.3")], key=lambda one: one.t)
    name = "weighted_unavailable_seconds_bound"
    # From 16 s on there is one node beside the survivor instead of two.
    assert compute(replace(run, events=events))[name] > figures[name]


def with_overhead(overhead_percent: Any) -> BuiltRun:
    run = run_builders.make(SCENARIO)
    events = [
        replace(one, extra={**one.extra, "overhead_percent": overhead_percent})
        if one.kind == "statistics"
        else one
        for one in run.events
    ]
    return replace(run, events=events)


def test_the_bound_reckons_with_what_executors_take_beside_partitions(
    figures: dict[str, Any],
) -> None:
    name = "weighted_unavailable_seconds_bound"
    assert compute(with_overhead(0.0))[name] == figures[name]
    assert compute(with_overhead(25.0))[name] > figures[name]


@pytest.mark.parametrize("value", [-1.0, "3", None])
def test_an_overhead_that_no_executor_has_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="overhead_percent"):
        compute(with_overhead(value))


def test_throughput_is_rows_over_the_time_that_the_cuts_span(figures: dict[str, Any]) -> None:
    assert figures["throughput_rows_per_second"] == pytest.approx(10.0)


def test_a_report_is_plain_json(figures: dict[str, Any]) -> None:
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_a_query_that_never_comes_back_is_unavailable_to_the_end() -> None:
    run = run_builders.make(replace(SCENARIO, returns=(10.0,)))
    query = compute(run)["queries"]["b"]
    assert query["back_at"] is None
    assert query["unavailable"] == [[pytest.approx(1.75), 42.0]]


def test_warm_up_does_not_count_into_the_normal_lag() -> None:
    run = run_builders.make(SCENARIO)
    slow = [event for event in run.events if event.kind != "commit" or not -50 < event.t < -40]
    assert compute(replace(run, events=tuple(slow)))["queries"]["a"][
        "normal_worst_lag_seconds"
    ] == pytest.approx(11.25)
    warm = sorted([*slow, Event(-30.0, "warm")], key=lambda event: event.t)
    assert compute(replace(run, events=tuple(warm)))["queries"]["a"][
        "normal_worst_lag_seconds"
    ] == pytest.approx(1.25)


def test_a_survivor_that_stalls_is_unavailable_and_its_late_epochs_are_counted() -> None:
    run = run_builders.make(SCENARIO)
    stalled = [
        event
        for event in run.events
        if event.kind != "commit" or event.query != "a" or not 0 <= event.t < 6
    ]
    query = compute(replace(run, events=tuple(stalled)))["queries"]["a"]
    assert query["survived"]
    assert query["unavailable"] == [[pytest.approx(1.75), pytest.approx(6.75)]]
    # Epochs cut at 0.5, ..., 5.5 come at 6.75; those up to 3.5 are over 2.25 s late, the one
    # in flight at the failure is the one cut at 0.5.
    assert query["epochs_lost"] == 3
    assert query["lost_at"] is None


def test_without_statistics_nothing_is_known_to_have_survived_and_there_is_no_bound() -> None:
    run = run_builders.make(SCENARIO)
    events = tuple(event for event in run.events if event.kind != "statistics")
    figures = compute(replace(run, events=events))
    assert not any(query["survived"] for query in figures["queries"].values())
    assert figures["weighted_unavailable_seconds_bound"] is None


def test_late_rows_are_those_that_the_run_told_of_last() -> None:
    run = run_builders.make(SCENARIO)
    assert "late_rows" not in compute(run), "the run is of a version that counted none"
    end = max(event.t for event in run.events)
    told = [
        Event(t=t, kind=kind, epoch=1, extra={"late_rows": {"counts": rows}})
        for t, kind, rows in ((end, "finish", 5), (end - 1.0, "late-rows", 3))
    ]
    events = tuple(sorted((*run.events, *told), key=lambda event: event.t))
    assert compute(replace(run, events=events))["late_rows"] == {"counts": 5}


def test_cuts_that_name_a_query_count_for_that_query_alone() -> None:
    run = run_builders.make(SCENARIO)
    own = [
        replace(event, query=query) if event.kind == "cut" else event
        for event in run.events
        for query in (PRIORITIES if event.kind == "cut" else ["-"])
    ]
    assert compute(replace(run, events=tuple(own)))["queries"] == compute(run)["queries"]


@pytest.mark.parametrize("queries", [tuple(PRIORITIES), (None,)])
def test_the_input_of_a_query_may_end_with_an_epoch_that_only_a_cut_names(
    queries: tuple[str | None, ...],
) -> None:
    run = run_builders.make(SCENARIO)
    final = max(event.epoch or 0 for event in run.events)
    own = [
        replace(event, query=query, extra={"final": event.epoch == final})
        for event in run.events
        if event.kind == "cut"
        for query in queries
    ]
    others = [event for event in run.events if event.kind != "cut"]
    finish = [replace(event, epoch=None) for event in others if event.kind == "finish"]
    events = [*own, *(event for event in others if event.kind != "finish"), *finish]
    same = replace(run, events=tuple(sorted(events, key=lambda event: event.t)))
    assert compute(same)["queries"] == compute(run)["queries"]


def test_epochs_longer_than_the_time_of_normal_lag_are_measured_over_all_before_the_failure() -> (
    None
):
    run = run_builders.make(SCENARIO)
    before = sorted(e.epoch or 0 for e in run.events if e.kind == "cut" and e.t <= 0.0)
    dropped = set(before[1:]) - {before[-1]}
    events = tuple(e for e in run.events if e.kind != "cut" or e.epoch not in dropped)
    warm = replace(run.events[0], kind="warm", t=-0.75, epoch=None, query=None)
    late = tuple(sorted([*(e for e in events if e.kind != "warm"), warm], key=lambda e: e.t))
    computed = compute(replace(run, events=late))
    cuts = [e.t for e in run.events if e.kind == "cut" and e.epoch in (before[0], before[-1])]
    assert computed["epoch_seconds"] == pytest.approx(cuts[1] - cuts[0])


@pytest.mark.parametrize(
    ("without", "message"),
    [("finish", "no finish event"), ("cut", "fewer than two cuts")],
)
def test_a_run_without_the_records_that_a_figure_needs_is_refused(
    without: str, message: str
) -> None:
    run = run_builders.make(SCENARIO)
    events = tuple(event for event in run.events if event.kind != without)
    with pytest.raises(InputError, match=message):
        compute(replace(run, events=events))


def test_a_plan_without_its_problem_is_refused() -> None:
    with pytest.raises(InputError, match=r"problems/1\.json: is missing"):
        compute(replace(run_builders.make(SCENARIO), problems={}))


def test_the_bound_keeps_what_is_back_and_pays_shared_partitions_once() -> None:
    record = {
        **run_builders.make(SCENARIO).input_record,
        "topology": {
            "closures": {"a/0": ["s/0", "a/0"], "b/0": ["s/0", "b/0"], "c/0": ["c/0"]},
            "priorities": {"a": 3, "b": 2, "c": 4},
        },
    }
    inputs = report.Inputs.from_record(record)
    costs = {"s/0": 30.0, "a/0": 10.0, "b/0": 10.0, "c/0": 35.0}
    asked: list[list[str]] = []

    def choose(problem: Any) -> list[str]:
        asked.append(sorted(problem["queries"]))
        fits = problem["capacity_cpu_percent"] >= 40
        return ["a"] if "a" in problem["queries"] and fits else []

    steps = [(0.0, 20.0), (10.0, 45.0), (20.0, 50.0)]
    assert availability.back_times(inputs, costs, frozenset(), steps, choose) == {"a": 10.0}
    assert asked == [["a", "b", "c"], ["a", "b", "c"], ["b", "c"]]


def test_a_query_whose_partitions_all_run_for_others_is_back_with_them() -> None:
    record = {
        **run_builders.make(SCENARIO).input_record,
        "topology": {
            "closures": {"a/0": ["s/0", "a/0"], "b/0": ["s/0"]},
            "priorities": {"a": 3, "b": 2},
        },
    }
    inputs = report.Inputs.from_record(record)
    back = availability.back_times(
        inputs, {"s/0": 1.0, "a/0": 1.0}, frozenset(), [(5.0, 9.0)], lambda _: ["a"]
    )
    assert back == {"a": 5.0, "b": 5.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version: is 2"),
        ({"topology": {"closures": {}, "priorities": {"a": 1}}}, "no partition of the query a"),
        (
            {"topology": {**SMALL, "lag_goals": {"b": 5}}},
            "topology.lag_goals.b: names no query",
        ),
        (
            {"topology": {**SMALL, "lag_goals": {"a": 0}}},
            "topology.lag_goals.a: is 0, not above 0",
        ),
        ({"topology": {"closures": {"a/0": []}, "priorities": {"a": 0}}}, "not above 0"),
        ({"offsets": {}}, "offsets.flights: is missing"),
        ({"files": [{"name": "flights"}]}, r"files\[0\]: path: is missing"),
    ],
)
def test_an_ill_formed_input_record_is_named_by_field(change: Any, message: str) -> None:
    record = {**run_builders.make(SCENARIO).input_record, **change}
    with pytest.raises(InputError, match=message):
        report.Inputs.from_record(record)
