"""Types and names of the columns of all steps, checked when a pipeline is built.

What cannot go from one step to the next, or into a Parquet file, is refused before anything starts,
with step and column. Keys and aggregates are checked by their operators when the step is added.
docs/pipelines.md has the table of types. Called by `program`.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from rekindle_spark.operators import arrow_columns, column_types
from rekindle_spark.output import sink_files
from rekindle_spark.pipeline.steps import LATE_COLUMNS, REPORTED_COLUMNS, Step
from rekindle_spark.user_code import poison_rows

__all__ = ["check"]


def check(steps: Iterable[Step], named: Mapping[str, Step]) -> None:
    """Raise InputError for the first step with a column that cannot be carried or written."""
    for step in steps:
        assert step.schema is not None
        where = f"step {step.name}"
        if step.kind == "sink":
            sink_files.check_schema(where, step.schema)
            arrow_columns.check_cases(where, step.schema.names, REPORTED_COLUMNS)
        else:
            column_types.check(where, step.schema)
        if step.dead_letters:
            _check_given(f"{where}: dead letters", named[step.inputs[0]], poison_rows.COLUMNS)
        for name in step.inputs if step.late else ():
            _check_given(f"{where}: late rows", named[name], LATE_COLUMNS)


def _check_given(where: str, given: Step, added: Iterable[pa.Field]) -> None:
    """What a step keeps beside is written from the rows that it is given."""
    assert given.schema is not None
    sink_files.check_schema(where, given.schema)
    arrow_columns.check_cases(where, given.schema.names, [column.name for column in added])
