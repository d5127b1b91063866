"""Verification of a report: every figure again, from the files of the run beside it.

    files         reads the directory of a report into `Evidence`
    statements    splits `queries.sql` into prelude and queries
    engine        DuckDB: runs statements, turns its errors into ours
    batch         runs the queries over the input, compares the output with their answers
    rows          one query's rows: missing, duplicated, wrong, and a sample of each
    commits       checks that output rows belong to their commit events, and these for gaps
    plans         checks each plan against its problem: capacity, closure, sum, gap
    comparison    differences between two reports, figure by figure
    check         all of it together, `verify`

Imports no module of the runtime, so that a mistake there cannot hide itself. `rekindle verify`
calls `verify`; the demo calls `exactly_once` to write its report.
"""

from rekindle.verification.batch import exactly_once
from rekindle.verification.check import verify
from rekindle.verification.comparison import Difference
from rekindle.verification.files import Evidence, read

__all__ = ["Difference", "Evidence", "exactly_once", "read", "verify"]
