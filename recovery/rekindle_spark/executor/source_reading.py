"""What one partition of a source chain reads of an epoch, where its source has partitions itself.

Source partitions are dealt out in their order; where there are fewer of them than readers, some
share one, each a stretch of its offsets. That goes by the logged ranges alone, so a repeat reads
the same. Called by `partition`; `source_intake` takes in what was read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rekindle.model.errors import DataLossError
from rekindle_spark.pipeline.unbounded_source import (
    IdentityChecking,
    RejectRepeating,
    RowsAndRejects,
    UnboundedSource,
)

# Of a source partition: its name, offsets [begin, end), and its identity when they were logged.
Span = tuple[str, int, int, str]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """What was read of one source partition: the greatest event time (microseconds), None without
    rows, and how many `rows` and bytes so many offsets had, with those that could not be decoded.
    `ahead` rows do not count for the greatest: their event times are more than `future_seconds_max`
    ahead."""

    greatest: int | None
    offsets: int
    bytes: int
    ahead: int = 0
    rows: int = 0

    def plus(self, other: "RowsRead") -> "RowsRead":
        """Both."""
        known = [one.greatest for one in (self, other) if one.greatest is not None]
        greatest = max(known, default=None)
        return RowsRead(
            greatest,
            self.offsets + other.offsets,
            self.bytes + other.bytes,
            self.ahead + other.ahead,
            self.rows + other.rows,
        )


def share(spans: Sequence[Span], index: int, parallelism: int) -> tuple[Span, ...]:
    """What reader `index` of so many reads: whole ranges, or a stretch of one."""
    if not spans or len(spans) >= parallelism:
        return tuple(spans[index::parallelism])
    place = index % len(spans)
    partition, begin, end, identity = spans[place]
    readers, number = len(range(place, parallelism, len(spans))), index // len(spans)
    offsets = end - begin
    low, high = offsets * number // readers, offsets * (number + 1) // readers
    return ((partition, begin + low, begin + high, identity),)


@dataclass(frozen=True, slots=True)
class RangesRead:
    """The rows of some ranges, what they say of source partitions, and what could not be made rows
    (see `unbounded_source.RowsAndRejects`), where there is anything. `places` are those of the
    rejects among all offsets of the ranges, None where the source does not know them."""

    rows: pa.Table
    read: dict[str, RowsRead]
    rejects: pa.Table | None = None
    places: list[int] | None = None


def read(
    source: UnboundedSource,
    spans: Iterable[Span],
    declared: Callable[[Any], pa.Table],
    now: float,
    left: Set[int] = frozenset(),
) -> RangesRead:
    """Read ranges one after the other; rows are as `declared` gives them. `now` is this node's
    time, in seconds since 1970. Records at the places `left` are rejects again, where the source
    can repeat that.

    Identities are checked behind the rows: where they are still the same, these are their own.
    """
    latest = round((now + source.terms.future_seconds_max) * 1_000_000)
    tables: list[pa.Table] = [source.schema.empty_table()]
    rejects: list[pa.Table] = []
    found: dict[str, RowsRead] = {}
    identities: dict[tuple[str, str], None] = {}
    places, before = list[int](), 0
    for partition, begin, end, identity in spans:
        if begin >= end:
            continue
        if identity:
            identities[partition, identity] = None
        try:
            given = _given(source, partition, (begin, end), before, left)
        except DataLossError:
            _check(source, identities)  # of a partition that was recreated it is no wonder
            raise
        rejected = None
        if isinstance(given, RowsAndRejects):
            places += (before + offset - begin for offset in _offsets(source, given))
            given, rejected = given.rows, given.rejects
        table = declared(given)
        tables.append(table)
        greatest, ahead = _greatest(table[source.event_time], latest)
        size, count = int(table.nbytes), table.num_rows
        if rejected is not None and rejected.num_rows:
            rejects.append(rejected)
            size, count = size + int(rejected.nbytes), count + rejected.num_rows
        found[partition] = RowsRead(greatest, end - begin, size, ahead, count)
        before += end - begin
    _check(source, identities)
    rows = pa.concat_tables(tables)
    if not rejects:
        return RangesRead(rows, found)
    knows = isinstance(source, RejectRepeating)
    return RangesRead(rows, found, pa.concat_tables(rejects), places if knows else None)


def _check(source: UnboundedSource, identities: Iterable[tuple[str, str]]) -> None:
    """Raise DataLossError where a source partition is another one than was logged."""
    logged = [*identities]
    if logged and isinstance(source, IdentityChecking):
        source.check_identities(logged)


def _offsets(source: UnboundedSource, given: RowsAndRejects) -> Sequence[int]:
    """The offsets of rejects, where the source knows them. Raises ValueError where some lack."""
    if not given.rejects.num_rows or not isinstance(source, RejectRepeating):
        return ()
    if len(given.offsets) != given.rejects.num_rows:
        what = f"gave {len(given.offsets)} offsets of {given.rejects.num_rows} rejects"
        raise ValueError(f"its `read` {what}, and it has a `read_again`")
    return given.offsets


def _given(
    source: UnboundedSource, partition: str, span: tuple[int, int], before: int, left: Set[int]
) -> pa.Table | RowsAndRejects:
    """What a source gives of a range, behind so many offsets of others."""
    begin, end = span
    if left and isinstance(source, RejectRepeating):
        offsets = (place - before + begin for place in left)
        again = frozenset(offset for offset in offsets if begin <= offset < end)
        if again:
            return source.read_again(partition, begin, end, again)
    return source.read(partition, begin, end)


def merged(
    several: Iterable[Mapping[str, RowsRead]],
) -> dict[str, RowsRead]:
    """What was read in some epochs, or by some readers, together."""
    found: dict[str, RowsRead] = {}
    for one in several:
        for partition, rows in one.items():
            found[partition] = found[partition].plus(rows) if partition in found else rows
    return found


def _greatest(times: pa.ChunkedArray, latest: int) -> tuple[int | None, int]:
    """The greatest time that is not after the latest, and how many are after it."""
    numbers = times.cast(pa.int64())
    near = numbers.filter(pc.less_equal(numbers, latest))
    found = pc.max(near).as_py()
    ahead = len(numbers) - numbers.null_count - len(near)
    return None if found is None else int(found), ahead
