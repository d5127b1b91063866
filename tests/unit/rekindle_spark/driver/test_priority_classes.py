"""Which partitions run behind the epochs, when, and how far."""

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.settings import ADAPTIVE, APART, AUTO, SINGLE, Policy, RuntimeSettings, Settings
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver import priority_classes
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.driver.priority_classes import PriorityClasses, SplitRule
from rekindle_spark.jobs import job_runner
from rekindle_spark.jobs.job_runner import Result
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
# Two sources; the important query and the other one share one of them.
SHARED, IMPORTANT, OTHER, LONE = range(4)
PRIORITIES = {"important/0": 10.0, "other/0": 1.0, "lone/0": 1.0}
NEWEST = 7


def built(**terms: Any) -> Program:
    pipeline = Pipeline("classes")
    shared = pipeline.source("shared", UnreadSource(SCHEMA, "at"))
    for name in ("important", "other"):
        shared.window(
            f"counted-{name}", keys=["key"], size_seconds=1, aggregates={"n": count()}
        ).sink(name)
    lone = pipeline.source("lone-rows", UnreadSource(SCHEMA, "at"))
    lone.map("slow", lambda table: table, schema=SCHEMA, **terms).sink("lone")
    return program.build(pipeline)


@pytest.fixture
def progress() -> PartitionTable:
    """All live after epoch 7, on one executor each."""
    found = PartitionTable(built(), RestorePoints(4))
    for number, executor in ((SHARED, "a"), (IMPORTANT, "a"), (OTHER, "b"), (LONE, "b")):
        found.place(number, executor, 1)
        found.finished[number] = NEWEST
        found.live.add(number)
    return found


@pytest.mark.parametrize(
    ("priorities", "live", "first"),
    [
        (PRIORITIES, {0, 1, 2, 3}, {SHARED, IMPORTANT}),
        ({**PRIORITIES, "other/0": 8.0}, {0, 1, 2, 3}, {SHARED, IMPORTANT, OTHER}),
        (dict.fromkeys(PRIORITIES, 1.0), {0, 1, 2, 3}, {0, 1, 2, 3}),
        (PRIORITIES, {SHARED, OTHER, LONE}, {SHARED, OTHER, LONE}),
        (PRIORITIES, set(), set()),
        ({}, {0, 1, 2, 3}, set()),
    ],
)
def test_the_first_class_is_what_the_most_important_live_queries_need(
    priorities: dict[str, float], live: set[int], first: set[int]
) -> None:
    assert priority_classes.first_class(built(), live, priorities) == first


def test_soon_live_is_what_is_close_behind_the_epochs_or_behind_what_it_reads(
    progress: PartitionTable,
) -> None:
    newest, gap = 30, priority_classes.JOIN_EPOCHS_MAX
    progress.live = {SHARED}
    progress.finished |= {SHARED: 20, IMPORTANT: 20 - gap, OTHER: 19 - gap, LONE: 30 - gap}
    assert priority_classes.soon_live(progress, newest) == {IMPORTANT, LONE}
    progress.finished[LONE] -= 1
    assert priority_classes.soon_live(progress, newest) == {IMPORTANT}
    progress.live.clear()
    assert priority_classes.soon_live(progress, newest) == set(), (
        "what they read is far behind itself"
    )
    progress.finished |= {SHARED: 30, IMPORTANT: 30}
    assert priority_classes.soon_live(progress, newest) == {SHARED, IMPORTANT}
    progress.suspects.alone[SHARED] = SimpleNamespace()  # type: ignore[assignment]
    assert priority_classes.soon_live(progress, newest) == set()


def test_classes_that_are_always_apart_stay_so_whatever_they_take() -> None:
    rule = SplitRule(is_apart=True, is_fixed=True)
    for _ in range(2 * priority_classes.JOBS_TO_JOIN):
        rule.ran_behind(0.1, 0.0, is_outage=False)
        rule.ran_together(0.1, 9.9, is_outage=True)
    assert rule.is_apart


def rule_after(*epochs: tuple[float, float], is_outage: bool = False) -> SplitRule:
    rule = SplitRule()
    for first, second in epochs:
        rule.ran_together(first, second, is_outage=is_outage)
    return rule


def test_classes_run_apart_once_the_second_has_held_up_the_first_in_three_epochs_in_a_row() -> None:
    slow, quick = (0.1, 0.2), (0.1, 0.05)
    assert not rule_after(slow, slow).is_apart
    assert rule_after(slow, slow, slow).is_apart
    assert not rule_after(slow, slow, quick, slow, slow).is_apart


@pytest.mark.parametrize(
    ("first", "second", "is_outage", "is_apart"),
    [
        (0.0, 0.14, False, False),  # a job of its own would cost as much
        (0.3, 0.29, False, False),
        (0.3, 0.31, False, True),
        (0.5, 0.26, True, True),
        (0.5, 0.24, True, False),
        (0.2, 0.14, True, False),
    ],
)
def test_it_takes_less_while_something_lost_is_not_back(
    first: float, second: float, is_outage: bool, is_apart: bool
) -> None:
    assert rule_after(*[(first, second)] * 3, is_outage=is_outage).is_apart == is_apart


def test_they_run_together_again_once_the_second_has_been_quick_ten_times_in_a_row() -> None:
    rule = rule_after(*[(0.1, 0.2)] * 3)
    for second in (*[0.07] * 9, 0.08, *[0.07] * 9):
        rule.ran_behind(0.1, second, is_outage=False)
    was_apart = rule.is_apart
    rule.ran_behind(0.1, 0.07, is_outage=False)
    assert (was_apart, rule.is_apart) == (True, False)
    rule.ran_together(0.1, 0.2, is_outage=False)
    assert not rule.is_apart, "votes of one kind do not count for the other"


def piece(progress: PartitionTable, *, rows: int = 1, epochs_max: int = 16, gap: int = 1) -> Any:
    every = dict.fromkeys(range(1, 40), rows)
    return priority_classes.next_piece(progress, 30, every, epochs_max, gap)


def test_what_runs_behind_takes_on_all_that_it_is_behind_by(progress: PartitionTable) -> None:
    progress.trailing = frozenset({OTHER, LONE})
    progress.finished |= {SHARED: 30, IMPORTANT: 30}
    assert piece(progress, epochs_max=50) == {OTHER: (8, 30), LONE: (8, 30)}
    assert piece(progress) == {OTHER: (8, 23), LONE: (8, 23)}
    assert piece(progress, rows=3_000_000) == {OTHER: (8, 9), LONE: (8, 9)}


def test_it_goes_no_further_than_what_it_reads(progress: PartitionTable) -> None:
    progress.trailing = frozenset({OTHER, LONE})
    progress.finished |= {SHARED: 9, LONE: 30}
    assert piece(progress) == {OTHER: (8, 9)}


def test_one_that_has_caught_up_joins_what_runs_behind(progress: PartitionTable) -> None:
    progress.trailing = frozenset({OTHER, LONE})
    progress.finished |= {SHARED: 30, LONE: 20, OTHER: 18}
    progress.live.discard(OTHER)
    assert OTHER not in piece(progress)
    assert piece(progress, gap=2)[OTHER] == (19, 30)
    progress.finished[OTHER] = 19
    assert piece(progress)[OTHER] == (20, 30)
    progress.live.discard(SHARED)
    assert OTHER not in piece(progress), "what it reads catches up itself"
    progress.live.add(SHARED)
    progress.suspects.alone[OTHER] = SimpleNamespace()  # type: ignore[assignment]
    assert OTHER not in piece(progress)


class Behind:
    """The second class of an application whose jobs end as they are told to."""

    def __init__(
        self, progress: PartitionTable, monkeypatch: pytest.MonkeyPatch, classes: str = AUTO
    ) -> None:
        self.results: list[Result] = []
        self.started: list[tuple[dict[int, tuple[int, int]], int, int | None]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.failed: list[Result] = []
        self.rests = False
        self.slots = {"driver": 0, "a": 4, "b": 4}
        self.progress = progress
        self.application: Any = SimpleNamespace(
            program=progress.program,
            progress=progress,
            settings=Settings(runtime=RuntimeSettings(classes=classes)),
            coming={},
            joining=set(),
            newest=NEWEST,
            lock=threading.RLock(),
            claimed=set(),
            held={},
            cuts={epoch: SimpleNamespace(rows=1, cut_at=float(epoch)) for epoch in range(1, 100)},
            paused=False,
            moves=None,
            budget=SimpleNamespace(starved=set(), tight={}, piece_epochs=lambda _, wanted: wanted),
            events=SimpleNamespace(write=lambda kind, **told: self.told.append((kind, told))),
            executors={"a": "node-a", "b": "node-b"},
            exchange=SimpleNamespace(slots=lambda: self.slots),
            names=lambda numbers: [progress.program.partition_names[n] for n in sorted(numbers)],
        )
        self.control: Any = SimpleNamespace(
            priorities=PRIORITIES,
            crowded=SimpleNamespace(rests=lambda _: self.rests),
            pump=lambda: None,
            results=SimpleNamespace(put=lambda _: None),
            fail_after=lambda result, _: self.failed.append(result),
        )
        checkpointing: Any = SimpleNamespace(within=lambda _: None, epoch=None, state_bytes={})
        self.classes = PriorityClasses(self.application, self.control, checkpointing)
        monkeypatch.setattr(job_runner, "start", self._start)
        monkeypatch.setattr(job_runner, "poll", self._poll)

    def _start(
        self, _: Any, work: dict[int, tuple[int, int]], *, urgency: int, checkpoint: int | None
    ) -> Any:
        self.started.append((work, urgency, checkpoint))
        return SimpleNamespace(specification=SimpleNamespace(ranges=work))

    def _poll(self, _: Any, job: Any, __: float) -> Result | None:
        result = self.results.pop(0) if self.results else None
        if result is not None and result.finished:
            ranges = job.specification.ranges
            self.progress.finished |= {number: last for number, (_, last) in ranges.items()}
        return result

    def run_epochs(self, count: int) -> None:
        """The first class runs so many epochs."""
        self.application.newest += count
        for number in self.progress.live - self.progress.trailing:
            self.progress.finished[number] = self.application.newest

    def go_apart(self) -> None:
        """The second class is slow."""
        seconds = dict.fromkeys((SHARED, IMPORTANT), 0.1) | {OTHER: 0.1, LONE: 0.2}
        for _ in range(3):
            self.classes.ran(Result(True, 0.5, seconds_by_partition=seconds), seconds)
        self.classes.begin_epoch(together=False)


@pytest.fixture
def behind(progress: PartitionTable, monkeypatch: pytest.MonkeyPatch) -> Behind:
    found = Behind(progress, monkeypatch)
    found.go_apart()
    return found


def test_a_slow_second_class_runs_behind_the_epochs_in_one_job_at_a_time(behind: Behind) -> None:
    assert behind.progress.trailing == {OTHER, LONE}
    assert behind.told[0][0] == "classes-apart"
    behind.run_epochs(1)
    behind.classes.advance()
    behind.run_epochs(2)
    behind.classes.advance()
    assert behind.started == [({OTHER: (8, 8), LONE: (8, 8)}, job_runner.BEHIND, None)]
    assert behind.application.claimed == {OTHER, LONE}
    behind.results.append(Result(True, 1.0))
    behind.classes.advance()
    assert behind.started[1][0] == {OTHER: (9, 10), LONE: (9, 10)}


@pytest.mark.parametrize(
    ("epochs", "seconds", "wanted"),
    [(1, 0.5, 2), (4, 1.0, 8), (16, 1.0, 16), (8, 6.0, 4), (2, 40.0, 1), (1, 0.0, 2)],
)
def test_a_job_behind_is_as_large_as_takes_a_given_time(
    epochs: int, seconds: float, wanted: int
) -> None:
    assert priority_classes.next_size(epochs, seconds, 3.0) == wanted


@pytest.mark.parametrize(
    "settings",
    [
        Settings(runtime=RuntimeSettings(classes=SINGLE)),
        Settings(Policy(ordering=ADAPTIVE, buffering=ADAPTIVE), RuntimeSettings(classes=AUTO)),
        Settings(Policy(buffering=ADAPTIVE), RuntimeSettings(classes=AUTO)),
    ],
)
def test_classes_stay_together_where_that_is_wanted_or_frames_may_go(
    progress: PartitionTable, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    found = Behind(progress, monkeypatch)
    found.application.settings = settings
    found.go_apart()
    assert not progress.trailing


def test_functions_of_all_that_the_most_important_do_not_need_run_beside_hosts_with_apart(
    progress: PartitionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Behind(progress, monkeypatch, classes=APART)
    progress.live.clear()
    found.classes.advance()
    assert progress.beside == {OTHER, LONE}
    single = Behind(progress, monkeypatch)
    single.classes.advance()
    assert not single.classes.rule.is_fixed


def test_where_classes_cannot_always_be_apart_people_learn_why(
    progress: PartitionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Behind(progress, monkeypatch, classes=APART)
    found.application.settings = Settings(
        Policy(buffering=ADAPTIVE), RuntimeSettings(classes=APART)
    )
    for _ in range(2):
        found.classes.begin_epoch(together=False)
    assert progress.trailing == frozenset()
    ((kind, told),) = found.told
    assert kind == "classes-stay-together"
    assert "buffering and ordering are not both `always`" in told["text"]


def test_classes_stay_together_where_a_step_is_uncertain(
    progress: PartitionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Behind(progress, monkeypatch)
    found.application.program = built(deterministic=False)
    found.go_apart()
    assert not progress.trailing


def test_classes_stay_together_where_executors_have_too_few_task_slots_and_people_learn_why(
    progress: PartitionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Behind(progress, monkeypatch)
    found.slots["b"] = 3
    found.go_apart()
    found.go_apart()
    assert not progress.trailing
    [(kind, told)] = found.told
    assert kind == "slots-few"
    assert (told["node"], told["slots"], told["needed"]) == ("node-b", 3, 4)
    assert "spark.executor.cores" in told["text"]


def test_classes_go_apart_once_executors_with_enough_task_slots_are_there_and_not_others(
    progress: PartitionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Behind(progress, monkeypatch)
    found.slots = {"a": 4, "b": 3, "c": 5}
    found.go_apart()
    found.application.executors = {"a": "node-a", "c": "node-c"}
    found.go_apart()
    assert progress.trailing == {OTHER, LONE}
    found.application.executors["d"] = "node-d"
    found.classes.begin_epoch(together=False)
    assert progress.trailing == {OTHER, LONE}, "nothing is known of the new one"
    found.slots["d"] = 2
    found.classes.begin_epoch(together=False)
    assert not progress.trailing
    assert [kind for kind, _ in found.told] == [
        "slots-few",
        "classes-apart",
        "slots-few",
        "classes-together",
    ]


def test_who_is_in_a_job_behind_is_in_no_epoch_until_it_has_ended(behind: Behind) -> None:
    behind.run_epochs(1)
    behind.classes.advance()
    behind.classes.rule.is_apart = False
    behind.classes.begin_epoch(together=False)
    assert behind.progress.trailing == {OTHER, LONE}
    behind.results.append(Result(True, 1.0))
    behind.classes.advance()
    behind.classes.begin_epoch(together=False)
    assert not behind.progress.trailing
    assert behind.told[-1] == ("classes-together", {"epoch": 8, "behind": []})


def test_classes_are_settled_unless_the_next_epoch_would_have_others(behind: Behind) -> None:
    def is_settled() -> bool:
        return behind.classes.is_settled

    assert is_settled()
    behind.run_epochs(1)
    behind.classes.advance()
    behind.classes.rule.is_apart = False
    assert is_settled(), "a job of the second class is on its way"
    behind.results.append(Result(True, 1.0))
    behind.classes.advance()
    assert not is_settled()
    assert behind.progress.trailing == {OTHER, LONE}
    behind.classes.begin_epoch(together=False)
    assert is_settled()


def test_what_is_far_behind_runs_in_no_epoch_though_it_has_become_important(
    behind: Behind,
) -> None:
    behind.run_epochs(priority_classes.JOIN_EPOCHS_MAX + 1)
    behind.classes.rule.is_apart = False
    behind.classes.begin_epoch(together=False)
    assert behind.progress.trailing == {OTHER, LONE}
    behind.progress.finished[OTHER] += 1
    behind.classes.begin_epoch(together=False)
    assert behind.progress.trailing == {LONE}


def test_an_important_query_that_comes_back_does_not_join_what_runs_behind(
    behind: Behind,
) -> None:
    behind.control.priorities = {**PRIORITIES, "other/0": 10.0}
    behind.classes.begin_epoch(together=False)
    behind.run_epochs(1)
    behind.progress.live.discard(OTHER)
    behind.classes.begin_epoch(together=False)
    assert behind.progress.trailing == {LONE}
    behind.classes.advance()
    assert behind.started[-1][0] == {LONE: (8, 8)}


def test_what_an_important_query_that_comes_back_reads_leaves_slow_ones_behind(
    behind: Behind,
) -> None:
    behind.progress.live.discard(IMPORTANT)
    del behind.progress.placed[IMPORTANT]
    behind.control.priorities = {**PRIORITIES, "lone/0": 5.0}
    behind.classes.begin_epoch(together=False)
    assert behind.progress.trailing == {SHARED, IMPORTANT, OTHER}
    behind.run_epochs(20)
    behind.classes.piece_epochs = 1
    behind.progress.place(IMPORTANT, "a", 2)
    behind.progress.finished[IMPORTANT] = NEWEST
    votes = behind.classes.rule.votes
    behind.classes.begin_epoch(together=False)
    for spans in ((8, 23), (24, 27)):
        behind.classes.advance()
        assert behind.started[-1] == (
            {SHARED: spans, IMPORTANT: spans},
            job_runner.CATCH_UP,
            None,
        )
        behind.results.append(Result(True, 0.4))
        behind.classes.advance()
    assert behind.started[-1][0] == {OTHER: (8, 8)}
    assert behind.classes.rule.votes == votes, "they say nothing of the second class"
    behind.classes.begin_epoch(together=False)
    assert behind.progress.trailing == {OTHER, LONE}


def test_before_an_epoch_of_all_what_is_behind_has_run(behind: Behind) -> None:
    behind.run_epochs(20)
    behind.classes.piece_epochs = 12
    behind.results += [Result(True, 1.0), Result(True, 1.0)]
    behind.classes.begin_epoch(together=True)
    assert not behind.progress.trailing
    assert [work[LONE] for work, *_ in behind.started] == [(8, 19), (20, 27)]
    assert behind.progress.finished[LONE] == behind.application.newest


def test_epochs_wait_once_the_second_class_is_far_behind_and_goes_on(behind: Behind) -> None:
    behind.run_epochs(priority_classes.BEHIND_EPOCHS_MAX - 1)
    behind.classes.advance()
    was_full = behind.classes.is_full
    behind.run_epochs(1)
    assert (was_full, behind.classes.is_full) == (False, True)
    behind.classes.job = None
    assert not behind.classes.is_full, "nobody would make it less"


def test_epochs_wait_where_executors_keep_much_for_the_second_class(behind: Behind) -> None:
    behind.run_epochs(1)
    behind.classes.advance()
    limit_bytes = behind.application.settings.runtime.retained_bytes_max
    behind.progress.retained.held["a"] = limit_bytes // 2 + 1
    assert not behind.classes.is_full, "one epoch behind is as it should be"
    behind.run_epochs(1)
    assert behind.classes.is_full


def test_a_job_behind_that_failed_is_judged_and_comes_again_after_a_rest(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_classes, "RETRY_SECONDS", 0.0)
    behind.run_epochs(1)
    behind.classes.advance()
    result = Result(False, 1.0, reason="a step raised")
    behind.results.append(result)
    behind.classes.advance()
    assert behind.failed == [result]
    assert len(behind.started) == 2
    behind.results.append(Result(False, 1.0, reason="interrupted"))
    behind.classes.advance()
    assert behind.failed == [result]
    assert not behind.application.claimed - {OTHER, LONE}


def test_no_job_behind_begins_while_partitions_are_to_move(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = [True, False]
    monkeypatch.setattr(
        "rekindle_spark.control.partition_migration.wait_for_jobs", lambda *_: moves.pop(0)
    )
    behind.application.moves = SimpleNamespace()
    behind.run_epochs(1)
    behind.classes.advance()
    assert not behind.started
    behind.classes.advance()
    assert len(behind.started) == 1


def test_what_was_held_back_meanwhile_is_not_live_again(behind: Behind) -> None:
    behind.run_epochs(1)
    behind.classes.advance()
    behind.progress.hold_back([SHARED])
    behind.results.append(Result(True, 1.0))
    behind.classes.advance()
    assert behind.progress.live == {LONE}


def test_hosts_without_memory_for_an_epoch_run_nothing_behind_it(behind: Behind) -> None:
    behind.application.budget.starved = {"b"}
    behind.run_epochs(1)
    behind.classes.advance()
    assert not behind.started


def test_while_executors_are_in_doubt_no_job_behind_begins(behind: Behind) -> None:
    behind.rests = True
    behind.run_epochs(1)
    behind.classes.advance()
    assert not behind.started
    behind.rests = False
    behind.classes.advance()
    assert len(behind.started) == 1


def test_no_doubt_keeps_the_second_class_from_the_end_or_lets_it_fall_behind(
    behind: Behind,
) -> None:
    behind.rests = True
    behind.run_epochs(priority_classes.BEHIND_EPOCHS_MAX)
    behind.classes.advance()
    assert len(behind.started) == 1
    behind.results.append(Result(True, 1.0))
    behind.classes.advance()
    behind.run_epochs(1)
    behind.classes.piece_epochs = 80
    behind.results.append(Result(True, 1.0))
    behind.classes.begin_epoch(together=True)
    assert not behind.progress.trailing
    assert behind.progress.finished[LONE] == behind.application.newest


def test_jobs_that_end_and_begin_in_an_epoch_are_counted(behind: Behind) -> None:
    assert (behind.classes.jobs_started, behind.classes.jobs_ended) == (0, 0)
    behind.run_epochs(1)
    behind.classes.advance()
    assert (behind.classes.jobs_started, behind.classes.jobs_ended) == (1, 0)
    assert behind.classes.claimed == {OTHER, LONE}
    behind.results.append(Result(True, 1.0))
    behind.classes.advance()
    assert (behind.classes.jobs_started, behind.classes.jobs_ended) == (1, 1)
