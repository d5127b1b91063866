"""Links between executors: who cannot read the blocks of whom, for how long, and who has to go.

    sound ──a read fails──► failing ──goes on for `silent_seconds`──► broken ──► one end is dropped
      ▲                        │
      └──a read goes well──────┘   or nothing is known of it for long

Two executors may both reach the driver and not each other. Then every epoch fails, and silence
gives nobody away. A link fails from the moment at which a read begins that fails in the end, which
it does after 15 s without a block (`Blocks`). Of all broken links the executor goes that has most
others at their far ends: it is most likely at fault.

A link may also be sound and its reader slow: then frames wait (`SlowReaders`). Nobody is dropped
for that. Takes values and returns values; `control_loop` carries it out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rekindle_spark.spark.spark_gateway import LinkBacklog

# A reader and its peer: executors.
Link = tuple[str, str]

# A read without a block fails after 15 s (`Blocks`), so a broken link fails again within this time.
FORGOTTEN_SECONDS = 60.0
# Frames may wait so long: an executor says once a second what does.
BACKLOG_SECONDS_MAX = 5.0
# Outputs in a row that credit does not cover. One that is larger than it may be is never covered.
REFUSALS_MAX = 20


@dataclass(slots=True)
class Links:
    """Links that fail: when the first read began that failed since one went well, and when the last
    one failed. May be read by other threads: an entry is never half there."""

    failing: dict[Link, tuple[float, float]] = field(default_factory=dict)

    def fail(self, links: Mapping[Link, float], now: float) -> None:
        """Reads have failed once more, each after so many seconds; what has not failed for long
        begins again."""
        self._forget_old(now)
        for link, seconds in links.items():
            since, _ = self.failing.get(link, (now - seconds, now))
            self.failing[link] = (since, now)

    def succeed(self, links: Iterable[Link]) -> None:
        """Reads have gone well: whatever failed there is over."""
        for link in links:
            self.failing.pop(link, None)

    def forget(self, executors: Collection[str]) -> None:
        """These are gone."""
        self.failing = {
            link: times for link, times in self.failing.items() if not set(link) & set(executors)
        }

    def worst(
        self, present: Collection[str], priorities: Mapping[str, float], limit_seconds: float
    ) -> tuple[str, frozenset[str]] | None:
        """The executor to drop, and the others that it has no link to; None: nobody.

        Counts links between executors that are `present` and have failed, and not once gone well,
        for `limit_seconds`. At a tie the one goes that carries less of the `priorities`, then the
        newer one.
        """
        ends: dict[str, set[str]] = {}
        for (reader, peer), (since, last) in self.failing.items():
            lasts = last - since >= limit_seconds
            if lasts and reader != peer and {reader, peer} <= set(present):
                ends.setdefault(reader, set()).add(peer)
                ends.setdefault(peer, set()).add(reader)
        if not ends:
            return None
        chosen = min(
            ends,
            key=lambda name: (-len(ends[name]), priorities.get(name, 0.0), _newest_first(name)),
        )
        return chosen, frozenset(ends[chosen])

    def _forget_old(self, now: float) -> None:
        self.failing = {
            link: (since, last)
            for link, (since, last) in self.failing.items()
            if now - last <= FORGOTTEN_SECONDS
        }


@dataclass(frozen=True, slots=True)
class ReaderBacklog:
    """What waits for a reader, and of whom; `refusals` are the most of one link."""

    producers: tuple[str, ...]
    waiting_bytes: int
    refusals: int

    @property
    def text(self) -> str:
        """Why it is slow, or what to do."""
        if self.refusals > REFUSALS_MAX:
            return (
                f"it has granted no credit for {self.refusals} outputs in a row, so frames go "
                "through files; if they are large, raise link_mib_max"
            )
        return "frames have waited for it all the time; those that read from it wait with it"


@dataclass(slots=True)
class SlowReaders:
    """Readers for which frames wait. `since`: when something began to wait on a link without end;
    `slow`: the readers that are known to be slow."""

    since: dict[Link, float] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)

    def look(
        self, backlogs: Iterable[LinkBacklog], now: float
    ) -> tuple[dict[str, ReaderBacklog], set[str]]:
        """The readers that have become slow, with what waits for them, and those that are slow no
        more. A reader is slow while frames have waited on one of its links at each look for
        `BACKLOG_SECONDS_MAX`, or its credit has not covered more than `REFUSALS_MAX` outputs in a
        row."""
        known = list(backlogs)
        waiting = {(one.reader, one.producer) for one in known if one.waiting_bytes}
        self.since = {link: self.since.get(link, now) for link in waiting}
        late = {
            reader
            for (reader, _), since in self.since.items()
            if now - since >= BACKLOG_SECONDS_MAX
        }
        late |= {one.reader for one in known if one.refusals > REFUSALS_MAX}
        begun = {reader: _backlog(reader, known) for reader in sorted(late - self.slow)}
        over, self.slow = self.slow - late, late
        return begun, over


def _backlog(reader: str, backlogs: Iterable[LinkBacklog]) -> ReaderBacklog:
    of_reader = [one for one in backlogs if one.reader == reader]
    return ReaderBacklog(
        tuple(sorted({one.producer for one in of_reader})),
        sum(one.waiting_bytes for one in of_reader),
        max(one.refusals for one in of_reader),
    )


def _newest_first(executor: str) -> tuple[int, str]:
    """Spark numbers executors as they come."""
    return (-int(executor), "") if executor.isdecimal() else (0, executor)
