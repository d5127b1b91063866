"""Reads the lines of a history file into a `History`; names line, field and remedy of a fault.

    version line ──► graph line ──► steps, in order of t ──► end (references may follow)

Knows the format (docs/history.md) and what its lines may say about each other, draws no conclusion.
`rekindle check-history` calls `parse`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rekindle.history import line_schema, operations
from rekindle.history.graph_reader import graph_from
from rekindle.history.history_steps import (
    Computed,
    End,
    EpochInput,
    EpochOutput,
    EpochSnapshot,
    ExpectedOutput,
    Graph,
    History,
    HistoryFailure,
    HistoryOutput,
    HistoryRecovery,
    Input,
    Snapshot,
    Step,
)
from rekindle.history.line_schema import Fields
from rekindle.history.operations import Operation
from rekindle.model.errors import InputError

VERSION = 1
LINES_MAX = 2_000_000


def parse(text: str, where: str) -> History:
    """The history in `text`, the content of the file `where`."""
    lines = _lines(text, where)
    _check_version(_next(lines, where, 'its first line, {"version": 1, "kind": "history"}'))
    graph = graph_from(_next(lines, where, "the line that describes the graph"))
    entry = _Entry(graph)
    return History(graph, tuple(entry.step(line) for line in lines))


def _lines(text: str, where: str) -> Iterator[Fields]:
    lines = text.split("\n")
    if len(lines) > LINES_MAX:
        raise InputError(
            where=where,
            what=f"has {len(lines):,} lines, {LINES_MAX:,} are the limit",
            remedy="check a shorter part of the run",
        )
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield line_schema.fields_of(line, f"{where}: line {number}", number)


def _next(lines: Iterator[Fields], where: str, wanted: str) -> Fields:
    found = next(lines, None)
    if found is None:
        raise InputError(where=where, what=f"ends before {wanted}", remedy="record it whole")
    return found


def _check_version(line: Fields) -> None:
    line.choose("kind", ("history",))
    version = line.take("version", line_schema.integer(1))
    if version != VERSION:
        line.refuse("version", f"is {version}, known is {VERSION}", "use the release that wrote it")
    line.only("version", "kind")


@dataclass(slots=True)
class _Entry:
    """Reads one step after the other, and holds what the next one has to go with."""

    graph: Graph
    named: Mapping[str, Operation] = field(init=False)
    t: float = -math.inf
    failed: bool = False
    ended: bool = False
    epoch: int = -1
    references: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.named = {operation.name: operation for operation in self.graph.operations}

    def step(self, line: Fields) -> Step:
        """The step of a line; InputError when it cannot stand after those before it."""
        readers = _RECORDED if self.graph.recorded else _MODELLED
        ended = self.ended
        step = readers[line.choose("kind", readers)](self, line)
        if isinstance(step, ExpectedOutput):
            return step
        if ended:
            line.refuse("kind", "is a step after the end", "make `end` the last step")
        if step.t < self.t:
            line.refuse("t", f"is {step.t:g}, before {self.t:g}", "put the steps in order of t")
        self.t = step.t
        return step

    def input(self, line: Fields) -> Step:
        line.only("kind", "t", "channel", "value")
        channel = line.choose("channel", self.graph.inputs)
        return Input(_t(line), channel, line.take("value", line_schema.value), line.number)

    def output(self, line: Fields) -> Step:
        line.only("kind", "t", "channel", "value", "unseen_before")
        unseen = line.take("unseen_before", line_schema.flag, False)
        channel = line.choose("channel", self.graph.outputs)
        return HistoryOutput(
            _t(line), channel, line.take("value", line_schema.value), unseen, line.number
        )

    def snapshot(self, line: Fields) -> Step:
        line.only("kind", "t", "operation", "state")
        if "operation" not in line.record:
            line.only("kind", "t", "operation")
            return Snapshot(_t(line), None, (), line.number)
        name = self._operation(line)
        if "state" not in line.record:
            return Snapshot(_t(line), name, (), line.number)
        try:
            state = operations.state_from(self.named[name], line.take("state", line_schema.value))
        except InputError as error:
            line.refuse("state", f"{error.where} {error.what}", error.remedy)
        return Snapshot(_t(line), name, (state,), line.number)

    def failure(self, line: Fields) -> Step:
        line.only("kind", "t")
        self.failed = True
        return HistoryFailure(_t(line), line.number)

    def recovery(self, line: Fields) -> Step:
        line.only("kind", "t")
        if not self.failed:
            line.refuse("kind", "is a recovery without a failure before it", "record the failure")
        self.failed = False
        return HistoryRecovery(_t(line), line.number)

    def end(self, line: Fields) -> Step:
        line.only("kind", "t", "unseen_before")
        self.ended = True
        return End(_t(line), line.take("unseen_before", line_schema.flag, False), line.number)

    def epoch_input(self, line: Fields) -> Step:
        line.only("kind", "t", "epoch")
        epoch = _epoch(line)
        if epoch <= self.epoch:
            remedy = "log each epoch once, in ascending order"
            line.refuse("epoch", f"is {epoch}, after {self.epoch}", remedy)
        self.epoch = epoch
        return EpochInput(_t(line), epoch, line.number)

    def computed(self, line: Fields) -> Step:
        line.only("kind", "t", "operation", "epoch", "digest")
        digest = line.take("digest", line_schema.name)
        return Computed(_t(line), self._operation(line), _epoch(line), digest, line.number)

    def epoch_output(self, line: Fields) -> Step:
        line.only("kind", "t", "channel", "epoch", "digest", "rows")
        channel, epoch, digest, rows = self._released(line)
        return EpochOutput(_t(line), channel, epoch, digest, rows, line.number)

    def reference(self, line: Fields) -> Step:
        line.only("kind", "channel", "epoch", "digest", "rows")
        channel, epoch, digest, rows = self._released(line)
        if (channel, epoch) in self.references:
            line.refuse("epoch", f"{epoch} of {channel} has a reference", "leave one of them out")
        self.references.add((channel, epoch))
        return ExpectedOutput(channel, epoch, digest, rows, line.number)

    def epoch_snapshot(self, line: Fields) -> Step:
        line.only("kind", "t", "epoch")
        return EpochSnapshot(_t(line), _epoch(line), line.number)

    def _released(self, line: Fields) -> tuple[str, int, str, int]:
        return (
            line.choose("channel", self.graph.outputs),
            _epoch(line),
            line.take("digest", line_schema.name),
            line.take("rows", line_schema.integer(0)),
        )

    def _operation(self, line: Fields) -> str:
        return line.choose("operation", self.named)


def _t(line: Fields) -> float:
    return line.take("t", line_schema.time)


def _epoch(line: Fields) -> int:
    return line.take("epoch", line_schema.integer(0))


_Reader = Callable[[_Entry, Fields], Step]
_HAPPENINGS: Mapping[str, _Reader] = {
    "failure": _Entry.failure,
    "recovery": _Entry.recovery,
    "end": _Entry.end,
}
_MODELLED: Mapping[str, _Reader] = {
    "input": _Entry.input,
    "output": _Entry.output,
    "snapshot": _Entry.snapshot,
    **_HAPPENINGS,
}
_RECORDED: Mapping[str, _Reader] = {
    "input": _Entry.epoch_input,
    "computed": _Entry.computed,
    "output": _Entry.epoch_output,
    "snapshot": _Entry.epoch_snapshot,
    "reference": _Entry.reference,
    **_HAPPENINGS,
}
