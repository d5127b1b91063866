"""The demo's input from Kafka is read when the newest epoch has the last row of each topic."""

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rekindle.model import record_format
from rekindle_local import kafka_broker
from rekindle_local.demo import topic_witness
from rekindle_local.demo.demo_streams import KafkaStreams

TIME = pa.timestamp("us")
WRITTEN = {"flights_ewr": 7, "weather": 2}


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaStreams:
    """Streams whose producer has ended; no broker runs."""
    monkeypatch.setattr(kafka_broker, "find_jars", lambda: tmp_path)
    found = KafkaStreams(tmp_path / "kafka", tmp_path, {"weather": 1}, 100.0)
    found.written = dict(WRITTEN)
    return found


def cut(store: Path, number: int, ends: dict[str, list[int]]) -> None:
    """Log an epoch with these ends of partitions."""
    streams = {
        name: {"partitions": [{"partition": str(at), "end": end} for at, end in enumerate(each)]}
        for name, each in ends.items()
    }
    record = {"generation": 1, "epoch": number, "streams": streams}
    (store / "offsets").mkdir(exist_ok=True)
    (store / "offsets" / f"{number}.json").write_bytes(record_format.encode("offsets", record))


def test_input_is_read_when_the_newest_epoch_has_all_of_it(
    streams: KafkaStreams, tmp_path: Path
) -> None:
    assert not streams.is_read(tmp_path)
    cut(tmp_path, 1, {"flights_ewr": [3, 2, 2], "weather": [1]})
    assert not streams.is_read(tmp_path)
    cut(tmp_path, 2, {"flights_ewr": [3, 2, 2], "weather": [2]})
    assert streams.is_read(tmp_path)


def test_rows_of_topics_have_times_where_the_query_has() -> None:
    schema = pa.schema([("at", TIME), ("key", pa.string()), ("then", TIME)])
    row = json.loads('{"at": "2013-01-01T05:00:00.000001", "key": "2013-01-01", "then": null}')
    assert topic_witness._typed(row, schema) == {
        "at": datetime(2013, 1, 1, 5, 0, 0, 1),
        "key": "2013-01-01",
        "then": None,
    }
