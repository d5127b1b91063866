"""The pipeline of the integration tests, with its executors in pods on real nodes of the testbed.

The driver is a real one in client mode, a process beside the test; its executors are pods that the
real scheduler places, each a Java process with its host. What an operator would do about a lost
node stands in one place, `Cluster.lose`, and what shall come of it in another, `await_pending`.
"""

import json
import secrets
import shlex
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import audit_log
import yaml
from application import Application

from rekindle.protocol.store_paths import Place
from rekindle_local import local_provisioning, process_sets
from rekindle_local.local_provisioning import Process
from rekindle_local.spark_distribution import SMALL_NODE_OPTIONS
from testbed import node_objects, spark_image
from testbed.control_plane import ControlPlane
from testbed.node_objects import NodeShape
from testbed.pod_processes import PodProcesses
from testbed.simulated_kubelets import Fate, SimulatedKubelets

# Answers are read without asking whether a field is there, which the client's types forbid.
Api = Any
Pod = Any
ACCOUNT = "spark"
CONTAINER = "executor"
EXECUTORS = "spark-role=executor"
DRIVER = "readings-driver"
NODES = 4
LOST = 2
# One executor's pod fits, a second one does not.
SHAPE = NodeShape(cpu="1", real=True)
START_SECONDS_MAX = 300.0
WAIT_SECONDS_MAX = 180.0
POLL_SECONDS = 0.05
# We have Spark list pods every 2 s; by itself it does so every 30 s.
LISTED_SECONDS_MAX = 15.0
# Of no process: ids end below it.
NOBODY = Process(process_id=1 << 30, start=0)


def spark_options(plane: ControlPlane, namespace: str, template: Path) -> dict[str, str]:
    """What a driver outside the cluster needs to have its executors there.

    The pod `template` is written here; what it says of the node is the webhook's in a cluster.
    """
    node = {"name": "REKINDLE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {"name": CONTAINER, "env": [node]}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    template.write_text(json.dumps(pod))
    kubeconfig = plane.service_account_kubeconfig(namespace, ACCOUNT)
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    return {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": spark_image.NAME,
        "spark.kubernetes.authenticate.caCertFile": str(plane.authority),
        "spark.kubernetes.authenticate.oauthToken": user["token"],
        "spark.kubernetes.authenticate.executor.serviceAccountName": ACCOUNT,
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
        "spark.executor.instances": str(NODES),
        # a slot for epochs and one for catching up
        "spark.executor.cores": "2",
        "spark.kubernetes.executor.request.cores": "600m",
    }


@dataclass(slots=True)
class Cluster:
    """Real nodes with the executors of one application; to `Application` it is its cluster.

    `told` is the folder through which a coordinator learns which nodes are gone (see
    rekindle_local.local_provisioning): without one the driver is its own coordinator.
    """

    plane: ControlPlane
    simulated: SimulatedKubelets
    machines: PodProcesses
    core: Api
    namespace: str
    audit: Path
    told: Path | None = None
    known: frozenset[str] = frozenset()
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.simulated.add(NODES, SHAPE)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The first nodes: as many as are expected."""
        return self.names

    @property
    def master_url(self) -> str:
        """The API server as a Spark master."""
        return f"k8s://{self.plane.server}"

    def spark_options(self) -> dict[str, str]:
        """For a driver on this machine, and for a JVM with little to do, as on a local cluster."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": shlex.join(SMALL_NODE_OPTIONS),
            "spark.executor.memory": "512m",
            # beside those of the image
            "spark.executor.extraJavaOptions": "-Dfile.encoding=UTF-8",
        }

    def executors(self) -> list[Pod]:
        """The executors' pods."""
        return list(self.core.list_namespaced_pod(self.namespace, label_selector=EXECUTORS).items)

    def executors_on(self, names: Iterable[str]) -> list[Pod]:
        """The executors' pods on some nodes."""
        wanted = frozenset(names)
        return [pod for pod in self.executors() if pod.spec.node_name in wanted]

    def is_unknown(self, name: str) -> bool:
        """Whether a node is not Ready for Kubernetes, and nothing is scheduled there any more."""
        node = self.core.read_node(name)
        ready = {one.type: one.status for one in node.status.conditions}["Ready"]
        taints = {taint.key for taint in node.spec.taints or ()}
        return bool(ready == "Unknown" and node_objects.UNREACHABLE in taints)

    def await_level(self) -> None:
        """Wait until as many executors run as there are nodes, and no other is asked for: Spark
        may ask for one too many while it starts, and takes it back a minute later. These are the
        `known` ones."""
        level = process_sets.await_condition(
            lambda: [pod.status.phase for pod in self.executors()] == ["Running"] * NODES,
            limit_seconds=WAIT_SECONDS_MAX,
        )
        assert level, self.listing()
        self.known = frozenset(pod.metadata.uid for pod in self.executors())

    def meet(self, fates: Mapping[str, Fate]) -> None:
        """Nodes are lost, each by its fate, when nothing is under way with the executors."""
        self.await_level()
        for name, fate in fates.items():
            self.simulated.lose(name, fate=fate)

    def lose(self, application: Application, fates: Mapping[str, Fate]) -> float:
        """Lose nodes by their fates; the moment of confirmation, by time.monotonic().

        Until the operator's own process does it, confirming is done here: Kubernetes says that the
        nodes are not Ready, then the driver is told, and the pods are deleted by force.
        """
        self.meet(fates)
        lost = tuple(fates)
        application.await_condition("unknown", lambda: all(map(self.is_unknown, lost)))
        pods = self.executors_on(lost)
        assert {pod.status.phase for pod in pods} == {"Running"}, "nobody has told of them yet"
        confirmed_at = time.monotonic()
        if self.told is not None:
            self.tell_gone(pod.status.pod_ip for pod in pods)
        for pod in pods:
            self.core.delete_namespaced_pod(
                pod.metadata.name, self.namespace, grace_period_seconds=0
            )
        return confirmed_at

    def await_pending(self, since: float) -> None:
        """Wait for as many new Pending pods as were lost; how long after `since` is printed.

        That is 5 s on a machine of its own, and more beside other work. It depends on how often
        Spark lists pods, so that is what has a limit: these 5 s may be 20 s on a busy machine, and
        on a calm one when Spark lists pods at its own leisure.
        They must be on no node: who asks for them before a dead node is tainted finds them bound
        to it, Pending for ever, and no autoscaler acts.
        """

        def are_there() -> bool:
            fresh = [pod for pod in self.executors() if pod.metadata.uid not in self.known]
            found = [(pod.status.phase, pod.spec.node_name) for pod in fresh]
            return found == [("Pending", None)] * LOST

        there = process_sets.await_condition(
            are_there, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=POLL_SECONDS
        )
        assert there, self.listing()
        print(f"  {LOST} pods Pending after {time.monotonic() - since:.1f} s")
        lists = audit_log.lists_of_pods(self.audit, self.namespace, ACCOUNT)
        between = [round(later - earlier, 1) for earlier, later in pairwise(lists)]
        print(f"  the driver has listed pods {len(lists)} times, after seconds {between}")
        assert between, "apiPollingInterval has no effect"
        assert statistics.median(between) < LISTED_SECONDS_MAX, "apiPollingInterval has no effect"

    def replace_lost(self, application: Application, begin: int) -> None:
        """What an autoscaler does about Pending pods; executors come up there, and all is live."""
        self.simulated.add(LOST, SHAPE)
        application.await_condition(
            "new executors", lambda: len(application.happened("joined", after=begin)) == LOST
        )
        application.await_event("recovered", after=begin)

    def listing(self) -> str:
        """The executors, a line each: old or new, what they are, where, since when."""
        lines = ["executors are"]
        for pod in self.executors():
            age = "old" if pod.metadata.uid in self.known else "new"
            made = f"{pod.metadata.creation_timestamp:%H:%M:%S}"
            where = pod.spec.node_name
            lines.append(f"{age} {pod.metadata.name} {pod.status.phase} on {where} since {made}")
        return "\n".join(lines)

    def tell_gone(self, addresses: Iterable[str]) -> None:
        """Say to the coordinator that the machines of these addresses are gone."""
        assert self.told is not None
        gone = local_provisioning.NodesFile(nodes=dict.fromkeys(addresses, NOBODY))
        local_provisioning.replace(self.told / local_provisioning.NODES, gone)


def await_start(application: Application) -> None:
    """Start the driver, and wait until every query is live and a checkpoint is there.

    That takes 25 s on two cores of its own, and far longer beside other work.
    """

    def is_up() -> bool:
        application.driver.check()
        application.poll()
        return bool(application.happened("recovered") and application.happened("checkpoint"))

    application.start()
    up = process_sets.await_condition(is_up, limit_seconds=START_SECONDS_MAX, interval_seconds=0.1)
    assert up, application.tail()


def make_namespace(core: Api, rbac: Api) -> str:
    """A new namespace with the service account of a driver, who may do there what it needs."""
    name = f"spark-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    core.create_namespaced_service_account(name, {"metadata": {"name": ACCOUNT}})
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}
    rbac.create_namespaced_role_binding(
        name,
        {
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
            "subjects": [subject],
        },
    )
    return name


def make_driver_pod(cluster: Cluster) -> dict[str, str]:
    """A pod for the driver, with a sidecar, on a simulated node of its own; what Spark is told of
    it, so that it owns the executors."""
    (node,) = cluster.simulated.add(1, NodeShape(cpu="100m"))  # no executor fits
    name = place(cluster.namespace).application
    sidecar = {"name": "rekindle-sidecar", "image": "sidecar", "restartPolicy": "Always"}
    spec = {
        "nodeName": node,
        "initContainers": [sidecar],
        "containers": [{"name": "driver", "image": "driver"}],
    }
    labels = {"spark-role": "driver", "rekindle.dev/application": name}
    body = {"metadata": {"name": DRIVER, "labels": labels}, "spec": spec}
    cluster.core.create_namespaced_pod(cluster.namespace, body)
    return {"spark.kubernetes.driver.pod.name": DRIVER}


def place(namespace: str) -> Place:
    """The application's name for the coordinator."""
    return Place(namespace, "readings")
