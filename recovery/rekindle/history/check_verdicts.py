"""Verdicts of a check: the properties by their definitions, and their witnesses.

Values only; `history_check` and `run_check` make them, the shell prints them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekindle.history.history_steps import History
from rekindle.history.history_writer import record_of

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
