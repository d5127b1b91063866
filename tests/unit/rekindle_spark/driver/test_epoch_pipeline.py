"""Several epochs on their way: they count in order, one by one, and never twice."""

import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.settings import RuntimeSettings, Settings
from rekindle.model.switch_mode import OFF, ON
from rekindle_spark.driver import epoch_pipeline
from rekindle_spark.driver.catch_up_loop import CatchUpLoop, CatchUpStream
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
    held: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 1})
    job: Any = field(init=False)

    def __post_init__(self) -> None:
        self.job = SimpleNamespace(
            is_linked=True, is_past_first_stage=True, held_bytes=lambda: self.held
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
            settings=Settings(),
            progress=SimpleNamespace(
                placed=dict(PLACED), retained=SimpleNamespace(held={"a": 0}), catching_up=set()
            ),
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
            assert self.may_follow(PLACED)
            self.pipeline.follow(ALONE)
        return self.pipeline

    def may_follow(self, ready: Collection[int]) -> bool:
        """Whether one more epoch may be begun, as the loop finds out."""
        return self.pipeline.has_room and self.pipeline.may_be_followed(ready)


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
                    elif executors.may_follow(PLACED):
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
    assert executors.may_follow(PLACED)
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
    assert not pipeline.has_room


@pytest.mark.parametrize(
    ("first", "second", "has_room"),
    [
        ({"a": 600, "b": 0}, {"a": 400, "b": 0}, False),
        ({"a": 999, "b": 0}, {"a": 0, "b": 999}, True),
        ({"a": 0, "driver": 700}, {"a": 0, "driver": 700}, False),
        ({"a": 2_000}, {}, False),
        ({}, {}, True),
    ],
    ids=["two-epochs", "each-process", "driver", "the-awaited-one", "nothing"],
)
def test_no_epoch_follows_while_one_process_holds_as_much_of_those_on_their_way_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
    first: dict[str, int],
    second: dict[str, int],
    has_room: bool,
) -> None:
    executors = Executors(monkeypatch)
    executors.application.settings = Settings(
        runtime=RuntimeSettings(following_mib_max=1_000 / 2**20)
    )
    pipeline = executors.begin(following=1)
    executors.sent[0].held, executors.sent[1].held = first, second
    assert pipeline.has_room == has_room
    executors.sent[0].is_well = True
    assert pipeline.poll(0.0) is not None
    executors.sent[0].held = {}
    assert pipeline.has_room, "what has counted is held no more"


def test_while_too_much_is_held_spark_is_not_asked_again_before_an_epoch_has_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executors = Executors(monkeypatch)
    executors.application.settings = Settings(
        runtime=RuntimeSettings(following_mib_max=1_000 / 2**20)
    )
    pipeline = executors.begin(following=1)
    asked: list[int] = []

    def held_bytes(of: Sent) -> dict[str, int]:
        asked.append(of.epoch)
        return {"a": 600}

    for sent in executors.sent:
        sent.job.held_bytes = partial(held_bytes, sent)
    assert [pipeline.has_room for _ in range(3)] == [False] * 3
    assert asked == [1, 2]
    executors.sent[0].is_well = True
    assert pipeline.poll(0.0) is not None
    assert pipeline.has_room
    assert asked == [1, 2, 2]


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
        application.claimed, application.joining, application.newest = set(), set(), 0
        application.moves, application.plan_epoch, application.outrun = None, 0, set()
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


class Running(Due):
    """The same loop as it runs: epochs of 100 rows end at once, and well, but for what `ends` says
    of the first ones. `work` is what jobs were sent, `ran` what was said of rows and seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: bool) -> None:
        self.ends, self.now = deque(ends), 0.0
        self.work: list[dict[int, tuple[int, int]]] = []
        self.ran: list[tuple[float, float]] = []
        self.noted: list[float] = []
        super().__init__(monkeypatch)
        application, loop = self.application, self.loop
        progress, arrivals = application.progress, application.arrivals
        application.program.upstream = lambda _: ()
        application.program.owner = dict.fromkeys(range(3), SimpleNamespace(index=0))
        application.program.sources = frozenset()
        application.events = SimpleNamespace(write=lambda *_, **__: None)
        application.cuts = {epoch: SimpleNamespace(rows=100) for epoch in range(1, 20)}
        application.sinks = SimpleNamespace(check=lambda: None, are_done=True)
        application.budget.piece_epochs = lambda _, wanted: min(wanted, 8)
        application.coming = {}
        application.held, application.epoch_seconds = {}, 0.0
        arrivals.ran = lambda rows, seconds: self.ran.append((rows, seconds))
        arrivals.last.final = False
        progress.finished, progress.suspects = dict.fromkeys(PLACED, 0), SimpleNamespace(alone=())
        progress.caught_up = lambda number, newest, gap: newest - progress.finished[number] <= gap
        loop.checkpointing.due = loop.checkpointing.within = lambda *_: None  # type: ignore
        loop.checkpointing.advance = lambda: None  # type: ignore[method-assign]
        loop.checkpointing.epoch, loop.checkpointing.state_bytes = None, {}
        loop.control.results = SimpleNamespace(put=lambda _: None)  # type: ignore[assignment]
        loop.control.report_caught_up = lambda: None  # type: ignore[method-assign]
        loop.control.fail_after = lambda *_: None  # type: ignore[method-assign]
        where = "rekindle_spark.driver.epoch_loop."
        for name in ("carry_out", "pending", "hurries_checkpoint"):
            monkeypatch.setattr(f"{where}partition_migration.{name}", lambda *_: None)
        monkeypatch.setattr(f"{where}query_stop.check", lambda _: None)
        monkeypatch.setattr(
            f"{where}time", SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None)
        )
        monkeypatch.setattr(
            "rekindle_spark.driver.epoch_pipeline.time",
            SimpleNamespace(monotonic=lambda: self.now),
        )
        monkeypatch.setattr(PriorityClasses, "begin_epoch", lambda *_, **__: None)
        monkeypatch.setattr(
            EpochLoop,
            "_note_times",
            lambda _, result, *__, **___: self.noted.append(result.seconds),
        )
        monkeypatch.setattr(EpochLoop, "_done", lambda _: self.is_done())

    def send(self, work: Any) -> Sent:
        self.work.append(dict(work))
        last = max(last for _, last in work.values())
        self.sent.append(Sent(last, self.application.losses))
        return self.sent[-1]

    def poll(self, _: Any, job: Sent, seconds: float) -> Result | None:
        job.is_well = self.ends.popleft() if self.ends else True
        result = super().poll(_, job, seconds)
        assert result is not None
        result.stages = ({},)
        if job.is_well:
            for number in self.application.progress.live:
                self.application.progress.finished[number] = job.epoch
        return result

    def is_done(self) -> bool:
        """Whether all that is cut has run."""
        return bool(self.application.newest == self.application.arrivals.last.epoch)


def test_epochs_that_were_called_off_run_again_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(monkeypatch, False)
    for _ in range(3):
        on_their_way = running.on_their_way()
    assert on_their_way == [1, 2, 3, 4]
    running.work.clear()
    running.loop.run()
    assert running.called_off == [4, 3, 2]
    assert running.work == [dict.fromkeys(PLACED, (epoch, epoch)) for epoch in range(1, 5)]
    assert running.counted == [1, 2, 3, 4]


def test_all_that_a_start_finds_in_the_log_runs_in_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(monkeypatch)
    running.loop.run()
    running.application.arrivals.last.epoch = 6
    running.loop.run()
    assert running.work[-1] == dict.fromkeys(PLACED, (2, 6))


def test_no_savepoint_is_taken_before_what_was_called_off_has_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(monkeypatch, False)
    running.on_their_way()
    running.loop.savepoint_requested = lambda: True
    asked = []
    running.loop._run_epoch(1)
    for _ in range(2):
        running.loop._save()
        asked.append(running.loop.checkpointing.is_urgent)
        running.application.newest = 2
    assert asked == [False, True]


def test_who_has_caught_up_joins_once_the_epochs_on_their_way_have_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(monkeypatch)
    application, progress = running.application, running.application.progress
    assert running.on_their_way() == [1, 2]
    progress.placed[2], progress.finished[2] = "a", 0
    progress.catching_up = {2}
    progress.program = application.program
    assert running.on_their_way() == [1, 2], "nothing follows any more"
    running.loop.run()
    assert (application.newest, running.counted) == (2, [1, 2])
    catching_up: Any = CatchUpLoop(application, running.loop.control)
    monkeypatch.setattr(
        "rekindle_spark.driver.catch_up_loop.job_specs.reachable", lambda *args: args[2]
    )
    monkeypatch.setattr(
        "rekindle_spark.driver.catch_up_loop.job_specs.together", lambda _, work: work
    )
    assert catching_up._work("a", CatchUpStream()) == {}
    application.arrivals.last.epoch = 3
    running.loop.run()
    assert running.work[-1] == {0: (3, 3), 1: (3, 3), 2: (1, 3)}
    assert progress.live == {0, 1, 2}
    assert application.joining == set()


def test_who_has_lost_its_state_meanwhile_catches_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(monkeypatch)
    application = running.application
    application.newest, application.joining = 30, {2}
    application.progress.finished[2] = 20
    assert not epoch_pipeline.has_caught_up(application, 2)


def test_as_many_epochs_as_come_during_a_piece_may_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = Running(monkeypatch).application
    application.newest, application.progress.placed[2] = 40, "b"
    for coming, gap in (({}, 1), ({"a": 0, "b": 1}, 1), ({"a": 5, "b": 0}, 5)):
        application.coming = coming
        for missing, may_join in ((gap, True), (gap + 1, False)):
            application.progress.finished[2] = 40 - missing
            assert epoch_pipeline.has_caught_up(application, 2) == may_join


def test_no_more_epochs_may_be_missing_than_there_is_memory_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = Running(monkeypatch).application
    application.newest, application.coming, application.progress.placed[2] = 40, {"a": 8}, "a"
    for most, gap in ((64, 8), (4, 4), (1, 1)):
        application.budget.piece_epochs = lambda _, wanted, most=most: min(wanted, most)
        assert epoch_pipeline.join_gap(application, 2) == gap


def test_a_job_with_epochs_that_one_who_joins_lacked_says_nothing_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(monkeypatch)
    application = running.application
    running.loop.run()
    running.ran.clear()
    application.coming, application.arrivals.last.epoch = {"a": 4}, 2
    application.progress.placed[2], application.progress.finished[2] = "a", -2
    running.loop.run()
    assert running.work[-1] == {0: (2, 2), 1: (2, 2), 2: (-1, 2)}
    assert running.ran == []


def test_an_epoch_that_failed_runs_again_without_who_is_far_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(monkeypatch, False)
    application = running.application
    application.joining = {2}
    application.progress.placed[2], application.progress.finished[2] = "a", -4
    running.loop.run()
    assert running.work == [dict.fromkeys(PLACED, (1, 1))] * 2


def test_what_counts_right_behind_a_late_epoch_says_nothing_of_how_long_rows_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(monkeypatch)
    for _ in range(3):
        running.on_their_way()
    running.now = 12.0
    running.loop.run()
    assert running.ran == [(100, 12.0), (100, 6.0), (100, 4.0), (100, 3.0)]
    assert running.noted == [12.0, 6.0, 4.0, 3.0]
    assert running.application.epoch_seconds == 3.0


def test_how_long_epochs_take_is_known_anew_once_nothing_was_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(monkeypatch)
    running.on_their_way()
    running.now = 12.0
    running.loop.run()
    running.application.arrivals.last.epoch, running.pipeline.ended_at = 3, 11.5
    running.loop.run()
    assert running.ran == [(100, 12.0), (100, 6.0), (100, 0.5)]
