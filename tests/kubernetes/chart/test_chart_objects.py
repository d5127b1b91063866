"""Every object of the chart, told to a real API server that checks it and keeps nothing."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loud_skips
import pytest
from chart_commands import EVERYTHING, Helm
from chart_definitions import foreign_definitions
from kubernetes import client

from rekindle.model.errors import RekindleError
from testbed.control_plane import ControlPlane
from testbed.foreign_crds import install

COMMAND_SECONDS_MAX = 120
NAMESPACES = ("capi", "flights")


@pytest.fixture(scope="module")
def definitions(cluster: client.ApiClient) -> Iterator[None]:
    """Those of others beside ours, and the namespaces that some objects go to."""
    try:
        others = [*foreign_definitions()]
    except RekindleError as error:
        loud_skips.skip(error)
    install(cluster, others)
    core: Any = client.CoreV1Api(cluster)
    for name in NAMESPACES:
        core.create_namespace({"metadata": {"name": name}})
    yield
    for name in NAMESPACES:
        core.delete_namespace(name)


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("arguments", [[], ["-f", EVERYTHING]], ids=["default", "everything"])
def test_the_api_server_takes_every_object_without_a_field_that_it_does_not_know(
    renderer: Helm, control_plane: ControlPlane, kubectl: Path, arguments: list[object]
) -> None:
    rendered = renderer.template(*arguments)
    command = [str(kubectl), "--kubeconfig", str(control_plane.kubeconfig), "apply"]
    done = subprocess.run(
        [*command, "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"],
        input=rendered,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    assert done.stdout.count("serverside-applied") == len(renderer.objects(*arguments))
