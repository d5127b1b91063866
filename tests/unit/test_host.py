"""The host, without Spark: it answers every request, keeps versions, and never raises."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from rekindle_spark import frames, partition, program, states
from rekindle_spark.host import Host
from rekindle_spark.pipeline import Pipeline, count
from rekindle_spark.program import Program
from rekindle_spark.store import Store
from rekindle_spark.testing import watched_flushes

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
SECOND = 1_000_000
ROWS, COUNTS = 0, 1


class Numbers:
    """Row `n` has event time n seconds and key n modulo 3."""

    schema = SCHEMA
    event_time = "at"

    def check(self, step: str) -> None: ...
    def rows_at(self, event_time: int) -> int: ...
    def event_time_at(self, offset: int) -> int: ...

    def read(self, begin: int, end: int) -> pa.Table:
        times = pa.array([n * SECOND for n in range(begin, end)], pa.timestamp("us"))
        return pa.table({"at": times, "key": [f"key-{n % 3}" for n in range(begin, end)]})


def build() -> Program:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers())
    rows.window("counts", keys=["key"], size_seconds=10, aggregates={"n": count()}).sink("out")
    return program.build(pipeline)


@dataclass
class Desk:
    """Asks a host as the tasks of a driver do; ten rows a second, an epoch a second."""

    directory: Path
    host: Host = field(default_factory=lambda: Host(os.getpid()))
    program: Program = field(default_factory=build)
    acknowledged: list[dict[str, Any]] = field(default_factory=list)

    @property
    def store(self) -> Store:
        """As the driver sees it."""
        return Store(self.directory)

    def __post_init__(self) -> None:
        self.store.make_outputs(["out"])
        (self.directory / "program").write_bytes(cloudpickle.dumps(self.program))

    def ask(
        self, number: int, first: int, last: int, received: bytes = b"", **header: Any
    ) -> tuple[dict[str, Any], list[tuple[int, list[bytes]]]]:
        item = {
            "partition": number,
            "plan_epoch": header.pop("plan_epoch", 1),
            "from": first,
            "to": last,
            "counts": header.pop("counts", [first, last]),
            "readers": header.pop("readers", None),
            "finished": header.pop("finished", first - 1),
            "restore_point": header.pop("restore_point", 0),
            "inputs": header.pop("inputs", []),
        }
        request = {
            "version": 1,
            "program": [self.program.hash, str(self.directory / "program")],
            "generation": 1,
            "plan_epoch": item["plan_epoch"],
            "store": str(self.directory),
            "urgency": 0,
            "checkpoint": None,
            "executor": "7",
            "held": [ROWS, COUNTS],
            "work": [item],
            "offsets": {
                str(epoch): {"rows": [epoch * 10 - 10, epoch * 10, epoch * 10 * SECOND]}
                for epoch in range(first, last + 1)
            },
            **header,
        }
        report, blocks = self.host.answer(request, memoryview(received))
        self.acknowledged += report.get("acks", [])
        return report, blocks

    def read_rows(self, first: int, last: int) -> bytes:
        """The frames of the source."""
        _, blocks = self.ask(ROWS, first, last)
        return b"".join(block for target, parts in blocks if target == COUNTS for block in parts)

    def count_rows(self, first: int, last: int, **header: Any) -> dict[str, Any]:
        """The outcome of the counting partition, fed by the source."""
        report, _ = self.ask(COUNTS, first, last, self.read_rows(first, last), **header)
        outcome: dict[str, Any] = report["partitions"][str(COUNTS)]
        return outcome


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "store")


@pytest.fixture
def flushed() -> Iterator[list[Path]]:
    with watched_flushes() as paths:
        yield paths


def divide(begin: int, end: int) -> float:
    return begin / (end - end)


def digests(outcome: dict[str, Any]) -> list[str]:
    assert outcome["status"] == "ok", outcome
    return [epoch[2] for epoch in outcome["epochs"]]


def test_an_answer_says_who_gave_it_and_what_every_partition_did(desk: Desk) -> None:
    report, blocks = desk.ask(ROWS, 1, 2)
    assert (report["status"], report["executor"], report["host"]) == ("ok", "7", os.getpid())
    epochs = report["partitions"]["0"]["epochs"]
    assert [(epoch, rows) for epoch, rows, _, _ in epochs] == [(1, 10), (2, 10)]
    assert [(target, len(parts)) for target, parts in blocks] == [(COUNTS, 2)]
    assert set(report["cpu"]) == {"work", "processes"}


def test_epochs_one_by_one_or_in_one_piece_give_the_same_digests(tmp_path: Path) -> None:
    single, whole = Desk(tmp_path / "single"), Desk(tmp_path / "whole")
    one_by_one = [single.count_rows(epoch, epoch) for epoch in range(1, 6)]
    assert [sum_ for outcome in one_by_one for sum_ in digests(outcome)] == digests(
        whole.count_rows(1, 5)
    )


def test_an_epoch_that_is_run_again_starts_from_the_version_before_it(desk: Desk) -> None:
    desk.count_rows(1, 3)
    first = digests(desk.count_rows(4, 4, finished=3))
    assert digests(desk.count_rows(4, 4, finished=3)) == first
    assert digests(desk.count_rows(4, 5, finished=3))[0] == first[0]


def test_versions_before_the_finished_one_are_forgotten(desk: Desk) -> None:
    for epoch in range(1, 9):
        desk.count_rows(epoch, epoch)
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [7, 8]


def test_what_another_executor_holds_by_a_newer_plan_is_forgotten(desk: Desk) -> None:
    desk.count_rows(1, 3)
    desk.ask(ROWS, 4, 4, plan_epoch=2, held=[ROWS])
    assert COUNTS not in desk.host.versions
    assert desk.count_rows(4, 4, plan_epoch=3)["status"] == "missing"


def test_a_request_of_an_older_plan_that_comes_late_makes_nothing_forgotten(desk: Desk) -> None:
    desk.count_rows(1, 3, plan_epoch=2)
    desk.ask(ROWS, 1, 1, plan_epoch=1, held=[ROWS])
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [0, 3]


def test_a_partition_that_a_newer_plan_takes_away_while_it_runs_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.count_rows(1, 1)
    copy = desk.host._program({"program": [desk.program.hash, str(desk.directory / "program")]})
    process = copy.chains[COUNTS].root.function.process

    def overtaken(_: Any, *arguments: Any) -> Any:
        desk.host.versions.clear()  # what a request of a newer plan does on another thread
        return process(*arguments)

    received = desk.read_rows(2, 2)
    monkeypatch.setattr(type(copy.chains[COUNTS].root.function), "process", overtaken)
    report, blocks = desk.ask(COUNTS, 2, 2, received)
    outcome = report["partitions"][str(COUNTS)]
    assert outcome == {"status": "refused", "text": "plan 1 was replaced while it ran"}
    assert blocks == []


def test_a_version_that_is_not_here_is_answered_as_missing(desk: Desk) -> None:
    outcome = desk.count_rows(5, 5)
    assert outcome == {"status": "missing", "text": "no version 4 of counts/0"}
    assert desk.count_rows(1, 1)["status"] == "ok"


def test_an_incomplete_input_leaves_the_state_as_it_was(desk: Desk) -> None:
    desk.count_rows(1, 2)
    report, blocks = desk.ask(COUNTS, 3, 3)
    assert report["partitions"]["1"]["status"] == "incomplete"
    assert "no frame of rows/0 in epoch 3" in report["partitions"]["1"]["text"]
    assert blocks == []
    assert digests(desk.count_rows(3, 3))


def test_a_piece_that_breaks_off_counts_for_nothing(desk: Desk) -> None:
    whole = digests(Desk(desk.directory.with_name("whole")).count_rows(1, 3))
    report, blocks = desk.ask(COUNTS, 1, 3, desk.read_rows(1, 2))
    assert report["partitions"]["1"]["status"] == "incomplete"
    assert blocks == []
    assert digests(desk.count_rows(1, 3)) == whole


def test_an_older_plan_is_refused(desk: Desk) -> None:
    desk.count_rows(1, 1, plan_epoch=3)
    outcome = desk.count_rows(2, 2, plan_epoch=2)
    assert outcome == {"status": "refused", "text": "plan 2 came after plan 3"}
    assert desk.count_rows(2, 2, plan_epoch=4)["status"] == "ok"


def test_an_older_driver_is_refused_and_a_newer_one_starts_without_state(desk: Desk) -> None:
    desk.count_rows(1, 1)
    assert desk.count_rows(2, 2, generation=1)["status"] == "ok"
    report, _ = desk.ask(ROWS, 1, 1, generation=2)
    assert report["status"] == "ok"
    report, blocks = desk.ask(ROWS, 2, 2, generation=1)
    assert (report["status"], report["text"]) == ("refused", "generation 1 came after 2")
    assert (report["partitions"], blocks) == ({}, [])
    report, _ = desk.ask(COUNTS, 3, 3, generation=2)
    assert report["partitions"]["1"]["status"] == "missing"


def test_a_wrong_function_is_answered_with_step_and_remedy(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = desk.host._program({"program": [desk.program.hash, str(desk.directory / "program")]})
    monkeypatch.setattr(copy.chains[ROWS].root.function, "read", divide, raising=False)
    report, blocks = desk.ask(ROWS, 1, 1)
    fault = report["partitions"]["0"]
    assert fault["status"] == "error"
    assert fault["where"] == "step rows"
    assert fault["what"].startswith("raised ZeroDivisionError: ")
    assert fault["remedy"]
    assert blocks == []


def test_a_checkpoint_is_written_aside_and_acknowledged_with_a_later_answer(desk: Desk) -> None:
    desk.count_rows(1, 2)
    desk.store.begin_checkpoint(3)
    desk.count_rows(3, 3, checkpoint=3)
    acknowledged = await_acknowledgements(desk)
    path = desk.directory / "checkpoints" / "3" / "counts-0.state"
    assert [(a["partition"], a["epoch"]) for a in acknowledged] == [(COUNTS, 3)]
    chain = desk.program.owner[COUNTS]
    kept = desk.host.versions[COUNTS].by_epoch[3]
    assert states.load(path, chain, 3).watermark == kept.watermark


def test_a_restored_state_gives_the_digests_that_the_lost_one_gave(desk: Desk) -> None:
    desk.store.begin_checkpoint(3)
    desk.count_rows(1, 3, checkpoint=3)
    await_acknowledgements(desk)
    first = digests(desk.count_rows(4, 8))
    fresh = Desk(desk.directory)
    assert digests(fresh.count_rows(4, 8, restore_point=3)) == first


def test_a_checkpoint_that_is_gone_is_an_error_with_a_remedy(desk: Desk) -> None:
    outcome = desk.count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "damaged"
    assert outcome["where"] == "checkpoints/3/counts-0.state"
    assert "restore it from a copy of the store" in outcome["remedy"]


def test_a_damaged_checkpoint_is_noticed(desk: Desk) -> None:
    desk.store.begin_checkpoint(3)
    desk.count_rows(1, 3, checkpoint=3)
    await_acknowledgements(desk)
    path = desk.directory / "checkpoints" / "3" / "counts-0.state"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    outcome = Desk(desk.directory).count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "damaged"
    assert "checksum" in outcome["what"]


def test_a_state_of_a_newer_version_is_refused_and_not_called_damaged(desk: Desk) -> None:
    desk.store.begin_checkpoint(3)
    desk.count_rows(1, 3, checkpoint=3)
    await_acknowledgements(desk)
    path = desk.directory / "checkpoints" / "3" / "counts-0.state"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9', 1))
    outcome = Desk(desk.directory).count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "error"
    assert outcome["remedy"] == "run the version of Rekindle that wrote it"


def preserve(desk: Desk, received: bytes, **wanted: Any) -> dict[str, Any]:
    """The outcome of writing the counting partition's input with checkpoint 5."""
    item = {"partition": COUNTS, "checkpoint": 5, "frames": {str(ROWS): wanted["epochs"]}}
    report, blocks = desk.ask(ROWS, 1, 1, received, work=[], preserve=[item])
    assert blocks == []
    outcome: dict[str, Any] = report["partitions"][str(COUNTS)]
    return outcome


def test_durable_input_gives_the_digests_that_the_frames_gave(desk: Desk) -> None:
    first = digests(desk.count_rows(1, 6))
    desk.store.begin_checkpoint(5)
    outcome = preserve(desk, desk.read_rows(1, 6), epochs=[2, 6])
    path = desk.directory / "checkpoints" / "5" / "counts-0.input"
    assert outcome == {"status": "ok", "bytes": len(path.read_bytes().partition(b"\n")[2])}
    fresh = Desk(desk.directory)
    report, _ = fresh.ask(COUNTS, 1, 6, desk.read_rows(1, 1) + desk.read_rows(6, 6), inputs=[5])
    assert digests(report["partitions"][str(COUNTS)]) == first


def test_input_is_preserved_whole_or_not_at_all(desk: Desk) -> None:
    desk.store.begin_checkpoint(5)
    outcome = preserve(desk, desk.read_rows(1, 3), epochs=[2, 6])
    assert outcome["status"] == "incomplete"
    assert outcome["text"] == "no frame of rows/0 in epoch 4 to be preserved"
    assert list((desk.directory / "checkpoints" / "5").iterdir()) == []


def test_durable_input_that_is_damaged_is_noticed(desk: Desk) -> None:
    desk.store.begin_checkpoint(5)
    preserve(desk, desk.read_rows(1, 5), epochs=[1, 6])
    path = desk.directory / "checkpoints" / "5" / "counts-0.input"
    path.write_bytes(path.read_bytes()[:-1])
    report, _ = desk.ask(COUNTS, 1, 5, inputs=[5])
    outcome = report["partitions"][str(COUNTS)]
    assert (outcome["status"], outcome["where"]) == ("damaged", "checkpoints/5/counts-0.input")


def test_durable_input_is_on_disk_with_its_name_before_it_is_reported(
    desk: Desk, flushed: list[Path]
) -> None:
    desk.store.begin_checkpoint(5)
    received = desk.read_rows(1, 5)
    flushed.clear()
    preserve(desk, received, epochs=[1, 6])
    folder = desk.directory / "checkpoints" / "5"
    assert [path.parent for path in flushed] == [folder, folder.parent]


def test_a_checkpoint_that_cannot_be_written_is_reported(desk: Desk) -> None:
    desk.count_rows(1, 1, checkpoint=1)  # nobody has made its folder
    (acknowledged,) = await_acknowledgements(desk)
    assert acknowledged["failed"]


def await_acknowledgements(desk: Desk) -> Sequence[dict[str, Any]]:
    """Acknowledgements so far, one at least; the limit on a unit test ends a vain wait."""
    while not desk.acknowledged:
        desk.ask(ROWS, 1, 1)
    return desk.acknowledged


def test_an_answer_comes_when_its_files_their_names_and_its_states_are_on_disk(
    desk: Desk, flushed: list[Path]
) -> None:
    folder = desk.directory / "outputs" / "out"
    outcome = desk.count_rows(1, 4)
    names = [sinks["out"][1] for *_, sinks in outcome["epochs"] if sinks]
    assert len(names) > 1
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert [path.parent for path in flushed] == [folder] * len(names) + [folder.parent]


def test_a_state_is_acknowledged_when_it_and_its_name_are_on_disk(
    desk: Desk, flushed: list[Path]
) -> None:
    desk.store.begin_checkpoint(1)
    folder = desk.directory / "checkpoints" / "1"
    flushed.clear()
    desk.count_rows(1, 1, checkpoint=1)
    await_acknowledgements(desk)
    found = [path.parent for path in flushed if path.parent in (folder, folder.parent)]
    assert found == [folder, folder.parent]
    assert [path.name for path in folder.iterdir()] == ["counts-0.state"]


def test_every_frame_of_an_answer_names_its_epoch(desk: Desk) -> None:
    found = list(frames.frames(memoryview(desk.read_rows(1, 3))))
    assert [(frame.producer, frame.epoch, frame.rows) for frame in found] == [
        (ROWS, 1, 3),  # one row a key: they are counted before the exchange
        (ROWS, 2, 3),
        (ROWS, 3, 3),
    ]
    assert partition.initial(desk.program.owner[COUNTS]).watermark < found[0].watermark
