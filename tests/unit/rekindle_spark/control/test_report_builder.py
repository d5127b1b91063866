"""What a driver says of its executors' silence, and when that is worth a report of its own."""

import itertools
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec

from rekindle.protocol import NodeSeen, ProgressReport, SourceSeen
from rekindle_spark.control import report_builder
from rekindle_spark.control.executor_membership import Membership
from rekindle_spark.driver import source_intake
from rekindle_spark.driver.driver_context import HeldSource
from rekindle_spark.driver.source_intake import Intake, Intakes
from rekindle_spark.pipeline.unbounded_source import SourceTerms
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


def test_a_source_is_news_when_it_goes_and_comes_and_not_while_it_is_away() -> None:
    gists = [
        report_builder.gist(
            msgspec.structs.replace(report(), sources={"orders": SourceSeen(away=text)})
        )
        for text in ("", "has not answered for 31 s", "has not answered for 32 s", "")
    ]
    assert [one != next_one for one, next_one in itertools.pairwise(gists)] == [True, False, True]


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


class HeldSources(dict[int, HeldSource]):
    """What is held; while somebody goes through it, another thread lets one go if it may."""

    lock = threading.RLock()

    def items(self) -> Iterator[tuple[int, HeldSource]]:  # type: ignore[override]
        for one in super().items():
            yield one
            thread = threading.Thread(target=self._let_go)
            thread.start()
            thread.join()

    def _let_go(self) -> None:
        if self.lock.acquire(blocking=False):
            self.pop(0, None)
            self.lock.release()


def test_sources_that_are_let_go_meanwhile_end_no_report() -> None:
    intakes = {name: Intake(name, SourceTerms(), source_intake.beginning(1_000.0)) for name in "ab"}
    held = HeldSources({n: HeldSource(1_000.0, 1_002.0, "is cut off") for n in range(2)})
    application: Any = SimpleNamespace(
        program=SimpleNamespace(chains=[SimpleNamespace(source=name) for name in "ab"]),
        held=held,
        lock=held.lock,
        arrivals=SimpleNamespace(intakes=Intakes(intakes)),
    )
    found = report_builder.sources(application, 1_010.0)
    assert {name: one.away for name, one in found.items()} == {"a": "is cut off", "b": "is cut off"}
