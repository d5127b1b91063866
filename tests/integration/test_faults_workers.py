"""Workers that die or fall silent, at bad moments: the output stays exactly right.

And whoever was not harmed keeps its processes and its state, which the commit log shows.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import readings
from application import Application, Before, kill_host

Prepare = Callable[..., Application]


def neighbours(application: Application, *victims: str) -> list[str]:
    return [node.name for node in application.cluster.nodes if node.name not in victims]


def node_of(application: Application, operator: str) -> str:
    return min(application.nodes_of(operator))


def harm_in_the_middle_of_an_epoch(application: Application) -> None:
    """Returns while the step `graded` is at work."""
    (application.traps / readings.SLOW).touch()
    application.await_condition(
        "an epoch is at work", (application.traps / readings.REACHED).exists
    )


def test_a_worker_killed_in_the_middle_of_an_epoch_changes_no_row(prepare: Prepare) -> None:
    application = prepare()
    application.start_and_recover()
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    harm_in_the_middle_of_an_epoch(application)
    application.cluster.kill([victim])
    application.await_event("confirmed", after=before.events, node=victim)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, victim))
    application.finish()


def test_a_second_worker_killed_during_catch_up_changes_no_row(prepare: Prepare) -> None:
    application = prepare(runtime={"checkpoint_seconds": 3, "join_gap_epochs": 0})
    application.start_and_recover()
    first = node_of(application, "by-hour")
    second = neighbours(application, first)[0]
    before = Before.of(application)
    application.cluster.kill([first])
    application.await_event("ack", after=before.events)
    harm_in_the_middle_of_an_epoch(application)
    application.cluster.kill([second])
    application.await_event("confirmed", after=before.events, node=second)
    assert not application.happened("recovered", after=before.events), "it had caught up already"
    application.cluster.start_worker(first)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, first, second))
    application.finish()


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


def test_a_worker_killed_during_a_checkpoint_changes_no_row(prepare: Prepare) -> None:
    application = prepare()
    application.start_and_recover()
    victim = node_of(application, "rising")
    before = Before.of(application)
    open_one = await_open_checkpoint(application)
    application.cluster.kill([victim])
    application.await_event("confirmed", after=before.events, node=victim)
    assert not (open_one.with_suffix(".json")).exists(), "the checkpoint was complete already"
    application.await_event("recovered", after=before.events)
    application.await_event("checkpoint", after=before.events)
    before.assert_untouched(neighbours(application, victim))
    application.finish()


def test_a_worker_that_is_stopped_is_dropped_and_joins_anew_and_its_late_work_changes_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"silent_seconds": 4})
    application.start_and_recover()
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    harm_in_the_middle_of_an_epoch(application)
    application.cluster.stop_processes(victim)
    application.await_event("confirmed", after=before.events, node=victim, silent=True)
    application.await_event("recovered", after=before.events)
    application.cluster.continue_processes(victim)
    application.await_event("joined", after=before.events, node=victim)
    application.await_condition(
        "the dropped executor and its host have ended",
        lambda: not before.executors[victim].intersection(application.cluster.processes(victim)),
    )
    before.assert_untouched(neighbours(application, victim))
    application.finish()


def test_a_worker_that_pauses_is_suspected_and_cleared_and_nothing_moves(prepare: Prepare) -> None:
    application = prepare(policy={"silent_seconds": 12})
    application.start_and_recover()
    victim = node_of(application, "by-hour")
    before = Before.of(application)
    application.cluster.stop_processes(victim)
    suspected = application.await_event("node-suspected", after=before.events)
    assert suspected["details"]["node"] == victim
    application.cluster.continue_processes(victim)
    application.await_event("node-cleared", after=before.events, reason="suspicion-cleared")
    before.assert_untouched([node.name for node in application.cluster.nodes])
    assert not application.happened("plan", after=before.events)
    application.finish()


def test_a_dead_host_loses_its_own_state_alone_and_one_that_starts_no_more_its_executor(
    prepare: Prepare,
) -> None:
    application = prepare()
    application.start_and_recover()
    victim = node_of(application, "rising")
    before = Before.of(application)
    kill_host(application, victim)
    application.await_event("state-lost", after=before.events, node=victim)
    application.await_event("recovered", after=before.events)
    assert not application.happened("confirmed", after=before.events)
    before.assert_untouched(neighbours(application, victim))

    def is_given_up() -> bool:
        if application.happened("host-failed", after=before.events, node=victim):
            return True
        with suppress(FileNotFoundError):  # it has ended before it could be looked at
            kill_host(application, victim)
        return False

    application.await_condition("its executor is given up", is_given_up)
    application.await_event("confirmed", after=before.events, node=victim, silent=False)
    application.await_event("joined", after=before.events, node=victim)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, victim))
    application.finish()


def test_after_the_loss_of_all_workers_everything_comes_back(prepare: Prepare) -> None:
    application = prepare()
    application.start_and_recover()
    begin = application.seen
    nodes = [node.name for node in application.cluster.nodes]
    application.cluster.kill(nodes)
    for node in nodes:
        application.await_event("confirmed", after=begin, node=node)
    for node in nodes:
        application.cluster.start_worker(node)
    application.await_event("recovered", after=begin)
    application.finish()


@pytest.mark.parametrize("strategy", ["incremental", "blocking"])
def test_killed_workers_come_back_one_by_one(prepare: Prepare, strategy: str) -> None:
    application = prepare(policy={"strategy": strategy}, runtime={"node_cpu_percent": 40})
    application.start_and_recover()
    victims = [node.name for node in application.cluster.nodes[:2]]
    before = Before.of(application)
    application.cluster.kill(victims)
    for victim in victims:
        application.await_event("confirmed", after=before.events, node=victim)
    application.cluster.start_worker(victims[0])
    application.await_event("joined", after=before.events, node=victims[0])
    assert strategy == "incremental" or not application.happened("plan", after=before.events)
    application.cluster.start_worker(victims[1])
    application.await_event("joined", after=before.events, node=victims[1])
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, *victims))
    application.finish()


def await_open_checkpoint(application: Application) -> Path:
    """The folder of a checkpoint of which some states are written and which is not global."""
    found: list[Path] = []

    def look() -> bool:
        found[:] = [
            folder
            for folder in (application.store / "checkpoints").iterdir()
            if folder.is_dir()
            and any(folder.glob("*.state"))
            and not folder.with_suffix(".json").exists()
        ]
        return bool(found)

    application.await_condition("a checkpoint is being taken", look)
    return found[0]
