"""Histories of runs whose operations are opaque: recorded, judged, and cut down to a witness."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rekindle import history
from rekindle.history import HistoryVerdict
from rekindle.history.history_recorder import NO_ROWS
from rekindle.history.history_steps import History
from rekindle.model.topology import Query, Topology, TopologyOperator

TOPOLOGY = Topology(
    (TopologyOperator("flights", 2), TopologyOperator("late", 1)),
    (("flights", "late"),),
    (Query("carriers", "late", 5), Query("raw", "flights", 2)),
)
ZERO_AT = 1_000.0


def commit(at: float, **finished: tuple[int, int, str]) -> dict[str, Any]:
    """A commit record: `late_0=(1, 2, "xy")` has finished two epochs with digests x and y.

    Every epoch has three rows, but those with digest "-" have none.
    """
    channels = {"late/0": ("carriers/0",), "flights/0": ("raw/0",), "flights/1": ("raw/1",)}
    named = {name.replace("_", "/"): found for name, found in finished.items()}
    outputs = [
        [channel, epoch, 3, f"{epoch}.parquet", f"rows-{digest}"]
        for name, (first, last, digests) in named.items()
        for channel in channels[name]
        for epoch, digest in zip(range(first, last + 1), digests, strict=True)
        if digest != "-"
    ]
    return {
        "at": ZERO_AT + at,
        "plan_epoch": 1,
        "generation": 1,
        "finished": {name: [first, last, [*sums]] for name, (first, last, sums) in named.items()},
        "outputs": outputs,
    }


def again(at: float, **finished: tuple[int, int, str]) -> dict[str, Any]:
    """The same for epochs that were released before."""
    return {**commit(at, **finished), "outputs": []}


def cut(at: float, epoch: int) -> dict[str, Any]:
    return {"kind": "cut", "at": ZERO_AT + at, "epoch": epoch, "rows": 9, "cut_at": ZERO_AT + at}


def event(at: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "at": ZERO_AT + at, **fields}


EVENTS = [
    event(0, "joined", node="n1", executor="1"),
    event(0, "recovered", epoch=0),
    cut(1, 1),
    cut(2, 2),
    event(3, "kill", node="n1"),
    event(3, "kill", node="n2"),
    event(3.5, "confirmed", node="n1"),
    event(5, "recovered", epoch=2),
    event(6, "checkpoint", epoch=2),
    event(9, "finish", epoch=2),
]
COMMITS = [
    commit(1.5, flights_0=(1, 1, "a"), flights_1=(1, 1, "b"), late_0=(1, 1, "-")),
    commit(2.5, flights_0=(2, 2, "c"), flights_1=(2, 2, "d")),
    again(4.0, flights_0=(1, 2, "ac")),
    commit(5.0, late_0=(2, 2, "e")),
]


def recorded(commits: Any = COMMITS, events: Any = EVENTS, **more: Any) -> History:
    made = history.record(TOPOLOGY, commits, events, zero_at=ZERO_AT, **more)
    read = history.parse(history.serialize(made), "history.jsonl")
    assert read == made
    return read


def judge(run: History) -> HistoryVerdict:
    return history.check(run, "history.jsonl")


def steps(run: History) -> list[str]:
    found = []
    for record in map(history.record_of, run.steps):
        name = record.get("operation", record.get("channel", ""))
        found.append(
            " ".join(str(part) for part in (record["kind"], name, record.get("epoch", "")) if part)
        )
    return found


def test_a_run_is_recorded_with_all_that_happened_in_order() -> None:
    assert steps(recorded()) == [
        "input 1",
        "computed flights/0 1",
        "computed flights/1 1",
        "computed late/0 1",
        "output carriers/0 1",
        "output raw/0 1",
        "output raw/1 1",
        "input 2",
        "computed flights/0 2",
        "computed flights/1 2",
        "output raw/0 2",
        "output raw/1 2",
        "failure",
        "computed flights/0 1",
        "computed flights/0 2",
        "computed late/0 2",
        "output carriers/0 2",
        "recovery",
        "snapshot 2",
        "end",
    ]


def test_epochs_without_rows_are_released_too() -> None:
    first = next(
        step for step in map(history.record_of, recorded().steps) if step["kind"] == "output"
    )
    assert (first["rows"], first["digest"], first["t"]) == (0, NO_ROWS, 1.5)


def test_the_graph_of_a_run_is_its_operator_partitions() -> None:
    graph = recorded().graph
    assert {operation.name: operation.sources for operation in graph.operations} == {
        "flights/0": (),
        "flights/1": (),
        "late/0": ("flights/0", "flights/1"),
    }
    assert graph.outputs == {"carriers/0": "late/0", "raw/0": "flights/0", "raw/1": "flights/1"}


def test_a_run_that_recovers_exactly_is_consistent_exactly_once_and_deterministic() -> None:
    verdict = judge(recorded())
    assert verdict.holds
    assert verdict.ended
    assert verdict.deterministic
    assert verdict.non_commutative is None
    assert verdict.counts["computed_again"] == 2


def test_a_new_driver_and_an_executor_lost_by_itself_are_failures() -> None:
    sealed = {**again(4.5), "generation": 2}
    lost = [event(1.2, "confirmed", node="n7"), event(1.3, "state-lost", node="n8")]
    run = recorded([*COMMITS[:3], sealed, COMMITS[3]], [*EVENTS, *lost])
    assert judge(run).counts["failures"] == 4
    assert judge(run).holds


def test_an_epoch_whose_driver_died_before_it_told_of_the_cut_is_known_by_its_offsets() -> None:
    without = [told for told in EVENTS if told.get("epoch") != 2 or told["kind"] != "cut"]
    assert judge(recorded(events=without)).witness is not None
    offsets = {"epoch": 2, "cut_at": ZERO_AT + 2}
    assert judge(recorded(events=without, logged=[offsets])).holds


def fail(
    commits: Any = COMMITS, events: Any = EVENTS, references: Mapping[Any, Any] | None = None
) -> HistoryVerdict:
    """The verdict, after the witness has been put to the test."""
    verdict = judge(recorded(commits, events, **({"references": references} if references else {})))
    witness = verdict.witness
    assert witness is not None
    assert not verdict.holds
    found = judge(history.parse(history.serialize(witness.history), "witness.jsonl")).witness
    assert found is not None
    assert (found.kind, found.history) == (witness.kind, witness.history)
    for place in range(len(witness.history.steps)):
        fewer = (*witness.history.steps[:place], *witness.history.steps[place + 1 :])
        less = judge(History(witness.history.graph, fewer)).witness
        assert less is None or less.kind != witness.kind
    return verdict


def shown(verdict: HistoryVerdict) -> list[str]:
    assert verdict.witness is not None
    return [verdict.witness.kind, *steps(verdict.witness.history)]


def test_an_output_released_twice_is_at_least_once() -> None:
    twice = commit(4.2, flights_0=(2, 2, "c"))
    verdict = fail([*COMMITS[:3], twice, COMMITS[3]])
    assert verdict.consistent
    assert (verdict.at_least_once, verdict.at_most_once) == (True, False)
    assert shown(verdict) == ["released-twice", "input 2", "output raw/0 2", "output raw/0 2"]
    assert verdict.witness is not None
    assert verdict.witness.sentence == "raw/0 released epoch 2 twice, at t 2.5 and at t 4.2."
    assert verdict.witness.because == "The last failure before it was at t 3."
    assert [o.name for o in verdict.witness.history.graph.operations] == ["flights/0"]


def test_an_output_released_twice_with_other_rows_is_inconsistent() -> None:
    verdict = fail([*COMMITS[:3], commit(4.2, flights_0=(2, 2, "z")), COMMITS[3]])
    assert not verdict.consistent
    assert not verdict.at_least_once
    assert shown(verdict)[0] == "computed-differently"


def test_an_epoch_passed_over_is_at_most_once() -> None:
    verdict = fail([COMMITS[0], commit(2.5, flights_0=(2, 2, "c")), commit(5, late_0=(2, 2, "e"))])
    assert (verdict.at_least_once, verdict.at_most_once) == (False, True)
    assert shown(verdict) == ["lost-output", "input 2", "end"]
    skipping = [commit(2.5, flights_0=(2, 2, "c"), flights_1=(1, 2, "bd"), late_0=(1, 2, "-e"))]
    verdict = fail(skipping)
    assert shown(verdict) == ["skipped", "input 1", "input 2", "output raw/0 2"]
    late = commit(4, flights_0=(1, 1, "a"))
    assert fail([*skipping, late]).at_most_once is False


def test_output_of_an_epoch_whose_input_was_not_yet_logged_is_inconsistent() -> None:
    verdict = fail([commit(0.5, flights_0=(1, 1, "a")), *COMMITS])
    assert not verdict.consistent
    assert shown(verdict) == ["unlogged-input", "output raw/0 1"]


def test_a_released_epoch_that_is_computed_differently_later_is_inconsistent() -> None:
    verdict = fail([*COMMITS[:2], again(4.0, flights_0=(1, 2, "az")), COMMITS[3]])
    assert not verdict.consistent
    assert verdict.deterministic is False
    assert shown(verdict) == [
        "computed-differently",
        "input 2",
        "computed flights/0 2",
        "output raw/0 2",
        "computed flights/0 2",
    ]


def test_output_depends_on_what_is_upstream_in_its_own_epoch_and_earlier_ones() -> None:
    commits = [
        {**COMMITS[0], "outputs": []},
        commit(2.1, late_0=(2, 2, "e")),
        again(4.0, flights_1=(1, 1, "z")),
    ]
    verdict = fail(commits)
    assert verdict.witness is not None
    assert shown(verdict)[0] == "computed-differently"
    told = recorded([{**commit, "finished": commit["finished"]} for commit in commits])
    late = [
        step for step in map(history.record_of, told.steps) if step.get("channel") == "carriers/0"
    ]
    assert [step["epoch"] for step in late] == [1, 2]


def test_two_attempts_that_differ_before_anything_is_released_are_only_not_deterministic() -> None:
    before = again(1.2, late_0=(2, 2, "x"))
    quiet = {**before, "finished": {"late/0": [2, 2, ["x"]]}}
    made = recorded([*COMMITS])
    first = history.record(TOPOLOGY, [quiet], [], zero_at=ZERO_AT).steps
    attempt = [step for step in first if history.record_of(step)["kind"] == "computed"]
    verdict = judge(History(made.graph, (*attempt, *made.steps)))
    assert verdict.holds
    assert verdict.deterministic is False
    assert verdict.race is not None
    assert verdict.race.sentence == "late/0 gave x in epoch 2 at t 1.2, and e at t 5."


def test_released_rows_that_are_not_those_of_the_reference_are_inconsistent() -> None:
    right = {("raw/0", 2): ("rows-c", 3), ("carriers/0", 1): (NO_ROWS, 0)}
    assert judge(recorded(references=right)).holds
    verdict = fail(references={**right, ("raw/0", 2): ("rows-c", 4)})
    assert not verdict.consistent
    assert shown(verdict) == ["reference", "input 2", "output raw/0 2", "reference raw/0 2"]


def test_records_of_a_segment_have_no_digests_and_are_not_compared() -> None:
    kept = [
        {
            **one,
            "finished": {name: [a, b, []] for name, (a, b, _) in one["finished"].items()},
            "outputs": [[*output, None] for *output, _ in one["outputs"]],
        }
        for one in COMMITS[:2]
    ]
    references = {("raw/0", 2): ("rows-c", 4), ("carriers/0", 1): (NO_ROWS, 0)}
    run = recorded([*kept, *COMMITS[2:]], references=references)
    assert [step for step in steps(run) if step.startswith("computed")] == [
        *("computed flights/0 1", "computed flights/0 2", "computed late/0 2")
    ]
    assert [step for step in steps(run) if step.startswith("output")] == [
        step for step in steps(recorded()) if step.startswith("output")
    ]
    assert [step for step in steps(run) if step.startswith("reference")] == [
        "reference carriers/0 1"
    ]
    assert judge(run).holds


def test_a_run_without_a_finish_is_not_over_and_owes_nothing_yet() -> None:
    verdict = judge(recorded(COMMITS[:1], EVENTS[:-1]))
    assert verdict.holds
    assert not verdict.ended


@pytest.mark.parametrize("epochs", [3_000])
def test_a_long_run_is_judged_in_one_pass(epochs: int) -> None:
    commits = [commit(n + 0.5, flights_0=(n, n, "a")) for n in range(1, epochs)]
    run = recorded(commits, [cut(n, n) for n in range(1, epochs)])
    assert len(run.steps) == 3 * (epochs - 1)
    assert judge(run).holds


def test_a_history_of_a_run_is_json_lines_that_a_person_can_read() -> None:
    lines = history.serialize(recorded()).splitlines()
    assert json.loads(lines[2]) == {"kind": "input", "t": 1.0, "epoch": 1}
