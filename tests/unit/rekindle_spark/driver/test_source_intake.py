"""Intake: every offset belongs to exactly one epoch, and decisions stand with the epoch."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import DataLossError
from rekindle_spark.driver import source_intake
from rekindle_spark.driver.epoch_cutter import FINAL_WATERMARK, Cut, EpochCutter, beginning
from rekindle_spark.driver.source_intake import Intake, Intakes, Lost, SourceAnswer, StreamCut
from rekindle_spark.executor.source_reading import RowsRead
from rekindle_spark.operators.watermarks import INITIAL_WATERMARK
from rekindle_spark.pipeline.unbounded_source import FAIL, SKIP, PartitionOffsets, SourceTerms

SECOND = 1_000_000
MANY = 10**9


def start(**terms: object) -> Intake:
    return Intake("flights", SourceTerms(**terms), source_intake.beginning(100.0))  # type: ignore[arg-type]


def answer(at: float, oldest: int = 0, **latest: int) -> SourceAnswer:
    return SourceAnswer(at, {name: PartitionOffsets(oldest, end) for name, end in latest.items()})


def cut(one: Intake, now: float, rows_max: int = MANY) -> StreamCut:
    return Intakes({one.step: one}).cut(now, rows_max)[one.step]


def read(one: Intake, **greatest: int) -> None:
    one.note({name: RowsRead(seconds * SECOND, 10, 1_000) for name, seconds in greatest.items()})


def spans(found: StreamCut) -> list[list[object]]:
    return [span[:3] for span in found.spans if span[1] != span[2]]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=6),
    st.integers(2, 12),
)
def test_ranges_follow_one_another_without_gap_or_overlap_and_keep_to_the_limit(
    steps: list[tuple[int, int, bool]], limit: int
) -> None:
    one, ends, latest, now = start(), {"a": 0, "b": 0}, {"a": 0, "b": 0}, 100.0
    for more, other, away in steps:
        now += 1.0
        latest = {"a": latest["a"] + more, "b": latest["b"] + other}
        one.heed(SourceAnswer(now, away="cut off") if away else answer(now, **latest))
        found = cut(one, now, limit)
        assert found.rows <= limit
        assert not (away and found.rows)
        for span in found.partitions:
            assert span.begin == ends[span.partition]
            assert span.begin <= span.end <= latest[span.partition]
            ends[span.partition] = span.end
    for _ in range(sum(latest.values())):
        now += 1.0
        one.heed(answer(now, **latest))
        for span in cut(one, now, limit).partitions:
            ends[span.partition] = span.end
    assert ends == latest


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**12)), st.integers(1, 10**12))
def test_shares_are_in_proportion_and_leave_nothing_that_fits(
    wanted: dict[str, int], most: int
) -> None:
    granted = source_intake.shares(wanted, most)
    total = sum(wanted.values())
    assert sum(granted.values()) == min(total, most)
    for key, number in granted.items():
        assert 0 <= number <= wanted[key]
        assert abs(number - wanted[key] * min(1.0, most / max(1, total))) <= 1 + wanted[key] * 1e-9


def test_the_watermark_is_the_least_of_all_source_partitions_less_the_lateness() -> None:
    one = start(lateness_seconds=3)
    one.heed(answer(101.0, a=10, b=10))
    assert cut(one, 101.0).watermark == INITIAL_WATERMARK
    read(one, a=50)
    one.heed(answer(102.0, a=20, b=20))
    assert cut(one, 102.0).watermark == INITIAL_WATERMARK, "nothing of b is known yet"
    read(one, a=60, b=40)
    one.heed(answer(103.0, a=20, b=20))
    assert cut(one, 103.0).watermark == 37 * SECOND


def test_rows_that_are_ahead_are_an_event_when_they_begin_and_again_after_a_quiet_minute() -> None:
    one = start(future_seconds_max=7_200)
    several = Intakes({one.step: one})
    ahead = {"flights": {"a": RowsRead(None, 9, 90, 1), "b": RowsRead(5, 9, 90, 3)}}
    none = {"flights": {"a": RowsRead(5, 9, 90)}, "another": {"a": RowsRead(5, 9, 90, 4)}}
    assert several.ahead(none, 100.0) == []
    assert several.ahead(ahead, 101.0) == [
        {"source": "flights", "source_partition": "b", "rows": 4, "future_seconds_max": 7_200}
    ]
    assert several.ahead(ahead, 150.0) == []
    assert several.ahead(ahead, 209.0) == []
    assert len(several.ahead(ahead, 269.0)) == 1


def test_a_row_out_of_order_takes_no_watermark_back() -> None:
    one = start()
    for now, seconds in ((101.0, 50), (102.0, 40)):
        one.heed(answer(now, a=10))
        cut(one, now)
        read(one, a=seconds)
    one.heed(answer(103.0, a=10))
    assert cut(one, 103.0).watermark == 50 * SECOND


def test_a_partition_with_nothing_to_read_holds_the_watermark_until_it_is_idle() -> None:
    one = start(idle_seconds=10)
    one.heed(answer(101.0, a=10, b=0))
    cut(one, 101.0)
    read(one, a=50)
    for now in (105.0, 111.0):
        one.heed(answer(now, a=10 + int(now), b=0))
        held = cut(one, now)
        assert not any(part.idle for part in held.partitions)
        assert held.watermark == INITIAL_WATERMARK
    one.heed(answer(111.5, a=200, b=0))
    found = cut(one, 111.5)
    assert {part.partition: part.idle for part in found.partitions} == {"a": False, "b": True}
    assert found.watermark == 50 * SECOND


def test_the_time_in_which_a_source_is_away_makes_nothing_idle() -> None:
    one = start(idle_seconds=10)
    one.heed(answer(101.0, a=10, b=0))
    cut(one, 101.0)
    read(one, a=50)
    one.heed(SourceAnswer(102.0, away="cut off"))
    for now in (105.0, 150.0):
        found = cut(one, now)
        assert found.away
        assert found.watermark == INITIAL_WATERMARK
    one.heed(answer(151.0, a=20, b=0))
    assert cut(one, 151.0).watermark == INITIAL_WATERMARK


def test_a_driver_that_was_away_for_long_takes_no_partition_for_idle_at_once() -> None:
    one = start(idle_seconds=10)
    one.heed(answer(101.0, a=10, b=0))
    cut(one, 101.0)
    later = Intake("flights", one.terms, one.last)
    read(later, a=50)
    later.heed(answer(9_000.0, a=20, b=0))
    assert cut(later, 9_000.0).watermark == INITIAL_WATERMARK


def test_where_all_are_idle_windows_close_up_to_the_newest_row() -> None:
    one = start(idle_seconds=10)
    one.heed(answer(101.0, a=10, b=10))
    cut(one, 101.0)
    read(one, a=50, b=60)
    one.heed(answer(112.0, a=10, b=10))
    assert cut(one, 112.0).watermark == 60 * SECOND


def test_what_is_logged_is_all_that_a_later_driver_needs() -> None:
    one = start(lateness_seconds=1, on_data_loss=SKIP)
    one.heed(answer(101.0, a=10, b=5))
    cut(one, 101.0)
    read(one, a=50, b=40)
    one.heed(answer(102.0, oldest=7, a=20, b=9))
    found = cut(one, 102.0)
    whole = Cut(2, 102.0, {}, found.watermark, 1.0, False, streams={"flights": found})
    again = Cut.from_record(json.loads(json.dumps(whole.record())))
    assert again == whole
    assert found.lost == (Lost("b", 5, 7, "they have expired"),)
    later = Intake("flights", one.terms, again.streams["flights"])
    later.heed(answer(103.0, a=20, b=9))
    one.heed(answer(103.0, a=20, b=9))
    assert cut(later, 103.0).watermark == cut(one, 103.0).watermark == 39 * SECOND


def test_a_checkpoint_has_the_times_of_rows_that_no_cut_has_logged() -> None:
    one = start()
    one.heed(answer(101.0, a=10))
    last = cut(one, 101.0)
    read(one, a=50)
    record = json.loads(json.dumps(Intakes({one.step: one}).read()))
    assert record == {"flights": {"a": ["", 10, 50 * SECOND]}}
    record = record["flights"]
    begun = Intake("flights", one.terms, last, greatest=last.greatest(record))
    carried = Intake("flights", one.terms, last.without_rows(record))
    without = Intake("flights", one.terms, last.without_rows({}))
    for later, watermark in (
        (begun, 50 * SECOND),
        (carried, 50 * SECOND),
        (without, INITIAL_WATERMARK),
    ):
        later.heed(answer(102.0, a=10))
        found = cut(later, 102.0)
        assert (found.rows, found.watermark) == (0, watermark)


def test_the_times_of_a_checkpoint_count_neither_for_other_rows_nor_for_later_ones() -> None:
    one = start()
    one.heed(answer(101.0, a=10))
    last = cut(one, 101.0)
    recreated = {"a": ["another", 10, 50 * SECOND], "gone": ["", 10, 60 * SECOND]}
    for record in (recreated, {"a": ["", 11, 50 * SECOND]}):
        assert last.greatest(record) == {}
        assert last.without_rows(record).partitions[0].greatest is None


def test_an_older_time_of_a_checkpoint_takes_no_logged_one_back() -> None:
    one = start()
    one.heed(answer(101.0, a=10))
    cut(one, 101.0)
    read(one, a=50)
    one.heed(answer(102.0, a=20))
    last, record = cut(one, 102.0), {"a": ["", 10, 40 * SECOND]}
    later = Intake("flights", one.terms, last, greatest=last.greatest(record))
    assert later.read() == {"a": ["", 20, 50 * SECOND]}
    assert last.without_rows(record).partitions[0].greatest == 50 * SECOND


# As this version has written it: later ones have to read it.
LOGGED = {
    "epoch": 17,
    "cut_at": 1700000017.5,
    "offsets": {},
    "watermark": 1357034400000000,
    "rows_per_second": 1000.0,
    "final": False,
    "row_fraction": 0.5,
    "clock_at": 1700000017.75,
    "streams": {
        "orders": {
            "watermark": 1357034400000000,
            "arrived_at": 1700000017.5,
            "away": False,
            "partitions": [
                {
                    "partition": "orders/0",
                    "begin": 100,
                    "end": 140,
                    "latest": 150,
                    "identity": "a",
                    "greatest": 1357034400000000,
                    "busy_at": 1700000017.75,
                    "idle": False,
                }
            ],
            "lost": [{"partition": "orders/1", "begin": 7, "end": 9, "why": "they have expired"}],
        }
    },
}


def test_a_logged_cut_is_read_as_it_was_meant() -> None:
    found = Cut.from_record(LOGGED)
    assert found.record() == LOGGED
    assert found.input_of("orders") == [[["orders/0", 100, 140, "a"]], 1357034400000000]
    assert (found.rows, found.replayed_until) == (40, 1700000017.75)
    assert found.streams["orders"].waiting == 10
    assert found.streams["orders"].lost == (Lost("orders/1", 7, 9, "they have expired"),)


def test_rows_that_are_gone_end_the_run_unless_they_are_to_be_skipped() -> None:
    for terms, name in (({}, "fails"), ({"on_data_loss": SKIP}, "skips")):
        one = start(**terms)
        one.heed(answer(101.0, a=10))
        cut(one, 101.0)
        one.heed(answer(102.0, oldest=15, a=30))
        if name == "fails":
            with pytest.raises(DataLossError, match=r"a: offsets 10 to 15 are gone.*expired"):
                cut(one, 102.0)
        else:
            found = cut(one, 102.0)
            assert spans(found) == [["a", 15, 30]]
            assert found.lost == (Lost("a", 10, 15, "they have expired"),)


def test_a_source_that_knows_why_rows_are_gone_is_quoted() -> None:
    one = start()
    one.heed(answer(101.0, a=10))
    cut(one, 101.0)
    gone = PartitionOffsets(15, 30, why="file b is not there any more")
    one.heed(SourceAnswer(102.0, {"a": gone}))
    with pytest.raises(DataLossError, match=r"offsets 10 to 15 are gone.*: file b is not there"):
        cut(one, 102.0)


def test_a_partition_that_was_made_anew_is_read_from_its_beginning() -> None:
    one = start(on_data_loss=SKIP)
    one.heed(SourceAnswer(101.0, {"a": PartitionOffsets(0, 10, "first")}))
    cut(one, 101.0)
    read(one, a=50)
    one.heed(SourceAnswer(102.0, {"a": PartitionOffsets(0, 4, "second")}))
    found = cut(one, 102.0)
    assert spans(found) == [["a", 0, 4]]
    assert [lost.why for lost in found.lost] == ["it was recreated"]
    assert found.partitions[0].greatest is None


def test_a_partition_that_was_read_whole_and_is_gone_has_lost_what_nobody_knows() -> None:
    unknown = "; records from offset 10 on that no epoch has read are unknown"
    one = start()
    one.heed(identified(101.0, a=(0, 10, "first")))
    cut(one, 101.0)
    recreated, deleted = Intake("flights", one.terms, one.last), one
    recreated.heed(identified(102.0, a=(0, 4, "second")))
    with pytest.raises(DataLossError) as loss:
        cut(recreated, 102.0)
    assert loss.value.what == "it was recreated" + unknown
    deleted.heed(SourceAnswer(102.0))
    cut(deleted, 102.0)
    deleted.heed(SourceAnswer(117.0))
    with pytest.raises(DataLossError) as loss:
        cut(deleted, 117.0)
    assert loss.value.what == "it is not there any more" + unknown


def test_a_partition_may_be_missing_for_a_moment_but_not_for_long() -> None:
    one = start()
    one.heed(answer(101.0, a=10, b=10))
    cut(one, 101.0)
    one.heed(answer(102.0, a=20))
    assert spans(cut(one, 102.0)) == [["a", 10, 20]]
    one.heed(answer(103.0, a=20, b=12))
    assert spans(cut(one, 103.0)) == [["b", 10, 12]]
    one.heed(answer(104.0, a=20))
    cut(one, 104.0)
    one.heed(answer(120.0, a=20))
    with pytest.raises(DataLossError, match=r"b: .*not there any more"):
        cut(one, 120.0)


def identified(at: float, **there: tuple[int, int, str]) -> SourceAnswer:
    return SourceAnswer(at, {name: PartitionOffsets(*one) for name, one in there.items()})


def without_b(now: float = 120.0) -> Intake:
    """An intake that has read b up to 10 of 12, and has dropped it."""
    one = start(on_data_loss=SKIP)
    one.heed(identified(101.0, a=(0, 10, "x"), b=(0, 10, "first")))
    cut(one, 101.0)
    read(one, b=50)
    for at in (102.0, now):
        one.heed(identified(at, a=(0, 10, "x")))
        found = cut(one, at)
    assert [part.partition for part in found.partitions] == ["a"]
    assert [(lost.partition, lost.begin) for lost in found.lost] == [("b", 10)]
    return one


def test_a_partition_that_was_dropped_and_is_back_is_read_on_where_reading_had_ended() -> None:
    one = without_b()
    logged = json.loads(json.dumps(one.last.record()))
    later = Intake("flights", one.terms, StreamCut.from_record(logged))
    assert later.last == one.last
    for intake in (one, later):
        intake.heed(identified(121.0, a=(0, 10, "x")))
        assert not cut(intake, 121.0).lost, "it was reported once"
        intake.heed(identified(122.0, a=(0, 10, "x"), b=(0, 14, "first")))
        found = cut(intake, 122.0)
        assert spans(found) == [["b", 10, 14]]
        assert not found.lost
        assert not found.dropped
        assert found.partitions[1].greatest == 50 * SECOND
        assert not found.partitions[1].idle


def test_a_partition_that_was_dropped_and_has_expired_since_has_lost_what_has_expired() -> None:
    one = without_b()
    one.heed(identified(121.0, a=(0, 10, "x"), b=(13, 14, "first")))
    found = cut(one, 121.0)
    assert spans(found) == [["b", 13, 14]]
    assert found.lost == (Lost("b", 10, 13, "they have expired"),)


def test_a_partition_that_was_dropped_and_recreated_is_read_whole_and_lost_once() -> None:
    one = without_b()
    one.heed(identified(121.0, a=(0, 10, "x"), b=(0, 3, "second")))
    found = cut(one, 121.0)
    assert spans(found) == [["b", 0, 3]]
    assert not found.lost
    assert found.partitions[1].greatest is None


def test_where_all_partitions_were_dropped_a_new_one_is_read_whole() -> None:
    one = start(on_data_loss=SKIP)
    one.heed(SourceAnswer(101.0, {"a": PartitionOffsets(0, 10, "x")}, {"a": 8}))
    cut(one, 101.0)
    for at in (102.0, 120.0):
        one.heed(SourceAnswer(at))
        cut(one, at)
    there = {"b": PartitionOffsets(0, 5, "y")}
    one.heed(SourceAnswer(121.0, there, {"b": 4}))
    assert spans(cut(one, 121.0)) == [["b", 0, 5]]


def test_of_partitions_that_are_gone_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_intake, "DROPPED_MAX", 1)
    one = without_b()
    for at in (121.0, 140.0):
        one.heed(SourceAnswer(at))
        found = cut(one, at)
    assert [part.partition for part in found.dropped] == ["a"]


def test_reading_begins_where_the_source_says_and_of_later_partitions_at_their_beginning() -> None:
    one = start()
    there = {"a": PartitionOffsets(0, 10)}
    one.heed(SourceAnswer(101.0, there, {"a": 8}))
    assert spans(cut(one, 101.0)) == [["a", 8, 10]]
    one.heed(SourceAnswer(102.0, {**there, "b": PartitionOffsets(2, 5)}, {"a": 8}))
    assert spans(cut(one, 102.0)) == [["b", 2, 5]]


def test_what_expires_before_the_first_epoch_is_not_read() -> None:
    one = start()
    one.heed(SourceAnswer(101.0, {"a": PartitionOffsets(5, 10)}, {"a": 0}))
    assert spans(cut(one, 101.0)) == [["a", 5, 10]]


def growing(at: float, latest: int, identity: str = "x") -> SourceAnswer:
    return SourceAnswer(at, {"a": PartitionOffsets(0, latest, identity, only_grows=True)})


@pytest.mark.parametrize(
    ("end", "latest", "spans_read", "lost"),
    [
        (100, 70, [["a", 70, 75]], (100, 100)),
        (100, 120, [["a", 100, 125]], (120, 150)),
        (60, 70, [["a", 60, 75]], (70, 150)),
        (60, 50, [["a", 50, 55]], (60, 150)),
    ],
)
def test_a_log_that_was_cut_back_has_lost_rows_and_is_read_from_there(
    end: int, latest: int, spans_read: list[list[object]], lost: tuple[int, int]
) -> None:
    known = max(end, lost[1])
    for on_data_loss in (SKIP, FAIL):
        one = start(on_data_loss=on_data_loss)
        one.heed(growing(101.0, known))
        cut(one, 101.0, end)
        for at in (102.0, 116.0):  # a server that does not lead any more may have answered
            one.heed(growing(at, latest))
            found = cut(one, at)
            assert (found.rows, found.lost) == (0, ())
        one.heed(growing(117.0, latest + 5))
        if on_data_loss == FAIL:
            with pytest.raises(DataLossError, match=f"was cut back to offset {latest}"):
                cut(one, 117.0)
            continue
        found = cut(one, 117.0)
        assert spans(found) == spans_read
        assert found.lost == (Lost("a", *lost, f"its log was cut back to offset {latest}"),)
        assert found.arrived_at == 117.0, "what is gone is not waited for"
        one.heed(growing(118.0, latest + 6))
        assert spans(cut(one, 118.0)) == [["a", latest + 5, latest + 6]]


def test_a_log_that_was_cut_back_twice_is_read_from_the_lower_end() -> None:
    one = start(on_data_loss=SKIP)
    one.heed(growing(101.0, 150))
    cut(one, 101.0, 100)
    for at, latest in ((102.0, 80), (108.0, 50), (116.0, 51)):
        one.heed(growing(at, latest))
        found = cut(one, at)
        assert (found.rows, found.lost) == (0, ())
    one.heed(growing(117.0, 52))
    found = cut(one, 117.0)
    assert spans(found) == [["a", 50, 52]]
    assert found.lost == (Lost("a", 100, 150, "its log was cut back to offset 50"),)


def test_an_end_that_is_back_within_some_seconds_was_an_old_answer() -> None:
    one = start()
    one.heed(growing(101.0, 100))
    cut(one, 101.0)
    for at, latest, rows in ((102.0, 90, 0), (103.0, 101, 1), (118.0, 100, 0), (119.0, 102, 1)):
        one.heed(growing(at, latest))
        found = cut(one, at)
        assert (found.rows, found.lost) == (rows, ())


def test_an_old_answer_takes_nothing_out_of_what_had_arrived() -> None:
    one = start()
    one.heed(growing(101.0, 70))
    assert cut(one, 101.0).arrived_at == 101.0
    for at, latest in ((102.0, 100), (103.0, 60), (104.0, 100)):
        one.heed(growing(at, latest))
    found = cut(one, 104.0, 0)
    assert (found.waiting, found.arrived_at) == (30, 101.0)
    assert cut(one, 104.0).arrived_at == 104.0


def test_a_recreated_partition_with_less_than_before_leaves_nothing_that_is_waited_for() -> None:
    one = start(on_data_loss=SKIP)
    one.heed(growing(101.0, 150))
    cut(one, 101.0, 100)
    one.heed(growing(102.0, 4, "y"))
    found = cut(one, 102.0)
    assert spans(found) == [["a", 0, 4]]
    assert found.arrived_at == 102.0


def test_offsets_behind_the_newest_cut_are_no_loss_and_no_rows() -> None:
    one = start()
    one.heed(answer(101.0, a=10))
    cut(one, 101.0)
    one.heed(answer(102.0, a=7))
    assert cut(one, 102.0).rows == 0
    one.heed(answer(103.0, a=12))
    assert spans(cut(one, 103.0)) == [["a", 10, 12]]


def test_rows_that_a_limit_leaves_waiting_count_in_the_arrival_time() -> None:
    one = start()
    for now, latest in ((101.0, 10), (102.0, 20), (103.0, 30)):
        one.heed(answer(now, a=latest))
    assert cut(one, 103.0, 12).arrived_at == 101.0
    assert cut(one, 103.0, 5).arrived_at == 101.0
    assert cut(one, 103.0, 3).arrived_at == 102.0
    assert cut(one, 103.0, 10).arrived_at == 103.0


def test_epochs_are_cut_by_the_size_of_rows_once_that_is_known() -> None:
    one = start(bytes_per_epoch_max=10_000)
    one.heed(answer(101.0, a=5_000))
    assert cut(one, 101.0).rows == source_intake.FIRST_OFFSETS
    one.note({"a": RowsRead(None, 1_000, 100_000)})
    assert cut(one, 102.0).rows == 100


def test_gaps_between_rows_make_no_later_epoch_larger() -> None:
    one = start(bytes_per_epoch_max=10_000)
    one.heed(answer(101.0, a=100_000))
    one.note({"a": RowsRead(None, 1_000, 500, rows=5)})
    assert cut(one, 101.0).rows == 100
    for now in range(102, 150):
        one.note({"a": RowsRead(None, 100, 0)})
        assert cut(one, float(now)).rows == 100
    one.note({"a": RowsRead(None, 100, 20_000, rows=100)})
    assert cut(one, 150.0).rows == 50


def test_an_offset_that_stands_for_many_rows_counts_with_the_bytes_of_them_all() -> None:
    one = start(bytes_per_epoch_max=10_000_000)
    one.heed(answer(101.0, a=100_000))
    one.note({"a": RowsRead(None, 10, 10_000_000, rows=10_000)})
    assert cut(one, 101.0).rows == 10


def test_arrivals_cut_replays_and_other_sources_together() -> None:
    one = start()
    arriving = EpochCutter({}, beginning({}, 100.0, 5.0, ["flights"]), MANY, intakes=Intakes())
    arriving.intakes.by_step["flights"] = one
    one.heed(answer(101.0, a=10))
    found = arriving.cut(101.0, 5.0)
    assert (found.epoch, found.rows, found.cut_at) == (1, 10, 101.0)
    assert found.watermark == found.streams["flights"].watermark
    assert found.input_of("flights") == [[["a", 0, 10, ""]], INITIAL_WATERMARK]
    one.heed(SourceAnswer(102.0, away="cut off"))
    assert not arriving.is_behind
    drained = arriving.cut(102.0, 5.0, final=True, drain=True)
    assert not drained.final, "a source that is away may have more"
    one.heed(answer(103.0, a=10))
    last = arriving.cut(103.0, 5.0, final=True, drain=True)
    assert last.final
    assert last.input_of("flights") == [[["a", 10, 10, ""]], FINAL_WATERMARK]


class Thousand:
    """A replay of a thousand rows, one a second."""

    event_time = "at"
    schema = pa.schema([("at", pa.timestamp("us"))])

    def check(self, step: str) -> None: ...
    def read(self, begin: int, end: int) -> pa.Table: ...

    def rows_at(self, event_time: int) -> int:
        return min(1_000, max(0, event_time // SECOND + 1))

    def event_time_at(self, offset: int) -> int:
        return min(offset, 999) * SECOND


def test_a_drain_of_both_kinds_ends_with_all_of_the_replay_and_all_that_has_arrived() -> None:
    one, sources = start(), {"rows": Thousand()}
    arriving = EpochCutter(sources, beginning(sources, 100.0, 5.0, ["flights"]), 400)
    arriving.intakes.by_step["flights"] = one
    one.heed(answer(101.0, a=500))
    found = arriving.cut(101.0, 5.0)
    assert found.offsets == {"rows": (0, 5)}
    assert found.streams["flights"].rows == 400
    assert found.replayed_until == 101.0
    assert found.cut_at == 100.0, "some rows had arrived that it leaves out"
    one.heed(answer(102.0, a=500))
    cuts = [arriving.cut(102.0 + n, 5.0, final=True, drain=True) for n in range(3)]
    assert [cut.final for cut in cuts] == [False, False, True]
    assert cuts[-1].offsets["rows"][1] == 1_000
    assert cuts[-1].streams["flights"].partitions[0].end == 500
    assert cuts[-1].watermark == cuts[-1].streams["flights"].watermark == FINAL_WATERMARK
