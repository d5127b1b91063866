"""The check of a history: consistent, exactly once or less, deterministic, and the witnesses.

Asks `execution_search` what is possible, `minimal_witness` for the shortest history that shows what
is not. `rekindle check-history` calls `check`, and so does whoever records one; recorded operations
are judged by `check_run`.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.history import minimal_witness, step_explanation
from rekindle.history.execution_search import (
    NONE,
    Exhausted,
    Flaws,
    StateBudget,
    follow,
    machine_for,
)
from rekindle.history.history_file import record_of
from rekindle.history.history_steps import (
    Computed,
    End,
    EpochInput,
    EpochOutput,
    EpochSnapshot,
    ExpectedOutput,
    Graph,
    History,
    HistoryFailure,
    HistoryOutput,
    Input,
    Snapshot,
    Step,
)
from rekindle.history.ideal_execution import ExecutionState, GraphMachine
from rekindle.history.operations import Value
from rekindle.model.errors import InputError

# Verdicts of a check: the properties by their definitions, and their witnesses.
#
# Values only; the shell prints them.

VERSION = 1


@dataclass(frozen=True, slots=True)
class HistoryWitness:
    """A history that fails at its last step, as short as could be found.

    `kind` is one word; `sentence` says what is wrong, `because` how it can have come to that (may
    be empty). `smallest`: it is proven that no step can be left out. `line` is where the step that
    cannot be stands in the file, 0 for a history that has none.
    """

    kind: str
    sentence: str
    because: str
    history: History
    smallest: bool
    line: int


@dataclass(frozen=True, slots=True)
class RaceWitness:
    """The shortest history found that can have two outcomes, or had two."""

    sentence: str
    history: History


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """Definitions 5 to 10 of a history. None: not decided within the bound on the search, or for
    `non_commutative` not known, because the operations are opaque.

    `ended`: the history says that nothing more comes, so what is still owed counts as lost.
    """

    consistent: bool
    exactly_once: bool
    at_least_once: bool | None
    at_most_once: bool | None
    deterministic: bool | None
    non_commutative: tuple[str, ...] | None
    ended: bool
    counts: Mapping[str, int]
    witness: HistoryWitness | None
    race: RaceWitness | None

    @property
    def holds(self) -> bool:
        """Consistent and exactly once."""
        return self.consistent and self.exactly_once


def to_record(verdict: HistoryVerdict) -> dict[str, Any]:
    """The verdict as JSON (docs/history.md)."""
    witness, race = verdict.witness, verdict.race
    return {
        "version": VERSION,
        "consistent": verdict.consistent,
        "exactly_once": verdict.exactly_once,
        "at_least_once": verdict.at_least_once,
        "at_most_once": verdict.at_most_once,
        "deterministic": verdict.deterministic,
        "non_commutative": None
        if verdict.non_commutative is None
        else list(verdict.non_commutative),
        "ended": verdict.ended,
        "counts": dict(verdict.counts),
        "witness": None
        if witness is None
        else {
            "kind": witness.kind,
            "sentence": witness.sentence,
            "because": witness.because,
            "smallest": witness.smallest,
            "line": witness.line,
            "steps": _steps(witness.history),
        },
        "race": None
        if race is None
        else {"sentence": race.sentence, "steps": _steps(race.history)},
    }


def _steps(history: History) -> list[dict[str, Any]]:
    return [record_of(step) for step in history.steps]


# Determinism (Definition 10): whether the recorded inputs can give different outputs.
#
# All inputs enter first: whatever a race could do earlier it can do then too. One execution is
# taken to its end; the others are searched for one that differs from it, and the inputs are then
# left out one by one as long as two executions differ.


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
            return _determinism_race(machine, inputs, outcome, other)
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


def _determinism_race(
    machine: GraphMachine, inputs: tuple[Input, ...], one: ExecutionState, other: ExecutionState
) -> RacingInputs:
    channel, number = next(
        (channel, number)
        for channel, number in machine.channels.items()
        if one.pending[number] != other.pending[number]
    )
    return RacingInputs(inputs, channel, one.pending[number], other.pending[number])


# Judges the run of an application whose operations are opaque: the output of each epoch.
#
# An epoch's input is logged once, so with a reference recovery a query partition releases every
# logged epoch once, in order, and always the same rows. From that, in one pass over the steps:
#
#     consistent      nothing released before its input was logged, nothing that a later computation
#                     of what it depends on, or the reference, contradicts
#     exactly once    every logged epoch released once, without gaps, in order
#     deterministic   every computation of an operation's epoch gave the same digest
#
# A witness is cut down to the few steps that contradict each other, and to their part of the
# graph.

# What each kind of fault takes away: consistency, at-most-once, at-least-once.
WRONG = {"unlogged-input", "computed-differently", "released-differently", "reference"}
MORE = {"released-twice", "released-differently", "released-late"}
LESS = {"skipped", "lost-output"}


def check_run(history: History, counts: Mapping[str, int]) -> HistoryVerdict:
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


# Some seconds of search.
STATES_MAX = 200_000
# A witness that is not proven to be the smallest, or a guarantee that is not decided, is no loss
# worth more seconds.
SHRINKING_STATES_MAX = RELAXED_STATES_MAX = 30_000
FLAWS_MAX = 4


def check(history: History, where: str, states_max: int = STATES_MAX) -> HistoryVerdict:
    """Judge a history; `where` names it in messages.

    Raises InputError for values that an operation cannot take, and when more than `states_max`
    working sets would have to be looked at to tell whether the output is consistent.
    """
    if history.graph.recorded:
        return check_run(history, _counts(history.steps))
    _try_values(history, where)
    return _Modelled(history, where, states_max).verdict()


class _Modelled:
    """One check of a history of modelled operations; each question has a budget of its own."""

    def __init__(self, history: History, where: str, states_max: int) -> None:
        self.graph, self.steps = history.graph, history.steps
        self.machine = machine_for(self.graph, self.steps)
        self.where = where
        self.states_max = states_max

    def verdict(self) -> HistoryVerdict:
        failed_at = self._failed_at()
        consistent = failed_at is None or isinstance(self.steps[failed_at], End)
        once = failed_at is None
        race, deterministic = self._race()
        return HistoryVerdict(
            consistent=consistent,
            exactly_once=once,
            at_least_once=once or self._at_least_once(),
            at_most_once=once or self._at_most_once(),
            deterministic=deterministic,
            non_commutative=step_explanation.non_commutative(self.graph),
            ended=bool(self.steps) and isinstance(self.steps[-1], End),
            counts=_counts(self.steps),
            witness=None if failed_at is None else self._witness(self.steps[: failed_at + 1]),
            race=race,
        )

    def _failed_at(self) -> int | None:
        try:
            if self._possible(NONE, StateBudget(self.states_max)):
                return None
            return follow(self.machine, self.steps, StateBudget(self.states_max)).failed_at
        except Exhausted:
            raise InputError(
                where=self.where,
                what=f"has more races than {self.states_max:,} working sets can tell apart",
                remedy="check a shorter part of it, or record snapshots with their states",
            ) from None

    def _at_most_once(self) -> bool | None:
        """Definition 7: had some inputs been lost. First few, for that is soon seen; then any."""
        inputs = sum(isinstance(step, Input) for step in self.steps)
        few = range(1, FLAWS_MAX + 1)
        return self._possible_with([Flaws(lost=most, stretches=True) for most in (*few, inputs)])

    def _at_least_once(self) -> bool | None:
        """Definition 8: had some inputs entered twice. First stretches of them, at recoveries."""
        few = range(1, FLAWS_MAX + 1)
        replayed = [Flaws(repeated=most, stretches=True, at_recoveries=True) for most in few]
        return self._possible_with([*replayed, *(Flaws(repeated=most) for most in few)])

    def _possible_with(self, flaws: Iterable[Flaws]) -> bool | None:
        budget = self._relaxed()
        try:
            return any(self._possible(flaw, budget) for flaw in flaws)
        except Exhausted:
            return None

    def _relaxed(self) -> StateBudget:
        return StateBudget(min(self.states_max, RELAXED_STATES_MAX))

    def _possible(self, flaws: Flaws, budget: StateBudget) -> bool:
        followed = follow(self.machine, self.steps, budget, flaws, as_a_whole=True)
        return followed.failed_at is None

    def _witness(self, steps: Sequence[Step]) -> HistoryWitness:
        shrunk = minimal_witness.smallest(self.graph, steps, StateBudget(SHRINKING_STATES_MAX))
        kinds = {
            HistoryOutput: "impossible-output",
            Snapshot: "impossible-state",
            End: "lost-output",
        }
        return HistoryWitness(
            kind=kinds[type(steps[-1])],
            sentence=step_explanation.sentence(self.graph, shrunk),
            because=step_explanation.because(self.graph, steps),
            history=History(self.graph, shrunk.steps),
            smallest=shrunk.proven,
            line=steps[-1].line,
        )

    def _race(self) -> tuple[RaceWitness | None, bool | None]:
        inputs = [step for step in self.steps if isinstance(step, Input)]
        try:
            found = race(self.graph, inputs, self._relaxed())
        except Exhausted:
            return None, None
        if found is None:
            return None, True
        sentence = step_explanation.race_sentence(found.channel, found.one, found.other)
        return RaceWitness(sentence, History(self.graph, found.inputs)), False


def _try_values(history: History, where: str) -> None:
    """One execution over all inputs: a value that an operation cannot take is met in it."""
    machine = machine_for(history.graph, ())
    state = machine.beginning()
    everywhere = range(len(history.graph.operations))
    for step in history.steps:
        if isinstance(step, Input):
            try:
                state = machine.enter(state, step.channel, step.value)
                while (after := next(machine.moves(state, everywhere), None)) is not None:
                    state = after
            except InputError as error:
                raise InputError(
                    where=f"{where}: line {step.line}: value",
                    what=f"does not fit: {error.where} {error.what}",
                    remedy=error.remedy,
                ) from None


def _counts(steps: Sequence[Step]) -> dict[str, int]:
    kinds = {
        "inputs": Input | EpochInput,
        "outputs": HistoryOutput | EpochOutput,
        "snapshots": Snapshot | EpochSnapshot,
        "failures": HistoryFailure,
    }
    return {name: sum(isinstance(step, kind) for step in steps) for name, kind in kinds.items()}
