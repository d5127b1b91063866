"""What a coordinator asks of whoever has the machines.

A local cluster has one implementation, Kubernetes others. A provider knows no
queries and decides nothing; it says what is certainly gone, and gets what is asked for.
"""

from typing import Protocol

from rekindle.coordination.directives import Request
from rekindle.protocol import Heartbeat
from rekindle.protocol.tree import Place

__all__ = ["NodeProvider"]


class NodeProvider(Protocol):
    """All answers at once: what takes longer goes on behind it. Each may raise RekindleError or
    OSError, and is then asked again later."""

    def request(self, place: Place, identity: str, request: Request) -> None:
        """Get nodes, or the driver again. The same identity again is the same request."""

    def gone_nodes(self, place: Place) -> frozenset[str]:
        """Nodes of an application that are certainly not there, with all that ran on them."""

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None, generation: int) -> bool:
        """Whether the newest driver has certainly ended. `heartbeat` is the newest known, perhaps
        of a session that is over; `generation` that of the newest driver that reported."""
