"""Tests that need programs which a machine may not have: skipped loudly, failing under `CI=true`.

Programs are found or built before the first test begins: a test has a limit of minutes. The
conftest.py of tests/kubernetes, tests/cluster and tests/integration call it, each with loud words
of its own.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.errors import RekindleError
from testbed import binaries

__all__ = ["keep", "programs", "tell", "used_fixtures"]

FOUND = pytest.StashKey[dict[str, Path] | RekindleError]()
Find = Callable[[Callable[[str], None]], dict[str, Path]]


def used_fixtures(session: pytest.Session) -> set[str]:
    """The fixtures of the chosen tests; none where they are only listed."""
    if session.config.option.collectonly:
        return set()
    return {name for item in session.items for name in getattr(item, "fixturenames", ())}


def keep(session: pytest.Session, find: Find) -> None:
    """Keep the programs that `find` finds, or why it does not; it is given where to say how far it
    is."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    say = binaries.say if reporter is None else reporter.write_line
    try:
        session.config.stash[FOUND] = find(say)
    except RekindleError as error:
        session.config.stash[FOUND] = error


def programs(request: pytest.FixtureRequest, loud: str) -> dict[str, Path]:
    """What was kept; without it the test that asks is skipped, and says so in loud words."""
    found = request.config.stash[FOUND]
    if isinstance(found, RekindleError):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{loud}: {found}")
        pytest.skip(f"{loud}: {found}")
    return found


def tell(terminalreporter: pytest.TerminalReporter, loud: str) -> None:
    """Say that tests were left out, and why: as the tests have said, for they may have run in other
    processes."""
    skipped = terminalreporter.stats.get("skipped", ())
    said = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    for line in sorted({text[text.index(loud) :] for text in said if loud in text}):
        terminalreporter.write_line(line, red=True, bold=True)
