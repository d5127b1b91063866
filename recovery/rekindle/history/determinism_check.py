"""Determinism (Definition 10): whether the recorded inputs can give different outputs.

All inputs enter first: whatever a race could do earlier it can do then too. One execution is taken
to its end; the others are searched for one that differs from it, and the inputs are then left out
one by one as long as two executions differ. `history_check` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rekindle.history.execution_search import Exhausted, StateBudget
from rekindle.history.history_steps import Graph, Input
from rekindle.history.ideal_execution import ExecutionState, GraphMachine
from rekindle.history.operations import Value


@dataclass(frozen=True, slots=True)
class RacingInputs:
    """The fewest inputs found with which a channel can release `one` or `other`."""

    inputs: tuple[Input, ...]
    channel: str
    one: tuple[Value, ...]
    other: tuple[Value, ...]


def race(graph: Graph, inputs: Sequence[Input], budget: StateBudget) -> RacingInputs | None:
    """Two different outcomes of the same inputs, None when there is but one. Raises Exhausted."""
    machine = GraphMachine(graph, watched={}, wanted={})
    found = _difference(machine, tuple(inputs), budget)
    size = len(inputs)
    while found is not None and (size := size // 2):
        passed = 0
        while passed < len(found.inputs):
            fewer = (*found.inputs[:passed], *found.inputs[passed + size :])
            try:
                smaller = _difference(machine, fewer, budget)
            except Exhausted:
                return found
            passed += 0 if smaller else size
            found = smaller or found
    return found


def _difference(
    machine: GraphMachine, inputs: tuple[Input, ...], budget: StateBudget
) -> RacingInputs | None:
    if not any(machine.racing):
        return None
    state = machine.beginning()
    for step in inputs:
        state = machine.enter(state, step.channel, step.value)
    everywhere = range(len(machine.operations))
    todo, seen, outcome = [state], {state}, _drained(machine, state, budget)
    while todo:
        budget.spend()
        state = todo.pop()
        moves = list(machine.moves(state, everywhere))
        if _differs(state, outcome, ended=not moves):
            other = _drained(machine, state, budget)
            return _race(machine, inputs, outcome, other)
        fresh = [after for after in moves if after not in seen]
        seen.update(fresh)
        todo += fresh
    return None


def _drained(machine: GraphMachine, state: ExecutionState, budget: StateBudget) -> ExecutionState:
    """The state after some execution has taken all that waits."""
    while (after := next(machine.moves(state, range(len(machine.operations))), None)) is not None:
        budget.spend()
        state = after
    return state


def _differs(state: ExecutionState, outcome: ExecutionState, ended: bool) -> bool:
    return any(
        pending != whole[: len(pending)] or (ended and len(pending) < len(whole))
        for pending, whole in zip(state.pending, outcome.pending, strict=True)
    )


def _race(
    machine: GraphMachine, inputs: tuple[Input, ...], one: ExecutionState, other: ExecutionState
) -> RacingInputs:
    channel, number = next(
        (channel, number)
        for channel, number in machine.channels.items()
        if one.pending[number] != other.pending[number]
    )
    return RacingInputs(inputs, channel, one.pending[number], other.pending[number])
