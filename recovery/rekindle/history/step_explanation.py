"""Sentences about an impossible step of a modelled history, for who has to mend the system.

Says what would have been possible instead, and where the history shows it, why it came to this:
Theorem 1, a state of a non-commutative operation that was not saved before output that depends on
it was released. Decides nothing; `history_check` calls it.
"""

import json
from collections.abc import Iterable, Sequence

from rekindle.history.execution_search import Exhausted, Flaws, StateBudget
from rekindle.history.history_steps import (
    End,
    Graph,
    HistoryFailure,
    HistoryOutput,
    Input,
    Snapshot,
    Step,
)
from rekindle.history.ideal_execution import GraphMachine
from rekindle.history.minimal_witness import Shrunk, wanted_instead
from rekindle.history.operations import COMMUTATIVE, FIXED, RECORDED, Operation, Value

LISTED_MAX = 6
SHOWN_MAX = 3
STATES_MAX = 20_000


def non_commutative(graph: Graph) -> tuple[str, ...]:
    """Operations that order matters to (Definition 9); of recorded ones it is not known."""
    return tuple(
        operation.name
        for operation in graph.operations
        if operation.kind not in COMMUTATIVE and operation.kind != RECORDED
    )


def sentence(graph: Graph, shrunk: Shrunk) -> str:
    """What is wrong with the last step of a witness."""
    *before, last = shrunk.steps
    inputs = [step for step in before if isinstance(step, Input)]
    of = f"from {_seen(inputs)}" if inputs else "from nothing"
    if isinstance(last, End):
        return f"At the end (t {last.t:g}), {of}, {_owed(graph, shrunk.steps)}."
    if isinstance(last, Snapshot):
        assert last.operation is not None
        what = f"The state {_shown(last.state[0])} of {last.operation}, saved at t {last.t:g},"
    else:
        assert isinstance(last, HistoryOutput)
        what = f"Output {_shown(last.value)} (t {last.t:g}) of {last.channel}"
    if shrunk.fits is None and shrunk.proven:
        return f"{what} cannot come of what had entered, not even were inputs lost or repeated."
    earlier = [step for step in before if isinstance(step, HistoryOutput | Snapshot)]
    after = f" after {_seen(earlier[-SHOWN_MAX:])}" if earlier else ""
    instead = f": {_instead(graph, shrunk.steps)}" if isinstance(last, HistoryOutput) else ""
    return f"{what} is impossible{after}, {of}{instead}.{_flawed(shrunk.fits)}"


def because(graph: Graph, steps: Sequence[Step]) -> str:
    """How it can have come to that; `steps` are those of the whole history, the last is impossible.

    Theorem 1: a non-deterministic system must save what non-commutative operations gave before it
    releases output that depends on it.
    """
    failures = [(n, step) for n, step in enumerate(steps) if isinstance(step, HistoryFailure)]
    if not failures:
        return "No failure is recorded before it: this did not come of a recovery."
    failed, failure = failures[-1]
    said = f"The last failure before it was at t {failure.t:g}."
    machine = GraphMachine(graph, watched={}, wanted={})
    if not any(machine.racing):
        return (
            f"{said} No order is left to chance, so the recovery could have computed the same "
            "again (section V)."
        )
    for operation in _racing(machine, graph):
        unsaved = _unsaved(graph, steps[:failed], operation.name)
        if unsaved:
            return (
                f"{said} Before it {_seen(unsaved)} had been released, and the state of "
                f"{operation.name} behind that had not been saved. What {operation.name} takes "
                f"races and {operation.kind} does not commute, so a recovery that takes it again "
                "can come to another state (Theorem 1)."
            )
    return said


def race_sentence(channel: str, one: Sequence[Value], other: Sequence[Value]) -> str:
    """Two outcomes of the same inputs."""
    return (
        f"From the same inputs {channel} can release {_list(map(_shown, one))} or "
        f"{_list(map(_shown, other))}: an order is left to chance."
    )


def _racing(machine: GraphMachine, graph: Graph) -> list[Operation]:
    """Non-commutative operations that a race reaches."""
    above, names = graph.upstream(), non_commutative(graph)
    free = {
        operation.name
        for operation, races in zip(machine.operations, machine.racing, strict=True)
        if races
    }
    return [
        operation
        for operation in graph.operations
        if operation.name in names
        and operation.order != FIXED
        and free & {operation.name, *above[operation.name]}
    ]


def _unsaved(graph: Graph, steps: Sequence[Step], operation: str) -> list[Step]:
    """Outputs that depend on the operation and were released since its last snapshot."""
    above = graph.upstream()
    behind = {
        channel
        for channel, source in graph.outputs.items()
        if operation == source or operation in above[source]
    }
    unsaved: list[Step] = []
    for step in steps:
        if isinstance(step, Snapshot) and step.operation in (None, operation):
            unsaved = []
        elif isinstance(step, HistoryOutput) and step.channel in behind:
            unsaved.append(step)
    return unsaved


def _instead(graph: Graph, steps: tuple[Step, ...]) -> str:
    last = steps[-1]
    assert isinstance(last, HistoryOutput)
    found = _found(graph, steps)
    if found is None or last.unseen_before:
        return "no execution without failures gives it"
    if not found[last.channel]:
        return "an execution without failures has nothing more to release"
    return f"an execution without failures releases {_list(found[last.channel], 'or')} next"


def _owed(graph: Graph, steps: tuple[Step, ...]) -> str:
    found = _found(graph, steps) or {}
    owed = [f"{_list(values, 'or')} on {channel}" for channel, values in found.items() if values]
    if not owed:
        return "no execution without failures would have ended so"
    return f"an execution without failures still releases {_list(owed)}"


def _found(graph: Graph, steps: tuple[Step, ...]) -> dict[str, list[str]] | None:
    try:
        found = wanted_instead(graph, steps, StateBudget(STATES_MAX))
    except Exhausted:
        return None
    return {channel: sorted(map(_shown, values)) for channel, values in found.items()}


def _flawed(fits: Flaws | None) -> str:
    if fits is None or not (fits.lost or fits.repeated):
        return ""
    what = "some inputs" if fits.stretches else "one input"
    return f" It would fit had {what} {'been lost' if fits.lost else 'entered twice'}."


def _seen(steps: Iterable[Step]) -> str:
    shown = []
    for step in steps:
        if isinstance(step, Snapshot):
            shown.append(f"the state {_shown(step.state[0])} (t {step.t:g})")
        elif isinstance(step, Input | HistoryOutput):
            shown.append(f"{_shown(step.value)} (t {step.t:g})")
    return _list(shown)


def _list(items: Iterable[str], word: str = "and") -> str:
    shown = list(items)
    if len(shown) > LISTED_MAX:
        shown = [*shown[: LISTED_MAX - 1], f"{len(shown) - LISTED_MAX + 1} more"]
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {word} {shown[-1]}"


def _shown(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)
