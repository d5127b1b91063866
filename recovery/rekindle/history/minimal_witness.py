"""Takes steps out of an impossible history until none is left that could go: the smallest witness.

What remains has to show the same thing, so steps go by these rules:

- The step that is impossible stays the last one, and all before it stay possible.
- An output or snapshot goes by being no longer shown: the next output of its channel says that
  others may have left before it (`unseen_before`). That only weakens what was seen.
- An input goes as long as the last output could still come of the inputs that are left, had no
  other been seen: otherwise every output would be impossible for want of input. Where even all
  inputs do not lead to it, it may take the loss or repeat that it takes with all of them (`fits`).
- With an input go the outputs that are impossible without it. Nothing else than before could have
  come instead of the last step.

`history_check` calls it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rekindle.history.execution_search import (
    NONE,
    Exhausted,
    Flaws,
    StateBudget,
    follow,
    machine_for,
    next_values,
)
from rekindle.history.history_steps import End, Graph, HistoryOutput, Input, Snapshot, Step
from rekindle.history.operations import Value

CHECK_STATES_MAX = 20_000
FITS_STATES_MAX = 30_000
# In the order in which a person would believe them.
FITS = (
    NONE,
    Flaws(repeated=1),
    Flaws(lost=1),
    Flaws(repeated=1, stretches=True),
    Flaws(lost=1, stretches=True),
)
Answer = TypeVar("Answer")
_Steps = tuple[Step, ...]
_Pass = tuple[tuple[type, ...], Callable[[_Steps, list[int]], _Steps | None]]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A history whose last step is impossible; `proven`: no step of it can be left out.

    `fits` are the flaws of the input with which the last output could come by itself; None: no
    stretch of inputs that is lost or repeated leads to it, or (unproven) that could not be told.
    """

    steps: _Steps
    fits: Flaws | None
    proven: bool


def smallest(graph: Graph, steps: Sequence[Step], budget: StateBudget) -> Shrunk:
    """Shrink `steps`, of which the last is impossible and the others are possible."""
    kept = tuple(step for step in steps if _matters(step))
    shrinking = _Shrinking(graph, kept, budget)
    passes = [
        ((HistoryOutput, Snapshot), shrinking.without_outputs),
        ((Input,), shrinking.without_inputs),
    ]
    # Each order ends where no step can go, but not always at the same history.
    found = [_shrink(kept, passes, budget), _shrink(kept, passes[::-1], budget)]
    shortest = min(found, key=lambda steps: (len(steps), sum(map(_is_partial, steps))))
    return Shrunk(shortest, shrinking.fits, proven=not shrinking.doubts and budget.states > 0)


def _shrink(steps: _Steps, passes: Sequence[_Pass], budget: StateBudget) -> _Steps:
    before: _Steps = ()
    while before != steps and budget.states > 0:
        before = steps
        for kinds, smaller_without in passes:
            steps = _reduce(steps, kinds, smaller_without)
    return steps


def unseen(steps: _Steps, places: Collection[int]) -> _Steps:
    """The steps without the outputs and snapshots at these places, which become unseen."""
    channels: set[str] = set()
    left: list[Step] = []
    for place, step in enumerate(steps):
        if place in places:
            channels |= {step.channel} if isinstance(step, HistoryOutput) else set()
        elif isinstance(step, HistoryOutput) and step.channel in channels:
            channels.remove(step.channel)
            left.append(replace(step, unseen_before=True))
        elif isinstance(step, End) and channels:
            left.append(replace(step, unseen_before=True))
        else:
            left.append(step)
    return tuple(left)


def wanted_instead(graph: Graph, steps: _Steps, budget: StateBudget) -> dict[str, set[Value]]:
    """Per channel what could be released in place of the last step. Raises Exhausted."""
    *before, last = steps
    machine = machine_for(graph, [*before, End(0)])
    states = follow(machine, before, budget).states
    channels = [last.channel] if isinstance(last, HistoryOutput) else list(graph.outputs)
    return {channel: next_values(machine, states, channel, budget) for channel in channels}


def _matters(step: Step) -> bool:
    """A failure does not change what is possible with a reference recovery."""
    named = isinstance(step, Snapshot) and bool(step.state)
    return named or isinstance(step, Input | HistoryOutput | End)


def _is_partial(step: Step) -> bool:
    return isinstance(step, HistoryOutput | End) and step.unseen_before


class _Shrinking:
    """Tries smaller histories; `doubts`: some could not be decided and were not taken."""

    def __init__(self, graph: Graph, steps: _Steps, budget: StateBudget) -> None:
        self.graph, self.budget, self.doubts = graph, budget, False
        self.fits: Flaws | None = None
        self.known: tuple[_Steps, dict[str, set[Value]]] = (), {}
        try:
            self.fits = _fits(graph, steps)
        except Exhausted:
            self.doubts = True
        self.may_lose_inputs = not self.doubts

    def without_outputs(self, steps: _Steps, places: list[int]) -> _Steps | None:
        """The steps with these outputs unseen, if they still fail."""
        smaller = unseen(steps, places)
        last = len(smaller) - 1
        fails = self._decide(lambda share: self._failed_at(smaller, share) == last)
        return smaller if fails else None

    def without_inputs(self, steps: _Steps, places: list[int]) -> _Steps | None:
        """The steps without these inputs and what came of them, if they still fail."""
        if not self.may_lose_inputs:
            return None
        return self._decide(lambda share: self._closed(steps, places, share))

    def _closed(self, steps: _Steps, places: list[int], budget: StateBudget) -> _Steps | None:
        smaller: _Steps = tuple(step for place, step in enumerate(steps) if place not in places)
        while True:
            failed_at = self._failed_at(smaller, budget)
            if failed_at is None and isinstance(smaller[-1], End):
                # Nothing is owed any more: something that came of the inputs is still there.
                outputs = [n for n, step in enumerate(smaller) if isinstance(step, HistoryOutput)]
                failed_at = outputs[-1] if outputs else None
            if failed_at is None:
                return None
            if failed_at == len(smaller) - 1:
                break
            smaller = _drop(smaller, failed_at)
        if self.fits and not _comes_alone(self.graph, smaller, self.fits, budget):
            return None
        return smaller if self._says_the_same(smaller, steps, budget) else None

    def _says_the_same(self, smaller: _Steps, steps: _Steps, budget: StateBudget) -> bool:
        if _is_partial(smaller[-1]):
            return True
        if self.known[0] != steps:
            self.known = steps, wanted_instead(self.graph, steps, budget)
        before, after = self.known[1], wanted_instead(self.graph, smaller, budget)
        return all(values <= before[channel] for channel, values in after.items())

    def _failed_at(self, steps: _Steps, budget: StateBudget) -> int | None:
        return follow(machine_for(self.graph, steps), steps, budget).failed_at

    def _decide(self, question: Callable[[StateBudget], Answer]) -> Answer | None:
        share = StateBudget(min(CHECK_STATES_MAX, self.budget.states))
        given = share.states
        try:
            return question(share)
        except Exhausted:
            self.doubts = True
            return None
        finally:
            self.budget.states -= given - share.states


def _fits(graph: Graph, steps: _Steps) -> Flaws | None:
    """The flaws that it takes for the last step by itself; Exhausted when that cannot be told."""
    undecided: Exhausted | None = None
    for flaws in FITS:
        try:
            if _comes_alone(graph, steps, flaws, StateBudget(FITS_STATES_MAX)):
                return flaws
        except Exhausted as exhausted:
            undecided = exhausted
    if undecided is not None:
        raise undecided
    return None


def _comes_alone(graph: Graph, steps: _Steps, flaws: Flaws, budget: StateBudget) -> bool:
    last = steps[-1]
    if isinstance(last, End):
        return True
    if isinstance(last, HistoryOutput):
        last = replace(last, unseen_before=True)
    alone = (*(step for step in steps if isinstance(step, Input)), last)
    return follow(machine_for(graph, alone), alone, budget, flaws).failed_at is None


def _drop(steps: _Steps, place: int) -> _Steps:
    """The steps without an output that never was; what may have left unseen before it still may."""
    gone = steps[place]
    if isinstance(gone, HistoryOutput) and gone.unseen_before:
        return unseen(steps, [place])
    return (*steps[:place], *steps[place + 1 :])


def _reduce(
    steps: _Steps,
    kinds: tuple[type, ...],
    smaller_without: Callable[[_Steps, list[int]], _Steps | None],
) -> _Steps:
    """Leave out steps of these kinds before the last, first many at once, at last one by one."""
    size = len(steps)
    while size := size // 2:
        passed = 0
        while places := _places(steps, kinds)[passed : passed + size]:
            smaller = smaller_without(steps, places)
            passed += size if smaller is None else 0
            steps = smaller or steps
    return steps


def _places(steps: _Steps, kinds: tuple[type, ...]) -> list[int]:
    return [place for place, step in enumerate(steps[:-1]) if isinstance(step, kinds)]
