"""Workers that die or fall silent, at bad moments: the output stays exactly right.

And whoever was not harmed keeps its processes and its state, which the commit log shows.
"""

from collections.abc import Callable

from application import LASTING, Application, Before
from block_files import blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs
from harms import (
    all_nodes,
    in_the_middle_of_an_epoch,
    lose,
    meet,
    neighbours,
    node_of,
    open_checkpoint,
    start_workers,
)

Prepare = Callable[..., Application]
ATTEMPTS = 5


def test_workers_that_pause_fall_silent_and_die_at_bad_moments_change_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"silent_seconds": 8}, runtime=LASTING)
    application.start_and_recover()
    meet(
        application,
        blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs,
        one_that_pauses_is_suspected_and_cleared_and_nothing_moves,
        one_that_is_stopped_is_dropped_and_joins_anew,
        one_is_killed_in_the_middle_of_an_epoch,
        one_is_killed_during_a_checkpoint,
        all_are_killed_and_everything_comes_back,
    )
    application.finish()


def one_that_pauses_is_suspected_and_cleared_and_nothing_moves(application: Application) -> None:
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    application.cluster.stop_processes(victim)
    suspected = application.await_event("node-suspected", after=before.events)
    assert suspected["details"]["node"] == victim
    application.cluster.continue_processes(victim)
    application.await_event("node-cleared", after=before.events, reason="suspicion-cleared")
    before.assert_untouched(all_nodes(application))
    assert not application.happened("plan", after=before.events)


def one_that_is_stopped_is_dropped_and_joins_anew(application: Application) -> None:
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    in_the_middle_of_an_epoch(application)
    application.cluster.stop_processes(victim)
    application.await_event("confirmed", after=before.events, node=victim, silent=True)
    application.await_event("recovered", after=before.events)
    application.cluster.continue_processes(victim)  # and what it does late changes no row
    application.await_event("joined", after=before.events, node=victim)
    application.await_condition(
        "the dropped executor and its host have ended",
        lambda: not before.executors[victim].intersection(application.cluster.processes(victim)),
    )
    before.assert_untouched(neighbours(application, victim))


def one_is_killed_in_the_middle_of_an_epoch(application: Application) -> None:
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    in_the_middle_of_an_epoch(application)
    application.cluster.kill([victim])
    application.await_event("confirmed", after=before.events, node=victim)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, victim))
    start_workers(application, victim, after=before.events)


def one_is_killed_during_a_checkpoint(application: Application) -> None:
    """Where a checkpoint is complete before the worker has died, another one is waited for."""
    assert any(_dies_in_a_checkpoint(application) for _ in range(ATTEMPTS)), "none was open"


def _dies_in_a_checkpoint(application: Application) -> bool:
    victim = node_of(application, "rising")
    before = Before.of(application)
    unfinished = open_checkpoint(application)
    application.cluster.kill([victim])
    application.await_event("confirmed", after=before.events, node=victim)
    is_open = not unfinished.with_suffix(".json").exists()
    application.await_event("recovered", after=before.events)
    application.await_event("checkpoint", after=before.events)
    before.assert_untouched(neighbours(application, victim))
    start_workers(application, victim, after=before.events)
    return is_open


def all_are_killed_and_everything_comes_back(application: Application) -> None:
    nodes = all_nodes(application)
    begin = lose(application, nodes)
    start_workers(application, *nodes, after=begin)
    application.await_event("recovered", after=begin)


def test_frames_of_sources_that_had_to_go_are_made_again_and_change_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(runtime={"checkpoint_seconds": 600, "retained_mib_max": 0.05})
    application.start()
    application.await_event("recovered")
    application.await_event("shed")
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    application.cluster.kill([victim])
    application.await_event("confirmed", after=before.events, node=victim)
    application.await_event("recovered", after=before.events)
    assert not application.happened("checkpoint"), "nothing would have been made again"
    before.assert_untouched(neighbours(application, victim))
    application.finish()
