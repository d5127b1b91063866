"""Event-time windows, aggregated before the exchange and merged behind it.

Windows are [start, start + size), starts are multiples of `slide` since 1970. Rows are aggregated
by pane: the longest stretch that every window takes whole or not at all (a tumbling window is one
pane; Li et al., "No pane, no gain", SIGMOD Record 2005). Panes, not windows, are exchanged and
kept, so a row costs the same however many windows it is in. Called by `partition`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
import pyarrow as pa

from rekindle.model.errors import StepError, refuse
from rekindle_spark.operators import aggregates as parts
from rekindle_spark.operators import arrow_columns, grouping, state_tables, watermarks
from rekindle_spark.operators.aggregates import Aggregate, Overflow
from rekindle_spark.operators.arrow_columns import TIMESTAMP, Integers, Mask
from rekindle_spark.operators.watermarks import FINAL_WATERMARK, INITIAL_WATERMARK, NO_TIME
from rekindle_spark.user_code import argument_checks

PANE = "#pane"


@dataclass(frozen=True, slots=True)
class WindowState:
    """Open panes in `combined_schema`; the next window closes at watermark `closes_at`. Windows
    that start before `begins_at` lack rows, and are left out."""

    panes: pa.Table
    closes_at: int
    late_rows: int
    begins_at: int = INITIAL_WATERMARK


class WindowAggregate:
    """Aggregates per keys and window, each emitted once, when the watermark passes its end.

    Output: keys, `window_start`, `window_end` (timestamp[us]), the aggregates; sorted by
    `window_end` and keys (nulls last). A row that comes after some of its windows have closed
    counts in the others; one that has none left is late.
    """

    def __init__(
        self,
        name: str,
        input_schema: pa.Schema,
        event_time: str,
        keys: Sequence[str],
        size_seconds: float,
        slide_seconds: float | None,
        aggregates: Mapping[str, Aggregate],
    ) -> None:
        where = argument_checks.place("step", name)
        arrow_columns.check_event_time(where, input_schema, event_time)
        arrow_columns.check_keys(f"{where}: keys", input_schema, keys)
        parts.check(f"{where}: aggregates", aggregates, input_schema)
        arrow_columns.check_names(where, [*keys, "window_start", "window_end", *aggregates])
        self.name, self.event_time, self.keys = name, event_time, tuple(keys)
        self.state_keys = (self.keys,)
        self.aggregates = dict(aggregates)
        self.size, self.slide = _durations(where, size_seconds, slide_seconds)
        self.pane = gcd(self.size, self.slide)
        self.input_schema = input_schema
        self.partials = parts.partials(aggregates, input_schema)
        _check_own(f"{where}: keys", keys, [PANE, *(partial.name for partial in self.partials)])
        self.layout = parts.layout(self.partials, input_schema)
        key_fields = [pa.field(key, input_schema.field(key).type) for key in keys]
        self.combined_schema = pa.schema(
            [
                *key_fields,
                pa.field(PANE, TIMESTAMP),
                *parts.fields(self.partials, input_schema),
            ]
        )
        self.output_schema = pa.schema(
            [*key_fields, pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP)]
            + [pa.field(column, a.kind(input_schema)) for column, a in aggregates.items()]
        )
        self.output_event_time = "window_end"
        # To make an empty table costs more than to find out that nothing is to be done.
        self.no_panes = self.combined_schema.empty_table()
        self.no_output = self.output_schema.empty_table()

    @property
    def combining(self) -> Hashable:
        """All that `combine` depends on."""
        return type(self), self.event_time, self.keys, self.pane, self.partials

    def initial(self) -> WindowState:
        return WindowState(self.no_panes, FINAL_WATERMARK, 0)

    def initial_from(self, moment: int) -> WindowState:
        """The state before rows of which all from an event time in microseconds on will come: the
        first window is the first one that starts there or later."""
        return replace(self.initial(), begins_at=self.first_whole_start(moment))

    def first_whole_start(self, moment: int) -> int:
        """The start of the first window that takes no rows from before an event time."""
        return moment + -moment % self.slide

    def combine(self, table: pa.Table) -> pa.Table:
        """Aggregate one producer's rows of one epoch by keys and pane."""
        if table.num_rows == 0:
            return self.no_panes
        rows = watermarks.arriving(table, self.event_time)
        panes = rows - rows % self.pane
        keys = [arrow_columns.canonical(arrow_columns.whole(table[key])) for key in self.keys]
        groups = grouping.group([panes // self.pane, *keys], len(panes))
        made = parts.combine(self.layout, table, groups)
        heads = [arrow_columns.take(key, groups.first) for key in keys]
        heads.append(watermarks.timestamps(panes[groups.first]))
        return pa.Table.from_arrays([*heads, *made], schema=self.combined_schema)

    def process(
        self,
        state: WindowState,
        inputs: Sequence[pa.Table],
        previous_watermark: int,
        watermark: int,
    ) -> tuple[WindowState, pa.Table]:
        """Take combined rows; emit the windows that end in (previous_watermark, watermark]."""
        if inputs[0].num_rows:
            state = self._absorb(state, inputs[0], previous_watermark)
        if self.is_idle(state, watermark):
            return state, self.no_output
        output = self._close(state, previous_watermark, watermark)
        starts = watermarks.microseconds(state.panes[PANE])
        open_ = self._last_starts(starts) + (self.size - 1) > watermark
        panes = state_tables.select_rows(state.panes, open_)
        closes_at = self._closes_at(starts[open_], watermark, state.begins_at)
        return replace(state, panes=panes, closes_at=closes_at), output

    def is_idle(self, state: WindowState, watermark: int) -> bool:
        """Whether no window with rows closes up to a watermark."""
        return watermark < state.closes_at or state.panes.num_rows == 0

    def late(self, slot: int, rows: pa.Table, previous_watermark: int) -> Mask:  # noqa: ARG002
        """Which rows have no window left that is open."""
        moments = watermarks.arriving(rows, self.event_time)
        return self._are_closed(moments - moments % self.pane, previous_watermark)

    def dump(self, state: WindowState) -> list[pa.Table]:
        numbers = {"closes_at": state.closes_at, "late_rows": state.late_rows}
        if state.begins_at != INITIAL_WATERMARK:  # earlier versions know no such number
            numbers["begins_at"] = state.begins_at
        return [state_tables.dump_scalars(**numbers), state.panes]

    def load(self, dumped: Sequence[pa.Table]) -> WindowState:
        panes = parts.completed(self.partials, dumped[1], self.combined_schema)
        return WindowState(panes, **state_tables.load_scalars(dumped[0]))

    def state_bytes(self, state: WindowState) -> int:
        return int(state.panes.nbytes)

    def _absorb(self, state: WindowState, rows: pa.Table, previous_watermark: int) -> WindowState:
        panes, late_rows = state_tables.concatenate([state.panes, rows]), state.late_rows
        starts = watermarks.microseconds(panes[PANE])
        late = self._are_closed(starts, previous_watermark)
        late[: state.panes.num_rows] = False
        late_rows += int(panes[parts.ROWS.name].to_numpy()[late].sum()) if late.any() else 0
        left_out = late | (self._last_starts(starts) < state.begins_at)
        if left_out.any():
            panes, starts = state_tables.select_rows(panes, ~left_out), starts[~left_out]
        closes_at = self._closes_at(starts, previous_watermark, state.begins_at)
        return WindowState(self._merge(panes, starts), closes_at, late_rows, state.begins_at)

    def _are_closed(self, panes: Integers, watermark: int) -> Mask:
        """Of which panes all windows have been emitted at a watermark."""
        return watermarks.are_late(self._last_starts(panes) + (self.size - 1), watermark)

    def _merge(self, table: pa.Table, starts: Integers) -> pa.Table:
        """One row per keys and `starts`, which become the pane column."""
        keys = [arrow_columns.whole(table[key]) for key in self.keys]
        groups = grouping.group([starts // self.pane, *keys], len(starts))
        made = parts.merge(self.layout, table, groups)
        heads = [arrow_columns.take(key, groups.first) for key in keys]
        heads.append(watermarks.timestamps(starts[groups.first]))
        return pa.Table.from_arrays([*heads, *made], schema=self.combined_schema)

    def _close(self, state: WindowState, previous_watermark: int, watermark: int) -> pa.Table:
        panes, begins = state.panes, watermarks.microseconds(state.panes[PANE])
        # The windows of each pane that close now: starts low, low + slide, ..., high.
        opened = max(self._next_end(previous_watermark) - self.size, NO_TIME, state.begins_at)
        closed = watermark + 1 - self.size
        low = np.maximum(self._first_starts(begins), opened)
        high = np.minimum(self._last_starts(begins), closed - closed % self.slide)
        rows, places = grouping.expand(np.maximum((high - low) // self.slide + 1, 0))
        windows = state_tables.select_rows(panes, rows)
        starts = low[rows] + places * self.slide
        if self.pane == self.size:
            windows = windows.set_column(len(self.keys), PANE, watermarks.timestamps(starts))
        else:
            windows = self._merge(windows, starts)
        order = grouping.sort_rows([(windows[name], False) for name in (PANE, *self.keys)])
        windows = windows.take(pa.array(order))
        begins = watermarks.microseconds(windows[PANE])
        keys = [windows[key] for key in self.keys]
        try:
            made = [
                parts.result(aggregate, self.partials, windows, self.input_schema)
                for aggregate in self.aggregates.values()
            ]
        except Overflow as error:
            raise self._too_much(error, keys) from error
        heads = [*keys, watermarks.timestamps(begins), watermarks.timestamps(begins + self.size)]
        return pa.Table.from_arrays([*heads, *made], schema=self.output_schema)

    def _too_much(self, error: Overflow, keys: Sequence[pa.ChunkedArray]) -> StepError:
        """What says for which keys a total does not fit its type."""
        named = zip(self.keys, keys, strict=True)
        of_keys = ", ".join(f"{name}={str(key[error.row])[:40]}" for name, key in named)
        return StepError(
            where=f"step {self.name}, column {error.column!r}",
            what=f"has a total that does not fit its type{of_keys and ', for '}{of_keys}",
            remedy="take the mean of it, or make the column float64 in a map before",
        )

    def _closes_at(self, panes: Integers, watermark: int, begins_at: int) -> int:
        """The watermark at which the next window with rows closes."""
        if len(panes) == 0:
            return FINAL_WATERMARK
        earliest = max(int(self._first_starts(panes).min()), begins_at) + self.size
        return min(max(earliest, self._next_end(watermark)) - 1, FINAL_WATERMARK)

    def _next_end(self, watermark: int) -> int:
        """The end of the first window that is still open at a watermark."""
        return watermark + 2 + (self.size - watermark - 2) % self.slide

    def _first_starts(self, panes: Integers) -> Integers:
        before = panes - self.size
        return before - before % self.slide + self.slide

    def _last_starts(self, panes: Integers) -> Integers:
        return panes - panes % self.slide


def _check_own(where: str, keys: Sequence[str], own: Sequence[str]) -> None:
    """Refuse keys with names that columns of partial values have."""
    for key in keys:
        if key in own:
            what = f"column {key!r} has a name that windows give to columns of their own"
            refuse(where, what, "rename it in a map before")


def _durations(where: str, size_seconds: float, slide_seconds: float | None) -> tuple[int, int]:
    size = watermarks.duration_microseconds(f"{where}: size_seconds", size_seconds)
    if slide_seconds is None:
        return size, size
    slide = watermarks.duration_microseconds(f"{where}: slide_seconds", slide_seconds)
    if slide > size:
        refuse(
            f"{where}: slide_seconds",
            f"is {slide_seconds}, more than the size of {size_seconds}",
            "give a slide of at most the size, or rows between windows are lost",
        )
    return size, slide
