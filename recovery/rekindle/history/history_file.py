"""Reads and writes the lines of a history file; names line, field and remedy of a fault.

    version line ──► graph line ──► steps, in order of t ──► end (references may follow)

Knows the format (docs/history.md) and what its lines may say about each other, draws no conclusion.
`rekindle check-history` calls `parse`. A witness is such a file too: `serialize` leaves out fields
that say nothing.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import networkx as nx

from rekindle.history import operations
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
from rekindle.history.operations import FIXED, KINDS, ORDERS, RECORDED, Operation, Value
from rekindle.model.errors import InputError

# One JSON line of a history, field by field: known fields, their types, unknown fields.
#
# Every refusal is an InputError that names file, line and field, and says what to write instead.

NAME_LENGTH_MAX = 200
VALUE_LENGTH_MAX = 10_000
VALUE_DEPTH_MAX = 20
INTEGER_MAX = 2**63 - 1
SHOWN_LENGTH_MAX = 60
CHOICES_SHOWN_MAX = 12
Read = TypeVar("Read")
MISSING: Any = object()


class _Wrong(Exception):
    """What is wrong with a field, and the remedy."""


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of line `number`. `where` is file and line, `path` leads to what is nested."""

    where: str
    number: int
    record: Mapping[str, Any]
    path: str = ""

    def take(self, field: str, read: Callable[[Any], Read], default: Any = MISSING) -> Read:
        """The field as `read` gives it, or `default` where it is absent."""
        if field not in self.record:
            if default is MISSING:
                self.refuse(field, "is missing", "add it (docs/history.md)")
            absent: Read = default
            return absent
        try:
            return read(self.record[field])
        except _Wrong as wrong:
            self.refuse(field, *wrong.args)

    def inner(self, field: str) -> "Fields":
        """A field that is an object itself."""
        found = self.take(field, lambda item: item)
        if not isinstance(found, dict):
            self.refuse(field, f"is {shown(found)}", "give an object")
        return Fields(self.where, self.number, found, f"{self.path}{field}.")

    def choose(self, field: str, choices: Collection[str], default: Any = MISSING) -> str:
        """A field that is one of these words."""
        found = self.take(field, lambda item: item, default)
        if not isinstance(found, str) or found not in choices:
            known = [*choices][:CHOICES_SHOWN_MAX]
            more = ", …" if len(choices) > len(known) else ""
            self.refuse(field, f"is {shown(found)}", f"give {' or '.join(known)}{more}")
        return found

    def only(self, *known: str) -> None:
        """Refuse fields that are not known."""
        for name in self.record:
            if name not in known:
                remedy = f"remove it; known here are {', '.join(known)}"
                self.refuse(name, "is not a known field", remedy)

    def refuse(self, field: str, what: str, remedy: str) -> NoReturn:
        """Raise the InputError for a field."""
        raise InputError(where=f"{self.where}: {self.path}{field}", what=what, remedy=remedy)


def fields_of(line: str, where: str, number: int) -> Fields:
    """The object that a line holds; InputError when it is none."""
    try:
        record = json.loads(line, object_pairs_hook=_once)
    except _Wrong as wrong:
        what, remedy = wrong.args
        raise InputError(where=where, what=what, remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            where=where,
            what=f"is no JSON ({str(error)[:SHOWN_LENGTH_MAX]})",
            remedy="write one JSON object per line",
        ) from None
    if not isinstance(record, dict):
        raise InputError(
            where=where, what=f"is {shown(record)}", remedy="write one JSON object per line"
        )
    return Fields(where, number, record)


def _text_name(item: Any) -> str:
    """A name of a channel, an operation, or a digest."""
    if not isinstance(item, str) or not item.isprintable() or len(item) > NAME_LENGTH_MAX:
        raise _Wrong(
            f"is {shown(item)}", f"give printable text of at most {NAME_LENGTH_MAX} characters"
        )
    return item


def names(item: Any) -> tuple[str, ...]:
    """A list of names, none twice."""
    if not isinstance(item, list) or not item:
        raise _Wrong(f"is {shown(item)}", "give a list of names")
    found = tuple(_text_name(part) for part in item)
    if len(set(found)) < len(found):
        raise _Wrong("has a name twice", "leave one of them out")
    return found


def time(item: Any) -> float:
    """Logical time: any finite number."""
    number = isinstance(item, int | float) and not isinstance(item, bool)
    if not number or not abs(item) <= INTEGER_MAX:  # also not a number
        raise _Wrong(f"is {shown(item)}", "give a number")
    return item  # type: ignore[no-any-return]  # whole times stay whole, for people


def flag(item: Any) -> bool:
    """true or false."""
    if not isinstance(item, bool):
        raise _Wrong(f"is {shown(item)}", "give true or false")
    return item


def integer(lowest: int) -> Callable[[Any], int]:
    """A reader of whole numbers from `lowest`."""

    def read(item: Any) -> int:
        if not whole(item) or not lowest <= item <= INTEGER_MAX:
            raise _Wrong(f"is {shown(item)}", f"give a whole number from {lowest}")
        found: int = item
        return found

    return read


def whole(item: Any) -> bool:
    """Whether it is a whole number; true and false are none."""
    return isinstance(item, int) and not isinstance(item, bool)


def value(item: Any, depth: int = 0) -> Value:
    """An element or a state; lists become tuples."""
    if isinstance(item, list) and len(item) <= VALUE_LENGTH_MAX and depth < VALUE_DEPTH_MAX:
        return tuple(value(part, depth + 1) for part in item)
    if item is None or (isinstance(item, str) and _is_text(item)):
        return item
    if whole(item) and abs(item) <= INTEGER_MAX:
        found: int = item
        return found
    raise _Wrong(
        f"is {shown(item)}",
        "give a string, a whole number, null, or a list of them (floats and true would not be "
        "equal to themselves in every order of a sum; write them as strings)",
    )


def _is_text(item: str) -> bool:
    """Whether it is short enough and can be printed: JSON knows halves of characters."""
    return len(item) <= VALUE_LENGTH_MAX and not any("\ud800" <= sign <= "\udfff" for sign in item)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise _Wrong(f"has the field {shown(twice)} twice", "leave one of them out")
    return record


def shown(item: Any) -> str:
    """JSON, short enough for a message."""
    try:
        text = json.dumps(item)
    except (ValueError, RecursionError):
        return "a value beyond all limits"
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"


# Reads the graph line of a history: channels, operations with their parameters, outputs.
#
# Refuses names that lead nowhere, cycles, and recorded operations beside modelled ones.

OPERATIONS_MAX = 100_000


def graph_from(line: Fields) -> Graph:
    """The graph; InputError names the field that cannot be."""
    line.choose("kind", ("graph",))
    line.only("kind", "inputs", "operations", "outputs")
    described = line.inner("operations")
    if not 0 < len(described.record) <= OPERATIONS_MAX:
        remedy = f"describe from 1 to {OPERATIONS_MAX:,}"
        line.refuse("operations", f"describes {len(described.record)} operations", remedy)
    found = {name: _operation(name, described) for name in described.record}
    recorded = {operation.kind == RECORDED for operation in found.values()}
    if len(recorded) > 1:
        line.refuse("operations", "has recorded ones beside others", "use one form for all")
    inputs = () if recorded == {True} else line.take("inputs", names)
    if recorded == {True} and "inputs" in line.record:
        line.refuse("inputs", "names channels", "remove it: recorded operations have epochs")
    for name in inputs:
        if name in found:
            line.refuse("inputs", f"names {name}, an operation", "give the channel another name")
    _check_sources(described, found, inputs)
    return Graph(inputs, _in_order(line, found), _outputs(line.inner("outputs"), found))


def _operation(name: str, described: Fields) -> Operation:
    place = described.inner(name)
    described.take(name, lambda _: _text_name(name))
    kind = place.choose("kind", (*KINDS, RECORDED))
    if kind == RECORDED:
        place.only("kind", "from")
        return Operation(name, kind, place.take("from", names, ()))
    own = {"concatenate": ("window",), "filter": ("keep",)}.get(kind, ())
    place.only("kind", "from", "order", "keyed", *own)
    sources = place.take("from", names)
    if kind == "join" and len(sources) != 2:
        place.refuse("from", f"names {len(sources)} sources", "name the two that are joined")
    return Operation(
        name=name,
        kind=kind,
        sources=sources,
        order=place.choose("order", ORDERS, FIXED),
        keyed=place.take("keyed", flag, False),
        window=place.take("window", integer(1), None),
        keep=_kept(place) if kind == "filter" else (),
    )


def _kept(place: Fields) -> tuple[Value, ...]:
    kept = place.take("keep", value)
    if not isinstance(kept, tuple):
        place.refuse("keep", f"is {shown(kept)}", "give the list of values that pass")
    return kept


def _check_sources(
    described: Fields, found: Mapping[str, Operation], inputs: tuple[str, ...]
) -> None:
    read = {source for operation in found.values() for source in operation.sources}
    for name, operation in found.items():
        for source in operation.sources:
            if source not in found and source not in inputs:
                remedy = "name an operation or one of the inputs"
                described.refuse(f"{name}.from", f"names {source}, which is not there", remedy)
    for channel in inputs:
        if channel not in read:
            described.refuse(
                "from", f"no operation reads the input {channel}", "remove it from inputs"
            )


def _in_order(line: Fields, found: Mapping[str, Operation]) -> tuple[Operation, ...]:
    """Producers before consumers, otherwise as they stand in the file."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(found)
    for name, operation in found.items():
        graph.add_edges_from((source, name) for source in operation.sources if source in found)
    places = {name: place for place, name in enumerate(found)}
    try:
        order = list(nx.lexicographical_topological_sort(graph, key=places.__getitem__))
    except nx.NetworkXUnfeasible:
        cycle = " -> ".join(producer for producer, _ in nx.find_cycle(graph))
        line.refuse("operations", f"have the cycle {cycle}", "cut it at one of its arrows")
    return tuple(found[name] for name in order)


def _outputs(place: Fields, found: Mapping[str, Operation]) -> dict[str, str]:
    outputs = {}
    for channel in place.record:
        source = place.take(channel, _text_name)
        if source not in found:
            place.refuse(channel, f"is {shown(source)}", "name the operation that feeds it")
        outputs[channel] = source
    if not outputs:
        place.refuse("*", "no channel is named", "name at least one, with its operation")
    return outputs


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
            yield fields_of(line, f"{where}: line {number}", number)


def _next(lines: Iterator[Fields], where: str, wanted: str) -> Fields:
    found = next(lines, None)
    if found is None:
        raise InputError(where=where, what=f"ends before {wanted}", remedy="record it whole")
    return found


def _check_version(line: Fields) -> None:
    line.choose("kind", ("history",))
    version = line.take("version", integer(1))
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
        return Input(_t(line), channel, line.take("value", value), line.number)

    def output(self, line: Fields) -> Step:
        line.only("kind", "t", "channel", "value", "unseen_before")
        unseen = line.take("unseen_before", flag, False)
        channel = line.choose("channel", self.graph.outputs)
        return HistoryOutput(_t(line), channel, line.take("value", value), unseen, line.number)

    def snapshot(self, line: Fields) -> Step:
        line.only("kind", "t", "operation", "state")
        if "operation" not in line.record:
            line.only("kind", "t", "operation")
            return Snapshot(_t(line), None, (), line.number)
        name = self._operation(line)
        if "state" not in line.record:
            return Snapshot(_t(line), name, (), line.number)
        try:
            state = operations.state_from(self.named[name], line.take("state", value))
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
        return End(_t(line), line.take("unseen_before", flag, False), line.number)

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
        digest = line.take("digest", _text_name)
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
            line.take("digest", _text_name),
            line.take("rows", integer(0)),
        )

    def _operation(self, line: Fields) -> str:
        return line.choose("operation", self.named)


def _t(line: Fields) -> float:
    return line.take("t", time)


def _epoch(line: Fields) -> int:
    return line.take("epoch", integer(0))


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


_KINDS: Mapping[type, str] = {
    Input: "input",
    HistoryOutput: "output",
    Snapshot: "snapshot",
    HistoryFailure: "failure",
    HistoryRecovery: "recovery",
    End: "end",
    EpochInput: "input",
    Computed: "computed",
    EpochOutput: "output",
    EpochSnapshot: "snapshot",
    ExpectedOutput: "reference",
}


def serialize(history: History) -> str:
    """The lines of a history file, the version first."""
    records = [
        {"version": VERSION, "kind": "history"},
        _graph(history.graph),
        *(record_of(step) for step in history.steps),
    ]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def record_of(step: Step) -> dict[str, Any]:
    """A step as the object of its line."""
    record: dict[str, Any] = {"kind": _KINDS[type(step)]}
    for name in step.__dataclass_fields__:
        if name != "line":
            record[name] = getattr(step, name)
    if not record.get("unseen_before", True):
        del record["unseen_before"]
    if isinstance(step, Snapshot):
        if step.state:
            record["state"] = step.state[0]
        else:
            del record["state"]
        if step.operation is None:
            del record["operation"]
    return record


def _graph(graph: Graph) -> dict[str, Any]:
    inputs = {"inputs": list(graph.inputs)} if graph.inputs else {}
    operations = {operation.name: _operation_record(operation) for operation in graph.operations}
    return {"kind": "graph", **inputs, "operations": operations, "outputs": dict(graph.outputs)}


def _operation_record(operation: Operation) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": operation.kind}
    if operation.sources or operation.kind != RECORDED:
        record["from"] = list(operation.sources)
    if operation.order != FIXED:
        record["order"] = operation.order
    if operation.keyed:
        record["keyed"] = True
    if operation.window is not None:
        record["window"] = operation.window
    if operation.kind == "filter":
        record["keep"] = operation.keep
    return record
