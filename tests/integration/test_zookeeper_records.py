"""Records and leadership on a real ZooKeeper, whose servers die and fall silent."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from waiting import wait_until
from zookeeper_fixtures import PLACE, WAIT_SECONDS_MAX, Connect, directive, expire

import rekindle_zookeeper
from rekindle.model.errors import RunError
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Conflict, Connection, StoreUnreachable

pytest_plugins = ("zookeeper_fixtures",)

LARGE = 3 * store_paths.PIECE_BYTES // 2
# than a deadline of a second, on a machine with much else to do
FAR_MORE_SECONDS = 30.0


def test_a_record_is_written_with_its_parents_read_and_removed(connect: Connect) -> None:
    connection = connect()
    path = PLACE.path(store_paths.PROGRESS)
    assert connection.get(path) is None
    connection.put(path, b"one")
    assert connection.get(path) == (b"one", 0)
    connection.put(path, b"two")
    assert connection.get(path) == (b"two", 1)
    assert connection.children(PLACE.path()) == [store_paths.PROGRESS]
    connection.remove(path)
    connection.remove(path)
    assert connection.get(path) is None
    assert connection.children(PLACE.path("nowhere")) == []


def test_a_transaction_writes_all_or_nothing(connect: Connect) -> None:
    connection = connect()
    kept, first, second = PLACE.path(store_paths.COORDINATION), directive(1), directive(2)
    assert connection.transact({kept: None}, {kept: b"a", first: b"1"}) == {kept: 0, first: 0}
    assert connection.transact({kept: 0}, {kept: b"b"}) == {kept: 1}
    for expected in ({kept: 0}, {kept: None}, {first: None}, {second: 0}, {kept: 1, first: 7}):
        with pytest.raises(Conflict):
            connection.transact(expected, {kept: b"c", second: b"2"})
    assert connection.get(kept) == (b"b", 1)
    assert connection.get(second) is None
    written = connection.transact({first: 0, second: None}, {kept: b"c"})
    assert written == {kept: 2}
    assert connection.children(PLACE.path(store_paths.DIRECTIVES)) == [store_paths.numbered(1)]


def test_what_one_has_written_is_replaced_without_a_look(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, other = connect(), connect()
    kept, first, second = PLACE.path(store_paths.COORDINATION), directive(1), directive(2)
    connection.transact({kept: None}, {kept: b"a", first: b"1"})
    with monkeypatch.context() as patched:
        patched.setattr(connection._records, "_stats", None)
        assert connection.transact({kept: 0}, {kept: b"b", second: b"2"}) == {kept: 1, second: 0}
        assert connection.transact({kept: 1}, {kept: b"c"}) == {kept: 2}
    assert other.get(kept) == (b"c", 2)
    assert other.get(second) == (b"2", 0)
    # one of the others is there already: it is replaced, as ever
    assert connection.transact({kept: 2}, {kept: b"d", first: b"3"}) == {kept: 3, first: 1}
    other.transact({kept: 3}, {kept: b"other"})
    with pytest.raises(Conflict):
        connection.transact({kept: 3}, {kept: b"e", directive(3): b"4"})
    assert other.get(kept) == (b"other", 4)
    assert other.get(directive(3)) is None


def test_what_is_replaced_without_a_look_leaves_no_pieces(connect: Connect) -> None:
    connection, path = connect(), PLACE.path(store_paths.COORDINATION)
    sizes = [1, LARGE, 2, LARGE + 1, 3, 4]
    for version, size in enumerate(sizes):
        expected = version - 1 if version else None
        assert connection.transact({path: expected}, {path: b"x" * size}) == {path: version}
        assert connection.get(path) == (b"x" * size, version)
        pieces = connection.children(PLACE.path(store_paths.PIECES))
        assert bool(pieces) is (size >= LARGE)


def test_of_many_who_write_at_once_on_one_condition_one_succeeds(connect: Connect) -> None:
    path = PLACE.path(store_paths.COORDINATION)
    connections = [connect() for _ in range(4)]
    connections[0].put(path, b"")

    def attempt(connection: Connection) -> bool:
        try:
            connection.transact({path: 0}, {path: b"x" * LARGE})
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(len(connections)) as pool:
        assert sum(pool.map(attempt, connections)) == 1
    # all had the same content, so the others' pieces are the winner's
    assert connections[0].get(path) == (b"x" * LARGE, 1)


@pytest.mark.parametrize(
    "size", [0, 1, store_paths.PIECE_BYTES, store_paths.PIECE_BYTES + 1, 5 * LARGE]
)
def test_records_of_any_size_come_back_as_they_were(size: int, connect: Connect) -> None:
    connection = connect()
    path = PLACE.path(store_paths.TOPOLOGY)
    data = bytes(range(256)) * (size // 256) + b"r" * (size % 256)
    connection.put(path, data)
    assert connection.get(path) == (data, 0)


def test_what_is_replaced_or_removed_leaves_no_pieces(connect: Connect) -> None:
    connection = connect()
    path = PLACE.path(store_paths.TOPOLOGY)
    for letter in (b"a", b"b", b"b"):
        connection.put(path, letter * LARGE)
        assert len(connection.children(PLACE.path(store_paths.PIECES))) == 2
    connection.put(path, b"small")
    assert connection.children(PLACE.path(store_paths.PIECES)) == []
    connection.put(path, b"c" * LARGE)
    connection.remove(path)
    assert connection.children(PLACE.path(store_paths.PIECES)) == []


def test_a_transaction_that_is_too_large_for_one_message_goes_in_pieces(connect: Connect) -> None:
    connection = connect()
    writes = {
        directive(number): bytes([number]) * store_paths.PIECE_BYTES for number in range(1, 6)
    }
    connection.transact({}, writes)
    for path, data in writes.items():
        assert connection.get(path) == (data, 0)
    assert len(connection.children(PLACE.path(store_paths.PIECES))) == 3


def test_who_reads_while_a_large_record_is_replaced_gets_one_or_the_other(connect: Connect) -> None:
    writer, reader = connect(), connect()
    path = PLACE.path(store_paths.TOPOLOGY)
    writer.put(path, b"0" * LARGE)
    done = threading.Event()

    def write() -> None:
        for number in range(30):
            writer.put(path, str(number % 10).encode() * (LARGE + number))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        found = reader.get(path)
        assert found is not None
        assert len(set(found[0])) == 1
    thread.join()


def test_pieces_that_no_record_names_go_when_they_have_been_left_for_long(connect: Connect) -> None:
    connection = connect()
    connection.put(PLACE.path(store_paths.TOPOLOGY), b"kept" * LARGE)
    connection.put(directive(1), b"kept too" * LARGE)
    wanted = set(connection.children(PLACE.path(store_paths.PIECES)))
    for name in ("left.0", "written-again.0"):
        connection.put(PLACE.path(store_paths.PIECES, name), b"left by one that died")
    seen = connection.sweep(PLACE.path(), {})
    assert {path.rpartition("/")[2] for path in seen} == {"left.0", "written-again.0"}
    connection.put(PLACE.path(store_paths.PIECES, "written-again.0"), b"its head is about to come")
    seen = connection.sweep(PLACE.path(), seen)
    assert set(connection.children(PLACE.path(store_paths.PIECES))) == wanted | {"written-again.0"}
    assert connection.sweep(PLACE.path(), seen) == {}
    assert set(connection.children(PLACE.path(store_paths.PIECES))) == wanted


def test_an_ephemeral_record_goes_with_its_session_and_changes_hands(connect: Connect) -> None:
    first, second = connect(), connect()
    path = PLACE.path(store_paths.HEARTBEAT)
    first.put(path, b"first", ephemeral=True)
    first.put(path, b"still first", ephemeral=True)
    second.transact({path: 1}, {path: b"second"}, ephemeral=True)
    first.close()
    time.sleep(1.0)
    assert second.get(path) == (b"second", 0)
    third = connect()
    second.close()
    wait_until(lambda: third.get(path) is None)


def test_an_expired_session_is_followed_by_another_one(
    connect: Connect, zookeeper: LocalZookeeper
) -> None:
    connection = connect()
    changes: list[int | None] = []
    connection.on_change(lambda: changes.append(connection.session))
    path = PLACE.path(store_paths.HEARTBEAT)
    connection.put(path, b"here", ephemeral=True)
    before = connection.session
    assert before is not None
    expire(connection, zookeeper)
    wait_until(lambda: connection.session not in (None, before))
    assert connection.get(path) is None
    wait_until(lambda: changes[-1:] == [connection.session])


def test_a_client_that_ends_unasked_is_replaced(connect: Connect) -> None:
    connection, writer = connect(), connect()
    path = PLACE.path(store_paths.PROGRESS)
    told = threading.Event()
    connection.put(path, b"before")
    connection.watch(path, told.set)
    ended = connection._sessions.client
    ended.stop()
    wait_until(lambda: connection._sessions.client is not ended and connection.reachable)
    assert connection.get(path) == (b"before", 0)
    told.clear()
    writer.put(path, b"after")
    assert told.wait(WAIT_SECONDS_MAX)


@pytest.mark.parametrize("copied", [True, False])
def test_a_store_that_has_lost_what_a_client_has_seen_is_found_again(
    copied: bool, tmp_path: Path
) -> None:
    with LocalZookeeper(directory=tmp_path / "zookeeper") as zookeeper:
        connection = rekindle_zookeeper.connect(zookeeper.connect_string, session_seconds=4.0)
        path = PLACE.path(store_paths.PROGRESS)
        connection.put(path, b"early")
        (data,) = (tmp_path / "zookeeper").rglob("version-2")
        zookeeper.kill(1)
        copy = shutil.copytree(data, tmp_path / "copy")
        zookeeper.start_server(1)
        wait_until(lambda: connection.reachable)
        seen = threading.Event()
        connection.watch(path, seen.set)
        connection.put(path, b"late")
        zookeeper.kill(1)
        shutil.rmtree(data)
        if copied:
            shutil.copytree(copy, data)
        zookeeper.start_server(1)
        wait_until(lambda: connection.reachable)
        found = connection.get(path)
        assert (found and found[0]) == (b"early" if copied else None)
        seen.clear()
        connection.put(path, b"again")
        assert seen.wait(WAIT_SECONDS_MAX)
        connection.close()


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_store_that_is_away_is_told_within_the_deadline_and_found_again(
    fault: str, connect: Connect, zookeeper: LocalZookeeper
) -> None:
    connection = connect(deadline_seconds=1.0, session_seconds=4.0)
    path = PLACE.path(store_paths.PROGRESS)
    connection.put(path, b"before")
    getattr(zookeeper, fault)(1)
    calls: list[Callable[[], object]] = [
        lambda: connection.get(path),
        lambda: connection.children(PLACE.path()),
        lambda: connection.put(path, b"lost"),
        lambda: connection.remove(path),
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(StoreUnreachable, match=r"no answer within 1 s .*ZooKeeper servers run"):
            call()
        assert time.monotonic() - began < FAR_MORE_SECONDS
    wait_until(lambda: not connection.reachable)
    if fault == "kill":
        zookeeper.start_server(1)
    zookeeper.proceed(1)
    wait_until(lambda: connection.reachable)
    assert connection.get(path) is not None or fault == "stop"


def test_an_ensemble_goes_on_without_its_leader_and_waits_without_a_majority(
    tmp_path: Path,
) -> None:
    with LocalZookeeper(directory=tmp_path, servers=3) as ensemble:
        connection = rekindle_zookeeper.connect(
            ensemble.connect_string, session_seconds=40.0, deadline_seconds=2.0
        )
        kept, here = PLACE.path(store_paths.COORDINATION), PLACE.path(store_paths.HEARTBEAT)
        connection.put(here, b"here", ephemeral=True)
        connection.put(kept, b"0")
        session, leader = connection.session, ensemble.leader()
        assert leader is not None
        ensemble.kill(leader)
        wait_until(lambda: is_written(connection, kept, b"1"))
        other = next(server for server in ensemble.servers if server != leader)
        ensemble.kill(other)
        wait_until(lambda: not connection.reachable)
        with pytest.raises(StoreUnreachable):
            connection.put(kept, b"2")
        ensemble.start_server(leader, other)
        wait_until(lambda: is_written(connection, kept, b"3"))
        assert connection.session == session
        assert connection.get(here) == (b"here", 0)
        connection.close()


def test_one_leads_and_another_takes_over_when_it_is_closed(connect: Connect) -> None:
    first, second = connect(), connect()
    told = threading.Event()
    leader = first.elect(store_paths.ELECTION, "first", lambda: None)
    wait_until(lambda: leader.leads)
    candidate = second.elect(store_paths.ELECTION, "second", told.set)
    time.sleep(1.0)
    assert (leader.leads, candidate.leads) == (True, False)
    told.clear()
    leader.close()
    assert not leader.leads
    assert told.wait(WAIT_SECONDS_MAX)
    wait_until(lambda: candidate.leads)
    candidate.close()
    assert second.children(store_paths.ELECTION) == []


def test_leadership_ends_with_the_session_and_can_be_won_again(
    connect: Connect, zookeeper: LocalZookeeper
) -> None:
    first, second = connect(), connect()
    leader = first.elect(store_paths.ELECTION, "first", lambda: None)
    wait_until(lambda: leader.leads)
    candidate = second.elect(store_paths.ELECTION, "second", lambda: None)
    wait_until(lambda: len(second.children(store_paths.ELECTION)) == 2)
    expire(first, zookeeper)
    wait_until(lambda: candidate.leads)
    wait_until(lambda: first.reachable)
    assert not leader.leads
    wait_until(lambda: len(second.children(store_paths.ELECTION)) == 2)
    candidate.close()
    wait_until(lambda: leader.leads)
    leader.close()


def test_a_leader_leads_on_after_an_outage_that_its_session_outlives(
    connect: Connect, zookeeper: LocalZookeeper
) -> None:
    connection = connect(session_seconds=40.0)
    leader = connection.elect(store_paths.ELECTION, "one", lambda: None)
    wait_until(lambda: leader.leads)
    zookeeper.kill(1)
    wait_until(lambda: not leader.leads)
    zookeeper.start_server(1)
    wait_until(lambda: leader.leads)
    leader.close()


def test_with_a_secret_others_neither_read_nor_write(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    path = PLACE.path(store_paths.PROGRESS)
    with caplog.at_level(logging.DEBUG):
        ours, other, none = connect(secret="open"), connect(secret="wrong"), connect()
        ours.put(path, b"x" * LARGE)
        for stranger in (other, none):
            for call in (stranger.get, stranger.children, partial(stranger.put, data=b"")):
                with pytest.raises(RunError, match="with this secret; give all parts the same"):
                    call(path)
    assert ours.get(path) == (b"x" * LARGE, 0)
    assert "rekindle:open" not in caplog.text


def is_written(connection: Connection, path: str, data: bytes) -> bool:
    try:
        connection.put(path, data)
    except StoreUnreachable:
        return False
    return True
