"""Epochs whose outputs executors send each other: losses change no row, and without links jobs run.

The laboratory's stage `links` runs the files of faults over links as a whole.
"""

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from application import Application, Before, kill_host
from following import (
    CLOSE,
    LINKS,
    SEVERAL,
    assert_several_were_on_their_way,
    epochs_follow_again,
    number_on_their_way,
    while_epochs_follow,
)
from harms import (
    all_nodes,
    in_the_middle_of_an_epoch,
    lose,
    meet,
    neighbours,
    node_of,
    start_workers,
)

Prepare = Callable[..., Application]


def test_losses_over_links_change_no_row(prepare: Prepare) -> None:
    application = prepare(policy={"silent_seconds": 8}, runtime=LINKS)
    application.start_and_recover()
    meet(
        application,
        one_is_killed_in_the_middle_of_an_epoch,
        one_is_stopped_and_dropped,
        a_host_dies,
        the_driver_is_killed,
    )
    application.finish()


def test_losses_with_several_epochs_on_their_way_change_no_row(prepare: Prepare) -> None:
    application = prepare(policy={"silent_seconds": 8}, runtime=CLOSE)
    application.start_and_recover()
    meet(
        application,
        one_is_killed_while_epochs_follow,
        a_host_dies_while_epochs_follow,
        the_driver_is_killed_while_epochs_follow,
    )
    application.finish()


def one_is_killed_while_epochs_follow(application: Application) -> None:
    before = Before.of(application)
    while_epochs_follow(application)
    victim = node_of(application, "by-hour")
    lost = lose(application, [victim])
    assert_several_were_on_their_way(application, lost, "confirmed")
    start_workers(application, victim, after=lost)
    application.await_event("recovered", after=lost)
    epochs_follow_again(application)
    before.assert_untouched(neighbours(application, victim))


def a_host_dies_while_epochs_follow(application: Application) -> None:
    while_epochs_follow(application)
    begin = application.seen
    kill_host(application, node_of(application, "rising"))
    # a function that ran at that moment is suspected, and goes on from the states before
    ways = ("state-lost", "host-restarted")
    application.await_condition(
        "its host is missed",
        lambda: any(application.happened(way, after=begin) for way in ways),
    )
    (way, *_) = [way for way in ways if application.happened(way, after=begin)]
    assert_several_were_on_their_way(application, begin, way)
    application.await_event("recovered", after=begin)
    epochs_follow_again(application)


def the_driver_is_killed_while_epochs_follow(application: Application) -> None:
    while_epochs_follow(application)
    application.driver.kill()
    assert number_on_their_way(application.events[: application.seen]) >= SEVERAL
    application.start_and_recover()
    epochs_follow_again(application)


def one_is_killed_in_the_middle_of_an_epoch(application: Application) -> None:
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    in_the_middle_of_an_epoch(application)
    lose(application, [victim])
    an_epoch_runs_over_links(application, before)
    start_workers(application, victim, after=before.events)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, victim))


def one_is_stopped_and_dropped(application: Application) -> None:
    victim = node_of(application, "rising")
    before = Before.of(application)
    in_the_middle_of_an_epoch(application)
    application.cluster.stop_processes(victim)
    application.await_event("confirmed", after=before.events, node=victim, silent=True)
    application.await_event("recovered", after=before.events)
    application.cluster.continue_processes(victim)
    an_epoch_runs_over_links(application, before)


def a_host_dies(application: Application) -> None:
    before = Before.of(application)
    kill_host(application, node_of(application, "by-hour"))
    application.await_event("recovered", after=before.events)
    an_epoch_runs_over_links(application, before)


def the_driver_is_killed(application: Application) -> None:
    before = Before.of(application)
    application.driver.kill()
    application.start_and_recover()
    an_epoch_runs_over_links(application, before)


def an_epoch_runs_over_links(application: Application, before: Before) -> None:
    seen = application.seen
    application.await_event("ran", after=max(seen, before.events), linked=True)


@pytest.mark.parametrize("taken_on", [1])
def test_where_a_port_is_taken_jobs_run(prepare: Prepare, taken_on: int) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        application = prepare(runtime=LINKS)
        taken.bind((all_nodes(application)[taken_on], 0))
        taken.listen()
        port = taken.getsockname()[1]
        application.spark = {"spark.rekindle.links.port": str(port)}
        application.start_and_recover()
        application.await_event("ran", linked=False)
        missing = application.await_event("links-missing")
        assert missing["nodes"] == [all_nodes(application)[taken_on]]
        assert not application.happened("ran", linked=True)
        application.finish()
