"""Partitions that move off a node that is slow: no row changes."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from application import Application
from waiting import repeated

from rekindle_local import process_sets

Prepare = Callable[..., Application]
NEW_SECONDS = 15


@contextmanager
def standing_still_most_of_the_time(application: Application, node: str) -> Iterator[None]:
    """Its processes are stopped for nine tenths of the time: for half a second each time, which is
    far too short to be called silent, and more than others take where they have to wait."""
    executor = application.executors()[node]

    def stop_and_go() -> None:
        process_sets.signal_all(executor, signal.SIGSTOP)
        time.sleep(0.45)
        process_sets.signal_all(executor, signal.SIGCONT)

    with repeated(stop_and_go, every_seconds=0.05):
        yield


def epoch_seconds(application: Application, *, after: int) -> list[float]:
    """From the cut of each epoch since then to its commit."""
    cut = {event["epoch"]: event["at"] for event in application.happened("cut", after=after)}
    commits = {event["epoch"]: event["at"] for event in application.happened("commit", after=after)}
    return [at - cut[epoch] for epoch, at in sorted(commits.items()) if epoch in cut]


def test_a_slow_node_loses_its_partitions_with_the_reason_and_epochs_are_short_again(
    prepare: Prepare,
) -> None:
    # short epochs, so that what one node holds up is more than they may take
    application = prepare(
        runtime={
            "node_cpu_percent": 400,
            "epoch_seconds": 0.2,
            "new_executor_seconds": NEW_SECONDS,
        }
    )
    application.start_and_recover()
    victim = min(application.placement().values())
    # executors are new for a while, in which being slow says nothing
    recovered_at = application.await_event("recovered")["at"]
    application.await_condition(
        "its executors are not new any more",
        lambda: application.happened("cut")[-1]["at"] > recovered_at + NEW_SECONDS,
    )
    with standing_still_most_of_the_time(application, victim):
        begin = application.seen
        application.await_event("slow", after=begin, nodes=[victim])
        application.await_event("node-slow", after=begin, reason="slow-node")
        slowed = epoch_seconds(application, after=begin)
        application.await_event("moved", after=begin, reason="slow-node")
        application.await_condition(
            "nothing is left on it", lambda: victim not in application.placement().values()
        )
        end = application.seen
        application.await_condition(
            "epochs are run without it", lambda: len(epoch_seconds(application, after=end)) > 10
        )
        assert median(epoch_seconds(application, after=end)) < median(slowed)
        for kind in ("confirmed", "state-lost", "plan"):
            assert not application.happened(kind, after=begin)
        application.finish()
