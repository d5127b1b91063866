"""The sidecar when parts around it, or it itself, die, fall silent, or come twice."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sidecar_process import (
    PLACE,
    SESSION_SECONDS,
    Driver,
    Sidecar,
    UnixConnection,
    directive,
    empty,
    generation_shown,
    progress_in,
    topology_in,
)
from waiting import wait_until

from rekindle.model.errors import RunError
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection

pytest_plugins = ("sidecar_fixtures",)

Start = Callable[..., Sidecar]


def test_an_outage_leaves_the_newest_report_of_each_kind(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    wait_until(lambda: progress_in(store) is not None)
    before = store.get(PLACE.path(store_paths.PROGRESS))
    assert before is not None
    zookeeper.kill(1)
    wait_until(lambda: not driver.report(driver.progress())["store_reachable"])
    for epoch in range(20):
        driver.report(driver.progress(epoch=epoch))
    assert driver.acknowledge(1) == (200, {"store_reachable": False})
    assert driver.ask("GET", "/v1/health")[1]["held"] == 2
    newest = driver.progress(epoch=99)
    driver.report(newest)
    zookeeper.start_server(1)
    wait_until(lambda: store.reachable and progress_in(store) == newest)
    wait_until(lambda: store.children(PLACE.path(store_paths.ACKS)) == [store_paths.numbered(1)])
    after = store.get(PLACE.path(store_paths.PROGRESS))
    assert after is not None
    # one that was on its way when the server died may have been written
    assert after[1] - before[1] <= 2
    wait_until(lambda: driver.report(driver.progress())["store_reachable"])


def test_after_an_outage_longer_than_its_session_the_heartbeat_is_there_again(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    zookeeper.stop(1)
    end = time.monotonic() + 2 * SESSION_SECONDS
    while time.monotonic() < end:
        driver.report(driver.progress())
        time.sleep(0.5)
    zookeeper.proceed(1)
    wait_until(lambda: store.reachable)
    stays_up(driver, store)


def test_a_sidecar_that_stood_still_longer_than_its_session_shows_the_driver_again(
    start: Start, store: Connection
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    sidecar.send(signal.SIGSTOP)
    wait_until(lambda: generation_shown(store) is None)
    sidecar.send(signal.SIGCONT)
    stays_up(driver, store)


def test_the_heartbeat_goes_with_the_drivers_connections_and_comes_with_the_next_one(
    start: Start, store: Connection
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    waiting = UnixConnection(sidecar.socket)
    waiting.request("GET", "/v1/directives?after=0&generation=1&wait=30")
    time.sleep(3.0)
    assert generation_shown(store) == 1
    driver.part()
    waiting.close()  # with its poll open, as that of a killed process
    wait_until(lambda: generation_shown(store) is None)
    wait_until(lambda: bool(sidecar.events("heartbeat-down")))  # told after it is done
    driver.report(driver.progress())
    wait_until(lambda: generation_shown(store) == 1)


def test_the_heartbeat_goes_with_a_driver_that_falls_silent(
    start: Start, store: Connection
) -> None:
    driver = Driver(start())
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    wait_until(lambda: generation_shown(store) is None)  # its connection is open all the time
    driver.report(driver.progress())
    wait_until(lambda: generation_shown(store) == 1)


def test_an_open_long_poll_keeps_the_heartbeat(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    poll = threading.Thread(target=driver.directives, args=(0, 2.5 * SESSION_SECONDS))
    poll.start()
    while poll.is_alive():
        assert generation_shown(store) == 1
        time.sleep(0.1)


def test_a_newer_driver_at_another_sidecar_fences_the_older_one(
    start: Start, store: Connection
) -> None:
    older, newer = Driver(start(), 1), Driver(start(), 2)
    older.begin()
    wait_until(lambda: generation_shown(store) == 1)
    fenced: list[Any] = []
    poll = threading.Thread(
        target=lambda: fenced.append(Driver.directives(older, 0, 30.0)), daemon=True
    )
    poll.start()
    newer.begin()
    with newer.in_contact():
        wait_until(lambda: generation_shown(store) == 2)
        poll.join()
        (status, answer) = fenced[0]
        assert (status, answer["fenced"], answer["generation"]) == (409, True, 2)
        status, answer = older.ask("POST", "/v1/reports", older.progress())
        assert (status, answer["fenced"]) == (409, True)
        assert older.handshake()[0] == 409
        wait_until(lambda: getattr(progress_in(store), "generation", None) == 2)
        older.part()
        time.sleep(3.0)  # longer than it takes a sidecar to miss a driver that has parted
        assert generation_shown(store) == 2


def test_a_newer_driver_that_died_fences_too(start: Start, store: Connection) -> None:
    newer = Driver(start(), 2)
    newer.begin()
    with newer.in_contact():
        wait_until(lambda: progress_in(store) is not None)
        wait_until(lambda: generation_shown(store) == 2)  # a round may write reports before it
    newer.part()
    wait_until(lambda: generation_shown(store) is None)
    older = Driver(start(), 1)
    older.handshake()
    wait_until(lambda: older.ask("POST", "/v1/reports", older.topology())[0] == 409)
    assert getattr(topology_in(store), "generation", None) == 2
    wait_until(lambda: generation_shown(store) is None)


def test_a_newer_driver_at_the_same_sidecar_fences_the_older_one(
    start: Start, store: Connection
) -> None:
    sidecar = start()
    older, newer = Driver(sidecar, 1), Driver(sidecar, 2)
    older.begin()
    assert newer.ask("POST", "/v1/reports", newer.progress())[0] == 428
    newer.begin()
    for status, answer in (
        older.ask("POST", "/v1/reports", older.progress()),
        older.directives(),
        older.acknowledge(1),
        older.handshake(),
    ):
        assert (status, answer["fenced"], answer["generation"]) == (409, True, 2)
    wait_until(lambda: generation_shown(store) == 2)


def test_a_sidecar_that_was_killed_goes_on_where_the_store_is(
    start: Start, store: Connection
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    for sequence in (1, 2):
        store.put(
            PLACE.path(store_paths.DIRECTIVES, store_paths.numbered(sequence)), directive(sequence)
        )
    wait_until(lambda: len(driver.directives()[1]["directives"]) == 2)
    driver.acknowledge(1)
    newest = driver.progress(epoch=5)
    driver.report(newest)
    wait_until(lambda: progress_in(store) == newest)
    wait_until(lambda: len(store.children(PLACE.path(store_paths.ACKS))) == 1)
    sidecar.end(signal.SIGKILL)
    driver.part()
    assert sidecar.socket.exists()
    sidecar.start()
    status, answer = driver.ask("POST", "/v1/reports", driver.progress())
    assert status == 428
    assert "send a handshake" in answer["remedy"]
    assert driver.handshake()[0] == 200
    driver.report(newest)  # it says again what it had said
    wait_until(lambda: len(driver.directives(after=1)[1]["directives"]) == 1)
    assert progress_in(store) == newest
    assert store.children(PLACE.path(store_paths.ACKS)) == [store_paths.numbered(1)]
    stays_up(driver, store)


def test_what_a_killed_sidecar_had_not_written_is_asked_for_again(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    zookeeper.kill(1)
    driver.begin()
    sidecar.end(signal.SIGKILL)
    driver.part()
    zookeeper.start_server(1)
    sidecar.start()
    assert driver.ask("POST", "/v1/reports", driver.progress())[0] == 428
    driver.handshake()
    driver.report(driver.progress())  # it forgets that it has to say everything
    wait_until(lambda: driver.ask("POST", "/v1/reports", driver.progress())[0] == 428)
    wait_until(lambda: store.reachable)
    assert progress_in(store) is None
    driver.begin()
    wait_until(lambda: progress_in(store) is not None)
    assert topology_in(store) == driver.topology()


def test_a_store_that_has_lost_the_topology_gets_it_again(start: Start, store: Connection) -> None:
    driver = Driver(start())
    driver.begin()
    wait_until(lambda: progress_in(store) is not None)
    lose_all(store)
    wait_until(lambda: driver.ask("POST", "/v1/reports", driver.progress())[0] == 428)
    assert progress_in(store) is None
    driver.begin()
    wait_until(lambda: progress_in(store) is not None)
    assert topology_in(store) == driver.topology()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_takes_heartbeat_and_socket_along(
    number: signal.Signals, start: Start, store: Connection
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(driver.directives(0, 30.0)))
    poll.start()
    driver.await_poll()
    assert sidecar.end(number) == 0
    assert generation_shown(store) is None
    assert not sidecar.socket.exists()
    poll.join()
    assert answers[0][1]["directives"] == []
    assert sidecar.events("ended")


def test_it_ends_while_the_store_is_away(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    sidecar = start()
    driver = Driver(sidecar)
    driver.begin()
    wait_until(lambda: generation_shown(store) == 1)
    zookeeper.stop(1)
    driver.report(driver.progress())
    assert sidecar.end() == 0
    assert not sidecar.socket.exists()


def stays_up(driver: Driver, store: Connection) -> None:
    """The driver reports all the time; the heartbeat comes, and stays longer than one of an earlier
    session could."""

    def shown() -> bool:
        driver.report(driver.progress())
        time.sleep(0.2)
        return generation_shown(store) == driver.generation

    wait_until(shown)
    end = time.monotonic() + 2 * SESSION_SECONDS
    while time.monotonic() < end:
        shown()
    wait_until(shown)
    newest = driver.progress()
    driver.report(newest)
    wait_until(lambda: progress_in(store) == newest)


def lose_all(store: Connection) -> None:
    """Empty the store, though the sidecar writes."""

    def emptied() -> bool:
        try:
            empty(store, PLACE.path())
        except RunError:
            return False
        return True

    wait_until(emptied)
