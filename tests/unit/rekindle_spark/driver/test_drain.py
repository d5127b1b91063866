"""A drain: the rest of a replayed input arrives at once, in epochs within all limits."""

import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.settings import Settings
from rekindle_spark.driver import epoch_cutter
from rekindle_spark.driver.epoch_cutter import DRAIN_SECONDS_MIN, FINAL_WATERMARK, EpochCutter
from rekindle_spark.driver.epoch_loop import EpochLoop
from rekindle_spark.pipeline.replay import Replay

NOW = 1_000.0
RATE = 10.0
LIMIT = 1_000_000


def source(directory: Path, rows: int, *, repeats: bool = False) -> Replay:
    path = directory / f"{rows}-{repeats}.parquet"
    times = pa.array([1_000_000 * number for number in range(rows)], pa.timestamp("us"))
    pq.write_table(pa.table({"at": times}), path)
    return Replay(path, "at", repeat_every_seconds=rows if repeats else None)


def start(*sources: Replay, limit: int = LIMIT, seconds_max: float = math.inf) -> EpochCutter:
    """Sources of which no row has been cut; one second of their input is usual in an epoch."""
    named = {f"source-{number}": one for number, one in enumerate(sources)}
    first = epoch_cutter.beginning(named, NOW, RATE)
    return EpochCutter(named, first, limit, seconds_max, 1.0, rows_proved=LIMIT)


def drained(arriving: EpochCutter, now: float = NOW) -> list[int]:
    """Rows of each epoch of a drain at that moment, until none is left."""
    rows = []
    while arriving.rows_left():
        rows.append(arriving.cut(now, RATE, drain=True).rows)
    return rows


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return source(tmp_path_factory.mktemp("source"), 100)


def test_all_rows_arrive_at_once_and_count_as_come_now(tmp_path: Path) -> None:
    arriving = start(source(tmp_path, 100), source(tmp_path, 30))
    arriving.cut(NOW + 1, RATE)
    left = arriving.rows_left()
    assert left is not None
    assert 110 < left < 130
    cut = arriving.cut(NOW + 2, RATE, drain=True)
    assert cut.offsets == {
        "source-0": (cut.offsets["source-0"][0], 100),
        "source-1": (cut.offsets["source-1"][0], 30),
    }
    assert (cut.rows, cut.cut_at, cut.row_fraction) == (left, NOW + 2, 0.0)
    assert arriving.rows_left() == 0


@given(limit=st.integers(1, 60), steps=st.lists(st.booleans(), max_size=12))
def test_every_row_is_in_one_epoch_whenever_a_drain_begins_and_ends(
    hundred: Replay, limit: int, steps: list[bool]
) -> None:
    arriving, now = start(hundred, limit=limit), NOW
    before = arriving.last
    for drain in [*steps, *[True] * 100]:
        now += 0.3
        cut = arriving.cut(now, RATE, drain=drain)
        assert cut.offsets["source-0"][0] == before.offsets["source-0"][1]
        assert cut.rows <= limit
        assert before.watermark <= cut.watermark
        assert before.cut_at <= cut.cut_at <= now
        before = cut
    assert before.offsets["source-0"][1] == 100


def test_no_epoch_exceeds_what_epochs_may_have_or_hosts_have_been_seen_to_have_memory_for(
    hundred: Replay,
) -> None:
    assert drained(start(hundred, limit=40)) == [40, 40, 20]
    arriving = start(hundred)
    arriving.rows_proved = 25
    assert drained(arriving) == [25] * 4
    arriving = start(hundred)
    arriving.rows_proved = 0  # as after a loss
    assert drained(arriving) == [10] * 10


def test_an_epoch_has_no_more_rows_than_can_be_computed_in_time(hundred: Replay) -> None:
    arriving = start(hundred, seconds_max=3.0)
    arriving.ran(10, 0.75)  # so 40 in 3 s
    assert drained(arriving) == [40, 40, 20]
    arriving = start(hundred, seconds_max=1.0)
    arriving.ran(10, 0.5)  # so 40 in the least that it may take
    assert DRAIN_SECONDS_MIN == 2.0
    assert drained(arriving) == [40, 40, 20]
    arriving = start(hundred, seconds_max=3.0)
    arriving.ran(10, 60.0)  # no fewer than come in that time
    assert drained(arriving) == [30, 30, 30, 10]


def test_what_can_be_computed_in_time_is_no_reason_for_more_rows_without_a_drain(
    hundred: Replay,
) -> None:
    arriving = start(hundred, seconds_max=3.0)
    arriving.ran(10, 0.1)
    assert arriving.cut(NOW + 9, RATE).rows == pytest.approx(30, abs=1)


def test_epochs_follow_without_a_pause_until_nothing_is_left(hundred: Replay) -> None:
    arriving = start(hundred, limit=60)
    arriving.cut(NOW, RATE, drain=True)
    assert arriving.drains
    assert arriving.hurries(NOW, some=True, all_run=True)
    arriving.cut(NOW, RATE, drain=True)
    assert not arriving.hurries(NOW, some=True, all_run=True)
    arriving.cut(NOW, RATE, drain=True)
    assert not arriving.drains


def test_the_end_comes_with_the_last_row(hundred: Replay) -> None:
    arriving = start(hundred, limit=60)
    cuts = [arriving.cut(NOW, RATE, final=True, drain=True) for _ in range(2)]
    assert [(cut.rows, cut.final) for cut in cuts] == [(60, False), (40, True)]
    assert cuts[0].watermark < cuts[1].watermark == FINAL_WATERMARK


def test_the_end_of_what_was_drained_before_comes_at_once(hundred: Replay) -> None:
    arriving = start(hundred)
    drained(arriving)
    assert arriving.cut(NOW, RATE, final=True, drain=True).final


def test_after_a_drain_that_was_taken_back_rows_come_at_their_rate(hundred: Replay) -> None:
    arriving = start(hundred, limit=50)
    arriving.cut(NOW + 1, RATE, drain=True)
    assert arriving.cut(NOW + 2, RATE).rows == pytest.approx(10, abs=1)
    assert not arriving.drains


def test_a_source_without_an_end_is_not_drained(tmp_path: Path, hundred: Replay) -> None:
    arriving = start(source(tmp_path, 100, repeats=True), hundred)
    assert arriving.rows_left() is None
    assert arriving.cut(NOW + 1, RATE, drain=True).rows == pytest.approx(10, abs=1)
    assert not arriving.drains
    assert arriving.cut(NOW + 2, RATE, final=True, drain=True).final


class Loop:
    """An epoch loop over a source of a hundred rows that is asked to drain it, epochs of 1 s."""

    def __init__(self, hundred: Replay, *, complete: bool) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.application: Any = SimpleNamespace(
            settings=Settings(),
            progress=SimpleNamespace(complete=complete, live={1}),
            arrivals=start(hundred, limit=60),
            polls=None,
            store=SimpleNamespace(generation=1, log_offsets=lambda _, record: record),
            lock=threading.Lock(),
            cuts={},
            events=SimpleNamespace(write=lambda kind, **told: self.events.append((kind, told))),
        )
        self.drain, self.finish = True, False
        self.loop = EpochLoop(
            self.application,
            SimpleNamespace(rows_per_second=RATE),  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            lambda: self.finish,
            lambda: False,
            lambda: self.drain,
        )

    def cut(self) -> tuple[int, float]:
        """Rows of the next epoch, and how long after it the one after that is due."""
        now = self.loop.next_cut_at
        self.loop._cut()
        return self.application.arrivals.last.rows, self.loop.next_cut_at - now

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [told for one, told in self.events if one == kind]


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_spark.driver.driver_clock.now", lambda: NOW)


def test_a_drain_is_told_and_ends_the_run_where_the_end_is_asked_for(hundred: Replay) -> None:
    loop = Loop(hundred, complete=True)
    loop.finish = True
    loop.loop.next_cut_at = NOW
    assert (loop.cut(), loop.loop.final) == ((60, 0.0), None)
    assert loop.cut() == (40, 1.0)
    assert loop.loop.final is not None
    assert loop.told("drain") == [{"epoch": 1, "rows": 100}]


def test_in_a_recovery_rows_come_at_their_rate_and_the_drain_goes_on_after_it(
    hundred: Replay,
) -> None:
    loop = Loop(hundred, complete=False)
    loop.loop.next_cut_at = NOW
    assert loop.cut() == (0, 1.5)
    assert loop.told("drain") == []
    loop.application.progress.complete = True
    assert loop.cut()[0] == 60
    loop.application.progress.complete = False
    assert loop.cut()[0] == 0
    loop.application.progress.complete = True
    assert loop.cut()[0] == 40
    assert loop.told("drain") == [{"epoch": 2, "rows": 100}, {"epoch": 4, "rows": 40}]
