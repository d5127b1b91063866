"""Real nodes: what runs in their pods really runs, and dies, freezes or goes on with its node."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from waiting import wait_until

from rekindle.model.errors import InputError
from rekindle_local import process_sets
from testbed.container_commands import ContainerCommand, Launch
from testbed.control_plane import ControlPlane
from testbed.node_objects import NodeShape
from testbed.pod_processes import PodProcesses
from testbed.simulated_kubelets import Fate, SimulatedKubelets

Api = Any
WAIT_SECONDS_MAX = 180.0
IMAGE = "rekindle.test/shell"
REAL = NodeShape(real=True)
# Two processes, so that a whole session counts and not its first one alone.
SLEEP = "sleep 600 & wait"
# A machine whose owner is killed by the signal that stands in front.
OWNER = """
import os, signal, sys
from pathlib import Path
from testbed.container_commands import Launch
from testbed.pod_processes import PodProcesses as Machines

def run(container, folder):
    return Launch(container.command, os.environ)

with Machines(Path(sys.argv[1]), {"any": run}) as it:
    container = {"name": "main", "image": "any", "command": ["sleep", "600"]}
    spec = {"nodeName": "node", "containers": [container]}
    it.start({"metadata": {"uid": "1", "name": "one", "namespace": "a"}, "spec": spec}, "node", "")
    print(*it.processes("node"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def shell_image(container: ContainerCommand, folder: Path) -> Launch:
    """Runs a container's arguments in a shell."""
    environment = {**os.environ, **container.environment, "FOLDER": str(folder)}
    return Launch(("/bin/sh", "-c", *container.arguments), environment)


@pytest.fixture
def core(api_client: client.ApiClient) -> Api:
    return client.CoreV1Api(api_client)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[PodProcesses]:
    with PodProcesses(tmp_path / "pods", {IMAGE: shell_image}) as machines:
        yield machines


@pytest.fixture
def real_nodes(control_plane: ControlPlane, machines: PodProcesses) -> Iterator[SimulatedKubelets]:
    control_plane.restore()
    with SimulatedKubelets(control_plane, lease_seconds=1.0, machines=machines) as nodes:
        yield nodes


def create_pod(core: Api, namespace: str, node: str, script: str, **container: Any) -> None:
    """A pod named `one` with a real container, and one of an image that is not known here."""
    main = {"name": "main", "image": IMAGE, "args": [script], **container}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [main]}
    core.create_namespaced_pod(namespace, {"metadata": {"name": "one"}, "spec": spec})


def phase(core: Api, namespace: str) -> str:
    """Of the pod; `gone` when it is not there."""
    try:
        return str(core.read_namespaced_pod("one", namespace).status.phase)
    except client.ApiException as error:
        if error.status == 404:
            return "gone"
        raise


def start_sleeping(
    core: Api, namespace: str, nodes: SimulatedKubelets, machines: PodProcesses
) -> str:
    """A node with a pod that sleeps."""
    (name,) = nodes.add(1, REAL)
    create_pod(core, namespace, name, SLEEP)
    wait_until(lambda: phase(core, namespace) == "Running" and len(machines.processes(name)) == 2)
    return name


def states(pids: tuple[int, ...]) -> set[str]:
    """Of processes, as the kernel writes them."""
    texts = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
    return {text.rpartition(")")[2].split()[0] for text in texts}


def test_a_container_runs_with_its_pods_address_its_node_and_a_folder_of_its_own(
    core: Api, namespace: str, real_nodes: SimulatedKubelets, machines: PodProcesses
) -> None:
    (name,) = real_nodes.add(1, REAL)
    fields = {"NODE": "spec.nodeName", "IP": "status.podIP", "NAME": "metadata.name"}
    variables = [
        {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for key, path in fields.items()
    ]
    script = 'echo "$NODE $IP $NAME $PLAIN"; touch "$FOLDER/own"; sleep 600'
    plain = {"name": "PLAIN", "value": "text"}
    create_pod(core, namespace, name, script, env=[*variables, plain])
    wait_until(lambda: phase(core, namespace) == "Running")
    address = core.read_namespaced_pod("one", namespace).status.pod_ip
    log = machines.logs / "one-main-1.log"
    wait_until(lambda: log.read_text().strip() == f"{name} {address} one text")


@pytest.mark.parametrize(("script", "found"), [("exit 0", "Succeeded"), ("exit 3", "Failed")])
def test_a_container_that_ends_by_itself_ends_its_pod(
    core: Api, namespace: str, real_nodes: SimulatedKubelets, script: str, found: str
) -> None:
    (name,) = real_nodes.add(1, REAL)
    create_pod(core, namespace, name, script)
    wait_until(lambda: phase(core, namespace) == found)
    (status,) = core.read_namespaced_pod("one", namespace).status.container_statuses
    assert status.state.terminated.exit_code == int(script.split()[1])


def test_a_container_ends_with_its_pod(
    core: Api, namespace: str, real_nodes: SimulatedKubelets, machines: PodProcesses
) -> None:
    name = start_sleeping(core, namespace, real_nodes, machines)
    core.delete_namespaced_pod("one", namespace)
    wait_until(lambda: phase(core, namespace) == "gone" and not machines.processes(name))


def test_on_a_node_whose_kubelet_has_stopped_everything_runs_on(
    core: Api, namespace: str, real_nodes: SimulatedKubelets, machines: PodProcesses
) -> None:
    name = start_sleeping(core, namespace, real_nodes, machines)
    real_nodes.lose(name)
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=0)
    assert phase(core, namespace) == "gone"
    assert len(machines.processes(name)) == 2
    real_nodes.bring_back(name)
    wait_until(lambda: not machines.processes(name))


def test_a_frozen_node_says_nothing_and_goes_on_when_it_is_back(
    core: Api, namespace: str, real_nodes: SimulatedKubelets, machines: PodProcesses
) -> None:
    name = start_sleeping(core, namespace, real_nodes, machines)
    before = machines.processes(name)
    real_nodes.lose(name, fate=Fate.FREEZE)
    wait_until(lambda: states(before) == {"T"})  # what is in the kernel comes out of it first
    assert phase(core, namespace) == "Running"
    real_nodes.bring_back(name)
    wait_until(lambda: states(before) == {"S"})
    assert machines.processes(name) == before
    assert phase(core, namespace) == "Running"


def test_of_a_dead_node_the_api_learns_only_when_it_is_back(
    core: Api, namespace: str, real_nodes: SimulatedKubelets, machines: PodProcesses
) -> None:
    name = start_sleeping(core, namespace, real_nodes, machines)
    real_nodes.lose(name, fate=Fate.DIE)
    assert machines.processes(name) == ()
    assert phase(core, namespace) == "Running"
    real_nodes.bring_back(name)
    wait_until(lambda: phase(core, namespace) == "Failed")
    (status,) = core.read_namespaced_pod("one", namespace).status.container_statuses
    assert status.state.terminated.exit_code == 128 + signal.SIGKILL


def test_when_nodes_are_closed_nothing_runs_on_them(
    control_plane: ControlPlane, core: Api, namespace: str, machines: PodProcesses
) -> None:
    with SimulatedKubelets(control_plane, lease_seconds=1.0, machines=machines) as nodes:
        name = start_sleeping(core, namespace, nodes, machines)
    assert machines.processes(name) == ()


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    paths = [path for path in sys.path if path]
    owner = subprocess.run(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    pids = [int(pid) for pid in owner.stdout.split()]
    assert pids, owner.stderr
    assert owner.returncode == -signal.SIGKILL
    wait_until(lambda: not any(process_sets.start_ticks(pid) for pid in pids))


def test_a_real_node_without_machines_is_refused(nodes: SimulatedKubelets) -> None:
    with pytest.raises(InputError, match="needs a machine"):
        nodes.add(1, REAL)
