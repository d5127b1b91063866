"""Whatever happens, and whenever the operator dies: limits hold, and the story is the same."""

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from story_world import NODES, Kill, World, breaches, running, status_schema

from rekindle.coordination.application_status import ApplicationView
from rekindle.coordination.session import ApplicationReading, Case, Decision
from rekindle.protocol import Directive, PlanOrder, decode, store_paths
from rekindle_operator.api.recovery_resource import ENDED, RecoveryStatus, to_status
from rekindle_operator.recovery import status_builder
from rekindle_operator.recovery.recovery_inputs import (
    ClusterFacts,
    NodeObservation,
    RecoveryInputs,
    RecoveryTerms,
)
from rekindle_simulation.simulated_coordinators import Coordinator
from rekindle_simulation.simulated_sidecars import PLACE
from rekindle_simulation.simulated_world import SimulatedWorld as Time
from rekindle_simulation.simulation_run import Simulation, places_by_domain

SCHEMA = status_schema()
Event = tuple[str, Any]

EVENTS = st.one_of(
    st.tuples(st.just("lose"), st.sets(st.sampled_from(NODES), min_size=1, max_size=4)),
    st.tuples(st.just("restore"), st.sets(st.sampled_from(NODES), min_size=1, max_size=4)),
    st.tuples(st.just("announce"), st.sets(st.sampled_from(NODES), max_size=4)),
    st.tuples(st.just("suspect"), st.sampled_from(NODES)),
    st.tuples(st.just("clear"), st.sampled_from(NODES)),
    st.tuples(
        st.sampled_from(["catch-up", "checkpoint", "deaf", "hears", "silent", "gone", "starts"]),
        st.none(),
    ),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("time"), st.integers(1, 200)),
)
COURSE = st.lists(st.tuples(EVENTS, st.sampled_from(list(Kill))), max_size=25)


def happen(world: World, event: Event) -> None:
    """One thing, whatever the world is like."""
    match event:
        case ("lose", nodes):
            world.lose(*sorted(nodes))
        case ("restore", nodes):
            world.restore(*sorted(nodes))
        case ("announce", nodes):
            world.announce(*sorted(nodes))
        case ("suspect", node):
            world.sight(**{node: NodeObservation(suspected_at=world.now, uid=node)})
        case ("clear", node):
            world.sight(**{node: NodeObservation(heard_at=world.now)})
        case ("catch-up", None):
            world.catch_up()
        case ("checkpoint", None):
            world.complete_checkpoint()
        case ("deaf" | "hears" as what, None):
            world.deaf = what == "deaf"
        case ("silent", None):
            world.kill_driver()
        case ("gone", None):
            world.bury_driver()
        case ("starts", None) if not world.alive:
            world.start_driver()
        case ("pause", paused):
            world.terms = RecoveryTerms(paused=paused)
        case ("time", seconds):
            world.now += seconds


def play(course: list[tuple[Event, Kill]], *, kills: bool) -> World:
    world = running()
    for event, kill in course:
        happen(world, event)
        world.step(kill if kills else Kill.NEVER)
    return world


@given(COURSE)
@settings(max_examples=60)
def test_an_operator_that_dies_at_every_step_tells_the_same_story(
    course: list[tuple[Event, Kill]],
) -> None:
    assert play(course, kills=True).objects == play(course, kills=False).objects


@given(COURSE)
@settings(max_examples=40)
def test_every_status_is_one_that_the_api_server_takes_and_gives_back(
    course: list[tuple[Event, Kill]],
) -> None:
    world = play(course, kills=False)
    for _, status in world.told:
        record = to_status(status)
        assert breaches(SCHEMA, record) == []
        assert msgspec.convert(record, RecoveryStatus) == status


@given(COURSE)
@settings(max_examples=40)
def test_times_of_a_query_and_of_a_node_are_in_order(course: list[tuple[Event, Kill]]) -> None:
    for _, status in play(course, kills=False).told:
        check_order(status)


@given(COURSE)
@settings(max_examples=40)
def test_a_plan_that_was_told_stays_told(course: list[tuple[Event, Kill]]) -> None:
    acknowledged: dict[int, set[int]] = {}
    for incident, status in play(course, kills=True).told:
        numbers = [plan.number for plan in status.plans]
        known = acknowledged.setdefault(incident, set())
        assert known <= set(numbers) or status.plans_dropped
        known |= {plan.number for plan in status.plans if plan.acknowledged_at is not None}
        assert numbers == sorted(set(numbers))
        assert status.plans_total == len(numbers) + status.plans_dropped


def check_order(status: RecoveryStatus) -> None:
    """Moments that follow each other do so."""
    for row in status.queries:
        times = [row.lost_at, row.planned_at, row.back_at]
        known = [at for at in times if at is not None]
        assert known == sorted(known), row
        assert row.back_at is None or row.planned_at is not None
        waits = row.lost_at is not None and row.back_at is None
        assert (row.reason is not None) == waits or status.phase in ENDED, row
    for node in status.lost_nodes:
        times = [node.suspected_at, node.confirmed_at, node.back_at]
        known = [at for at in times if at is not None]
        assert known == sorted(known), node
    ended = status.phase in ENDED
    assert (status.ended_at is not None) == ended
    if status.phase == "Recovered":
        assert status.queries_back == status.queries_total == len(status.queries)


# The same with the simulation's own coordinators: two of them, that die and stand still.


@dataclass(slots=True)
class Books:
    """What the API server has, and which plans were ever written."""

    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    version: int = 0
    written: dict[int, set[int]] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def status(self, incident: int) -> RecoveryStatus:
        return msgspec.convert(self.objects.get(incident, {}), RecoveryStatus)


class Teller(Coordinator):
    """A coordinator that tells what it has written, unless it dies before."""

    books: Books
    heard: tuple[Case, tuple[Directive, ...], ApplicationReading, float]
    seen: int

    def _compare(self, reading: ApplicationReading, now: float, decision: Decision) -> None:
        super()._compare(reading, now, decision)
        assert self.case is not None
        self.heard = (self.case, self._plans(), reading, now)
        self.seen = self.books.version
        self.decision = decision

    def _plans(self) -> tuple[Directive, ...]:
        found = []
        for name in self.store.children(PLACE.path(store_paths.DIRECTIVES)):
            record = self.store.get(PLACE.path(store_paths.DIRECTIVES, name))
            assert record is not None
            directive = decode(record[0], Directive, name)
            if isinstance(directive.order, PlanOrder):
                found.append(directive)
        return tuple(found)

    def _note(self, decision: Decision, reported: int) -> None:
        super()._note(decision, reported)
        for item in decision.directives:
            if isinstance(item.order, PlanOrder) and item.order.incident is not None:
                self.books.written.setdefault(item.order.incident, set()).add(item.plan_epoch)

    def _ask(self, case: Case) -> None:
        super()._ask(case)
        # the API server takes no status of whoever has read an older one
        current = self.seen == self.books.version and case is self.decision.case
        if current and self.books.chance.random() < 0.7:
            self._tell()

    def _tell(self) -> None:
        before, stored, reading, now = self.heard
        state = self.decision.case.state
        assert state is not None
        books, number = self.books, status_builder.subject(state, ClusterFacts())
        opened = {item for item in books.objects if books.status(item).phase not in ENDED}
        for incident in sorted(opened | ({number} if number else set())):
            view = ApplicationView("a/b", before, reading, stored[-1] if stored else None)
            scene = RecoveryInputs(
                incident, view, self.decision, cluster=ClusterFacts(), earlier=stored
            )
            told = status_builder.tell(books.status(incident), scene, now)
            assert not status_builder.tell(told.status, scene, now + 50).news
            books.objects[incident] = to_status(told.status)
            books.version += told.news


def simulated(seed: int) -> Books:
    """One seed of the simulation, with its stories."""
    books = Books(chance=random.Random(seed))

    class Told(Simulation):
        def _coordinator(self, name: str) -> Coordinator:
            teller = Teller(
                name=name,
                world=self.world,
                store=self.store,
                machines=self.machines,
                invariants=self.invariants,
                sabotage=self.sabotage,
                driver_gone=self._is_gone,
                restart_driver=self._restart_driver,
            )
            teller.books = books
            return teller

    simulation = Told(Time(random.Random(seed)), None, places_by_domain(seed))
    simulation.play()
    simulation.world.run(simulation.world.now + 15.0)
    return books


@pytest.mark.parametrize("first", range(6_000, 6_040, 10))
def test_the_stories_of_the_simulation_are_whole(first: int) -> None:
    for seed in range(first, first + 10):
        check_books(simulated(seed), f"seed {seed}")


def check_books(books: Books, where: str) -> None:
    """Every story has ended, and tells of all plans that were written."""
    assert books.objects or not books.written, where
    for incident, record in books.objects.items():
        assert breaches(SCHEMA, record) == [], where
        status = books.status(incident)
        assert status.phase in ENDED, f"{where}: {incident} is {status.phase}"
        told = {plan.number for plan in status.plans}
        missing = books.written.get(incident, set()) - told
        assert len(missing) <= status.plans_dropped, f"{where}: no plan {missing}"
