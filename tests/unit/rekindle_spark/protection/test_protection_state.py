"""What runs and what waits, from a loss to the end of its incident, with the core that plans."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import wait

import pytest

from rekindle import protocol
from rekindle.coordination import directive_acceptance
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.model.settings import Policy
from rekindle_spark.control.coordinator_client import CoordinatorClient
from rekindle_spark.protection import protection_state
from rekindle_spark.protection.protection_state import ProtectionReports
from rekindle_spark.protection.query_layout import lay_out

NODES = ("n1", "n2", "n3", "n4")
# of four nodes with 100 % each, of which plans use 80 %
LOADS = {"orders": 55.0, "fraud": 55.0, "report": 55.0, "archive": 55.0}
LAYOUT = lay_out(LOADS, {"orders": 9, "fraud": 5}, {"report": ["orders"]}, len(NODES))
ALL = frozenset(LOADS)
# After so many without an order there is none to come.
QUIET_LOOKS = 3


def seen(names: Iterable[str], start: str = "a") -> dict[str, protocol.NodeSeen]:
    return {
        name: protocol.NodeSeen(incarnation=f"{start}.1", capacity_percent=100.0) for name in names
    }


class Driver:
    """A driver that plans alone, and whose queries catch up as soon as they run."""

    def __init__(self, loads: Mapping[str, float] = LOADS) -> None:
        self.state = protection_state.initial(LAYOUT)
        self.reports = ProtectionReports(1, self.state, dict.fromkeys(LOADS, 40.0), 0.8)
        if loads:
            self.reports.measure(loads)
        self.ended: Mapping[str, str] = {}
        self.guidance = CoordinatorClient(
            topology=protocol.TopologyReport(
                generation=1,
                sequence=0,
                program="p",
                topology=LAYOUT.topology,
                policy=Policy(catch_up_cost_ratio=0.0),
                nodes_expected=len(NODES),
            ),
            reports=self.reports,
            following=AcceptedDirectives(1),
        )

    def look(self, nodes: Mapping[str, protocol.NodeSeen]) -> frozenset[str]:
        """What runs once nothing more is ordered."""
        before = self.state.losses
        self.state = protection_state.observed(self.state, nodes, self.ended)
        if self.state.losses > before:
            self.guidance.disown_plans()
        quiet = 0
        while quiet < QUIET_LOOKS:
            self.reports.state, self.reports.ended = self.state, self.ended
            self.reports.caught_up = self.state.wanted - self.ended.keys()
            self.reports.cost()
            if not self.state.waits:
                self.reports.checkpointed()
            directives = self.guidance.confer(self.state.is_paused).directives
            for directive in directives:
                self.state = protection_state.obeyed(self.state, directive.order)
            if self.guidance.planning is not None:
                wait([self.guidance.planning])
                continue
            quiet = 0 if directives else quiet + 1
        return self.state.runnable


class Coordinator:
    """A coordinator that leads and orders nothing; `sent` are the costs that it was sent."""

    waiting, fenced, unreadable, led = False, None, frozenset[int](), True
    refusals: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.sent: list[protocol.StatisticsReport] = []

    @property
    def contact_at(self) -> float:
        return time.monotonic()

    def report(self, report: protocol.Report) -> None:
        if isinstance(report, protocol.StatisticsReport):
            self.sent.append(report)

    def directives(self) -> list[protocol.Directive]:
        return []

    def looked_at(self, sequence: int) -> None:
        """Nothing was sent."""

    def acknowledge(self, acknowledgement: object) -> None:
        """Nothing was sent."""


def test_a_report_says_how_long_nodes_are_silent_where_that_is_known() -> None:
    driver = Driver()
    driver.look(seen(["n1", "n2"]))
    driver.reports.silences = {"n1": 17.5}
    nodes = driver.reports.progress(AcceptedDirectives(1), alone=False).nodes
    assert {name: node.silent_seconds for name, node in nodes.items()} == {"n1": 17.5, "n2": None}


def test_before_a_loss_everything_runs_and_nothing_is_ordered() -> None:
    driver = Driver()
    assert driver.look(seen(NODES[:2])) == ALL
    assert driver.look(seen(NODES)) == ALL
    assert driver.state.losses == 0
    assert driver.guidance.following.plan_epoch == 0


def test_after_a_loss_the_most_important_go_on_and_the_others_come_back_with_their_nodes() -> None:
    driver = Driver()
    driver.look(seen(NODES))
    assert driver.look(seen(["n1"])) == {"orders"}
    back = seen(["n1"]) | seen(["n2"], "b")
    assert driver.look(back) == {"orders", "fraud"}
    back |= seen(["n3", "n4"], "b")
    assert driver.look(back) == ALL
    assert driver.guidance.case.incident is None


def test_a_loss_after_which_everything_still_fits_stops_nothing() -> None:
    driver = Driver()
    driver.look(seen(NODES))
    assert driver.look(seen(NODES[:3])) == ALL


def test_a_node_whose_executor_was_replaced_between_two_looks_was_lost() -> None:
    state = protection_state.observed(protection_state.initial(LAYOUT), seen(NODES))
    assert state.placement.keys() == {part for parts in LAYOUT.parts.values() for part in parts}
    state = protection_state.observed(state, {**seen(NODES), **seen(["n2"], "b")})
    assert (state.waits, state.placement) == (True, {})
    assert state.runnable == ALL, "what runs goes on until a plan has chosen"


def test_an_important_query_that_takes_more_than_is_left_runs_alone() -> None:
    driver = Driver({**LOADS, "orders": 150.0})
    driver.look(seen(NODES))
    assert driver.look(seen(["n1"])) == {"orders"}
    assert driver.look(seen(["n1"]) | seen(["n2"], "b")) == {"orders"}
    back = seen(["n1"]) | seen(["n2", "n3", "n4"], "b")
    assert driver.look(back) == ALL, "what ran before has to come back, also where it is tight"


def test_all_come_back_with_their_nodes_also_where_they_take_more_than_plans_use() -> None:
    driver = Driver(dict.fromkeys(LOADS, 190.0))
    driver.look(seen(NODES))
    assert driver.look(seen(["n1"])) == {"orders"}
    assert driver.look(seen(["n1"]) | seen(["n2", "n3", "n4"], "b")) == ALL


def test_an_important_query_that_depends_on_another_runs_with_it() -> None:
    layout = lay_out(LOADS, {"report": 10}, {"report": ["orders"]}, len(NODES))
    state = protection_state.observed(protection_state.initial(layout), seen(NODES))
    reports = ProtectionReports(1, protection_state.observed(state, seen(["n1"])), LOADS, 0.8)
    reports.measure(LOADS)
    reports.cost()
    assert reports.statistics is not None
    costs = reports.statistics.costs
    assert sum(costs[part] for part in layout.needs["report"]) < 80.0


def test_a_loss_before_anything_was_measured_is_planned_with_equal_shares() -> None:
    driver = Driver({})
    driver.look(seen(NODES))
    chosen = driver.look(seen(["n1"]))
    assert "orders" in chosen
    assert len(chosen) < len(ALL)


def test_a_query_that_has_ended_by_itself_is_in_no_plan() -> None:
    driver = Driver()
    driver.ended = {"orders": "it has failed: no such column"}
    driver.look(seen(NODES))
    assert driver.look(seen(["n1"])) == {"fraud"}
    back = seen(["n1"]) | seen(["n2", "n3", "n4"], "b")
    assert driver.look(back) == ALL
    assert driver.guidance.case.incident is None, "who waits for it would wait permanently"


def test_a_plan_that_was_made_before_a_loss_is_refused() -> None:
    driver = Driver()
    driver.look(seen(NODES))
    driver.look(seen(["n1"]))
    epoch = driver.guidance.following.plan_epoch
    stale = protocol.Directive(
        sequence=1,
        after=0,
        generation=1,
        plan_epoch=epoch + 1,
        reason="node-back",
        text="Plan for fraud alone, when orders still ran.",
        order=protocol.PlanOrder(query_partitions=("fraud/0",), placement={}, builds_on=epoch),
    )
    driver.guidance.disown_plans()
    _, why = directive_acceptance.take(driver.guidance.following, stale)
    assert "behind" in why or "builds on" in why


def test_a_coordinator_learns_with_a_loss_how_much_is_left_for_each_query() -> None:
    driver, contact = Driver({**LOADS, "orders": 90.0}), Coordinator()
    driver.guidance.contact = contact
    driver.look(seen(NODES))
    driver.look(seen(["n1"]))
    newest = contact.sent[-1].costs
    assert sum(newest[part] for part in LAYOUT.parts["orders"]) < 80.0


def test_a_query_that_somebody_has_started_again_is_protected_again() -> None:
    state = protection_state.observed(protection_state.initial(LAYOUT), seen(NODES), ["fraud"])
    lost = protection_state.observed(state, seen(["n1"]), ["fraud"])
    assert not protection_state.observed(lost, seen(["n1"])).ended
    parts = [part for name in ("orders", "report", "archive") for part in LAYOUT.parts[name]]
    order = protocol.PlanOrder(
        query_partitions=(), placement=dict.fromkeys(parts, "n1"), builds_on=1
    )
    calm = protection_state.obeyed(lost, order)
    assert (calm.waits, "fraud" in calm.wanted) == (False, False)
    again = protection_state.observed(calm, seen(["n1"]))
    assert again.wanted == ALL
    assert LAYOUT.complete(again.placement) == ALL


def test_a_part_that_a_plan_puts_on_a_node_which_is_gone_by_then_is_missed() -> None:
    state = protection_state.observed(protection_state.initial(LAYOUT), seen(NODES))
    state = protection_state.observed(state, seen(["n1"]))
    parts = LAYOUT.parts["fraud"]
    order = protocol.PlanOrder(
        query_partitions=("fraud/0",),
        placement=dict.fromkeys(parts, "n1") | {parts[0]: "n2"},
        builds_on=0,
    )
    assert protection_state.obeyed(state, order).runnable == frozenset()


def test_a_pause_stops_all_and_a_resumption_goes_on_where_it_was() -> None:
    state = protection_state.observed(protection_state.initial(LAYOUT), seen(NODES))
    paused = protection_state.obeyed(state, protocol.PauseOrder())
    assert paused.runnable == frozenset()
    assert protection_state.obeyed(paused, protocol.ResumeOrder()) == state


def test_reports_name_what_ran_by_itself_to_its_end_and_what_is_behind() -> None:
    driver = Driver()
    driver.ended = {"archive": "somebody has stopped it"}
    driver.look(seen(NODES))
    driver.reports.caught_up = frozenset({"fraud"})
    report = driver.reports.progress(driver.guidance.following, alone=True)
    assert report.stopped == {"archive/0": "somebody has stopped it"}
    assert report.live == tuple(sorted(LAYOUT.parts["fraud"] + LAYOUT.parts["archive"]))
    assert report.moving is None, "parts of a query cannot move: its tasks run anywhere"


@pytest.mark.parametrize("lost", [1, 2, 3], ids=["one", "two", "three"])
def test_what_is_chosen_fits_on_what_is_left(lost: int) -> None:
    driver = Driver()
    driver.look(seen(NODES))
    chosen = driver.look(seen(NODES[lost:]))
    assert chosen
    assert sum(LOADS[name] for name in chosen) <= 80.0 * (len(NODES) - lost)
