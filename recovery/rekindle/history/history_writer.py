"""Writes a history as the lines that `history_reader` reads; a witness is such a file too.

Fields that say nothing are left out. The recorder, the shell and tests call it.
"""

import json
from collections.abc import Mapping
from typing import Any

from rekindle.history.history_reader import VERSION
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
from rekindle.history.operations import FIXED, RECORDED, Operation

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
    operations = {operation.name: _operation(operation) for operation in graph.operations}
    return {"kind": "graph", **inputs, "operations": operations, "outputs": dict(graph.outputs)}


def _operation(operation: Operation) -> dict[str, Any]:
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
