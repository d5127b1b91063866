"""What tests of the chart share that ask no cluster: helm, which is found or built beforehand.

Without it, and without Go to build it, they are skipped, loudly; under `CI=true` they fail instead.
"""

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from rekindle.errors import RekindleError
from testbed import binaries
from testbed.binaries import HELM

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import loud_skips
from chart_commands import Helm

LOUD = "NOTHING OF THE CHART WAS RENDERED"
FOUND = pytest.StashKey[Path | RekindleError]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds or builds helm where a chosen test needs it: a unit test has no time for that."""
    if "renderer" in loud_skips.used_fixtures(session):
        try:
            session.config.stash[FOUND] = binaries.find([HELM])[HELM]
        except RekindleError as error:
            session.config.stash[FOUND] = error


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Says last of all, where it is seen, that these tests were left out."""
    yield
    loud_skips.tell(terminalreporter, LOUD)


@pytest.fixture(scope="session")
def renderer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    found = request.config.stash[FOUND]
    if isinstance(found, RekindleError):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{LOUD}: {found}")
        pytest.skip(f"{LOUD}: {found}")
    return Helm(found, tmp_path_factory.mktemp("helm"))
