"""The leases of all simulated nodes, renewed from one thread.

Each lease is renewed once in every interval, and the renewals of all nodes are spread over it, as
those of real kubelets are. A renewal that fails is tried again after a second: the API server may
be away. After one that was late the kubelet says for a while how it is as well, for its node may
become Unknown. One for which there is no lease ends: somebody has deleted the node.
simulated_kubelets.py runs it.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from testbed import node_objects
from testbed.bulk_connection import MERGE_PATCH, UNREACHABLE, BulkConnection
from testbed.kubelet_state import Kubelet

TICK_SECONDS = 0.05
AGAIN_SECONDS = 1.0
# In intervals: after four of them a lease has expired.
LATE = 3
# Who has marked a node Unknown may have looked before it has heard of the renewal: a controller
# that has lost its watches begins them anew after half a minute at most.
REPEATS = 60
NOT_FOUND = 404


class NodeHeartbeats:
    """`renewals` counts those that were done, `late_seconds_max` is how late one was begun; `speak`
    has a kubelet say how it is."""

    def __init__(
        self,
        connection: BulkConnection,
        interval_seconds: float,
        speak: Callable[[Kubelet], Awaitable[object]] | None = None,
    ) -> None:
        self.renewals = 0
        self.late_seconds_max = 0.0
        self._connection = connection
        self._speak = speak
        self._interval_seconds = interval_seconds
        self._order = itertools.count()
        self._due: list[tuple[float, int, Kubelet]] = []

    def begin(self, kubelets: Sequence[Kubelet]) -> None:
        """Renew their leases from now on, the first ones at once."""
        now = asyncio.get_running_loop().time()
        for number, kubelet in enumerate(kubelets):
            kubelet.renewed_at = now
            self._push(now + self._interval_seconds * number / len(kubelets), kubelet)

    def forget_dead(self) -> None:
        """Renew no lease of a kubelet that is not alive."""
        self._due = [entry for entry in self._due if entry[2].alive]
        heapq.heapify(self._due)

    async def run(self) -> None:
        """Renew for ever."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                while self._due and self._due[0][0] <= loop.time():
                    due, _, kubelet = heapq.heappop(self._due)
                    group.create_task(self._renew(kubelet, due))
                await asyncio.sleep(TICK_SECONDS)

    async def _renew(self, kubelet: Kubelet, due: float) -> None:
        if not kubelet.alive:
            return
        loop = asyncio.get_running_loop()
        self.late_seconds_max = max(self.late_seconds_max, loop.time() - due)
        again = max(due + self._interval_seconds, loop.time())
        with kubelet.work():
            try:
                path, body = (
                    f"{node_objects.LEASES}/{kubelet.name}",
                    node_objects.renewal(kubelet.now()),
                )
                answer = await self._connection.send("PATCH", path, body, kind=MERGE_PATCH)
            except UNREACHABLE:
                again = loop.time() + min(AGAIN_SECONDS, self._interval_seconds)
            else:
                self.renewals += answer.done
                if answer.done:
                    await self._note(kubelet, loop.time())
                elif answer.status == NOT_FOUND:
                    kubelet.alive = False
        if kubelet.alive:
            self._push(again, kubelet)

    async def _note(self, kubelet: Kubelet, now: float) -> None:
        """A lease was renewed."""
        if now - kubelet.renewed_at > LATE * self._interval_seconds:
            kubelet.repeats = REPEATS
        kubelet.renewed_at = now
        if kubelet.repeats and self._speak is not None:
            kubelet.repeats -= 1
            with suppress(*UNREACHABLE):
                await self._speak(kubelet)

    def _push(self, due: float, kubelet: Kubelet) -> None:
        heapq.heappush(self._due, (due, next(self._order), kubelet))
