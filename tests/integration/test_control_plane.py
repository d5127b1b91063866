"""Driver, sidecar, ZooKeeper and coordinator as processes of their own, and the loss of each.

Whatever is lost or stands still, no recovery happens twice, and the rows are exactly right.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from application import Application
from sidecar_process import Sidecar
from surroundings import PLACE, Surroundings

from rekindle.coordination.application import Driver
from rekindle.coordination.standing import Phase
from rekindle.protocol import tree
from rekindle.reasons import Reason
from rekindle_local import processes

Controlled = Callable[..., Application]
FIRST, SECOND = "127.0.0.2", "127.0.0.3"


def plans(application: Application, after: int) -> list[int]:
    """Plan epochs that the driver has carried out, in order."""
    return [event["plan_epoch"] for event in application.happened("ack", after=after)]


def assert_recovered_once(application: Application, after: int) -> None:
    """Plan epochs only grew, and each partition was placed once for each time that it was lost."""
    carried_out = plans(application, after)
    assert carried_out
    assert carried_out == sorted(set(carried_out))
    application.finish()


def test_a_coordinator_that_is_killed_in_a_recovery_is_replaced_by_one_that_goes_on(
    controlled: Controlled,
) -> None:
    application = controlled()
    assert application.control is not None
    application.start_and_recover()
    begin = application.seen
    application.cluster.kill([FIRST, SECOND])
    application.await_event("confirmed", after=begin, node=FIRST)
    application.control.kill(application.control.coordinator)
    application.control.start_coordinator()
    for node in (FIRST, SECOND):
        application.await_event("joined", after=begin, node=node)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert not application.happened("alone"), "plans came from elsewhere than a coordinator"
    assert_recovered_once(application, begin)


def test_a_driver_that_hears_nothing_from_its_coordinators_store_plans_alone_and_is_led_again(
    controlled: Controlled,
) -> None:
    application = controlled(servers=3)
    assert application.control is not None
    application.start_and_recover()
    begin = application.seen
    application.control.zookeeper.kill(1, 2)  # no majority: as good as none
    application.cluster.kill([FIRST])
    application.await_event("alone", after=begin)
    application.await_event("ack", after=begin)
    application.control.zookeeper.start_server(1, 2)
    application.await_event("led", after=begin)
    application.await_event("joined", after=begin, node=FIRST)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert_recovered_once(application, begin)


def test_a_sidecar_that_is_killed_is_replaced_and_nothing_is_lost(controlled: Controlled) -> None:
    application = controlled()
    assert application.control is not None
    application.start_and_recover()
    begin = application.seen
    application.control.kill(application.control.sidecar)
    application.cluster.kill([FIRST])
    application.control.start_sidecar()
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert_recovered_once(application, begin)


@contextmanager
def stopped(application: Application, part: str) -> Iterator[None]:
    """A part stands still, its connections open."""
    assert application.control is not None
    if part == "driver":
        assert application.driver.process is not None
        os.killpg(application.driver.process.pid, signal.SIGSTOP)
        yield
        os.killpg(application.driver.process.pid, signal.SIGCONT)
        return
    daemon = getattr(application.control, part)
    application.control.stop(daemon)
    yield
    application.control.proceed(daemon)


def test_a_driver_that_stands_still_longer_than_its_session_is_not_replaced(
    surroundings: Surroundings,
) -> None:
    application = surroundings.make()
    application.start_and_recover()
    begin = application.seen
    with stopped(application, "driver"):
        application.cluster.kill([FIRST])
        assert processes.await_condition(lambda: is_silent(surroundings, 20.0), limit_seconds=90.0)
    application.await_event("confirmed", after=begin, node=FIRST)
    application.await_event("joined", after=begin, node=FIRST)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert not application.happened("driver-requested")
    assert_recovered_once(application, begin)


def is_silent(surroundings: Surroundings, seconds: float) -> bool:
    """Whether the status has said for so long that the driver is silent."""
    found = surroundings.standing()
    told = Reason.DRIVER_SILENT in [notice.reason for notice in found.notices]
    since = time.time() if found.driver_since is None else found.driver_since
    return told and found.driver is Driver.SILENT and time.time() - since > seconds


def kept_driver(surroundings: Surroundings) -> str | None:
    """What the coordinator has written of the driver."""
    record = surroundings.record(tree.COORDINATION)
    return None if record is None else str(record["driver"])


def heartbeat_generation(surroundings: Surroundings) -> int | None:
    """Of the heartbeat that stands; None without one."""
    record = surroundings.record(tree.HEARTBEAT)
    return None if record is None else int(record["generation"])


def test_a_driver_that_has_ended_in_order_is_not_asked_for_again(
    surroundings: Surroundings,
) -> None:
    application = surroundings.make()
    application.start_and_recover()
    ended = application.driver.process
    application.finish()
    # seen by the coordinator with process and heartbeat gone, so that it may have asked by now
    application.await_condition(
        "case says finished", lambda: kept_driver(surroundings) == "finished"
    )
    application.await_condition("no heartbeat", lambda: heartbeat_generation(surroundings) is None)
    decided = surroundings.standing().driver_since
    application.await_condition("3 s more", lambda: time.time() > (decided or 0.0) + 3.0)
    found = surroundings.standing()
    assert found.driver is Driver.FINISHED
    assert {query.phase for query in found.queries} == {Phase.FINISHED}
    assert found.notices == ()
    application.poll()
    assert not application.happened("driver-requested")
    assert application.driver.process is ended


def test_of_two_drivers_only_the_newer_commits_though_the_older_is_cut_from_the_store(
    surroundings: Surroundings,
) -> None:
    older = surroundings.make()
    assert older.control is not None
    older.start_and_recover()
    older.control.stop(older.control.sidecar)
    committed = len(older.commits())
    older.await_condition("commits without a store", lambda: len(older.commits()) > committed + 5)
    servers = older.control.zookeeper.connect_string
    second = Sidecar(older.cluster.temporary / "second", servers, place=PLACE)
    surroundings.stack.callback(second.end)
    second.start()
    newer = surroundings.succeed(second.socket)
    begin = newer.seen
    newer.start()
    assert older.await_end() == 1
    assert "let the newer driver go on" in older.last_words()
    older.control.proceed(older.control.sidecar)
    newer.await_event("recovered", after=begin, generation=2)
    newer.await_condition("its heartbeat", lambda: heartbeat_generation(surroundings) == 2)
    newer.finish()
    assert not older.happened("driver-requested")
    assert not newer.happened("driver-requested")
    generations = [record["generation"] for record in newer.commits()]
    assert generations == sorted(generations)


def test_a_store_that_loses_its_leader_in_a_recovery_goes_on(controlled: Controlled) -> None:
    application = controlled(servers=3)
    assert application.control is not None
    application.start_and_recover()
    zookeeper, begin = application.control.zookeeper, application.seen
    leader = zookeeper.leader()
    assert leader is not None
    application.cluster.kill([FIRST, SECOND])
    zookeeper.kill(leader)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert_recovered_once(application, begin)


@pytest.mark.parametrize("part", ["sidecar", "coordinator"])
def test_a_part_that_stands_still_longer_than_its_session_recovers_nothing_twice(
    controlled: Controlled, part: str
) -> None:
    application = controlled()
    application.start_and_recover()
    begin = application.seen
    with stopped(application, part):
        application.cluster.kill([FIRST])
        application.await_event("confirmed", after=begin, node=FIRST)
        if part == "sidecar":
            application.await_event("alone", after=begin)
        else:
            committed = len(application.commits())
            application.await_condition(
                "30 more commits", lambda: len(application.commits()) > committed + 30
            )
    application.await_event("joined", after=begin, node=FIRST)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert_recovered_once(application, begin)


def test_the_driver_is_started_again_when_it_is_gone_for_certain(controlled: Controlled) -> None:
    application = controlled()
    application.start_and_recover()
    begin = application.seen
    application.driver.kill()
    killed = application.driver.process
    assert processes.await_condition(
        lambda: application.driver.process is not killed, limit_seconds=60.0
    )
    application.await_event("driver-requested", after=begin)
    application.await_event("recovered", after=begin, generation=2)
    application.await_event("incident-closed", after=begin)
    application.finish()
