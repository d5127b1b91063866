"""What a failure would do: the model of backlogs, rehearsals with the core, summaries."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from rekindle.coordination import CoordinationState, domain_placement
from rekindle.forecast import failure_simulation, outage_forecasts, steady_state
from rekindle.forecast.failure_simulation import (
    Arrival,
    Backlogs,
    Fixed,
    Model,
    Trace,
    Uniform,
    rehearse,
)
from rekindle.forecast.outage_forecasts import Named, simulate
from rekindle.model.errors import InputError
from rekindle.model.reasons import Reason

MODEL = Model(
    detect_seconds=1.0, restore_seconds=2.0, restore_mib_per_second=10.0, checkpoint_age_seconds=4.0
)


def clock() -> float:
    return 0.0


def two_queries(**changes: Any) -> dict[str, Any]:
    """Two queries without anything in common, each on a node and in a domain of its own."""
    record: dict[str, Any] = {
        "version": 1,
        "topology": {
            "version": 1,
            "operators": [
                {"name": "ships", "parallelism": 1},
                {"name": "late", "parallelism": 1},
                {"name": "birds", "parallelism": 1},
                {"name": "rare", "parallelism": 1},
            ],
            "edges": [["ships", "late"], ["birds", "rare"]],
            "queries": [
                {"name": "late-ships", "operator": "late", "priority": 9},
                {"name": "rare-birds", "operator": "rare", "priority": 1},
            ],
        },
        "nodes": {
            "n1": {"cpu_percent": 100, "domain": "east"},
            "n2": {"cpu_percent": 100, "domain": "west"},
        },
        "cpu_percent": {"ships/0": 25, "late/0": 25, "birds/0": 20, "rare/0": 20},
        "state_bytes": {"late/0": 30 * 2**20},
        "placement": {"ships/0": "n1", "late/0": "n1", "birds/0": "n2", "rare/0": "n2"},
    }
    return {**record, **changes}


def parsed(record: dict[str, Any]) -> CoordinationState:
    return steady_state.parse(msgspec.json.encode(record), "s.json", clock=clock)


def test_what_catches_up_shares_what_its_node_has_left() -> None:
    backlogs = Backlogs({"a": 20.0, "b": 20.0, "live": 50.0}, ratio=0.5)
    placement, capacities = {"a": "n", "b": "n", "live": "n"}, {"n": 100.0}
    backlogs.begin("a", 9.0, ready_at=0.0)
    backlogs.begin("b", 4.5, ready_at=0.0)
    # 50 % are left for two that cost 0.5 x 20 % for each second of backlog: 2.5 s in a second
    assert backlogs.next_change(placement, capacities) == pytest.approx(4.5 / 1.5)
    assert backlogs.advance(3.0, placement, capacities) == {"b"}
    # b is live now: 30 % are left for a alone, which owes 4.5 s
    assert backlogs.next_change(placement, capacities) == pytest.approx(3.0 + 4.5 / 2.0)
    assert backlogs.advance(5.25, placement, capacities) == {"a"}
    assert backlogs.next_change(placement, capacities) == math.inf


@pytest.mark.parametrize("cost", [0.0, 1e-9])
def test_what_costs_nearly_nothing_catches_up_all_the_same(cost: float) -> None:
    backlogs = Backlogs({"a": cost}, ratio=0.5)
    backlogs.begin("a", 300.0, ready_at=0.0)
    steps = 0
    while backlogs.owed:
        steps += 1
        assert steps < 10
        backlogs.advance(backlogs.next_change({"a": "n"}, {"n": 50.0}), {"a": "n"}, {"n": 50.0})
    assert 0.0 < backlogs.now < 1.0


def test_what_is_being_restored_falls_further_behind() -> None:
    backlogs = Backlogs({"a": 50.0}, ratio=1.0)
    backlogs.begin("a", 2.0, ready_at=3.0)
    assert backlogs.next_change({"a": "n"}, {"n": 100.0}) == 3.0
    assert not backlogs.advance(3.0, {"a": "n"}, {"n": 100.0})
    assert backlogs.owed == {"a": 5.0}
    assert backlogs.next_change({"a": "n"}, {"n": 100.0}) == pytest.approx(8.0)


def test_a_node_without_anything_left_never_catches_up() -> None:
    backlogs = Backlogs({"a": 10.0, "live": 100.0}, ratio=1.0)
    backlogs.begin("a", 2.0, ready_at=0.0)
    assert backlogs.next_change({"a": "n", "live": "n"}, {"n": 100.0}) == math.inf


def test_a_lost_query_goes_on_where_there_is_room_and_the_other_never_stops() -> None:
    state = parsed(two_queries())
    course = rehearse(state, ["n1"], [], MODEL, clock=clock)
    assert course.back_at.keys() == {"late-ships/0"}
    assert course.outage_seconds("rare-birds/0") == 0.0
    # 80 % cap: 40 % are free, and 50 % would be needed
    assert course.back_at["late-ships/0"] == math.inf
    assert course.outage_seconds("late-ships/0", until=600.0) == 600.0


def test_a_node_that_comes_brings_it_back_by_the_plan_of_the_core() -> None:
    state = parsed(two_queries(policy={"catch_up_cost_ratio": 0.5, "catch_up_seconds": 30.0}))
    arrival = Arrival(10.0, "n1", 100.0, "east")
    course = rehearse(state, ["n1"], [arrival], MODEL, clock=clock)
    (plan,) = course.plans
    assert plan.reason == Reason.NODE_BACK
    assert (plan.at, dict(plan.placement)) == (10.0, {"ships/0": "n1", "late/0": "n1"})
    # `late` runs 2 s and 3 s for its 30 MiB later, and owes 10 + 4 + 5 s then; `ships` has run for
    # 3 s by then, alone: 16 s owed at 12 s, 100 % for 12.5 % a second of backlog, so 7 s a second
    caught_up = 12.0 + 16.0 / 7.0
    assert caught_up < 15.0
    # then 75 % are left for `late`: 6 s in a second
    assert course.back_at["late-ships/0"] == pytest.approx(15.0 + 19.0 / 5.0)


def test_what_an_executor_takes_is_room_for_nothing_and_slows_catching_up_down() -> None:
    state = parsed(two_queries(overhead_percent=20))
    arrival = Arrival(10.0, "n1", 100.0, "east")
    course = rehearse(state, ["n1"], [arrival], MODEL, clock=clock)
    assert course.plans[-1].problem.nodes is not None
    assert course.plans[-1].problem.nodes["n1"] == pytest.approx(80.0 - 20.0)
    before = rehearse(parsed(two_queries()), ["n1"], [arrival], MODEL, clock=clock)
    assert course.back_at["late-ships/0"] > before.back_at["late-ships/0"]


def test_priorities_come_first_on_what_is_left() -> None:
    state = parsed(two_queries(nodes={**two_queries()["nodes"], "n3": {"cpu_percent": 70}}))
    course = rehearse(state, ["n1", "n2"], [], MODEL, clock=clock)
    assert course.back_at["late-ships/0"] < math.inf
    assert course.back_at["rare-birds/0"] == math.inf


def test_a_summary_has_means_and_what_never_came_back() -> None:
    state = parsed(two_queries())
    trace = Trace([10.0])
    found = simulate(
        state,
        Named(("n1", "n2")),
        trace,
        MODEL,
        strategies=("incremental", "blocking"),
        seeds=range(20),
        until_seconds=100.0,
        clock=clock,
    )
    incremental, blocking = found
    assert {one.strategy for one in found} == {"incremental", "blocking"}
    assert blocking.weighted.mean == 100.0
    assert (blocking.weighted.never, incremental.weighted.never) == (1.0, 1.0)
    assert blocking.queries["late-ships"].never == 1.0
    assert 10.0 < incremental.queries["late-ships"].low < 100.0
    assert incremental.queries["rare-birds"].never == 1.0
    expected = (9 * incremental.queries["late-ships"].mean + 100.0) / 10
    assert incremental.weighted.mean == pytest.approx(expected)


def test_what_did_not_run_before_neither_survives_nor_comes_back() -> None:
    state = parsed(two_queries())
    waits = replace(
        state, placement={name: node for name, node in state.placement.items() if node == "n2"}
    )
    (outages,) = simulate(
        waits,
        Named(("n1",)),
        Fixed(10.0, 1.0),
        MODEL,
        strategies=("incremental",),
        seeds=range(2),
        until_seconds=100.0,
        clock=clock,
    )
    assert outages.queries.keys() == {"rare-birds"}
    (east, _) = outage_forecasts.forecast(
        waits, Fixed(60.0, 10.0), MODEL, seeds=range(2), clock=clock
    )
    assert east.survives == ("rare-birds",)
    assert not east.back


def test_a_forecast_says_of_each_domain_what_survives_it() -> None:
    east, west = outage_forecasts.forecast(
        parsed(two_queries()), Fixed(60.0, 10.0), MODEL, seeds=range(2), clock=clock
    )
    assert (east.domain, east.nodes, east.survives) == ("east", ("n1",), ("rare-birds",))
    assert (east.stopped_share, west.stopped_share) == (0.9, 0.1)
    assert west.back["rare-birds"].mean > 60.0
    assert domain_placement.stopped_share(parsed(two_queries()), {}) == pytest.approx(0.5)


def test_a_query_that_is_hit_does_not_survive_however_soon_it_is_back() -> None:
    at_once = Model(detect_seconds=0.0, restore_seconds=0.0, checkpoint_age_seconds=0.0)
    state = parsed(two_queries())
    idle = replace(state, costs=dict.fromkeys(state.partitions, 0.0), state_bytes={})
    east, _ = outage_forecasts.forecast(idle, Fixed(0.0, 0.0), at_once, seeds=range(2), clock=clock)
    assert east.back["late-ships"].high == 0.0
    assert east.survives == ("rare-birds",)


def test_a_forecast_and_the_core_agree_on_what_a_loss_stops() -> None:
    """Of what runs: one query has stopped."""
    state = parsed(two_queries())
    placed = {name: node for name, node in state.placement.items() if node == "n1"}
    stopped = replace(state, placement=placed, stopped={"rare-birds/0": "raises"})
    found = outage_forecasts.forecast(
        stopped, Fixed(60.0, 10.0), MODEL, seeds=range(2), clock=clock
    )
    shares = {one.domain: one.stopped_share for one in found}
    assert shares == domain_placement.stopped_shares(stopped, {}) == {"east": 1.0, "west": 0.0}


def test_what_is_written_of_an_application_is_read_back() -> None:
    state = parsed(two_queries())
    record = steady_state.to_record(
        state.topology,
        capacities={"n1": 100.0, "n2": 100.0},
        domains={"n1": "a"},
        costs=state.costs,
        placement=state.placement,
        policy={"priorities": {"rare-birds": 10}},
        state_bytes={"rare/0": 1 << 20},
    )
    again = parsed(record)
    assert again.placement == state.placement == two_queries()["placement"]
    assert (again.costs, again.priorities["rare-birds/0"]) == (state.costs, 10.0)
    assert again.state_bytes == {"rare/0": 1 << 20}


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": None},
        {"placement": {"ships/0": "n1", "birds/0": "n2"}},
        {"placement": None, "nodes": {"n1": {"cpu_percent": 20}}},
        {"placement": None, "policy": {"stabilisation_seconds": 30, "solver": "exact"}},
    ],
)
def test_what_is_not_placed_the_core_places_as_at_a_start(changes: dict[str, Any]) -> None:
    state = parsed(two_queries(**changes))
    assert state.placement.keys() == set(state.partitions)
    assert changes["placement"] is None or changes["placement"].items() <= state.placement.items()
    expected = changes.get("policy", {}).get("stabilisation_seconds", 0.0)
    assert state.policy.stabilisation_seconds == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "s.json: version: is 2; use version 1"),
        ({"cpu_percent": {"ships/0": -1}}, "is not a situation (Expected `float` >= 0"),
        ({"cpu_percent": {"shops/0": 1}}, "s.json: cpu_percent: shops/0: is no partition; name"),
        ({"placement": {"ships/0": "n9"}}, "s.json: placement: n9: is no node; name one of: n1"),
        ({"nodes": {}}, "s.json: nodes: names none; give at least one"),
        ({"nodes": {"n1": {"cpu_percent": 0}}}, "is not a situation (Expected `float` > 0"),
        ({"colour": 1}, "is not a situation (Object contains unknown field `colour`"),
        ({"policy": {"strateg": 1}}, "policy.strateg: is not a setting; did you mean strategy?"),
    ],
)
def test_what_is_no_situation_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parsed(two_queries(**changes))
    assert message in str(refused.value)


def test_a_cycle_is_named() -> None:
    record = two_queries()
    record["topology"]["edges"].append(["late", "ships"])
    with pytest.raises(InputError) as refused:
        parsed(record)
    assert "cycle late -> ships -> late" in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{" * 100_000, b'{"version": NaN}', b"\xff" * 99])
def test_nonsense_is_no_situation(content: bytes) -> None:
    with pytest.raises(InputError):
        steady_state.parse(content, "s.json", clock=clock)


def test_ways_to_fail_and_to_come_back_are_read(tmp_path: Any) -> None:
    state = parsed(two_queries())
    assert outage_forecasts.parse("nodes:n2,n1", state, "--fail") == Named(("n1", "n2"))
    assert outage_forecasts.parse("domain:west", state, "--fail") == Named(("n2",))
    assert failure_simulation.parse("fixed:10,6", "--arrive") == Fixed(10.0, 6.0)
    assert failure_simulation.parse("uniform:120..360", "--arrive") == Uniform(120.0, 360.0)
    (tmp_path / "t.json").write_text("[5, 2.5]")
    assert failure_simulation.parse(f"trace:{tmp_path}/t.json", "--arrive") == Trace([5.0, 2.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes:n3", "--fail: names node 'n3'; name one of: n1, n2"),
        ("domain:north", "--fail: names domain 'north'; name one of: east, west"),
        ("random:3", "--fail: is 'random:3'; give nodes:NAME,NAME or domain:NAME or random:COUNT"),
        ("random:0", "--fail: is 'random:0'"),
        ("random:0000000011", "--fail: is 'random:0000000011'"),
        ("", "--fail: is ''"),
    ],
)
def test_other_ways_to_fail_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        outage_forecasts.parse(text, parsed(two_queries()), "--fail")
    assert message in str(refused.value)


@pytest.mark.parametrize("text", ["", "fixed:1", "uniform:9..3", "trace:", "trace:/no/such", "x:1"])
def test_other_ways_to_come_back_are_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        failure_simulation.parse(text, "--arrive")
    assert str(refused.value).startswith("--arrive")


def test_a_trace_holds_seconds_only(tmp_path: Any) -> None:
    (tmp_path / "t.json").write_text("[1, -2]")
    with pytest.raises(InputError) as refused:
        failure_simulation.parse(f"trace:{tmp_path}/t.json", "--arrive")
    assert "[1]: is -2" in str(refused.value)
