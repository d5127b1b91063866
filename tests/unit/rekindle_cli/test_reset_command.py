"""`rekindle reset`: what it removes of an application, and when it does not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from store_in_memory import ConnectionInMemory, SharedStore

from rekindle import protocol
from rekindle.protocol import Heartbeat, Orders, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_cli import command_line, coordination_access
from rekindle_zookeeper.chunked_records import RecordStat

PLACE, OTHER = Place("default", "flights"), Place("test", "weather")
HEARTBEAT = PLACE.path(store_paths.HEARTBEAT)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> ConnectionInMemory:
    """To a store with two applications, whose drivers have ended; commands use it."""
    connection = SharedStore().connect()
    Fleet(connection, [Member(place, shape(2)) for place in (PLACE, OTHER)]).write()
    connection.put(PLACE.path(store_paths.ORDERS), protocol.encode(Orders(paused=True)))
    for number in (1, 2):
        for folder in (store_paths.DIRECTIVES, store_paths.ACKS):
            connection.put(PLACE.path(folder, store_paths.numbered(number)), b"{}")
    for place in (PLACE, OTHER):
        connection.remove(place.path(store_paths.HEARTBEAT))

    @contextmanager
    def opened(*_: object) -> Iterator[ConnectionInMemory]:
        yield connection

    monkeypatch.setattr(coordination_access, "opened", opened)
    return connection


def ended(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    line = ["reset", str(PLACE), "--zookeeper", "127.0.0.1:1", *options]
    code = command_line.run(command_line.application, line)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def paths(connection: ConnectionInMemory, place: Place) -> list[str]:
    return connection.shared.store.children(place.path())


def beat(connection: ConnectionInMemory) -> None:
    heartbeat = Heartbeat(generation=7, since=1_700_000_000.0, host="driver-0", process_id=31)
    connection.put(HEARTBEAT, protocol.encode(heartbeat))


def answer(monkeypatch: pytest.MonkeyPatch, said: bool) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _: said)


def test_all_of_the_application_goes_and_nothing_of_others(
    connection: ConnectionInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    others = paths(connection, OTHER)
    code, shown, _ = ended(capsys, "--yes")
    assert code == 0
    assert paths(connection, PLACE) == []
    assert paths(connection, OTHER) == others != []
    assert "default/flights: removed. The checkpoint store is not touched: to start over," in shown


def test_what_goes_is_shown_before(
    connection: ConnectionInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.put(PLACE.path("\x1b[2J"), b"of a later version")
    lines = ended(capsys, "--yes")[1].splitlines()
    assert lines[0] == "default/flights: this is what the coordination store has of it"
    assert "  orders        priorities and a pause that people have ordered" in lines
    assert "  directives    orders to its drivers: 2" in lines
    assert "  \\x1b[2J       a record that this version does not know" in lines
    assert paths(connection, PLACE) == []


def test_a_reset_is_refused_while_the_driver_is_there(
    connection: ConnectionInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(connection)
    before = paths(connection, PLACE)
    code, shown, error = ended(capsys, "--yes")
    assert (code, shown) == (2, "")
    assert error.startswith(
        "application default/flights: has a driver that is there: generation 7, process 31 on "
        "'driver-0', since 2023-11-1"
    )
    assert "; end it first, with `rekindle savepoint STORE` or a file named finish" in error
    assert paths(connection, PLACE) == before


def test_a_heartbeat_that_nobody_can_read_is_one_all_the_same(
    connection: ConnectionInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.put(HEARTBEAT, b"\xff")
    assert "has a driver that is there; end it first" in ended(capsys, "--yes")[2]


def test_without_somebody_to_ask_it_takes_yes(
    connection: ConnectionInMemory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    before = paths(connection, PLACE)
    code, shown, error = ended(capsys)
    assert (code, paths(connection, PLACE)) == (2, before)
    assert "topology" in shown
    assert error.endswith("nobody can be asked; add --yes\n")


@pytest.mark.parametrize("said", [True, False])
def test_a_reset_asks_first_and_does_what_was_answered(
    said: bool,
    connection: ConnectionInMemory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, said)
    code, shown, _ = ended(capsys)
    assert (code, bool(paths(connection, PLACE))) == ((0, False) if said else (1, True))
    assert ("Nothing was removed." in shown) != said


def test_a_driver_that_comes_in_between_keeps_its_records(
    connection: ConnectionInMemory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stats = ConnectionInMemory.stats

    def slow(self: ConnectionInMemory, paths: list[str]) -> dict[str, RecordStat]:
        found = stats(self, paths)
        beat(self)
        return found

    monkeypatch.setattr(ConnectionInMemory, "stats", slow)
    code, _, error = ended(capsys, "--yes")
    assert (code, "has a driver that is there" in error) == (2, True)
    assert connection.get(PLACE.path(store_paths.TOPOLOGY)) is not None
    assert connection.get(PLACE.path(store_paths.ORDERS)) is not None
    assert len(connection.children(PLACE.path(store_paths.DIRECTIVES))) == 2


def test_a_reset_goes_on_where_a_coordinator_writes_meanwhile(
    connection: ConnectionInMemory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stats, written = ConnectionInMemory.stats, list[str]()

    def slow(self: ConnectionInMemory, paths: list[str]) -> dict[str, RecordStat]:
        found = stats(self, paths)
        if len(written) < 2:
            written.append(PLACE.path(store_paths.COORDINATION))
            self.put(written[-1], b"another")
        return found

    monkeypatch.setattr(ConnectionInMemory, "stats", slow)
    assert ended(capsys, "--yes")[0] == 0
    assert paths(connection, PLACE) == []


def test_a_reset_that_was_interrupted_can_be_done_again(
    connection: ConnectionInMemory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as interrupted:

        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        interrupted.setattr(ConnectionInMemory, "remove_together", interrupt)
        assert ended(capsys, "--yes")[0] == 130
    assert connection.get(PLACE.path(store_paths.TOPOLOGY)) is not None
    assert ended(capsys, "--yes")[0] == 0
    assert paths(connection, PLACE) == []


def test_an_application_that_is_not_there_is_refused_with_near_ones(
    connection: ConnectionInMemory,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["reset", "default/flight", "--zookeeper", "127.0.0.1:1", "--yes"]
    assert command_line.run(command_line.application, line) == 2
    assert "name one of: default/flights" in capsys.readouterr().err
