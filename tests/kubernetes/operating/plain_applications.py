"""Whole applications as spark-submit makes them, without a Spark in them and anything of ours.

Tests of incidents of whole applications make them, and act for Spark: they add the executors.
"""

from typing import Any

from acting_driver import pod_body
from kubernetes import client
from node_requests import KARPENTER
from operating_world import Object, World, await_that

__all__ = ["GATE", "QUOTA", "Application", "pods_of", "started"]

GATE, QUOTA = "rekindle.dev/turn", "example.com/quota"
TEAM = {"team": "reports"}
SELECTS = {"drivers": {"labelSelector": {"matchLabels": TEAM}}}
# Nodes have 4 cores: an executor fills one, beside which no other finds room.
EXECUTOR_CPU, DRIVER_CPU = "3", "1500m"
# No UI is called there, so nothing is awaited from it.
NO_UI_PORT = 80


class Application:
    """A driver and its executors as plain spark-submit makes them, without a Spark in them."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.count = world, name, 0
        self.uid = ""

    def start(self, driver: str, executor: str, ui_port: int) -> None:
        """Driver and executor on these nodes."""
        body = pod_body(f"{self.name}-driver", "driver", self.name, cpu=DRIVER_CPU, **TEAM)
        del body["spec"]["initContainers"]  # nothing of ours
        body["spec"]["nodeName"] = driver
        port = {"name": "spark-ui", "containerPort": ui_port}
        body["spec"]["containers"][0]["ports"] = [port]
        made = self.world.core.create_namespaced_pod(self.world.namespace, body)
        self.uid = made.metadata.uid
        self.add(executor)

    def add(self, node: str = "", *gates: str, dry_run: bool = False) -> Any:
        """Another executor, as Spark makes one in place of one that it has lost."""
        self.count += not dry_run
        name = f"{self.name}-exec-{self.count + dry_run}"
        body = pod_body(name, "executor", self.name, cpu=EXECUTOR_CPU)
        body["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": f"{self.name}-driver", "uid": self.uid}
        ]
        if node:
            body["spec"]["nodeName"] = node
        if gates:
            body["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
        create: Any = self.world.core.create_namespaced_pod
        return create(self.world.namespace, body, **({"dry_run": "All"} if dry_run else {}))

    def take_address(self, address: str) -> None:
        """Have its driver's pod at an address, as its kubelet says it."""
        name = f"{self.name}-driver"

        def has_taken() -> bool:
            pod = self.world.core.read_namespaced_pod(name, self.world.namespace)
            if not pod.status.pod_ip:
                return False
            pod.status.pod_ip, pod.status.pod_ips = address, [client.V1PodIP(ip=address)]
            try:
                self.world.core.replace_namespaced_pod_status(name, self.world.namespace, pod)
            except client.ApiException as error:
                if error.status != 409:
                    raise
                return False  # its kubelet has written meanwhile
            return True

        await_that(has_taken, "its pod does not run")

    @property
    def executor(self) -> Any:
        """The newest."""
        name = f"{self.name}-exec-{self.count}"
        return self.world.core.read_namespaced_pod(name, self.world.namespace)

    @property
    def gates(self) -> list[str]:
        """Of the newest executor."""
        return names(self.executor)

    @property
    def would_wait(self) -> bool:
        """Whether an executor that is made now would get the gate."""
        return GATE in names(self.add(dry_run=True))

    @property
    def story(self) -> Object:
        """The status of its Recovery; empty while there is none."""
        found = [
            item.get("status", {})
            for item in self.world.recoveries()
            if item["spec"]["application"]["name"] == self.name
        ]
        return found[-1] if found else {}


def names(pod: Any) -> list[str]:
    return [gate.name for gate in pod.spec.scheduling_gates or ()]


def pods_of(world: World) -> set[str]:
    found = world.core.list_namespaced_pod(world.namespace).items
    return {pod.metadata.name for pod in found}


def started(
    world: World, ui_port: int = NO_UI_PORT, **class_: Any
) -> tuple[Application, Application, list[str]]:
    """Two applications, their drivers on one node, and the nodes of their executors; `class_` are
    fields of the class. `ui_port` is of the UI of the more important one's driver."""
    world.operator.lead()
    world.grounds.lay_out({"a": 3})
    # nobody answers its requests: with none that makes any, an autoscaler would be left to look
    world.make_class(provisioning=[KARPENTER], **class_)
    world.make_policy(
        selector=SELECTS,
        recovers="Applications",
        priorities=[{"query": "high", "priority": 9}, {"query": "low", "priority": 1}],
    )
    await_that(lambda: world.condition("Accepted").get("reason") not in (None, "ClassMissing"))
    low, high = Application(world, "low"), Application(world, "high")
    drivers, *executors = world.nodes.names
    low.start(drivers, executors[0], NO_UI_PORT)
    high.start(drivers, executors[1], ui_port)
    await_that(lambda: world.policy().get("status", {}).get("applicationsSelected") == 2)
    await_that(world.is_calm, "it does not come to rest")
    world.operator.mark()
    return low, high, executors
