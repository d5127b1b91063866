"""A job counts as a whole, or not at all."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.settings import RuntimeSettings, Settings
from rekindle_spark.jobs import fault_attribution, job_results, job_runner
from rekindle_spark.jobs.job_results import Result
from rekindle_spark.jobs.job_runner import RunningJob
from rekindle_spark.jobs.job_specs import Specification
from rekindle_spark.spark.spark_gateway import ExecutorSeen

COUNTED = "its results were taken for good"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, RunningJob]:
    """A job of one stage that has ended well, and the application that has submitted it."""
    specification = Specification(stages=((),), produced=((),), ranges={7: (1, 1)})
    removed: list[int] = []
    exchange = SimpleNamespace(remove=removed.extend)
    application: Any = SimpleNamespace(
        lock=threading.Lock(),
        losses=3,
        stopping=False,
        exchange=exchange,
        removed=removed,
        readers=SimpleNamespace(end=lambda _: []),
        links=SimpleNamespace(failing={}),
        machines=set(),
        progress=None,
    )
    monkeypatch.setattr(job_results, "judge", lambda *_: Result(True, 0.0))
    monkeypatch.setattr(fault_attribution, "note_deaths", lambda *_: {})

    def count(_: Any) -> None:
        raise AssertionError(COUNTED)

    monkeypatch.setattr(job_results, "outcomes", count)
    job: Any = SimpleNamespace(
        wait=lambda _: True,
        failure=lambda: "",
        reports=list,
        shuffle=lambda stage: 40 + stage,
        is_linked=False,
    )
    return application, RunningJob(specification, job, application.losses, time.monotonic(), 1)


def test_a_job_counts_once_it_has_ended(ended: tuple[Any, RunningJob]) -> None:
    with pytest.raises(AssertionError, match=COUNTED):
        job_runner.poll(*ended, 0.0)


def test_nothing_counts_of_a_job_that_ended_before_a_loss_was_seen(
    ended: tuple[Any, RunningJob],
) -> None:
    application, running = ended
    application.losses += 1
    result = job_runner.poll(application, running, 0.0)
    assert result is not None
    assert (result.finished, result.reason) == (False, "interrupted")
    assert application.removed == [40], "the frames that the job has made"


def test_a_job_follows_one_over_links_unless_something_was_lost_or_has_no_link(
    ended: tuple[Any, RunningJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    application, before = ended
    reads: list[set[int]] = []
    followed: list[Any] = []
    next_job: Any = SimpleNamespace(is_linked=True)
    jobs = [next_job, None]

    def follow(job: Any, *_: object) -> Any:
        followed.append(job)
        return jobs.pop(0)

    application.exchange.follow = follow
    application.attempts = 5

    def end(read: set[int]) -> list[int]:
        reads.remove(read)
        return [39]

    application.readers = SimpleNamespace(begin=reads.append, end=end)
    specification = before.specification
    monkeypatch.setattr(job_runner, "_specification", lambda *_: specification)
    running = job_runner.follow(application, before, {7: (2, 2)})
    assert running is not None
    assert (running.job, running.number, running.losses) == (next_job, 5, before.losses)
    assert reads == [specification.reads]
    assert job_runner.follow(application, before, {7: (2, 2)}) is None
    assert (reads, followed) == ([specification.reads], [before.job, before.job])
    assert application.removed == [39], "what nobody has read since"
    application.losses += 1
    assert job_runner.follow(application, before, {7: (2, 2)}) is None
    assert len(followed) == 2


@pytest.mark.parametrize("is_linked", [True, False])
def test_deaths_in_a_job_that_is_given_up_count_over_links(
    ended: tuple[Any, RunningJob], monkeypatch: pytest.MonkeyPatch, is_linked: bool
) -> None:
    application, running = ended
    running.job.is_linked = is_linked
    running.job.cancel = lambda _: None
    running.job.reports = lambda: [{"status": "died"}]
    noted: list[Any] = []

    def note_deaths(_: Any, reports: list[Any]) -> dict[str, int]:
        noted.extend(reports)
        return {"a": 1}

    monkeypatch.setattr(fault_attribution, "note_deaths", note_deaths)
    result = job_runner.give_up(application, running, "the epoch before failed")
    assert noted == ([{"status": "died"}] if is_linked else [])
    assert result.blamed == ({"a": 1} if is_linked else {})


def test_nodes_without_a_port_for_links_are_named_once_until_jobs_go_over_links(
    ended: tuple[Any, RunningJob],
) -> None:
    application, _ = ended
    told: list[tuple[str, list[str]]] = []
    specification = Specification(
        stages=((),), produced=(([("1", {7: (1, 1)}), ("2", {})]),), ranges={7: (1, 1)}
    )
    application.settings = Settings(runtime=RuntimeSettings(exchange="links"))
    application.events = SimpleNamespace(
        write=lambda kind, **fields: told.append((kind, fields["nodes"]))
    )
    application.links_rest_until, application.attempts = 0.0, 1
    application.unlinked, application.linkless = set(), []
    application.readers.begin = lambda _: None
    seen = [ExecutorSeen(name, f"node-{name}", 0.0) for name in "123"]
    seen[0] = replace(seen[0], linked=True)
    asked: list[object] = []

    def executors() -> list[ExecutorSeen]:
        asked.append(None)
        return seen

    application.exchange.executors = executors

    def submit(*, goes_over_links: bool, linked: bool = True) -> None:
        job = SimpleNamespace(is_linked=goes_over_links)
        application.exchange.submit = lambda *_, **__: job
        job_runner.submit(application, lambda: specification, linked=linked)

    submit(goes_over_links=False, linked=False)
    assert told == []
    for _ in range(2):
        submit(goes_over_links=False)
    assert told == [("links-missing", ["node-2"])], "3 has no part in the job"
    assert len(asked) == 1, "for the same executors the answer stays the same"
    submit(goes_over_links=True)
    submit(goes_over_links=False)
    assert told == [("links-missing", ["node-2"])] * 2
    specification = replace(specification, produced=(([("1", {7: (1, 1)}), ("2", {}), ("3", {})]),))
    submit(goes_over_links=False)
    assert told[2:] == [("links-missing", ["node-2", "node-3"])]


def test_after_a_job_over_links_that_failed_jobs_are_sparks_for_a_while(
    ended: tuple[Any, RunningJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    application, running = ended
    told: list[tuple[str, str]] = []
    linked: list[bool] = []

    def submitted(*_: object, linked: bool, into: list[bool] = linked) -> Any:
        into.append(linked)
        return SimpleNamespace(is_linked=linked)

    application.settings = Settings(runtime=RuntimeSettings(exchange="links"))
    application.events = SimpleNamespace(
        write=lambda kind, **fields: told.append((kind, fields["text"]))
    )
    application.links_rest_until, application.attempts = 0.0, 1
    application.readers.begin = lambda _: None
    application.exchange.submit = submitted
    specification = running.specification
    job_runner.submit(application, lambda: specification, linked=True)
    running.job.is_linked = True
    cut = Result(False, 0.0, reason="unreadable: took nothing", cut_links={("1", "2"): 15.0})
    monkeypatch.setattr(job_results, "judge", lambda *_: cut)
    result = job_runner.poll(application, running, 0.0)
    assert result is not None
    assert (result.linked, result.cut_links) == (True, {})
    assert told == [("links-rest", "unreadable: took nothing")]
    job_runner.submit(application, lambda: specification, linked=True)
    application.links_rest_until = time.monotonic()
    job_runner.submit(application, lambda: specification, linked=True)
    assert linked == [True, False, True]


@pytest.mark.parametrize(
    ("catching_up", "claimed", "paused", "is_steady"),
    [
        (set(), set(), False, True),
        ({3}, set(), False, False),
        (set(), {3}, False, False),
        (set(), set(), True, False),
    ],
    ids=["steady", "catching-up", "work-of-its-own", "paused"],
)
def test_loops_look_rarely_only_while_all_that_is_placed_runs(
    catching_up: set[int], claimed: set[int], paused: bool, is_steady: bool
) -> None:
    progress = SimpleNamespace(catching_up=catching_up)
    application: Any = SimpleNamespace(progress=progress, claimed=claimed, paused=paused)
    expected = job_runner.STEADY_POLL_SECONDS if is_steady else job_runner.POLL_SECONDS
    assert job_runner.poll_seconds(application) == expected
