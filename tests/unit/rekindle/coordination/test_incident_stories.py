"""The coordinator core: events in, instructions out, told as stories of nodes and queries."""

from dataclasses import replace

import pytest
from coordinator_world import (
    COSTS,
    EVERYTHING,
    TOPOLOGY,
    Story,
    fresh,
    of_kind,
    plans,
    records,
    running,
)

from rekindle import coordination as core
from rekindle.coordination import coordination_events, instructions
from rekindle.model.errors import InputError
from rekindle.model.reasons import Reason
from rekindle.model.settings import Policy
from rekindle.model.topology import TopologyOperator


def test_a_fresh_start_waits_for_all_nodes_and_then_plans_everything_at_once() -> None:
    story = fresh(nodes=3)
    told = story.back("n1", "n2")
    assert plans(told) == []
    assert records(told)["waiting"].text == "2 of 3 nodes are up."
    (plan,) = plans(story.back("n3"))
    assert plan.query_partitions == EVERYTHING
    assert set(plan.placement) == set(COSTS)
    assert (plan.plan_epoch, plan.reason, plan.incident) == (1, Reason.STARTED, None)
    assert story.state.incident is None


def test_a_node_lost_while_a_fresh_start_waits_is_no_incident() -> None:
    story = fresh(nodes=2)
    story.back("n1")
    told = story.lose("n1")
    assert records(told)["nodes-lost"].reason is Reason.WAITING_FOR_NODES
    assert plans(story.back("n2")) == []
    assert len(plans(story.back("n1"))) == 1


def test_unknown_costs_are_scaled_so_that_everything_fits() -> None:
    story = Story(core.initial(TOPOLOGY, Policy(default_cpu_percent=500.0), 2))
    (plan,) = plans(story.back("n1", "n2"))
    assert plan.query_partitions == EVERYTHING
    assert max(cost.cpu_percent for cost in plan.problem.partitions.values()) < 80


def test_hints_count_until_costs_are_measured() -> None:
    hints = {"source/0": 8.0, "source/1": 4.0}
    story = Story(core.initial(TOPOLOGY, Policy(), 4, hints=hints))
    (plan,) = plans(story.back("n1", "n2", "n3", "n4"))
    costs = {name: cost.cpu_percent for name, cost in plan.problem.partitions.items()}
    assert (costs["source/0"], costs["source/1"], costs["tops/0"]) == (8.0, 4.0, 2.0)


def test_a_resumed_start_is_a_complete_failure_recovered_from_the_first_node_on() -> None:
    policy = Policy(catch_up_cost_ratio=0.5, catch_up_seconds=30.0)
    story = Story(core.initial(TOPOLOGY, policy, 4, resumed=True, checkpoint_at=990.0))
    story.tell(coordination_events.StatisticsReported(COSTS))
    opened = records(story.told)["incident-opened"]
    assert opened.reason is Reason.RESUMED
    assert opened.text == "Incident 1 is complete: nothing runs yet."
    first = plans(story.back("n1", "n2"))
    assert [plan.query_partitions for plan in first] == [("busiest/0", "slowest/0")]
    assert first[0].problem.partitions["source/0"].cpu_percent == pytest.approx(20 * (1 + 10 / 60))


def test_a_resumed_start_by_the_blocking_strategy_waits_for_all_nodes() -> None:
    story = Story(core.initial(TOPOLOGY, Policy(strategy="blocking"), 2, resumed=True))
    assert plans(story.back("n1")) == []
    assert plans(story.back("n2"))[0].query_partitions == EVERYTHING


def test_an_independent_failure_is_recovered_at_once_with_steady_costs() -> None:
    story = running()
    lost = [name for name, node in story.state.placement.items() if node == "n1"]
    told = story.lose("n1", after_seconds=60.0)
    (plan,) = plans(told)
    assert plan.reason is Reason.INDEPENDENT_FAILURE
    assert set(lost) <= plan.problem.failed
    assert all(plan.problem.partitions[name].cpu_percent == COSTS[name] for name in lost)
    assert of_kind(told, instructions.DropExecutors)[0].nodes == ("n1",)
    (request,) = of_kind(told, instructions.RequestNodes)
    assert request == instructions.RequestNodes(1, (), Reason.INDEPENDENT_FAILURE)


def test_a_correlated_failure_is_planned_on_the_survivors_and_with_every_node_back() -> None:
    story = running()
    told = story.lose("n1", "n2", "n3")
    assert records(told)["incident-opened"].reason is Reason.CORRELATED_FAILURE
    request = of_kind(told, instructions.RequestNodes)[0]
    assert (request.count, request.outside_domains) == (3, ("zone-1",))
    planned = plans(told)
    for node in ("n1", "n2", "n3"):
        planned += plans(story.back(node, after_seconds=6.0))
        planned += plans(story.catch_up())
    assert {plan.reason for plan in planned} >= {Reason.NODE_BACK}
    assert planned[0].query_partitions == ("slowest/0",)
    assert [plan.plan_epoch for plan in planned] == list(range(2, 2 + len(planned)))
    assert set(story.state.placement) == set(COSTS)


def test_an_empty_plan_is_recorded_and_not_published() -> None:
    story = running(nodes=2, catch_up_seconds=1.0)
    story.tell(coordination_events.StatisticsReported(dict.fromkeys(COSTS, 70.0)))
    told = story.lose("n1")
    assert plans(told) == []
    assert records(told)["plan-empty"].reason is Reason.NO_CAPACITY


def test_a_blocking_plan_waits_for_as_many_nodes_as_before_and_survivors_run_on() -> None:
    story = running(strategy="blocking")
    told = story.lose("n1", "n2", "n3")
    before = dict(story.state.placement)
    assert plans(told) == []
    assert plans(story.back("m1", "n2", after_seconds=6.0)) == []
    (plan,) = plans(story.back("m3", after_seconds=6.0))
    assert set(plan.placement) == set(COSTS) - set(before)
    assert all(cost.cpu_percent == COSTS[name] for name, cost in plan.problem.partitions.items())


def test_a_further_loss_does_not_lower_the_number_of_nodes_that_a_blocking_plan_waits_for() -> None:
    story = running(strategy="blocking")
    story.lose("n1", "n2")
    story.lose("n3", after_seconds=9.0)
    assert plans(story.back("n1", "n2")) == []
    assert len(plans(story.back("n3"))) == 1


def test_a_second_loss_makes_an_unfinished_incident_correlated() -> None:
    story = running()
    story.lose("n1")
    assert story.state.incident is not None
    number = story.state.incident.number
    told = story.lose("n2", after_seconds=300.0)
    assert records(told)["incident-changed"].reason is Reason.CORRELATED_FAILURE
    assert story.state.incident.number == number
    assert story.state.incident.lost == ("n1", "n2")


def test_arrivals_within_the_stabilisation_delay_go_into_one_plan() -> None:
    story = running(stabilisation_seconds=10.0)
    story.lose("n1", "n2", "n3")
    assert plans(story.back("n1", after_seconds=5.0)) == []
    assert plans(story.back("n2", after_seconds=9.0)) == []
    (plan,) = plans(story.tell(after_seconds=1.0))
    assert set(plan.problem.nodes or ()) == {"n1", "n2", "n4"}
    assert plans(story.tell(after_seconds=60.0)) == []


def test_a_partition_whose_state_survived_stays_on_its_node() -> None:
    story = running(strategy="blocking")
    home = story.state.placement["tops/0"]
    source = story.state.placement["source/0"]
    assert home != source
    other = next(node for node in ("n1", "n2", "n3", "n4") if node not in (home, source))
    story.lose(source, other)
    assert story.state.resident["tops/0"] == home
    (plan,) = plans(story.back(source, other))
    assert plan.placement["tops/0"] == home
    assert story.state.resident == {}


def test_nothing_new_is_placed_on_a_suspected_node_until_it_is_heard_of() -> None:
    story = running()
    placement = story.state.placement
    told = story.tell(coordination_events.NodeSuspected("n4"))
    assert records(told)["node-suspected"].reason is Reason.SUSPECTED_FAILURE
    assert (story.state.placement, story.state.incident) == (placement, None)
    (plan,) = plans(story.lose("n1"))
    assert set(plan.problem.nodes or ()) == {"n2", "n3"}
    told = story.back("n4")
    assert records(told)["node-cleared"].reason is Reason.SUSPICION_CLEARED


def test_it_holds_when_every_node_looks_lost_until_one_is_back() -> None:
    story = running()
    told = story.lose("n1", "n2", "n3", "n4")
    assert records(told)["holding"].reason is Reason.ALL_NODES_LOST
    assert records(told)["incident-opened"].reason is Reason.COMPLETE_FAILURE
    assert (
        of_kind(told, instructions.DropExecutors) + of_kind(told, instructions.RequestNodes) == []
    )
    held = story.state.holding
    told = story.back("n2")
    assert (held, story.state.holding) == (True, False)
    assert of_kind(told, instructions.DropExecutors)[0].nodes == ("n1", "n3", "n4")
    assert of_kind(told, instructions.RequestNodes)[0].count == 3
    assert len(plans(told)) <= 1


def test_an_incident_closes_with_the_first_checkpoint_after_all_have_caught_up() -> None:
    story = running()
    story.lose("n1", "n2")
    story.back("n1", "n2")
    assert records(story.tell(coordination_events.CheckpointCompleted(6))) == {}
    while story.state.catching_up:
        story.catch_up()
    assert story.state.incident is not None
    closed = records(story.tell(coordination_events.CheckpointCompleted(7), after_seconds=9.0))[
        "incident-closed"
    ]
    assert closed.reason is Reason.RECOVERED
    assert closed.details["incident"] == 1
    assert story.state.incident is None


def test_an_incident_that_is_heard_of_with_a_checkpoint_is_open_until_the_next_one() -> None:
    story = running()
    for part in story.state.partitions:
        if story.state.placement[part] == "n1":
            story.state = replace(
                story.state, placement={**story.state.placement, part: "n2"}
            )  # as a driver has planned that was alone
    told = story.tell(
        coordination_events.NodesLost(("n1",)), coordination_events.CheckpointCompleted(7)
    )
    assert "incident-closed" not in records(told)
    assert story.state.incident is not None
    assert story.state.incident.lost == ("n1",)
    told = story.tell(coordination_events.CheckpointCompleted(8), after_seconds=2.0)
    assert records(told)["incident-closed"].details["seconds"] == 2.0


def test_an_incident_closes_under_a_coordinator_whose_clock_is_an_hour_behind() -> None:
    story = running()
    story.lose("n1", "n2")
    story.back("n1", "n2")
    while story.state.catching_up:
        story.catch_up()
    story.state = replace(story.state, seen_at=None)  # as in a record that does not say it
    told = story.tell(coordination_events.CheckpointCompleted(7), after_seconds=-3600.0)
    told += story.tell(coordination_events.CheckpointCompleted(8), after_seconds=2.0)
    assert records(told)["incident-closed"].details["seconds"] >= 2.0


def test_an_acknowledgement_of_an_older_plan_is_ignored() -> None:
    story = running()
    story.lose("n1")
    assert story.state.unacknowledged == 2
    story.tell(coordination_events.PlanAcknowledged(1))
    assert story.state.unacknowledged == 2
    story.tell(coordination_events.PlanAcknowledged(2))
    assert story.state.unacknowledged is None


def test_the_policys_priorities_override_the_pipelines() -> None:
    story = running()
    told = story.tell(
        coordination_events.PolicyChanged(Policy(priorities={"ranking": 10, "slowest": 1}))
    )
    assert records(told)["policy-changed"].reason is Reason.POLICY_CHANGED
    assert story.state.priorities == dict(zip(EVERYTHING, (2, 2, 10, 1), strict=True))
    with pytest.raises(InputError, match=r"policy\.priorities\.rankin: there is no such query"):
        core.initial(TOPOLOGY, Policy(priorities={"rankin": 3}), 1)


def test_an_operator_that_no_query_needs_is_refused() -> None:
    wasted = replace(TOPOLOGY, operators=(*TOPOLOGY.operators, TopologyOperator("debug", 1)))
    with pytest.raises(InputError, match="operator debug: leads to no query"):
        core.initial(wasted, Policy(), 1)


def test_an_unreachable_store_is_recorded_once_and_planning_goes_on() -> None:
    story = running()
    (record,) = story.tell(coordination_events.StoreLost(), coordination_events.StoreLost())
    assert records([record])["store-unreachable"].reason is Reason.STORE_UNREACHABLE
    assert len(plans(story.lose("n1"))) == 1
    assert records(story.tell(coordination_events.StoreReachable()))["store-reachable"]


def test_the_loss_of_the_driver_is_a_complete_failure_and_asks_for_a_new_one() -> None:
    story = running()
    assert story.tell(coordination_events.DriverLost())[-1] == instructions.RestartDriver(
        Reason.DRIVER_LOST
    )
    assert (story.state.placement, story.state.holding) == ({}, False)
    number = story.state.incidents
    story.tell(coordination_events.Started(4, resumed=True))
    assert len(plans(story.back("n1"))) <= 1
    assert story.state.incidents == number


def test_a_start_says_that_buffering_and_ordering_are_on() -> None:
    told = fresh().tell(coordination_events.Started(4))
    assert instructions.SetBuffering("on", Reason.STARTED) in told
    assert instructions.SetOrdering("on", Reason.STARTED) in told


def test_adaptive_switches_go_on_with_a_correlated_failure_and_off_when_it_is_over() -> None:
    story = running(buffering="adaptive", ordering="adaptive")
    told = story.lose("n1", "n2", "n3")
    assert instructions.SetBuffering("on", Reason.CORRELATED_FAILURE) in told
    assert instructions.SetOrdering("on", Reason.CORRELATED_FAILURE) in told
    first, *later = plans(told + story.back("n1", "n2", "n3"))
    assert first.rollback
    assert not any(plan.rollback for plan in later)
    while story.state.catching_up:
        story.catch_up()
    told = story.tell(coordination_events.CheckpointCompleted(9), after_seconds=1.0)
    assert instructions.SetBuffering("off", Reason.RECOVERED) in told


def test_a_plan_reads_as_a_sentence() -> None:
    (plan,) = plans(running().lose("n1"))
    sentence = instructions.describe(plan)
    assert sentence.startswith("Plan 2 of incident 1 (independent-failure): Bring back ")
    assert "\n" not in sentence


def test_a_plan_of_a_start_says_that_nothing_is_lost() -> None:
    (plan,) = plans(fresh(nodes=2).back("n1", "n2"))
    count = len(EVERYTHING)
    assert instructions.describe(plan).startswith(
        f"Plan 1 (started): Start {count} of {count} waiting query partitions with "
    )


def test_a_plan_of_a_driver_that_starts_again_names_no_loss() -> None:
    story = fresh()
    story.tell(coordination_events.Started(2, resumed=True))
    plan = plans(story.back("n1", "n2"))[0]
    assert "Bring back 4 of 4 waiting query partitions with " in instructions.describe(plan)


def test_a_tick_with_nothing_due_changes_nothing() -> None:
    story = running()
    before = story.state
    assert (story.tell(after_seconds=3600.0), story.state is before) == ([], True)
