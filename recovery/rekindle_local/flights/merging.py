"""Keyed steps that read several streams of one schema as one.

The runtime hands an operator one table per input; window, top and stateful operators of
`rekindle_spark` read the first alone. Here they are wrapped: inputs are put below one another in
the order of the streams, which is the runtime's fixed order. Called by `pipeline`.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rekindle.errors import InputError
from rekindle_spark.operators import CombiningOperator, KeyedOperator
from rekindle_spark.pipeline import Step, Stream

__all__ = ["Merged", "MergedCombining", "merge"]


class Merged:
    """A keyed operator of one input, over several inputs of the same schema."""

    def __init__(self, operator: KeyedOperator) -> None:
        self.operator = operator
        self.output_schema = operator.output_schema
        self.output_event_time = operator.output_event_time

    def initial(self) -> Any:
        return self.operator.initial()

    def process(
        self, state: Any, inputs: Sequence[pa.Table], previous_watermark: int, watermark: int
    ) -> tuple[Any, pa.Table]:
        """As the operator's, with all inputs as its one input."""
        merged = [pa.concat_tables(inputs)]
        return self.operator.process(state, merged, previous_watermark, watermark)

    def dump(self, state: Any) -> list[pa.Table]:
        return self.operator.dump(state)

    def load(self, tables: Sequence[pa.Table]) -> Any:
        return self.operator.load(tables)

    def state_bytes(self, state: Any) -> int:
        return self.operator.state_bytes(state)


class MergedCombining(Merged):
    """The same for an operator whose rows are reduced at the producers."""

    def __init__(self, operator: CombiningOperator) -> None:
        super().__init__(operator)
        self.combining = operator
        self.combined_schema = operator.combined_schema

    def combine(self, table: pa.Table) -> pa.Table:
        return self.combining.combine(table)


def merge(
    name: str,
    streams: Sequence[Stream],
    operator: KeyedOperator,
    *,
    keys: Sequence[str],
    parallelism: int = 1,
) -> Stream:
    """Add the keyed step `name`, which runs `operator` over all `streams`.

    Raises InputError when the streams differ in schema or event time.
    """
    first = streams[0]
    for stream in streams:
        if not stream.schema.equals(first.schema) or stream.event_time != first.event_time:
            raise InputError(
                where=f"step {name}: input {stream.name}",
                what=f"has another schema or event time than {first.name}",
                remedy="bring the inputs to one schema with map steps",
            )
    merged = Merged(operator)
    if isinstance(operator, CombiningOperator):
        merged = MergedCombining(operator)
    return first.pipeline.add(
        Step(
            name,
            "keyed",
            tuple(stream.name for stream in streams),
            parallelism,
            merged,
            merged.output_schema,
            merged.output_event_time,
            tuple(keys),
        )
    )
