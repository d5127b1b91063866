"""Coordinator, sidecar and ZooKeeper as processes of their own, and the loss of each.

Whatever is lost or stands still, no recovery happens twice, and the rows are exactly right.
"""

import time

from application import Application
from control_plane_harms import (
    FIRST,
    SECOND,
    heartbeat_generation,
    kept_driver,
    recovering_once,
    stopped,
)
from harms import meet
from surroundings import Surroundings

from rekindle.coordination.application_status import Phase
from rekindle.coordination.session import Driver


def test_without_coordinator_or_sidecar_or_store_for_a_while_no_recovery_happens_twice(
    surroundings: Surroundings,
) -> None:
    application = surroundings.make(servers=3)
    application.start_and_recover()
    ended = application.driver.process

    def a_coordinator_that_stands_still_longer_than_its_session_recovers_nothing_twice(
        application: Application,
    ) -> None:
        with recovering_once(application, FIRST) as begin, stopped(application, "coordinator"):
            application.cluster.kill([FIRST])
            application.await_event("confirmed", after=begin, node=FIRST)
            application.await_condition(
                "its session has ended", lambda: not surroundings.candidates()
            )
            committed = len(application.commits())
            application.await_condition(
                "commits without it", lambda: len(application.commits()) > committed + 5
            )

    meet(
        application,
        a_coordinator_that_is_killed_in_a_recovery_is_replaced_by_one_that_goes_on,
        a_sidecar_that_is_killed_is_replaced_and_nothing_is_lost,
        a_sidecar_that_stands_still_longer_than_its_session_recovers_nothing_twice,
        a_coordinator_that_stands_still_longer_than_its_session_recovers_nothing_twice,
        a_store_that_loses_its_leader_in_a_recovery_goes_on,
        a_driver_that_hears_nothing_from_its_coordinators_store_plans_alone_and_is_led_again,
    )
    application.finish()
    a_driver_that_has_ended_in_order_is_not_asked_for_again(surroundings)
    assert application.driver.process is ended


def a_coordinator_that_is_killed_in_a_recovery_is_replaced_by_one_that_goes_on(
    application: Application,
) -> None:
    assert application.control is not None
    with recovering_once(application, FIRST, SECOND) as begin:
        application.cluster.kill([FIRST, SECOND])
        application.await_event("confirmed", after=begin, node=FIRST)
        application.control.kill(application.control.coordinator)
        application.control.start_coordinator()
    assert not application.happened("alone"), "plans came from elsewhere than a coordinator"


def a_sidecar_that_is_killed_is_replaced_and_nothing_is_lost(application: Application) -> None:
    assert application.control is not None
    with recovering_once(application):
        application.control.kill(application.control.sidecar)
        application.cluster.kill([FIRST])
        application.control.start_sidecar()


def a_sidecar_that_stands_still_longer_than_its_session_recovers_nothing_twice(
    application: Application,
) -> None:
    with recovering_once(application, FIRST) as begin, stopped(application, "sidecar"):
        application.cluster.kill([FIRST])
        application.await_event("confirmed", after=begin, node=FIRST)
        application.await_event("alone", after=begin)


def a_store_that_loses_its_leader_in_a_recovery_goes_on(application: Application) -> None:
    assert application.control is not None
    zookeeper = application.control.zookeeper
    leader = zookeeper.leader()
    assert leader is not None
    with recovering_once(application):
        application.cluster.kill([FIRST, SECOND])
        zookeeper.kill(leader)
    zookeeper.start_server(leader)


def a_driver_that_hears_nothing_from_its_coordinators_store_plans_alone_and_is_led_again(
    application: Application,
) -> None:
    assert application.control is not None
    zookeeper = application.control.zookeeper
    with recovering_once(application, FIRST) as begin:
        zookeeper.kill(1, 2)  # no majority: as good as none
        application.cluster.kill([FIRST])
        application.await_event("alone", after=begin)
        application.await_event("ack", after=begin)
        zookeeper.start_server(1, 2)
        application.await_event("led", after=begin)


def a_driver_that_has_ended_in_order_is_not_asked_for_again(surroundings: Surroundings) -> None:
    application = surroundings.application
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
