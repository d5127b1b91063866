"""Which applications that are gone lose their records, and what a driver that comes back meets."""

import io
import json
from dataclasses import dataclass, field

import pytest
from shell_world import Coordinator, Provider, World
from store_in_memory import ConnectionInMemory, SharedStore

from rekindle import protocol
from rekindle.model.errors import RunError
from rekindle.protocol import Heartbeat, PlanOrder, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_coordinator.application_retention import (
    DAY_SECONDS,
    LOOK_SECONDS,
    ApplicationRetention,
)
from rekindle_coordinator.coordinator_log import Log
from rekindle_zookeeper import application_removal

FLIGHTS, WEATHER = Place("default", "flights"), Place("test", "weather")
DAYS = 30


@dataclass
class Store:
    """Two applications that were written at 0, and a coordinator's retention of their records."""

    connection: ConnectionInMemory = field(default_factory=lambda: SharedStore().connect())
    file: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        Fleet(self.connection, [Member(place, shape(2)) for place in (FLIGHTS, WEATHER)]).write()
        for place in (FLIGHTS, WEATHER):
            self.connection.put(place.path(store_paths.DIRECTIVES, store_paths.numbered(7)), b"{}")
            self.connection.remove(place.path(store_paths.HEARTBEAT))
        self.retention = ApplicationRetention(self.connection, Log(self.file), DAYS)

    def look(self, days: float, *places: Place) -> None:
        """At this many days after the records were written."""
        self.retention.look(places or (FLIGHTS, WEATHER), days * DAY_SECONDS)

    def write(self, place: Place, name: str, days: float) -> None:
        self.connection.shared.now = days * DAY_SECONDS
        self.connection.put(place.path(name), b"{}")

    def there(self) -> list[Place]:
        return [place for place in (FLIGHTS, WEATHER) if self.connection.children(place.path())]

    def lines(self) -> list[tuple[str, str]]:
        found = [json.loads(line) for line in self.file.getvalue().splitlines()]
        return [(line["kind"], line["application"]) for line in found]


def test_records_that_nobody_writes_go_at_the_second_look_after_their_time() -> None:
    store = Store()
    for days in (1, 29.9, 29.9):
        store.look(days)
    store.look(30)
    assert store.there() == [FLIGHTS, WEATHER]
    store.look(30)
    assert (store.there(), store.connection.shared.store.children("/rekindle/v1")) == ([], [])
    assert store.lines() == [
        ("application-removed", "default/flights"),
        ("application-removed", "test/weather"),
    ]


def test_an_application_whose_driver_is_there_is_left_alone() -> None:
    store = Store()
    heartbeat = Heartbeat(generation=7, since=0.0, host="driver-0", process_id=31)
    store.connection.put(FLIGHTS.path(store_paths.HEARTBEAT), protocol.encode(heartbeat))
    store.look(400)
    store.look(400)
    assert store.there() == [FLIGHTS]


@pytest.mark.parametrize("name", [store_paths.PROGRESS, store_paths.ORDERS])
def test_whatever_is_written_begins_the_time_again(name: str) -> None:
    store = Store()
    store.look(31)
    store.write(FLIGHTS, name, 31)
    store.look(32)
    store.look(60)
    assert store.there() == [FLIGHTS]


def test_a_clock_that_is_wrong_for_a_moment_removes_nothing() -> None:
    store = Store()
    store.look(9_000)
    store.look(2)
    store.look(9_000)
    assert store.there() == [FLIGHTS, WEATHER]


def test_an_application_that_somebody_names_at_one_look_only_stays() -> None:
    store = Store()
    store.look(31)
    store.look(31, WEATHER)
    store.look(31, FLIGHTS)
    assert store.there() == [FLIGHTS]


def test_one_that_cannot_be_removed_does_not_keep_others(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    remove = ConnectionInMemory.remove_together

    def refused(self: ConnectionInMemory, paths: list[str], *, absent: str) -> None:
        if absent.startswith(FLIGHTS.path()):
            raise RunError(where=absent, what="may not be written with this secret", remedy="r")
        remove(self, paths, absent=absent)

    monkeypatch.setattr(ConnectionInMemory, "remove_together", refused)
    store.look(31)
    store.look(31)
    assert store.there() == [FLIGHTS]
    assert store.lines()[0] == ("removal-failed", "default/flights")


def test_a_driver_that_comes_in_between_keeps_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    held = application_removal.held

    def slow(connection: ConnectionInMemory, place: Place, folder: str) -> list[str]:
        connection.put(place.path(store_paths.HEARTBEAT), b"{}")
        return held(connection, place, folder)

    store.look(31)
    monkeypatch.setattr(application_removal, "held", slow)
    store.look(31)
    assert store.there() == [FLIGHTS, WEATHER]
    assert store.connection.get(FLIGHTS.path(store_paths.TOPOLOGY)) is not None
    assert store.lines() == []


def retire(coordinator: Coordinator, world: World) -> None:
    """Let an hour pass, and what is begun then come to its end."""
    retention = coordinator.shell.retention
    assert retention is not None
    retention._due = 0.0
    coordinator.shell._retire(world.now)
    assert retention._thread is not None
    retention._thread.join(timeout=30)
    coordinator.settle()


def with_retention(world: World, provider: Provider | None = None) -> Coordinator:
    coordinator = world.coordinator(provider)
    shell = coordinator.shell
    shell.retention = ApplicationRetention(coordinator.connection, shell.log, DAYS)
    coordinator.settle()
    return coordinator


@pytest.mark.parametrize(
    ("directive", "plan_epoch"),
    [(0, 0), (41, 3)],
    ids=["a new driver", "one that has been alone all the time"],
)
def test_an_application_without_driver_and_object_goes_and_is_led_again_when_it_comes_back(
    directive: int, plan_epoch: int
) -> None:
    world = World(applications=3)
    gone, kept, live = world.fleet.members
    coordinator = with_retention(world, Provider(there=frozenset({kept.place})))
    world.lose(gone, 0)
    coordinator.settle()
    assert world.directives(gone, PlanOrder)
    for member in (gone, kept):
        world.fleet.connection.remove(member.place.path(store_paths.HEARTBEAT))
    coordinator.settle()
    world.now += 31 * DAY_SECONDS
    retire(coordinator, world)
    retire(coordinator, world)
    assert world.names(gone.place.path()) == []
    assert world.names(kept.place.path()) != []
    assert set(coordinator.shell.desks) == {kept.place, live.place}
    (line,) = coordinator.lines("application-removed")
    assert line["application"] == str(gone.place)

    again = Member(gone.place, shape(4), directive=directive, plan_epoch=plan_epoch)
    fleet = Fleet(world.fleet.connection, [again])
    fleet.write()
    coordinator.settle()
    again.lose(min(again.nodes))
    fleet.report(again)
    coordinator.settle()
    (plan,) = world.directives(again, PlanOrder)
    orders = fleet.obey(again)
    assert orders[0].after <= directive < orders[0].sequence
    assert [order.after for order in orders[1:]] == [order.sequence for order in orders[:-1]]
    assert (plan.order.builds_on, plan.plan_epoch) == (plan_epoch, plan_epoch + 1)


def test_who_has_just_begun_to_lead_looks_in_an_hour() -> None:
    retention = with_retention(World()).shell.retention
    assert retention is not None
    before = retention.is_due
    retention._due -= LOOK_SECONDS
    assert (before, retention.is_due) == (False, True)


def test_with_zero_days_nothing_is_ever_due() -> None:
    store = Store()
    assert not ApplicationRetention(store.connection, Log(store.file), 0).is_due
