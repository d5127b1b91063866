"""Slow executors: told by when their tasks end beside those of others, and only when it matters."""

import pytest

from rekindle_spark.flow_control import stragglers
from rekindle_spark.jobs import job_results
from rekindle_spark.jobs.job_results import TaskTiming

NAMES = ("a", "b", "c")
EVEN = dict.fromkeys(NAMES, 1.0)


class Course:
    """Three executors that are not new any more, and a clock."""

    def __init__(self) -> None:
        self.stragglers, self.now = stragglers.Stragglers(), 1000.0
        self.stragglers.look(NAMES, self.now)
        self.now += stragglers.NEW_SECONDS

    def run(
        self,
        seconds: float,
        *stages: dict[str, float],
        target: float = 1.0,
        ahead: bool = False,
        **work: float,
    ) -> frozenset[str]:
        """Epochs of these stages, one each second, for so long; who is slow then. Each executor has
        one partition, which costs its `work`."""
        took = sum(max(stage.values()) for stage in stages)
        tasks = [
            {name: TaskTiming((NAMES.index(name),), took) for name, took in stage.items()}
            for stage in stages
        ]
        costs = {NAMES.index(name): cost for name, cost in (work or EVEN).items()}
        epoch = stragglers.Epoch(took, target, tasks, costs, ahead)
        for _ in range(int(seconds) + 1):
            self.now += 1.0
            self.stragglers.look(NAMES, self.now)
            self.stragglers.add(epoch, self.now)
        return self.stragglers.slow


USUAL = {"a": 0.2, "b": 0.25, "c": 0.2}
C_LATE = {"a": 0.2, "b": 0.2, "c": 1.0}


def test_an_executor_that_holds_up_epoch_after_epoch_is_slow() -> None:
    course = Course()
    assert course.run(stragglers.WINDOW_SECONDS - 2, C_LATE, USUAL) == set()
    assert course.run(3, C_LATE, USUAL) == {"c"}


@pytest.mark.parametrize(
    ("stages", "work", "target", "why"),
    [
        ((USUAL, USUAL), EVEN, 0.1, "all are as slow"),
        ((C_LATE, USUAL), EVEN, 3.0, "the epoch keeps its time"),
        ((C_LATE, USUAL), {"a": 1.0, "b": 1.0, "c": 5.0}, 1.0, "it has so much more to do"),
        (({"a": 0.2, "b": 0.3, "c": 0.5}, USUAL), EVEN, 0.1, "it is not late by much"),
        (({"a": 0.01, "b": 0.01, "c": 0.1}, {"a": 2.0, "b": 2.0}), EVEN, 1.0, "it holds little up"),
        (({"c": 2.0}, USUAL), EVEN, 1.0, "there is nobody beside whom it is late"),
    ],
    ids=str,
)
def test_one_is_not_slow_when(
    stages: tuple[dict[str, float], ...], work: dict[str, float], target: float, why: str
) -> None:
    assert Course().run(3 * stragglers.WINDOW_SECONDS, *stages, target=target, **work) == set(), why


def test_now_and_then_is_not_slow() -> None:
    course = Course()
    for _ in range(10):
        assert course.run(2, C_LATE, USUAL) == set()
        assert course.run(2, USUAL, USUAL) == set()


def test_an_epoch_that_is_short_for_its_sources_went_ahead_excuses_nobody() -> None:
    course = Course()
    for _ in range(int(stragglers.WINDOW_SECONDS) + 1):
        course.run(0, C_LATE, USUAL)
        course.run(0, USUAL, ahead=True)
    assert course.stragglers.slow == {"c"}


def test_a_long_epoch_that_somebody_was_in_time_for_counts_with_sources_ahead_too() -> None:
    course = Course()
    for _ in range(3 * int(stragglers.WINDOW_SECONDS)):
        course.run(0, C_LATE, USUAL, ahead=True)
        course.run(0, {"a": 0.7, "b": 0.7, "c": 0.8}, USUAL, {"a": 0.7, "b": 0.7}, ahead=True)
    assert course.stragglers.slow == set()


@pytest.mark.parametrize(("ahead", "slow"), [(True, set()), (False, {"c"})])
def test_sources_ahead_may_be_late_by_all_that_their_executor_does(
    ahead: bool, slow: set[str]
) -> None:
    course = Course()
    sources = {"a": 0.1, "b": 0.1, "c": 0.5}
    others = {"c": 1.0}
    took = course.run(stragglers.WINDOW_SECONDS + 3, sources, others, ahead=ahead)
    assert took == slow


def test_a_new_executor_is_not_judged_while_its_code_is_compiled() -> None:
    course = Course()
    course.stragglers.look(("a", "b"), course.now)
    course.stragglers.look(NAMES, course.now)
    assert course.run(stragglers.NEW_SECONDS - 2, C_LATE, USUAL) == set()
    assert course.run(stragglers.WINDOW_SECONDS + 2, C_LATE, USUAL) == {"c"}


def test_one_that_does_well_for_long_is_slow_no_more() -> None:
    course = Course()
    course.run(stragglers.WINDOW_SECONDS + 1, C_LATE, USUAL)
    assert course.run(stragglers.FINE_SECONDS - 2, USUAL, USUAL) == {"c"}
    assert course.run(4, USUAL, USUAL) == set()


def test_one_that_is_late_with_the_little_that_is_left_stays_slow() -> None:
    course = Course()
    course.run(stragglers.WINDOW_SECONDS + 1, C_LATE, USUAL)
    little = {"a": 0.1, "b": 0.1, "c": 0.5}
    assert course.run(2 * stragglers.FINE_SECONDS, little, little, target=3.0) == {"c"}


def test_one_without_work_is_tried_again_after_a_while_that_grows() -> None:
    course = Course()
    relieved = {"a": 0.3, "b": 0.3}
    for times in (1, 2, 4):
        course.run(stragglers.WINDOW_SECONDS + 1, C_LATE, USUAL)
        assert course.run(times * stragglers.UNTRIED_SECONDS - 2, relieved, relieved) == {"c"}
        assert course.run(4, relieved, relieved) == set()


def test_an_executor_that_has_gone_is_forgotten() -> None:
    course = Course()
    course.run(stragglers.WINDOW_SECONDS + 1, C_LATE, USUAL)
    course.stragglers.look(("a", "b"), course.now)
    assert course.stragglers.slow == set()


def test_a_tasks_time_begins_when_the_stage_before_has_ended() -> None:
    produced = [
        [("a", {0: (5, 5), 1: (5, 5)}), ("b", {2: (5, 5)})],
        [("a", {3: (5, 5)}), ("b", {4: (5, 5)})],
    ]
    reports = [
        {"executor": "b", "partitions": {"2": {}}, "arrived": 0.5},
        {"executor": "a", "partitions": {"0": {}, "1": {}}, "arrived": 0.25},
        {"executor": "b", "partitions": {"4": {}}, "arrived": 0.75},
        {"executor": "a", "partitions": {"3": {}}, "arrived": 1.5},
    ]
    assert job_results.stages(produced, reports) == (
        {"a": TaskTiming((0, 1), 0.25), "b": TaskTiming((2,), 0.5)},
        {"a": TaskTiming((3,), 1.0), "b": TaskTiming((4,), 0.25)},
    )


def test_a_task_that_was_run_again_elsewhere_took_nobody_any_time() -> None:
    produced = ((("a", {0: (1, 1)}),),)
    reports = [
        {"executor": "a", "partitions": {"0": {}}, "arrived": 0.2},
        {"executor": "a", "status": "refused", "text": "ran on executor b", "arrived": 0.9},
    ]
    assert job_results.stages(produced, reports) == ({"a": TaskTiming((0,), 0.2)},)


def test_a_roll_call_took_nobody_any_time() -> None:
    produced = ((("a", {}), ("b", {})),)
    reports = [{"executor": name, "partitions": {}, "arrived": 0.1} for name in "ab"]
    assert job_results.stages(produced, reports) == ({},)


class CrowdedCourse:
    """Epochs that run beside the second class, one each second, in which `c` is late or not."""

    def __init__(self) -> None:
        self.crowded, self.now = stragglers.CrowdedEpochs(stragglers.Stragglers()), 1000.0
        self.crowded.stragglers.look(NAMES, self.now)
        self.now += stragglers.NEW_SECONDS

    def run(
        self, seconds: float, stage: dict[str, float], *known: str, may_rest: bool = True
    ) -> set[str]:
        """For so long; of whom there was doubt, where some are known to be slow."""
        tasks = [{name: TaskTiming((0,), took) for name, took in stage.items()}]
        epoch, found = stragglers.Epoch(max(stage.values()), 0.1, tasks, {0: 1.0}), set[str]()
        for _ in range(int(seconds) + 1):
            self.now += 1.0
            self.crowded.stragglers.look(NAMES, self.now)
            found |= self.crowded.add(epoch, frozenset(known), self.now, may_rest=may_rest)
        return found

    def run_clean(self, seconds: float) -> None:
        """Epochs without the second class, for so long."""
        for _ in range(int(seconds) + 1):
            self.now += 1.0
            self.crowded.ran_clean(self.now)

    @property
    def rests(self) -> bool:
        """Whether the second class rests."""
        return self.crowded.rests(self.now)


def test_one_that_is_late_beside_the_second_class_is_in_doubt_until_epochs_ran_alone() -> None:
    course = CrowdedCourse()
    assert (course.run(stragglers.WINDOW_SECONDS - 2, C_LATE), course.rests) == (set(), False)
    assert course.run(3, C_LATE) == {"c"}
    assert course.rests
    course.run_clean(stragglers.WINDOW_SECONDS - 2)
    assert course.rests
    course.run_clean(2)
    assert not course.rests


def test_the_second_class_rests_again_only_after_a_long_time_and_not_for_long() -> None:
    course = CrowdedCourse()
    course.run(stragglers.WINDOW_SECONDS + 1, C_LATE)
    course.run_clean(stragglers.WINDOW_SECONDS + 1)
    assert course.run(stragglers.DOUBT_SECONDS - stragglers.WINDOW_SECONDS, C_LATE) == set()
    assert course.run(stragglers.WINDOW_SECONDS + 1, C_LATE) == {"c"}
    course.now += stragglers.REST_SECONDS_MAX  # as in an outage: no epoch runs without other work
    assert not course.rests


def test_no_rest_is_told_that_the_second_class_cannot_have() -> None:
    course = CrowdedCourse()
    assert course.run(2 * stragglers.WINDOW_SECONDS, C_LATE, may_rest=False) == set()
    assert not course.rests
    assert course.run(1, C_LATE) == {"c"}
    assert course.rests


def test_one_that_is_known_to_be_slow_stays_so_for_as_long_as_that_is_found_again() -> None:
    course = Course()
    assert course.run(stragglers.WINDOW_SECONDS + 1, C_LATE, USUAL) == {"c"}
    until = course.now + 2 * stragglers.UNTRIED_SECONDS
    while course.now < until:
        course.now += stragglers.UNTRIED_SECONDS / 4
        course.stragglers.keep({"c", "unknown"}, course.now)
        course.stragglers.look(NAMES, course.now)
    assert course.stragglers.slow == {"c"}
    course.stragglers.look(NAMES, course.now + stragglers.UNTRIED_SECONDS + 1)
    assert course.stragglers.slow == set()


def test_who_is_in_time_or_known_to_be_slow_gives_no_doubt() -> None:
    course = CrowdedCourse()
    assert course.run(3 * stragglers.WINDOW_SECONDS, USUAL) == set()
    assert course.run(3 * stragglers.WINDOW_SECONDS, C_LATE, "c") == set()
    assert not course.rests
