"""Verification of a report: every figure again, from the files of the run beside it.

    evidence_files      reads the directory of a report into `Evidence`
    duckdb_engine       DuckDB: runs statements, turns its errors into ours
    batch_check         runs the queries over the input, compares the output with their answers
    row_differences     one query's rows: missing, duplicated, wrong, and a sample of each
    commit_check        checks that output rows belong to their commit events, and these for gaps
    plan_check          checks each plan against its problem: capacity, closure, sum, gap
    figure_differences  differences between two reports, figure by figure
    report_check        all of it together, `verify`

Imports no module of the runtime, so that a mistake there cannot hide itself. `rekindle verify`
calls `verify`; the demo calls `exactly_once` to write its report.
"""

from rekindle.verification.batch_check import exactly_once
from rekindle.verification.evidence_files import Evidence, read
from rekindle.verification.figure_differences import Difference
from rekindle.verification.report_check import verify

__all__ = ["Difference", "Evidence", "exactly_once", "read", "verify"]
