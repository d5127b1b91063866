"""The coordination under one seed: real decisions, modelled store, drivers and nodes.

    simulation_command      the command `rekindle sim`
    simulated_world         time, chance, the queue of what happens next
    simulated_store         a model of the coordination store: versions, sessions, transactions
    simulated_nodes         nodes that die and come, and the provider that brings them
    simulated_sidecars      what stands between a driver and the store
    simulated_drivers       a driver that follows orders, or plans alone
    simulated_coordinators  a coordinator's shell that may die between any two steps
    seeded_faults           what a seed does to all of them
    invariants              what must hold at every moment, and in the end
    simulation_sabotage     faults of our own, to see that they are found
    simulation_run          one seed from begin to end: `run`

The decisions are those of `rekindle.coordination`, byte for byte what the real shells call; only
I/O is modelled. No clock and no chance but those of the seed, so a seed always gives the same run.
"""

from rekindle_cli.command_line import Command

__all__ = ["COMMAND"]

COMMAND = Command(
    "sim",
    "Simulate crashes, cuts and late messages under many seeds.",
    "rekindle_simulation.simulation_command",
)
