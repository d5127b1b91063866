"""What tests of the plugin share: an API server with our definitions, and the plugin's command."""

import sys
from pathlib import Path

import pytest

from testbed.control_plane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))

from plugin_runs import Plugin, define
from resource_requests import Api


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control plane is on loopback, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    """With our definitions established; they stay, as they would in a cluster."""
    control_plane.restore()
    api = Api(control_plane)
    define(api)
    return api


@pytest.fixture
def plugin(
    control_plane: ControlPlane,
    api: Api,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
) -> Plugin:
    """The plugin as an administrator calls it, in a namespace of its own."""
    assert api
    return Plugin(control_plane.kubeconfig, namespace, capsys)
