"""Determinism (Definition 10): whether the recorded inputs can give different outputs.

All inputs enter first: whatever a race could do earlier it can do then too. One execution is taken
to its end; the others are searched for one that differs from it, and the inputs are then left out
one by one as long as two executions differ. `checking` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rekindle.history.execution import Machine, State
from rekindle.history.operations import Value
from rekindle.history.search import Budget, Exhausted
from rekindle.history.steps import Graph, Input

__all__ = ["Race", "race"]


@dataclass(frozen=True, slots=True)
class Race:
    """The fewest inputs found with which a channel can release `one` or `other`."""

    inputs: tuple[Input, ...]
    channel: str
    one: tuple[Value, ...]
    other: tuple[Value, ...]


def race(graph: Graph, inputs: Sequence[Input], budget: Budget) -> Race | None:
    """Two different outcomes of the same inputs, None when there is but one. Raises Exhausted."""
    machine = Machine(graph, watched={}, wanted={})
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


def _difference(machine: Machine, inputs: tuple[Input, ...], budget: Budget) -> Race | None:
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


def _drained(machine: Machine, state: State, budget: Budget) -> State:
    """The state after some execution has taken all that waits."""
    while (after := next(machine.moves(state, range(len(machine.operations))), None)) is not None:
        budget.spend()
        state = after
    return state


def _differs(state: State, outcome: State, ended: bool) -> bool:
    return any(
        pending != whole[: len(pending)] or (ended and len(pending) < len(whole))
        for pending, whole in zip(state.pending, outcome.pending, strict=True)
    )


def _race(machine: Machine, inputs: tuple[Input, ...], one: State, other: State) -> Race:
    channel, number = next(
        (channel, number)
        for channel, number in machine.channels.items()
        if one.pending[number] != other.pending[number]
    )
    return Race(inputs, channel, one.pending[number], other.pending[number])
