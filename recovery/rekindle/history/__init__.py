"""The history checker: compares released output with all possible runs without failures.

    operations         the closed list of operations, and whether order matters to them
    history_steps      a recorded history as values: graph and steps
    history_file       reads and writes the lines of a history file
    ideal_execution    an execution without failures: its working set, and how it can go on
    execution_search   follows a history through all executions that could have given it
    minimal_witness    takes steps out of an impossible history until none is left that could go
    step_explanation   sentences about impossible steps
    history_check      the check, `check`
    history_recorder   makes a history of a run's commit records and events

Definitions and Theorem 1 are those of "Delivery, consistency, and determinism: rethinking
guarantees in distributed stream processing"; the format is in docs/history.md. Pure: opens no file.
`rekindle check-history` calls `parse` and `check`; who runs an application calls `record`.
"""

from rekindle.history.history_check import HistoryVerdict, check, to_record
from rekindle.history.history_file import parse, record_of, serialize
from rekindle.history.history_recorder import record

__all__ = [
    "HistoryVerdict",
    "check",
    "parse",
    "record",
    "record_of",
    "serialize",
    "to_record",
]
