"""What a coordinator remembers of incidents, while they are open and when they are over."""

from dataclasses import replace

from shell_world import World, settled
from standing_world import running, short_of_capacity

from rekindle import protocol
from rekindle.coordination import incident_history
from rekindle.coordination.incident_history import IncidentHistory
from rekindle.coordination.session import Case, Driver
from rekindle.model.incidents import Incident
from rekindle.protocol import CheckpointReport, store_paths
from rekindle.protocol.store_paths import Place

PLACE = Place("a", "b")


def numbered(case: Case, number: int, **fields: object) -> Case:
    """The case in the incident of that number."""
    assert case.kept is not None
    incident = case.kept.incident
    assert isinstance(incident, Incident)
    kept = replace(case.kept, incident=replace(incident, number=number), **fields)
    return replace(case, kept=kept)


def ended(case: Case) -> Case:
    assert case.kept is not None
    return replace(case, kept=replace(case.kept, incident=None))


def test_an_application_at_rest_has_no_history() -> None:
    history = IncidentHistory()
    history.note(PLACE, running().case, 1.0)
    history.note(PLACE, Case(), 2.0)
    assert history.of(PLACE) == ()


def test_an_open_incident_is_observed_whenever_nodes_partitions_or_plans_change() -> None:
    history, case = IncidentHistory(), short_of_capacity().case
    history.note(PLACE, case, 1.0)
    history.note(PLACE, case, 2.0)
    history.note(PLACE, numbered(case, 1, plan_epoch=9), 3.0)
    (seen,) = history.of(PLACE)
    assert [item.at for item in seen.points] == [1.0, 3.0]
    assert (seen.points[0].nodes_up, seen.points[0].placed) == (1, 2)
    assert seen.ended_at is None


def test_an_incident_ends_when_the_case_has_none_or_another_one() -> None:
    history, case = IncidentHistory(), short_of_capacity().case
    history.note(PLACE, case, 1.0)
    history.note(PLACE, numbered(case, 2), 5.0)
    history.note(PLACE, ended(case), 9.0)
    found = history.of(PLACE)
    assert [(item.incident.number, item.ended_at) for item in found] == [(2, 9.0), (1, 5.0)]


def test_a_run_that_has_ended_has_no_open_incident() -> None:
    history, case = IncidentHistory(), short_of_capacity().case
    history.note(PLACE, case, 1.0)
    history.note(PLACE, replace(case, driver=Driver.FINISHED), 2.0)
    (seen,) = history.of(PLACE)
    assert seen.ended_at == 2.0


def test_observations_and_ended_incidents_are_bounded() -> None:
    history, case = IncidentHistory(), short_of_capacity().case
    for step in range(1_000):
        history.note(PLACE, numbered(case, 1, plan_epoch=step), float(step))
    (seen,) = history.of(PLACE)
    assert len(seen.points) <= incident_history.POINTS_MAX
    assert (seen.points[0].at, seen.points[-1].at) == (0.0, 999.0)
    for number in range(2, 100):
        history.note(PLACE, numbered(case, number), 1_000.0 + number)
    numbers = [item.incident.number for item in history.of(PLACE)]
    assert numbers == list(range(99, 99 - 1 - incident_history.ENDED_OF_APPLICATION_MAX, -1))
    others = [Place("a", f"c{index}") for index in range(incident_history.ENDED_MAX)]
    for place in others:
        history.note(place, case, 2_000.0)
        history.note(place, ended(case), 2_001.0)
    assert [item.incident.number for item in history.of(PLACE)] == [99]
    assert all(len(history.of(place)) == 1 for place in others)


def test_an_application_that_is_gone_is_forgotten() -> None:
    history, case = IncidentHistory(), short_of_capacity().case
    history.note(PLACE, case, 1.0)
    history.note(PLACE, ended(case), 2.0)
    history.note(PLACE, case, 3.0)
    history.forget(PLACE)
    assert history.of(PLACE) == ()


def test_a_coordinator_and_one_that_follows_it_remember_the_same_incident() -> None:
    world = World(correlated_nodes_min=2)
    leader, follower = settled(world), settled(world)
    member = world.member
    world.lose(member, 0, 1)
    for _ in range(6):
        world.now += 5.0
        leader.settle()
        follower.settle()
        world.fleet.obey(member)
        world.fleet.report(member)
    (seen,) = leader.shell.history.of(member.place)
    (copy,) = follower.shell.history.of(member.place)
    assert seen.incident == copy.incident
    assert seen.incident.lost == ("a0-node-0", "a0-node-1")
    assert [item.nodes_up for item in seen.points][-1] == 2
    checkpoint = CheckpointReport(generation=1, sequence=9, epoch=50, at=world.now)
    path = member.place.path(store_paths.CHECKPOINT)
    world.fleet.connection.put(path, protocol.encode(checkpoint))
    leader.settle()
    follower.settle()
    assert leader.shell.history.of(member.place)[0].ended_at == world.now
    assert follower.shell.history.of(member.place)[0].ended_at == world.now


def test_what_a_desk_knows_is_the_case_with_its_reading_whoever_leads() -> None:
    world = World()
    leader, follower = settled(world), settled(world)
    place = world.member.place
    led, followed = leader.shell.desks[place].known, follower.shell.desks[place].known
    assert led is not None
    assert followed is not None
    assert led.case.state is not None
    assert followed.case.kept is not None
    assert led.reading.progress == followed.reading.progress
