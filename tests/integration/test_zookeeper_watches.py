"""What watches on a real ZooKeeper tell, and how often."""

import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import pytest
from kazoo import exceptions
from waiting import wait_until
from zookeeper_fixtures import PLACE, WAIT_SECONDS_MAX, Connect, directive, expire

from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import watches

pytest_plugins = ("zookeeper_fixtures",)

QUIET_SECONDS = 1.0


def test_a_watch_tells_whoever_reads_of_everything_for_ever(
    connect: Connect, zookeeper: LocalZookeeper
) -> None:
    watcher, writer = connect(), connect()
    folder, child = PLACE.path(store_paths.DIRECTIVES), directive(1)
    seen = {folder: 0, child: 0}

    def count(path: str) -> Callable[[], None]:
        def counted() -> None:
            seen[path] += 1

        return counted

    for path in seen:
        watcher.watch(path, count(path))

    def tells(path: str, act: Callable[[], object]) -> None:
        time.sleep(0.2)
        wait_until(lambda: watcher.reachable and writer.reachable)
        watcher.get(path)
        watcher.children(path)
        before = seen[path]
        act()
        wait_until(lambda: seen[path] > before)

    def restart_server() -> None:
        zookeeper.kill(1)
        zookeeper.start_server(1)

    watcher.get(folder)
    for _ in range(3):
        tells(folder, lambda: writer.put(child, b"1"))
        tells(child, lambda: writer.put(child, b"2"))
        tells(folder, lambda: writer.remove(child))
    tells(child, lambda: writer.put(child, b"3"))
    tells(child, restart_server)
    tells(child, lambda: writer.put(child, b"4"))
    tells(child, lambda: expire(watcher, zookeeper))
    tells(folder, lambda: writer.remove(child))


def test_hundreds_of_watches_tell_after_a_connect(
    connect: Connect, zookeeper: LocalZookeeper
) -> None:
    watcher, told = connect(), set[int]()
    for number in range(1, 1001):
        watcher.watch(PLACE.path(f"watched/{number}"), lambda number=number: told.add(number))
    assert watcher.get(PLACE.path(store_paths.PROGRESS)) is None
    zookeeper.kill(1)
    told.clear()
    zookeeper.start_server(1)
    wait_until(lambda: len(told) == 1000)
    wait_until(lambda: watcher.reachable)
    assert watcher.get(PLACE.path(store_paths.PROGRESS)) is None


def test_only_some_watches_are_armed_at_a_time(
    connect: Connect, zookeeper: LocalZookeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for more than the client's pipe holds waits for its connection, which may end."""
    watcher, told = connect(), set[int]()
    client, under_way = watcher._sessions.client, []
    call = client._call

    def counted(*request: object) -> object:
        under_way.append(len(client._queue) + len(client._pending))
        return call(*request)

    monkeypatch.setattr(client, "_call", counted)
    wait_until(lambda: watcher.reachable)
    for number in range(1, 1001):
        watcher.watch(PLACE.path(f"watched/{number}"), lambda number=number: told.add(number))
    wait_until(lambda: len(under_way) >= 2 * 1000)
    zookeeper.kill(1)
    told.clear()
    zookeeper.start_server(1)
    wait_until(lambda: len(told) == 1000)
    assert len(under_way) >= 2 * 2 * 1000
    assert max(under_way) <= 150


def test_watches_are_not_waited_for_without_a_connection(
    connect: Connect, zookeeper: LocalZookeeper
) -> None:
    watcher, told = connect(), list[str]()
    wait_until(lambda: watcher.reachable)
    zookeeper.kill(1)
    wait_until(lambda: not watcher.reachable)
    client = watcher._sessions.client
    for number in range(10):  # as of callers that saw it before it was gone
        watcher._watches.add(PLACE.path(f"late/{number}"), lambda: told.append("late"))
        watcher._watches.arm(client, PLACE.path(f"late/{number}"))
    watches.dispatch(client, lambda: told.append("behind them"))
    wait_until(lambda: "behind them" in told)
    assert not client._queue
    zookeeper.start_server(1)
    wait_until(lambda: told.count("late") == 10)


def test_what_changes_again_before_anybody_reads_is_told_once(connect: Connect) -> None:
    watcher, writer = connect(), connect()
    path, other = PLACE.path(store_paths.PROGRESS), PLACE.path(store_paths.ORDERS)
    told: list[str] = []
    watcher.watch(path, lambda: told.append("changed"))
    watcher.watch(other, lambda: told.append("the other one"))
    wait_until(lambda: watcher.reachable)
    assert watcher.get(path) is None
    assert watcher.get(other) is None

    def is_quiet() -> bool:
        told.clear()  # what a connect tells
        time.sleep(QUIET_SECONDS)
        return not told

    wait_until(is_quiet)
    for number in range(3):
        writer.put(path, str(number).encode())
    wait_until(lambda: bool(told))
    writer.put(other, b"")
    wait_until(lambda: "the other one" in told)
    assert told == ["changed", "the other one"], "events come in order: others would have come"
    assert watcher.get(path) == (b"2", 2)
    writer.put(path, b"3")
    wait_until(lambda: told[2:] == ["changed"])
    assert watcher.get(path) == (b"3", 3)


def test_a_read_that_was_sent_ahead_is_of_then_and_arms_the_watch(connect: Connect) -> None:
    watcher, writer = connect(), connect()
    there, missing = PLACE.path("there"), PLACE.path("missing")
    writer.put(there, b"one")
    told: SimpleQueue[str] = SimpleQueue()
    for path in (there, missing):
        watcher.watch(path, partial(told.put, path))
        watcher.get(path)
    sent = {path: watcher.send_read(path) for path in (there, missing)}
    assert watcher.get(there, watcher.send_read(there)) == (b"one", 0), (
        "all that was sent is answered"
    )
    for path in (there, missing):
        writer.put(path, b"two")
    assert {told.get(timeout=WAIT_SECONDS_MAX) for _ in sent} == {there, missing}
    assert watcher.get(there, sent[there]) == (b"one", 0)
    assert watcher.get(missing, sent[missing]) == (b"two", 0), "it is looked for once more"
    assert watcher.get(there) == (b"two", 1)


def test_a_read_that_was_sent_to_a_session_that_has_ended_is_sent_again(connect: Connect) -> None:
    watcher, path = connect(), PLACE.path("there")
    connect().put(path, b"one")
    sent = watcher.send_read(path)
    assert sent is not None
    sent.set_exception(exceptions.ConnectionLoss())
    assert watcher.get(path, sent) == (b"one", 0)
