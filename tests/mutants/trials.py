"""One fault against its tests: applied to a copy, the tests run, the verdict read from pytest.

A fault is found when a test fails. Anything else that keeps tests from passing is an error, and no
verdict: a test file that cannot be imported, a wrong node id, a jar that does not compile, tests
that are all skipped because this machine lacks a program.
"""

import re
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from mutants.catalogue import Fault
from mutants.copies import Copy, Finished

PYTEST = ("-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider")
# A test that hangs has noticed the fault, and need not hang for long.
TEST_SECONDS_MAX = 400
TRIAL_SECONDS_MAX = 900.0
PASSED, FAILED = 0, 1
NAMED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
COUNTED = re.compile(r"\b(\d+) passed\b")
HUNG = "from pytest-timeout"
SHOWN_LINES = 15


class Outcome(StrEnum):
    """What came of a trial."""

    FOUND = "found"
    MISSED = "not found"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a fault: `by` is the first test that failed, `text` the cause of an error, or
    that the test hung, which may as well be a machine that is too busy."""

    fault: str
    outcome: Outcome
    seconds: float
    by: str = ""
    text: str = ""


def prepare(copy: Copy) -> str:
    """Builds the copy's jar where it is not current; gives what went wrong, empty for nothing."""
    built = copy.run(("-m", "rekindle_spark.spark.jvm_build"), TRIAL_SECONDS_MAX)
    return "" if built.code == 0 else f"the jar cannot be built: {_end_of(built.output)}"


def tried(copy: Copy, fault: Fault) -> Verdict:
    """Applies a fault, runs its tests, and gives the verdict; the copy is as before then."""
    if not fault.tests:
        return Verdict(fault.name, Outcome.MISSED, 0.0)
    began = time.monotonic()
    with copy.changed(fault.file, fault.old, fault.new):
        text = prepare(copy) if fault.is_java else ""
        outcome, by, text = (Outcome.ERROR, "", text) if text else _judged(_run(copy, fault.tests))
    return Verdict(fault.name, outcome, round(time.monotonic() - began, 1), by, text)


def passes(copy: Copy, tests: tuple[str, ...]) -> str:
    """Runs tests on the copy as it is; gives what is wrong with them, empty when they pass."""
    outcome, by, text = _judged(_run(copy, tests))
    if outcome is Outcome.MISSED:
        return ""
    return f"{by} fails without any fault" if outcome is Outcome.FOUND else text


def sentence(verdict: Verdict) -> str:
    """Says what came of a fault, on one line unless it is an error."""
    if verdict.outcome is Outcome.FOUND:
        hung = f" ({verdict.text})" if verdict.text else ""
        return f"found in {verdict.seconds:.1f} s by {verdict.by}{hung}"
    if verdict.outcome is Outcome.MISSED:
        return f"NOT FOUND in {verdict.seconds:.1f} s"
    return f"ERROR: {verdict.text}"


def to_record(verdict: Verdict) -> dict[str, Any]:
    """Gives the verdict as JSON."""
    return {**asdict(verdict), "outcome": str(verdict.outcome)}


def _run(copy: Copy, tests: tuple[str, ...]) -> Finished:
    limit = ("-o", f"timeout={TEST_SECONDS_MAX}")
    return copy.run((*PYTEST, *limit, *tests), TRIAL_SECONDS_MAX)


def _judged(finished: Finished) -> tuple[Outcome, str, str]:
    """The outcome, the test that failed, and the text of a verdict."""
    output = finished.output
    if finished.code is None:
        return Outcome.ERROR, "", f"the tests did not end within {TRIAL_SECONDS_MAX:.0f} s"
    if finished.code == FAILED:
        named = NAMED.search(output)
        if named and "::" not in named[1]:  # with -x and a second file pytest ends with 1 then too
            return Outcome.ERROR, "", f"{named[1]} cannot be imported: {_end_of(output)}"
        hung = f"it hung for {TEST_SECONDS_MAX} s" if HUNG in output else ""
        return Outcome.FOUND, named[1] if named else "a test without a name", hung
    if finished.code != PASSED:
        return Outcome.ERROR, "", f"pytest ended with {finished.code}: {_end_of(output)}"
    if not COUNTED.search(output):
        return Outcome.ERROR, "", f"no test ran: {_end_of(output)}"
    return Outcome.MISSED, "", ""


def _end_of(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-SHOWN_LINES:])
