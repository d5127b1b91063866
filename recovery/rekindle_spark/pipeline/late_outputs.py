"""Rows that come too late for a keyed step: counted, and kept beside where that is asked for.

    rows of an epoch ──► in time ──► operator
              └────────► late ─────► outputs/STEP.late, with the step's other output

Which rows are late is up to operators (`operators`), which drop and count them. Producers send
whole rows to a step with `late`, not what they have combined, and the late ones are taken out here
before its operator runs. They are output like any other: written, digested and committed with the
epoch. `partition` calls this; `late_row_counts` adds up what counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rekindle.model.errors import refuse
from rekindle_spark.operators import INITIAL_WATERMARK, state_tables
from rekindle_spark.pipeline.steps import LATE_COLUMNS, Step
from rekindle_store.committed_files import LATE, LATE_SIDES


@dataclass(slots=True)
class InTime:
    """Inputs of an operator by slot without their late rows; `late` has these by output, and `rows`
    is their number."""

    inputs: list[pa.Table]
    late: dict[str, pa.Table] = field(default_factory=dict)
    rows: int = 0

    def counted(self, state: Any) -> Any:
        """An operator's state with these rows among its late ones."""
        return replace(state, late_rows=state.late_rows + self.rows) if self.rows else state


def names(step: Step) -> tuple[str, ...]:
    """The names of a step's outputs of late rows: one for each of its inputs."""
    if not step.late:
        return ()
    endings = LATE_SIDES if len(step.inputs) > 1 else (LATE,)
    return tuple(step.name + ending for ending in endings)


def check_names(steps: Iterable[Step]) -> None:
    """Raise InputError for a sink with the name of an output of late rows."""
    known = tuple(steps)
    late = {output for step in known for output in names(step)}
    for step in known:
        if step.kind == "sink" and step.name in late:
            what, remedy = "has the name of an output of late rows", "give the sink another name"
            refuse(f"step {step.name}", what, remedy)


def separate(step: Step, inputs: Sequence[pa.Table], watermark: int, epoch: int) -> InTime:
    """Split the inputs of an epoch by the watermark that the step has reached before.

    Late rows get the columns `late_step`, `late_epoch` and `late_watermark`, which is null before
    any watermark.
    """
    found, operator = InTime([]), step.function
    for slot, (output, rows) in enumerate(zip(names(step), inputs, strict=True)):
        late = operator.late(slot, rows, watermark) if rows.num_rows else np.zeros(0, bool)
        if late.any():
            found.late[output] = _marked(
                state_tables.select_rows(rows, late), step, watermark, epoch
            )
            found.rows += int(np.count_nonzero(late))
            rows = state_tables.select_rows(rows, ~late)
        found.inputs.append(operator.combine(rows) if hasattr(operator, "combine") else rows)
    return found


def _marked(rows: pa.Table, step: Step, watermark: int, epoch: int) -> pa.Table:
    reached = None if watermark == INITIAL_WATERMARK else watermark
    for column, value in zip(LATE_COLUMNS, (step.name, epoch, reached), strict=True):
        rows = rows.append_column(column, pa.array([value] * rows.num_rows, column.type))
    return rows
