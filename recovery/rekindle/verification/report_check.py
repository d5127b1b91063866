"""The whole check of a report's directory: figures, output rows, plans.

Reads the directory through `evidence_files`, computes with `report`, compares with
`figure_differences`. `rekindle verify` calls `verify`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from rekindle import report
from rekindle.verification import (
    batch_check,
    commit_check,
    evidence_files,
    figure_differences,
    plan_check,
)
from rekindle.verification.evidence_files import Evidence
from rekindle.verification.figure_differences import Difference
from rekindle.verification.row_differences import RowDifferences


def verify(
    directory: Path, clock: Callable[[], float], say: Callable[[str], None] = lambda _: None
) -> tuple[Difference, ...]:
    """Compute everything in `report.json` again; give what differs, nothing when all is right.

    `clock` is a monotonic one, for the solver's budget; `say` is told what is being checked.
    Also differences: a row that is missing, duplicated or wrong even where the report admits
    it, output that belongs to no query, rows that their commit event does not cover, and plans
    that break their problem's limits. InputError names a file that is missing or ill-formed.
    """
    say("reading the records of the run")
    evidence = evidence_files.read(directory)
    compared = batch_check.compare(directory, evidence.inputs, evidence.sql, say)
    say("computing the figures of the report")
    computed = report.compute(
        evidence.events,
        report.RunFacts.from_record(evidence.report),
        evidence.input_record,
        evidence.problems,
        evidence.answers,
        batch_check.totals(compared),
        clock,
    )
    say("checking commits and plans")
    return (
        *figure_differences.differences(evidence.report, computed),
        *_bad_rows(compared),
        *_foreign(evidence),
        *commit_check.check(directory, evidence.events, evidence.inputs),
        *plan_check.check(evidence.events, evidence.problems, evidence.answers),
    )


def _bad_rows(compared: Sequence[RowDifferences]) -> list[Difference]:
    return [
        Difference(
            f"outputs/{rows.query}: {kind} rows",
            "0 (the promise)",
            f"{rows.counts[kind]}, such as {sample}",
        )
        for rows in compared
        for kind, sample in rows.samples.items()
    ]


def _foreign(evidence: Evidence) -> list[Difference]:
    return [
        Difference(name, "is there", "no query partition of the run")
        for name in evidence_files.foreign_outputs(evidence.directory, evidence.inputs)
    ]
