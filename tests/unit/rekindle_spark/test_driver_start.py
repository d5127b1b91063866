"""The start of a driver: what can be seen before a generation is taken fences nobody."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.errors import InputError, RekindleError
from rekindle.settings import Settings
from rekindle_spark import driver
from rekindle_spark.driver import Place
from rekindle_spark.pipeline import Pipeline
from rekindle_spark.replay import Replay
from rekindle_spark.store import Store

Change = Callable[[pa.Table], pa.Table]


class NoSpark:
    """Stands for a Spark that has answered; jobs are of no matter here."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def stop(self) -> None:
        """Nothing runs."""


@pytest.fixture(name="running")
def _running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The store of a driver that runs."""
    monkeypatch.setattr(driver, "Exchange", NoSpark)
    store = Store(tmp_path / "store")
    store.open(1.0)
    yield store
    store.check_generation()  # nobody has fenced it
    assert [path.name for path in (tmp_path / "store/generations").iterdir()] == ["1.json"]


def start(tmp_path: Path, events: Path, change: Change = lambda table: table) -> None:
    times = pa.array([0, 1_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"v": [1, 2], "t": times}), tmp_path / "numbers.parquet")
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Replay(str(tmp_path / "numbers.parquet"), event_time="t"))
    rows.map("changed", change, schema=rows.schema).sink("out")
    driver.run(pipeline, Settings(), Place(None, tmp_path / "store", events, {}))


def test_a_start_that_cannot_write_its_events_fences_nobody(tmp_path: Path, running: Store) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        start(tmp_path, tmp_path / "folder")
    running.check_generation()


@pytest.mark.usefixtures("running")
def test_a_start_whose_functions_cannot_be_sent_fences_nobody(tmp_path: Path) -> None:
    lock = threading.Lock()

    def guarded(table: pa.Table) -> pa.Table:
        with lock:
            return table

    with pytest.raises(InputError, match="step changed: uses the variable 'lock'"):
        start(tmp_path, tmp_path / "events.jsonl", guarded)
    assert not (tmp_path / "events.jsonl").exists()


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("folder", ["offsets", "commits", "checkpoints"])
def test_a_start_that_cannot_read_what_the_store_has_fences_nobody(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "store" / folder / "1.json").write_text('{"version": 1}')
    with pytest.raises(RekindleError, match=r"1\.json"):
        start(tmp_path, tmp_path / "events.jsonl")
