"""Epochs that follow each other over links: settings with which they do, and how it is seen."""

import time
from collections.abc import Sequence

import readings
from application import LASTING, Application, Event, is_ahead
from harms import a_step_that_crawls, newest_of

from rekindle_spark.driver.epoch_pipeline import FOLLOWING_MAX

LINKS = {**LASTING, "exchange": "links"}
# Epochs are closer than the step that crawls lets them end. However long they are they take along
# all rows that have come: nothing follows an epoch that leaves some out.
CLOSE = {**LINKS, "epoch_seconds": 0.3, "epoch_stretch_max": 20, "checkpoint_seconds": 8}
# Epochs on their way: the one that is awaited, and at least one that follows it, or all that may.
SEVERAL, MOST = 2, FOLLOWING_MAX + 1


def while_epochs_follow(application: Application) -> None:
    """Returns when an epoch has just run, others are on their way, and states are ahead of the
    newest checkpoint."""
    with a_step_that_crawls(application):
        application.await_condition(
            "epochs follow each other", lambda: follow(application) and is_ahead(application)
        )


def follow(application: Application) -> bool:
    """Whether an epoch has just run, and others are on their way: none of these ends for a while
    where a step crawls."""
    ran = newest_of(application, "ran")
    is_early = ran is not None and time.time() < ran["at"] + readings.SLOW_SECONDS / 4
    return is_early and number_on_their_way(application.events) >= SEVERAL


def number_on_their_way(events: Sequence[Event]) -> int:
    """How many epochs were on their way at the last of these events."""
    cut, ran = (newest_epoch(events, kind) for kind in ("cut", "ran"))
    return cut - ran


def newest_epoch(events: Sequence[Event], kind: str) -> int:
    return next((int(event["epoch"]) for event in reversed(events) if event["kind"] == kind), 0)


def assert_several_were_on_their_way(application: Application, begin: int, kind: str) -> None:
    """When the first event of a kind since `begin` was written."""
    first = application.events.index(application.happened(kind, after=begin)[0], begin)
    assert number_on_their_way(application.events[:first]) >= SEVERAL


def epochs_follow_again(application: Application) -> None:
    """An epoch that followed another counts."""
    begin = application.seen
    with a_step_that_crawls(application):
        application.await_condition(
            "an epoch that followed another counts",
            lambda: any(ran["following"] for ran in application.happened("ran", after=begin)),
        )
