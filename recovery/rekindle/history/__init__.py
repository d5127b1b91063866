"""The history checker: whether what a system released could have come of a run without failures.

    operations    the closed list of operations, and whether order matters to them
    steps         a recorded history as values: graph and steps
    fields        one JSON line, field by field
    graphs        reads the line of the graph
    reading       reads the lines of a history file
    writing       writes them
    execution     an execution without failures: its working set, and how it can go on
    search        follows a history through all executions that could have given it
    witnesses     takes steps out of an impossible history until none is left that could go
    races         whether the same inputs can give different outputs
    explanation   sentences about what is impossible
    runs          judges the run of an application in epochs, whose operations are opaque
    verdicts      what a check says
    checking      the check, `check`
    recording     makes a history of a run's commit records and events

Definitions and Theorem 1 are those of "Delivery, consistency, and determinism: rethinking
guarantees in distributed stream processing"; the format is in docs/history.md. Pure: opens no file.
`rekindle check-history` calls `parse` and `check`; who runs an application calls `record`.
"""

from rekindle.history.checking import STATES_MAX, check
from rekindle.history.reading import VERSION, parse
from rekindle.history.recording import record
from rekindle.history.steps import History
from rekindle.history.verdicts import Verdict, to_record
from rekindle.history.writing import record_of, serialize

__all__ = [
    "STATES_MAX",
    "VERSION",
    "History",
    "Verdict",
    "check",
    "parse",
    "record",
    "record_of",
    "serialize",
    "to_record",
]
