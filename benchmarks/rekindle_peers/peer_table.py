"""The peers, a line for each: who starts them, on which machines, and who reads what they put out.

A peer's driver writes events `cut`, `commit` and `finish` as docs/report.md has them, and `joined`
where it knows when a node takes part. `peer_scenario` and `peer_run` read the table, `bench
recovery` takes its names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rekindle_peers.flink import flink_evidence as of_flink
from rekindle_peers.peer_evidence import Tables
from rekindle_peers.structured_streaming import streaming_evidence as of_structured_streaming


@dataclass(frozen=True, slots=True)
class Peer:
    """One line: `contender` is its name in `peer_starters`.

    A node has so many `slots`. `tables` reads what a query has put out. Where `tells_joined` is
    false, a node takes part as soon as it has been started. Of a peer that `is_protected` a
    coordinator decides which queries run, and asks for nodes.
    """

    contender: str
    label: str
    slots: int
    tables: Tables
    tells_joined: bool = True
    is_protected: bool = False


def _flink(contender: str, label: str) -> Peer:
    """A node has one slot, for a slot of Flink runs a part of every operator."""
    return Peer(contender, label, 1, of_flink.tables, tells_joined=False)


PROTECTED = "structured-streaming-protected"
PEERS: Mapping[str, Peer] = {
    "structured-streaming": Peer(
        "structured-streaming", "Structured Streaming", 3, of_structured_streaming.tables
    ),
    PROTECTED: Peer(
        "structured-streaming",
        "Structured Streaming, protected",
        3,
        of_structured_streaming.tables,
        is_protected=True,
    ),
    "flink": _flink("flink", "Flink"),
    "flink-adaptive": _flink("flink-adaptive", "Flink, adaptive scheduler"),
}
