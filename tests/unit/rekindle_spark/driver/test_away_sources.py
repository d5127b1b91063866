"""Sources that cannot be reached: their queries wait for so long, and nothing else does."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from log_source import SECOND, Log
from pyspark import cloudpickle

from rekindle.model.errors import InputError, RunError, SourceAwayError
from rekindle.model.settings import Settings
from rekindle_spark.driver import away_sources, source_intake
from rekindle_spark.driver.catch_up_loop import CatchUpLoop, CatchUpStream
from rekindle_spark.driver.driver_context import HeldSource
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.driver.epoch_loop import EpochLoop
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.driver.source_intake import Intake, Intakes, SourceAnswer
from rekindle_spark.executor import work_items
from rekindle_spark.executor.host import Host
from rekindle_spark.executor.source_reading import RowsRead
from rekindle_spark.jobs import job_results
from rekindle_spark.jobs.job_specs import Specification
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count

NOW = 1_000.0


def build(log: Log, readers: int = 1) -> Program:
    """Two sources with a window each: partitions 0 and 1 are sources, 2 and 3 windows, where each
    source has one reader."""
    pipeline = Pipeline("logs")
    for name in ("one", "other"):
        rows = pipeline.source(name, log, parallelism=readers)
        window = {"keys": ["key"], "size_seconds": 10, "aggregates": {"n": count()}}
        rows.window(f"{name}-counts", **window).sink(f"{name}-out")  # type: ignore[arg-type]
    return program.build(pipeline)


class World:
    """A driver's application in which everything runs; `at` is the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, readers: int = 1) -> None:
        self.at = NOW
        monkeypatch.setattr("rekindle_spark.driver.driver_clock.now", lambda: self.at)
        self.log = Log({"p": 10})
        self.told: list[tuple[str, str]] = []
        self.answers: dict[str, SourceAnswer] = {}
        self.commit_news: dict[str, str] = {}
        self.work_news: dict[str, str] = {}
        built = build(self.log, readers)
        numbers = range(len(built.partition_names))
        progress = PartitionTable(built)
        progress.placed = dict.fromkeys(numbers, "a")
        progress.live, progress.finished = set(numbers), dict.fromkeys(numbers, 4)
        intakes = {
            name: Intake(name, self.log.terms, source_intake.beginning(NOW))
            for name in ("one", "other")
        }
        self.application: Any = SimpleNamespace(
            program=built,
            progress=progress,
            held={},
            newest=5,
            lock=threading.RLock(),
            arrivals=SimpleNamespace(intakes=Intakes(intakes)),
            polls=SimpleNamespace(
                newest=lambda: self.answers,
                take_commit_news=self.take_news,
                take_work_news=lambda: self.work_news,
            ),
            claimed=set(),
            joining=set(),
            cuts={},
            settings=Settings(),
            coming={},
            budget=SimpleNamespace(piece_epochs=lambda _, wanted: wanted),
            events=SimpleNamespace(
                write=lambda kind, source, **_: self.told.append((kind, source))
            ),
        )
        self.numbers = built.numbers

    def take_news(self) -> dict[str, str]:
        news, self.commit_news = self.commit_news, {}
        return news

    def fail(self, name: str) -> None:
        fault = SourceAwayError(where="log", what="is cut off", remedy="wait")
        away_sources.hold_back(self.application, {self.numbers[name]: fault})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_what_hosts_cannot_read_waits_with_all_that_follows_and_keeps_its_place(
    world: World,
) -> None:
    world.fail("one/0")
    progress, numbers = world.application.progress, world.numbers
    assert progress.live == {numbers["other/0"], numbers["other-counts/0"]}
    assert len(progress.placed) == 4
    assert world.told == [("source-away", "one")]
    assert away_sources.is_held(world.application, numbers["one/0"])
    assert not away_sources.is_held(world.application, numbers["other/0"])


def test_it_is_tried_again_after_a_rest_and_let_go_once_it_was_read(world: World) -> None:
    world.fail("one/0")
    one = world.numbers["one/0"]
    assert not away_sources.is_due(world.application, one)
    world.at += away_sources.RETRY_SECONDS
    assert away_sources.is_due(world.application, one)
    away_sources.note_read(world.application, {one: {"epochs": [[5]]}})
    assert away_sources.is_held(world.application, one), "nothing was read: that says nothing"
    away_sources.note_read(world.application, {one: {"epochs": [[5]], "read": {"p": [1, 1, 1]}}})
    assert not away_sources.is_held(world.application, one)
    assert world.told == [("source-away", "one"), ("source-back", "one")]


def test_it_is_let_go_once_all_have_read_that_could_not_and_its_patience_lasts_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, readers=2)
    one, other = world.numbers["one/0"], world.numbers["one/1"]
    counted = {"epochs": [[5]], "read": {"p": [1, 1, 1]}}
    world.fail("one/1")
    world.at += 30
    away_sources.note_read(world.application, {one: counted})
    assert away_sources.is_held(world.application, other)
    world.fail("one/1")
    world.at += 31
    with pytest.raises(RunError, match="could not be reached for 61 s"):
        world.fail("one/1")
    assert world.told == [("source-away", "one")]
    away_sources.note_read(world.application, {other: counted})
    assert world.told == [("source-away", "one"), ("source-back", "one")]


def test_a_source_that_gets_on_with_what_takes_long_is_said_to(world: World) -> None:
    world.work_news = {"one": "counts the rows of a"}
    away_sources.heed_answers(world.application)
    assert world.told == [("source-busy", "one")]


def test_it_is_read_again_in_a_job_of_its_own_and_no_epoch_takes_it_along(world: World) -> None:
    one, other = world.numbers["one/0"], world.numbers["other/0"]
    progress = world.application.progress
    world.fail("one/0")
    progress.live.discard(other)
    progress.finished[other] = 2
    catch_up, stream = CatchUpLoop(world.application, SimpleNamespace()), CatchUpStream()  # type: ignore[arg-type]
    assert catch_up._work("a", stream) == {other: (3, 3)}
    assert catch_up._held_work("a", stream) == {}
    loop = EpochLoop(
        world.application,
        SimpleNamespace(),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        lambda: False,
        lambda: False,
    )
    assert one not in loop._work(5), "it is close behind, and would fail the epoch"
    world.at += away_sources.RETRY_SECONDS
    assert catch_up._held_work("a", stream) == {one: (5, 5)}
    del world.application.held[world.application.program.owner[one].index]
    assert one in loop._work(5)


def test_one_that_is_behind_nothing_is_let_go_after_its_rest(world: World) -> None:
    world.fail("one/0")
    world.at += away_sources.RETRY_SECONDS
    away_sources.let_go_of_finished(world.application)
    assert world.application.held, "it has epochs to read"
    world.application.progress.finished[world.numbers["one/0"]] = 5
    away_sources.let_go_of_finished(world.application)
    assert not world.application.held


def test_the_run_ends_once_a_source_was_away_for_longer_than_its_patience(world: World) -> None:
    world.fail("one/0")
    world.at += 60.0
    world.fail("one/0")
    world.at += 0.1
    with pytest.raises(RunError, match=r"step one: its source could not be reached for 60 s"):
        world.fail("one/0")


def test_a_source_that_the_driver_cannot_ask_is_told_once_and_ends_the_run_in_the_end(
    world: World,
) -> None:
    for seconds in (0.0, 30.0, 60.0):
        world.at = NOW + seconds
        world.answers = {"one": SourceAnswer(world.at, away="cut off")}
        away_sources.heed_answers(world.application)
    world.answers = {"one": SourceAnswer(NOW + 61.0, away="cut off")}
    world.at = NOW + 61.0
    with pytest.raises(RunError, match=r"could not be reached for 61 s \(cut off\)"):
        away_sources.heed_answers(world.application)
    assert world.told == [("source-away", "one")]


def test_offsets_that_cannot_be_committed_are_an_event_and_no_absence(world: World) -> None:
    world.commit_news = {"one": "Kafka: refuses it"}
    world.answers = {"one": SourceAnswer(NOW)}
    for _ in range(2):
        away_sources.heed_answers(world.application)
    assert world.told == [("source-commit-failed", "one")]


def test_where_frames_of_a_held_source_would_be_made_again_their_readers_wait_too(
    world: World,
) -> None:
    readers = {world.numbers["one-counts/0"]: (5, 5), world.numbers["other-counts/0"]: (5, 5)}
    assert away_sources.without_held(world.application, readers) == readers
    world.application.held[world.application.program.owner[0].index] = HeldSource(NOW, NOW)
    assert [*away_sources.without_held(world.application, readers)] == [
        world.numbers["other-counts/0"]
    ]


def test_a_host_says_that_a_source_is_away_and_later_what_it_has_read(tmp_path: Path) -> None:
    log = Log({"p": 10, "q": 4}, is_away=True)
    report = asked(tmp_path / "away", log)
    assert report["partitions"]["0"]["status"] == "source-away"
    assert report["partitions"]["0"]["what"] == "is cut off"
    log.is_away = False
    report = asked(tmp_path / "there", log)
    assert report["partitions"]["0"]["status"] == "ok"
    assert {name: one[:2] for name, one in report["partitions"]["0"]["read"].items()} == {
        "p": [9 * SECOND, 7],
        "q": [3 * SECOND, 4],
    }


def asked(directory: Path, log: Log) -> dict[str, Any]:
    """A host's report on an epoch that reads p from 3 to 10 and q."""
    built = build(log)
    directory.mkdir()
    (directory / "program").write_bytes(cloudpickle.dumps(built))
    partitions = (("p", 3, 10), ("q", 0, 4))
    parts = tuple(
        source_intake.PartitionCut(name, begin, end, end) for name, begin, end in partitions
    )
    cut = Cut(1, NOW, {}, 0, 1.0, False, streams={"one": source_intake.StreamCut(parts, 0, NOW)})
    request = {
        "program": [
            built.hash,
            "program",
            work_items.program_digest((directory / "program").read_bytes()),
        ],
        "generation": 1,
        "plan_epoch": 1,
        "attempt": 1,
        "store": str(directory),
        "executor": "7",
        "urgency": 0,
        "held": [0],
        "dead_letters": [3, 100, 1.0],
        "offsets": {"1": {"one": cut.input_of("one")}},
        "work": [
            {
                "partition": 0,
                "plan_epoch": 1,
                "from": 1,
                "to": 1,
                "counts": [1, 1],
                "readers": None,
                "finished": 0,
                "restore_point": 0,
                "inputs": [],
            }
        ],
    }
    report, _ = Host(os.getpid()).answer(request, memoryview(b""))
    return report


def test_a_job_that_fails_names_sources_that_were_away_and_what_was_read_of_others() -> None:
    built = build(Log({"p": 10}))
    one, other = built.numbers["one/0"], built.numbers["other/0"]
    ranges = {one: (5, 5), other: (5, 5)}
    specification = Specification((), ((("a", ranges),),), ranges)
    fault = {"where": "log", "what": "is cut off", "remedy": "wait"}
    ran = {"status": "ok", "epochs": [[5, 3, "", {}, 0]], "read": {"p": [SECOND, 3, 30]}}
    reports = [
        {
            "executor": "a",
            "status": "ok",
            "partitions": {str(one): {"status": "source-away", **fault}, str(other): ran},
        }
    ]
    result = job_results.judge(PartitionTable(built), specification, reports, "")
    assert not result.finished
    assert [*result.sources_away] == [one]
    assert result.read == {"other": {"p": RowsRead(SECOND, 3, 30)}}


def test_a_function_that_says_that_a_source_is_away_is_a_step_that_raises() -> None:
    built = build(Log({"p": 10}))
    counts = built.numbers["one-counts/0"]
    specification = Specification((), ((("a", {counts: (5, 5)}),),), {counts: (5, 5)})
    fault = {"where": "lookup", "what": "is cut off", "remedy": "wait"}
    reports = [
        {
            "executor": "a",
            "status": "ok",
            "partitions": {str(counts): {"status": "source-away", **fault}},
        }
    ]
    result = job_results.judge(PartitionTable(built), specification, reports, "")
    assert not result.sources_away
    error = result.step_errors[counts]
    assert error.where == "step one-counts"
    assert error.what.startswith("raised SourceAwayError: lookup: is cut off")


def test_a_pipeline_refuses_a_source_whose_terms_are_out_of_range() -> None:
    for wrong, text in (
        ({"lateness_seconds": -1.0}, "lateness_seconds: is -1.0"),
        ({"future_seconds_max": 2e10}, r"future_seconds_max: .*from 0 to 10,000,000,000"),
        ({"on_data_loss": "ignore"}, "on_data_loss: is 'ignore'; choose one of: fail, skip"),
        ({"rows_per_epoch_max": 0}, "rows_per_epoch_max: is 0"),
    ):
        log = Log({})
        log.terms = type(log.terms)(**wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=text):
            Pipeline("logs").source("one", log)
