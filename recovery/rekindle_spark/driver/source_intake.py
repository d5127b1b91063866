"""What an epoch takes of sources whose future is unknown, and the watermarks behind it.

    newest answer of a source ──offered──► ranges of all that is there ──limits──► StreamCut
    event times that hosts have read ──────────────────────────► watermark ──────────┘

A StreamCut is logged with its epoch: ranges, watermark, and what led to it, so that a repeat is the
same whatever the source says then. The watermark of an epoch comes from rows of earlier ones. A
source partition counts for it as soon as it is known, and not while it is idle. Pure: answers and
times are given. Called by `epoch_cutter`; `source_polls` asks the sources.

Why: docs/decisions/0006-sources-whose-future-is-unknown.md.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rekindle.model.errors import DataLossError
from rekindle_spark.executor.source_reading import RowsRead
from rekindle_spark.operators.watermarks import FINAL_WATERMARK, INITIAL_WATERMARK
from rekindle_spark.pipeline.unbounded_source import FAIL, PartitionOffsets, SourceTerms

# Of a source whose rows have an unknown size.
FIRST_OFFSETS = 1_000
# As many rows an epoch may have before it is known how long one takes.
FIRST_ROWS = 10_000
# So long a source partition may be missing, or end too soon: a server that has just started knows
# few of them, and one that lost touch with the others knows an older end.
MISSING_SECONDS_MAX = 15.0
ARRIVALS_KEPT_MAX = 1_000
# Partitions that are gone, of which a cut keeps where reading had ended; the newest are kept.
DROPPED_MAX = 10_000
# Rows that are ahead are reported again after so long without any.
QUIET_SECONDS = 60.0
# The size of rows may fall by so much from one job to the next.
BYTES_DECAY = 0.8

Key = TypeVar("Key", bound=Hashable)
# Of each source partition its identity, an offset, and the greatest event time of rows before that.
Greatest = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """What a source said at a time: what there is of each partition, and where reading begins.
    `away` says why it could not be reached instead."""

    at: float
    offsets: Mapping[str, PartitionOffsets] = field(default_factory=dict)
    initial: Mapping[str, int] = field(default_factory=dict)
    away: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets [begin, end) of a source partition that the source has no more, and no epoch has
    read. Where they are none, whatever came behind them before the partition went is unknown."""

    partition: str
    begin: int
    end: int
    why: str

    def record(self) -> dict[str, Any]:
        """As it stands in the offset log."""
        return {
            "partition": self.partition,
            "begin": self.begin,
            "end": self.end,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """Of one source partition: the epoch's offsets [begin, end), and what decided its watermark.

    `latest` is what had arrived, `greatest` the greatest event time (microseconds) that had been
    read, `busy_at` when there was something to read last.
    """

    partition: str
    begin: int
    end: int
    latest: int
    identity: str = ""
    greatest: int | None = None
    busy_at: float = 0.0
    idle: bool = False

    def record(self) -> dict[str, Any]:
        """As it stands in the offset log."""
        return {
            "partition": self.partition,
            "begin": self.begin,
            "end": self.end,
            "latest": self.latest,
            "identity": self.identity,
            "greatest": self.greatest,
            "busy_at": self.busy_at,
            "idle": self.idle,
        }


@dataclass(frozen=True, slots=True)
class StreamCut:
    """The input of one epoch of one source. All that had arrived at `arrived_at` is in it, or in an
    earlier one. While the source is `away` nothing is. `dropped` are empty cuts of partitions that
    the source no longer has: one that comes back is read on from there."""

    partitions: tuple[PartitionCut, ...]
    watermark: int
    arrived_at: float
    away: bool = False
    lost: tuple[Lost, ...] = ()
    dropped: tuple[PartitionCut, ...] = ()

    @property
    def rows(self) -> int:
        """Rows, at most."""
        return sum(one.end - one.begin for one in self.partitions)

    @property
    def waiting(self) -> int:
        """Offsets that had arrived and are in no epoch yet."""
        return sum(one.latest - one.end for one in self.partitions)

    @property
    def spans(self) -> list[list[Any]]:
        """What is read: source partition, begin, end and identity, in a fixed order."""
        return [[one.partition, one.begin, one.end, one.identity] for one in self.partitions]

    def without_rows(self, read: Greatest) -> "StreamCut":
        """The same behind these rows, with what a checkpoint's record has of their event times."""
        found = self.greatest(read)
        partitions = tuple(
            replace(one, begin=one.end, greatest=_later(one.greatest, found.get(one.partition)))
            for one in self.partitions
        )
        return replace(self, partitions=partitions, lost=())

    def greatest(self, read: Greatest) -> dict[str, int]:
        """What a checkpoint's record has of event times of rows up to this cut. It may have those
        of a later one that a copy of the store lacks, or of a partition that was recreated."""
        found: dict[str, int] = {}
        for one in self.partitions:
            identity, end, greatest = read.get(one.partition, ("", one.end, None))
            if greatest is not None and identity == one.identity and end <= one.end:
                found[one.partition] = greatest
        return found

    @property
    def ended(self) -> "StreamCut":
        """The same as the last one: all that waits for the watermark comes out."""
        return replace(self, watermark=FINAL_WATERMARK)

    def record(self) -> dict[str, Any]:
        """As it stands in the offset log."""
        record: dict[str, Any] = {
            "partitions": [one.record() for one in self.partitions],
            "watermark": self.watermark,
            "arrived_at": self.arrived_at,
            "away": self.away,
            "lost": [one.record() for one in self.lost],
        }
        if self.dropped:
            record["dropped"] = [one.record() for one in self.dropped]
        return record

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> "StreamCut":
        """Read back what `record` wrote."""
        return StreamCut(
            tuple(PartitionCut(**one) for one in record["partitions"]),
            record["watermark"],
            record["arrived_at"],
            record["away"],
            tuple(Lost(**one) for one in record["lost"]),
            # absent in the records of earlier versions
            tuple(PartitionCut(**one) for one in record.get("dropped", ())),
        )


def beginning(now: float) -> StreamCut:
    """The empty cut before the first epoch."""
    return StreamCut((), INITIAL_WATERMARK, now)


@dataclass(slots=True)
class Intake:
    """One source: its newest cut and answer, what hosts have read of it, and when offsets had
    arrived. `step` is its name. `shorter_since` has, of partitions that end before what was there,
    since when, and the lowest of those ends."""

    step: str
    terms: SourceTerms
    last: StreamCut
    answer: SourceAnswer | None = None
    greatest: dict[str, int] = field(default_factory=dict)
    bytes_per_row: float | None = None
    missing_since: dict[str, float] = field(default_factory=dict)
    shorter_since: dict[str, tuple[float, int]] = field(default_factory=dict)
    arrived: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    has_begun: bool = False
    away_since: float | None = None
    ahead_at: float = -math.inf

    @property
    def is_away(self) -> bool:
        """Whether it cannot be asked."""
        return self.away_since is not None

    def heed(self, answer: SourceAnswer) -> None:
        """Enter an answer."""
        if self.answer is not None and answer.at <= self.answer.at:
            return
        self.answer = answer
        if answer.away:
            self.away_since = answer.at if self.away_since is None else self.away_since
            return
        self.away_since = None
        # what had arrived had, also where a server that does not know it has answered
        latest = dict(self.arrived[-1][1]) if self.arrived else {}
        for name, one in answer.offsets.items():
            latest[name] = max(one.latest, latest.get(name, one.latest))
        self.arrived.append((answer.at, latest))
        if len(self.arrived) > ARRIVALS_KEPT_MAX:
            del self.arrived[1::2]

    def note(self, read: Mapping[str, RowsRead]) -> None:
        """Enter what hosts have read; the same once more changes nothing."""
        for partition, one in read.items():
            if one.greatest is not None:
                before = self.greatest.get(partition, one.greatest)
                self.greatest[partition] = max(one.greatest, before)
        offsets = sum(one.offsets for one in read.values())
        rows = sum(one.rows for one in read.values())
        # gaps between rows, as of a compacted topic, make none of those to come smaller; an offset
        # that stands for many rows counts as one row, for epochs are cut by offsets
        if rows or (offsets and self.bytes_per_row is None):
            fewer = min(count for count in (rows, offsets) if count)
            measured = sum(one.bytes for one in read.values()) / fewer
            self.bytes_per_row = max(measured, BYTES_DECAY * (self.bytes_per_row or 0.0))

    def read(self) -> Greatest:
        """The event times that have been read, as a checkpoint's record has them: no cut may have
        logged those of its newest epochs, which a start from it does not run again."""
        found = ((one, self._greatest(one)) for one in self.last.partitions)
        return {
            one.partition: [one.identity, one.end, greatest]
            for one, greatest in found
            if greatest is not None
        }

    def ahead(self, read: Mapping[str, RowsRead], now: float) -> dict[str, Any] | None:
        """The event of rows whose event times are too far ahead, where such rows begin."""
        rows = {partition: one.ahead for partition, one in read.items() if one.ahead}
        if not rows:
            return None
        begins, self.ahead_at = now - self.ahead_at >= QUIET_SECONDS, now
        if not begins:
            return None
        return {
            "source": self.step,
            "source_partition": min(rows, key=lambda one: (-rows[one], one)),
            "rows": sum(rows.values()),
            "future_seconds_max": self.terms.future_seconds_max,
        }

    def offered(self, now: float) -> StreamCut:
        """An epoch of all that is there. Raises DataLossError where rows are gone that no epoch has
        read, unless they are to be skipped."""
        answer = self.answer
        if answer is None or answer.away:
            waiting = tuple(
                replace(one, begin=one.end, idle=False, busy_at=now) for one in self.last.partitions
            )
            return replace(self.last, partitions=waiting, away=answer is not None, lost=())
        cuts: list[PartitionCut] = []
        lost: list[Lost] = []
        dropped = [one for one in self.last.dropped if one.partition not in answer.offsets]
        for before in self.last.partitions:
            if self._is_gone(before, answer):
                why = "it is not there any more"
                lost.append(Lost(before.partition, before.end, _known_end(before), why))
                dropped.append(self._dropped(before))
                for _, ends in self.arrived:
                    ends.pop(before.partition, None)
                continue
            cut, gone = self._continued(before, answer, now)
            cuts.append(cut)
            lost += [] if gone is None else [gone]
        for before in self.last.dropped:
            if before.partition in answer.offsets:
                cut, gone = self._returned(before, answer, now)
                cuts.append(cut)
                lost += [] if gone is None else [gone]
        known = {one.partition for one in (*self.last.partitions, *self.last.dropped)}
        for partition, there in answer.offsets.items():
            if partition not in known:
                # partitions that are added later are read from their beginning
                begin = there.oldest
                if not known:  # some may have expired since it said so
                    begin = max(begin, answer.initial.get(partition, begin))
                end = max(begin, there.latest)
                cuts.append(PartitionCut(partition, begin, end, end, there.identity, busy_at=now))
        if lost and self.terms.on_data_loss == FAIL:
            raise self._loss(lost[0])
        return replace(
            self.last,
            partitions=tuple(cuts),
            away=False,
            lost=tuple(lost),
            dropped=tuple(dropped[-DROPPED_MAX:]),
        )

    def rows_max(self) -> int:
        """Rows of the next epoch at most, as this source has them."""
        if self.bytes_per_row is None:
            return min(FIRST_OFFSETS, self.terms.rows_per_epoch_max)
        most = int(self.terms.bytes_per_epoch_max / max(self.bytes_per_row, 1e-3))
        return max(1, min(self.terms.rows_per_epoch_max, most))

    def take(self, offered: StreamCut, ends: Mapping[str, int], now: float) -> StreamCut:
        """Make the cut with these ends the newest one."""
        cuts = tuple(
            self._judged(replace(one, end=ends[one.partition]), now) for one in offered.partitions
        )
        watermark = max(self.last.watermark, _watermark(cuts, self.terms))
        self.has_begun = self.has_begun or not (offered.away or self.answer is None)
        arrived_at = self.last.arrived_at if offered.away else self._arrived_at(cuts)
        self.last = replace(offered, partitions=cuts, watermark=watermark, arrived_at=arrived_at)
        return self.last

    def _is_gone(self, before: PartitionCut, answer: SourceAnswer) -> bool:
        """Whether a partition has been missing for so long that it does not count any more."""
        name = before.partition
        if name in answer.offsets:
            self.missing_since.pop(name, None)
            return False
        since = self.missing_since.setdefault(name, answer.at)
        if answer.at - since < MISSING_SECONDS_MAX:
            return False
        del self.missing_since[name]
        return True

    def _dropped(self, before: PartitionCut) -> PartitionCut:
        """What a cut keeps of a partition that is gone."""
        end, greatest = before.end, self._greatest(before)
        return replace(before, begin=end, latest=end, greatest=greatest, idle=False)

    def _returned(
        self, before: PartitionCut, answer: SourceAnswer, now: float
    ) -> tuple[PartitionCut, Lost | None]:
        """The same as `_continued` of a partition that had been dropped. What it lost by being
        recreated was reported then."""
        cut, lost = self._continued(replace(before, busy_at=now), answer, now)
        return cut, lost if cut.identity == before.identity else None

    def _continued(
        self, before: PartitionCut, answer: SourceAnswer, now: float
    ) -> tuple[PartitionCut, Lost | None]:
        """What there is of a partition behind its newest cut, and what is gone of it."""
        name, end = before.partition, before.end
        there = answer.offsets.get(name)
        if there is None or self._may_be_stale(before, there, answer.at):
            return replace(before, begin=end, idle=False, busy_at=now), None
        cut = replace(before, identity=there.identity, idle=False)
        if there.identity != before.identity:
            lost = Lost(name, end, _known_end(before), "it was recreated")
            begin = there.oldest
            self.greatest.pop(name, None)
            cut = replace(cut, greatest=None)
        elif name in self.shorter_since:
            _, low = self.shorter_since.pop(name)
            why = f"its log was cut back to offset {low}"
            lost = Lost(name, max(end, low), _known_end(before), why)
            begin = max(there.oldest, min(end, low))
        elif there.oldest > end:
            why = there.why or "they have expired"
            lost, begin = Lost(name, end, there.oldest, why), there.oldest
        else:
            lost, begin = None, end
        latest = max(begin, there.latest)
        if self.arrived and self.arrived[-1][1].get(name, latest) > latest:
            for _, ends in self.arrived:  # what is gone comes in no epoch
                if name in ends:
                    ends[name] = min(ends[name], latest)
        return replace(cut, begin=begin, end=latest, latest=latest), lost

    def _may_be_stale(self, before: PartitionCut, there: PartitionOffsets, at: float) -> bool:
        """Whether an answer gives less of a partition than was there before, and has not done so
        for long: a server that does not know yet that another one leads gives what it has."""
        name = before.partition
        is_same = there.only_grows and there.identity == before.identity
        if not is_same or there.latest >= _known_end(before):
            self.shorter_since.pop(name, None)
            return False
        since, low = self.shorter_since.get(name, (at, there.latest))
        self.shorter_since[name] = since, min(low, there.latest)
        return at - since < MISSING_SECONDS_MAX

    def _judged(self, cut: PartitionCut, now: float) -> PartitionCut:
        """Enter what has been read of the partition, and whether it is idle."""
        greatest = self._greatest(cut)
        # what came while nobody looked does not make it idle
        if cut.latest > cut.begin or not self.has_begun:
            return replace(cut, greatest=greatest, busy_at=now)
        idle = now - cut.busy_at > self.terms.idle_seconds
        return replace(cut, greatest=greatest, idle=idle)

    def _greatest(self, cut: PartitionCut) -> int | None:
        """The greatest event time that has been read of the partition."""
        return _later(cut.greatest, self.greatest.get(cut.partition))

    def _arrived_at(self, cuts: Sequence[PartitionCut]) -> float:
        """The last time at which nothing had arrived that these cuts leave out."""
        ends = {one.partition: one.end for one in cuts}
        found = self.last.arrived_at
        while self.arrived:
            at, latest = self.arrived[0]
            if any(there > ends.get(name, there) for name, there in latest.items()):
                break
            found = max(found, at)
            del self.arrived[0]
        return found

    def _loss(self, lost: Lost) -> DataLossError:
        what = (
            f"offsets {lost.begin} to {lost.end} are gone, and no epoch has read them: {lost.why}"
        )
        if lost.begin == lost.end:
            what = (
                f"{lost.why}; records from offset {lost.end} on that no epoch has read are unknown"
            )
        return DataLossError(
            where=f"step {self.step}: source partition {lost.partition}",
            what=what,
            remedy='bring them back, or give the source on_data_loss="skip" to go on without them; '
            "committed output stays",
        )


@dataclass(slots=True)
class Intakes:
    """All sources of the kind, by name."""

    by_step: dict[str, Intake] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_step)

    @property
    def waiting(self) -> int:
        """Offsets that can be read, and were in no epoch at the newest cuts."""
        return sum(one.last.waiting for one in self.by_step.values() if not one.last.away)

    @property
    def all_read(self) -> bool:
        """Whether everything that has arrived is in an epoch, as far as sources say."""
        return all(
            one.has_begun and not one.last.away and not one.last.waiting
            for one in self.by_step.values()
        )

    def cut(self, now: float, rows_max: int) -> dict[str, StreamCut]:
        """What the next epoch takes of each: at most so many rows together."""
        offered = {name: intake.offered(now) for name, intake in self.by_step.items()}
        wanted: dict[tuple[str, str], int] = {}
        for name, intake in self.by_step.items():
            there = {one.partition: one.end - one.begin for one in offered[name].partitions}
            for partition, rows in shares(there, intake.rows_max()).items():
                wanted[name, partition] = rows
        granted = shares(wanted, rows_max)
        cuts: dict[str, StreamCut] = {}
        for name, intake in self.by_step.items():
            ends = {
                one.partition: one.begin + granted[name, one.partition]
                for one in offered[name].partitions
            }
            cuts[name] = intake.take(offered[name], ends, now)
        return cuts

    def note(self, read: Mapping[str, Mapping[str, RowsRead]]) -> None:
        """Enter what hosts have read, by source."""
        for name, of_partitions in read.items():
            if name in self.by_step:
                self.by_step[name].note(of_partitions)

    def read(self) -> dict[str, Greatest]:
        """The event times that have been read, by source, as a checkpoint's record has them."""
        return {name: read for name, one in self.by_step.items() if (read := one.read())}

    def ahead(self, read: Mapping[str, Mapping[str, RowsRead]], now: float) -> list[dict[str, Any]]:
        """An event for each source in which rows that are too far ahead begin."""
        events = (
            self.by_step[name].ahead(of_partitions, now)
            for name, of_partitions in read.items()
            if name in self.by_step
        )
        return [event for event in events if event is not None]

    def adopt(self, cuts: Mapping[str, StreamCut]) -> None:
        """Go on from what stands in the offset log."""
        for name, intake in self.by_step.items():
            if name in cuts:
                intake.last = cuts[name]

    def away(self) -> Iterator[Intake]:
        """Yield those that cannot be asked."""
        yield from (intake for intake in self.by_step.values() if intake.is_away)


def shares(wanted: Mapping[Key, int], most: int) -> dict[Key, int]:
    """At most `most` of all that is wanted, in proportion; who waits for least loses nothing by
    rounding."""
    total = sum(wanted.values())
    if total <= most:
        return dict(wanted)
    granted = {key: number * most // total for key, number in wanted.items()}
    left = most - sum(granted.values())
    short = sorted(wanted, key=lambda key: granted[key] - wanted[key] * most / total)
    for key in short[:left]:
        granted[key] += 1
    return granted


def _later(one: int | None, other: int | None) -> int | None:
    """The later one of two event times; None where there is neither."""
    return max((at for at in (one, other) if at is not None), default=None)


def _known_end(before: PartitionCut) -> int:
    """Up to where there were rows of a partition when it was seen last."""
    return max(before.end, before.latest)


def _watermark(cuts: Sequence[PartitionCut], terms: SourceTerms) -> int:
    """The least of what partitions have reached, without those that are idle; where all are, the
    greatest."""
    lateness = round(terms.lateness_seconds * 1_000_000)
    reached = {
        one.partition: INITIAL_WATERMARK if one.greatest is None else one.greatest - lateness
        for one in cuts
    }
    busy = [reached[one.partition] for one in cuts if not one.idle]
    if busy:
        return min(busy)
    return max(reached.values(), default=INITIAL_WATERMARK)
