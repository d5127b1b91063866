"""Verification of a report: every figure again, from the files of the run beside it.

    evidence_files      reads the directory of a report into `Evidence`
    batch_check         runs the queries over the input, compares the output with their answers
    report_check        all of it together, `verify`

Imports no module of the runtime, so that a mistake there cannot hide itself. `rekindle verify`
calls `verify`; the demo calls `exactly_once` to write its report.
"""

from rekindle.verification.batch_check import exactly_once
from rekindle.verification.evidence_files import Evidence, read
from rekindle.verification.report_check import Difference, verify

__all__ = ["Difference", "Evidence", "exactly_once", "read", "verify"]
