"""Who is compared in which failures, and in which order.

`recovery_benchmark` runs a contest; `contest_resume` sees what an interrupted one has left.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rekindle_bench import system_comparison
from rekindle_cli import cli_options
from rekindle_local import failure_schedule
from rekindle_local.failure_schedule import Schedule
from rekindle_local.local_nodes import CPU_QUOTA
from rekindle_peers.peer_table import PEERS

SYSTEMS = (*cli_options.STRATEGIES, *PEERS)


@dataclass(frozen=True, slots=True)
class Contest:
    """Who is compared in which failures, on nodes of `cpu_quota` cores each. Without a rate, that
    of Rekindle's runs holds."""

    systems: Sequence[str]
    seeds: Sequence[int]
    schedule: Schedule
    rows_per_second: float | None = None
    cpu_quota: float = CPU_QUOTA

    @property
    def header(self) -> dict[str, Any]:
        """What `recovery.json` says of it: the failures, the rate that was asked for, the nodes."""
        return {
            "schedule": self.schedule.name,
            "nodes": self.schedule.nodes,
            "kills": list(self.schedule.kills),
            "every_seconds": self.schedule.every_seconds,
            "rows_per_second": self.rows_per_second,
            "cpu_quota": self.cpu_quota,
        }

    @property
    def leader(self) -> str | None:
        """The strategy of Rekindle that is first of each seed, if there is one."""
        return next((name for name in in_turn(self.systems, 0) if name not in PEERS), None)

    @property
    def command(self) -> str:
        """How to measure it again."""
        words = ["rekindle", "bench", "recovery", "--strategies", ",".join(self.systems)]
        words += ["--seeds", f"{self.seeds[0]}..{self.seeds[-1]}"]
        if self.schedule.name == "demo" and self.schedule != failure_schedule.demo():
            (killed,) = self.schedule.kills
            words += ["--nodes", f"{self.schedule.nodes}", "--kill", f"{killed}"]
        if self.schedule.name != "demo":
            minutes = f"{self.schedule.every_seconds / 60:g}"
            words += ["--schedule", self.schedule.name, "--minutes", minutes]
        if self.rows_per_second is not None:
            words += ["--rows-per-second", f"{self.rows_per_second:g}"]
        if self.cpu_quota != CPU_QUOTA:
            words += ["--cpu-quota", f"{self.cpu_quota:g}"]
        return shlex.join(words)


def in_turn(systems: Sequence[str], turn: int) -> list[str]:
    """The order of a seed: incremental first, for its rate; another peer begins in each turn."""
    ours = [name for name in systems if name not in PEERS]
    peers = [name for name in systems if name in PEERS]
    begin = turn % len(peers) if peers else 0
    first = sorted(ours, key=lambda name: name != system_comparison.OURS)
    return [*first, *peers[begin:], *peers[:begin]]
