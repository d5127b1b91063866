"""The whole check of a report's directory: figures, output rows, plans.

Reads the directory through `files`, computes with `report`, compares with `comparison`.
`rekindle verify` calls `verify`.
"""

from collections.abc import Callable
from pathlib import Path

from rekindle import report
from rekindle.verification import batch, commits, comparison, files, plans
from rekindle.verification.comparison import Difference

__all__ = ["verify"]


def verify(directory: Path, clock: Callable[[], float]) -> tuple[Difference, ...]:
    """Compute everything in `report.json` again; give what differs, nothing when all is right.

    `clock` is a monotonic one, for the solver's budget. Also differences: a row that is
    missing, duplicated or wrong even where the report admits it, output rows that no commit
    covers, and plans that break their problem's limits. InputError names a file that is
    missing or ill-formed.
    """
    evidence = files.read(directory)
    inputs = report.Inputs.from_record(evidence.input_record)
    computed = report.compute(
        evidence.events,
        report.RunFacts.from_record(evidence.report),
        evidence.input_record,
        evidence.problems,
        evidence.answers,
        batch.exactly_once(directory, inputs, evidence.sql),
        clock,
    )
    return (
        *comparison.differences(evidence.report, computed),
        *_bad_rows(computed["exactly_once"]),
        *commits.check(directory, evidence.events, inputs),
        *plans.check(evidence.events, evidence.problems, evidence.answers),
    )


def _bad_rows(exactly_once: dict[str, int]) -> list[Difference]:
    return [
        Difference(f"outputs: {name} rows", "0 (the promise)", str(exactly_once[name]))
        for name in ("missing", "duplicated", "wrong")
        if exactly_once[name]
    ]
