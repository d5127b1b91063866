"""The largest rows per event time, pruned before the exchange.

Called by `partition`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rekindle_spark.operators import arrow_columns, column_types, grouping, state_tables, watermarks
from rekindle_spark.operators.arrow_columns import Integers, Mask
from rekindle_spark.operators.watermarks import FINAL_WATERMARK
from rekindle_spark.user_code import argument_checks

RANK = "rank"
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class TopState:
    """The best rows so far, sorted; the earliest of their event times is `closes_at`."""

    rows: pa.Table
    closes_at: int
    late_rows: int


class Top:
    """The `count` rows with the largest `by` per event time and keys, with their `rank` from 1.

    Nulls in `by` come last, ties go by the `ties` columns ascending (default: all others), then
    by arrival. Emitted when the watermark reaches the event time, sorted by event time, keys, rank.
    """

    def __init__(
        self,
        name: str,
        input_schema: pa.Schema,
        event_time: str,
        by: str,
        count: int,
        keys: Sequence[str] = (),
        ties: Sequence[str] = (),
    ) -> None:
        where = argument_checks.place("step", name)
        arrow_columns.check_event_time(where, input_schema, event_time)
        arrow_columns.check_names(where, [*input_schema.names, RANK])
        column_types.check(f"{where}: its input", input_schema)
        arrow_columns.check_keys(f"{where}: by", input_schema, [by])
        arrow_columns.check_keys(f"{where}: keys", input_schema, keys)
        argument_checks.check_list(f"{where}: ties", ties)
        argument_checks.check_whole(f"{where}: count", count, COUNT_MAX)
        taken = {event_time, by, *keys}
        self.ties = tuple(ties) or tuple(c for c in input_schema.names if c not in taken)
        arrow_columns.check_keys(f"{where}: ties", input_schema, self.ties)
        self.name, self.event_time, self.by, self.count = name, event_time, by, count
        self.keys = tuple(keys)
        self.state_keys = (self.keys,)
        self.combined_schema = input_schema
        self.output_schema = input_schema.append(pa.field(RANK, pa.int64()))
        self.output_event_time = event_time
        self.no_rows, self.no_output = input_schema.empty_table(), self.output_schema.empty_table()

    @property
    def combining(self) -> Hashable:
        """All that `combine` depends on."""
        return type(self), self.event_time, self.by, self.count, self.keys, self.ties

    def initial(self) -> TopState:
        return TopState(self.no_rows, FINAL_WATERMARK, 0)

    def combine(self, table: pa.Table) -> pa.Table:
        """The rows of one producer and epoch that can be among the best."""
        return self._best(table)[0] if table.num_rows else self.no_rows

    def process(
        self, state: TopState, inputs: Sequence[pa.Table], previous_watermark: int, watermark: int
    ) -> tuple[TopState, pa.Table]:
        """Take rows; emit those whose event time lies in (previous_watermark, watermark]."""
        rows, late = watermarks.in_time(inputs[0], self.event_time, previous_watermark)
        late_rows = state.late_rows + late
        if inputs[0].num_rows == 0 and self.is_idle(state, watermark):
            return state, self.no_output
        best, ranks = self._best(state_tables.concatenate([state.rows, rows]))
        moments = watermarks.microseconds(best[self.event_time])
        # Sorted by event time first, so what is due comes first.
        due = int(np.searchsorted(moments, watermark, side="right"))
        output = self.no_output
        if due:
            output = best.slice(0, due).append_column(
                pa.field(RANK, pa.int64()), pa.array(ranks[:due])
            )
            best = state_tables.select_rows(best, np.arange(due, len(moments)))
        closes_at = int(moments[due]) if due < len(moments) else FINAL_WATERMARK
        return TopState(best, closes_at, late_rows), output

    def is_idle(self, state: TopState, watermark: int) -> bool:
        """Whether no row is emitted up to a watermark."""
        return watermark < state.closes_at or state.rows.num_rows == 0

    def late(self, slot: int, rows: pa.Table, previous_watermark: int) -> Mask:  # noqa: ARG002
        """Which rows come after their event time was emitted."""
        return watermarks.are_late(watermarks.arriving(rows, self.event_time), previous_watermark)

    def dump(self, state: TopState) -> list[pa.Table]:
        scalars = state_tables.dump_scalars(closes_at=state.closes_at, late_rows=state.late_rows)
        return [scalars, state.rows]

    def load(self, dumped: Sequence[pa.Table]) -> TopState:
        return TopState(dumped[1], **state_tables.load_scalars(dumped[0]))

    def state_bytes(self, state: TopState) -> int:
        return int(state.rows.nbytes)

    def _best(self, table: pa.Table) -> tuple[pa.Table, Integers]:
        """The best rows, sorted by event time, keys and rank, and their ranks."""
        names = (self.event_time, *self.keys)
        order = grouping.sort_rows(
            [(table[name], False) for name in names]
            + [(table[self.by], True)]
            + [(table[name], False) for name in self.ties]
        )
        keys = [arrow_columns.whole(table[name]) for name in names]
        ids = grouping.group(keys, table.num_rows).ids[order]
        # Rows of a group lie side by side now: the rank is the distance to where it begins.
        places = np.arange(len(order))
        begins = np.flatnonzero(np.diff(ids, prepend=-1))
        ranks = places - np.repeat(begins, np.diff(begins, append=len(order))) + 1
        kept = ranks <= self.count
        return state_tables.select_rows(table, order[kept]), ranks[kept]
