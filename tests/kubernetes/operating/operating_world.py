"""One namespace with an operator at work, a policy and a driver, and what tests ask of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acting_driver import ActingDriver
from kubernetes import client
from operator_process import OperatorProcess

from rekindle_local import processes
from testbed.bodies import ZONE
from testbed.nodes import Nodes

GROUP, VERSION = "rekindle.dev", "v1alpha1"
WAIT_SECONDS_MAX = 180.0
FAST = {"detection": {"leaseSeconds": 1, "leaseIntervals": 2, "driverSilenceSeconds": 3}}
SELECTS_DRIVERS = {"drivers": {"labelSelector": {"matchLabels": {"spark-role": "driver"}}}}
Object = dict[str, Any]


def await_that(condition: Callable[[], Any], what: str = "it did not happen") -> None:
    """Until it holds, for a long time if need be."""
    assert processes.await_condition(
        lambda: bool(condition()), limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.1
    ), what


@dataclass
class World:
    """`start` brings up operator, class, policy, nodes and driver, in this order."""

    namespace: str
    nodes: Nodes
    custom: client.CustomObjectsApi
    make_operator: Callable[..., OperatorProcess]
    make_driver: Callable[..., ActingDriver]

    def start(
        self,
        *,
        nodes: int = 5,
        zones: tuple[str, ...] = ("a",),
        running: bool = False,
        driver: Object | None = None,
        **policy: Any,
    ) -> None:
        """With all defaults that are not given; `running`: an operator does already, with a
        policy. `driver` are fields of the driver.

        One of five nodes is without an executor, and one that is made anew may find it at any time;
        of four none is: so many nodes are missing as are lost.
        """
        for index, zone in enumerate(zones):
            self.nodes.add(nodes // len(zones) + (index < nodes % len(zones)), zone=zone)
        if not running:
            self.make_class()
            self.make_policy(**policy)
            self.operator = self.make_operator()
            self.operator.start()
        self.driver = self.make_driver(**(driver or {}))
        self.core = self.driver.core

    def make_class(self, name: str = "default", **spec: Any) -> None:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "RecoveryClass",
            "metadata": {"name": name},
            "spec": {**FAST, **spec},
        }
        known = self.custom.list_cluster_custom_object(GROUP, VERSION, "recoveryclasses")["items"]
        if name not in {item["metadata"]["name"] for item in known}:
            self.custom.create_cluster_custom_object(GROUP, VERSION, "recoveryclasses", body)

    def make_policy(self, name: str = "all", **spec: Any) -> None:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "RecoveryPolicy",
            "metadata": {"name": name},
            "spec": {"selector": SELECTS_DRIVERS, "stabilisationSeconds": 0, **spec},
        }
        self.custom.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "recoverypolicies", body
        )

    def policy(self, name: str = "all") -> Object:
        found: Object = self.custom.get_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "recoverypolicies", name
        )
        return found

    def change_policy(self, name: str = "all", **spec: Any) -> None:
        self.custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "recoverypolicies", name, {"spec": spec}
        )

    def condition(self, type_: str, name: str = "all") -> Object:
        """Of a policy; empty while it is not there."""
        conditions = self.policy(name).get("status", {}).get("conditions", ())
        return next((item for item in conditions if item["type"] == type_), {})

    def recoveries(self) -> list[Object]:
        found = self.custom.list_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "recoveries"
        )
        items: list[Object] = found["items"]
        return sorted(items, key=lambda item: int(item["spec"]["incident"]))

    def phase(self, number: int = 1) -> str:
        """Of the recovery of an incident; empty while it is not there."""
        found = [item for item in self.recoveries() if item["spec"]["incident"] == number]
        return str(found[0].get("status", {}).get("phase", "")) if found else ""

    def status(self, number: int = 1) -> Object:
        (found,) = [item for item in self.recoveries() if item["spec"]["incident"] == number]
        status: Object = found.get("status", {})
        return status

    def drivers_node(self) -> str:
        pod = self.core.read_namespaced_pod("flights-driver", self.namespace)
        return str(pod.spec.node_name)

    def executors_nodes(self) -> list[str]:
        """Nodes with executors and without the driver, in order."""
        there = {pod.spec.node_name for pod in self.driver.executors()}
        return sorted(there - {self.drivers_node()})

    def other_zone(self) -> tuple[str, list[str]]:
        """A zone that the driver is not in, and its nodes."""
        there = {
            node.metadata.name: node.metadata.labels[ZONE] for node in self.core.list_node().items
        }
        zone = min(set(there.values()) - {there[self.drivers_node()]})
        return zone, [name for name in self.nodes.names if there[name] == zone]

    def lose(self, *lost: str) -> set[str]:
        """Nodes die: leases stop, executors fall silent; the names of the executors' pods."""
        pods = [pod for pod in self.driver.executors() if pod.spec.node_name in lost]
        self.driver.silent |= set(lost)
        self.nodes.lose(*lost)
        return {pod.metadata.name for pod in pods}

    def pause(self, epochs: int = 20) -> None:
        """So long that whatever is wrongly done would have been done: two epochs a second."""
        before = self.driver.member.epoch
        await_that(lambda: self.driver.member.epoch > before + epochs)

    def finish(self, number: int = 1, *, nodes: int = 2) -> None:
        """With so many nodes more, to the end of the recovery."""
        self.nodes.add(nodes, zone="a")
        await_that(lambda: self.driver.is_whole, "executors were not replaced")
        self.end(number)

    def end(self, number: int = 1) -> None:
        """A global checkpoint ends the recovery, once that is all it awaits: of those that complete
        before, none does."""
        await_that(lambda: self.phase(number) == "AwaitingCheckpoint", "not all have caught up")
        self.driver.complete_checkpoint()
        await_that(lambda: self.phase(number) == "Recovered", "it did not recover")

    def executors(self) -> set[str]:
        return {pod.metadata.name for pod in self.driver.executors()}

    def events(self, reason: str) -> list[str]:
        # the client takes no event of the newer kind without a time, and the scheduler writes such
        found = self.core.list_namespaced_event(self.namespace)
        return [item.message for item in found.items if item.reason == reason]
