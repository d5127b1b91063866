"""Driver, sidecar, ZooKeeper and coordinator as processes of their own, and the loss of each.

Whatever is lost or stands still, no recovery happens twice, and the rows are exactly right.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from application import Application

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


def test_plans_come_from_the_coordinator_and_nodes_because_it_asks_for_them(
    controlled: Controlled,
) -> None:
    application = controlled()
    application.start_and_recover()
    begin = application.seen
    application.cluster.kill([FIRST, SECOND])
    application.await_event("nodes-requested", after=begin)
    for node in (FIRST, SECOND):
        application.await_event("joined", after=begin, node=node)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert not application.happened("alone")
    assert_recovered_once(application, begin)


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
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert_recovered_once(application, begin)


def test_a_driver_that_hears_nothing_from_its_coordinators_store_plans_alone_and_is_led_again(
    controlled: Controlled,
) -> None:
    application = controlled()
    assert application.control is not None
    application.start_and_recover()
    begin = application.seen
    application.control.zookeeper.kill(1)
    application.cluster.kill([FIRST])
    application.await_event("alone", after=begin)
    application.await_event("ack", after=begin)
    application.control.zookeeper.start_server(1)
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
