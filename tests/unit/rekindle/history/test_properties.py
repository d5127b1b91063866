"""The history checker against every execution there is, on small graphs, one element at a time."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rekindle import history
from rekindle.history import minimal_witness, operations
from rekindle.history.history_steps import (
    End,
    Graph,
    History,
    HistoryFailure,
    HistoryOutput,
    Input,
    Snapshot,
    Step,
)
from rekindle.history.operations import ANY, CHANNELS, FIXED, Operation, Value
from rekindle_testing import history_builders

NUMBERS = ("identity", "filter", "distinct", "count", "sum", "max", "min", "last")
KINDS = (*NUMBERS, "concatenate", "join")
HOW = ("twice", "dropped", "swapped")
TRIES = 8


@st.composite
def graphs(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> Graph:
    """One or two operations; the second reads inputs or the first."""
    inputs = ("x", "y")[: draw(st.integers(1, 2))]
    sources, found = list(inputs), list[Operation]()
    for number in range(draw(st.integers(1, 2))):
        numeric = [s for s in sources if all(o.name != s or o.kind in NUMBERS for o in found)]
        kind = draw(st.sampled_from(kinds))
        among = numeric if kind == "sum" else sources
        read = draw(st.lists(st.sampled_from(among), min_size=1, max_size=2, unique=True))
        if kind == "join" and len(read) != 2:
            kind = "identity"
        order = draw(st.sampled_from((FIXED, CHANNELS, ANY)))
        window = draw(st.sampled_from((None, 2))) if kind == "concatenate" else None
        keep: tuple[Value, ...] = (1, 2) if kind == "filter" else ()
        found.append(Operation(f"o{number}", kind, tuple(read), order, False, window, keep))
        sources.append(f"o{number}")
    used = {source for operation in found for source in operation.sources}
    ends = [operation.name for operation in found if operation.name not in used]
    if draw(st.booleans()):
        ends = [*dict.fromkeys([*ends, found[0].name])]
    return Graph(
        tuple(name for name in inputs if name in used), tuple(found), {f"to-{n}": n for n in ends}
    )


def enter(draw: st.DrawFn, graph: Graph, least: int = 0) -> list[tuple[str, Value]]:
    pairs = st.tuples(st.sampled_from(graph.inputs), st.integers(1, 3))
    return draw(st.lists(pairs, min_size=least, max_size=3))


@st.composite
def runs(draw: st.DrawFn, recovery: str, graph: Graph | None = None) -> History:
    graph = graph or draw(graphs())
    rng = random.Random(draw(st.integers(0, 2**32)))
    return history_builders.simulate(graph, enter(draw, graph), rng, recovery)


@st.composite
def sabotaged(draw: st.DrawFn) -> History:
    """A run with an output more, less, or in another place."""
    run = draw(runs(history_builders.REFERENCE))
    places = [n for n, step in enumerate(run.steps) if isinstance(step, HistoryOutput)]
    assume(places)
    place, how = draw(st.sampled_from(places)), draw(st.sampled_from(HOW))
    among = range(place, len(run.steps)) if how == "twice" else places
    return sabotage(run, how, place, draw(st.sampled_from(among)))


def sabotage(run: History, how: str, place: int, other: int) -> History:
    """The run with the output at `place` also at `other`, not at all, or changed for that one."""
    steps = list(run.steps)
    if how == "twice":
        steps.insert(other, steps[place])
    elif how == "dropped":
        del steps[place]
    else:
        steps[place], steps[other] = steps[other], steps[place]
    return History(run.graph, numbered(steps))


@st.composite
def failing(draw: st.DrawFn) -> History:
    """A run that no execution has: a replay or a sabotaged one where these are found among a few,
    else a run with an output that nothing makes."""
    graph = draw(graphs())
    entered = enter(draw, graph, least=1)
    seeds = random.Random(draw(st.integers(0, 2**32)))
    recovery = draw(st.sampled_from((history_builders.REFERENCE, history_builders.REPLAY)))
    for _ in range(TRIES):
        run = history_builders.simulate(graph, entered, seeds, recovery)
        places = [n for n, step in enumerate(run.steps) if isinstance(step, HistoryOutput)]
        if places and recovery == history_builders.REFERENCE:
            run = sabotage(run, seeds.choice(HOW), seeds.choice(places), seeds.choice(places))
        if judged(run).witness is not None:
            return run
    made = HistoryOutput(0, channel=draw(st.sampled_from(sorted(graph.outputs))), value=1_000)
    steps = list(run.steps)
    steps.insert(draw(st.integers(0, len(steps) - 1)), made)
    return History(graph, numbered(steps))


def numbered(steps: list[Step]) -> tuple[Step, ...]:
    changed = []
    for number, step in enumerate(steps, start=1):
        at: dict[str, Any] = {"t": number, "line": number}
        changed.append(replace(step, **at))
    return tuple(changed)


# A working set without any reduction: states, all states so far per operation, what waits, what is
# pending; everything in the order in which it came.
World = tuple[tuple[Value, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


class Oracle:
    """Every execution without failures, taken step by step in every way."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = [operation.name for operation in graph.operations]
        self.channels = list(graph.outputs)
        self.above = graph.upstream()
        self.told: set[str | None] = set()

    def first_impossible(self, steps: tuple[Step, ...]) -> int | None:
        for number, worlds in enumerate(self.follow(steps)):
            if not worlds:
                return number - 1
        return None

    def next_values(self, steps: tuple[Step, ...]) -> dict[str, set[Value]]:
        """Per channel what can leave next after these steps."""
        *_, worlds = self.follow(steps)
        ends = self.all_from(worlds)
        return {
            channel: {world[3][n][0] for world in ends if world[3][n]}
            for n, channel in enumerate(self.channels)
        }

    def follow(self, steps: tuple[Step, ...]) -> Iterator[set[World]]:
        self.told = {step.operation for step in steps if isinstance(step, Snapshot)}
        states = tuple(operations.initial(operation) for operation in self.graph.operations)
        worlds: set[World] = {
            (
                states,
                tuple((state,) for state in states),
                tuple(() for _ in states),
                tuple(() for _ in self.channels),
            )
        }
        yield worlds
        for step in steps:
            worlds = {after for world in self.all_from(worlds) for after in self.fit(world, step)}
            yield worlds

    def all_from(self, worlds: set[World]) -> set[World]:
        found, todo = set(worlds), list(worlds)
        while todo:
            for after in self.takes(todo.pop()):
                if after not in found:
                    found.add(after)
                    todo.append(after)
        return found

    def fit(self, world: World, step: Step) -> Iterator[World]:
        states, trails, waiting, pending = world
        if isinstance(step, Input):
            yield (states, trails, self.arrive(waiting, step.channel, step.t, step.value), pending)
        elif isinstance(step, HistoryOutput):
            channel = self.channels.index(step.channel)
            values = pending[channel]
            for n, value in enumerate(values if step.unseen_before else values[:1]):
                if value == step.value:
                    yield (states, trails, waiting, put(pending, channel, values[n + 1 :]))
        elif isinstance(step, Snapshot) and step.state and step.operation:
            number = self.names.index(step.operation)
            for n, state in enumerate(trails[number]):
                if state == step.state[0]:
                    yield (states, put(trails, number, trails[number][n:]), waiting, pending)
        elif not isinstance(step, End) or step.unseen_before or not (any(waiting) or any(pending)):
            yield world

    def takes(self, world: World) -> Iterator[World]:
        states, trails, waiting, pending = world
        for number, operation in enumerate(self.graph.operations):
            for place, (t, port, value) in enumerate(waiting[number]):
                if self.may_take(operation, number, waiting, place):
                    before = states[number]
                    state, emitted = operations.take(operation, before, value, port)
                    left = waiting[number][:place] + waiting[number][place + 1 :]
                    after, out = put(waiting, number, left), pending
                    for result in emitted:
                        after = self.arrive(after, operation.name, t, result)
                        for n, channel in enumerate(self.channels):
                            if self.graph.outputs[channel] == operation.name:
                                out = put(out, n, (*out[n], result))
                    trail = trails
                    if operation.name in self.told:
                        trail = put(trails, number, (*trails[number], state))
                    yield (put(states, number, state), trail, after, out)

    def may_take(self, operation: Operation, number: int, waiting: Any, place: int) -> bool:
        if operation.order == ANY:
            return True
        t, port, _ = waiting[number][place]
        if operation.order == CHANNELS:
            return port not in {other for _, other, _ in waiting[number][:place]}
        first = min(range(len(waiting[number])), key=lambda n: waiting[number][n][:2])
        upstream = [self.names.index(name) for name in self.above[operation.name]]
        return place == first and all(other > t for n in upstream for other, _, _ in waiting[n])

    def arrive(self, waiting: Any, source: str, t: float, value: Value) -> Any:
        for number, operation in enumerate(self.graph.operations):
            if source in operation.sources:
                element = (t, operation.sources.index(source), value)
                waiting = put(waiting, number, (*waiting[number], element))
        return waiting


def put(items: Any, place: int, item: Any) -> Any:
    return (*items[:place], item, *items[place + 1 :])


def judged(run: History) -> history.HistoryVerdict:
    """With less search than usual for which flaws of the input it would fit."""
    return history.check(run, "run", states_max=4_000)


def failed_at(run: History) -> int | None:
    """Where the checker finds the first impossible step, by its line."""
    witness = judged(run).witness
    return None if witness is None else witness.line - 1


@given(runs(history_builders.REFERENCE))
def test_a_run_with_a_reference_recovery_is_consistent_and_exactly_once(run: History) -> None:
    verdict = judged(run)
    assert verdict.consistent
    assert verdict.exactly_once
    assert verdict.at_least_once
    assert verdict.at_most_once
    assert verdict.witness is None


@settings(max_examples=60)
@given(runs(history_builders.REPLAY))
def test_a_replay_is_judged_as_by_trying_every_execution(run: History) -> None:
    assert failed_at(run) == Oracle(run.graph).first_impossible(run.steps)


@settings(max_examples=60)
@given(sabotaged())
def test_a_sabotaged_run_is_judged_as_by_trying_every_execution(run: History) -> None:
    assert failed_at(run) == Oracle(run.graph).first_impossible(run.steps)


def fixed(graph: Graph) -> Graph:
    return replace(graph, operations=tuple(replace(o, order=FIXED) for o in graph.operations))


@given(st.data())
def test_a_deterministic_system_may_replay_what_it_likes(data: st.DataObject) -> None:
    graph = fixed(data.draw(graphs()))
    verdict = judged(data.draw(runs(history_builders.REPLAY, graph)))
    assert verdict.deterministic
    assert verdict.holds


@settings(max_examples=60)
@given(st.data())
def test_determinism_is_having_one_outcome_in_every_execution(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    run = data.draw(runs(history_builders.REFERENCE, graph))
    oracle = Oracle(graph)
    inputs = tuple(step for step in run.steps if isinstance(step, Input))
    states = tuple(operations.initial(operation) for operation in graph.operations)
    nothing = tuple(() for _ in graph.operations)
    worlds: set[World] = {(states, nothing, nothing, tuple(() for _ in graph.outputs))}
    for step in inputs:
        worlds = {after for world in worlds for after in oracle.fit(world, step)}
    ends = {world[3] for world in oracle.all_from(worlds) if not any(world[2])}
    verdict = judged(run)
    assert verdict.deterministic == (len(ends) == 1)
    if verdict.race is not None:
        assert set(verdict.race.history.steps) <= set(inputs)


def comes_alone(oracle: Oracle, steps: tuple[Step, ...]) -> bool:
    last = steps[-1]
    if isinstance(last, End):
        return True
    alone = replace(last, unseen_before=True) if isinstance(last, HistoryOutput) else last
    inputs = tuple(step for step in steps if isinstance(step, Input))
    return oracle.first_impossible((*inputs, alone)) is None


def shows_the_same(oracle: Oracle, fewer: tuple[Step, ...], steps: tuple[Step, ...]) -> bool:
    """Whether a witness without one of its inputs would still be one."""
    if oracle.first_impossible(fewer) != len(fewer) - 1 or not comes_alone(oracle, fewer):
        return False
    last = fewer[-1]
    if isinstance(last, HistoryOutput | End) and last.unseen_before:
        return True
    before, after = oracle.next_values(steps[:-1]), oracle.next_values(fewer[:-1])
    channels = [last.channel] if isinstance(last, HistoryOutput) else list(before)
    return all(after[channel] <= before[channel] for channel in channels)


@settings(max_examples=25)
@given(failing())
def test_no_step_of_a_witness_can_be_left_out(run: History) -> None:
    witness = judged(run).witness
    assert witness is not None
    assert witness.smallest
    oracle, steps = Oracle(run.graph), witness.history.steps
    assert oracle.first_impossible(steps) == len(steps) - 1
    assert not any(isinstance(step, HistoryFailure) for step in steps)
    by_itself = comes_alone(oracle, steps)
    for place, step in enumerate(steps[:-1]):
        if isinstance(step, HistoryOutput | Snapshot):
            assert oracle.first_impossible(minimal_witness.unseen(steps, [place])) is None
        elif by_itself:
            assert not shows_the_same(oracle, (*steps[:place], *steps[place + 1 :]), steps)


@settings(max_examples=25)
@given(failing())
def test_a_witness_is_a_history_file_that_fails_by_itself(run: History) -> None:
    witness = judged(run).witness
    assert witness is not None
    again = history.parse(history.serialize(witness.history), "witness.jsonl")
    assert again == witness.history
    verdict = judged(again)
    assert verdict.witness is not None
    assert verdict.witness.history == again
    assert verdict.witness.kind == witness.kind


@settings(max_examples=40)
@given(sabotaged())
def test_at_most_once_is_being_possible_without_some_inputs(run: History) -> None:
    verdict, oracle = judged(run), Oracle(run.graph)
    inputs = [step for step in run.steps if isinstance(step, Input)]
    possible = any(
        oracle.first_impossible(tuple(step for step in run.steps if step not in lost)) is None
        for number in range(len(inputs) + 1)
        for lost in itertools.combinations(inputs, number)
    )
    assert verdict.at_most_once == possible


@settings(max_examples=15)
@given(sabotaged())
def test_at_least_once_is_being_possible_with_some_inputs_again(run: History) -> None:
    oracle = Oracle(run.graph)
    entered = [n for n, step in enumerate(run.steps) if isinstance(step, Input)]
    possible = any(
        oracle.first_impossible((*run.steps[:place], *again, *run.steps[place:])) is None
        for first in entered
        for place in range(first + 1, len(run.steps))
        if (again := [replace(run.steps[first], t=place + 0.5)])
    )
    assert judged(run).at_least_once or not possible


LETTERS = "abcd"


@st.composite
def concatenations(draw: st.DrawFn) -> History:
    """Everything that entered so far, in the order of the race; each letter enters once."""
    graph = Graph(("x",), (Operation("all", "concatenate", ("x",), ANY),), {"out": "all"})
    letters = [("x", letter) for letter in LETTERS[: draw(st.integers(2, len(LETTERS)))]]
    rng = random.Random(draw(st.integers(0, 2**32)))
    return history_builders.simulate(
        graph, letters, rng, draw(st.sampled_from(["reference", "replay"]))
    )


def grows_letter_by_letter(run: History) -> bool:
    before, entered = "", set[str]()
    for step in run.steps:
        if isinstance(step, Input):
            entered.add(str(step.value))
        elif isinstance(step, HistoryOutput):
            value = str(step.value)
            if value[:-1] != before or value[-1] not in entered - set(before):
                return False
            before = value
    return set(before) == entered


@given(concatenations())
def test_a_replay_in_another_order_is_found_where_order_matters(run: History) -> None:
    assume(not any(isinstance(step, Snapshot) for step in run.steps))
    assert judged(run).holds == grows_letter_by_letter(run)


@settings(max_examples=40)
@given(concatenations(), st.data())
def test_an_output_twice_or_dropped_is_always_found_there(
    run: History, data: st.DataObject
) -> None:
    places = [n for n, step in enumerate(run.steps) if isinstance(step, HistoryOutput)]
    place = data.draw(st.sampled_from(places))
    steps = list(run.steps)
    if data.draw(st.booleans()):
        steps.insert(place, steps[place])
    else:
        del steps[place]
    verdict = judged(History(run.graph, numbered(steps)))
    assert not verdict.exactly_once
    assert verdict.witness is not None
