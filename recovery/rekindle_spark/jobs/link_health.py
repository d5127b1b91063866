"""Links between executors: who cannot read the blocks of whom, for how long, and who has to go.

    sound ──a read fails──► failing ──goes on for `silent_seconds`──► broken ──► one end is dropped
      ▲                        │
      └──a read goes well──────┘   or nothing is known of it for long

Two executors may both reach the driver and not each other. Then every epoch fails, and silence
gives nobody away. A link fails from the moment at which a read begins that fails in the end, which
it does after 15 s without a block (`Blocks`). Of all broken links the executor goes that has most
others at their far ends: it is most likely at fault. Takes values and returns values;
`control_loop` carries it out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

# A reader and its peer: executors.
Link = tuple[str, str]

# A read without a block fails after 15 s (`Blocks`), so a broken link fails again within this time.
FORGOTTEN_SECONDS = 60.0


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


def _newest_first(executor: str) -> tuple[int, str]:
    """Spark numbers executors as they come."""
    return (-int(executor), "") if executor.isdecimal() else (0, executor)
