"""The coordination under one seed: real decisions, modelled store, drivers and nodes.

    command       the command `rekindle sim`
    world         time, chance, the queue of what happens next
    stores        a model of the coordination store: versions, sessions, transactions
    machines      nodes that die and come, and the provider that brings them
    sidecars      what stands between a driver and the store
    drivers       a driver that follows orders, or plans alone
    coordinators  a coordinator's shell that may die between any two steps
    faults        what a seed does to all of them
    invariants    what must hold at every moment, and in the end
    sabotage      faults of our own, to see that they are found
    running       one seed from begin to end: `run`

The decisions are those of `rekindle.coordination`, byte for byte what the real shells call; only
I/O is modelled. No clock and no chance but those of the seed, so a seed always gives the same run.
"""

from rekindle_cli.cli import Command

__all__ = ["COMMAND"]

COMMAND = Command(
    "sim",
    "Simulate crashes, cuts and late messages under many seeds.",
    "rekindle_simulation.command",
)
