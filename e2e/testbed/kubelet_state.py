"""What is known of each simulated node: the part of a kubelet that others can see.

`node_heartbeats` and `pod_runner` act for those that are alive, `simulated_kubelets` changes which
are. All of it happens in one event loop, so there are no locks; what is under way for a node is
counted, so that its loss can wait until nothing is.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SETTLED_POLL_SECONDS = 0.005


@dataclass(slots=True, eq=False)
class Kubelet:
    """Of one node. `clock_seconds` is how far its clock is ahead, `clock_was_set` whether that has
    ever changed, `said` what it has said of itself last (whether it is Ready, reason, message),
    `renewed_at` when its lease was renewed last (the loop's time), `repeats` with how many renewals
    more it says that again, `busy` what is under way; on a `real` node containers run."""

    name: str
    uid: str
    address: str
    alive: bool = True
    clock_seconds: float = 0.0
    clock_was_set: bool = False
    said: tuple[bool, str, str] = (True, "", "")
    renewed_at: float = 0.0
    repeats: int = 0
    busy: int = 0
    real: bool = False

    def now(self) -> datetime:
        """The moment by the node's own clock."""
        return datetime.now(UTC) + timedelta(seconds=self.clock_seconds)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Something is under way for the node."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1


async def settle(kubelets: Iterable[Kubelet]) -> None:
    """Wait until nothing is under way for these."""
    for kubelet in kubelets:
        while kubelet.busy:
            await asyncio.sleep(SETTLED_POLL_SECONDS)
