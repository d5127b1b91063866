"""What tests of the chart share: helm, and a cluster in which nobody else's release is.

The chart is installed for the whole cluster, with fixed names and a webhook that nobody serves:
each module uninstalls what it has installed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "chart"))

from chart_commands import NAMESPACE, RELEASE, ROOT, Helm

from testbed.control_plane import ControlPlane
from testbed.foreign_crds import install


@pytest.fixture(scope="session")
def renderer(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(helm, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """An administrator's client, of a cluster with the release's namespace and nothing in it, that
    serves our kinds: who installs the chart here asks for no change of definitions, during which
    the API server ends requests. `test_chart_lifecycle` installs it on a bare one."""
    control_plane.restore()
    with control_plane.api_client() as api_client:
        core: Any = client.CoreV1Api(api_client)
        leases: Any = client.CoordinationV1Api(api_client)
        if NAMESPACE not in {item.metadata.name for item in core.list_namespace().items}:
            core.create_namespace({"metadata": {"name": NAMESPACE}})
        core.delete_collection_namespaced_secret(NAMESPACE)
        leases.delete_collection_namespaced_lease(NAMESPACE)
        ours = (ROOT / "crds").glob("*.yaml")
        install(api_client, [yaml.safe_load(file.read_text()) for file in ours])
        yield api_client


@pytest.fixture(scope="module")
def installer(
    helm: Path,
    control_plane: ControlPlane,
    cluster: client.ApiClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Helm]:
    """Helm as an administrator of the cluster; what it has installed goes after the module."""
    assert cluster
    found = Helm(helm, tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    yield found
    control_plane.restore()
    # the next module installs at once; nobody would run the Job of the hook
    found.run("uninstall", RELEASE, "--wait", "--no-hooks")
