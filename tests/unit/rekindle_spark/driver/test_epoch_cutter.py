"""Arrivals: every row belongs to exactly one epoch, and watermarks keep their promise."""

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_spark.driver import epoch_cutter
from rekindle_spark.driver.epoch_cutter import FINAL_WATERMARK, STALL_SECONDS_MAX, Cut, EpochCutter

LIMIT = 1_000_000


@dataclass
class Listed:
    """A source that is a list of event times."""

    times: list[int]
    event_time: str = "at"
    schema: pa.Schema = field(default_factory=lambda: pa.schema([("at", pa.timestamp("us"))]))

    def check(self, step: str) -> None:
        raise AssertionError(step)

    def read(self, begin: int, end: int) -> pa.Table:
        raise AssertionError((begin, end))

    def rows_at(self, event_time: int) -> int:
        return sum(time <= event_time for time in self.times)

    def event_time_at(self, offset: int) -> int:
        return self.times[min(offset, len(self.times) - 1)]


TIMES = st.lists(st.integers(0, 60), min_size=1, max_size=30).map(sorted)
STEPS = st.lists(st.floats(0, 3), min_size=1, max_size=8)


def start(*lists: list[int], rate: float = 5.0, limit: int = LIMIT) -> EpochCutter:
    sources = {f"source-{i}": Listed(times) for i, times in enumerate(lists)}
    return EpochCutter(sources, epoch_cutter.beginning(sources, 100.0, rate), limit)


@given(TIMES, TIMES, STEPS)
def test_epochs_follow_one_another_without_gap_or_overlap(
    one: list[int], other: list[int], steps: list[float]
) -> None:
    arriving, now = start(one, other), 100.0
    previous = arriving.last
    for step in steps:
        now += step
        cut = arriving.cut(now, 5.0)
        assert cut.epoch == previous.epoch + 1
        assert cut.watermark >= previous.watermark
        for name, (begin, end) in cut.offsets.items():
            assert begin == previous.offsets[name][1]
            assert begin <= end <= len(arriving.sources[name].times)  # type: ignore[attr-defined]
        previous = cut


@given(TIMES, TIMES, STEPS)
def test_no_row_comes_behind_the_watermark(
    one: list[int], other: list[int], steps: list[float]
) -> None:
    arriving, now = start(one, other), 100.0
    for step in steps:
        before = arriving.last.watermark
        now += step
        cut = arriving.cut(now, 5.0)
        for name, (begin, end) in cut.offsets.items():
            times = arriving.sources[name].times[begin:end]  # type: ignore[attr-defined]
            assert all(before < time <= cut.watermark for time in times)


@given(TIMES, st.integers(1, 4))
def test_in_the_end_all_rows_have_arrived(times: list[int], limit: int) -> None:
    arriving, seen = start(times, limit=limit), 0
    for number in range(200):
        cut = arriving.cut(101.0 + number * 10, 5.0)
        seen += cut.rows
    assert seen == len(times)


@given(
    st.floats(0.01, 3.0),
    st.lists(st.floats(0, 20), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(1, 8),
)
def test_in_the_long_run_rows_arrive_exactly_at_the_rate_however_small_it_is(
    rate: float, steps: list[float], together: int, limit: int
) -> None:
    times = [n // together for n in range(2_000)]
    arriving, now, seen = start(times, rate=rate, limit=limit), 100.0, 0
    for step in steps:
        now += step
        seen += arriving.cut(now, rate).rows
        assert seen <= (now - 100.0) * rate + 1e-6
    while rows := arriving.cut(now, rate).rows:  # what the limit has left for later
        seen += rows
    assert (now - 100.0) * rate - seen < together + 1e-6


@given(TIMES, TIMES, st.integers(1, 4), STEPS)
def test_a_cut_is_never_before_the_one_before_it_nor_in_the_future(
    one: list[int], other: list[int], limit: int, steps: list[float]
) -> None:
    arriving, now = start(one, other, rate=0.3, limit=limit), 100.0
    for step in steps:
        before = arriving.last.cut_at
        now += step
        cut = arriving.cut(now, 0.3)
        assert before <= cut.cut_at <= now
        assert 0 <= cut.row_fraction < 1


def test_more_rows_of_one_event_time_than_the_limit_wait_until_all_of_them_have_arrived() -> None:
    arriving = start([1] * 30, rate=10.0, limit=5)
    assert arriving.cut(102.0, 10.0).rows == 0
    assert not arriving.is_behind
    assert arriving.cut(103.0, 10.0).rows == 30


def test_rows_arrive_at_the_rate_of_all_sources_together() -> None:
    arriving = start(list(range(0, 1000, 2)), list(range(1, 1000, 2)), rate=20.0)
    cut = arriving.cut(102.0, 20.0)
    assert cut.rows == pytest.approx(40, abs=2)
    assert cut.cut_at == 102.0


def test_what_the_limit_leaves_out_counts_as_waiting_since_it_arrived() -> None:
    arriving = start(list(range(1000)), rate=100.0, limit=50)
    cut = arriving.cut(102.0, 100.0)
    assert cut.rows <= 50
    assert cut.cut_at == pytest.approx(100.5)
    assert arriving.cut(102.0, 100.0).cut_at == pytest.approx(101.0)


def test_a_new_rate_holds_from_the_next_epoch_on() -> None:
    arriving = start(list(range(1000)), rate=10.0)
    assert arriving.cut(101.0, 50.0).rows == pytest.approx(10, abs=1)
    assert arriving.cut(102.0, 50.0).rows == pytest.approx(50, abs=1)


def test_a_clock_that_goes_back_brings_no_rows() -> None:
    arriving = start(list(range(100)))
    assert arriving.cut(90.0, 5.0).rows == 0


def test_the_final_cut_closes_everything() -> None:
    arriving = start([1, 2, 3])
    cut = arriving.cut(105.0, 5.0, final=True)
    assert cut.final
    assert cut.watermark == FINAL_WATERMARK


def test_a_cut_reads_back_from_the_offset_log_as_it_was() -> None:
    arriving = start([1, 2, 3], [2, 4])
    cut = arriving.cut(100.5, 7.0)
    record: dict[str, Any] = json.loads(json.dumps(cut.record()))
    assert Cut.from_record(record) == cut


def test_a_record_from_before_fractions_were_kept_is_read() -> None:
    record = start([1, 2, 3]).cut(100.5, 7.0).record()
    del record["row_fraction"]
    assert Cut.from_record(record).row_fraction == 0


def test_another_drivers_cut_is_gone_on_from() -> None:
    arriving, faster = start([1, 2, 3, 4, 5, 6]), start([1, 2, 3, 4, 5, 6])
    arriving.cut(100.2, 5.0)
    stands = faster.cut(100.6, 5.0)
    assert arriving.adopt(stands.record(), 101.0) == stands
    assert arriving.cut(101.0, 5.0).offsets["source-0"][0] == stands.offsets["source-0"][1]


def test_a_cut_by_a_clock_that_was_ahead_holds_up_no_rows() -> None:
    ahead, arriving = start(list(range(100))), start(list(range(100)))
    cut = ahead.cut(3_700.0, 5.0)
    stands = arriving.adopt(cut.record(), 101.0)
    assert (stands.offsets, stands.watermark) == (cut.offsets, cut.watermark)
    assert (stands.cut_at, stands.arrived_at(["source-0"])) == (101.0, 101.0)
    assert arriving.cut(102.0, 5.0).epoch == stands.epoch + 1
    assert arriving.last.cut_at == 102.0


def test_what_has_come_during_a_stall_goes_into_several_epochs() -> None:
    arriving = start(list(range(1000)), rate=100.0)
    arriving.seconds_per_epoch_max = 0.6
    cuts = [arriving.cut(102.0, 100.0)]
    while arriving.is_behind:
        cuts.append(arriving.cut(102.0, 100.0))
    assert [cut.rows for cut in cuts] == [60, 60, 60, 20]
    assert [cut.cut_at for cut in cuts] == pytest.approx([100.6, 101.2, 101.8, 102.0])


def test_an_epoch_takes_more_than_usual_only_where_there_is_memory_for_it() -> None:
    arriving = start(list(range(1000)), rate=100.0)
    arriving.seconds_per_epoch, arriving.seconds_per_epoch_max = 0.2, 0.6
    rows = [arriving.cut(109.0, 100.0).rows]
    for proved in (10, 40, 55, 90):
        arriving.rows_proved = proved
        rows.append(arriving.cut(109.0, 100.0).rows)
    assert rows == [20, 20, 40, 55, 60]


@pytest.mark.parametrize(
    ("behind", "some", "all_run", "hurries"),
    [
        (3600.0, True, True, True),
        (STALL_SECONDS_MAX, True, False, True),
        (STALL_SECONDS_MAX + 1, True, False, False),
        (1.0, False, False, False),
    ],
    ids=["all run", "after a stall", "a long backlog", "nothing runs"],
)
def test_what_is_behind_is_cut_without_a_pause_unless_others_would_get_nothing(
    behind: float, some: bool, all_run: bool, hurries: bool
) -> None:
    arriving = start(list(range(10_000)), rate=1.0)
    arriving.seconds_per_epoch_max = 1.0
    now = 102.0 + behind
    assert arriving.cut(now, 1.0).cut_at == pytest.approx(101.0)
    assert arriving.is_behind
    assert arriving.hurries(101.0 + behind, some=some, all_run=all_run) is hurries


def test_what_is_not_behind_is_never_in_a_hurry() -> None:
    arriving = start(list(range(10_000)), rate=1.0)
    arriving.cut(102.0, 1.0)
    assert not arriving.hurries(102.0, some=True, all_run=True)


def test_an_epoch_has_a_row_at_least_however_slowly_they_come() -> None:
    arriving = start(list(range(10)), rate=0.5)
    arriving.seconds_per_epoch_max = 0.1
    assert [arriving.cut(104.0, 0.5).rows for _ in range(3)] == [1, 1, 0]
