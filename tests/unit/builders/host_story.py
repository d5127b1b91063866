"""Requests to a host that can be made again and again, each from the same state.

A story is a pipeline and what its sources give in each epoch. It is run once; then each request of
it is an action: the host forgets its program and what it keeps for speed, so that a repeat comes to
all that the first time came to.
"""

import contextlib
import functools
import io
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from rekindle_spark.checkpoint import state_files
from rekindle_spark.connectors import file_rows, kafka_ranges
from rekindle_spark.executor import host, work_items
from rekindle_spark.executor.host import Host
from rekindle_spark.executor.partition import PartitionState
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_store import store_files
from rekindle_store.committed_files import DEAD_LETTERS

SECOND = 1_000_000
OWN = "rekindle"


@dataclass(frozen=True)
class Action:
    """`run` does it once and returns the report; with `raises` an error that comes out of
    it is one that its caller in a host takes."""

    name: str
    run: Callable[[], Any]
    raises: bool = False

    def within(self, *contexts: Callable[[], Any]) -> "Action":
        """The same inside of contexts, each of which is entered each time."""

        def run() -> Any:
            with contextlib.ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context())
                return self.run()

        return Action(self.name, run, self.raises)


@functools.cache
def _caches(count: int) -> list[Any]:
    """The functions of ours that keep what they have given, as `count` modules have them."""
    del count
    modules = [module for name, module in sys.modules.items() if name.startswith(OWN)]
    values = [value for module in modules for value in vars(module).values()]
    return [one for one in values if hasattr(one, "cache_clear")]


def forget_what_is_kept() -> None:
    """Clear the caches of this process."""
    for one in _caches(len(sys.modules)):
        one.cache_clear()
    file_rows._readers.idle.clear()
    kafka_ranges._readers.clear()


@dataclass
class Story:
    """`offsets` are, for each epoch, those of each source with its watermark. `given` goes into
    each request, `items` into each item of it, by step."""

    name: str
    folder: Path
    pipeline: Pipeline | Program
    offsets: Sequence[Mapping[str, list[Any]]]
    given: dict[str, Any] = field(default_factory=dict)
    items: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    place: str = ""

    def __post_init__(self) -> None:
        given = self.pipeline
        self.program = given if isinstance(given, Program) else program.build(given)
        self.folder.mkdir(exist_ok=True, parents=True)
        self.place = self.place or str(self.folder)
        self.files = store_files.at(self.place)
        outputs = [output for chain in self.program.chains for output in chain.outputs]
        relays = [chain.name for chain in self.program.chains if chain.relay]
        epochs = [f"checkpoints/{epoch}" for epoch in range(len(self.offsets) + 1)]
        for name in (
            "outputs",
            "checkpoints",
            *epochs,
            *(f"outputs/{o}" for o in [*outputs, *relays]),
        ):
            self.files.make_folder(name)
        data = cloudpickle.dumps(self.program)
        self.files.put({"program": data})
        self.named = [self.program.hash, "program", work_items.program_digest(data)]
        self.host = Host(os.getpid())
        self.frames: dict[tuple[int, int], bytes] = {}
        self.reports: dict[tuple[int, int], Any] = {}

    @property
    def asked(self) -> Iterator[tuple[int, int]]:
        """Epochs and partitions in their order."""
        for epoch in range(1, len(self.offsets) + 1):
            for number in self.program.in_order(range(len(self.program.owner))):
                yield epoch, number

    def ask(self, epoch: int, number: int, restored: int | None = None, **more: Any) -> Any:
        """The report on one partition in one epoch; from a checkpoint where one is named."""
        name = self.program.owner[number].name
        item = {"partition": number, "plan_epoch": 1, "from": epoch, "to": epoch, "inputs": []}
        item |= {"counts": [epoch, epoch], "readers": None, "finished": 0}
        item |= {"restore_point": restored or 0, **self.items.get(name, {})}
        item |= more.pop("item", {})
        request = {
            "program": self.named,
            "generation": 1,
            "plan_epoch": 1,
            "store": self.place,
            "urgency": 0,
            "dead_letters": [2, 100],
            "checkpoint": None,
            "attempt": 1,
            "executor": "7",
            "held": list(range(len(self.program.owner))),
            "work": [item],
            "offsets": {str(epoch): self.offsets[epoch - 1]},
            **self.given,
            **more,
        }
        received = more.get("received", self.frames.get((epoch, number), b""))
        return self.send(request, received)

    def send(self, request: Mapping[str, Any], received: bytes) -> Any:
        """The report of a request; its frames are kept in `blocks`."""
        told = {name: value for name, value in request.items() if name != "received"}
        told = json.loads(json.dumps(told))
        answer = io.BytesIO(host._answered(self.host, told, io.BytesIO(received), len(received)))
        (size,) = struct.unpack(">i", answer.read(4))
        report = json.loads(answer.read(size))
        (targets,) = struct.unpack(">i", answer.read(4))
        self.blocks: dict[int, bytes] = {}
        for _ in range(targets):
            target, length = struct.unpack(">ii", answer.read(8))
            self.blocks[target] = answer.read(length)
        return report

    def begin(self) -> "Story":
        """Run all of it once."""
        for epoch, number in self.asked:
            report = self.reports[epoch, number] = self.ask(epoch, number)
            for target, block in self.blocks.items():
                self.frames[epoch, target] = self.frames.get((epoch, target), b"") + block
            assert self.accepts(report, number), f"{self.name}: {report}"
        return self

    def accepts(self, report: Any, number: int) -> bool:
        """Whether a report is no fault of the story's own making."""
        return report["status"] != "failed" and str(number) in report["partitions"]

    def again(self, epoch: int, number: int, **more: Any) -> Action:
        """One of its requests, as an action."""

        def run() -> Any:
            forget_what_is_kept()
            self.host.programs.clear()
            self.host.runner.pickled = ("", b"")
            if "restored" not in more:
                return self.ask(epoch, number, **more)
            kept = self.host.versions.pop(number)
            try:
                return self.ask(epoch, number, **more)
            finally:
                self.host.versions[number] = kept

        how = ", ".join(more)
        return Action(f"{self.name}: {self.program.partition_names[number]}, {epoch} {how}", run)

    def actions(self, *, restores: bool = False) -> Iterator[Action]:
        """All of its requests, and those of the last epoch once more from a checkpoint."""
        for epoch, number in self.asked:
            yield self.again(epoch, number)
        last = len(self.offsets)
        for number, chain in enumerate(self.program.owner):
            if restores and chain.keyed:
                self.write(last - 1, number)
                yield self.again(last, number, restored=last - 1)
                yield self.again(1, number, restored=0)

    def state(self, epoch: int, number: int) -> PartitionState:
        return self.host.versions[number].by_epoch[epoch]

    def writing(self, epoch: int, number: int, base: int = 0) -> state_files.Writing:
        """A state to be written."""
        chain = self.program.owner[number]
        place = work_items.checkpoint_file(
            {"store": self.place}, self.program, number, epoch, "state"
        )
        return state_files.Writing(*place, chain, number, epoch, 1, base, self.state(epoch, number))

    def write(self, epoch: int, number: int) -> None:
        (done,) = state_files.Checkpoints().write([self.writing(epoch, number)])
        assert "failed" not in done, done


def is_told(told: Any, panic: str) -> bool:
    """Whether a report names the panic."""
    return panic in json.dumps(told, default=str)


def has_letters(report: Any) -> bool:
    """Whether a request has left rows out."""
    return DEAD_LETTERS in json.dumps(report, default=str)
