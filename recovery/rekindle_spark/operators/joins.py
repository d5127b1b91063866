"""Rows of two inputs with equal keys whose event times lie close together.

New rows are matched with what the other side has kept: both are narrowed to common key hashes, the
smaller is sorted by (key, time), and each row of the larger finds its stretch there. So the cost
goes with the rows and the pairs, however few keys there are. Called by `partition`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from rekindle.model.errors import refuse
from rekindle_spark.operators import (
    arrow_columns,
    column_types,
    grouping,
    row_hash,
    state_tables,
    watermarks,
)
from rekindle_spark.operators.arrow_columns import TIMESTAMP, Integers, Mask
from rekindle_spark.operators.row_hash import Hashes
from rekindle_spark.user_code import argument_checks

EVENT_TIME = "event_time"
CHUNKS_MAX = 8


@dataclass(frozen=True, slots=True)
class Side:
    """One side's rows in the order of arrival, and per row the hash of its keys and its time."""

    rows: pa.Table
    hashes: Hashes = field(compare=False)
    moments: Integers = field(compare=False)

    def select(self, rows: Mask) -> "Side":
        """A copy of some rows, given by a mask."""
        if rows.all():
            return self
        return Side(
            state_tables.select_rows(self.rows, rows), self.hashes[rows], self.moments[rows]
        )

    def extend(self, other: "Side") -> "Side":
        """These rows, then the other's."""
        if other.rows.num_rows == 0:
            return self
        rows = other.rows
        if self.rows.num_rows:
            rows = pa.concat_tables([self.rows, rows])
        if rows[0].num_chunks > CHUNKS_MAX:
            rows = rows.combine_chunks()
        hashes = np.concatenate([self.hashes, other.hashes])
        return Side(rows, hashes, np.concatenate([self.moments, other.moments]))


@dataclass(frozen=True, slots=True)
class JoinState:
    """The rows of both sides that may still find a partner."""

    left: Side
    right: Side
    late_rows: int


class IntervalJoin:
    """Pairs of a left and a right row: keys equal, event times at most `within_seconds` apart.

    A pair comes once, in the epoch in which the later of the two arrives, in the order of the left
    rows, then of the right ones; a null in a key matches nothing. Columns: the left's, the right's
    without its keys, then `event_time`, the later of the two times. `event_time` is that column's
    name alone: a left column called so gets the suffix "_left". A right column whose name is taken
    gets `suffix`. A suffix is added again until the name is free.
    """

    def __init__(
        self,
        name: str,
        left_schema: pa.Schema,
        right_schema: pa.Schema,
        left_event_time: str,
        right_event_time: str,
        keys: Sequence[str],
        within_seconds: float,
        suffix: str = "_right",
    ) -> None:
        where = argument_checks.place("step", name)
        sides = (left_schema, left_event_time), (right_schema, right_event_time)
        for schema, event_time in sides:
            arrow_columns.check_schema(where, schema, event_time)
            column_types.check(f"{where}: its input", schema)
            arrow_columns.check_keys(f"{where}: keys", schema, keys)
        _check_pair(where, left_schema, right_schema, keys, suffix)
        # A distance of 0 is meant: equal event times.
        self.within = watermarks.duration_microseconds(
            f"{where}: within_seconds", within_seconds, zero=True
        )
        self.name, self.keys = name, tuple(keys)
        self.state_keys = (self.keys, self.keys)
        self.schemas = (left_schema, right_schema)
        self.event_times = (left_event_time, right_event_time)
        self.right_columns = tuple(c for c in right_schema.names if c not in self.keys)
        self.output_schema = _joined_schema(left_schema, right_schema, self.right_columns, suffix)
        self.output_event_time = EVENT_TIME
        self.no_output = self.output_schema.empty_table()

    def initial(self) -> JoinState:
        left, right = (self._side(i, schema.empty_table()) for i, schema in enumerate(self.schemas))
        return JoinState(left, right, 0)

    def process(
        self, state: JoinState, inputs: Sequence[pa.Table], previous_watermark: int, watermark: int
    ) -> tuple[JoinState, pa.Table]:
        """Take new left and right rows; emit their pairs with each other and with older rows."""
        new_left, late_left = self._arrivals(0, inputs[0], previous_watermark)
        new_right, late_right = self._arrivals(1, inputs[1], previous_watermark)
        left, right = state.left.extend(new_left), state.right.extend(new_right)
        output = self._pairs(state.left, new_left, left, new_right, right)
        expired = watermark - self.within
        kept_left, kept_right = _expire(left, expired), _expire(right, expired)
        late_rows = state.late_rows + late_left + late_right
        if kept_left is state.left and kept_right is state.right and late_rows == state.late_rows:
            return state, output
        return JoinState(kept_left, kept_right, late_rows), output

    def is_idle(self, state: JoinState, watermark: int) -> bool:
        """Whether no rows are dropped at a watermark."""
        return not any(
            _is_aged(side, watermark - self.within) for side in (state.left, state.right)
        )

    def late(self, slot: int, rows: pa.Table, previous_watermark: int) -> Mask:
        """Which rows of one side come after others that they match may have gone."""
        moments = watermarks.arriving(rows, self.event_times[slot])
        return watermarks.are_late(moments, previous_watermark)

    def dump(self, state: JoinState) -> list[pa.Table]:
        scalars = state_tables.dump_scalars(late_rows=state.late_rows)
        return [scalars, state.left.rows, state.right.rows]

    def load(self, dumped: Sequence[pa.Table]) -> JoinState:
        late_rows = state_tables.load_scalars(dumped[0])["late_rows"]
        return JoinState(self._side(0, dumped[1]), self._side(1, dumped[2]), late_rows)

    def state_bytes(self, state: JoinState) -> int:
        sides = (state.left, state.right)
        return sum(int(s.rows.nbytes + s.hashes.nbytes + s.moments.nbytes) for s in sides)

    def _side(self, slot: int, rows: pa.Table) -> Side:
        moments = watermarks.microseconds(rows[self.event_times[slot]])
        return Side(rows, row_hash.hashes(rows, self.keys), moments)

    def _arrivals(self, slot: int, rows: pa.Table, previous_watermark: int) -> tuple[Side, int]:
        """New rows that are in time and have keys, copied; and the number of late ones."""
        if rows.num_rows == 0:
            empty = np.empty(0, np.int64)
            return Side(rows, empty.view(np.uint64), empty), 0
        late = self.late(slot, rows, previous_watermark)
        wanted, late_rows = ~late, int(np.count_nonzero(late))
        for key in self.keys:
            present = arrow_columns.valid(arrow_columns.whole(rows[key]))
            if present is not None:
                wanted = wanted & present
        return self._side(slot, state_tables.select_rows(rows, wanted)), late_rows

    def _pairs(
        self, old_left: Side, new_left: Side, left: Side, new_right: Side, right: Side
    ) -> pa.Table:
        """Old left with new right rows, then new left with all right rows."""
        olds, news = len(old_left.moments), len(right.moments) - len(new_right.moments)
        first, first_partners = self._match(old_left, new_right)
        second, second_partners = self._match(new_left, right)
        lefts = np.concatenate([first, second + olds])
        rights = np.concatenate([first_partners + news, second_partners])
        if len(lefts) == 0:
            return self.no_output
        order = np.lexsort((rights, lefts))
        lefts, rights = lefts[order], rights[order]
        left_rows = state_tables.select_rows(left.rows, lefts)
        right_rows = state_tables.select_rows(right.rows, rights)
        moments = np.maximum(left.moments[lefts], right.moments[rights])
        arrays = [*left_rows.columns, *(right_rows[name] for name in self.right_columns)]
        joined = pa.Table.from_arrays(
            [*arrays, watermarks.timestamps(moments)], schema=self.output_schema
        )
        same = self._equal_keys(left_rows, right_rows)
        return joined if same.all() else joined.filter(pa.array(same))

    def _match(self, one: Side, other: Side) -> tuple[Integers, Integers]:
        """Row numbers of pairs with equal hashes of keys and close times, in any order."""
        if len(one.moments) < len(other.moments):
            partners, rows = self._match(other, one)
            return rows, partners
        if len(other.moments) == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        distinct, keys = np.unique(other.hashes, return_inverse=True)
        found = pc.index_in(pa.array(one.hashes), value_set=pa.array(distinct))
        candidates = np.flatnonzero(np.asarray(found.is_valid()))
        # (key, time) as one integer: the key's number, and the time's among the smaller side's.
        moments, ranks = np.unique(other.moments, return_inverse=True)
        places = keys * (len(moments) + 1) + ranks
        order = np.argsort(places, kind="stable")
        base = arrow_columns.integers(found)[candidates] * (len(moments) + 1)
        sought = one.moments[candidates]
        low = base + np.searchsorted(moments, sought - self.within, side="left")
        high = base + np.searchsorted(moments, sought + self.within, side="right")
        begins = np.searchsorted(places[order], low)
        ends = np.searchsorted(places[order], high)
        items, offsets = grouping.expand(ends - begins)
        return candidates[items], order[begins[items] + offsets]

    def _equal_keys(self, left: pa.Table, right: pa.Table) -> Mask:
        """Where the keys are equal indeed, and not just their hashes."""
        same = np.ones(left.num_rows, bool)
        for key in self.keys:
            one, other = arrow_columns.whole(left[key]), arrow_columns.whole(right[key])
            if kinds.is_floating(one.type):
                same &= grouping.order_values(one).values == grouping.order_values(other).values
            else:
                one, other = arrow_columns.comparable(one), arrow_columns.comparable(other)
                same &= pc.equal(one, other).to_numpy(zero_copy_only=False)
        return same


def _expire(side: Side, expired: int) -> Side:
    """Without rows of times up to `expired`, once they are a quarter of all: a copy costs."""
    return side.select(side.moments > expired) if _is_aged(side, expired) else side


def _is_aged(side: Side, expired: int) -> bool:
    """Whether rows of times up to `expired` are more than a quarter of all."""
    count = int(np.count_nonzero(side.moments <= expired))
    return count * 4 > len(side.moments)


def _check_pair(
    where: str, left: pa.Schema, right: pa.Schema, keys: Sequence[str], suffix: str
) -> None:
    if not suffix:
        refuse(f"{where}: suffix", "is empty", 'give one, as "_right"')
    for key in keys:
        if left.field(key).type != right.field(key).type:
            refuse(
                f"{where}: key {key!r}",
                f"has type {left.field(key).type} left and {right.field(key).type} right",
                "cast one of them in a map step before the join",
            )


def _joined_schema(
    left: pa.Schema, right: pa.Schema, right_columns: Sequence[str], suffix: str
) -> pa.Schema:
    taken = {EVENT_TIME, *left.names}
    fields = []
    for column in left:
        name = column.name
        while name == EVENT_TIME or (name != column.name and name in taken):
            name += "_left"
        taken.add(name)
        fields.append(column.with_name(name))
    for column_name in right_columns:
        name = column_name
        while name in taken:
            name += suffix
        taken.add(name)
        fields.append(right.field(column_name).with_name(name))
    return pa.schema([*fields, pa.field(EVENT_TIME, TIMESTAMP)])
