"""When rows arrive, and how they are cut into epochs: by the clock of replays, or as sources say.

All replay sources of a pipeline share one event-time clock: rows arrive in the order of their
event times, `rows_per_second` of them together. What has arrived of others they say themselves
(`source_intake`). A cut fixes, for every source, the offsets of one epoch and the watermark behind
it. On request the rest of a replayed input arrives at once, which is called a drain. Pure: the
driver gives the time and logs the cut.

Why: docs/decisions/0047-the-least-epoch-is-a-setting.md.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rekindle_spark.driver import source_intake
from rekindle_spark.driver.source_intake import FIRST_ROWS, Intakes, StreamCut
from rekindle_spark.pipeline.steps import Source

FINAL_WATERMARK = 2**63 - 1
# Input that is this far behind is a backlog: every query is to run before it is gone through.
STALL_SECONDS_MAX = 10.0
# A replay that has more rows than this repeats its file and has no end.
ROWS_MAX = 10**12
# An epoch of a drain may take so long to compute though `seconds_per_epoch_max` is less: most of a
# shorter one would be what an epoch costs by itself.
DRAIN_SECONDS_MIN = 2.0


@dataclass(frozen=True, slots=True)
class Cut:
    """The input of one epoch: of replays the offsets [begin, end) and one watermark (microseconds),
    of other sources `streams`.

    All that had arrived at `cut_at` is in it or an earlier one, but for sources that are away.
    `row_fraction` is how much of a replay's next row had arrived at `clock_at`, from 0 up to 1;
    that is None where it is `cut_at`. Without replays `watermark` is the least of the streams'.
    """

    epoch: int
    cut_at: float
    offsets: Mapping[str, tuple[int, int]]
    watermark: int
    rows_per_second: float
    final: bool
    row_fraction: float = 0.0
    streams: Mapping[str, StreamCut] = field(default_factory=dict)
    clock_at: float | None = None

    def record(self) -> dict[str, Any]:
        """As it stands in the offset log."""
        record = {
            "epoch": self.epoch,
            "cut_at": self.cut_at,
            "offsets": {name: list(pair) for name, pair in self.offsets.items()},
            "watermark": self.watermark,
            "rows_per_second": self.rows_per_second,
            "final": self.final,
            "row_fraction": self.row_fraction,
        }
        if self.streams:
            record["streams"] = {name: one.record() for name, one in self.streams.items()}
            record["clock_at"] = self.clock_at
        return record

    @property
    def rows(self) -> int:
        """Rows of all sources; of streams at most so many."""
        replayed = sum(end - begin for begin, end in self.offsets.values())
        return replayed + sum(one.rows for one in self.streams.values())

    @property
    def replayed_until(self) -> float:
        """When the newest row of replays arrived."""
        return self.cut_at if self.clock_at is None else self.clock_at

    @property
    def least_watermark(self) -> int:
        """Of all sources that have been read."""
        watermarks = [one.watermark for one in self.streams.values() if one.partitions]
        return min(watermarks + ([self.watermark] if self.offsets or not watermarks else []))

    def arrived_at(self, sources: Iterable[str]) -> float:
        """All that had arrived then of some sources is in this epoch, or an earlier one."""
        times = [
            self.streams[name].arrived_at if name in self.streams else self.replayed_until
            for name in sources
        ]
        return min(times, default=self.cut_at)

    def input_of(self, source: str) -> list[Any]:
        """What hosts read of a source: begin, end and watermark, or ranges and watermark."""
        if source in self.streams:
            return [self.streams[source].spans, self.streams[source].watermark]
        return [*self.offsets[source], self.watermark]

    def not_after(self, now: float) -> "Cut":
        """The same, of which no moment is later than `now`: a driver before had a clock that was
        ahead of this one's. Else no row would arrive, and no lag be seen, until then."""
        streams = {
            name: replace(one, arrived_at=min(one.arrived_at, now))
            for name, one in self.streams.items()
        }
        clock_at = None if self.clock_at is None else min(self.clock_at, now)
        return replace(self, cut_at=min(self.cut_at, now), clock_at=clock_at, streams=streams)

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> "Cut":
        """Read back what `record` wrote."""
        offsets = {name: (pair[0], pair[1]) for name, pair in record["offsets"].items()}
        streams = record.get("streams", {}).items()
        return Cut(
            record["epoch"],
            record["cut_at"],
            offsets,
            record["watermark"],
            record["rows_per_second"],
            record["final"],
            record.get("row_fraction", 0.0),  # absent in the records of earlier versions
            {name: StreamCut.from_record(one) for name, one in streams},
            record.get("clock_at"),
        )


@dataclass(slots=True)
class EpochCutter:
    """Rows that have arrived but belong to no epoch yet; `last` is the newest cut.

    An epoch takes at most `rows_per_epoch_max` rows, and what comes in `seconds_per_epoch_max`;
    more than comes in `seconds_per_epoch`, as usual, only up to `rows_proved`, for which hosts have
    been seen to have the memory. `is_behind` says that the newest one has left out some for such a
    reason, and the next need not wait. `drains` says that the newest one is of a drain. Then an
    epoch takes up to `rows_in_time` rows: as many as can be computed in `seconds_per_epoch_max`, or
    in DRAIN_SECONDS_MIN where that is more. `sources` are replays, `intakes` all others.
    """

    sources: Mapping[str, Source]
    last: Cut
    rows_per_epoch_max: int
    seconds_per_epoch_max: float = math.inf
    seconds_per_epoch: float = math.inf
    rows_proved: int = 0
    is_behind: bool = False
    drains: bool = False
    rows_in_time: int = 0
    intakes: Intakes = field(default_factory=Intakes)

    def cut(
        self, now: float, rows_per_second: float, *, final: bool = False, drain: bool = False
    ) -> Cut:
        """Close an epoch at `now`: what has arrived since the last cut, up to the limits.

        Rows of one event time go into one epoch. Where that or a limit leaves some out,
        `cut_at` is when the epoch's newest row arrived, so that lag counts what is waiting.
        With `drain` the rest of the input arrives now, and a cut that leaves some of it out is not
        final. A replay without an end is not drained; of other sources what has arrived is.
        Raises DataLossError as `source_intake` does.
        """
        left = self.rows_left() if drain else None
        self.drains = bool(left)
        cut = self._drained(now, left) if left else self._arrived(now)
        final = final and (left is None or cut.rows == left)
        if self.intakes:
            cut = self._with_streams(cut, now)
            final = final and (self.intakes.all_read or not drain)
        watermark = FINAL_WATERMARK if final else max(cut.watermark, self.last.watermark)
        if final:
            ended = {name: one.ended for name, one in cut.streams.items()}
            cut = replace(cut, streams=ended)
        self.last = replace(cut, watermark=watermark, rows_per_second=rows_per_second, final=final)
        return self.last

    def rows_left(self) -> int | None:
        """Rows of all replays that are in no epoch yet; None where a replay has no end."""
        ends = {name: _rows(source) for name, source in self.sources.items()}
        if max(ends.values(), default=0) > ROWS_MAX:
            return None
        return sum(end - self.last.offsets[name][1] for name, end in ends.items())

    def ran(self, rows: float, seconds: float) -> None:
        """An epoch of so many rows took so long: see how many rows one may have in a drain."""
        if math.isfinite(self.seconds_per_epoch_max):
            seconds_max = max(DRAIN_SECONDS_MIN, self.seconds_per_epoch_max)
            self.rows_in_time = int(rows * seconds_max / max(seconds, 1e-3))

    def hurries(self, now: float, *, some: bool, all_run: bool) -> bool:
        """Whether what is behind is to be cut as fast as it is run, by `some` partitions or all.

        Where nothing runs there would be no end of it; and what runs would leave nothing to what
        is to catch up, which is right for what a stall has left, and not for a long backlog.
        """
        stalled = some and now - self.last.cut_at <= STALL_SECONDS_MAX
        return self.is_behind and (all_run or stalled)

    def adopt(self, record: Mapping[str, Any], now: float) -> Cut:
        """Go on from the cut that stands in the offset log, which may be an older driver's, with
        another clock."""
        self.last = Cut.from_record(record).not_after(now)
        self.intakes.adopt(self.last.streams)
        return self.last

    def _with_streams(self, cut: Cut, now: float) -> Cut:
        """A cut with what it takes of sources that are no replays."""
        streams = self.intakes.cut(now, self._stream_limit())
        self.is_behind = self.is_behind or self.intakes.waiting > 0
        arrived = [one.arrived_at for one in streams.values() if not one.away]
        arrived += [cut.cut_at] if self.sources else []
        arrived = arrived or [one.arrived_at for one in streams.values()]
        watermark = cut.watermark
        if not self.sources:
            watermark = min(one.watermark for one in streams.values())
        return replace(
            cut,
            cut_at=max(self.last.cut_at, min(arrived)),
            clock_at=cut.cut_at,
            watermark=watermark,
            streams=streams,
        )

    def _stream_limit(self) -> int:
        """Rows of the next epoch at most, of sources that are no replays: as many as hosts have
        been seen to have the memory for, and as can be computed in time."""
        proved, in_time = max(FIRST_ROWS, self.rows_proved), max(FIRST_ROWS, self.rows_in_time)
        return max(1, min(self.rows_per_epoch_max, proved, in_time))

    def _arrived(self, now: float) -> Cut:
        """The next cut of what has arrived at the rate of the last one."""
        last, limit = self.last, self._limit()
        elapsed_seconds = max(0.0, now - last.replayed_until)
        rows = last.row_fraction + elapsed_seconds * last.rows_per_second
        offsets, clock = self._offsets(int(rows), limit)
        taken = sum(end - begin for begin, end in offsets.values())
        cut_at, fraction = now, rows % 1
        if taken < int(rows) and self._waiting():
            arriving_seconds = max(0.0, taken - last.row_fraction) / last.rows_per_second
            cut_at = last.replayed_until + arriving_seconds
            fraction = max(0.0, last.row_fraction - taken)
        self.is_behind = taken > 0 and limit < int(rows) and cut_at < now
        return replace(
            last,
            epoch=last.epoch + 1,
            cut_at=cut_at,
            offsets=offsets,
            watermark=clock,
            row_fraction=fraction,
            streams={},
        )

    def _drained(self, now: float, left: int) -> Cut:
        """The next cut of a drain, where `left` rows are in no epoch yet."""
        last = self.last
        offsets, clock = self._offsets(left, self._limit())
        cut = replace(
            last,
            epoch=last.epoch + 1,
            cut_at=max(now, last.replayed_until),
            offsets=offsets,
            watermark=clock,
            row_fraction=0.0,
            streams={},
        )
        self.is_behind = cut.rows < left
        return cut

    def _limit(self) -> int:
        """Rows of the next epoch at most: one at least."""
        usual = self.seconds_per_epoch * self.last.rows_per_second
        most = self.seconds_per_epoch_max * self.last.rows_per_second
        if self.drains:
            most = max(most, self.rows_in_time)
        rows = min(most, max(usual, self.rows_proved))
        return max(1, int(min(self.rows_per_epoch_max, rows)))

    def _waiting(self) -> bool:
        """Whether there are rows behind the newest cut."""
        begins = {name: self.last.offsets[name][1] for name in self.sources}
        return any(
            source.rows_at(source.event_time_at(begins[name])) > begins[name]
            for name, source in self.sources.items()
        )

    def _offsets(self, arrived: int, limit: int) -> tuple[dict[str, tuple[int, int]], int]:
        """Offsets of the next epoch, and the event time reached.

        As many rows as have arrived, up to the limit; but where all rows of the next event time
        have arrived, those at least, however many they are.
        """
        if not self.sources:
            return {}, self.last.watermark
        begins = {name: self.last.offsets[name][1] for name in self.sources}
        ends, clock = self._ends(min(arrived, limit))
        before = sum(begins.values())
        if self._total(clock) == before < self._total(clock + 1) <= before + arrived:
            clock += 1
            ends = {name: source.rows_at(clock) for name, source in self.sources.items()}
        return {name: (begins[name], max(end, begins[name])) for name, end in ends.items()}, clock

    def _ends(self, rows: int) -> tuple[dict[str, int], int]:
        """Offsets after `rows` more rows, and the event time reached: a search over it."""
        begins = {name: self.last.offsets[name][1] for name in self.sources}
        wanted = sum(begins.values()) + rows
        low = min(source.event_time_at(begins[name]) for name, source in self.sources.items()) - 1
        high = 1 + max(
            source.event_time_at(begins[name] + rows) for name, source in self.sources.items()
        )
        while high - low > 1:
            middle = (low + high) // 2
            if self._total(middle) > wanted:
                high = middle
            else:
                low = middle
        return {name: source.rows_at(low) for name, source in self.sources.items()}, low

    def _total(self, event_time: int) -> int:
        return sum(source.rows_at(event_time) for source in self.sources.values())


def beginning(
    sources: Mapping[str, Source],
    now: float,
    rows_per_second: float,
    unbounded: Iterable[str] = (),
) -> Cut:
    """The empty cut before the first epoch."""
    offsets = dict.fromkeys(sources, (0, 0))
    streams = {name: source_intake.beginning(now) for name in unbounded}
    return Cut(0, now, offsets, -(2**63), rows_per_second, False, streams=streams)


def _rows(source: Source) -> int:
    """How many rows a source has; more than ROWS_MAX where it has no end."""
    return source.rows_at(source.event_time_at(ROWS_MAX))
