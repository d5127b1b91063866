"""The peers, a line for each: who starts them, on which machines, and who writes their report.

A peer's driver writes events `cut`, `commit` and `finish` as docs/report.md has them, and `joined`
where it knows when a node takes part. `scenario` and `performance` read the table, `bench recovery`
takes its names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle_local.cluster import LocalCluster
from rekindle_local.machines import Machines
from rekindle_local.structured_streaming import evidence
from rekindle_spark import jar

__all__ = ["PEERS", "Peer"]


@dataclass(frozen=True, slots=True)
class Peer:
    """One line: `contender` is its name in `bench.contenders`.

    `machines` makes so many nodes with a quota of so many cores, with logs in a folder; nothing is
    started yet. `write` writes the report's directory. Where `tells_joined` is false, a node takes
    part as soon as it has been started.
    """

    contender: str
    label: str
    machines: Callable[[int, float, Path], Machines]
    write: Callable[[Path, evidence.Run], dict[str, Any]]
    tells_joined: bool = True


def _spark(nodes: int, cpu_quota: float, directory: Path) -> LocalCluster:
    return LocalCluster(
        nodes=nodes, cpu_quota=cpu_quota, directory=directory, class_path=[Path(jar.path())]
    )


PEERS: Mapping[str, Peer] = {
    "structured-streaming": Peer(
        "structured-streaming", "Structured Streaming", _spark, evidence.write
    ),
}
