"""The history checker on histories that a person can follow, each definition in turn."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rekindle import history
from rekindle.history import HistoryVerdict
from rekindle.model.errors import InputError

DOCS = Path(__file__).parents[4] / "docs" / "history.md"
# The paper's Table II: pairs of letters, from channels that race. `{last}` is what the user sees
# after the recovery.
TABLE_II = """
{{"version": 1, "kind": "history"}}
{{"kind": "graph", "inputs": ["one", "two"], "operations": {{"pairs": {{"kind": "concatenate",
 "window": 2, "from": ["one", "two"], "order": "channels"}}}}, "outputs": {{"user": "pairs"}}}}
{{"kind": "input", "t": 1, "channel": "one", "value": "a"}}
{{"kind": "input", "t": 2, "channel": "two", "value": "c"}}
{{"kind": "output", "t": 4, "channel": "user", "value": "a"}}
{{"kind": "output", "t": 6, "channel": "user", "value": "ac"}}
{{"kind": "snapshot", "t": 7, "operation": "pairs", "state": ["a", "c"]}}
{{"kind": "input", "t": 8, "channel": "one", "value": "b"}}
{{"kind": "input", "t": 9, "channel": "two", "value": "d"}}
{{"kind": "output", "t": 11, "channel": "user", "value": "cd"}}
{{"kind": "output", "t": 13, "channel": "user", "value": "db"}}
{{"kind": "failure", "t": 14}}
{{"kind": "recovery", "t": 14}}
{{"kind": "input", "t": 15, "channel": "one", "value": "e"}}
{{"kind": "output", "t": 17, "channel": "user", "value": "{last}"}}
""".replace(',\n "window"', ', "window"')


def judge(text: str, **options: int) -> HistoryVerdict:
    return history.check(history.parse(text, "history.jsonl"), "history.jsonl", **options)


def lines(operations: Mapping[str, Any], *steps: str, inputs: str = "in") -> str:
    """A history of short steps: `in=a` enters, `out:a` leaves, `!` is failure and recovery."""
    ends = [
        name
        for name in operations
        if all(name not in operation["from"] for operation in operations.values())
    ]
    records: list[dict[str, Any]] = [
        {"version": 1, "kind": "history"},
        {
            "kind": "graph",
            "inputs": inputs.split(),
            "operations": operations,
            "outputs": {"out": ends[-1]},
        },
    ]
    for t, step in enumerate(steps, start=1):
        channel, equal, value = step.partition("=")
        if equal:
            records.append({"kind": "input", "t": t, "channel": channel, "value": literal(value)})
        elif step.startswith("out:"):
            value = literal(step.removeprefix("out:"))
            records.append({"kind": "output", "t": t, "channel": "out", "value": value})
        elif step == "!":
            records += [{"kind": "failure", "t": t}, {"kind": "recovery", "t": t}]
        else:
            records.append({"kind": step, "t": t})
    return "".join(json.dumps(record) + "\n" for record in records)


def literal(text: str) -> Any:
    return json.loads(text) if text[:1] in "-0123456789[" else text


def one(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"op": {"kind": kind, "from": ["in"], **parameters}}


def short(verdict: HistoryVerdict) -> list[str]:
    assert verdict.witness is not None
    found = []
    for record in map(history.record_of, verdict.witness.history.steps):
        unseen = "…" if record.get("unseen_before") else ""
        found.append(f"{unseen}{record['kind']} {record.get('value', '')}".strip())
    return found


def test_the_good_recovery_of_table_ii_is_consistent_and_exactly_once() -> None:
    verdict = judge(TABLE_II.format(last="be"))
    assert verdict.consistent
    assert verdict.exactly_once
    assert verdict.at_least_once
    assert verdict.at_most_once
    assert verdict.witness is None
    assert verdict.counts == {"inputs": 5, "outputs": 5, "snapshots": 1, "failures": 1}


def test_the_inconsistent_recovery_of_table_ii_is_found_with_five_steps_that_show_it() -> None:
    verdict = judge(TABLE_II.format(last="de"))
    assert not verdict.consistent
    assert not verdict.exactly_once
    assert verdict.at_least_once is False
    assert verdict.at_most_once is False
    assert short(verdict) == ["input b", "input d", "…output db", "input e", "output de"]
    assert verdict.witness is not None
    assert verdict.witness.smallest
    assert verdict.witness.line == 16
    assert verdict.witness.sentence == (
        'Output "de" (t 17) of user is impossible after "db" (t 13), from "b" (t 8), "d" (t 9) '
        'and "e" (t 15): an execution without failures releases "be" next.'
    )
    assert "Theorem 1" in verdict.witness.because
    assert '"cd" (t 11) and "db" (t 13) had been released' in verdict.witness.because


def test_table_ii_is_not_deterministic_and_not_commutative() -> None:
    verdict = judge(TABLE_II.format(last="be"))
    assert verdict.non_commutative == ("pairs",)
    assert verdict.deterministic is False
    assert verdict.race is not None
    assert len(verdict.race.history.steps) == 2
    assert '"b" and "bd" or "d" and "db"' in verdict.race.sentence


def test_a_snapshot_of_a_state_that_was_never_reached_is_impossible() -> None:
    text = TABLE_II.format(last="be").replace('"state": ["a", "c"]', '"state": ["c", "a"]')
    verdict = judge(text)
    assert verdict.witness is not None
    assert verdict.witness.kind == "impossible-state"
    assert short(verdict)[-1] == "snapshot"


def test_a_snapshot_may_be_written_later_than_its_state_was_taken() -> None:
    text = TABLE_II.format(last="be").replace('"state": ["a", "c"]', '"state": ["a"]')
    assert judge(text).holds


def test_an_output_twice_is_at_least_once_where_every_element_stands_for_itself() -> None:
    verdict = judge(lines(one("identity"), "in=a", "in=b", "out:a", "!", "out:a", "out:b", "end"))
    assert not verdict.consistent
    assert (verdict.at_least_once, verdict.at_most_once) == (True, False)
    assert short(verdict) == ["input a", "output a", "output a"]


def test_an_output_twice_is_neither_where_a_state_would_have_counted_the_element_twice() -> None:
    verdict = judge(lines(one("count"), "in=a", "in=b", "out:1", "out:2", "!", "out:2", "end"))
    assert (verdict.at_least_once, verdict.at_most_once) == (False, False)
    assert short(verdict) == ["input a", "input b", "…output 2", "output 2"]


def test_an_output_that_never_leaves_is_at_most_once_and_its_input_is_the_witness() -> None:
    verdict = judge(lines(one("identity"), "in=a", "in=b", "in=c", "out:a", "!", "out:c", "end"))
    assert (verdict.at_least_once, verdict.at_most_once) == (False, True)
    assert short(verdict) == ["input b", "input c", "output c"]
    assert verdict.witness is not None
    assert "No order is left to chance" in verdict.witness.because
    verdict = judge(lines(one("identity"), "in=a", "in=b", "out:a", "!", "end"))
    assert verdict.consistent
    assert not verdict.exactly_once
    assert (verdict.at_least_once, verdict.at_most_once) == (False, True)
    assert short(verdict) == ["input b", "end"]
    assert verdict.witness is not None
    assert 'still releases "b" on out' in verdict.witness.sentence


def test_without_an_end_what_has_not_left_yet_is_not_lost() -> None:
    verdict = judge(lines(one("identity"), "in=a", "in=b", "out:a", "!"))
    assert verdict.holds
    assert not verdict.ended


def test_an_element_that_counted_twice_is_said_to_have_done_so() -> None:
    verdict = judge(lines(one("count"), "in=a", "in=b", "in=c", "out:1", "!", "out:4"))
    assert short(verdict) == ["input a", "input b", "input c", "…output 4"]
    assert verdict.witness is not None
    assert "one input entered twice" in verdict.witness.sentence


def test_an_output_that_nothing_leads_to_is_its_own_witness() -> None:
    verdict = judge(lines(one("identity"), "in=a", "out:z"))
    assert short(verdict) == ["output z"]
    assert verdict.witness is not None
    assert "cannot come of what had entered" in verdict.witness.sentence
    assert "No failure is recorded before it" in verdict.witness.because


def test_a_replayed_backlog_is_at_least_once_however_long_it_is() -> None:
    steps = [step for n in range(60) for step in (f"in={n}", f"out:{n}")]
    verdict = judge(lines(one("identity"), *steps, "!", *(f"out:{n}" for n in range(20, 60))))
    assert verdict.at_least_once
    assert short(verdict) == ["input 20", "output 20", "output 20"]


def test_a_lost_stretch_is_at_most_once_however_long_it_is() -> None:
    steps = [f"in={n}" for n in range(40)]
    left = [*range(10), *range(30, 40)]
    verdict = judge(lines(one("identity"), *steps, "!", *(f"out:{n}" for n in left), "end"))
    assert verdict.at_most_once
    assert verdict.at_least_once is False
    assert short(verdict) == ["input 10", "input 30", "output 30"]


def test_racing_counts_are_right_in_any_order_and_deterministic() -> None:
    verdict = judge(lines(one("count", order="any"), "in=a", "in=b", "!", "out:1", "out:2", "end"))
    assert verdict.holds
    assert verdict.deterministic
    assert verdict.non_commutative == ()


def test_a_racing_sum_commutes_but_what_it_releases_is_left_to_chance() -> None:
    verdict = judge(lines(one("sum", order="any"), "in=1", "in=2", "!", "out:2", "out:3", "end"))
    assert verdict.holds
    assert verdict.non_commutative == ()
    assert verdict.deterministic is False


def test_keyed_operations_hold_a_state_for_each_key() -> None:
    text = lines(
        one("sum", keyed=True), 'in=["a",1]', 'in=["b",5]', 'in=["a",2]',
        'out:["a",1]', 'out:["b",5]', 'out:["a",3]', "end",
    )  # fmt: skip
    assert judge(text).holds
    assert not judge(text.replace('["a", 3]', '["a", 8]')).holds


def test_a_join_waits_for_the_other_side_and_gives_each_pair_once() -> None:
    both = {"op": {"kind": "join", "from": ["in", "other"], "keyed": True}}
    text = lines(
        both, 'in=["k","l"]', 'other=["k","r"]', 'other=["x","r"]', 'out:["k",["l","r"]]', "end",
        inputs="in other",
    )  # fmt: skip
    assert judge(text).holds
    assert not judge(text.replace('["l", "r"]', '["r", "l"]')).holds


def test_fixed_order_is_that_of_the_inputs_whatever_raced_before() -> None:
    """A reorder buffer: the total order that FlameStream puts before such operations."""
    graph = {
        "racing": {"kind": "identity", "from": ["in"], "order": "any"},
        "all": {"kind": "concatenate", "from": ["racing"]},
    }
    steps = ("in=a", "in=b", "in=c", "out:a", "!", "out:ab", "out:abc", "end")
    verdict = judge(lines(graph, *steps))
    assert verdict.holds
    assert verdict.deterministic
    graph["all"]["order"] = "channels"
    assert judge(lines(graph, *steps)).deterministic is False


def test_a_history_with_fixed_orders_looks_at_one_state_per_step() -> None:
    steps = [step for n in range(300) for step in (f"in={n % 7}", f"out:{n % 7}")]
    verdict = judge(lines(one("identity"), *steps, "end"), states_max=2 * 300 + 1)
    assert verdict.holds


def test_more_races_than_the_bound_are_refused_and_never_judged() -> None:
    steps = [f"in={n}" for n in range(12)]
    with pytest.raises(InputError, match=r"more races than 1,000 working sets .* tell apart"):
        judge(lines(one("max", order="any"), *steps, *["out:11"] * 12), states_max=1_000)


def test_what_cannot_be_decided_besides_is_said_to_be_undecided() -> None:
    steps = [f"in={n}" for n in range(12)]
    graph = {
        "racing": {"kind": "max", "from": ["in"], "order": "any"},
        "op": {"kind": "count", "from": ["racing"]},
    }
    verdict = judge(lines(graph, *steps), states_max=1_000)
    assert verdict.holds
    assert verdict.deterministic is None


def test_a_verdict_is_json_with_all_its_parts() -> None:
    record = history.to_record(judge(TABLE_II.format(last="de")))
    assert json.loads(json.dumps(record)) == record
    assert record["version"] == 1
    assert record["consistent"] is False
    assert record["witness"]["steps"][-1]["value"] == "de"
    assert record["race"]["steps"][0]["kind"] == "input"


def test_the_examples_of_the_documentation_are_read_and_judged_as_it_says() -> None:
    examples = DOCS.read_text().split("```json\n")[1:]
    judged = [judge(example.split("```")[0]) for example in examples]
    assert [verdict.holds for verdict in judged] == [False, True]
    assert short(judged[0]) == ["input b", "input d", "…output db", "input e", "output de"]
