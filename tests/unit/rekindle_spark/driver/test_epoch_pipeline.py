"""Several epochs on their way: they count in order, one by one, and never twice."""

import threading
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.settings import RuntimeSettings
from rekindle.model.switch_mode import OFF, ON
from rekindle_spark.driver import epoch_pipeline
from rekindle_spark.driver.epoch_loop import EpochLoop
from rekindle_spark.driver.epoch_pipeline import FOLLOWING_MAX, ConcurrentWork, EpochPipeline
from rekindle_spark.driver.priority_classes import PriorityClasses
from rekindle_spark.jobs import job_runner
from rekindle_spark.jobs.job_runner import Result

ALONE = ConcurrentWork(is_quiet=True, trails=False, jobs_ended=0)
PLACED = {0: "a", 1: "b"}


@dataclass
class Sent:
    """A job that executors have: how it ends, once it is known."""

    epoch: int
    losses: int
    began: float = 0.0
    is_well: bool | None = None
    job: Any = field(
        default_factory=lambda: SimpleNamespace(is_linked=True, is_past_first_stage=True)
    )


class Executors:
    """Jobs of epochs that end when a test says so; which of them counted, and which were called
    off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted: list[int] = []
        self.called_off: list[int] = []
        self.sent: list[Sent] = []
        self.application: Any = SimpleNamespace(
            begun=0,
            losses=0,
            lock=threading.RLock(),
            paused=False,
            buffering=ON,
            ordering=ON,
            program=SimpleNamespace(uncertain=frozenset()),
            budget=SimpleNamespace(starved=set(), tight={}),
            settings=SimpleNamespace(runtime=RuntimeSettings()),
            progress=SimpleNamespace(placed=dict(PLACED), retained=SimpleNamespace(held={"a": 0})),
        )
        self.pipeline = EpochPipeline(self.application)
        for name in ("start", "follow", "poll", "give_up"):
            monkeypatch.setattr(job_runner, name, getattr(self, name))

    def start(self, _: Any, work: Any, *, urgency: int, checkpoint: int | None) -> Sent:
        assert (urgency, checkpoint) == (job_runner.URGENT, None)
        return self.send(work)

    def follow(self, _: Any, before: Sent, work: Any) -> Sent:
        assert before is self.sent[-1]
        return self.send(work)

    def send(self, work: Any) -> Sent:
        ((epoch, last),) = set(work.values())
        assert epoch == last
        self.sent.append(Sent(epoch, self.application.losses))
        return self.sent[-1]

    def poll(self, _: Any, job: Sent, __: float) -> Result | None:
        assert job is self.sent[0], "only the oldest epoch may count"
        if job.losses != self.application.losses:
            job.is_well = False
        if job.is_well is None:
            return None
        del self.sent[0]
        if job.is_well:
            self.counted.append(job.epoch)
        return Result(job.is_well, 1.0)

    def give_up(self, _: Any, job: Sent, __: str) -> Result:
        assert job is self.sent.pop(), "the newest is called off first"
        self.called_off.append(job.epoch)
        return Result(False, 1.0, acknowledgements=[{"epoch": job.epoch}])

    def begin(self, *, following: int = 0) -> EpochPipeline:
        """Epoch 1 is on its way, and some behind it."""
        self.pipeline.begin(1, dict.fromkeys(PLACED, (1, 1)), ALONE, None)
        for _ in range(following):
            assert self.pipeline.may_be_followed(PLACED)
            self.pipeline.follow(ALONE)
        return self.pipeline


ENDS = st.tuples(
    st.just("ends"), st.integers(0, FOLLOWING_MAX), st.sampled_from([True, True, False])
)
STEPS = st.lists(
    st.one_of(st.just(("goes on",)), st.just(("polls",)), st.just(("lost",)), ENDS), max_size=60
)


@given(steps=STEPS)
def test_whatever_ends_first_epochs_count_in_order_and_once(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        executors = Executors(monkeypatch)
        pipeline, application = executors.pipeline, executors.application
        for step in steps:
            match step:
                case ("goes on",):
                    # as the loop does: where nothing is on its way the first that has not counted
                    if pipeline.awaited is None:
                        epoch = len(executors.counted) + 1
                        pipeline.begin(epoch, dict.fromkeys(PLACED, (epoch, epoch)), ALONE, None)
                    elif pipeline.may_be_followed(PLACED):
                        pipeline.follow(ALONE)
                case ("ends", which, is_well):
                    if which < len(executors.sent) and executors.sent[which].is_well is None:
                        executors.sent[which].is_well = is_well
                case ("lost",):
                    application.losses += 1
                case ("polls",) if pipeline.awaited is not None:
                    result = pipeline.poll(0.0)
                    if result is not None and not result.finished:
                        assert not executors.sent
                        assert pipeline.awaited is None
            on_their_way = [one.epoch for one in pipeline.begun]
            first = len(executors.counted) + 1
            assert executors.counted == list(range(1, first))
            assert on_their_way == list(range(first, first + len(on_their_way)))
            assert [one.epoch for one in executors.sent] == on_their_way
            assert len(on_their_way) <= FOLLOWING_MAX + 1


def test_what_follows_an_epoch_that_failed_is_called_off_and_only_written_states_are_known_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executors = Executors(monkeypatch)
    pipeline = executors.begin(following=2)
    executors.sent[0].is_well = False
    executors.sent[1].is_well = executors.sent[2].is_well = True
    result = pipeline.poll(0.0)
    assert result is not None
    assert not result.finished
    assert result.acknowledgements == [{"epoch": 3}, {"epoch": 2}]
    assert (executors.counted, executors.called_off) == ([], [3, 2])
    assert executors.application.begun == 1


def test_an_epoch_that_followed_takes_the_time_since_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executors = Executors(monkeypatch)
    now = 10.0
    monkeypatch.setattr("rekindle_spark.driver.epoch_pipeline.time.monotonic", lambda: now)
    pipeline = executors.begin(following=1)
    taken = []
    for ended_at in (14.0, 15.5):
        executors.sent[0].is_well, executors.sent[0].began, now = True, 10.0, ended_at
        result = pipeline.poll(0.0)
        assert result is not None
        taken.append(result.seconds)
    assert taken == [4.0, 1.5]


@pytest.mark.parametrize(
    "change",
    [
        {"paused": True},
        {"buffering": OFF},
        {"ordering": OFF},
        {"losses": 1},
        {"program": SimpleNamespace(uncertain=frozenset({1}))},
        {"budget": SimpleNamespace(starved={"a"}, tight={})},
        {"budget": SimpleNamespace(starved=set(), tight={"a": 0})},
        {
            "progress": SimpleNamespace(
                placed={0: "a", 1: "a"}, retained=SimpleNamespace(held={"a": 0})
            )
        },
        {
            "progress": SimpleNamespace(
                placed=dict(PLACED), retained=SimpleNamespace(held={"a": 1 << 60})
            )
        },
    ],
    ids=[
        "paused",
        "buffering",
        "ordering",
        "a-loss",
        "uncertain",
        "starved",
        "tight",
        "moved",
        "much-is-kept",
    ],
)
def test_no_epoch_follows_where_that_would_do_harm(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    executors = Executors(monkeypatch)
    pipeline = executors.begin()
    assert pipeline.may_be_followed(PLACED)
    executors.application.__dict__.update(change)
    assert not pipeline.may_be_followed(PLACED)


def test_only_the_same_partitions_follow_and_only_once_sources_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executors = Executors(monkeypatch)
    pipeline = executors.begin()
    assert not pipeline.may_be_followed({0})
    assert not pipeline.may_be_followed({0, 1, 2})
    executors.sent[0].job.is_past_first_stage = False
    assert not pipeline.may_be_followed(PLACED)


def test_no_epoch_follows_one_that_takes_a_backlog_along(monkeypatch: pytest.MonkeyPatch) -> None:
    executors = Executors(monkeypatch)
    pipeline = executors.pipeline
    pipeline.begin(1, dict.fromkeys(PLACED, (1, 1)), ALONE, None)
    last = pipeline.begun.pop()
    behind = epoch_pipeline.BegunEpoch(4, {0: (2, 4), 1: (4, 4)}, last.placed, last.job, ALONE)
    pipeline.begun = deque([behind])
    assert not pipeline.may_be_followed(PLACED)


class Due(Executors):
    """A loop whose epoch 1 is on its way over links, and whose epoch 2 is due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        application = self.application
        application.claimed, application.newest = set(), 0
        application.moves, application.plan_epoch = None, 0
        application.program.in_order = sorted
        application.progress.live, application.progress.trailing = set(PLACED), frozenset()
        application.arrivals = SimpleNamespace(last=SimpleNamespace(epoch=1), is_behind=False)
        self.is_coming, self.is_behind, self.is_settled = False, False, True
        checkpointing: Any = SimpleNamespace(is_urgent=False, is_coming=lambda *_: self.is_coming)
        control: Any = SimpleNamespace(pump=lambda: None)
        self.loop = EpochLoop(application, control, checkpointing, lambda: False, lambda: False)
        self.loop.pipeline = self.pipeline
        self.begin()
        monkeypatch.setattr(EpochLoop, "_cut", lambda _: self.cut())
        monkeypatch.setattr(EpochLoop, "_concurrent_work", lambda _: ALONE)
        monkeypatch.setattr(PriorityClasses, "advance", lambda _: None)
        monkeypatch.setattr(PriorityClasses, "is_settled", property(lambda _: self.is_settled))

    def cut(self) -> None:
        self.application.arrivals.last.epoch += 1
        self.application.arrivals.is_behind = self.is_behind

    def on_their_way(self) -> list[int]:
        """The epochs that are once the loop has looked whether one more is due."""
        self.loop._meanwhile(1, 0.0, Result(False, 0.0))
        return [one.epoch for one in self.pipeline.begun]


def test_over_links_an_epoch_that_is_due_follows_the_ones_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due = Due(monkeypatch)
    for _ in range(FOLLOWING_MAX + 2):
        on_their_way = due.on_their_way()
    assert on_their_way == [1, 2, 3, 4, 5]
    assert due.application.arrivals.last.epoch == 5
    assert due.application.begun == 5


def test_what_waits_for_the_end_of_all_epochs_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    due = Due(monkeypatch)
    due.is_coming = True
    assert due.on_their_way() == [1]
    due.is_coming, due.is_settled = False, False
    assert due.on_their_way() == [1]
    due.is_settled = True
    monkeypatch.setattr(
        "rekindle_spark.driver.epoch_loop.partition_migration.pending", lambda _: {0: "b"}
    )
    assert due.on_their_way() == [1]
    assert due.application.arrivals.last.epoch == 1, "rows would only wait"


def test_an_epoch_that_leaves_out_rows_waits_until_no_other_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due = Due(monkeypatch)
    due.is_behind = True
    for _ in range(2):
        assert due.on_their_way() == [1]
        assert due.application.arrivals.last.epoch == 2


def test_nothing_follows_in_a_drain_or_behind_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    due = Due(monkeypatch)
    due.loop.drains = True
    assert due.on_their_way() == [1]
    due.loop.drains = False
    due.loop.final = SimpleNamespace(epoch=1)  # type: ignore[assignment]
    assert due.on_their_way() == [1]
