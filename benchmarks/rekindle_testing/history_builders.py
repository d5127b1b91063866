"""Simulated runs of small graphs, whose recoveries are right or wrong in a known way.

    reference    the working set is as it was before the failure (Definition 3)
    replay       it is as in the last snapshot, and what entered since enters again; as many outputs
                 as had left since are withheld. No input is lost or taken twice, and still output
                 can be wrong where an order is left to chance (the paper, section II)

Executes element by element, with none of the checker's reductions. For tests of the checker, and
for making histories to try it on.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rekindle.history import operations
from rekindle.history.history_steps import (
    End,
    Graph,
    History,
    HistoryFailure,
    HistoryOutput,
    HistoryRecovery,
    Input,
    Snapshot,
)
from rekindle.history.operations import CHANNELS, FIXED, Operation, Value

REFERENCE, REPLAY = "reference", "replay"
SNAPSHOT_CHANCE = 0.1
FAILURE_CHANCE = 0.15
_Step = Input | HistoryOutput | Snapshot | HistoryFailure | HistoryRecovery | End


def simulate(
    graph: Graph, inputs: Sequence[tuple[str, Value]], rng: random.Random, recovery: str = REFERENCE
) -> History:
    """Run `inputs`, pairs of channel and value, to the end; `line` counts the steps from 1."""
    run = _Run(graph, rng, list(inputs))
    while run.goes_on():
        if rng.random() < SNAPSHOT_CHANCE:
            run.save()
        if rng.random() < FAILURE_CHANCE:
            run.fail(recovery)
    run.say(End(0))
    return History(graph, tuple(run.steps))


@dataclass(slots=True)
class _World:
    """A working set. Elements wait with the time that their input entered and their source."""

    states: dict[str, Value]
    waiting: dict[str, list[tuple[int, int, Value]]]
    pending: dict[str, list[Value]]


@dataclass(slots=True)
class _Run:
    graph: Graph
    rng: random.Random
    left: list[tuple[str, Value]]
    steps: list[_Step] = field(default_factory=list)
    world: _World = field(init=False)
    saved: _World = field(init=False)
    entered: list[tuple[str, Value]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)
    t: int = 0

    def __post_init__(self) -> None:
        self.world = _World(
            {operation.name: operations.initial(operation) for operation in self.graph.operations},
            {operation.name: [] for operation in self.graph.operations},
            {channel: [] for channel in self.graph.outputs},
        )
        self.saved = copy.deepcopy(self.world)

    def say(self, step: _Step) -> None:
        """Record a step."""
        self.t += 1
        self.steps.append(replace(step, t=self.t, line=len(self.steps) + 1))

    def goes_on(self) -> bool:
        """Do one of the things that can be done; False when there is none."""
        takes = [
            (operation, place)
            for operation in self.graph.operations
            for place in self._free(operation)
        ]
        releases = [channel for channel, pending in self.world.pending.items() if pending]
        number = self.rng.randrange(max(1, len(takes) + len(releases) + bool(self.left)))
        if number < len(takes):
            self._take(*takes[number])
        elif number < len(takes) + len(releases):
            self._release(releases[number - len(takes)])
        elif self.left:
            channel, value = self.left.pop(0)
            self.say(Input(0, channel, value))
            self.entered.append((channel, value))
            self._enter(channel, self.t, value)
        else:
            return False
        return True

    def save(self) -> None:
        """Save everything, and tell one operation's state."""
        operation = self.rng.choice(self.graph.operations).name
        self.say(Snapshot(0, operation, (self.world.states[operation],)))
        self.saved = copy.deepcopy(self.world)
        self.entered, self.released = [], list(self.withheld)

    def fail(self, recovery: str) -> None:
        """Fail, and recover in the one way or the other."""
        self.say(HistoryFailure(0))
        if recovery == REPLAY:
            self.world = copy.deepcopy(self.saved)
            for channel, value in self.entered:
                self.t += 1
                self._enter(channel, self.t, value)
            self.withheld = list(self.released)
        self.say(HistoryRecovery(0))

    def _free(self, operation: Operation) -> list[int]:
        """Places of the elements that the operation may take next."""
        waiting = self.world.waiting[operation.name]
        if operation.order == FIXED:
            upstream = self.graph.upstream()[operation.name]
            earlier = {t for name in upstream for t, _, _ in self.world.waiting[name]}
            first = min(range(len(waiting)), key=lambda n: waiting[n][:2], default=None)
            held = first is None or any(t <= waiting[first][0] for t in earlier)
            return [] if held or first is None else [first]
        if operation.order == CHANNELS:
            sources = [source for _, source, _ in waiting]
            return sorted({sources.index(source) for source in sources})
        return list(range(len(waiting)))

    def _take(self, operation: Operation, place: int) -> None:
        t, source, value = self.world.waiting[operation.name].pop(place)
        state = self.world.states[operation.name]
        state, emitted = operations.take(operation, state, value, source)
        self.world.states[operation.name] = state
        for result in emitted:
            self._enter(operation.name, t, result)
            for channel, name in self.graph.outputs.items():
                if name == operation.name:
                    self.world.pending[channel].append(result)

    def _enter(self, source: str, t: int, value: Value) -> None:
        for operation in self.graph.operations:
            if source in operation.sources:
                element = (t, operation.sources.index(source), value)
                self.world.waiting[operation.name].append(element)

    def _release(self, channel: str) -> None:
        value = self.world.pending[channel].pop(0)
        if channel in self.withheld:
            self.withheld.remove(channel)
        else:
            self.say(HistoryOutput(0, channel, value))
            self.released.append(channel)
