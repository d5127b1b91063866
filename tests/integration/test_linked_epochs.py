"""Epochs whose outputs executors send each other: losses change no row, and without links jobs run.

The laboratory's stage `links` runs the files of faults over links as a whole.
"""

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from application import LASTING, Application, Before, kill_host
from harms import (
    all_nodes,
    in_the_middle_of_an_epoch,
    lose,
    meet,
    neighbours,
    newest_of,
    node_of,
    start_workers,
)

Prepare = Callable[..., Application]
LINKS = {**LASTING, "exchange": "links"}


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
    runtime = {**LINKS, "epoch_seconds": 0.3}
    application = prepare(policy={"silent_seconds": 8}, runtime=runtime)
    application.start_and_recover()
    meet(
        application,
        one_is_killed_while_epochs_follow,
        a_host_dies_while_epochs_follow,
        the_driver_is_killed_while_epochs_follow,
    )
    application.finish()


def one_is_killed_while_epochs_follow(application: Application) -> None:
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    while_epochs_follow(application)
    lose(application, [victim])
    an_epoch_that_followed_counts(application, before)
    start_workers(application, victim, after=before.events)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, victim))


def a_host_dies_while_epochs_follow(application: Application) -> None:
    before = Before.of(application)
    while_epochs_follow(application)
    kill_host(application, node_of(application, "rising"))
    application.await_event("recovered", after=before.events)
    an_epoch_that_followed_counts(application, before)


def the_driver_is_killed_while_epochs_follow(application: Application) -> None:
    before = Before.of(application)
    while_epochs_follow(application)
    application.driver.kill()
    application.start_and_recover()
    an_epoch_that_followed_counts(application, before)


def while_epochs_follow(application: Application) -> None:
    """Returns while at least two epochs are on their way."""
    begin = application.seen

    def follows() -> bool:
        cut = newest_of(application, "cut")
        ran = application.happened("ran", after=begin)
        return bool(ran) and cut is not None and cut["epoch"] > ran[-1]["epoch"] + 1

    in_the_middle_of_an_epoch(application)
    application.await_condition("an epoch follows another", follows)


def an_epoch_that_followed_counts(application: Application, before: Before) -> None:
    begin = max(application.seen, before.events)
    application.await_condition(
        "an epoch that followed another counts",
        lambda: any(ran.get("following") for ran in application.happened("ran", after=begin)),
    )


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
        assert not application.happened("ran", linked=True)
        application.finish()
