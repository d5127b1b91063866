"""Reading history files: what is refused, with line, field and remedy."""

import json
from typing import Any

import pytest

from rekindle import history
from rekindle.model.errors import InputError

VERSION = {"version": 1, "kind": "history"}
GRAPH: dict[str, Any] = {
    "kind": "graph",
    "inputs": ["in"],
    "operations": {
        "pairs": {"kind": "concatenate", "window": 2, "from": ["in"]},
        "all": {"kind": "join", "from": ["pairs", "in"], "order": "channels", "keyed": True},
    },
    "outputs": {"out": "pairs"},
}
RECORDED: dict[str, Any] = {
    "kind": "graph",
    "operations": {"a/0": {"kind": "recorded"}, "b/0": {"kind": "recorded", "from": ["a/0"]}},
    "outputs": {"q/0": "b/0"},
}
MISSING = object()


def deep(levels: int) -> list[Any]:
    return [deep(levels - 1)] if levels else []


def text(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def refusal(content: str) -> str:
    with pytest.raises(InputError) as caught:
        history.parse(content, "h.jsonl")
    assert str(caught.value).startswith("h.jsonl")
    assert caught.value.remedy
    return str(caught.value)


def changed(record: Any, path: tuple[str, ...], value: object) -> Any:
    copied = json.loads(json.dumps(record))
    place = copied
    for name in path[:-1]:
        place = place[name]
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "h.jsonl: ends before its first line"),
        (text(VERSION), "h.jsonl: ends before the line that describes the graph"),
        ("{\n", "h.jsonl: line 1: is no JSON"),
        ("[" * 10**6, "h.jsonl: line 1: is no JSON"),
        ("3\n", "h.jsonl: line 1: is 3; write one JSON object per line"),
        ('{"a": 1, "a": 2}\n', 'line 1: has the field "a" twice'),
        (text({"version": 2, "kind": "history"}), "line 1: version: is 2, known is 1"),
        (text({"version": True, "kind": "history"}), "line 1: version: is true"),
        (text({"version": 1, "kind": "report"}), 'line 1: kind: is "report"; give history'),
        (text({**VERSION, "by": "me"}), "line 1: by: is not a known field; remove it"),
        (text(VERSION, {"kind": "input"}), 'line 2: kind: is "input"; give graph'),
    ],
)
def test_a_file_that_does_not_begin_as_a_history_is_refused(content: str, message: str) -> None:
    assert message in refusal(content)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("inputs",), MISSING, "line 2: inputs: is missing"),
        (("inputs",), "in", 'line 2: inputs: is "in"; give a list of names'),
        (("inputs",), ["in", "in"], "inputs: has a name twice"),
        (("inputs",), ["in", "i\n"], 'inputs: is "i\\n"; give printable text'),
        (("inputs",), ["in", "other"], "operations.from: no operation reads the input other"),
        (("inputs",), ["in", "pairs"], "inputs: names pairs, an operation"),
        (("operations",), {}, "operations: describes 0 operations"),
        (("operations",), [], "operations: is []; give an object"),
        (("operations", "pairs"), 4, "operations.pairs: is 4; give an object"),
        (("operations", "p\t"), {"kind": "sum", "from": ["in"]}, 'is "p\\t"; give printable text'),
        (("operations", "pairs", "kind"), "median", 'operations.pairs.kind: is "median"; give'),
        (("operations", "pairs", "window"), 0, "pairs.window: is 0; give a whole number from 1"),
        (("operations", "pairs", "from"), MISSING, "operations.pairs.from: is missing"),
        (("operations", "pairs", "from"), [], "operations.pairs.from: is []"),
        (("operations", "pairs", "from"), ["z"], "pairs.from: names z, which is not there"),
        (("operations", "pairs", "from"), ["all"], "operations: have the cycle"),
        (("operations", "pairs", "order"), "some", 'order: is "some"; give fixed or channels'),
        (("operations", "pairs", "keyed"), 1, "pairs.keyed: is 1; give true or false"),
        (("operations", "pairs", "keep"), ["a"], "pairs.keep: is not a known field"),
        (("operations", "all", "from"), ["in"], "all.from: names 1 sources"),
        (("operations", "some"), {"kind": "filter", "from": ["in"]}, "some.keep: is missing"),
        (("operations", "some"), {"kind": "recorded"}, "operations: has recorded ones beside"),
        (("outputs",), {}, "outputs.*: no channel is named"),
        (("outputs", "out"), "in", 'outputs.out: is "in"; name the operation that feeds it'),
        (("channels",), [], "channels: is not a known field"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(
    path: tuple[str, ...], value: object, message: str
) -> None:
    assert message in refusal(text(VERSION, changed(GRAPH, path, value)))


def test_recorded_operations_have_no_input_channels() -> None:
    message = refusal(text(VERSION, {**RECORDED, "inputs": ["in"]}))
    assert "line 2: inputs: names channels; remove it" in message
    broken = changed(RECORDED, ("operations", "a/0", "order"), "any")
    assert "operations.a/0.order: is not a known field" in refusal(text(VERSION, broken))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"kind": "computed", "t": 1}, 'line 4: kind: is "computed"; give input or output'),
        ({"t": 1}, "line 4: kind: is missing"),
        ({"kind": "input", "channel": "in", "value": 1}, "line 4: t: is missing"),
        ({"kind": "failure", "t": "1"}, 'line 4: t: is "1"; give a number'),
        ({"kind": "failure", "t": True}, "line 4: t: is true"),
        ({"kind": "failure", "t": float("nan")}, "line 4: t: is NaN"),
        ({"kind": "failure", "t": 10**400}, "line 4: t: is"),
        ({"kind": "failure", "t": 4}, "line 4: t: is 4, before 5; put the steps in order of t"),
        ({"kind": "failure", "t": 6, "node": "n"}, "line 4: node: is not a known field"),
        ({"kind": "recovery", "t": 6}, "is a recovery without a failure before it"),
        ({"kind": "input", "t": 6, "channel": "out", "value": 1}, 'channel: is "out"; give in'),
        ({"kind": "input", "t": 6, "channel": "in"}, "line 4: value: is missing"),
        ({"kind": "input", "t": 6, "channel": "in", "value": 0.5}, "value: is 0.5; give a string"),
        ({"kind": "input", "t": 6, "channel": "in", "value": [True]}, "value: is true"),
        ({"kind": "input", "t": 6, "channel": "in", "value": {}}, "value: is {}"),
        ({"kind": "input", "t": 6, "channel": "in", "value": "\ud800"}, 'value: is "\\ud800"'),
        ({"kind": "input", "t": 6, "channel": "in", "value": deep(30)}, "value: is [[[["),
        (
            {"kind": "input", "t": 6, "channel": "in", "value": 2**63},
            "value: is 9223372036854775808",
        ),
        ({"kind": "output", "t": 6, "channel": "in", "value": 1}, 'channel: is "in"; give out'),
        (
            {"kind": "output", "t": 6, "channel": "out", "value": 1, "unseen_before": 1},
            "unseen_before: is 1; give true or false",
        ),
        ({"kind": "snapshot", "t": 6, "operation": "z"}, 'operation: is "z"; give pairs or all'),
        ({"kind": "snapshot", "t": 6, "state": []}, "state: is not a known field"),
        (
            {"kind": "snapshot", "t": 6, "operation": "pairs", "state": "ab"},
            'state: operation pairs has states like ["a", "b"], not',
        ),
        (
            {"kind": "snapshot", "t": 6, "operation": "all", "state": ["a"]},
            "state: operation all is keyed: its state is a list of [key, state]",
        ),
        (
            {"kind": "snapshot", "t": 6, "operation": "all", "state": [["k", ["a", "b"]]]},
            "state: operation all has states like",
        ),
    ],
)
def test_a_step_that_cannot_be_is_refused(step: Any, message: str) -> None:
    first = {"kind": "input", "t": 5, "channel": "in", "value": "a"}
    assert message in refusal(text(VERSION, GRAPH, first, step))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            {"kind": "input", "t": 6, "epoch": 5},
            "line 4: epoch: is 5, after 5; log each epoch once",
        ),
        ({"kind": "input", "t": 6, "epoch": -1}, "line 4: epoch: is -1"),
        ({"kind": "computed", "t": 6, "operation": "q/0"}, "line 4: digest: is missing"),
        (
            {"kind": "computed", "t": 6, "operation": "q/0", "epoch": 5, "digest": "d"},
            'operation: is "q/0"; give a/0 or b/0',
        ),
        (
            {"kind": "output", "t": 6, "channel": "q/0", "epoch": 5, "digest": "d", "rows": -1},
            "line 4: rows: is -1",
        ),
        (
            {"kind": "output", "t": 6, "channel": "q/0", "epoch": 5, "digest": 7, "rows": 1},
            "line 4: digest: is 7",
        ),
        (
            {"kind": "reference", "t": 6, "channel": "q/0", "epoch": 5, "digest": "d", "rows": 1},
            "line 4: t: is not a known field",
        ),
    ],
)
def test_a_step_of_a_run_that_cannot_be_is_refused(step: Any, message: str) -> None:
    assert message in refusal(text(VERSION, RECORDED, {"kind": "input", "t": 5, "epoch": 5}, step))


def test_nothing_but_references_follows_the_end_and_each_comes_once() -> None:
    end, known = {"kind": "end", "t": 9}, {"kind": "reference", "channel": "q/0", "epoch": 5}
    known = {**known, "digest": "d", "rows": 1}
    assert "line 4: kind: is a step after the end" in refusal(text(VERSION, GRAPH, end, end))
    assert len(history.parse(text(VERSION, RECORDED, end, known), "h").steps) == 2
    assert "line 5: epoch: 5 of q/0 has a reference" in refusal(
        text(VERSION, RECORDED, end, known, known)
    )


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("sum", "a", "operation op takes whole numbers, not 'a'"),
        ("count", "a", ""),
    ],
)
def test_a_value_that_an_operation_cannot_take_is_refused_with_its_line(
    kind: str, value: str, message: str
) -> None:
    graph = {
        "kind": "graph",
        "inputs": ["in"],
        "operations": {"op": {"kind": kind, "from": ["in"]}},
        "outputs": {"out": "op"},
    }
    read = history.parse(
        text(VERSION, graph, {"kind": "input", "t": 1, "channel": "in", "value": value}), "h.jsonl"
    )
    if not message:
        assert history.check(read, "h.jsonl").holds
        return
    with pytest.raises(InputError, match=r"^h\.jsonl: line 3: value: does not fit: ") as caught:
        history.check(read, "h.jsonl")
    assert message in str(caught.value)


def test_operations_may_stand_in_any_order_and_blank_lines_do_not_count() -> None:
    swapped = changed(GRAPH, ("operations",), dict(reversed(GRAPH["operations"].items())))
    read = history.parse(text(VERSION) + "\n" + text(swapped), "h")
    assert [operation.name for operation in read.graph.operations] == ["pairs", "all"]


def test_what_is_written_is_what_was_read() -> None:
    steps = [
        {"kind": "input", "t": 1, "channel": "in", "value": ["k", None]},
        {"kind": "snapshot", "t": 1},
        {"kind": "snapshot", "t": 1, "operation": "pairs", "state": []},
        {"kind": "failure", "t": 1.5},
        {"kind": "recovery", "t": 2},
        {"kind": "output", "t": 2, "channel": "out", "value": "é", "unseen_before": True},
        {"kind": "end", "t": 2},
    ]
    written = "".join(
        json.dumps(record, ensure_ascii=False) + "\n" for record in (VERSION, GRAPH, *steps)
    )
    read = history.parse(written, "h")
    again = history.serialize(read)
    assert history.parse(again, "h") == read
    assert [json.loads(line) for line in again.splitlines()] == [VERSION, GRAPH, *steps]
