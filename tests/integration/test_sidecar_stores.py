"""A sidecar and drivers with another checkpoint store: refused until the application is reset."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from sidecar_process import (
    PLACE,
    Driver,
    Sidecar,
    generation_shown,
    progress_in,
    topology_in,
)
from waiting import wait_until

from rekindle.protocol import store_paths
from rekindle_cli import command_line
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection

pytest_plugins = ("sidecar_fixtures",)

Start = Callable[..., Sidecar]


def refusal_of(driver: Driver, store: str) -> dict[str, Any]:
    """What a driver with that checkpoint store is told once it is refused.

    It is refused once the sidecar has looked into the store; a handshake has it look anew.
    """
    status, answer = driver.handshake(store=store)
    if status == 409:
        refused: dict[str, Any] = answer
        return refused
    answers: list[dict[str, Any]] = []

    def is_refused() -> bool:
        status, answer = driver.ask("POST", "/v1/reports", driver.topology(store=store))
        answers.append(answer)
        return status == 409

    wait_until(is_refused)
    return answers[-1]


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_driver_with_a_fresh_store_under_an_old_name_is_refused_and_changes_nothing(
    generation: int, start: Start, store: Connection
) -> None:
    older = Driver(start(), 2)
    older.begin(store="one")
    with older.in_contact():
        wait_until(lambda: progress_in(store) is not None)
        wait_until(lambda: generation_shown(store) == 2)  # a round may write reports before it
    older.part()
    wait_until(lambda: generation_shown(store) is None)
    before = (topology_in(store), progress_in(store))
    fresh = Driver(start(), generation)
    found = refusal_of(fresh, "other")
    assert (found["where"], found["fenced"]) == ("application default/application", True)
    assert found["what"] == "has another checkpoint store, with a history up to generation 2"
    assert "or start over with `rekindle reset default/application`" in found["remedy"]
    wait_until(lambda: generation_shown(store) is None)
    assert (topology_in(store), progress_in(store)) == before


def test_a_driver_may_ask_before_it_begins_and_changes_nothing(
    start: Start, store: Connection
) -> None:
    sidecar = start()

    def admission(generation: int, of: str) -> tuple[int, Any]:
        query = f"namespace={PLACE.namespace}&application={PLACE.application}"
        asked = f"/v1/admission?{query}&generation={generation}&store={of}"
        status, answer = Driver(sidecar).ask("GET", asked)
        return status, answer.get("what")

    assert admission(1, "") == (200, None)
    there = Driver(sidecar, 2)
    there.begin(store="one")
    with there.in_contact():
        wait_until(lambda: progress_in(store) is not None and generation_shown(store) == 2)
        before = (topology_in(store), progress_in(store))
        is_there = "has a driver of generation 2, with another checkpoint store"
        for generation, of in ((1, ""), (9, "other")):
            assert admission(generation, of) == (409, is_there)
        assert admission(3, "one") == (200, None)
    there.part()
    wait_until(lambda: generation_shown(store) is None)
    was_there = "has another checkpoint store, with a history up to generation 2"
    assert admission(1, "") == (409, was_there)
    older = "is of generation 1, and there is a driver of generation 2"
    assert admission(1, "one") == (409, older)
    assert admission(3, "one") == (200, None)
    assert generation_shown(store) is None
    assert (topology_in(store), progress_in(store)) == before


def test_a_driver_with_another_store_does_not_disturb_the_one_that_is_there(
    start: Start, store: Connection
) -> None:
    there = Driver(start(), 1)
    there.begin(store="one")
    with there.in_contact():
        wait_until(lambda: generation_shown(store) == 1)
        before = store.get(PLACE.path(store_paths.HEARTBEAT))
        found = refusal_of(Driver(start(), 1), "other")
        assert found["what"] == "has a driver of generation 1, with another checkpoint store"
        assert "give this one another name" in found["remedy"]
        assert store.get(PLACE.path(store_paths.HEARTBEAT)) == before
    there.report(there.progress())


def test_a_driver_that_was_refused_for_another_one_is_taken_once_that_is_reset(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    there, sidecar = Driver(start(), 7), start()
    there.begin(store="one")
    with there.in_contact():
        wait_until(lambda: generation_shown(store) == 7)
        refused = Driver(sidecar, 1)
        assert "has a driver of generation 7" in refusal_of(refused, "other")["what"]
        refused.part()
        time.sleep(2.0)  # the sidecar looks at the heartbeat of the other driver meanwhile
    there.part()
    wait_until(lambda: generation_shown(store) is None)
    line = ["reset", str(PLACE), "--zookeeper", zookeeper.connect_string, "--yes"]
    assert command_line.run(command_line.application, line) == 0
    again = Driver(sidecar, 2)
    again.begin(store="other")
    wait_until(lambda: generation_shown(store) == 2)


def test_after_a_reset_the_same_sidecar_takes_a_driver_with_a_fresh_store(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    sidecar = start()
    older = Driver(sidecar, 7)
    older.begin(store="one")
    older.acknowledge(1)
    wait_until(lambda: store.children(PLACE.path(store_paths.ACKS)) == [store_paths.numbered(1)])
    line = ["reset", str(PLACE), "--zookeeper", zookeeper.connect_string, "--yes"]
    with older.in_contact():
        wait_until(lambda: generation_shown(store) == 7)
        assert command_line.run(command_line.application, line) == 2, "its driver is there"
    older.part()
    wait_until(lambda: generation_shown(store) is None)
    fresh = Driver(sidecar, 1)
    assert "history up to generation 7" in refusal_of(fresh, "other")["what"]
    wait_until(lambda: generation_shown(store) is None)
    assert command_line.run(command_line.application, line) == 0
    assert store.children(PLACE.path()) == []
    again = Driver(sidecar, 2)
    again.begin(store="other")
    wait_until(lambda: generation_shown(store) == 2 and progress_in(store) is not None)
    assert getattr(topology_in(store), "store", None) == "other"


def test_a_large_record_goes_with_its_pieces_in_a_reset(
    start: Start, store: Connection, zookeeper: LocalZookeeper
) -> None:
    driver = Driver(start())
    driver.handshake()
    driver.report(driver.topology(operators=20_000))
    wait_until(lambda: len(store.children(PLACE.path(store_paths.PIECES))) > 1)
    driver.part()
    wait_until(lambda: generation_shown(store) is None)
    line = ["reset", str(PLACE), "--zookeeper", zookeeper.connect_string, "--yes"]
    assert command_line.run(command_line.application, line) == 0
    assert store.children(PLACE.path()) == []
