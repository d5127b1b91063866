"""The peers, a line for each: who starts them, on which machines, and who reads what they put out.

A peer's driver writes events `cut`, `commit` and `finish` as docs/report.md has them, and `joined`
where it knows when a node takes part. `peer_scenario` and `peer_run` read the table, `bench
recovery` takes its names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rekindle_local.local_nodes import LocalNodes
from rekindle_peers import peer_starters
from rekindle_peers.flink import flink_evidence as of_flink
from rekindle_peers.peer_evidence import Tables
from rekindle_peers.peer_starters import NodeSize
from rekindle_peers.structured_streaming import streaming_evidence as of_structured_streaming


@dataclass(frozen=True, slots=True)
class Peer:
    """One line: `contender` is its name in `peer_starters`.

    `machines` makes so many nodes with a quota of so many cores, with logs in a folder; nothing is
    started yet. `tables` reads what a query has put out. Where `tells_joined` is false, a node
    takes part as soon as it has been started.
    """

    contender: str
    label: str
    machines: Callable[[int, float, Path], LocalNodes]
    tables: Tables
    tells_joined: bool = True


def _on(contender: str, slots: int) -> Callable[[int, float, Path], LocalNodes]:
    """Its machines, with so many slots each."""

    def machines(nodes: int, cpu_quota: float, directory: Path) -> LocalNodes:
        return peer_starters.machines(contender, NodeSize(nodes, cpu_quota, slots), directory)

    return machines


def _flink(contender: str, label: str) -> Peer:
    """A node has one slot, for a slot of Flink runs a part of every operator."""
    return Peer(contender, label, _on(contender, 1), of_flink.tables, tells_joined=False)


PEERS: Mapping[str, Peer] = {
    "structured-streaming": Peer(
        "structured-streaming",
        "Structured Streaming",
        _on("structured-streaming", 3),
        of_structured_streaming.tables,
    ),
    "flink": _flink("flink", "Flink"),
    "flink-adaptive": _flink("flink-adaptive", "Flink, adaptive scheduler"),
}
