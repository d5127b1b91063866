"""Follows a history through all executions without failures that could have given it.

    states that fit the steps so far ──step──► states that fit this one too; none: impossible

That is Definitions 2 to 5: with a reference recovery a failure changes nothing, so an output is
possible (its probability is not 0) when an execution without failures gives it after all that was
input and output before. `Flaws` are the input channels of Definitions 7 and 8, which lose inputs or
repeat them. With every order fixed there is one state, and a step costs the same as any other;
where channels race, `StateBudget` bounds the states.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import ne

from rekindle.history.history_steps import (
    End,
    Graph,
    HistoryOutput,
    HistoryRecovery,
    Input,
    Snapshot,
    Step,
)
from rekindle.history.ideal_execution import CLOSED, ExecutionState, GraphMachine
from rekindle.history.operations import Value


class Exhausted(Exception):
    """There are more states than the budget allows: no answer, never a wrong one."""


@dataclass(slots=True)
class StateBudget:
    """How many states may still be looked at."""

    states: int

    def spend(self) -> None:
        """One state; raises Exhausted when none is left."""
        if self.states <= 0:
            raise Exhausted
        self.states -= 1


@dataclass(frozen=True, slots=True)
class Flaws:
    """At most so many inputs are lost, or so many enter again at any time after they entered.

    `stretches`: a run of consecutive inputs counts as one. `at_recoveries`: they enter again when a
    recovery is recorded, and at no other time.
    """

    lost: int = 0
    repeated: int = 0
    stretches: bool = False
    at_recoveries: bool = False


NONE = Flaws()


@dataclass(frozen=True, slots=True)
class FollowedSteps:
    """How far the steps were possible. `states` fit all steps before `failed_at`, or all."""

    failed_at: int | None
    states: tuple[ExecutionState, ...]


def machine_for(graph: Graph, steps: Sequence[Step]) -> GraphMachine:
    """The machine that keeps what `steps` can ask for, and nothing else.

    Of an operation, the states that snapshots name; of a channel on which anything may have left
    before each output that is shown, the values that are shown.
    """
    watched: dict[str, set[Value]] = {}
    wanted: dict[str, set[Value]] = {channel: set() for channel in graph.outputs}
    for step in steps:
        if isinstance(step, Snapshot) and step.operation is not None:
            watched.setdefault(step.operation, set()).update(step.state)
        elif isinstance(step, HistoryOutput) and step.unseen_before and step.channel in wanted:
            wanted[step.channel].add(step.value)
        elif isinstance(step, HistoryOutput):
            wanted.pop(step.channel, None)
        elif isinstance(step, End) and not step.unseen_before:
            wanted.clear()
    return GraphMachine(graph, watched, wanted)


def follow(
    machine: GraphMachine,
    steps: Sequence[Step],
    budget: StateBudget,
    flaws: Flaws = NONE,
    *,
    as_a_whole: bool = False,
) -> FollowedSteps:
    """Follow `steps` to the first one that is impossible. Raises Exhausted.

    `as_a_whole` asks only whether all steps are possible: what cannot go on as recorded is given
    up at once, so `failed_at` may be too early.
    """
    following = _Following(machine, budget, flaws, _recorded(machine, steps) if as_a_whole else {})
    for number, step in enumerate(steps):
        before = following.states
        following.states = following.fitting(step)
        if not following.states:
            return FollowedSteps(number, tuple(before))
    return FollowedSteps(None, tuple(following.states))


def next_values(
    machine: GraphMachine, states: Iterable[ExecutionState], channel: str, budget: StateBudget
) -> set[Value]:
    """What an execution in one of `states` can release next on a channel. Raises Exhausted."""
    number = machine.channels[channel]
    found: set[Value] = set()

    def look(state: ExecutionState) -> bool:
        found.update(state.pending[number][:1])
        return not state.pending[number]

    following = _Following(machine, budget, NONE, {})
    following.explore(states, machine.leading_to(machine.feeding[channel]), look)
    return found


def _recorded(machine: GraphMachine, steps: Iterable[Step]) -> dict[int, list[Value]]:
    """All that leaves, per channel on which nothing leaves unseen."""
    recorded: dict[str, list[Value]] = {channel: [] for channel in machine.channels}
    unseen = {
        step.channel for step in steps if isinstance(step, HistoryOutput) and step.unseen_before
    }
    for step in steps:
        if isinstance(step, HistoryOutput):
            recorded[step.channel].append(step.value)
    return {machine.channels[name]: recorded[name] for name in recorded if name not in unseen}


@dataclass(slots=True)
class _Following:
    """The states that fit the steps so far; `ahead` are outputs of the whole history."""

    machine: GraphMachine
    budget: StateBudget
    flaws: Flaws
    ahead: dict[int, list[Value]]
    states: list[ExecutionState] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [self.machine.beginning()]
        self.released = [0] * len(self.machine.channels)

    def fitting(self, step: Step) -> list[ExecutionState]:
        """The states after a step that fits."""
        found = self.states
        if isinstance(step, Input):
            self.inputs.append(step)
            found = self._enter()
        elif isinstance(step, HistoryRecovery) and self.flaws.at_recoveries:
            found = self._repeat(self.states)
        elif isinstance(step, HistoryOutput):
            found = self._release(step)
        elif isinstance(step, Snapshot) and step.state:
            found = self._save(step)
        elif isinstance(step, End) and not step.unseen_before:
            found = self._end()
        return list(dict.fromkeys(found)) if len(found) > 1 else found

    def explore(
        self,
        states: Iterable[ExecutionState],
        among: Iterable[int],
        look: Callable[[ExecutionState], bool],
    ) -> None:
        """Show `look` every state that moves `among` operations lead to, as long as it asks."""
        among = tuple(among)
        todo = list(states)
        seen: set[ExecutionState] = set()
        while todo:
            state = todo.pop()
            self.budget.spend()
            if look(state):
                for after in self.machine.moves(state, among):
                    if after not in seen and self._goes_on(after):
                        seen.add(after)
                        todo.append(after)

    def _goes_on(self, state: ExecutionState) -> bool:
        """Whether what is pending is what leaves next, as far as that is known."""
        for channel, values in self.ahead.items():
            pending, begin = state.pending[channel], self.released[channel]
            known = values[begin : begin + len(pending)]
            if any(map(ne, pending, known)):
                return False
        return True

    def _enter(self) -> list[ExecutionState]:
        """The newest input enters, or is lost; then any input so far may enter again."""
        newest, number, flaws = self.inputs[-1], len(self.inputs) - 1, self.flaws
        after = []
        for state in self.states:
            self.budget.spend()
            entered = self.machine.enter(state, newest.channel, newest.value)
            after.append(entered._replace(open=CLOSED))
            if state.open == number - 1 or state.flaws < flaws.lost:
                lost = state.flaws + (state.open != number - 1)
                after.append(state._replace(flaws=lost, open=number if flaws.stretches else CLOSED))
        if flaws.repeated and not flaws.at_recoveries:
            after = self._repeat(after)
        return [state for state in after if self._goes_on(state)] if self.ahead else after

    def _repeat(self, states: Iterable[ExecutionState]) -> list[ExecutionState]:
        """Any inputs so far enter again, one after the other."""
        stretches = self.flaws.stretches
        after = set(states)
        todo = [(state, CLOSED) for state in after]
        seen = set(todo)
        while todo:
            state, last = todo.pop()
            for number, step in enumerate(self.inputs):
                repeated = state.flaws + (not stretches or number != last + 1)
                if repeated > self.flaws.repeated:
                    continue
                self.budget.spend()
                again = self.machine.enter(state, step.channel, step.value)
                again = again._replace(flaws=repeated)
                following = again, number if stretches else CLOSED
                if following not in seen and self._goes_on(again):
                    seen.add(following)
                    todo.append(following)
                    after.add(again)
        return list(after)

    def _release(self, step: HistoryOutput) -> list[ExecutionState]:
        """Executions take what they have to until the output is the next one of its channel."""
        channel, found = self.machine.channels[step.channel], list[ExecutionState]()

        def look(state: ExecutionState) -> bool:
            pending = state.pending[channel]
            reach = pending if step.unseen_before else pending[:1]
            for place, value in enumerate(reach, start=1):
                if value == step.value:
                    found.append(state._replace(pending=_put(state.pending, channel, place)))
            return step.unseen_before or not pending

        self.explore(self.states, self.machine.leading_to(self.machine.feeding[step.channel]), look)
        self.released[channel] += 1
        return found

    def _save(self, step: Snapshot) -> list[ExecutionState]:
        """Executions go on until the operation has been in the state since its last snapshot."""
        assert step.operation is not None
        number, found = self.machine.numbers[step.operation], list[ExecutionState]()

        def look(state: ExecutionState) -> bool:
            trail = state.trails[number]
            if step.state[0] not in trail:
                return True
            place = trail.index(step.state[0])
            found.append(state._replace(trails=_put(state.trails, number, place)))
            return False

        self.explore(self.states, self.machine.leading_to(number), look)
        return found

    def _end(self) -> list[ExecutionState]:
        """Executions that can take all that waits, and then owe no output."""
        found: list[ExecutionState] = []

        def look(state: ExecutionState) -> bool:
            if found or any(state.pending):
                return False
            if not any(state.waiting):
                found.append(state)
            return True

        self.explore(self.states, range(len(self.machine.operations)), look)
        return found


def _put(
    queues: tuple[tuple[Value, ...], ...], number: int, gone: int
) -> tuple[tuple[Value, ...], ...]:
    """The queues, with so many elements gone from the front of one."""
    return (*queues[:number], queues[number][gone:], *queues[number + 1 :])
