"""What each plan left waiting, followed through the events and plans of a run."""

from typing import Any

from rekindle.model.run_events import Event
from rekindle.report import report_figures
from rekindle.report.input_record import Inputs

# Each query has one partition of its own behind a source of its own, but for `wide`, which has two.
CLOSURES = {
    "top/0": ("flights/0", "top/0"),
    "wide/0": ("flights/0", "wide/0"),
    "wide/1": ("flights/0", "wide/1"),
    "small/0": ("weather/0",),
}
PRIORITIES = {"top": 9.0, "wide": 7.0, "small": 1.0}
COSTS = {"flights/0": 5.0, "top/0": 10.0, "wide/0": 20.0, "wide/1": 20.0, "weather/0": 1.0}
INPUTS = Inputs((), {}, 1.0, {}, CLOSURES, PRIORITIES)


def statistics(**placement: str) -> Event:
    placed = {name.replace("_", "/"): node for name, node in placement.items()}
    return Event(-1.0, "statistics", extra={"costs": COSTS, "placement": placed})


def plan(at: float, number: int, *queries: str) -> Event:
    return Event(at, "plan", plan_epoch=number, extra={"queries": list(queries), "n": number})


def problem(queries: tuple[str, ...], node_percent: float, factor: float = 2.0) -> dict[str, Any]:
    needed = {name for query in queries for name in CLOSURES[query]}
    return {
        "partitions": {name: {"cpu_percent": factor * COSTS[name]} for name in needed},
        "nodes": {"n1": {"free_cpu_percent": node_percent}},
    }


def answer(placed: list[str], **left_out: str) -> dict[str, Any]:
    named = {name.replace("_", "/"): reason for name, reason in left_out.items()}
    return {"placement": {"n1": placed}, "skipped": named}


BEFORE = statistics(flights_0="n2", top_0="n2", wide_0="n2", wide_1="n2", weather_0="n1")
RUN = (BEFORE, Event(0.0, "kill", node="n2"), plan(1.0, 1, "top/0"), plan(9.0, 2, "wide/0"))
PROBLEMS = {
    1: problem(("top/0", "wide/0"), 40.0),
    2: problem(("wide/0", "wide/1"), 50.0),
}
ANSWERS = {
    1: answer(["flights/0", "top/0"], wide_0="no-capacity"),
    2: answer(["wide/0"], wide_1="no-capacity"),
}


def test_what_waits_after_a_plan_is_listed_with_what_it_needs_and_what_is_left() -> None:
    found = report_figures.follow(RUN, INPUTS, PROBLEMS, ANSWERS)[1]
    assert found.queries == (
        {
            "query": "wide",
            "priority": 7.0,
            "reason": "no-capacity",
            "needed_cpu_percent": 80.0,
            "free_cpu_percent": 10.0,
        },
    )


def test_what_the_planner_had_put_off_is_known_though_no_problem_names_it() -> None:
    narrow = {**PROBLEMS, 1: problem(("top/0",), 40.0)}
    chosen = {**ANSWERS, 1: answer(["flights/0", "top/0"])}
    (entry,) = report_figures.follow(RUN, INPUTS, narrow, chosen)[1].queries
    assert (entry["query"], entry["reason"]) == ("wide", report_figures.PUT_OFF)
    assert entry["needed_cpu_percent"] == 80.0  # dearer than steadily, like what was planned


def test_why_a_seven_waits_while_a_one_runs_is_one_sentence() -> None:
    found = report_figures.follow(RUN, INPUTS, PROBLEMS, ANSWERS)[1]
    assert found.sentence == (
        "wide (priority 7) waits while small (priority 1) runs: it needs 80 % of a core and 10 % "
        "is left, and what runs is not stopped for it."
    )


def test_a_query_of_which_one_partition_is_back_still_waits() -> None:
    found = report_figures.follow(RUN, INPUTS, PROBLEMS, ANSWERS)[2]
    assert [entry["query"] for entry in found.queries] == ["wide"]
    assert found.queries[0]["needed_cpu_percent"] == 40.0


def test_where_all_comes_back_nothing_is_left_waiting() -> None:
    events = (*RUN, plan(15.0, 3, "wide/1"))
    problems = {**PROBLEMS, 3: problem(("wide/1",), 90.0)}
    answers = {**ANSWERS, 3: answer(["wide/1"])}
    last = report_figures.follow(events, INPUTS, problems, answers)[3]
    assert (last.queries, last.sentence) == ((), None)


def test_what_waits_for_something_more_important_needs_no_sentence() -> None:
    gone = statistics(flights_0="n1", top_0="n1", wide_0="n2", wide_1="n2", weather_0="n2")
    events = (gone, Event(0.0, "kill", node="n2"), plan(1.0, 1, "wide/0"))
    answers = {1: answer(["wide/0"], wide_1="no-capacity")}
    found = report_figures.follow(events, INPUTS, {1: PROBLEMS[2]}, answers)[1]
    assert [entry["query"] for entry in found.queries] == ["wide", "small"]
    assert found.sentence is None


def test_a_run_without_measurements_says_nothing() -> None:
    assert report_figures.follow(RUN[1:], INPUTS, PROBLEMS, ANSWERS) == {}
