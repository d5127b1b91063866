"""What tests of the chart share: helm, and a control plane of their own.

The chart is installed for the whole cluster, with fixed names and a webhook that nobody serves, so
other tests are kept out of it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from chart_commands import NAMESPACE, Helm

from testbed.control_plane import ControlPlane


@pytest.fixture(scope="module")
def control_plane(
    programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One for each module, without any definition at first."""
    with ControlPlane(
        directory=tmp_path_factory.mktemp("control-plane"), programs=programs
    ) as plane:
        with plane.api_client() as api_client:
            named = client.V1ObjectMeta(name=NAMESPACE)
            client.CoreV1Api(api_client).create_namespace(client.V1Namespace(metadata=named))
        yield plane


@pytest.fixture(scope="module")
def renderer(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(helm, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def installer(
    helm: Path, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Helm:
    """Helm as an administrator of the cluster."""
    return Helm(helm, tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
