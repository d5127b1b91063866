"""Skips tests that a machine cannot run: each reason is one loud line, and a failure under CI=true.

`skip` is for anything that a machine may lack: root, cgroups, a program, a network. The programs of
the testbed are found or built before the first test begins, for a test has a limit of minutes: that
is for `keep` and `programs`, which the conftest.py of tests/kubernetes, tests/cluster,
tests/integration and tests/unit/chart call, each with loud words of its own. What they keep is kept
under these words, for one run may hold tests of several of them.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from rekindle.model.errors import InputError, RekindleError
from testbed import test_programs

# Begins the reason where a suite has no words of its own.
LOUD = "NOT TESTED"
FOUND = pytest.StashKey[dict[str, dict[str, Path] | RekindleError]]()
Find = Callable[[Callable[[str], None]], dict[str, Path]]


def used_fixtures(session: pytest.Session) -> set[str]:
    """Returns the fixtures of the chosen tests; none where they are only listed."""
    if session.config.option.collectonly:
        return set()
    return {name for item in session.items for name in getattr(item, "fixturenames", ())}


def keep(session: pytest.Session, loud: str, find: Find) -> None:
    """Keeps the programs that `find` finds, or why it does not; `find` gets a printer of progress.

    A disk that is full ends no test run with a traceback either.
    """
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    say = test_programs.say if reporter is None else reporter.write_line
    kept = session.config.stash.setdefault(FOUND, {})
    try:
        kept[loud] = find(say)
    except RekindleError as error:
        kept[loud] = error
    except OSError as error:
        kept[loud] = InputError(
            where=str(error.filename or "the cache"),
            what=str(error.strerror or error),
            remedy="see whether its disk is full, and whose it is",
        )


def programs(request: pytest.FixtureRequest, loud: str) -> dict[str, Path]:
    """Returns what was kept; without it the test that asks is skipped loudly."""
    found = request.config.stash[FOUND][loud]
    if isinstance(found, RekindleError):
        skip(found, loud)
    return found


def skip(reason: object, loud: str = LOUD) -> NoReturn:
    """Skips the test with a loud line; under CI=true it fails."""
    line = f"{loud}: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(line)
    pytest.skip(line)


def report(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints each reason for which tests were skipped once, with the number of these tests.

    The reasons come from the reports, as tests may have run in other processes.
    """
    reports = terminalreporter.stats.get("skipped", ())
    texts = [str(one.longrepr[2]) for one in reports if isinstance(one.longrepr, tuple)]
    lines = [text.removeprefix("Skipped: ") for text in texts]
    for line in sorted(set(lines)):
        count = f" ({lines.count(line)} tests)" if lines.count(line) > 1 else ""
        terminalreporter.write_line(f"{line}{count}", red=True, bold=True)
