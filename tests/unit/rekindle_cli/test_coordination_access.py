"""What people order through the store: names, durations, and orders that are never lost."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from store_in_memory import ConnectionInMemory, SharedStore, unreachable
from tls_servers import tls_files, tls_server

from rekindle import protocol
from rekindle.model.errors import InputError, RunError
from rekindle.protocol import Orders, PriorityOverride, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_cli import coordination_access
from rekindle_zookeeper import StoreUnreachable

PLACE = Place("default", "flights")


@pytest.fixture
def connection() -> ConnectionInMemory:
    """To a store with the applications default/flights and test/weather."""
    connection = SharedStore().connect()
    members = [Member(place, shape(2)) for place in (PLACE, Place("test", "weather"))]
    Fleet(connection, members).write()
    return connection


def orders(connection: ConnectionInMemory) -> Orders:
    found = connection.get(PLACE.path(store_paths.ORDERS))
    assert found is not None
    return protocol.decode(found[0], Orders, "orders")


def paused(before: Orders) -> Orders:
    return msgspec.structs.replace(before, paused=True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400), ("0.5m", 30)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert coordination_access.seconds(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "90", "h", "-1h", "1 h", "1w", "0s", "1e9s", "9" * 30 + "s"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--for: is .*; write it as 90s, 30m, 2h or 1d"):
        coordination_access.seconds(text, "--for")


def test_applications_are_found_by_name(connection: ConnectionInMemory) -> None:
    assert coordination_access.applications(connection) == [PLACE, Place("test", "weather")]
    assert coordination_access.find(connection, "default/flights") == PLACE


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("default/flight", "name one of: default/flights"),
        ("x/y", "name one of: default/flights, test/weather"),
        ("flights", "write NAMESPACE/APPLICATION"),
        ("a/b/c", "write NAMESPACE/APPLICATION"),
        ("../x", "use letters"),
    ],
)
def test_an_unknown_application_is_refused_with_near_ones(
    name: str, remedy: str, connection: ConnectionInMemory
) -> None:
    with pytest.raises(InputError, match=remedy):
        coordination_access.find(connection, name)


def test_without_any_application_the_remedy_is_to_start_one() -> None:
    with pytest.raises(InputError, match="start its driver and sidecar"):
        coordination_access.find(SharedStore().connect(), "a/b")


def test_an_unknown_query_is_refused_with_near_ones(connection: ConnectionInMemory) -> None:
    coordination_access.find_query(connection, PLACE, "query-00-out")
    with pytest.raises(InputError, match="query 'query-0-out': is no query of default/flights"):
        coordination_access.find_query(connection, PLACE, "query-0-out")


def test_orders_are_changed_as_they_were_read(connection: ConnectionInMemory) -> None:
    override = PriorityOverride(priority=9)
    coordination_access.change_orders(
        connection,
        PLACE,
        lambda before: coordination_access.with_priority(before, "query-00-out", override),
        now=0.0,
    )
    before = coordination_access.change_orders(connection, PLACE, paused, now=0.0)
    assert before == Orders(priorities={"query-00-out": override})
    assert orders(connection) == Orders(priorities={"query-00-out": override}, paused=True)


def test_orders_that_somebody_else_gives_at_the_same_time_stay(
    connection: ConnectionInMemory,
) -> None:
    override, rivals = PriorityOverride(priority=9), [paused]

    def change(before: Orders) -> Orders:
        while rivals:
            coordination_access.change_orders(connection, PLACE, rivals.pop(), now=0.0)
        return coordination_access.with_priority(before, "query-00-out", override)

    coordination_access.change_orders(connection, PLACE, change, now=0.0)
    assert orders(connection) == Orders(priorities={"query-00-out": override}, paused=True)


def test_orders_that_never_stay_as_they_were_read_end_in_an_error(
    connection: ConnectionInMemory,
) -> None:
    def change(before: Orders) -> Orders:
        connection.put(PLACE.path(store_paths.ORDERS), protocol.encode(Orders()))
        return before

    with pytest.raises(RunError, match="orders of default/flights"):
        coordination_access.change_orders(connection, PLACE, change, now=0.0)


def test_priorities_whose_time_is_over_go_with_the_next_change(
    connection: ConnectionInMemory,
) -> None:
    for query, until in (("query-00-out", 50.0), ("query-01-out", None)):
        override = PriorityOverride(priority=9, until=until)
        coordination_access.change_orders(
            connection,
            PLACE,
            lambda before, query=query, override=override: coordination_access.with_priority(
                before, query, override
            ),
            now=0.0,
        )
    coordination_access.change_orders(connection, PLACE, paused, now=50.0)
    assert set(orders(connection).priorities) == {"query-01-out"}
    coordination_access.change_orders(
        connection,
        PLACE,
        lambda before: coordination_access.with_priority(before, "query-01-out", None),
        now=50.0,
    )
    assert orders(connection).priorities == {}


def test_a_secret_that_is_not_there_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="secret file"),
        coordination_access.opened("127.0.0.1:1", tmp_path / "none"),
    ):
        raise AssertionError("it was opened")


def test_servers_that_have_never_answered_are_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(session=None, close=lambda: None)
    monkeypatch.setattr(coordination_access, "connect", lambda *_, **__: connection)
    with (
        pytest.raises(InputError) as caught,
        coordination_access.opened("127.0.0.1:1,127.0.0.1:2", None),
    ):
        raise unreachable()
    assert str(caught.value) == (
        "ZooKeeper servers '127.0.0.1:1,127.0.0.1:2': cannot be reached (Connection refused); "
        "name HOST:PORT of each server with --zookeeper, and see that they run"
    )


def test_servers_that_have_answered_before_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(session=7, close=lambda: None)
    monkeypatch.setattr(coordination_access, "connect", lambda *_, **__: connection)
    with pytest.raises(StoreUnreachable), coordination_access.opened("127.0.0.1:1", None):
        raise unreachable()


def test_authorities_that_are_not_there_are_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    with (
        pytest.raises(InputError, match=r"CA file .* cannot be read"),
        coordination_access.opened("127.0.0.1:1", None, tmp_path / "none"),
    ):
        raise AssertionError("it was opened")


def test_servers_that_speak_tls_are_told_from_such_that_are_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = SimpleNamespace(session=None, close=lambda: None)
    monkeypatch.setattr(coordination_access, "connect", lambda *_, **__: connection)
    with (
        tls_server(tls_files(tmp_path)) as (host, port),
        pytest.raises(InputError) as caught,
        coordination_access.opened(f"{host}:{port}", None),
    ):
        raise unreachable()
    assert str(caught.value) == (
        f"ZooKeeper servers '{host}:{port}': speak TLS; give the file with their authority by "
        "--ca-file"
    )
