"""What a driver says of its executors' silence, and when that is worth a report of its own."""

import itertools
from types import SimpleNamespace
from typing import Any

import msgspec

from rekindle.protocol import NodeSeen, ProgressReport
from rekindle_spark.control import report_builder
from rekindle_spark.control.executor_membership import Membership
from rekindle_spark.spark.spark_gateway import ExecutorSeen


def report(*, sequence: int = 1, **silent_seconds: float) -> ProgressReport:
    nodes = {
        name: NodeSeen(incarnation="1.0", capacity_percent=100.0, silent_seconds=seconds)
        for name, seconds in silent_seconds.items()
    }
    return ProgressReport(generation=1, sequence=sequence, nodes=nodes, placement={}, live=())


def test_a_heartbeat_and_a_new_number_are_no_news() -> None:
    before, after = report(sequence=1, a=0.2, b=0.9), report(sequence=2, a=1.1, b=0.0)
    assert report_builder.gist(before) == report_builder.gist(after)
    late = msgspec.structs.replace(before, late_rows={"counts": 3})
    assert report_builder.gist(late) == report_builder.gist(before), "they may come with each epoch"
    slower = msgspec.structs.replace(before, epoch_seconds=2.5)
    assert report_builder.gist(slower) == report_builder.gist(before)
    away = msgspec.structs.replace(before, store_away_at=1_000.0)
    assert report_builder.gist(away) != report_builder.gist(before), "somebody has to be woken"


def test_silence_is_news_whenever_it_passes_a_multiple_of_five_seconds() -> None:
    gists = [
        report_builder.gist(report(a=seconds)) for seconds in (4.9, 5.0, 9.9, 10.1, 14.9, 15.0)
    ]
    news = [one != next_one for one, next_one in itertools.pairwise(gists)]
    assert news == [True, False, True, False, True]


def membership(listening_seconds: float) -> Membership:
    joined: Any = SimpleNamespace(executors={"1": "10.0.0.7"})
    return Membership(
        joined,
        looked_at=1_000.0,
        listening_since=1_000.0 - listening_seconds,
        seen=[
            ExecutorSeen("1", "10.0.0.7", 12.0, "worker-3"),
            ExecutorSeen("2", "10.0.0.8", 0.1, "worker-4"),
        ],
    )


def test_only_executors_that_have_joined_are_told_of() -> None:
    sightings = membership(listening_seconds=100.0).sightings()
    assert sightings == {"1": ExecutorSeen("1", "10.0.0.7", 12.0, "worker-3")}


def test_silence_counts_only_while_the_driver_listened() -> None:
    assert membership(listening_seconds=3.0).sightings()["1"].silent_seconds == 3.0
