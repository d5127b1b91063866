"""An application in a coordinator's hands: reports in, directives out, whatever dies in between."""

from dataclasses import replace

import msgspec
import pytest
from application_world import COSTS, TOPOLOGY, Desk, orders, running

from rekindle import protocol
from rekindle.coordination import session
from rekindle.coordination.coordination_state import initial
from rekindle.coordination.session import Case, Driver
from rekindle.model.errors import InputError
from rekindle.model.settings import Policy
from rekindle.protocol import (
    BufferingOrder,
    CheckpointReport,
    DropOrder,
    Heartbeat,
    LagGoalsOrder,
    NodeSeen,
    OrderingOrder,
    Orders,
    PauseOrder,
    PlanOrder,
    PriorityOverride,
    ProgressReport,
    ResumeOrder,
    StatisticsReport,
)


def test_a_fresh_application_gets_one_plan_for_everything_once_all_nodes_are_there() -> None:
    desk = Desk()
    desk.nodes.pop("n4")
    desk.report()
    assert not orders(desk.decide(), PlanOrder)
    desk.nodes["n4"] = NodeSeen(incarnation="a", capacity_percent=100.0)
    desk.report()
    (plan,) = orders(desk.decide(), PlanOrder)
    assert set(plan.placement) == set(COSTS)


def test_nothing_is_written_when_nothing_happens() -> None:
    desk = running()
    desk.report()
    desk.decide()
    desk.report()
    assert not desk.decide().changed


def test_a_lost_executor_is_planned_around_and_nodes_are_requested() -> None:
    desk = running()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    decision = desk.decide()
    assert orders(decision, PlanOrder)
    assert set(decision.case.requests) == {"1-nodes-2"}
    assert decision.case.requests["1-nodes-2"].count == 2


def test_incidents_of_an_application_that_the_store_forgot_are_numbered_behind_known_ones() -> None:
    desk = Desk()
    desk.reading = replace(desk.reading, incidents=41)
    desk.settle()
    del desk.nodes["n1"]
    desk.report()
    decision = desk.decide()
    assert decision.case.incident is not None
    assert decision.case.incident.number == 42
    desk.reading = replace(desk.reading, incidents=60)
    desk.report()
    assert desk.decide().case.incident == decision.case.incident, "the store's own count goes on"


def test_an_executor_that_was_replaced_between_two_reports_counts_as_lost_and_back() -> None:
    desk = running()
    before = dict(desk.placement)
    desk.nodes["n1"] = NodeSeen(incarnation="b", capacity_percent=100.0)
    desk.placement = {name: node for name, node in before.items() if node != "n1"}
    desk.report()
    decision = desk.decide()
    assert decision.case.state is not None
    assert decision.case.state.incidents == 1
    assert orders(decision, PlanOrder)


def test_only_one_plan_is_on_its_way() -> None:
    desk = running()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    assert orders(desk.decide(obey=False), PlanOrder)
    desk.nodes["n1"] = NodeSeen(incarnation="b", capacity_percent=100.0)
    desk.report()
    assert not orders(desk.decide(obey=False), PlanOrder)


def test_a_plan_that_the_driver_could_not_place_is_made_again() -> None:
    desk = running()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    decision = desk.decide(obey=False)
    (directive,) = (item for item in decision.directives if isinstance(item.order, PlanOrder))
    desk.plan_epoch, desk.directive = directive.plan_epoch, directive.sequence
    desk.report()
    (again,) = orders(desk.decide(), PlanOrder)
    assert isinstance(directive.order, PlanOrder)
    assert set(again.placement) == set(directive.order.placement)


def test_plans_that_the_driver_made_alone_are_taken_over() -> None:
    desk = running()
    lost = {name for name, node in desk.placement.items() if node == "n1"}
    del desk.nodes["n1"]
    desk.report()
    desk.placement |= dict.fromkeys(lost, "n2")
    desk.plan_epoch += 3
    desk.report(alone=True)
    decision = desk.decide()
    assert not orders(decision, PlanOrder)
    assert decision.case.state is not None
    assert decision.case.state.plan_epoch == desk.plan_epoch


def test_a_report_that_comes_twice_or_late_changes_nothing() -> None:
    desk = running()
    desk.report()
    desk.decide()
    for sequence in (desk.sequence, desk.sequence - 1, 0):
        desk.reading = replace(
            desk.reading,
            progress=ProgressReport(
                generation=1, sequence=sequence, nodes={}, placement={}, live=()
            ),
        )
        assert not desk.decide().changed


def test_a_coordinator_that_was_killed_makes_the_plan_that_it_would_have_made() -> None:
    desk = running()
    desk.now += 100
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    found = desk.restart()
    same = session.decide(found, desk.reading, desk.now + 1, clock=float)
    assert desk.decide().directives == same.directives
    assert orders(same, PlanOrder)


def test_a_node_that_the_provider_reports_gone_is_dropped_before_the_driver_notices() -> None:
    desk = running()
    desk.reading = replace(desk.reading, nodes_gone=frozenset({"n3"}))
    desk.report()
    decision = desk.decide()
    assert orders(decision, DropOrder) == [DropOrder(nodes={"n3": "a"})]
    (plan,) = orders(decision, PlanOrder)
    assert plan.drops == {"n3": "a"}, "it stands by itself, should the order before it be refused"
    desk.report()
    assert orders(desk.decide(), DropOrder) == [DropOrder(nodes={"n3": "a"})]
    del desk.nodes["n3"]
    desk.report()
    assert not orders(desk.decide(), DropOrder)


def test_nodes_that_are_all_lost_at_once_are_not_dropped_while_that_is_doubted() -> None:
    desk = running()
    desk.reading = replace(desk.reading, nodes_gone=frozenset(desk.nodes))
    for _ in range(3):
        desk.report()
        assert not orders(desk.decide(), DropOrder)


def test_a_silent_driver_gets_no_plan_and_one_that_is_gone_is_started_again() -> None:
    desk = running()
    heartbeat = desk.reading.heartbeat
    desk.reading = replace(desk.reading, heartbeat=None)
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    decision = desk.decide()
    assert decision.case.driver is Driver.SILENT
    assert not orders(decision, PlanOrder)
    desk.reading = replace(desk.reading, driver_gone=True)
    decision = desk.decide()
    assert {item.what for item in decision.case.requests.values()} == {"nodes", "driver"}
    assert not desk.decide().directives
    desk.reading = replace(desk.reading, heartbeat=heartbeat, driver_gone=False)


def test_a_new_generation_is_a_complete_failure_whose_plan_epochs_go_on() -> None:
    desk = running()
    epoch = desk.plan_epoch
    desk.reading = replace(
        desk.reading,
        topology=msgspec.structs.replace(desk.reading.topology, generation=2, resumed=True),
        heartbeat=Heartbeat(generation=2, since=1.0),
        statistics=StatisticsReport(generation=2, sequence=0, costs=COSTS),
    )
    desk.placement, desk.plan_epoch, desk.directive, desk.sequence = {}, 0, 0, 0
    desk.report()
    decision = desk.decide()
    (plan,) = [item for item in decision.directives if isinstance(item.order, PlanOrder)]
    assert (plan.generation, plan.plan_epoch) == (2, epoch + 1)
    assert isinstance(plan.order, PlanOrder)
    assert set(plan.order.placement) <= set(COSTS)


def test_an_incident_goes_on_in_the_next_generation_with_a_clock_that_is_an_hour_behind() -> None:
    desk = running()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    before = desk.decide().case.incident
    assert before is not None
    desk.case = desk.restart()
    desk.reading = replace(
        desk.reading,
        topology=msgspec.structs.replace(desk.reading.topology, generation=2, resumed=True),
        heartbeat=Heartbeat(generation=2, since=1.0),
    )
    desk.now -= 3600.0
    after = desk.decide().case.incident
    assert after is not None
    assert after.began_at <= after.newest_loss_at <= desk.now
    assert after.behind_since - after.began_at == before.behind_since - before.began_at


def test_what_the_cluster_calls_a_node_outlives_its_executor_and_its_driver() -> None:
    """Whoever comes later finds it in the record alone."""
    desk = running()
    called = {node: f"machine-{node}" for node in desk.nodes}
    for node, seen in desk.nodes.items():
        desk.nodes[node] = msgspec.structs.replace(seen, cluster_node=called[node])
    desk.report()
    assert desk.decide().changed
    desk.report()
    assert not desk.decide().changed, "it is no news twice"
    desk.case = desk.restart()
    del desk.nodes["n1"]
    desk.report()
    incident = desk.decide().case.incident
    assert incident is not None
    assert incident.cluster_nodes == {"n1": "machine-n1"}
    desk.nodes["n1"] = NodeSeen(incarnation="b", capacity_percent=100.0, cluster_node="another")
    desk.report()
    state = desk.decide().case.state
    assert state is not None
    assert state.nodes["n1"].cluster_node == "another"
    desk.case = desk.restart()
    desk.reading = replace(
        desk.reading,
        topology=msgspec.structs.replace(desk.reading.topology, generation=2, resumed=True),
        heartbeat=Heartbeat(generation=2, since=1.0),
    )
    incident = desk.decide().case.incident
    assert incident is not None
    assert incident.cluster_nodes == {"n1": "machine-n1"}


def test_nodes_are_asked_for_until_they_are_there_even_when_all_runs_without_them() -> None:
    desk = running()
    del desk.nodes["n1"]
    desk.placement = dict.fromkeys(desk.placement, "n2")
    desk.plan_epoch += 1
    desk.reading = replace(
        desk.reading, checkpoint=CheckpointReport(generation=1, sequence=9, epoch=9, at=desk.now)
    )
    desk.report(alone=True)
    decision = desk.decide()
    assert decision.case.state is not None
    assert decision.case.state.incident is not None
    desk.reading = replace(
        desk.reading, checkpoint=CheckpointReport(generation=1, sequence=10, epoch=10, at=desk.now)
    )
    decision = desk.decide()
    assert decision.case.state is not None
    assert decision.case.state.incident is None
    assert [request.count for request in decision.case.requests.values()] == [1]
    desk.nodes["n1"] = NodeSeen(incarnation="b", capacity_percent=100.0)
    desk.report()
    assert not desk.decide().case.requests


def test_priorities_that_people_set_hold_until_their_time_is_over() -> None:
    desk = running()
    desk.reading = replace(
        desk.reading,
        orders=Orders(priorities={"busiest": PriorityOverride(priority=10, until=desk.now + 60)}),
    )
    desk.report()
    state = desk.decide().case.state
    assert state is not None
    assert state.priorities["busiest/0"] == 5
    state = desk.decide(after_seconds=61).case.state
    assert state is not None
    assert state.priorities["busiest/0"] == 2


def test_a_pause_is_ordered_once_and_stops_planning_until_it_ends() -> None:
    desk = running()
    desk.reading = replace(desk.reading, orders=Orders(paused=True))
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    decision = desk.decide()
    assert orders(decision, PauseOrder)
    assert not orders(decision, PlanOrder)
    desk.report()
    assert not orders(desk.decide(), PauseOrder)
    desk.reading = replace(desk.reading, orders=Orders())
    decision = desk.decide()
    assert orders(decision, ResumeOrder)
    assert orders(decision, PlanOrder)


def test_a_plan_comes_after_the_drop_of_executors_that_it_takes_for_lost() -> None:
    """A driver that has planned alone since refuses the drop that is on its way."""
    desk = running()
    desk.reading = replace(desk.reading, nodes_gone=frozenset({"n1"}), orders=Orders(paused=True))
    desk.report()
    assert orders(desk.decide(obey=False), DropOrder) == [DropOrder(nodes={"n1": "a"})]
    desk.plan_epoch += 1  # alone, and n1's executor still counts as there
    desk.reading = replace(desk.reading, nodes_gone=frozenset(), orders=Orders())
    desk.report(alone=True)
    kinds = [type(item.order) for item in desk.decide(obey=False).directives]
    assert PlanOrder in kinds
    assert kinds.index(DropOrder) < kinds.index(PlanOrder)


def test_a_coordinator_that_was_killed_notices_priorities_that_changed_meanwhile() -> None:
    desk = running()
    found = desk.restart()
    desk.reading = replace(
        desk.reading, orders=Orders(priorities={"busiest": PriorityOverride(priority=10)})
    )
    same = session.decide(found, desk.reading, desk.now + 1, clock=float)
    decision = desk.decide()
    assert decision.instructions == same.instructions != ()
    again = session.decide(desk.restart(), desk.reading, desk.now + 1, clock=float)
    assert not again.instructions


def _lose(desk: Desk, *nodes: str) -> None:
    for node in nodes:
        del desk.nodes[node]
    desk.report()


def test_after_the_record_is_lost_the_next_directive_is_one_that_the_driver_looks_at() -> None:
    desk = running()
    desk.directive, desk.plan_epoch, desk.case = 3_000, 90, Case()
    desk.report()
    (first, *_) = desk.decide().directives
    assert (first.sequence, first.after) == (3_001, 0)
    desk.settle()
    _lose(desk, "n1")
    decision = desk.decide()
    (plan,) = orders(decision, PlanOrder)
    assert plan.builds_on == 90
    assert decision.case.incident is not None
    assert decision.case.incident.number > 3_000  # none that was before has this number


def test_a_driver_that_reports_only_after_its_topology_is_caught_up_with_too() -> None:
    desk = running()
    progress = desk.reading.progress
    desk.case, desk.directive = Case(), 57
    desk.reading = replace(desk.reading, progress=None, orders=Orders(paused=True))
    assert orders(desk.decide(obey=False), PauseOrder)
    desk.reading = replace(desk.reading, progress=progress)
    desk.report()
    (first, *_) = again = desk.decide().directives
    assert (first.sequence, first.after) == (58, 0)
    assert any(isinstance(item.order, PauseOrder) for item in again)


def test_a_record_from_an_older_copy_goes_on_behind_what_the_driver_has_looked_at() -> None:
    desk = running()
    older = desk.restart()
    _lose(desk, "n1", "n2")
    desk.decide()
    desk.nodes["n1"] = NodeSeen(incarnation="b", capacity_percent=100.0)
    desk.settle()
    looked_at, plan_epoch = desk.directive, desk.plan_epoch
    assert older.sequence < looked_at
    desk.case = older
    desk.settle()
    _lose(desk, "n4")
    decision = desk.decide()
    assert min(item.sequence for item in decision.directives) > looked_at
    (plan,) = orders(decision, PlanOrder)
    assert plan.builds_on == plan_epoch
    desk.settle()
    assert set(desk.placement) == set(COSTS)


def test_a_directive_that_the_store_has_lost_is_given_up_and_ordered_again() -> None:
    desk = running()
    _lose(desk, "n1", "n2")
    sent = desk.decide(obey=False).directives
    assert any(isinstance(item.order, PlanOrder) for item in sent)
    held = frozenset(item.sequence for item in sent)
    desk.reading = replace(desk.reading, directives=held)
    assert not desk.decide(obey=False).directives
    desk.reading = replace(desk.reading, directives=held - {min(held)})
    same = session.decide(desk.restart(), desk.reading, desk.now + 1, clock=float)
    (first, *_) = again = desk.decide().directives
    assert again == same.directives
    assert (first.sequence, first.after) == (max(held) + 1, 0)
    assert any(isinstance(item.order, PlanOrder) for item in again)
    desk.reading = replace(desk.reading, directives=None)
    desk.settle()
    assert set(desk.placement) == set(COSTS)


def test_adaptive_switches_are_ordered_on_and_off_and_again_when_they_were_missed() -> None:
    desk = Desk(buffering="adaptive", ordering="adaptive")
    desk.modes = {"buffering": "off", "ordering": "off"}
    desk.settle()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    decision = desk.decide(obey=False)
    assert orders(decision, BufferingOrder) == [BufferingOrder(mode="on")]
    assert orders(decision, OrderingOrder) == [OrderingOrder(mode="on")]
    desk.directive = decision.directives[-1].sequence
    desk.plan_epoch = decision.directives[-1].plan_epoch
    desk.report()
    assert orders(desk.decide(), BufferingOrder) == [BufferingOrder(mode="on")]


def with_goals(desk: Desk, **goals: float) -> None:
    """The policy has these goals from now on."""
    report = desk.reading.topology
    policy = replace(report.policy, lag_goals=goals)
    topology = msgspec.structs.replace(report, policy=policy)
    desk.reading = replace(desk.reading, topology=topology)


def test_goals_for_lags_are_ordered_until_the_driver_counts_by_them() -> None:
    desk = running()
    with_goals(desk, busiest=10.0)
    desk.report()
    decision = desk.decide(obey=False)
    assert orders(decision, LagGoalsOrder) == [LagGoalsOrder(goals={"busiest": 10.0})]
    (directive,) = decision.directives
    assert directive.text == "Goals for lags: busiest 10 s."
    assert not orders(desk.decide(obey=False), LagGoalsOrder), "it is on its way"
    desk.directive = directive.sequence
    desk.report()
    assert orders(desk.decide(), LagGoalsOrder), "the driver has taken it and counts by others"
    desk.report()
    assert not orders(desk.decide(), LagGoalsOrder)
    with_goals(desk)
    desk.settle()
    assert desk.lag_goals == {}


def test_goals_of_the_pipeline_hold_where_the_policy_has_none() -> None:
    desk = running()
    report = desk.reading.topology
    queries = tuple(replace(query, lag_goal_seconds=5.0) for query in report.topology.queries)
    topology = replace(report.topology, queries=queries)
    report = msgspec.structs.replace(report, generation=2, topology=topology)
    desk.reading = replace(
        desk.reading, topology=report, heartbeat=Heartbeat(generation=2, since=0.0)
    )
    with_goals(desk, busiest=10.0)
    desk.settle()
    assert desk.lag_goals == {"busiest": 10.0, "ranking": 5.0}


def test_a_driver_of_the_release_before_gets_no_goals() -> None:
    desk = running()
    desk.lag_goals = None
    with_goals(desk, busiest=10.0)
    desk.report()
    assert not orders(desk.decide(), LagGoalsOrder)


def test_goals_of_queries_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError) as refused:
        initial(TOPOLOGY, Policy(lag_goals={"busy": 10.0}), 4)
    assert str(refused.value) == (
        "policy.lag_goals.busy: there is no such query; name one of: busiest, ranking"
    )


def test_a_report_survives_its_encoding() -> None:
    desk = running()
    desk.report()
    assert desk.reading.progress is not None
    data = protocol.encode(desk.reading.progress)
    assert protocol.decode(data, ProgressReport, "report") == desk.reading.progress
