"""A cluster with whole applications in an incident, for tests of their recovery."""

import copy
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import spark_objects as objects
from operator_world import tell
from spark_objects import Body

from rekindle.coordination.coordination_events import LossNotice
from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_policy, recovery_resource
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    NodeRequest,
)
from rekindle_operator.applications.application_recovery import ApplicationRecovery
from rekindle_operator.applications.stream_progress import CatchUp
from rekindle_operator.cluster.api_client import NOT_FOUND, ApiRefused
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.provisioning import executor_of
from rekindle_testing.operator_builders import make_class

GATE, QUOTA = "rekindle.dev/turn", "example.com/quota"
KARPENTER = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
        "requirements": [{"key": "k", "operator": "Exists"}],
    },
}


class ProgressSaid:
    """What drivers say of their queries, by application: nothing is known of all others."""

    def __init__(self) -> None:
        self.said: dict[str, CatchUp] = {}
        self.asked: list[tuple[str, datetime | None, datetime]] = []
        self.kept: frozenset[str] = frozenset()

    def catch_up(
        self, place: Place, driver: PodSeen, lost_at: datetime | None, back_at: datetime
    ) -> CatchUp:
        assert driver.role == "driver"
        self.asked.append((place.application, lost_at, back_at))
        return self.said.get(place.application, CatchUp("Pods", "Nothing is known."))

    def keep_only(self, places: Collection[Place]) -> None:
        self.kept = frozenset(place.application for place in places)

    def clear(self) -> None:
        self.kept = frozenset()


class World:
    """A cluster with two applications on a node each, drivers elsewhere; work is done at once,
    unless `errands` are collected."""

    def __init__(
        self,
        *,
        provisioning: tuple[Body, ...] = (),
        displacement: str = "Never",
        **policy: Any,
    ) -> None:
        self.known = ClusterView()
        self.lost: frozenset[str] = frozenset()
        self.silent: frozenset[str] = frozenset()
        self.held_at: float | None = None
        self.notices: dict[str, LossNotice] = {}
        self.pods: dict[str, Body] = {}
        self.recoveries: dict[str, Body] = {}
        self.events: list[Body] = []
        self.rows: dict[int, tuple[NodeRequest, ...]] = {}
        self.deleted: list[str] = []
        self.errands: dict[str, Callable[[], object]] | None = None
        self.now = 1_000.0
        self.set_policy(**policy)
        allowed: Body = {"provisioning": provisioning} if provisioning else {}
        self.known.see_class(make_class(**allowed, displacement=displacement))
        for name, cpu in (("drivers", "3"), ("a", "2"), ("b", "2")):
            tell(self.known.registry, objects.node(name, cpu))
        for name, node in (("low", "a"), ("high", "b")):
            self.see(objects.kubeflow_driver(name, uid=f"driver-{name}", node="drivers"))
            self.see(executor(name, 1, node=node))
            tell(self.known.registry, objects.kubeflow_application(name))
        self.judge = SimpleNamespace(
            state=self,
            looks_lost=lambda: self.lost,
            announced=self,
            announced_nodes=self.notices,
            overdue_nodes=frozenset(),
            knows_silence=True,
            avoidance=self,
            domains=lambda _: {},
        )
        self.progress = ProgressSaid()
        self.shell = self.operator()

    def operator(self) -> ApplicationRecovery:
        return ApplicationRecovery(
            self.known,
            cast(Any, self.judge),
            cast(Any, self),
            cast(Any, self),
            cast(Any, SimpleNamespace(write=lambda *_, **__: None)),
            "operator-a",
            lambda item: ApplicationReference(
                "SparkApplication", item.place.application, "sparkoperator.k8s.io", "uid"
            ),
            lambda _: executor_of(executor("high", 1)),
            lambda *_: None,
            self.rows_of,
            cast(Any, self.progress),
        )

    def rows_of(self, _: Place) -> Mapping[int, tuple[NodeRequest, ...]]:
        """What became of requests for nodes, by incident."""
        return self.rows

    def set_policy(self, generation: int = 1, name: str = "all", **more: Any) -> None:
        spec = {
            "selector": {"sparkApplications": {"labelSelector": {}}},
            "recovers": "Applications",
            "priorities": [{"query": "high", "priority": 9}],
            **more,
        }
        metadata = {"name": name, "namespace": "flights", "generation": generation}
        self.known.see_policy(recovery_policy.from_object({"metadata": metadata, "spec": spec}))

    def see(self, pod: Body) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        tell(self.known.registry, pod)

    def lose(self, *nodes: str) -> None:
        """They are not Ready, and their pods stand there."""
        self.lost |= set(nodes)
        for name in nodes:
            node = objects.node(name, "2")
            node["status"]["conditions"][1]["status"] = "Unknown"
            tell(self.known.registry, node)

    def announce(self, *nodes: str, source: str = "taint spot", seconds: float = 120.0) -> None:
        """These nodes and no others say that they will go."""
        until = 1_795_000_000.0 + self.now + seconds
        notices = {name: self.notices.get(name, LossNotice(source, until)) for name in nodes}
        self.notices.clear()
        self.notices.update(notices)

    def recall(self, node: str, recorded: LossNotice) -> None:
        """As detection does where nobody has said a moment."""
        if node in self.notices and recorded.until < self.notices[node].until:
            self.notices[node] = recorded

    def forget_executors(self, *names: str) -> None:
        """The lost executors of these applications are gone, and Spark has yet to make others."""
        for name in names:
            self.forget(executor(name, 1))

    def replaced(self, name: str, *gates: str) -> None:
        """The lost executor is gone, and Spark has made another one, which waits."""
        self.remade(name, *gates, GATE)

    def run(self, name: str, node: str) -> None:
        """The new executor has got its node."""
        assert not self.gates(name), "the API server would refuse it"
        self.see(executor(name, 2, node=node))

    def remade(self, name: str, *gates: str, number: int = 2) -> None:
        """The executor before is gone, and Spark has made another one, with these gates."""
        self.forget(executor(name, number - 1))
        self.wait(name, number, *gates)

    def wait(self, name: str, number: int, *gates: str) -> None:
        """Spark has made an executor, with these gates."""
        made = executor(name, number, node="", phase="Pending")
        made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
        self.see(made)

    def forget(self, pod: Body) -> None:
        """This pod is gone."""
        self.known.registry.forget_pod(pod["metadata"]["uid"])
        self.pods.pop(pod["metadata"]["name"], None)

    def turn(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.shell.refresh()
        for body in self.recoveries.values():
            self.known.see_recovery(recovery_resource.from_object(body))

    def gates(self, name: str) -> list[str]:
        pod = self.pods[executor(name, 2)["metadata"]["name"]]
        return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]

    def story(self, name: str) -> Body:
        found = [
            item.get("status", {})
            for item in self.recoveries.values()
            if item["spec"]["application"]["name"] == name
        ]
        return cast(Body, found[-1]) if found else {}

    # the API server
    def get(self, path: str) -> Body | None:
        return copy.deepcopy(self.recoveries.get(path.rpartition("/")[2]))

    def create(self, path: str, body: Mapping[str, Any]) -> Body:
        made = copy.deepcopy(dict(body))
        if path.endswith("/events"):
            self.events.append(made)
            return made
        name = made["metadata"]["name"]
        made["metadata"] |= {"uid": f"uid-of-{name}", "generation": 1}
        self.recoveries[name] = made
        return made

    def replace(self, path: str, body: Mapping[str, Any]) -> Body:
        name = path.split("/")[-2]
        self.recoveries[name] = copy.deepcopy(dict(body))
        return self.recoveries[name]

    def delete(self, path: str, body: Mapping[str, Any]) -> bool:
        assert body["preconditions"]
        kind, name = path.split("/")[-2:]
        if kind == "recoveries":
            del self.recoveries[name]
            return True
        pod = self.pods.pop(name)
        assert body["preconditions"]["uid"] == pod["metadata"]["uid"]
        assert "gracePeriodSeconds" not in body, "Spark may end in order"
        self.deleted.append(name)
        pod["metadata"]["deletionTimestamp"] = iso(1_795_000_000)
        tell(self.known.registry, pod)
        return True

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> Body:
        assert kind == "application/strategic-merge-patch+json"
        pod = copy.deepcopy(self.pods.get(path.rpartition("/")[2]))
        if pod is None:
            raise ApiRefused(path, NOT_FOUND, "not found")
        assert body["metadata"]["uid"] == pod["metadata"]["uid"]
        (gone,) = body["spec"]["schedulingGates"]
        assert gone["$patch"] == "delete"
        kept = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != gone["name"]]
        pod["spec"]["schedulingGates"] = kept
        self.see(pod)
        return pod

    # the work queue
    def leave(self, key: str, errand: Callable[[], object]) -> None:
        assert key
        if self.errands is None:
            errand()
        else:
            self.errands[key] = errand


def executor(name: str, number: int, **more: Any) -> Body:
    return objects.kubeflow_executor(
        number,
        name,
        driver_uid=f"driver-{name}",
        containers=(objects.container("spark-kubernetes-executor", cpu="2"),),
        **more,
    )


def iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
