"""A coordinator and a driver that does what it is told, for tests of decisions."""

from dataclasses import replace
from typing import Any

from rekindle import protocol
from rekindle.coordination import session
from rekindle.coordination.session import ApplicationReading, Case, Decision
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator

TOPOLOGY = Topology(
    operators=(
        TopologyOperator("source", 2),
        TopologyOperator("counts", 2),
        TopologyOperator("tops", 1),
    ),
    edges=(("source", "counts"), ("counts", "tops")),
    queries=(Query("busiest", "counts", 4), Query("ranking", "tops", 9)),
)
COSTS = {"source/0": 20.0, "source/1": 20.0, "counts/0": 30.0, "counts/1": 30.0, "tops/0": 40.0}
NODES = ("n1", "n2", "n3", "n4")


class Desk:
    """A coordinator and a driver that does at once what it is told."""

    def __init__(self, **policy: Any) -> None:
        self.now = 1000.0
        self.case = Case()
        self.sequence = 0
        self.reading = ApplicationReading(
            topology=protocol.TopologyReport(
                generation=1,
                sequence=0,
                program="p",
                topology=TOPOLOGY,
                policy=Policy(**policy),
                nodes_expected=len(NODES),
            ),
            statistics=protocol.StatisticsReport(generation=1, sequence=0, costs=COSTS),
            heartbeat=protocol.Heartbeat(generation=1, since=0.0),
        )
        self.nodes = {
            node: protocol.NodeSeen(incarnation="a", capacity_percent=100.0) for node in NODES
        }
        self.placement: dict[str, str] = {}
        self.modes = {"buffering": "on", "ordering": "on"}
        self.lag_goals: dict[str, float] | None = {}
        self.plan_epoch = 0
        self.directive = 0
        self.paused = False

    def report(self, **fields: Any) -> None:
        """The driver reports how things are."""
        self.sequence += 1
        lost = [name for name, node in self.placement.items() if node not in self.nodes]
        for name in lost:
            del self.placement[name]
        common = {
            "generation": self.reading.topology.generation,
            "sequence": self.sequence,
            "nodes": self.nodes,
            "placement": dict(self.placement),
            "live": tuple(self.placement),
            "plan_epoch": self.plan_epoch,
            "directive": self.directive,
            "paused": self.paused,
            "lag_goals": self.lag_goals,
            **self.modes,
        }
        progress = protocol.ProgressReport(**{**common, **fields})
        self.reading = replace(self.reading, progress=progress)

    def decide(self, obey: bool = True, after_seconds: float = 1.0) -> Decision:
        self.now += after_seconds
        decision = session.decide(self.case, self.reading, self.now, clock=float)
        self.case = decision.case
        if obey:
            self.obey(decision)
        return decision

    def obey(self, decision: Decision) -> None:
        """The driver does what it is told."""
        for directive in decision.directives:
            self.directive = directive.sequence
            match directive.order:
                case protocol.PlanOrder(placement=placement):
                    self.placement |= placement
                    self.plan_epoch = directive.plan_epoch
                case protocol.MoveOrder(placement=placement):
                    self.placement |= placement
                case protocol.BufferingOrder(mode=mode):
                    self.modes["buffering"] = mode
                case protocol.OrderingOrder(mode=mode):
                    self.modes["ordering"] = mode
                case protocol.LagGoalsOrder(goals=goals):
                    self.lag_goals = goals
                case protocol.PauseOrder() | protocol.ResumeOrder() as order:
                    self.paused = isinstance(order, protocol.PauseOrder)

    def settle(self) -> None:
        """Report and decide until nothing more is ordered."""
        for _ in range(10):
            self.report()
            if not self.decide().directives:
                return
        raise AssertionError("the coordinator never comes to rest")

    def restart(self) -> Case:
        """The case as another coordinator finds it in the store."""
        return session.from_record(session.to_record(self.case), "case")


def running(**policy: Any) -> Desk:
    desk = Desk(**policy)
    desk.settle()
    assert set(desk.placement) == set(COSTS)
    return desk


def orders(decision: Decision, kind: type) -> list[Any]:
    return [item.order for item in decision.directives if isinstance(item.order, kind)]
