"""A namespace in which an operator acts: its policy, its driver, and what has become of it.

Tests share the operator and the nodes, each in a namespace of its own, with a class of its own, as
applications of several teams do. What a test reads of the operator's log is what it has said since
the test has begun.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from acting_driver import ActingDriver, pod_body
from grounds import Grounds
from kubernetes import client
from operator_process import OperatorProcess

from rekindle_local import process_sets
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection, connect
from testbed.node_objects import ZONE
from testbed.simulated_kubelets import SimulatedKubelets

GROUP, VERSION = "rekindle.dev", "v1alpha1"
WAIT_SECONDS_MAX = 180.0
FAST = {"detection": {"leaseSeconds": 1, "leaseIntervals": 2, "driverSilenceSeconds": 2}}
SELECTS_DRIVERS = {"drivers": {"labelSelector": {"matchLabels": {"spark-role": "driver"}}}}
# The driver reports four times a second, and each report is looked at: 4 s, longer than it takes to
# confirm a loss, to plan, and to look at requests for nodes twice.
DECISIONS = 16
# Of a node's lease, which is renewed once a second.
RENEWALS = 4
DECIDED = "rekindle_coordinator_decisions_total"
Object = dict[str, Any]


def await_that(condition: Callable[[], Any], what: str = "it did not happen") -> None:
    """Until it holds, for a long time if need be."""
    assert process_sets.await_condition(
        lambda: bool(condition()), limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.1
    ), what


@dataclass
class World:
    """`start` lays out nodes, then makes class, policy and driver; `operator` is the one whose
    metrics and log are read, and is started where it does not run. Where a class is named, it is
    there already."""

    namespace: str
    grounds: Grounds
    custom: Any
    make_driver: Callable[..., ActingDriver]
    operator: OperatorProcess
    class_name: str = ""

    @property
    def nodes(self) -> SimulatedKubelets:
        return self.grounds.nodes

    @property
    def core(self) -> Any:
        return self.grounds.core

    def start(
        self,
        *,
        nodes: int = 5,
        zones: tuple[str, ...] = ("a",),
        class_: Object | None = None,
        driver: Object | None = None,
        **policy: Any,
    ) -> None:
        """With all defaults that are not given; `class_` are fields of the class, `driver` of the
        driver.

        One of five nodes is without an executor, and one that is made anew may find it at any time;
        of four none is: so many nodes are missing as are lost.
        """
        self.operator.lead()
        self.grounds.lay_out(
            {zone: nodes // len(zones) + (i < nodes % len(zones)) for i, zone in enumerate(zones)}
        )
        if not self.class_name:
            self.make_class(**(class_ or {}))
        self.make_policy(**policy)
        await_that(lambda: self.condition("Accepted").get("reason") not in (None, "ClassMissing"))
        if (driver or {}).get("inject"):  # the webhook learns of the policy by itself
            await_that(lambda: self.has_sidecar("others"), "the webhook does not know the policy")
        self.driver = self.make_driver(**(driver or {}))
        await_that(self.is_calm, "it does not come to rest")
        self.operator.mark()

    def has_sidecar(self, name: str) -> bool:
        """Whether a driver that is made now would get its sidecar."""
        body = pod_body(f"{name}-driver", "driver", name, **{"rekindle.dev/inject": "true"})
        made = self.core.create_namespaced_pod(self.namespace, body, dry_run="All")
        return [item.name for item in made.spec.init_containers or ()] == ["rekindle-sidecar"]

    def is_calm(self) -> bool:
        """Whether the operator misses no node, nor thinks that it sees none."""
        names = ("nodes_suspected", "nodes_lost", "held")
        return not any(self.operator.metric(f"rekindle_operator_{name}") for name in names)

    def make_class(self, **spec: Any) -> None:
        """The class of this namespace's policies."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "RecoveryClass",
            "metadata": {"name": self.namespace},
            "spec": {**FAST, **spec},
        }
        self.custom.create_cluster_custom_object(GROUP, VERSION, "recoveryclasses", body)

    def change_class(self, **spec: Any) -> None:
        self.custom.patch_cluster_custom_object(
            GROUP, VERSION, "recoveryclasses", self.namespace, {"spec": spec}
        )

    def delete_class(self) -> None:
        """That of this namespace's policies; there may be none."""
        try:
            self.custom.delete_cluster_custom_object(
                GROUP, VERSION, "recoveryclasses", self.namespace
            )
        except client.ApiException as error:
            if error.status != 404:
                raise

    def make_policy(self, name: str = "all", **spec: Any) -> None:
        usual = {"className": self.class_name or self.namespace, "stabilisationSeconds": 0}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "RecoveryPolicy",
            "metadata": {"name": name},
            "spec": {"selector": SELECTS_DRIVERS, **usual, **spec},
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

    def delete_policy(self, name: str = "all") -> None:
        self.custom.delete_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "recoverypolicies", name
        )

    def condition(self, type_: str, name: str = "all") -> Object:
        """Of a policy; empty while it is not there."""
        conditions = self.policy(name).get("status", {}).get("conditions", ())
        return next((item for item in conditions if item["type"] == type_), {})

    def recoveries(self) -> list[Object]:
        """In order."""
        found = self.custom.list_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "recoveries"
        )
        items: list[Object] = found["items"]
        return sorted(items, key=lambda item: int(item["spec"]["incident"]))

    def status(self) -> Object:
        """Of the newest recovery; empty while there is none."""
        found = self.recoveries()
        status: Object = found[-1].get("status", {}) if found else {}
        return status

    def phase(self) -> str:
        """Of the newest recovery; empty while there is none."""
        return str(self.status().get("phase", ""))

    def lost_nodes(self) -> set[str]:
        """Of the newest recovery."""
        return {row["name"] for row in self.status().get("lostNodes", ())}

    def drivers_node(self) -> str:
        pod = self.core.read_namespaced_pod(f"{self.driver.application}-driver", self.namespace)
        return str(pod.spec.node_name)

    def executors_nodes(self) -> list[str]:
        """Nodes that live, with executors and without the driver, in order."""
        there = {pod.spec.node_name for pod in self.driver.executors()}
        return sorted(there - {self.drivers_node()} - self.driver.silent)

    def busy_nodes(self) -> list[str]:
        """Those of them on which something of a query is placed."""
        hosts = set(self.driver.member.placement.values())
        pods = self.driver.executors()
        busy = {pod.spec.node_name for pod in pods if pod.status.pod_ip in hosts}
        return [name for name in self.executors_nodes() if name in busy]

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

    def bring_back(self, *names: str) -> None:
        """Nodes are there again, and so are the executors that still run on them."""
        self.driver.silent -= set(names)
        self.nodes.bring_back(*names)

    def rest(self, decisions: int = DECISIONS) -> None:
        """Until the operator has decided so often again: whatever is wrongly done would have been
        done."""
        before = self.operator.metric(DECIDED)
        await_that(
            lambda: self.operator.metric(DECIDED) >= before + decisions, "it decides nothing"
        )

    def rest_without_driver(self, renewals: int = RENEWALS) -> None:
        """The same where no report makes it decide: until the nodes that live have renewed their
        leases so often again."""
        wanted = self.nodes.renewals + renewals * len(self.nodes.living)
        await_that(lambda: self.nodes.renewals >= wanted, "no node lives")

    def finish(self, *, nodes: int = 2) -> None:
        """With so many nodes more, to the end of the recovery."""
        self.nodes.add(nodes, zone="a")
        await_that(lambda: self.driver.is_whole, "executors were not replaced")
        self.end()

    def end(self) -> None:
        """A global checkpoint ends the recovery, once that is all it awaits: of those that complete
        before, none does."""
        await_that(lambda: self.phase() == "AwaitingCheckpoint", "not all have caught up")
        self.driver.complete_checkpoint()
        await_that(lambda: self.phase() == "Recovered", "it did not recover")

    def executors(self) -> set[str]:
        return self.driver.executors_names()

    def events(self, reason: str) -> list[str]:
        # the client takes no event of the newer kind without a time, and the scheduler writes such
        found = self.core.list_namespaced_event(self.namespace)
        return [item.message for item in found.items if item.reason == reason]


@contextmanager
def connected(store: LocalZookeeper) -> Iterator[Connection]:
    """A connection to a store that serves."""
    store.proceed(*store.servers)
    found = connect(store.connect_string)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def new_world(
    namespace: str, grounds: Grounds, connection: Connection, operator: OperatorProcess
) -> Iterator[World]:
    """A world that is not started yet; its drivers and its class go after it."""
    custom = client.CustomObjectsApi(grounds.core.api_client)
    with ExitStack() as stack:

        def make_driver(**fields: Any) -> ActingDriver:
            """One that an operator has placed."""
            made = ActingDriver(connection, grounds.core, namespace, **fields)
            stack.callback(made.close)
            made.start()
            await_that(lambda: made.is_whole, "the executors do not run")
            await_that(lambda: made.is_placed, "there was no first plan")
            made.directives.clear()
            return made

        world = World(namespace, grounds, custom, make_driver, operator)
        stack.callback(world.delete_class)
        yield world
