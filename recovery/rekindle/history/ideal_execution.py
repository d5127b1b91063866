"""An execution without failures: its working set, and every way in which it can go on.

    input ──► waiting at operations ──take──► waiting further down, … ──► pending at an output

A `ExecutionState` is canonical: two executions that can go on in the same ways are one value. Takes
that nothing can race with are made at once (`settle`); the others are `moves`, made as late as an
output asks for them. Both lose nothing: what waits stays, and what comes later does not undo a
choice.

Chooses nothing; `execution_search` and `history_check` do.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from rekindle.history import operations
from rekindle.history.history_steps import Graph
from rekindle.history.operations import ANY, CHANNELS, FIXED, Operation, Value

# Of an element that waits: number of the source, when its input entered, value. Source and time
# are 0 where nothing depends on them, so that equal working sets are equal values.
_Element = tuple[int, int, Value]


CLOSED = -2


class ExecutionState(NamedTuple):
    """A working set (Definition 1), canonical.

    `trails` are the states that an operation has been through, as far as a snapshot of the history
    names them. `flaws` counts what was lost or entered again (`execution_search.Flaws`); `open` is
    the number of the input that was lost last, as long as losing the next one counts as the same
    flaw.
    """

    states: tuple[Value, ...]
    waiting: tuple[tuple[_Element, ...], ...]
    pending: tuple[tuple[Value, ...], ...]
    trails: tuple[tuple[Value, ...], ...]
    entered: int = 0
    flaws: int = 0
    open: int = CLOSED


class GraphMachine:
    """The graph made ready to execute.

    `watched` are, per operation, the states that snapshots name; `wanted`, per output channel, the
    only values that matter there. On channels without an entry all do.
    """

    def __init__(
        self,
        graph: Graph,
        watched: Mapping[str, Collection[Value]],
        wanted: Mapping[str, Collection[Value]],
    ) -> None:
        numbers = {operation.name: n for n, operation in enumerate(graph.operations)}
        self.operations = graph.operations
        self.channels = {channel: n for n, channel in enumerate(graph.outputs)}
        self.feeding = {channel: numbers[name] for channel, name in graph.outputs.items()}
        self.numbers = numbers
        above = graph.upstream()
        self.above = [
            sorted(numbers[name] for name in above[operation.name])
            for operation in graph.operations
        ]
        self.racing = [_races(operation) for operation in graph.operations]
        self._readers: dict[str, list[tuple[int, int]]] = {}
        for number, operation in enumerate(graph.operations):
            for port, source in enumerate(operation.sources):
                self._readers.setdefault(source, []).append((number, port))
        self._fed = [
            [n for channel, n in self.channels.items() if graph.outputs[channel] == operation.name]
            for operation in graph.operations
        ]
        ordering = [n for n, operation in enumerate(graph.operations) if operation.order == FIXED]
        dated = set(ordering).union(*(self.above[number] for number in ordering))
        self._dated = [number in dated for number in range(len(graph.operations))]
        self._rank = [_RANKS[operation.order] for operation in graph.operations]
        self._watched = [frozenset(watched.get(name, ())) for name in numbers]
        self._wanted = [wanted.get(channel) for channel in graph.outputs]

    def beginning(self) -> ExecutionState:
        """Nothing has entered."""
        states = tuple(operations.initial(operation) for operation in self.operations)
        return ExecutionState(
            states=states,
            waiting=((),) * len(states),
            pending=((),) * len(self.channels),
            trails=tuple(
                (state,) if state in watched else ()
                for state, watched in zip(states, self._watched, strict=True)
            ),
        )

    def enter(self, state: ExecutionState, channel: str, value: Value) -> ExecutionState:
        """An element enters, and all that nothing races with is done."""
        work = _Work(state)
        work.entered += 1
        self._pass_on(work, channel, work.entered, value)
        self._settle(work)
        return work.done()

    def moves(self, state: ExecutionState, among: Collection[int]) -> Iterator[ExecutionState]:
        """Every way in which an operation of `among` can take one element next."""
        for number in among:
            if self.racing[number]:
                for place in self._candidates(number, state.waiting[number]):
                    work = _Work(state)
                    self._take(work, number, place)
                    self._settle(work)
                    yield work.done()

    def leading_to(self, number: int) -> list[int]:
        """The operations that an output of operation `number` may wait for."""
        return [*self.above[number], number]

    def _candidates(self, number: int, waiting: tuple[_Element, ...]) -> list[int]:
        """Places of the elements that may be taken next, equal ones once."""
        if self.operations[number].order == CHANNELS:
            heads: dict[int, int] = {}
            for place, (port, _, _) in enumerate(waiting):
                heads.setdefault(port, place)
            return list(heads.values())
        return list({element: place for place, element in enumerate(waiting)}.values())

    def _settle(self, work: "_Work") -> None:
        """Take all that nothing can race with, producers before consumers."""
        for number in range(len(self.operations)):
            if not self.racing[number]:
                while work.waiting[number] and self._is_due(work, number):
                    self._take(work, number, 0)

    def _is_due(self, work: "_Work", number: int) -> bool:
        """Whether nothing that waits upstream could still come before the first element."""
        if self.operations[number].order != FIXED:
            return True
        first = work.waiting[number][0][1]
        return not any(
            origin <= first for other in self.above[number] for _, origin, _ in work.waiting[other]
        )

    def _take(self, work: "_Work", number: int, place: int) -> None:
        port, origin, value = work.waiting[number][place]
        waiting = work.waiting[number]
        work.waiting[number] = waiting[:place] + waiting[place + 1 :]
        operation = self.operations[number]
        before = work.states[number]
        after, emitted = operations.take(operation, before, value, port)
        work.states[number] = after
        if after in self._watched[number] and after != before:
            work.trails[number] = (*work.trails[number], after)
        for result in emitted:
            self._pass_on(work, operation.name, origin, result)
            for channel in self._fed[number]:
                wanted = self._wanted[channel]
                if wanted is None or result in wanted:
                    work.pending[channel] = (*work.pending[channel], result)

    def _pass_on(self, work: "_Work", source: str, origin: int, value: Value) -> None:
        for number, port in self._readers.get(source, ()):
            element = self._element(number, port, origin, value)
            waiting = work.waiting[number]
            place = bisect_right(waiting, self._rank[number](element), key=self._rank[number])
            work.waiting[number] = (*waiting[:place], element, *waiting[place:])

    def _element(self, number: int, port: int, origin: int, value: Value) -> _Element:
        operation = self.operations[number]
        if operation.kind != "join" and operation.order == ANY:
            port = 0
        if operation.kind == "count" and not operation.keyed:
            value = None
        return port, origin if self._dated[number] else 0, value


class _Work:
    """A state while it changes."""

    def __init__(self, state: ExecutionState) -> None:
        self.states = list(state.states)
        self.waiting = list(state.waiting)
        self.pending = list(state.pending)
        self.trails = list(state.trails)
        self.entered = state.entered
        self.flaws = state.flaws
        self.open = state.open

    def done(self) -> ExecutionState:
        return ExecutionState(
            tuple(self.states),
            tuple(self.waiting),
            tuple(self.pending),
            tuple(self.trails),
            self.entered,
            self.flaws,
            self.open,
        )


# What waits lies in the order in which it is taken; where any may be taken, in a canonical one.
_RANKS: Mapping[str, Callable[[_Element], Any]] = {
    FIXED: lambda element: (element[1], element[0]),
    CHANNELS: lambda element: element[0],
    ANY: repr,
}


def _races(operation: Operation) -> bool:
    """Whether what it takes next is left to chance."""
    return operation.order == ANY or (operation.order == CHANNELS and len(operation.sources) > 1)
