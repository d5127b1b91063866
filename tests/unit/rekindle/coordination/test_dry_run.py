"""What a dry run carries out: nothing that a loss has led to, and every start."""

from dataclasses import replace

import msgspec
from application_world import NODES, Desk

from rekindle.coordination import session
from rekindle.coordination.coordination_state import NodeStatus, inactive, with_status
from rekindle.coordination.session import Decision, Resumption
from rekindle.protocol import DropOrder, Heartbeat, NodeSeen, PlanOrder


class DryDesk(Desk):
    """The same in a dry run, as long as `dry` says so."""

    dry = True

    def decide(self, obey: bool = True, after_seconds: float = 1.0) -> Decision:
        self.now += after_seconds
        decision = session.decide(self.case, self.reading, self.now, clock=float, dry_run=self.dry)
        self.case = decision.case
        if obey:
            self.obey(decision)
        return decision


def running(**policy: str) -> DryDesk:
    """Everything is placed, by the plan of a fresh start."""
    desk = DryDesk(**policy)
    desk.report()
    desk.decide(after_seconds=0.0)
    desk.decide(after_seconds=20.0)
    desk.report()
    assert not desk.decide().directives
    assert len(desk.placement) == 5
    return desk


def settle(desk: DryDesk, rounds: int = 3) -> list[Decision]:
    found = []
    for _ in range(rounds):
        desk.report()
        found.append(desk.decide(after_seconds=20.0))
    return found


def start_again(desk: DryDesk) -> None:
    """A new driver, with earlier work and new executors on the same nodes."""
    desk.placement.clear()
    desk.nodes = {node: NodeSeen(incarnation="b", capacity_percent=100.0) for node in NODES}
    desk.plan_epoch = desk.directive = 0
    topology = msgspec.structs.replace(desk.reading.topology, generation=2, resumed=True)
    statistics = desk.reading.statistics
    assert statistics is not None
    desk.reading = replace(
        desk.reading,
        topology=topology,
        progress=None,
        statistics=msgspec.structs.replace(statistics, generation=2),
        heartbeat=Heartbeat(generation=2, since=desk.now),
    )


def test_a_node_that_is_lost_leads_to_an_incident_and_to_no_directive() -> None:
    desk = running(buffering="adaptive", ordering="adaptive")
    desk.reading = replace(desk.reading, nodes_gone=frozenset({"n1"}))
    told = settle(desk)
    state = desk.case.state
    assert state is not None
    assert state.incident is not None
    assert inactive(state)
    assert [decision.directives for decision in told] == [(), (), ()]


def test_what_a_dry_run_has_withheld_goes_out_when_it_ends() -> None:
    desk = running(buffering="adaptive", ordering="adaptive")
    desk.reading = replace(desk.reading, nodes_gone=frozenset({"n1"}))
    settle(desk)
    desk.dry = False
    desk.report()
    orders = [item.order for item in desk.decide(after_seconds=20.0).directives]
    kinds = {type(order).__name__ for order in orders}
    assert kinds == {"PlanOrder", "DropOrder", "BufferingOrder", "OrderingOrder"}
    (dropped,) = [order for order in orders if isinstance(order, DropOrder)]
    assert dropped.nodes == {"n1": "a"}


def test_a_node_that_is_heard_of_again_has_kept_its_executor_and_all_that_runs_there() -> None:
    desk = running()
    desk.reading = replace(desk.reading, nodes_gone=frozenset({"n1", "n2"}))
    settle(desk)
    desk.reading = replace(desk.reading, nodes_gone=frozenset())
    settle(desk)
    state = desk.case.state
    assert state is not None
    assert (with_status(state, NodeStatus.LOST), inactive(state)) == ((), ())
    desk.dry = False
    assert [decision.directives for decision in settle(desk)] == [(), (), ()]


def test_a_driver_that_is_started_again_is_placed_as_ever() -> None:
    desk = running()
    start_again(desk)
    desk.report()
    told = [desk.decide()]
    assert desk.case.resumption is Resumption.PLACING
    told += settle(desk)
    assert any(isinstance(item.order, PlanOrder) for made in told for item in made.directives)
    assert len(desk.placement) == 5
    assert desk.case.resumption is Resumption.PLACED


def test_what_is_lost_before_all_is_placed_counts_with_the_start() -> None:
    desk = running()
    start_again(desk)
    desk.report()
    desk.decide(obey=False)
    del desk.nodes["n1"]
    settle(desk, rounds=4)
    assert len(desk.placement) == 5


def test_what_is_lost_after_all_was_placed_again_is_not_carried_out() -> None:
    desk = running()
    start_again(desk)
    settle(desk, rounds=4)
    assert desk.case.resumption is Resumption.PLACED
    desk.reading = replace(desk.reading, nodes_gone=frozenset({"n1"}))
    assert [decision.directives for decision in settle(desk)] == [(), (), ()]
    assert desk.case.resumption is Resumption.OVER
