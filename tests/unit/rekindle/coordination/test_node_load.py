"""What partitions cost while they catch up, and how plans use what nodes have left."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from coordinator_world import COSTS, Story, plans, running

from rekindle import coordination as core
from rekindle.coordination import coordination_events, node_load
from rekindle.model.reasons import Reason
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator


def story_of(costs: Mapping[str, float], priorities: Mapping[str, float], nodes: int) -> Story:
    """Operators of one partition each that run on nodes of 80 % CPU, and a query of each that has
    a priority; one named `base` feeds one named `deep`. A checkpoint is complete."""
    topology = Topology(
        operators=tuple(TopologyOperator(name, 1) for name in costs),
        edges=(("base", "deep"),),
        queries=tuple(Query(name, name, priority) for name, priority in priorities.items()),
    )
    policy = Policy(catch_up_cost_ratio=1.0, catch_up_seconds=15.0)
    story = Story(core.initial(topology, policy, nodes))
    story.tell(
        coordination_events.StatisticsReported({f"{name}/0": cost for name, cost in costs.items()})
    )
    story.back(*(f"n{number}" for number in range(1, nodes + 1)))
    story.tell(after_seconds=60.0)
    story.catch_up()
    story.tell(coordination_events.CheckpointCompleted(5))
    story.told.clear()
    return story


def test_what_a_query_costs_grows_with_its_backlog_and_shrinks_once_it_has_caught_up() -> None:
    story = running(catch_up_cost_ratio=0.5, catch_up_seconds=30.0)
    story.lose("n1", "n2", "n3")
    (plan,) = plans(story.back("n1", after_seconds=30.0))
    assert plan.problem.partitions["source/0"].cpu_percent == pytest.approx(20 * 1.5)
    assert set(plan.placement) <= set(story.state.charges)
    story.catch_up()
    assert not set(plan.placement) & set(story.state.charges)


def test_what_a_node_has_left_is_given_at_steady_costs_while_others_catch_up() -> None:
    story = running(catch_up_cost_ratio=10.0, catch_up_seconds=1.0)
    story.tell(coordination_events.StatisticsReported({**COSTS, "tops/0": 25.0}))
    sound = {story.state.placement["counts/0"], story.state.placement["counts/1"]}
    lost = coordination_events.NodesLost(tuple(sorted(story.state.nodes.keys() - sound)))
    (first,) = plans(
        story.tell(lost, coordination_events.NodeBack("m1", 100.0), after_seconds=60.0)
    )
    assert first.query_partitions == ("slowest/0",)
    assert first.placement == {"averages/0": "m1"}
    (second,) = plans(story.tell())
    assert second.query_partitions == ("ranking/0",)
    assert second.placement["tops/0"] in sound
    assert second.problem.partitions["tops/0"].cpu_percent == 25.0
    assert set(second.problem.nodes or ()) == sound, "on m1 something catches up"
    assert plans(story.tell()) == []


def test_a_node_at_rest_is_given_to_what_may_take_longer_before_all_that_fits_in_the_end() -> None:
    story = running(catch_up_cost_ratio=1.0, catch_up_seconds=10.0)
    story.tell(
        coordination_events.StatisticsReported({name: cost / 2 for name, cost in COSTS.items()})
    )
    story.lose("n1", "n2", "n3", "n4")
    (plan,) = plans(story.back("n1", after_seconds=15.0))
    assert plan.query_partitions == ("slowest/0",), "at steady costs all would fit"
    assert plan.problem.partitions["averages/0"].cpu_percent == pytest.approx(20 * (1 + 1.5 / 2))


def test_what_an_executor_takes_beside_partitions_is_no_room_for_them() -> None:
    story = running()
    story.tell(coordination_events.StatisticsReported(COSTS, overhead_percent=15.0))
    story.lose("n1", "n2", "n3")
    (plan,) = plans(story.back("n1"))
    assert plan.problem.nodes is not None
    assert plan.problem.nodes["n1"] == pytest.approx(80.0 - 15.0)


def test_an_overhead_that_fills_a_node_leaves_some_of_it() -> None:
    story = running()
    story.tell(coordination_events.StatisticsReported(COSTS, overhead_percent=300.0))
    assert node_load.capacities(story.state) == pytest.approx(
        dict.fromkeys(story.state.nodes, 24.0)
    )


def test_less_overhead_lets_a_query_in_that_waits_for_capacity() -> None:
    story = running()
    story.tell(
        coordination_events.StatisticsReported(dict.fromkeys(COSTS, 15.0), overhead_percent=20.0)
    )
    story.lose("n1", "n2", "n3")
    story.tell()
    while story.catch_up():
        pass
    assert story.state.catching_up == frozenset()
    assert not set(story.state.closures) <= set(story.state.placement), "some wait"
    (plan,) = plans(story.tell(coordination_events.StatisticsReported({}, overhead_percent=2.0)))
    assert plan.reason is Reason.STATISTICS_CHANGED


def test_no_partition_is_planned_larger_than_an_empty_node() -> None:
    story = running()
    story.lose("n1", "n2", "n3")
    (plan,) = plans(story.back("n1", "n2", "n3", after_seconds=3600.0))
    assert max(cost.cpu_percent for cost in plan.problem.partitions.values()) == 80.0


def test_what_ran_before_comes_back_even_where_it_no_longer_fits_under_the_cap() -> None:
    story = running(nodes=2)
    story.tell(
        coordination_events.StatisticsReported({name: 3 * cost for name, cost in COSTS.items()})
    )
    story.lose("n1", "n2")
    story.back("n1", "n2", after_seconds=10.0)
    for _ in COSTS:
        story.catch_up()
    assert set(story.state.placement) == set(COSTS)


def test_costs_measured_while_a_query_catches_up_are_not_taken_for_steady_ones() -> None:
    story = running()
    (plan,) = plans(story.lose("n1"))
    story.tell(coordination_events.StatisticsReported(dict.fromkeys(COSTS, 77.0)))
    for name in COSTS:
        assert story.state.costs[name] == (COSTS[name] if name in plan.placement else 77.0)


def test_lower_costs_let_a_query_in_that_waits_for_capacity() -> None:
    story = running(nodes=2)
    story.tell(coordination_events.StatisticsReported(dict.fromkeys(COSTS, 70.0)))
    assert plans(story.lose("n1")) == []
    (plan,) = plans(story.tell(coordination_events.StatisticsReported(dict.fromkeys(COSTS, 5.0))))
    assert plan.reason is Reason.STATISTICS_CHANGED


def test_what_hardly_fits_does_not_displace_what_has_room_to_catch_up() -> None:
    costs = {"base": 37.5, "deep": 37.5, "small": 20.0, "tiny": 20.0}
    story = story_of(costs, {"deep": 10, "small": 5, "tiny": 4}, nodes=3)
    story.lose("n1", "n2", "n3")
    (plan,) = plans(story.back("n1", after_seconds=15.0))
    assert plan.query_partitions == ("small/0", "tiny/0")


def test_what_needs_less_does_not_take_the_room_of_what_matters_more() -> None:
    costs = {"base": 30.0, "deep": 30.0, "small": 35.0}
    story = story_of(costs, {"deep": 10, "small": 1}, nodes=3)
    story.lose("n1", "n2", "n3")
    (plan,) = plans(story.back("n1", after_seconds=15.0))
    assert plan.query_partitions == ("deep/0",), "in four times the time; small would fit at once"
    assert plan.waiting == 2


def test_no_node_rests_for_long_for_what_does_not_fit() -> None:
    costs = {"first": 35.0, "base": 45.0, "deep": 45.0, "small": 40.0}
    story = story_of(costs, {"first": 10, "deep": 5, "small": 1}, nodes=3)
    story.lose("n1", "n2", "n3")
    told = story.back("n1", "n2", after_seconds=15.0)
    told += story.tell(after_seconds=1.0)
    found = {name for plan in plans(told) for name in plan.query_partitions}
    assert found == {"first/0", "small/0"}


def test_a_query_that_is_lost_while_it_catches_up_leaves_no_charge_behind() -> None:
    costs = {"base": 35.0, "deep": 60.0, "middle": 40.0, "tiny": 8.0}
    story = story_of(costs, {"deep": 10, "middle": 5, "tiny": 1}, nodes=4)
    story.lose("n1", "n2", "n3", "n4")
    (first,) = plans(story.back("n1", "n2", after_seconds=15.0))
    assert first.query_partitions == ("deep/0",)
    told = story.lose(first.placement["deep/0"], after_seconds=3.0)
    (plan,) = plans(told)
    assert plan.query_partitions == ("tiny/0",)
    assert plan.problem.nodes == {first.placement["base/0"]: 80.0 - 35.0}
    assert story.state.charges.keys() == {"tiny/0"}


def test_who_has_lost_the_record_of_an_incident_takes_no_node_that_is_left_for_all() -> None:
    story = running(nodes=4)
    story.lose("n1", "n2", "n3")
    left = {name: view for name, view in story.state.nodes.items() if name == "n4"}
    story.state = replace(story.state, incident=None, losses=(), nodes=left, due=None)
    story.lose("n4")
    story.back("n1", after_seconds=10.0)
    while story.catch_up():
        pass
    assert story.state.incident is not None
    assert story.state.incident.nodes_wanted == 4
    used = sum(COSTS[name] for name in story.state.placement)
    assert used <= node_load.capacities(story.state)["n1"]
