"""For how long queries were further behind than their goals: exact, and across drivers."""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from rekindle.report import lag
from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.output import lag_goals, output_commit
from rekindle_spark.output.lag_goals import LagGoals
from rekindle_spark.output.late_row_counts import LateCounts
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.store.commit_summary import CommitSummary, from_record
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us"))])
EPOCHS = 8


def built() -> Program:
    pipeline = Pipeline("goals")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    rows.sink("quick", lag_goal_seconds=2.0)
    rows.sink("slow")
    return program.build(pipeline)


PROGRAM = built()
QUERIES = frozenset({"quick", "slow"})


def cut(epoch: int) -> Cut:
    """One of an epoch a second."""
    return Cut(epoch, float(epoch), {"rows": (0, epoch)}, 0, 1.0, final=False)


@dataclass
class World:
    """Drivers of one store, one after the other; `now` is their clock."""

    now: float = 0.0
    fold: CommitSummary = field(default_factory=CommitSummary)
    application: Any = None
    commits: int = 0
    store_takes_seconds: float = 0.0

    def start(self, **goals: float) -> None:
        """A driver starts with these goals, as `driver_main` has it do."""
        fold = from_record({"fold": self.fold.record()})
        committed = {} if self.application is None else dict(self.application.committed)
        self.application = SimpleNamespace(
            program=PROGRAM,
            cuts={epoch: cut(epoch) for epoch in range(EPOCHS + 1)},
            committed=committed,
            late=LateCounts(PROGRAM),
            lag_goals=LagGoals.of(fold.lag_goals, QUERIES, self.now),
            lock=threading.RLock(),
            events=SimpleNamespace(dead_letters=lambda _: None, write_each=lambda *_: None),
            sinks=SimpleNamespace(wake=lambda _: None),
            store=self,
        )
        lag_goals.change(self.application, goals, self.now)

    def commit(self, record: dict[str, Any]) -> None:
        """The store has the record after some time."""
        self.now += self.store_takes_seconds
        self.commits += 1
        self.fold.take_in(self.commits, record)

    def finish(self, epoch: int) -> None:
        """The output of all epochs up to this one counts from now on."""
        finished = {"rows/0": [1, epoch, [""] * epoch]}
        record = {"at": self.now, "plan_epoch": 1, "finished": finished, "outputs": []}
        output_commit.publish(self.application, record)

    def seconds(self) -> dict[str, float]:
        """As a report has it now."""
        lag_goals.count(self.application, self.now)
        return self.application.lag_goals.beyond


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(driver_clock, "now", lambda: found.now)
    return found


def test_the_time_beyond_a_goal_is_counted_and_no_other(world: World) -> None:
    world.start(quick=2.0)
    world.now = 1.5
    assert world.seconds() == {"quick": 0.0}
    world.now = 5.0
    world.finish(4)
    assert world.seconds() == {"quick": 3.0}, "from 2 to 5; then the lag is 1 s"
    world.now = 6.5
    assert world.seconds() == {"quick": 3.5}


def test_what_is_counted_when_a_commit_is_written_does_not_count_twice(world: World) -> None:
    world.start(quick=2.0)
    world.now = 4.0
    assert world.seconds() == world.seconds() == {"quick": 2.0}
    world.finish(1)
    world.finish(2)
    assert world.seconds() == {"quick": 2.0}


def test_while_the_store_is_away_the_output_is_as_old_as_before(world: World) -> None:
    world.start(quick=2.0)
    world.now, world.store_takes_seconds = 1.0, 6.0
    world.finish(1)
    assert world.seconds() == {"quick": 5.0}, "from 2 to 7, when the record was written"


def test_the_next_driver_goes_on_from_the_newest_record(world: World) -> None:
    world.start(quick=2.0)
    world.now = 5.0
    world.finish(4)
    world.now = 5.5
    world.finish(5)
    world.now = 20.0
    world.start(quick=2.0)
    assert world.seconds() == {"quick": 3.0 + 13.0}, "nobody was there from 5.5 to 20"
    assert world.fold.lag_goals.at == 5.5
    world.finish(8)
    world.now = 21.0
    world.start(quick=2.0)
    assert world.seconds() == {"quick": 17.0}


def test_goals_change_from_their_moment_on(world: World) -> None:
    world.start(quick=2.0)
    world.now = 10.0
    lag_goals.change(world.application, {"slow": 4.0, "elsewhere": 1.0}, world.now)
    world.now = 11.0
    assert world.seconds() == {"slow": 1.0}, "not the time before it had one"
    lag_goals.change(world.application, {"quick": 20.0, "slow": 4.0}, world.now)
    world.now = 12.0
    assert world.seconds() == {"quick": 8.0, "slow": 2.0}


def test_the_time_without_a_driver_counts_by_the_goals_that_held_before(world: World) -> None:
    world.start(quick=2.0)
    lag_goals.change(world.application, {"slow": 3.0}, world.now)
    world.finish(1)
    world.now = 10.0
    world.start(quick=2.0)
    assert world.application.lag_goals.seconds == {"quick": 0.0, "slow": 6.0}
    assert world.seconds() == {"quick": 0.0}


def test_a_driver_with_a_clock_behind_the_one_before_takes_nothing_off(world: World) -> None:
    world.start(quick=2.0)
    world.now = 5.0
    world.finish(1)
    world.now = 4.0
    world.start(quick=2.0)
    assert world.seconds() == {"quick": 3.0}


def test_records_say_what_has_changed_and_nothing_where_there_are_no_goals(world: World) -> None:
    said: list[Any] = []
    world.start()
    world.application.store = SimpleNamespace(commit=said.append, commits=1)
    world.finish(1)
    lag_goals.change(world.application, {"quick": 2.0, "slow": 50.0}, world.now)
    world.now = 5.0
    world.finish(4)
    world.now = 5.5
    world.finish(5)
    lag_goals.change(world.application, {}, world.now)
    world.finish(5)
    world.finish(5)
    goals = {"quick": 2.0, "slow": 50.0}
    assert [record.get("lag_goals") for record in said] == [
        None,
        {"at": 5.0, "seconds": {"quick": 2.0, "slow": 0.0}, "goals": goals},
        {"at": 5.5, "seconds": {}},
        {"at": 5.5, "seconds": {}, "goals": {}},
        None,
    ]


STEPS = some.lists(
    some.tuples(
        some.sampled_from(["finish", "finish", "report", "restart"]),
        some.integers(0, 16).map(lambda quarters: quarters / 4),
    ),
    max_size=20,
)


@given(steps=STEPS, goal=some.sampled_from([0.25, 1.0, 3.0, 20.0]))
def test_the_count_is_what_the_report_of_a_run_computes(
    steps: list[tuple[str, float]], goal: float
) -> None:
    world, reached, known = World(), 0, list[lag.Step]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_clock, "now", lambda: world.now)
        world.start(quick=goal)
        for kind, seconds in steps:
            world.now += seconds
            if kind == "finish":
                reached = min(EPOCHS, int(world.now))
                if reached:
                    world.finish(reached)
                    known.append((world.now, reached))
            elif kind == "report":
                world.seconds()
            elif known:  # no record says anything before
                world.start(quick=goal)
        counted = world.seconds()["quick"]
    cuts = lag.Cuts.of((epoch, float(epoch)) for epoch in range(EPOCHS + 1))
    teeth = lag.sawtooth(cuts, known, 0.0, world.now)
    above = lag.above(teeth, goal, 0.0, world.now)
    assert counted == pytest.approx(lag.duration(above))
