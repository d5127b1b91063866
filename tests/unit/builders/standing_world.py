"""An application in a coordinator's hands, for tests of what is said about it."""

from dataclasses import replace
from typing import Any

import msgspec

from rekindle import protocol
from rekindle.coordination import application_status, query_explanation, session
from rekindle.coordination.application_status import ApplicationStatus, ApplicationView, Phase
from rekindle.coordination.session import ApplicationReading, Case
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator

TOPOLOGY = Topology(
    operators=(
        TopologyOperator("source", 1),
        TopologyOperator("counts", 2),
        TopologyOperator("tops", 1),
    ),
    edges=(("source", "counts"), ("source", "tops")),
    queries=(Query("busiest", "counts", 4), Query("ranking", "tops", 9)),
)
COSTS = {"source/0": 10.0, "counts/0": 60.0, "counts/1": 60.0, "tops/0": 60.0}
NODES = ("n1", "n2", "n3", "n4")


class Desk:
    """A coordinator whose case the view holds, and a driver that does what it is told."""

    def __init__(self, **policy: Any) -> None:
        self.now = 1_000.0
        self.case = Case()
        self.sequence = self.plan_epoch = self.directive = 0
        self.nodes = {
            node: protocol.NodeSeen(incarnation="a", capacity_percent=100.0) for node in NODES
        }
        self.placement: dict[str, str] = {}
        self.resident: dict[str, str] = {}
        self.live: tuple[str, ...] = ()
        self.paused = False
        self.plan: protocol.Directive | None = None
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
            heartbeat=protocol.Heartbeat(generation=1, since=990.0),
        )

    def report(self, **fields: Any) -> None:
        self.sequence += 1
        common = {
            "generation": 1,
            "sequence": self.sequence,
            "nodes": self.nodes,
            "placement": dict(self.placement),
            "live": self.live,
            "resident": dict(self.resident),
            "plan_epoch": self.plan_epoch,
            "directive": self.directive,
            "paused": self.paused,
            "lags": {"busiest": 1.5, "ranking": 2.5},
        }
        progress = protocol.ProgressReport(**{**common, **fields})
        self.reading = replace(self.reading, progress=progress)

    def decide(self, obey: bool = True) -> None:
        self.now += 1
        decision = session.decide(self.case, self.reading, self.now, clock=float)
        self.case = decision.case
        for directive in decision.directives:
            if isinstance(directive.order, protocol.PlanOrder):
                self.plan = directive
            if not obey:
                continue
            self.directive = directive.sequence
            match directive.order:
                case protocol.PlanOrder(placement=placement):
                    self.placement |= placement
                    self.plan_epoch = directive.plan_epoch
                case protocol.PauseOrder() | protocol.ResumeOrder() as order:
                    self.paused = isinstance(order, protocol.PauseOrder)

    def settle(self) -> None:
        for _ in range(5):
            self.report()
            self.decide()

    def all_live(self) -> None:
        """What is placed has caught up."""
        self.live = tuple(self.placement)
        self.settle()

    def checkpoint(self, epoch: int) -> None:
        report = protocol.CheckpointReport(generation=1, sequence=epoch, epoch=epoch, at=self.now)
        self.reading = replace(self.reading, checkpoint=report)
        self.decide()

    def lose(self, *nodes: str) -> None:
        """Nodes go, with what ran there and what needs that."""
        for node in nodes:
            del self.nodes[node]
        running = {name: node for name, node in self.placement.items() if node not in nodes}
        if "source/0" not in running:
            self.resident, running = running, {}
        self.placement, self.live = running, tuple(running)

    def view(self, **fields: Any) -> ApplicationView:
        """As another process finds it in the store."""
        case = session.from_record(session.to_record(self.case), "case")
        common = {"application": "a/b", "case": case, "reading": self.reading, "plan": self.plan}
        return ApplicationView(**{**common, **fields})

    def stands(self, **fields: Any) -> ApplicationStatus:
        return application_status.of(self.view(**fields), self.now, clock=float)

    def explain(self, query: str) -> query_explanation.Explanation:
        return query_explanation.explain(self.view(), query, self.now, clock=float)


def resumed() -> Desk:
    """A driver that has found earlier work in the store, before any node has come."""
    desk = Desk()
    assert desk.reading.topology is not None
    topology = msgspec.structs.replace(desk.reading.topology, resumed=True)
    desk.reading = replace(desk.reading, topology=topology)
    desk.nodes.clear()
    desk.settle()
    return desk


def running(**policy: Any) -> Desk:
    desk = Desk(**policy)
    desk.settle()
    desk.all_live()
    assert set(desk.live) == set(COSTS)
    return desk


def short_of_capacity() -> Desk:
    """One of four nodes is left: the important query is back, the other one is not."""
    desk = running()
    desk.lose(*[node for node in NODES if node != desk.placement["source/0"]])
    desk.settle()
    desk.all_live()
    return desk


def phases(found: ApplicationStatus) -> dict[str, Phase]:
    return {query.name: query.phase for query in found.queries}
