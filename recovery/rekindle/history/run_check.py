"""Judges the run of an application whose operations are opaque: the output of each epoch.

An epoch's input is logged once, so with a reference recovery a query partition releases every
logged epoch once, in order, and always the same rows. From that, in one pass over the steps:

    consistent      nothing released before its input was logged, nothing that a later computation
                    of what it depends on, or the reference, contradicts
    exactly once    every logged epoch released once, without gaps, in order
    deterministic   every computation of an operation's epoch gave the same digest

A witness is cut down to the few steps that contradict each other, and to their part of the graph.
`history_check` calls it.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rekindle.history.check_verdicts import HistoryVerdict, HistoryWitness, RaceWitness
from rekindle.history.history_steps import (
    Computed,
    End,
    EpochInput,
    EpochOutput,
    ExpectedOutput,
    Graph,
    History,
    HistoryFailure,
    Step,
)

# What each kind of fault takes away: consistency, at-most-once, at-least-once.
WRONG = {"unlogged-input", "computed-differently", "released-differently", "reference"}
MORE = {"released-twice", "released-differently", "released-late"}
LESS = {"skipped", "lost-output"}


def check(history: History, counts: Mapping[str, int]) -> HistoryVerdict:
    """Judge a history of recorded operations; `counts` are passed on, with what was computed."""
    run = _Run(history.graph)
    for step in history.steps:
        run.see(step)
    kinds = {fault.kind for fault in run.faults}
    consistent = not kinds & WRONG
    return HistoryVerdict(
        consistent=consistent,
        exactly_once=not kinds,
        at_least_once=consistent and not kinds & LESS,
        at_most_once=consistent and not kinds & MORE,
        deterministic=run.difference is None,
        non_commutative=None,
        ended=any(isinstance(step, End) for step in history.steps),
        counts={**counts, "computed": run.computed, "computed_again": run.again},
        witness=_witness(history, run.faults[0]) if run.faults else None,
        race=None if run.difference is None else _race(history, *run.difference),
    )


@dataclass(frozen=True, slots=True)
class _Fault:
    """A channel's fault, which is there since the last of `steps`."""

    kind: str
    sentence: str
    channel: str
    steps: tuple[Step, ...]
    failure: HistoryFailure | None


@dataclass(slots=True)
class _Channel:
    """What a query partition has released, by epoch."""

    released: dict[int, EpochOutput] = field(default_factory=dict)
    newest: int = -1


class _Run:
    """What is known after the steps so far."""

    def __init__(self, graph: Graph) -> None:
        self.faults: list[_Fault] = []
        self.difference: tuple[Computed, Computed] | None = None
        self.computed = self.again = 0
        self._outputs, self._above = graph.outputs, graph.upstream()
        self._inputs: dict[int, EpochInput] = {}
        self._epochs: list[int] = []
        self._channels = {channel: _Channel() for channel in graph.outputs}
        self._attempts: dict[tuple[str, int], Computed] = {}
        self._references: dict[tuple[str, int], ExpectedOutput] = {}
        self._failure: HistoryFailure | None = None

    def see(self, step: Step) -> None:
        """Take one step more."""
        if isinstance(step, EpochInput):
            self._inputs[step.epoch] = step
            self._epochs.append(step.epoch)
        elif isinstance(step, Computed):
            self._compute(step)
        elif isinstance(step, EpochOutput):
            self._release(step)
        elif isinstance(step, ExpectedOutput):
            self._references[step.channel, step.epoch] = step
            released = self._channels[step.channel].released.get(step.epoch)
            if released is not None:
                self._compare(released, step, step)
        elif isinstance(step, HistoryFailure):
            self._failure = step
        elif isinstance(step, End):
            self._end(step)

    def _compute(self, step: Computed) -> None:
        key = step.operation, step.epoch
        before = self._attempts.get(key)
        self._attempts[key] = step
        self.computed += 1
        self.again += before is not None
        if before is None or before.digest == step.digest:
            return
        self.difference = self.difference or (before, step)
        for channel, source in self._outputs.items():
            if step.operation == source or step.operation in self._above[source]:
                self._contradict(channel, before, step)

    def _contradict(self, channel: str, before: Computed, again: Computed) -> None:
        released = self._channels[channel].released
        epoch = min((epoch for epoch in released if epoch >= again.epoch), default=None)
        if epoch is not None:
            sentence = (
                f"{channel} released epoch {epoch} at t {released[epoch].t:g}; that depends on "
                f"what {again.operation} gave in epoch {again.epoch}: it was {before.digest} then, "
                f"but {again.digest} when it was computed again at t {again.t:g}."
            )
            steps = (self._inputs.get(epoch), before, released[epoch], again)
            self._fault("computed-differently", sentence, channel, *steps)

    def _release(self, step: EpochOutput) -> None:
        known = self._channels[step.channel]
        before = known.released.get(step.epoch)
        known.released.setdefault(step.epoch, step)
        if step.epoch not in self._inputs:
            sentence = (
                f"{step.channel} released epoch {step.epoch} (t {step.t:g}) before the input of "
                "that epoch was logged: after a failure it could be other input."
            )
            self._fault("unlogged-input", sentence, step.channel, step)
        elif before is not None:
            self._repeat(before, step)
        elif step.epoch < known.newest:
            sentence = f"{step.channel} released epoch {step.epoch} late (t {step.t:g})."
            newest = known.released[known.newest]
            self._fault("released-late", sentence, step.channel, newest, step)
        else:
            self._follow(known, step)
        known.newest = max(known.newest, step.epoch)
        reference = self._references.get((step.channel, step.epoch))
        if reference is not None:
            self._compare(step, reference, step)

    def _repeat(self, before: EpochOutput, step: EpochOutput) -> None:
        same = (before.digest, before.rows) == (step.digest, step.rows)
        sentence = (
            f"{step.channel} released epoch {step.epoch} twice, at t {before.t:g} and at "
            f"t {step.t:g}{'' if same else ', with different rows'}."
        )
        kind = "released-twice" if same else "released-differently"
        logged = self._inputs[step.epoch]
        self._fault(kind, sentence, step.channel, logged, before, step)

    def _follow(self, known: _Channel, step: EpochOutput) -> None:
        awaited = self._awaited(known)
        if awaited is not None and awaited.epoch < step.epoch:
            sentence = (
                f"{step.channel} released epoch {step.epoch} (t {step.t:g}), but not epoch "
                f"{awaited.epoch} before it, logged at t {awaited.t:g}."
            )
            logged = self._inputs[step.epoch]
            self._fault("skipped", sentence, step.channel, awaited, logged, step)

    def _compare(self, released: EpochOutput, reference: ExpectedOutput, last: Step) -> None:
        if (released.digest, released.rows) != (reference.digest, reference.rows):
            sentence = (
                f"{released.channel} released {_rows(released)} in epoch {released.epoch} "
                f"(t {released.t:g}); computed independently they are {_rows(reference)}."
            )
            first = released if last is reference else reference
            logged = self._inputs.get(released.epoch)
            self._fault("reference", sentence, released.channel, logged, first, last)

    def _end(self, step: End) -> None:
        for channel, known in self._channels.items():
            awaited = self._awaited(known)
            if awaited is not None:
                sentence = (
                    f"At the end (t {step.t:g}) {channel} had not released epoch {awaited.epoch}, "
                    f"logged at t {awaited.t:g}."
                )
                self._fault("lost-output", sentence, channel, awaited, step)

    def _awaited(self, known: _Channel) -> EpochInput | None:
        """The first logged epoch after the newest that was released."""
        place = bisect_right(self._epochs, known.newest)
        return self._inputs[self._epochs[place]] if place < len(self._epochs) else None

    def _fault(self, kind: str, sentence: str, channel: str, *steps: Step | None) -> None:
        there = tuple(step for step in steps if step is not None)
        self.faults.append(_Fault(kind, sentence, channel, there, self._failure))


def _witness(history: History, fault: _Fault) -> HistoryWitness:
    source = history.graph.outputs[fault.channel]
    names = {source, *history.graph.upstream()[source]}
    failure = fault.failure
    return HistoryWitness(
        kind=fault.kind,
        sentence=fault.sentence,
        because=f"The last failure before it was at t {failure.t:g}." if failure else "",
        history=_part(history, names, {fault.channel: source}, fault.steps),
        smallest=True,
        line=fault.steps[-1].line,
    )


def _race(history: History, before: Computed, again: Computed) -> RaceWitness:
    operation = again.operation
    names = {operation, *history.graph.upstream()[operation]}
    sentence = (
        f"{operation} gave {before.digest} in epoch {again.epoch} at t {before.t:g}, and "
        f"{again.digest} at t {again.t:g}."
    )
    return RaceWitness(sentence, _part(history, names, {operation: operation}, (before, again)))


def _part(
    history: History, names: Collection[str], outputs: Mapping[str, str], steps: Collection[Step]
) -> History:
    """The history with these operations, outputs and steps alone."""
    kept = {id(step) for step in steps}
    operations = (operation for operation in history.graph.operations if operation.name in names)
    graph = Graph((), tuple(operations), outputs)
    return History(graph, tuple(step for step in history.steps if id(step) in kept))


def _rows(step: EpochOutput | ExpectedOutput) -> str:
    return f"{step.rows} rows with digest {step.digest}"
