"""What is still to be written to a topic, by its marker and the commit log; as whom."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

from rekindle.model.errors import RunError
from rekindle_spark.connectors.kafka_sink import KafkaSink, SinkRecords
from rekindle_spark.connectors.kafka_transactions import EpochMarker
from rekindle_spark.output import sink_declarations
from rekindle_spark.output.sink_publishing import (
    BYTES_FIRST,
    BYTES_MAX,
    BYTES_MIN,
    FILES_MAX,
    ROWS_MAX,
    SinkIdentity,
    TopicPosition,
    TransactionSize,
    transactions,
)
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import store_copies, store_files
from rekindle_store.committed_files import NamedFile


def file(epoch: int, commit: int, rows: int = 1) -> NamedFile:
    return NamedFile("hourly", 0, epoch, rows, f"outputs/hourly/0-{epoch}", commit, 0.0)


def test_what_the_marker_says_is_not_written_again_and_all_behind_it_is() -> None:
    log = [file(3, 7), file(4, 8), file(5, 8), file(9, 9)]
    written = TopicPosition("topic", EpochMarker(4, 8))
    assert [one.epoch for one in written.due(log)] == [5, 9]
    assert [one.epoch for one in TopicPosition("topic", EpochMarker()).due(log)] == [3, 4, 5, 9]
    assert TopicPosition("topic", EpochMarker(9, 9)).due(log) == []


@pytest.mark.parametrize("marker", [EpochMarker(4, 7), EpochMarker(3, 8), EpochMarker(6, 9)])
def test_a_log_without_what_the_marker_says_is_another_stores(marker: EpochMarker) -> None:
    written = TopicPosition("topic", marker)
    with pytest.raises(RunError, match="which this checkpoint store has not"):
        written.due([file(3, 7), file(4, 8), file(5, 9), file(9, 10)])


def test_a_log_that_ends_before_what_the_marker_says_is_an_older_copy() -> None:
    written = TopicPosition("topic", EpochMarker(4, 8))
    assert written.due([file(3, 7)]) == []
    with pytest.raises(RunError, match="go on with that one, or give the sink another topic"):
        written.check()
    TopicPosition("topic", EpochMarker()).check()


def stretches(
    rows: Sequence[int], value_bytes: Sequence[int] = (), size: TransactionSize | None = None
) -> list[list[int]]:
    """The epochs of each transaction, where epochs have so many rows, and values of so many bytes
    together."""
    epochs = [
        (file(epoch, epoch, count), SinkRecords([b"x" * length], [None]))
        for epoch, (count, length) in enumerate(zip_longest(rows, value_bytes, fillvalue=0))
    ]
    found = transactions(epochs, size or TransactionSize())
    return [[one.epoch for one, _ in stretch] for stretch in found]


def test_a_transaction_has_whole_epochs_up_to_its_limits() -> None:
    assert [len(one) for one in stretches([1] * (FILES_MAX + 1))] == [FILES_MAX, 1]
    assert stretches([ROWS_MAX - 1, 1, 1, 2 * ROWS_MAX, 1]) == [[0, 1], [2], [3], [4]]
    assert stretches([]) == []
    size = TransactionSize(1_000)
    assert stretches([1] * 5, [999, 1, 1, 5_000, 1], size) == [[0, 1], [2], [3], [4]]


def test_the_bytes_of_records_are_those_of_keys_and_values() -> None:
    assert SinkRecords([b"abc", None]).bytes == 3
    assert SinkRecords([b"abc", None], [b"k", b"kk"]).bytes == 6


def test_a_topic_that_is_slow_gets_less_in_a_transaction_and_more_once_it_is_quick() -> None:
    size = TransactionSize(BYTES_MAX)
    size.note(BYTES_MAX, 13.0, seconds_max=48.0)
    assert size.bytes_max == BYTES_MAX // 2
    size.note(BYTES_MAX, 6.0, seconds_max=48.0)
    assert size.bytes_max == BYTES_MAX // 2
    for _ in range(3):
        size.note(BYTES_MAX, 0.1, seconds_max=48.0)
    assert size.bytes_max == BYTES_MAX
    for _ in range(30):
        size.shrink()
    assert size.bytes_max == BYTES_MIN


def test_a_start_begins_with_small_transactions_and_only_full_ones_make_room_for_larger() -> None:
    size = TransactionSize()
    assert size.bytes_max == BYTES_FIRST == 1 << 20
    size.note(BYTES_FIRST // 4, 0.1, seconds_max=48.0)
    assert size.bytes_max == BYTES_FIRST
    for _ in range(4):
        size.note(size.bytes_max, 0.1, seconds_max=48.0)
    assert size.bytes_max == BYTES_MAX


def test_epochs_that_are_already_in_a_stretch_are_written_when_the_limit_falls() -> None:
    size = TransactionSize(1_000)
    epochs = [(file(n, n), SinkRecords([b"x" * 400])) for n in range(5)]
    found = transactions(epochs, size)
    assert len(next(found)) == 2
    size.bytes_max = 400
    assert [len(one) for one in found] == [1, 1, 1]


def declared(name: str, partitions: int) -> sink_declarations.Declared:
    return {"hourly": {"topic": {"name": name, "partitions": partitions}}}


def test_who_declares_a_sink_first_names_its_writers() -> None:
    other = {"daily": {"topic": {"name": "x", "partitions": 1}}}
    assert sink_declarations.merged({}, declared("a", 2)) == declared("a", 2)
    assert sink_declarations.merged(declared("a", 2), declared("b", 4)) == declared("a", 2)
    assert sink_declarations.merged(declared("a", 2), declared("a", 4)) == declared("a", 4)
    assert sink_declarations.merged(other, declared("a", 2)) == {**other, **declared("a", 2)}


def test_writers_are_as_many_as_there_ever_were(tmp_path: Path) -> None:
    sink = KafkaSink("b:9092", "topic")
    for number, (before, now, partitions) in enumerate([(4, 2, 4), (2, 4, 4)]):
        store = CheckpointStore(tmp_path / str(number))
        store.open(1.0, more=lambda before=before: {"sinks": declared("a", before)})
        store.open(2.0)
        place = sink_declarations.places(store.files, {"hourly": (sink, now)})["hourly"]
        assert place == SinkIdentity("hourly", "a", partitions, before, store.identity())
        assert place.writer(sink, 3).name == "a-3"


def test_who_goes_on_with_a_copy_knows_of_which_store_it_is(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    store.open(1.0, more=lambda: {"sinks": declared("a", 1)})
    store_copies.copy(str(tmp_path / "store"), str(tmp_path / "copy"))
    store_copies.copy(str(tmp_path / "copy"), str(tmp_path / "second"))
    sinks = {"hourly": (KafkaSink("b:9092", "topic"), 1)}
    first, second = (
        sink_declarations.places(store_files.at(tmp_path / name), sinks)["hourly"]
        for name in ("copy", "second")
    )
    assert first.origins == (store.identity(),)
    assert second.origins == (first.store, store.identity())
    assert len({"", store.identity(), first.store, second.store}) == 4
