"""Which lost nodes are tended to, and how often."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_class import Fencing, NodeDeletion
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.recovery.recovery_inputs import Fenced, NodeObservation
from rekindle_operator.remediation.remediation_rules import NodeToRemedy
from rekindle_operator.remediation.remediation_runner import RemediationRunner

OURS, THEIRS = Place("shop", "flights"), Place("bank", "payments")
NODE = NodeToRemedy("n1", "u1", 2.0, driver=True)
LOST = NodeObservation(suspected_at=1.0, confirmed_at=2.0, uid="u1")


@dataclass(slots=True)
class Errands:
    """What would be done."""

    fenced: list[NodeToRemedy] = field(default_factory=list)
    approved: list[bool] = field(default_factory=list)
    deleted: list[NodeToRemedy] = field(default_factory=list)
    released: list[PodSeen] = field(default_factory=list)

    def fence(self, place: Place, node: NodeToRemedy, *_: object, approved: bool) -> None:
        assert place == OURS
        self.fenced.append(node)
        self.approved.append(approved)

    def delete(self, place: Place, node: NodeToRemedy) -> None:
        assert place == OURS
        self.deleted.append(node)

    def release(self, place: Place, driver: PodSeen) -> None:
        assert place == OURS
        self.released.append(driver)

    def taint(self, wanted: object, there: object) -> None:
        """Nothing is tainted here."""


@dataclass(slots=True)
class Scene:
    """One application that misses node n1, and may fence and delete."""

    drivers: dict[Place, PodSeen]
    errands: Errands = field(default_factory=Errands)
    sightings: dict[Place, dict[str, NodeObservation]] = field(default_factory=dict)
    resource: object = None

    def remedying(
        self, *, fencing_approvals: bool = False, approved: bool = False
    ) -> RemediationRunner:
        held = SimpleNamespace(
            paused=False,
            dry_run=False,
            fencing=Fencing(mode="OutOfServiceTaint", certainty=("ShutdownTaint",)),
            node_deletion=NodeDeletion(enabled=True, after_seconds=0, nodes_per_incident_max=1),
        )
        applications = {
            place: SimpleNamespace(place=place, driver=driver, resource=self.resource)
            for place, driver in self.drivers.items()
        }
        known: Any = SimpleNamespace(
            applications=applications.values,
            application=applications.get,
            held=lambda _: held,
            has_fencing_approval=lambda _: approved,
            changed=set(),
            registry=SimpleNamespace(nodes={}),
            policies={},
            classes={},
        )
        judge: Any = SimpleNamespace(
            state=SimpleNamespace(suspects={"n1": 1.0}, told=set(), held_at=None),
            sightings=self.sightings,
            looks_lost=lambda: frozenset({"n1"}),
        )
        tender: Any = self.errands
        return RemediationRunner(known, judge, tender, fencing_approvals)


def driver(node: str = "n1") -> PodSeen:
    return PodSeen(namespace="any", name="driver", uid="d", role="driver", node=node)


def tend(remedying: RemediationRunner) -> None:
    remedying._at = 0.0
    remedying.tend(())


@pytest.fixture
def lost() -> dict[Place, dict[str, NodeObservation]]:
    return {OURS: {"n1": LOST}}


def test_a_node_that_was_fenced_and_is_lost_again_is_fenced_again(
    lost: dict[Place, dict[str, NodeObservation]],
) -> None:
    scene = Scene({OURS: driver()}, sightings=lost)
    remedying = scene.remedying()
    tend(remedying)
    remedying.note_fenced(OURS, NODE, Fenced(3.0, "ShutdownTaint"))
    tend(remedying)
    assert len(scene.errands.fenced) == 1
    lost[OURS]["n1"] = replace(LOST, heard_at=4.0)
    tend(remedying)
    lost[OURS]["n1"] = replace(LOST, suspected_at=5.0, confirmed_at=6.0, heard_at=4.0)
    tend(remedying)
    assert [node.uid for node in scene.errands.fenced] == ["u1", "u1"]
    assert scene.errands.deleted == []


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("approved", [True, False])
def test_fencing_is_approved_only_where_the_api_server_sees_to_who_does(
    guarded: bool, approved: bool, lost: dict[Place, dict[str, NodeObservation]]
) -> None:
    scene = Scene({OURS: driver()}, sightings=lost)
    tend(scene.remedying(fencing_approvals=guarded, approved=approved))
    assert scene.errands.approved == [guarded and approved]


def test_a_node_with_the_driver_of_somebody_else_is_left_to_them(
    lost: dict[Place, dict[str, NodeObservation]],
) -> None:
    scene = Scene({OURS: driver("n2"), THEIRS: driver()}, sightings=lost)
    tend(scene.remedying())
    assert scene.errands == Errands()


def test_a_node_that_somebody_else_has_deleted_is_let_be_and_not_counted(
    lost: dict[Place, dict[str, NodeObservation]],
) -> None:
    lost[OURS]["n2"] = replace(LOST, uid="u2", confirmed_at=9.0)
    scene = Scene({}, sightings=lost)
    remedying = scene.remedying()
    tend(remedying)
    assert [node.name for node in scene.errands.deleted] == ["n1"]
    remedying.note_gone(OURS, "u1", False)
    tend(remedying)
    assert [node.name for node in scene.errands.deleted] == ["n1", "n2"]
    remedying.note_gone(OURS, "u2", True)
    tend(remedying)
    assert len(scene.errands.deleted) == 2


def test_a_driver_that_was_fenced_before_its_incident_began_was_fenced(
    lost: dict[Place, dict[str, NodeObservation]],
) -> None:
    lost[OURS]["n1"] = replace(LOST, driver=True)
    remedying = Scene({}, sightings=lost).remedying()
    assert remedying.fencing(OURS) is None
    done = Fenced(3.0, "ShutdownTaint")
    remedying.note_fenced(OURS, NODE, done)
    assert remedying.fencing(OURS) == done
    lost[OURS]["n2"] = replace(LOST, uid="u2", driver=True, suspected_at=5.0, confirmed_at=6.0)
    assert remedying.fencing(OURS) is None  # that was the driver before


def test_a_driver_goes_with_its_fenced_node_where_somebody_submits_the_next_one() -> None:
    how = Fenced(3.0, "ShutdownTaint")
    plain = Scene({OURS: driver()})
    plain.remedying().note_fenced(OURS, NODE, how)
    elsewhere = Scene({OURS: driver("n2")}, resource="a SparkApplication")
    elsewhere.remedying().note_fenced(OURS, NODE, how)
    assert plain.errands.released == elsewhere.errands.released == []
    there = Scene({OURS: driver()}, resource="a SparkApplication")
    there.remedying().note_fenced(OURS, NODE, how)
    assert there.errands.released == [driver()]
