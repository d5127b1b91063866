"""A host without Spark, and who asks it as the tasks of a driver do."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from rekindle_spark.executor import work_items
from rekindle_spark.executor.host import Host
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.store.checkpoint_store import CheckpointStore

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
SECOND = 1_000_000
ROWS, COUNTS = 0, 1
# a sandbox does not know this module
cloudpickle.register_pickle_by_value(sys.modules[__name__])


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
    pickled: bytes = field(init=False)
    # as a request names it
    named_program: list[str] = field(init=False)

    @property
    def store(self) -> CheckpointStore:
        """As the driver sees it."""
        return CheckpointStore(self.directory)

    def __post_init__(self) -> None:
        self.store.make_outputs(["out"])
        (self.directory / "checkpoints").mkdir(exist_ok=True)
        self.pickled = cloudpickle.dumps(self.program)
        (self.directory / "program").write_bytes(self.pickled)
        digest = work_items.program_digest(self.pickled)
        self.named_program = [self.program.hash, "program", digest]

    def request(self, number: int, first: int, last: int, **header: Any) -> dict[str, Any]:
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
            **{
                name: header.pop(name)
                for name in ("apart", "beside", "choices", "lane")
                if name in header
            },
        }
        return {
            "version": 1,
            "program": self.named_program,
            "generation": 1,
            "plan_epoch": item["plan_epoch"],
            "store": str(self.directory),
            "urgency": 0,
            "dead_letters": [3, 100],
            "checkpoint": None,
            "attempt": 1,
            "executor": "7",
            "held": [ROWS, COUNTS],
            "finished": header.pop("finished_epochs", {}),
            "work": [item],
            "offsets": {
                str(epoch): {"rows": [epoch * 10 - 10, epoch * 10, epoch * 10 * SECOND]}
                for epoch in range(first, last + 1)
            },
            **header,
        }

    def ask(
        self, number: int, first: int, last: int, received: bytes = b"", **header: Any
    ) -> tuple[dict[str, Any], list[tuple[int, list[bytes]]]]:
        request = self.request(number, first, last, **header)
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


def digests(outcome: dict[str, Any]) -> list[str]:
    assert outcome["status"] == "ok", outcome
    return [epoch[2] for epoch in outcome["epochs"]]


def await_acknowledgements(desk: Desk) -> Sequence[dict[str, Any]]:
    """Acknowledgements so far, one at least; the limit on a unit test ends a vain wait."""
    while not desk.acknowledged:
        desk.ask(ROWS, 1, 1)
    return desk.acknowledged
