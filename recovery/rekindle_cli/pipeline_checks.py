"""All checks of a loaded pipeline, with its functions called under guard; and how they are shown.

Called by `rekindle check`, and by `rekindle run` before anything is started.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import replace

from rekindle.model.errors import InputError
from rekindle.model.settings import Settings
from rekindle_cli.guard import NO_THREADS_IN_FUNCTIONS, CallLimits, CodeTooSlowError, guarded
from rekindle_cli.pipeline_file import LoadedPipeline
from rekindle_spark import checks
from rekindle_spark.checks import CheckFinding, CheckSeverity
from rekindle_spark.checks.check_findings import has_errors, of_error
from rekindle_store import store_files

# For one partition on no rows or on the first rows; in a run that is a part of an epoch.
FUNCTION_LIMITS = CallLimits(10.0)


def check(
    loaded: LoadedPipeline,
    settings: Settings,
    *,
    slow: CheckSeverity = CheckSeverity.ERROR,
    ends_at: float = math.inf,
) -> list[CheckFinding]:
    """Find all that can be known of a pipeline without a cluster: errors, then warnings.

    `slow` says how much it matters that a function is not done with the first rows after some
    seconds, or at the moment `ends_at` (`CallLimits`).
    """
    found = check_uncalled(loaded, settings)
    if not has_errors(found):
        found += _called(loaded, settings, slow, ends_at)
    return sorted(dict.fromkeys(found), key=lambda finding: finding.severity)


def check_uncalled(loaded: LoadedPipeline, settings: Settings) -> list[CheckFinding]:
    """Find what can be known without calling the pipeline's functions."""
    return [*loaded.findings, *checks.beforehand(loaded.pipeline, settings)]


def _called(
    loaded: LoadedPipeline, settings: Settings, slow: CheckSeverity, ends_at: float
) -> list[CheckFinding]:
    """Call the pipeline's functions on no rows and on its first rows."""
    what, limits = f"pipeline file {loaded.path}", replace(FUNCTION_LIMITS, ends_at=ends_at)
    try:
        with guarded(what, limits, remedy_for_threads=NO_THREADS_IN_FUNCTIONS) as guard:
            found = checks.first_rows(
                loaded.pipeline, settings.runtime, guard.renew, guard.watchdog
            )
    except CodeTooSlowError as error:
        return [replace(of_error(error), severity=slow)]
    except InputError as error:
        return [of_error(error)]
    return [*found, *guard.findings]


def is_new(store: str) -> bool:
    """Say whether no driver has ever been started on a checkpoint store, as far as it answers."""
    try:
        return not store_files.at(store).names("generations")
    except OSError:
        return False


def refuse_errors(findings: Iterable[CheckFinding]) -> None:
    """Show findings; raise InputError for the last error."""
    found = list(findings)
    errors = [finding for finding in found if finding.severity is CheckSeverity.ERROR]
    show(one for one in found if one.severity is not CheckSeverity.ERROR)
    for finding in errors[:-1]:
        print(finding, file=sys.stderr)
    for finding in errors[-1:]:
        raise InputError(where=finding.where, what=finding.what, remedy=finding.remedy)


def show(findings: Iterable[CheckFinding]) -> None:
    """Print findings to standard error, a line each."""
    for finding in findings:
        print(f"{finding.severity}: {finding}", file=sys.stderr)
