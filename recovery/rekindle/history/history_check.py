"""The check of a history: consistent, exactly once or less, deterministic, and the witnesses.

Asks `execution_search` what is possible, `minimal_witness` for the shortest history that shows what
is not, `determinism_check` for two outcomes of the same input; recorded operations are judged in
`run_check`. `rekindle check-history` calls `check`, and so does whoever records one.
"""

from collections.abc import Iterable, Sequence

from rekindle.history import determinism_check, minimal_witness, run_check, step_explanation
from rekindle.history.check_verdicts import HistoryVerdict, HistoryWitness, RaceWitness
from rekindle.history.execution_search import (
    NONE,
    Exhausted,
    Flaws,
    StateBudget,
    follow,
    machine_for,
)
from rekindle.history.history_steps import (
    End,
    EpochInput,
    EpochOutput,
    EpochSnapshot,
    History,
    HistoryFailure,
    HistoryOutput,
    Input,
    Snapshot,
    Step,
)
from rekindle.model.errors import InputError

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
        return run_check.check(history, _counts(history.steps))
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
            found = determinism_check.race(self.graph, inputs, self._relaxed())
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
