"""Problems and answers as JSON: what is accepted, and how the rest is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rekindle.model import plan_problem
from rekindle.model.errors import InputError
from rekindle.model.plan_problem import Answer, PartitionCost, Problem, QueryDemand

FILE = "problem.json"


def sound() -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": {
            "a/0": {"cpu_percent": 10, "state_bytes": 1000},
            "b/0": {"cpu_percent": 120.5, "running_on": "127.0.0.2"},
        },
        "queries": {"q/0": {"priority": 7, "partitions": ["a/0", "b/0"]}},
        "capacity_cpu_percent": 300,
    }


def parse(record: object) -> Problem:
    return plan_problem.parse(json.dumps(record).encode(), FILE)


def refusal(content: bytes) -> str:
    with pytest.raises(InputError) as refused:
        plan_problem.parse(content, FILE)
    assert refused.value.remedy
    return str(refused.value)


def test_a_sound_problem_is_read_and_everything_counts_as_failed_by_default() -> None:
    assert parse(sound()) == Problem(
        partitions={
            "a/0": PartitionCost(10.0, 1000),
            "b/0": PartitionCost(120.5, 0, "127.0.0.2"),
        },
        queries={"q/0": QueryDemand(7.0, ("a/0", "b/0"))},
        failed=frozenset({"a/0", "b/0"}),
        capacity_cpu_percent=300.0,
    )


def test_nodes_take_the_place_of_the_capacity() -> None:
    record = sound()
    del record["capacity_cpu_percent"]
    record["nodes"] = {"127.0.0.3": {"free_cpu_percent": 80}}
    record["failed"] = ["b/0"]
    parsed = parse(record)
    assert parsed.nodes == {"127.0.0.3": 80.0}
    assert parsed.capacity_cpu_percent is None
    assert parsed.failed == {"b/0"}


@pytest.mark.parametrize("capacity", [{"capacity_cpu_percent": 5.0}, {"nodes": {"n": 2.0}}])
def test_a_problem_survives_the_way_through_json(capacity: dict[str, Any]) -> None:
    before = Problem(
        {"p": PartitionCost(1.5, 7, "n"), "r": PartitionCost(0.0)},
        {"q": QueryDemand(0.25, ("p", "r"))},
        frozenset({"r"}),
        **capacity,
    )
    assert parse(plan_problem.to_record(before)) == before


def test_a_byte_order_mark_does_no_harm() -> None:
    content = b"\xef\xbb\xbf" + json.dumps(sound()).encode()
    assert plan_problem.parse(content, FILE) == parse(sound())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "problem.json: is empty"),
        (b" \n", "problem.json: is empty"),
        (b"{", "problem.json: is not JSON"),
        (b"\xff\xfe\x00", "problem.json: is not JSON"),
        (b"[" * 200_000, "problem.json: is not JSON (nested too deep)"),
        (b"9" * 5_000, "problem.json: is a number beyond all limits, not an object"),
        (b"[]", "problem.json: is a list, not an object"),
        (b"null", "problem.json: is null, not an object"),
        (b'{"version": 1, "version": 1}', "problem.json: 'version': is there twice"),
        (
            b'{"partitions": {"a/0": {}, "b/0": {}, "a/0": {}}}',
            "problem.json: partitions: 'a/0': is there twice in one object; keep one of them",
        ),
        (b'[{}, {"a": {"b.c": [{"d": 1, "d": 1}]}}]', "problem.json: [1].a.b.c[0]: 'd': is there"),
        (b"{}", "problem.json: version: is missing"),
    ],
)
def test_a_file_that_is_not_one_json_object_is_refused(content: bytes, message: str) -> None:
    assert message in refusal(content)


MISSING = object()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version: is 2; use version 1"),
        (("version",), True, "version: is true"),
        (("version",), 1.0, "version: is 1.0; use version 1"),
        (("partitions",), MISSING, "partitions: is missing"),
        (("partitions",), [], "partitions: is a list, not an object"),
        (("partitions", "a/0"), 3, "partitions.a/0: is 3, not an object"),
        (("partitions", "a/0", "cpu_percent"), MISSING, "partitions.a/0.cpu_percent: is missing"),
        (("partitions", "a/0", "cpu_percent"), -1, "partitions.a/0.cpu_percent: is -1"),
        (("partitions", "a/0", "cpu_percent"), float("nan"), "cpu_percent: is NaN"),
        (("partitions", "a/0", "cpu_percent"), float("inf"), "cpu_percent: is Infinity"),
        (("partitions", "a/0", "cpu_percent"), 1e300, "cpu_percent: is 1e+300"),
        (("partitions", "a/0", "cpu_percent"), 10**400, "a number beyond all limits"),
        (("partitions", "a/0", "cpu_percent"), "10", "cpu_percent: is '10', not a number"),
        (("partitions", "a/0", "cpu_percent"), True, "cpu_percent: is true, not a number"),
        (("partitions", "a/0", "state_bytes"), 1.5, "partitions.a/0.state_bytes: is 1.5"),
        (("partitions", "a/0", "state_bytes"), -1, "partitions.a/0.state_bytes: is -1"),
        (("partitions", "a/0", "running_on"), 4, "partitions.a/0.running_on: is 4"),
        (("partitions", "a/0", "memory"), 4, "partitions.a/0.memory: is not a known field"),
        (("partitions", "a\n"), {"cpu_percent": 1}, "has the key 'a\\n'"),
        (("partitions", "\ud800"), {"cpu_percent": 1}, "has the key '\\ud800'"),
        (("queries", "q/0", "priority"), 0, "queries.q/0.priority: is 0; give a number above 0"),
        (("queries", "q/0", "priority"), -3, "priority: is -3; give a number above 0 to 1e+12"),
        (("queries", "q/0", "priority"), float("nan"), "is NaN; give a number above 0 to 1e+12"),
        (("queries", "q/0", "priority"), None, "is null, not a number; give a number above 0"),
        (("queries", "q/0", "partitions"), "a/0", "queries.q/0.partitions: is 'a/0', not a list"),
        (("queries", "q/0", "partitions"), [], "queries.q/0.partitions: is empty; name"),
        (("queries", "q/0", "partitions"), ["a/0", "a/0"], "partitions: names 'a/0' twice; name"),
        (("queries", "q/0", "partitions"), ["z"], "names the unknown partition 'z'"),
        (("queries", "q/0", "partitions"), [1], "queries.q/0.partitions[0]: is 1"),
        (("failed",), ["z"], "failed: names the unknown partition 'z'"),
        (("failed",), ["a/0", "b/0", "a/0"], "failed: names 'a/0' twice; name each"),
        (("failed",), "a/0", "failed: is 'a/0', not a list"),
        (("capacity_cpu_percent",), MISSING, "capacity_cpu_percent, nodes: neither is given"),
        (("capacity_cpu_percent",), -1, "capacity_cpu_percent: is -1"),
        (("nodes",), {}, "capacity_cpu_percent, nodes: both are given"),
        (("capacity",), 5, "capacity: is not a known field; remove it; known here are"),
    ],
)
def test_a_wrong_field_is_refused_by_file_name_and_remedy(
    path: tuple[str, ...], value: object, message: str
) -> None:
    record = sound()
    place = record
    for name in path[:-1]:
        place = place[name]
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    text = refusal(json.dumps(record).encode())
    assert text.startswith(f"{FILE}: ")
    assert message in text


@pytest.mark.parametrize(
    "content",
    [
        b'{"version": ' + b"9" * 5_000 + b"}",
        b'{"version": ' + b'"long' * 5_000 + b'"}',
        json.dumps({**sound(), "name" * 5_000: 1}).encode(),
        json.dumps({**sound(), "failed": ["name" * 5_000]}).encode(),
        json.dumps({**sound(), "partitions": {"name" * 5_000: {}}}).encode(),
        b'{"%s": 1, "%s": 1}' % (b"name" * 5_000, b"name" * 5_000),
    ],
)
def test_a_message_stays_short_whatever_the_file_holds(content: bytes) -> None:
    assert len(refusal(content)) < 250


def test_nodes_are_checked_too() -> None:
    record = sound()
    del record["capacity_cpu_percent"]
    record["nodes"] = {"n": {"free_cpu_percent": -1}}
    assert "nodes.n.free_cpu_percent: is -1" in refusal(json.dumps(record).encode())
    record["nodes"] = {"n": 80}
    assert "nodes.n: is 80, not an object" in refusal(json.dumps(record).encode())


ANSWER = Answer(
    status="feasible",
    solver="best-density",
    seed=3,
    queries=("q/0",),
    skipped={"r/0": "no-capacity", "s/0": "running"},
    partitions=("a/0",),
    placement={"n": ("a/0",)},
    priority_sum=7.0,
    used_cpu_percent=10.0,
    fragmentation_cpu_percent=0.0,
    upper_bound=8.0,
    gap=0.125,
    seconds=0.5,
)
GOLDEN_ANSWER = {
    "version": 1,
    "status": "feasible",
    "solver": "best-density",
    "seed": 3,
    "queries": ["q/0"],
    "skipped": {"r/0": "no-capacity", "s/0": "running"},
    "partitions": ["a/0"],
    "placement": {"n": ["a/0"]},
    "priority_sum": 7.0,
    "used_cpu_percent": 10.0,
    "fragmentation_cpu_percent": 0.0,
    "upper_bound": 8.0,
    "gap": 0.125,
    "seconds": 0.5,
}


def test_an_answer_has_exactly_the_fields_of_the_contract() -> None:
    assert plan_problem.answer_to_record(ANSWER) == GOLDEN_ANSWER
    assert list(plan_problem.answer_to_record(ANSWER)) == list(GOLDEN_ANSWER)
    assert (
        plan_problem.answer_from_record(json.loads(json.dumps(GOLDEN_ANSWER)), "1.json") == ANSWER
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("version", 9, "1.json: version: is 9"),
        ("gap", "small", "1.json: gap: is 'small', not a number"),
        ("placement", {"n": "a/0"}, "1.json: placement.n: is 'a/0', not a list"),
        ("skipped", {"r/0": 1}, "1.json: skipped.r/0: is 1"),
    ],
)
def test_an_answer_that_is_none_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as refused:
        plan_problem.answer_from_record({**GOLDEN_ANSWER, name: value}, "1.json")
    assert message in str(refused.value)


def test_a_problem_in_the_place_of_an_answer_is_told_as_such() -> None:
    with pytest.raises(InputError) as refused:
        plan_problem.answer_from_record(sound(), "1.json")
    assert str(refused.value).startswith("1.json: is a problem, not an answer; ")


def test_a_plan_reads_as_a_sentence() -> None:
    assert plan_problem.describe(ANSWER) == (
        "Bring back 1 of 2 lost queries with 1 partition, 10 % CPU on 1 node: priorities of 7, "
        "at most 12.5 % below the best possible (best-density)."
    )
    assert plan_problem.describe(ANSWER, verb="Start", one="query", several="queries").startswith(
        "Start 1 of 2 queries with 1 partition"
    )
    nothing = replace(ANSWER, queries=(), skipped={})
    assert plan_problem.describe(nothing) == "Nothing to bring back: there is no lost query."
