"""What tests on a real API server share: one control plane, namespaces and simulated nodes.

Without its programs, and without Go to build them, these tests are skipped, loudly; under `CI=true`
they fail instead. Programs are built before the first test begins: a test has a limit of minutes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from testbed import test_programs
from testbed.control_plane import ControlPlane
from testbed.simulated_kubelets import SimulatedKubelets
from testbed.test_programs import API_SERVER, CONTROL_PLANE, HELM, KUBECTL

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import audit_log
import loud_skips
from namespaces import new_namespace

# Shorter than in a cluster, so that tests see a node's loss in seconds.
LEASE_SECONDS = 1.0
NODE_MONITOR_SECONDS = 0.5
NODE_GRACE_SECONDS = 5.0

LOUD = "NOTHING WAS TESTED ON KUBERNETES"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds or builds the programs that the chosen tests need."""
    used = loud_skips.used_fixtures(session)
    if "programs" in used:
        names = [*CONTROL_PLANE, *(name for name in (KUBECTL, HELM) if name in used)]
        loud_skips.keep(session, LOUD, lambda say: test_programs.find(names, progress=say))


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """The paths of the programs by name; without them the tests are skipped."""
    return loud_skips.programs(request, LOUD)


@pytest.fixture(scope="session")
def kubectl(programs: dict[str, Path]) -> Path:
    """The program `kubectl`, of the control plane's version."""
    return programs[KUBECTL]


@pytest.fixture(scope="session")
def helm(programs: dict[str, Path]) -> Path:
    """The program `helm`."""
    return programs[HELM]


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A line for every request of the operator that the chart installs."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="session")
def control_plane(
    programs: dict[str, Path], audit: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One for all tests. Who harms it calls `restore`, or uses `namespace` or `nodes`."""
    with ControlPlane(
        directory=tmp_path_factory.mktemp("control-plane"),
        programs=programs,
        node_grace_seconds=NODE_GRACE_SECONDS,
        node_monitor_seconds=NODE_MONITOR_SECONDS,
        arguments={API_SERVER: audit_log.flags(audit)},
    ) as plane:
        yield plane


@pytest.fixture
def api_client(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """An administrator's client."""
    with control_plane.api_client() as api_client:
        yield api_client


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace in which pods can be made; it and all in it go after the test."""
    with new_namespace(control_plane) as name:
        yield name


@pytest.fixture
def nodes(control_plane: ControlPlane) -> Iterator[SimulatedKubelets]:
    """Simulated nodes, none at first, whose leases are renewed every second."""
    control_plane.restore()
    with SimulatedKubelets(control_plane, lease_seconds=LEASE_SECONDS) as nodes:
        try:
            yield nodes
        finally:
            control_plane.restore()
