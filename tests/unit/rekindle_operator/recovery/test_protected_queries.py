"""What status, explain and the Recovery say of protected queries, from a loss to its end.

The operator's decisions are the core's own, and so is what the driver reports and obeys; only Spark
is left out.
"""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from story_world import NODES, World

from rekindle.coordination import (
    ApplicationReading,
    application_status,
    directive_acceptance,
    query_explanation,
)
from rekindle.coordination.application_status import ApplicationStatus, ApplicationView, Phase
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.protocol import Orders, PlanOrder, PriorityOverride
from rekindle_spark.protection import protection_state
from rekindle_spark.protection.protection_state import ProtectionReports
from rekindle_spark.protection.query_layout import lay_out

# of four nodes with 100 % each, of which plans use 80 %
LOADS = {"orders": 55.0, "fraud": 55.0, "report": 55.0, "archive": 55.0}
LAYOUT = lay_out(LOADS, {"orders": 9, "fraud": 5}, {"report": ["orders"]}, len(NODES))
ALL = set(LOADS)
LOST = ("n2", "n3", "n4")


class ProtectedWorld(World):
    """One application whose queries are protected. `slow` are those that have a backlog."""

    following: AcceptedDirectives
    reading: ApplicationReading

    def start_driver(self, *, resumed: bool = True) -> None:
        self.state = protection_state.initial(LAYOUT)
        self.slow: set[str] = set()
        super().start_driver(resumed=resumed)
        self.reports = ProtectionReports(self.generation, self.state, LOADS, 0.8)
        self.reports.measure(LOADS)
        topology = msgspec.structs.replace(self.reading.topology, topology=LAYOUT.topology)
        self.reading = replace(self.reading, topology=topology, statistics=None)

    def lose(self, *nodes: str) -> None:
        self.up -= set(nodes)
        for node in nodes:
            del self.nodes[node]

    def report(self, **fields: Any) -> None:
        losses, reports = self.state.losses, self.reports
        self.state = protection_state.observed(self.state, dict(self.nodes), reports.ended)
        if self.state.losses > losses:
            disowned = self.following.plan_epoch + 1
            self.following = directive_acceptance.planned(self.following, disowned)
        reports.state, reports.caught_up = self.state, self.state.wanted - self.slow
        reports.lags = dict.fromkeys(LOADS, 1.0)
        reports.cost()
        progress = reports.progress(self.following, alone=False)
        progress = msgspec.structs.replace(progress, at=self.now, **fields)
        self.reading = replace(self.reading, progress=progress, statistics=reports.statistics)
        if not (self.state.waits or self.slow):
            reports.checkpointed()
            assert reports.checkpoint is not None
            checkpoint = msgspec.structs.replace(reports.checkpoint, at=self.now)
            self.reading = replace(self.reading, checkpoint=checkpoint)

    def _place(self, order: PlanOrder) -> None:
        self.state = protection_state.obeyed(self.state, order)

    @property
    def view(self) -> ApplicationView:
        newest = self.plans[-1] if self.plans else None
        return ApplicationView("flights/shop", self.case, self.reading, newest)

    def standing(self) -> ApplicationStatus:
        return application_status.of(self.view, self.now, clock=float)

    def phases(self) -> dict[str, Phase]:
        return {query.name: query.phase for query in self.standing().queries}

    def explained(self, query: str) -> str:
        return " ".join(
            query_explanation.explain(self.view, query, self.now, clock=float).sentences
        )

    def rows(self) -> dict[str, tuple[bool, bool, bool]]:
        """Of the Recovery's queries: whether each was lost, is planned, and is back."""
        return {
            row.name: (row.lost_at is not None, row.planned_at is not None, row.back_at is not None)
            for row in self.status().queries
        }


@pytest.fixture
def world() -> ProtectedWorld:
    """It runs, and all has caught up."""
    made = ProtectedWorld(catch_up_cost_ratio=0.0)
    made.settle()
    assert made.state.wanted == ALL
    assert not made.objects
    return made


def test_after_a_loss_all_tell_who_runs_who_catches_up_and_who_waits(world: ProtectedWorld) -> None:
    world.slow = {"orders"}
    world.lose(*LOST)
    world.settle()
    assert world.phases() == {
        "orders": Phase.CATCHING_UP,
        "fraud": Phase.WAITING,
        "report": Phase.WAITING,
        "archive": Phase.WAITING,
    }
    found = {query.name: query.priority for query in world.standing().queries}
    assert found == {"orders": 9, "fraud": 5, "report": 1, "archive": 1}
    assert world.standing().incident is not None
    assert world.rows() == {
        "orders": (True, True, False),
        "fraud": (True, False, False),
        "report": (True, False, False),
        "archive": (True, False, False),
    }
    assert {row.name: row.priority for row in world.status().queries} == found
    assert world.status().phase == "Recovering"
    assert {row.name for row in world.status().lost_nodes} == set(LOST)


def test_explain_says_what_a_query_waits_for_and_what_would_bring_it(
    world: ProtectedWorld,
) -> None:
    world.lose(*LOST)
    world.settle()
    said = world.explained("fraud")
    assert said.startswith("fraud waits, with 17 partitions not running that it needs:")
    assert "They cost 55 % CPU" in said
    assert "Lost: n2, n3, n4." in said
    assert "With 1 more node of 100 % CPU fraud would be in the next plan." in said
    assert "More important and waiting too: fraud." in world.explained("archive")
    assert world.explained("orders").startswith("orders is live: nothing is missing.")
    assert "Requested: 3 nodes." in world.explained("orders")


def test_those_that_come_back_are_told_in_the_order_of_their_priorities(
    world: ProtectedWorld,
) -> None:
    world.lose(*LOST)
    world.settle()
    assert {name for name, phase in world.phases().items() if phase is Phase.LIVE} == {"orders"}
    world.restore("n2")
    world.settle()
    assert {name for name, phase in world.phases().items() if phase is Phase.LIVE} == {
        "orders",
        "fraud",
    }
    assert world.rows()["fraud"] == (True, True, True)
    assert world.rows()["archive"] == (True, False, False)
    world.restore("n3", "n4")
    world.settle(6)
    assert set(world.phases().values()) == {Phase.LIVE}
    assert world.standing().incident is None
    assert set(world.rows().values()) == {(True, True, True)}
    status = world.status()
    assert status.phase == "Recovered"
    backs = {row.name: row.back_at for row in status.queries if row.back_at is not None}
    assert backs["orders"] < backs["fraud"] < backs["report"] == backs["archive"]


def test_a_priority_that_people_set_in_an_incident_decides_who_comes_back_next(
    world: ProtectedWorld,
) -> None:
    world.lose(*LOST)
    world.settle()
    orders = Orders(priorities={"archive": PriorityOverride(priority=8.0)})
    world.reading = replace(world.reading, orders=orders)
    world.restore("n2")
    world.settle()
    assert world.phases()["archive"] is Phase.LIVE
    assert world.phases()["fraud"] is Phase.WAITING
    (archive,) = (query for query in world.standing().queries if query.name == "archive")
    assert (archive.priority, archive.own_priority) == (8.0, 1.0)
    assert "More important and waiting too" not in world.explained("fraud")


def test_a_query_that_has_ended_by_itself_is_told_as_stopped_with_why(
    world: ProtectedWorld,
) -> None:
    why = "it has failed: no such column"
    world.reports.ended = {"fraud": why}
    world.step()
    assert world.phases()["fraud"] is Phase.STOPPED
    assert why in world.explained("fraud")
