"""Fields that have to be text and that YAML reads as something else.

Pure; `preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.workloads import Workload

SHOWN_MAX = 5


def check(application: Workload) -> Iterator[PreflightFinding]:
    """All of them at once."""
    found = application.unquoted
    if not found:
        return
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    yield PreflightFinding(
        Concern.TEXT_UNQUOTED,
        PreflightSeverity.ERROR,
        f"The API server refuses what is no text: {'; '.join(found[:SHOWN_MAX])}{more}.",
        'put it into quotes, "true" for instance',
    )
