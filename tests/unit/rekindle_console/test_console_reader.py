"""What the consoles of coordinator and operator read: memory, plans in the store, Recoveries."""

import msgspec
from shell_world import Coordinator, World, settled

from rekindle import protocol
from rekindle.protocol import CheckpointReport, PlanOrder, store_paths
from rekindle_console.coordinator_reader import DIRECTIVES_MAX, CoordinatorReader
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.custom_resources import ResourceMetadata
from rekindle_operator.api.recovery_resource import ApplicationReference, Recovery, RecoverySpec
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.controller.operator_reader import OperatorReader
from rekindle_testing.operator_builders import longest_story

NAME = "test/a0"


def in_an_incident() -> tuple[World, Coordinator]:
    """Two of four nodes are lost, and the driver has taken the plan."""
    world = World(correlated_nodes_min=2)
    coordinator = settled(world)
    world.lose(world.member, 0, 1)
    for _ in range(6):
        go_on(world, coordinator)
    return world, coordinator


def go_on(world: World, coordinator: Coordinator) -> None:
    world.now += 5.0
    coordinator.settle()
    world.fleet.obey(world.member)
    world.fleet.report(world.member)
    coordinator.settle()


def checkpoint(world: World, coordinator: Coordinator) -> None:
    report = CheckpointReport(generation=1, sequence=9, epoch=50, at=world.now)
    path = world.member.place.path(store_paths.CHECKPOINT)
    world.fleet.connection.put(path, protocol.encode(report))
    go_on(world, coordinator)


def test_applications_come_from_memory_by_name() -> None:
    world = World(3)
    coordinator = settled(world)
    reader = CoordinatorReader(coordinator.shell)
    before = dict(world.shared.reads)
    found = reader.applications()
    assert [record.name for record in found] == ["test/a0", "test/a1", "test/a2"]
    assert all(record.reading is not None and not record.trouble for record in found)
    assert world.shared.reads == before
    assert reader.process().leads


def test_an_application_with_a_record_that_cannot_be_read_has_its_trouble() -> None:
    world = World()
    coordinator = settled(world)
    world.fleet.connection.put(world.member.place.path(store_paths.PROGRESS), b"no JSON")
    coordinator.settle()
    (record,) = CoordinatorReader(coordinator.shell).applications()
    assert "progress" in record.trouble
    assert record.reading is not None


def test_plans_come_from_the_store_the_newest_first_and_are_read_once() -> None:
    world, coordinator = in_an_incident()
    reader = CoordinatorReader(coordinator.shell)
    plans = reader.plans(NAME)
    epochs = [record.directive.plan_epoch for record in plans]
    assert epochs
    assert epochs == sorted(epochs, reverse=True)
    assert all(isinstance(record.directive.order, PlanOrder) for record in plans)
    directives = {path for path in world.shared.reads if "/directives/" in path}
    before = {path: world.shared.reads[path] for path in directives}
    assert reader.plans(NAME) == plans
    assert {path: world.shared.reads[path] for path in directives} == before


def test_while_the_store_is_away_the_plans_that_were_read_are_given() -> None:
    _, coordinator = in_an_incident()
    reader = CoordinatorReader(coordinator.shell)
    plans = reader.plans(NAME)
    coordinator.connection.reachable = False
    assert reader.plans(NAME) == plans
    assert not reader.process().store_reachable


def test_only_the_newest_plans_are_kept() -> None:
    world, coordinator = in_an_incident()
    reader = CoordinatorReader(coordinator.shell)
    (newest, *_) = reader.plans(NAME)
    for number in range(100, 300):
        made = msgspec.structs.replace(newest.directive, sequence=number, plan_epoch=number)
        path = world.member.place.path(store_paths.DIRECTIVES, store_paths.numbered(number))
        world.fleet.connection.put(path, protocol.encode(made))
    guard = world.member.place.path(store_paths.DIRECTIVES, store_paths.GUARD)
    world.fleet.connection.put(guard, b"")
    epochs = [record.directive.plan_epoch for record in reader.plans(NAME)]
    assert epochs == list(range(299, 299 - DIRECTIVES_MAX, -1))


def test_an_incident_is_open_and_then_over_with_its_plans_and_its_course() -> None:
    world, coordinator = in_an_incident()
    reader = CoordinatorReader(coordinator.shell)
    (seen,) = reader.incidents(NAME)
    assert (seen.number, seen.outcome, seen.kind) == (1, "open", "correlated")
    assert seen.lost == ("a0-node-0", "a0-node-1")
    assert seen.plans[0].text.startswith("Plan ")
    assert seen.points
    checkpoint(world, coordinator)
    (over,) = reader.incidents(NAME)
    assert over.outcome == "over"
    assert over.ended_at is not None
    assert over.plans == seen.plans


def test_an_incident_that_nobody_saw_is_known_by_its_plans() -> None:
    world, coordinator = in_an_incident()
    checkpoint(world, coordinator)
    later = settled(world)
    (found,) = CoordinatorReader(later.shell).incidents(NAME)
    assert (found.number, found.outcome, found.began_at, found.points) == (1, "over", None, ())
    assert found.plans


def recovery(number: int) -> Recovery:
    application = ApplicationReference(kind="Driver", name="a0")
    name = recovery_resource.recovery_name(application, number)
    return Recovery(
        metadata=ResourceMetadata(name, "test"),
        spec=RecoverySpec(application, number, "policy", "class"),
        status=longest_story(),
    )


def test_the_operator_tells_incidents_as_their_recoveries_do() -> None:
    world, coordinator = in_an_incident()
    known = ClusterView()
    ended = msgspec.structs.replace(recovery(7).status, phase="Recovered")
    known.see_recovery(recovery(1))
    known.see_recovery(msgspec.structs.replace(recovery(7), status=ended))
    reader = OperatorReader(CoordinatorReader(coordinator.shell, "operator"), known)
    newest, oldest = reader.incidents(NAME)
    assert (newest.number, newest.outcome, newest.points) == (7, "Recovered", ())
    assert (oldest.number, oldest.outcome) == (1, "open")
    assert oldest.points
    assert newest.source.startswith("Recovery test/a0-7-")
    assert newest.queries[0].name
    assert newest.plans[0].at is not None
    assert reader.process().kind == "operator"
    assert reader.applications() == reader.inner.applications()
    assert reader.plans(NAME) == reader.inner.plans(NAME)
    assert world.member.place == store_paths.place(NAME)


def test_without_recoveries_the_operator_tells_what_a_coordinator_does() -> None:
    _, coordinator = in_an_incident()
    inner = CoordinatorReader(coordinator.shell, "operator")
    assert OperatorReader(inner, ClusterView()).incidents(NAME) == inner.incidents(NAME)
