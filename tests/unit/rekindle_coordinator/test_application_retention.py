"""Which applications that are gone lose their records, and what a driver that comes back meets."""

import io
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from shell_world import Coordinator, Provider, World
from store_in_memory import ConnectionInMemory, SharedStore, unreachable

from rekindle import protocol
from rekindle.model.errors import RunError
from rekindle.protocol import Heartbeat, Orders, PlanOrder, PriorityOverride, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_coordinator.application_retention import (
    DAY_SECONDS,
    LOOK_SECONDS,
    ApplicationRetention,
)
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_ports import DecisionObserver, DecisionTerms
from rekindle_zookeeper.application_removal import AT_ONCE_MAX
from rekindle_zookeeper.chunked_records import RecordStat

FLIGHTS, WEATHER = Place("default", "flights"), Place("test", "weather")
DAYS = 30


@dataclass
class Store:
    """Two applications that were written at 0, and a coordinator's retention of their records."""

    connection: ConnectionInMemory = field(default_factory=lambda: SharedStore().connect())
    file: io.StringIO = field(default_factory=io.StringIO)
    back: set[Place] = field(default_factory=set)

    def __post_init__(self) -> None:
        Fleet(self.connection, [Member(place, shape(2)) for place in (FLIGHTS, WEATHER)]).write()
        for place in (FLIGHTS, WEATHER):
            self.connection.put(place.path(store_paths.DIRECTIVES, store_paths.numbered(7)), b"{}")
            self.connection.remove(place.path(store_paths.HEARTBEAT))
        self.retention = ApplicationRetention(self.connection, Log(self.file), DAYS)

    def look(self, days: float, *places: Place) -> None:
        """At this many days after the records were written, by the servers' clock."""
        self.connection.shared.now = days * DAY_SECONDS
        self.retention.look(places or (FLIGHTS, WEATHER), lambda place: place not in self.back)

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


def test_one_that_cannot_be_removed_is_logged_once_and_does_not_keep_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    remove = ConnectionInMemory.remove_together

    def refused(
        self: ConnectionInMemory, removed: dict[str, int], expected: dict[str, int | None]
    ) -> None:
        if FLIGHTS.path() in removed:
            raise RunError(where="store", what="may not be written with this secret", remedy="r")
        remove(self, removed, expected)

    monkeypatch.setattr(ConnectionInMemory, "remove_together", refused)
    for _ in range(4):
        store.look(31)
    assert store.there() == [FLIGHTS]
    assert store.lines() == [
        ("removal-failed", "default/flights"),
        ("application-removed", "test/weather"),
    ]


def test_a_bug_with_one_application_does_not_keep_others() -> None:
    store = Store()
    store.look(31)

    def is_gone(place: Place) -> bool:
        return bool({WEATHER: 1}[place])

    store.retention.look((FLIGHTS, WEATHER), is_gone)
    assert store.there() == [FLIGHTS]
    assert store.lines()[0] == ("removal-failed", "default/flights")


def test_a_store_that_is_away_for_a_look_costs_no_further_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    store.look(31)
    with monkeypatch.context() as away:

        def no_answer(*_: object) -> NoReturn:
            raise unreachable()

        away.setattr(ConnectionInMemory, "children", no_answer)
        store.look(31)
    store.look(31)
    assert store.there() == []


@pytest.mark.parametrize("name", ["heartbeat", "orders", "coordination/guard", "progress"])
def test_whatever_is_written_between_look_and_removal_keeps_all_records(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver comes, somebody pauses it, or the operator gives it its rights."""
    store = Store()
    stats, path = ConnectionInMemory.stats, FLIGHTS.path(*name.split("/"))

    def slow(self: ConnectionInMemory, paths: list[str]) -> dict[str, RecordStat]:
        found = stats(self, paths)
        if FLIGHTS.path() in paths:
            store.connection.put(path, b"{}")
        return found

    store.look(31)
    before = store.connection.shared.store.children(FLIGHTS.path())
    monkeypatch.setattr(ConnectionInMemory, "stats", slow)
    store.look(31)
    after = store.connection.shared.store.children(FLIGHTS.path())
    assert (store.there(), set(before) - set(after)) == ([FLIGHTS], set())
    assert store.lines() == [("application-removed", "test/weather")]


def test_a_driver_that_comes_back_while_others_are_removed_keeps_its_place() -> None:
    store = Store()
    store.look(31)
    store.back.add(WEATHER)
    store.look(31)
    assert store.there() == [WEATHER]


@pytest.mark.parametrize(
    ("orders", "stays"),
    [
        (Orders(paused=True), True),
        (Orders(priorities={"q": PriorityOverride(priority=2.0)}), True),
        (Orders(priorities={"q": PriorityOverride(priority=2.0, until=40 * DAY_SECONDS)}), True),
        (Orders(priorities={"q": PriorityOverride(priority=2.0, until=30 * DAY_SECONDS)}), False),
        (Orders(), False),
    ],
    ids=["paused", "a priority", "one for longer", "one that has expired", "nothing"],
)
def test_what_people_have_ordered_keeps_an_application_until_it_expires(
    orders: Orders, stays: bool
) -> None:
    store = Store()
    store.connection.put(FLIGHTS.path(store_paths.ORDERS), protocol.encode(orders))
    for _ in range(3):
        store.look(31)
    assert (FLIGHTS in store.there()) == stays


def test_more_directives_than_one_transaction_takes_go_as_well() -> None:
    store = Store()
    for number in range(2 * AT_ONCE_MAX + 2):
        name = store_paths.numbered(number + 8)
        store.connection.put(FLIGHTS.path(store_paths.DIRECTIVES, name), b"{}")
    store.look(31)
    store.look(31)
    assert store.there() == []


def retire(coordinator: Coordinator, world: World, servers: float | None = None) -> None:
    """Let an hour pass, and what is begun then come to its end."""
    retention = coordinator.shell.retention
    assert retention is not None
    world.shared.now = world.now if servers is None else servers
    retention._due = 0.0
    coordinator.shell._retire()
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
    store, clock = Store(), [0.0]
    retention = ApplicationRetention(store.connection, Log(store.file), DAYS, lambda: clock[0])
    due = [retention.is_due]
    retention.postpone()
    for clock[0] in (LOOK_SECONDS - 1, LOOK_SECONDS):
        due.append(retention.is_due)
    assert due == [True, False, True]


def test_a_coordinator_whose_clock_is_ahead_removes_nothing_early() -> None:
    world = World(applications=1)
    (gone,) = world.fleet.members
    coordinator = with_retention(world)
    world.fleet.connection.remove(gone.place.path(store_paths.HEARTBEAT))
    coordinator.settle()
    servers = world.now
    world.now += 365 * DAY_SECONDS
    for _ in range(3):
        retire(coordinator, world, servers)
    assert world.names(gone.place.path()) != []


def test_with_zero_days_nothing_is_ever_due() -> None:
    store = Store()
    assert not ApplicationRetention(store.connection, Log(store.file), 0).is_due


def test_the_observer_removes_its_own_with_each_hourly_look_of_whoever_leads() -> None:
    world, asked = World(applications=1), list[tuple[str, int]]()
    first = with_retention(world)
    second = with_retention(world)
    for name, coordinator in (("first", first), ("second", second)):
        observer = SimpleNamespace(
            heard=lambda *_: None,
            terms=lambda _, reading: DecisionTerms(reading),
            decided=lambda *_: None,
            retire=lambda days, name=name: asked.append((name, days)),
        )
        coordinator.shell.oversight = cast(DecisionObserver, observer)
    retire(first, world)
    first.shell._retire()
    assert second.shell.retention is not None
    second.shell.retention._due = 0.0
    second.shell._retire()
    assert asked == [("first", DAYS)]


def test_with_zero_days_the_observer_is_not_asked_either() -> None:
    world = World(applications=1)
    coordinator = with_retention(world)
    coordinator.shell.retention = ApplicationRetention(
        coordinator.connection, coordinator.shell.log, 0
    )
    observer = SimpleNamespace(retire=lambda _: pytest.fail("it was asked"))
    coordinator.shell.oversight = cast(DecisionObserver, observer)
    coordinator.shell._retire()
