"""The operator itself, with the chart's arguments and with no rights but the chart's.

What it asks of the API server is read in the audit log of that.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_audit import arguments_here, asked, audited, refused
from chart_commands import CHART, NAMESPACE, RELEASE, Helm
from chart_rights import rights
from kubernetes import client

from rekindle_local import processes
from rekindle_local.daemons import Daemon, end_daemons
from rekindle_local.watcher import Watcher
from rekindle_local.zookeeper import LocalZookeeper
from rekindle_testing.operator_builders import policy_object
from testbed.control_plane import ControlPlane
from testbed.nodes import Nodes

WAIT_SECONDS_MAX = 180.0
PLACE = ("rekindle.dev", "v1alpha1")
# What it does without any incident. The rest needs one.
AT_ONCE = {
    *(("nodes", verb) for verb in ("list", "watch")),
    *(("pods", verb) for verb in ("list", "watch")),
    *(("recoverypolicies.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("recoveryclasses.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("recoveries.rekindle.dev", verb) for verb in ("list", "watch")),
    *(("leases.coordination.k8s.io", verb) for verb in ("list", "get", "create", "update")),
    ("customresourcedefinitions.apiextensions.k8s.io", "list"),
    ("recoverypolicies.rekindle.dev/status", "update"),
    ("recoveryclasses.rekindle.dev/status", "update"),
}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A line for every request."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def control_plane(
    programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, audit: Path
) -> Iterator[ControlPlane]:
    with audited(tmp_path_factory.mktemp("control-plane"), programs, audit) as plane:
        yield plane


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[[list[str]], Path]]:
    """Starts the operator with these arguments, as its service account; gives its log."""
    logs = tmp_path / "operator"
    logs.mkdir()
    watcher = Watcher((), logs / "watcher.log")
    daemon = Daemon("operator", logs, None)

    def start(arguments: list[str]) -> Path:
        kubeconfig = control_plane.service_account_kubeconfig(NAMESPACE, "rekindle-operator")
        program = "from rekindle_operator.shell.main import main; main()"
        command = [sys.executable, "-c", program, *arguments, f"--kubeconfig={kubeconfig}"]
        paths = os.pathsep.join(sys.path)
        daemon.launch(
            [*command, "--port=0", "--no-webhook"],
            {**os.environ, "PYTHONPATH": paths},
            watcher,
        )
        return daemon.log

    yield start
    end_daemons([daemon], watcher)
    watcher.close()


def test_it_does_its_work_with_the_rights_that_the_chart_gives(
    installer: Helm,
    renderer: Helm,
    control_plane: ControlPlane,
    nodes: Nodes,
    audit: Path,
    tmp_path: Path,
    start: Callable[[list[str]], Path],
) -> None:
    installer.do(
        *("install", RELEASE, CHART, "--set", "zookeeper.enabled=false"),
        *("--set", "store.addresses={zookeeper.data:2181}"),
    )
    nodes.add(2, zone="a")
    with LocalZookeeper(directory=tmp_path / "zookeeper") as store:
        objects = renderer.objects(
            *("--set", "zookeeper.enabled=false"),
            *("--set", f"store.addresses={{{store.connect_string}}}"),
        )
        log = start(arguments_here(objects))
        with control_plane.api_client() as api_client:
            assert processes.await_condition(
                lambda: is_accepted(api_client), limit_seconds=WAIT_SECONDS_MAX
            ), log.read_text()
        assert processes.await_condition(
            lambda: not missing(audit), limit_seconds=WAIT_SECONDS_MAX
        ), missing(audit)
    assert not refused(audit)
    given = {(right.resource, right.verb) for right in rights(objects)}
    assert {(right.resource, right.verb) for right, _ in asked(audit)} <= given


def is_accepted(api_client: client.ApiClient) -> bool:
    """Whether the operator says so of a policy, which is made when it is not there."""
    custom = client.CustomObjectsApi(api_client)
    found: Any = custom.list_namespaced_custom_object(*PLACE, "default", "recoverypolicies")
    if not found["items"]:
        record = policy_object("everything", namespace="default")
        record["metadata"] = {"name": "everything", "namespace": "default"}
        custom.create_namespaced_custom_object(*PLACE, "default", "recoverypolicies", record)
        return False
    conditions = found["items"][0].get("status", {}).get("conditions", [])
    return any(item["type"] == "Accepted" and item["status"] == "True" for item in conditions)


def missing(audit: Path) -> set[tuple[str, str]]:
    """What it does at once, but has not been seen to do."""
    return AT_ONCE - {(right.resource, right.verb) for right, _ in asked(audit)}
