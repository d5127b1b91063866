"""What tests of the chart share that ask no cluster: helm, which is found or built beforehand.

Without it, and without Go to build it, they are skipped, loudly; under `CI=true` they fail instead.
"""

import sys
from pathlib import Path

import pytest

from testbed import test_programs
from testbed.test_programs import HELM

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import loud_skips
from chart_commands import Helm

LOUD = "NOTHING OF THE CHART WAS RENDERED"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds or builds helm where a chosen test needs it: a unit test has no time for that."""
    if "renderer" in loud_skips.used_fixtures(session):
        loud_skips.keep(session, LOUD, lambda say: test_programs.find([HELM], progress=say))


@pytest.fixture(scope="session")
def renderer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    found = loud_skips.programs(request, LOUD)[HELM]
    return Helm(found, tmp_path_factory.mktemp("helm"))
