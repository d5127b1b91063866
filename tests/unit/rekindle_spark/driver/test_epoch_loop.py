"""When the next epoch is due."""

import queue
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.settings import RuntimeSettings, Settings
from rekindle.model.switch_mode import OFF, ON
from rekindle_spark.driver import epoch_cutter
from rekindle_spark.driver.epoch_loop import EpochLoop
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.driver.priority_classes import PriorityClasses
from rekindle_spark.flow_control.memory_budget import MemoryReading
from rekindle_spark.jobs import job_results, job_runner
from rekindle_spark.jobs.job_runner import Result

NOW = 1_000.0


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.driver.driver_clock.now", lambda: NOW)


def cut(*, complete: bool = True, hurries: bool = False, **logged: Any) -> EpochLoop:
    """The loop of a driver of generation 2 behind a cut, with epochs of 0.5 s that are tripled in a
    recovery; the record that stands in the log has `logged`."""
    first = epoch_cutter.beginning({}, 0.0, 1.0)
    application: Any = SimpleNamespace(
        settings=Settings(runtime=RuntimeSettings(epoch_seconds=0.5, recovery_epoch_stretch=3.0)),
        progress=SimpleNamespace(complete=complete, live={1}),
        arrivals=SimpleNamespace(
            cut=lambda *_, **__: first, hurries=lambda *_, **__: hurries, adopt=lambda *_: first
        ),
        polls=None,
        store=SimpleNamespace(generation=2, log_offsets=lambda *_: logged),
        lock=threading.Lock(),
        cuts={},
        events=SimpleNamespace(write=lambda *_, **__: None),
    )
    control: Any = SimpleNamespace(rows_per_second=1.0)
    checkpointing: Any = SimpleNamespace(shared=-1)
    loop = EpochLoop(application, control, checkpointing, lambda: False, lambda: False)
    loop._cut()
    return loop


def waiting_for(*, complete: bool, hurries: bool = False) -> float:
    """Seconds from a cut to the next one."""
    return cut(complete=complete, hurries=hurries).next_cut_at - NOW


def test_epochs_are_longer_while_something_lost_is_not_back() -> None:
    assert waiting_for(complete=True) == 0.5
    assert waiting_for(complete=False) == 1.5


def test_which_epoch_an_older_driver_may_run_as_well_is_known() -> None:
    assert cut().checkpointing.shared == -1
    assert cut(generation=2).checkpointing.shared == -1
    first: epoch_cutter.Cut = epoch_cutter.beginning({}, 0.0, 1.0)
    assert cut(generation=1).checkpointing.shared == first.epoch


def test_what_a_stall_has_left_is_cut_at_once_in_a_recovery_too() -> None:
    assert waiting_for(complete=False, hurries=True) == 0.0


class Late:
    """A loop whose epoch 3 is on its way with its sources, and whose epoch 4 is due or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, due: bool = True) -> None:
        self.begun: list[int] = []
        self.given_up = Result(False, 0.0, reason="given up")
        self.application: Any = SimpleNamespace(
            cuts={3: None},
            arrivals=SimpleNamespace(last=SimpleNamespace(epoch=3)),
            paused=False,
            claimed=set(),
            held={},
            coming={},
            outrun=set(),
            joining=set(),
            buffering=ON,
            budget=SimpleNamespace(starved=set(), tight={}),
            settings=Settings(),
            program=SimpleNamespace(
                sources=frozenset({0, 1}), uncertain=frozenset({1}), parents={}
            ),
            progress=SimpleNamespace(
                live={0, 1, 2}, trailing=frozenset(), retained=SimpleNamespace(held={"a": 0})
            ),
            lock=threading.RLock(),
            events=SimpleNamespace(write=lambda kind, text: self.told.append((kind, text))),
        )
        self.told: list[tuple[str, str]] = []
        self.checkpointing: Any = SimpleNamespace(is_urgent=False)
        self.results: queue.Queue[Result] = queue.Queue()
        control: Any = SimpleNamespace(
            pump=lambda: None, results=self.results, fail_after=lambda *_: None
        )
        self.loop = EpochLoop(
            self.application, control, self.checkpointing, lambda: False, lambda: False
        )
        self.loop.next_cut_at = NOW if due else NOW + 1.0
        monkeypatch.setattr("rekindle_spark.driver.epoch_loop.time.sleep", lambda _: None)
        monkeypatch.setattr(EpochLoop, "_cut", lambda _: self.cut())
        monkeypatch.setattr("rekindle_spark.driver.epoch_loop.job_runner.start", self.start)
        monkeypatch.setattr(
            "rekindle_spark.driver.epoch_loop.job_runner.give_up", lambda *_: self.given_up
        )

    def cut(self) -> None:
        self.application.cuts[4] = None
        self.application.arrivals.last.epoch = 4

    def start(self, _: Any, work: dict[int, tuple[int, int]], *, urgency: int) -> str:
        assert (work, urgency) == ({0: (4, 4)}, job_runner.AHEAD)
        self.begun.append(4)
        return "a job"

    def poll(self, elapsed_seconds: float = 0.0, *, sources_ran: bool = False) -> list[int]:
        """The epochs that have gone ahead once epoch 3 is polled after so long."""
        began = time.monotonic() - elapsed_seconds
        self.loop._meanwhile(3, began, Result(sources_ran, 0.0))
        assert set(self.application.cuts) == {3, *self.begun}
        return self.begun


def test_the_next_epochs_sources_go_ahead_once_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch)
    late.poll()
    assert late.poll() == [4]


def test_where_an_epoch_is_in_time_nothing_goes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Late(monkeypatch, due=False).poll() == []


def stage(seconds: float) -> dict[str, job_results.TaskTiming]:
    return {
        "a": job_results.TaskTiming((0,), seconds),
        "b": job_results.TaskTiming((1,), seconds / 2),
    }


def test_sources_go_ahead_when_as_much_is_left_as_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    # in one job of 50 s, of which sources took 20
    late.loop.ahead.note(Result(False, 0.0), Result(True, 50.0, stages=(stage(20.0), stage(30.0))))
    assert late.poll(29.0) == []
    assert late.poll(9.0, sources_ran=True) == []
    assert late.poll(11.0, sources_ran=True) == [4]
    # and ahead for 20 s of a job of 40 s
    late = Late(monkeypatch)
    late.loop.ahead.note(
        Result(True, 1.0, stages=(stage(20.0),)), Result(True, 40.0, stages=(stage(39.0),))
    )
    assert late.poll(39.0) == []
    assert late.poll(41.0) == [4]


def test_what_went_ahead_of_an_epoch_that_failed_goes_again_once_one_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    late.poll()
    late.loop.attempts.count(step_error=False)
    late.loop._failed(Result(False, 0.0, reason="failed"))
    assert late.results.get_nowait() is late.given_up  # hosts say there what they have written
    assert late.poll() == [4]
    late.loop.attempts.clear()
    late.loop._meanwhile(3, 0.0, Result(False, 0.0))
    assert late.begun == [4, 4]
    assert set(late.application.cuts) == {3, 4}


@pytest.mark.parametrize(
    "change",
    [
        {"paused": True},
        {"buffering": OFF},  # nobody would keep what it makes
        {"budget": SimpleNamespace(starved={"a"}, tight={})},
        {"budget": SimpleNamespace(starved=set(), tight={"a": 0})},
    ],
)
def test_nothing_goes_ahead_where_that_would_do_harm(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    late = Late(monkeypatch)
    late.application.__dict__.update(change)
    assert late.poll() == []


def test_nothing_goes_ahead_where_much_is_kept_already(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch)
    limit_bytes = late.application.settings.runtime.retained_bytes_max
    late.application.progress.retained.held["a"] = limit_bytes // 2 + 1
    assert late.poll() == []


def test_of_a_savepoint_nothing_goes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch)
    late.checkpointing.is_urgent = True
    assert late.poll() == []


@pytest.mark.parametrize(
    ("newest", "older", "left_out", "saved"),
    [
        (3, {}, {}, True),
        (3, {1: 2}, {}, False),
        (2, {}, {}, False),
        (3, {}, {0: {"checked": 2}}, False),
    ],
)
def test_a_savepoint_is_a_checkpoint_of_the_newest_epoch_with_all_partitions(
    monkeypatch: pytest.MonkeyPatch,
    newest: int,
    older: dict[int, int],
    left_out: dict[int, dict[str, int]],
    saved: bool,
) -> None:
    late = Late(monkeypatch)
    late.application.newest = 3
    late.application.progress.restore_points = SimpleNamespace(newest=newest, older=older)
    late.application.progress.left_out = left_out
    late.checkpointing.is_urgent, late.checkpointing.is_taking = True, lambda _: False
    late.loop._save()
    assert late.loop.is_saved is saved


def test_of_the_end_nothing_goes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch)
    late.loop.final = epoch_cutter.beginning({}, 0.0, 1.0)
    assert late.poll() == []


@pytest.mark.parametrize("live", [{0, 1}, {1, 2}, {2}])
def test_only_certain_sources_go_ahead_and_only_of_others(
    monkeypatch: pytest.MonkeyPatch, live: set[int]
) -> None:
    late = Late(monkeypatch)
    late.application.progress.live = live
    assert late.poll() == []


def test_what_runs_behind_the_epochs_does_not_go_ahead_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    late.application.progress.trailing = frozenset({0})
    monkeypatch.setattr(PriorityClasses, "advance", lambda _: None)
    assert late.poll() == []


def test_no_epoch_is_cut_while_what_runs_behind_is_too_far_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    monkeypatch.setattr(PriorityClasses, "is_full", property(lambda _: True))
    assert late.poll() == []
    assert not late.loop._is_due


@pytest.mark.parametrize(
    ("live", "finished", "claimed", "held", "is_due"),
    [
        (set(), {0: 19, 1: 15}, {1}, {}, False),
        ({0}, {0: 20, 1: 15}, {1}, {}, False),
        (set(), {0: 20, 1: 19}, {1}, {}, True),
        ({0, 1}, {0: 20, 1: 20}, {2}, {}, True),
        (set(), {0: 19, 1: 15}, set(), {}, True),
        (set(), {0: 19, 1: 15}, {1}, {0: "away"}, True),
    ],
    ids=["all behind", "a source lives", "a query arrives", "others live", "idle", "source away"],
)
def test_no_epoch_is_cut_that_would_only_be_one_more_to_catch_up_with(
    monkeypatch: pytest.MonkeyPatch,
    live: set[int],
    finished: dict[int, int],
    claimed: set[int],
    held: dict[int, str],
    is_due: bool,
) -> None:
    late = Late(monkeypatch)
    monkeypatch.setattr(PriorityClasses, "is_full", property(lambda _: False))
    application = late.application
    application.newest, application.claimed, application.held = 20, claimed, held
    application.coming, application.joining, application.outrun = {}, set(), {"a"}
    application.program.output_parts = lambda number: {"late": "late/0"} if number else {}
    application.budget.piece_epochs = lambda _, epochs: epochs
    application.progress = PartitionTable(application.program)
    application.progress.live, application.progress.finished = live, finished
    application.progress.placed = dict.fromkeys(finished, "a")
    assert late.loop._is_due == is_due
    application.outrun.clear()
    assert late.loop._is_due == is_due, "it goes on until somebody arrives"


def test_epochs_are_cut_while_partitions_catch_up_by_more_than_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    monkeypatch.setattr(PriorityClasses, "is_full", property(lambda _: False))
    application = late.application
    application.newest, application.claimed = 20, {1}
    application.program.output_parts = lambda _: {"late": "late/0"}
    application.progress = PartitionTable(application.program)
    application.progress.finished, application.progress.placed = {1: 15}, {1: "a"}
    assert late.loop._is_due


def test_what_went_ahead_is_waited_for_and_its_memory_is_told_with_its_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    late.poll()
    result = Result(True, 9.0, memory={"a": MemoryReading(1, 2, 3)}, stages=(stage(1.0),))
    answers = [None, result]
    monkeypatch.setattr(
        "rekindle_spark.driver.epoch_loop.job_runner.poll", lambda *_: answers.pop(0)
    )
    taken = late.loop._result_ahead()
    assert taken.finished
    assert taken.seconds < 9.0  # how long it was waited for
    told = late.results.get_nowait()  # it is no proof that there is memory for the whole epoch
    assert (taken.memory, told.memory, told.finished) == (result.memory, result.memory, False)
    assert late.loop.ahead.job is None


def test_of_what_went_ahead_in_vain_only_the_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch)
    late.poll()
    readings = {"a": MemoryReading(1, 2, 3)}
    result = Result(False, 9.0, memory=readings, stages=(stage(1.0),), reason="a step raised")
    monkeypatch.setattr("rekindle_spark.driver.epoch_loop.job_runner.poll", lambda *_: result)
    taken = late.loop._result_ahead()
    assert (taken.finished, taken.memory, taken.stages) == (False, result.memory, ())
    assert late.told == [("job-failed", "a step raised")]


def test_sources_that_wait_for_their_turn_do_not_go_ahead_sooner_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = Late(monkeypatch).loop.ahead
    ahead.note(Result(False, 0.0), Result(True, 13.0, stages=(stage(3.0), stage(10.0))))
    for _ in range(4):  # begun 3 s before the end of the others, they end with them or 3 s later
        ahead.note(
            Result(True, 0.0, stages=(stage(6.0),)), Result(True, 10.0, stages=(stage(9.0),))
        )
    assert not ahead.is_time(6.9, sources_ran=True)
    assert ahead.is_time(7.1, sources_ran=True)


class Judged(Late):
    """A loop that has just run an epoch: whom it was given to be judged by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.paces: list[bool] = []
        self.crowded: list[bool] = []
        self.application.claimed = set()
        self.application.arrivals.drains = False
        self.application.pace = SimpleNamespace(
            epoch_took=lambda _, *, alone: self.paces.append(alone)
        )
        self.checkpointing.preserving = None
        self.loop.control.note_times = lambda _, **told: self.crowded.append(  # type: ignore[method-assign]
            told["is_crowded"]
        )
        monkeypatch.setattr(PriorityClasses, "ran", lambda *_: None)

    def start_behind(self) -> None:
        """A job of the second class begins."""
        self.application.progress.trailing = frozenset({2})
        self.application.claimed = {2}
        self.loop.classes.jobs_started += 1
        self.loop.classes.job = SimpleNamespace(  # type: ignore[assignment]
            specification=SimpleNamespace(ranges={2: (3, 3)})
        )

    def end_behind(self) -> None:
        """That job ends."""
        self.application.claimed = set()
        self.loop.classes.job = None

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """An epoch, during which something happens."""
        before = self.loop._concurrent_work()
        meanwhile()
        self.loop._note_times(Result(True, 1.0), {0: (3, 3)}, before, ahead=False)


def test_an_epoch_is_crowded_during_which_the_second_class_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = Judged(monkeypatch)

    def begin_and_end() -> None:
        judged.start_behind()
        judged.end_behind()

    steps = (lambda: None, begin_and_end, lambda: None, judged.start_behind, judged.end_behind)
    for step in steps:
        judged.run(step)
    assert judged.crowded == [False, True, False, True, True]
    assert judged.paces == [True, False, False, False, False]


def test_beside_partitions_that_catch_up_nobody_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(monkeypatch)
    judged.start_behind()
    judged.application.claimed |= {1}
    judged.run()
    judged.application.claimed -= {1}
    judged.checkpointing.preserving = SimpleNamespace()
    judged.run()
    judged.checkpointing.preserving = None
    judged.application.arrivals.drains = True
    judged.run()
    assert judged.crowded == []
    judged.application.arrivals.drains = False
    judged.run()
    assert judged.crowded == [True]
