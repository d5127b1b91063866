"""The start of a driver: what can be seen before a generation is taken fences nobody."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import cut, states

from rekindle.model import record_format
from rekindle.model.errors import InputError, RekindleError, RunError
from rekindle.model.settings import Settings
from rekindle.protocol.store_paths import Place
from rekindle_spark.connectors.file_source import FileSource
from rekindle_spark.control import sidecar_client
from rekindle_spark.driver import driver_clock, driver_main
from rekindle_spark.driver.driver_main import DriverPlace
from rekindle_spark.driver.epoch_cutter import Cut, EpochCutter
from rekindle_spark.driver.source_intake import PartitionCut, StreamCut
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.pipeline.unbounded_source import PartitionOffsets, SourceTerms
from rekindle_spark.store import library_versions
from rekindle_spark.store.checkpoint_store import CheckpointStore, StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_store import store_files
from rekindle_store.store_files import Files

Change = Callable[[pa.Table], pa.Table]


class KeepingSource:
    """A user's source as it was written before `dead_letters` and `check_records`."""

    schema = pa.schema([("at", pa.timestamp("us"))])
    event_time = "at"
    terms = SourceTerms()

    def __init__(self) -> None:
        self.kept: list[tuple[Files, str]] = []

    def keep_in(self, files: Files, step: str) -> None:
        self.kept.append((files, step))

    def check(self, step: str) -> None: ...

    def initial_offsets(self) -> Mapping[str, int]:
        return {}

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        return {}

    def read(self, _partition: str, _start: int, _end: int) -> pa.Table:
        return self.schema.empty_table()

    def commit(self, offsets: Mapping[str, int]) -> None: ...


class NoSpark:
    """Stands for a Spark that has answered; jobs are of no matter here."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def stop(self) -> None:
        """Nothing runs."""


@pytest.fixture(name="running")
def _running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointStore]:
    """The store of a driver that runs."""
    monkeypatch.setattr(driver_main, "SparkGateway", NoSpark)
    store = CheckpointStore(tmp_path / "store")
    store.open(1.0)
    yield store
    store.check_generation()  # nobody has fenced it
    assert [path.name for path in (tmp_path / "store/generations").iterdir()] == ["1.json"]


def pipeline_of(tmp_path: Path, change: Change = lambda table: table) -> Pipeline:
    times = pa.array([0, 1_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"v": [1, 2], "t": times}), tmp_path / "numbers.parquet")
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Replay(str(tmp_path / "numbers.parquet"), event_time="t"))
    rows.map("changed", change, schema=rows.schema).sink("out")
    return pipeline


def start(tmp_path: Path, events: Path, change: Change = lambda table: table) -> None:
    pipeline = pipeline_of(tmp_path, change)
    driver_main.run(pipeline, Settings(), DriverPlace(None, tmp_path / "store", events, {}))


def test_a_start_that_cannot_write_its_events_fences_nobody(
    tmp_path: Path, running: CheckpointStore
) -> None:
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


def refusing(
    monkeypatch: pytest.MonkeyPatch, *answers: Callable[[], InputError | None]
) -> list[tuple[int, str]]:
    """A sidecar gives these answers; returns the generations and stores that it is asked about."""
    asked: list[tuple[int, str]] = []

    def refusal(_path: Path, _of: Place, generation: int, store: str) -> InputError | None:
        asked.append((generation, store))
        return answers[len(asked) - 1]()

    monkeypatch.setattr(sidecar_client, "refusal", refusal)
    return asked


def other_store() -> InputError:
    return InputError(
        where="application a/b", what="has another checkpoint store", remedy="name it"
    )


def start_with_sidecar(tmp_path: Path, folder: str) -> None:
    place = DriverPlace(None, tmp_path / folder, tmp_path / "e", {}, sidecar=tmp_path / "socket")
    driver_main.run(pipeline_of(tmp_path), Settings(), place)


def test_a_start_that_its_sidecar_would_refuse_starts_and_fences_nothing(
    tmp_path: Path, running: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refusing(monkeypatch, other_store, other_store)
    monkeypatch.delattr(driver_main, "SparkGateway")
    with pytest.raises(InputError, match="has another checkpoint store; name it"):
        start_with_sidecar(tmp_path, "store")
    with pytest.raises(InputError, match="has another checkpoint store; name it"):
        start_with_sidecar(tmp_path, "fresh")
    assert asked == [(2, running.identity()), (1, "")]
    assert not (tmp_path / "fresh").exists()


def test_what_is_refused_because_a_driver_has_just_started_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path / "store")
    store.open(1.0)

    def overtaken() -> InputError:
        CheckpointStore(tmp_path / "store").open(2.0)
        return other_store()

    asked = refusing(monkeypatch, overtaken, lambda: None)
    place = DriverPlace(None, "", tmp_path / "e", {}, sidecar=tmp_path / "socket")
    driver_main._check_admission(place, store)
    assert [generation for generation, _ in asked] == [2, 3]


def written_with(place: Path, **versions: str) -> None:
    """As if the newest driver had had these versions."""
    path = max((place / "generations").glob("*.json"))
    record = record_format.decode("generation", path.read_bytes(), "here")
    record["libraries"] |= versions
    path.write_bytes(record_format.encode("generation", record))


ONE_EPOCH = {"at": 1.0, "plan_epoch": 1, "finished": {"rows/0": [1, 1, ["d"]]}, "outputs": []}


def test_a_start_has_the_event_times_that_its_checkpoint_has() -> None:
    pipeline = Pipeline("orders")
    pipeline.source("orders", KeepingSource()).sink("all")
    built = program.build(pipeline)
    stream = StreamCut((PartitionCut("p", 0, 9, 9, "made"),), 0, 0.0)
    last = Cut(7, 0.0, {}, 0, 1.0, False, streams={"orders": stream})
    record = {"epoch": 7, "greatest": {"orders": {"p": ["made", 9, 5]}}}
    read = [driver_main._intakes(built, last, one).read() for one in (record, {"epoch": 7}, None)]
    assert read == [record["greatest"], {}, {}]


@pytest.mark.parametrize("ahead_seconds", [3_600.0, -3_600.0])
def test_rows_arrive_and_lags_are_seen_where_the_driver_before_had_another_clock(
    tmp_path: Path, ahead_seconds: float
) -> None:
    built, now = program.build(pipeline_of(tmp_path)), driver_clock.now()
    before = Cut(7, now + ahead_seconds, {"rows": (0, 1)}, 0, 1.0, False)
    read = {"orders": StreamCut((), 0, now + ahead_seconds)}
    streamed = replace(before, streams=read, clock_at=now + ahead_seconds)
    for left in (before, streamed):
        (found,) = driver_main._cuts(
            built, Settings(), StoreHistory({7: left.record()}, CommitSummary(), None)
        ).values()
        moments = [found.cut_at, found.replayed_until, found.arrived_at(["orders"])]
        assert max(moments) <= driver_clock.now()
        assert min(moments) >= min(now, now + ahead_seconds)
        cutter = EpochCutter({"rows": built.chains[0].root.function}, found, 100)
        assert cutter.cut(driver_clock.now() + 2.0, 1.0).rows == 1


def test_a_start_with_other_libraries_is_refused_where_epochs_may_run_again(
    tmp_path: Path, running: CheckpointStore
) -> None:
    running.log_offsets(1, cut(2))
    running.commit(ONE_EPOCH)
    written_with(tmp_path / "store", pyarrow="1.0", polars="0.9")
    with pytest.raises(InputError) as error:
        start(tmp_path, tmp_path / "events.jsonl")
    said = str(error.value)
    assert "was written with polars 0.9, pyarrow 1.0, and this is polars " in said
    assert "end it with `rekindle savepoint STORE`, and start this one then" in said


def test_other_libraries_are_no_matter_behind_a_savepoint_and_in_older_records(
    tmp_path: Path,
) -> None:
    store = CheckpointStore(tmp_path)
    store.open(1.0)
    library_versions.check(store.files, store.fold)
    store.log_offsets(1, cut(2))
    store.commit(ONE_EPOCH)
    library_versions.check(store.files, store.fold)  # the same ones
    written_with(tmp_path, rekindle="0.0.1")
    with pytest.raises(InputError, match=r"was written with rekindle 0\.0\.1"):
        library_versions.check(store.files, store.fold)
    store.complete_checkpoint(1, {**states("rows/0"), "savepoint": True})
    library_versions.check(store.files, store.read().fold)
    store.commit({**ONE_EPOCH, "finished": {"rows/0": [2, 2, ["d"]]}})
    path = tmp_path / "generations/1.json"
    record = record_format.decode("generation", path.read_bytes(), "here")
    del record["libraries"]
    path.write_bytes(record_format.encode("generation", record))
    library_versions.check(store.files, store.fold)


@pytest.mark.usefixtures("running")
def test_a_start_with_files_at_another_place_fences_nobody(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("value", pa.int64())])
    for name in ("in", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("at,value\n2020-01-01T00:00:00,1\n")

    def files(name: str) -> FileSource:
        return FileSource(tmp_path / name, "csv", schema, "at")

    known = files("in")
    known.keep_in(store_files.at(tmp_path / "store"), "rows")
    assert known.latest_offsets()["0"].latest == 1
    pipeline = Pipeline("files")
    pipeline.source("rows", files("other")).sink("out")
    place = DriverPlace(None, tmp_path / "store", tmp_path / "events.jsonl", {})
    with pytest.raises(InputError, match=r"step rows: .* give the step another name"):
        driver_main.run(pipeline, Settings(), place)


def test_a_source_that_keeps_records_as_it_always_could_gets_its_place(
    running: CheckpointStore,
) -> None:
    pipeline, source = Pipeline("kept"), KeepingSource()
    pipeline.source("rows", source).sink("out")
    built = program.build(pipeline)
    driver_main._check_history(built, Settings(), running)
    assert driver_main._with_records(built, built, running)
    assert source.kept == [(running.files, "rows")]


def test_a_start_knows_of_which_sources_the_store_has_offsets(running: CheckpointStore) -> None:
    pipeline = Pipeline("two")
    for name in ("read", "new"):
        pipeline.source(name, KeepingSource()).sink(f"{name}-out")
    built = program.build(pipeline)
    assert driver_main._check_history(built, Settings(), running) == frozenset()
    read = StreamCut((PartitionCut("p", 0, 5, 5),), 0, 1.0)
    streams = {"read": read, "new": StreamCut((), 0, 1.0, away=True)}
    first = Cut(1, 1.0, {}, 0, 1.0, False, streams=streams, clock_at=1.0)
    running.log_offsets(1, first.record())
    assert driver_main._check_history(built, Settings(), running) == {"read"}


def test_a_start_asks_a_source_that_it_goes_on_with_as_such(
    tmp_path: Path, running: CheckpointStore
) -> None:
    class Asked(KeepingSource):
        def resume(self) -> None:
            asked.append("resume")

        def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
            asked.append("offsets")
            raise RunError(where="source", what="has been asked", remedy="see what before")

    asked = list[str]()
    pipeline = Pipeline("one")
    pipeline.source("rows", Asked()).sink("out")
    read = StreamCut((PartitionCut("p", 0, 5, 5),), 0, 1.0)
    first = Cut(1, 1.0, {}, 0, 1.0, False, streams={"rows": read}, clock_at=1.0)
    running.log_offsets(1, first.record())
    place = DriverPlace(None, tmp_path / "store", tmp_path / "events.jsonl", {})
    with pytest.raises(RunError, match="has been asked"):
        driver_main.run(pipeline, Settings(), place)
    assert asked == ["resume", "offsets"]
