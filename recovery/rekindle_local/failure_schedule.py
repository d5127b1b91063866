"""Which nodes fail when, and in which order they come back: the demo's, and a public schedule.

    demo      once, 8 of 10 nodes
    workers   1, then 2, then 4 of 8 nodes, some minutes apart, as ShuffleBench does for fault
              tolerance (Vogel et al., DEBS 2024)

What is drawn depends on the seed alone, so it is the same for every system. Pure. `demo_run`,
`peer_run` and `recovery_benchmark` call it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rekindle_cli import cli_options

SCHEDULES = ("demo", "workers")
DEMO_NODES, DEMO_KILL = 10, 8
WORKERS_NODES, WORKERS_KILLS = 8, (1, 2, 4)
# The first node comes so long after it was asked for, each other so long after the one before.
FIRST_SECONDS, EVERY_SECONDS = 10.0, 6.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """At each failure so many of `nodes` are killed, `every_seconds` after the one before, and no
    earlier than all are back."""

    name: str
    nodes: int
    kills: tuple[int, ...]
    every_seconds: float = 0.0


def demo(nodes: int | None = None, kill: int | None = None) -> Schedule:
    """One failure; raises InputError when no node survives it."""
    nodes = DEMO_NODES if nodes is None else nodes
    kill = min(DEMO_KILL, nodes - 1) if kill is None else kill
    cli_options.check_kill(kill, nodes)
    return Schedule("demo", nodes, (kill,))


def workers(minutes: float) -> Schedule:
    """The public schedule, with so many minutes from one failure to the next."""
    return Schedule("workers", WORKERS_NODES, WORKERS_KILLS, 60 * minutes)


def drawn(nodes: Sequence[str], kills: Sequence[int], seed: int) -> tuple[tuple[str, ...], ...]:
    """The nodes that each failure kills, no node twice; in the order of `nodes`."""
    assert sum(kills) <= len(nodes), f"{sum(kills)} different nodes of {len(nodes)}"
    order = list(nodes)
    Random(seed).shuffle(order)
    chosen, position = [], 0
    for count in kills:
        lost = set(order[position : position + count])
        chosen.append(tuple(node for node in nodes if node in lost))
        position += count
    return tuple(chosen)


def return_order(nodes: Sequence[str], seed: int) -> tuple[str, ...]:
    """The order in which nodes come back that are down."""
    order = list(nodes)
    Random(seed + 1).shuffle(order)
    return tuple(order)
