"""A finding: something about a pipeline, its settings or its file that a person should know.

Errors keep a run from working; warnings may. A finding prints as one sentence, like an error.
"""

from dataclasses import dataclass
from enum import StrEnum

from rekindle.model.errors import RekindleError, printable


class CheckSeverity(StrEnum):
    """How much a finding matters: an error ends a check with exit code 2."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What is wrong or doubtful (`what`), where, and what to do about it."""

    severity: CheckSeverity
    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.what}; {self.remedy}")


def error(where: str, what: str, remedy: str) -> CheckFinding:
    """Make a finding of what keeps a run from working."""
    return CheckFinding(CheckSeverity.ERROR, where, what, remedy)


def warning(where: str, what: str, remedy: str) -> CheckFinding:
    """Make a finding of what may be wrong."""
    return CheckFinding(CheckSeverity.WARNING, where, what, remedy)


def of_error(raised: RekindleError) -> CheckFinding:
    """Make a finding of an error that was raised."""
    return error(raised.where, raised.what, raised.remedy)


def has_errors(findings: list[CheckFinding]) -> bool:
    """Say whether one of some findings is an error."""
    return any(finding.severity is CheckSeverity.ERROR for finding in findings)
