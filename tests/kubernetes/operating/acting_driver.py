"""A driver that speaks the protocol over the store, with pods in the API server and no Spark.

It says what a driver would say: which executors it has, where, how long each has been silent; it
takes directives and answers them. Executors on nodes that a test has lost fall silent; pods that
the scheduler binds join. So everything between driver and cluster is real but the data.
"""

import itertools
import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kubernetes import client

from rekindle import protocol
from rekindle.model import topology as graph
from rekindle.model.errors import RekindleError
from rekindle.model.topology import Topology
from rekindle.protocol import (
    Acknowledgement,
    CheckpointReport,
    Directive,
    DropOrder,
    Heartbeat,
    NodeSeen,
    PlanOrder,
    ProgressReport,
    store_paths,
)
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Member, shape
from rekindle_local import process_sets
from rekindle_zookeeper import Connection, StoreUnreachable

# As often as a real one would, and twice: nothing waits for its next report for long. It looks at
# its pods with every other report.
REPORT_SECONDS = 0.25
CPU_PERCENT = 100.0
FORGET_SECONDS_MAX = 60.0


def pod_body(
    name: str, role: str, application: str, *, cpu: str = "500m", **labels: str
) -> dict[str, Any]:
    """A pod as spark-submit makes it, with our sidecar in the driver's."""
    container = {
        "name": f"spark-kubernetes-{role}",
        "image": "spark:4.3",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 30}
    if role == "driver" and "rekindle.dev/inject" in labels:
        spec["restartPolicy"] = "Never"
    elif role == "driver":
        sidecar = {"name": "rekindle-sidecar", "image": "sidecar", "restartPolicy": "Always"}
        spec |= {"initContainers": [sidecar], "restartPolicy": "Never"}
    else:
        term = {
            "labelSelector": {"matchLabels": {"spark-app-name": application, "spark-role": role}},
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec |= {"affinity": {"podAntiAffinity": anti}, "restartPolicy": "Never"}
    found = {"spark-role": role, "spark-app-name": application, **labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": found},
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class _Executor:
    """What a driver knows of the pod of an executor; `incarnation` is what it calls it."""

    name: str
    incarnation: str
    node: str
    address: str
    runs: bool


@dataclass
class ActingDriver:
    """`silent` are nodes (of the cluster) from which nothing comes; `executors_wanted` pods are
    there or pending, as Spark keeps it. All pods get `labels`, the driver's the `owners` as well,
    as by the Spark operator that has submitted it."""

    connection: Connection
    core: Any
    namespace: str
    application: str = "flights"
    executors_wanted: int = 4
    queries: int = 4
    generation: int = 1
    silent: set[str] = field(default_factory=set)
    directives: list[tuple[float, Directive]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    plans_taken: bool = True
    reporting: bool = True
    watching: bool = True
    checkpoints: int = 0
    inject: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    owners: list[dict[str, Any]] = field(default_factory=list)
    priorities: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topology: Topology = shape(self.queries)
        self.member = Member(self.place, self.topology)
        self.member.nodes.clear()
        self.member.placement.clear()
        self.heard: dict[str, float] = {}
        self.number = 0
        self._pods: list[_Executor] = []
        self._beats = itertools.count()
        self.uid = ""
        self.since = time.time()
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    @property
    def place(self) -> Place:
        return Place(self.namespace, self.application)

    def start(self) -> None:
        """The pods, the first reports, and then one after the other."""
        asks = {"rekindle.dev/inject": "true"} if self.inject else {}
        driver = pod_body(
            f"{self.application}-driver", "driver", self.application, **asks, **self.labels
        )
        driver["metadata"]["ownerReferences"] = self.owners
        made = self.core.create_namespaced_pod(self.namespace, driver)
        self.uid = made.metadata.uid
        self._keep_executors()
        self._thread.start()

    @property
    def is_placed(self) -> bool:
        """Whether every partition is somewhere."""
        return len(self.member.placement) == len(graph.partitions(self.topology))

    @property
    def is_whole(self) -> bool:
        """Whether all executors that are wanted have joined, and none of them is on a node that has
        fallen silent: pods there go before the driver has dropped what it knows of them."""
        nodes = {seen.cluster_node for seen in list(self.member.nodes.values())}
        whole = len(self.member.nodes) == self.executors_wanted
        return whole and nodes.isdisjoint(self.silent)

    def complete_checkpoint(self) -> None:
        """A checkpoint becomes global."""
        with self._lock:
            self.checkpoints += 1
            report = CheckpointReport(
                generation=self.generation,
                sequence=1 + self.checkpoints,
                epoch=self.member.epoch,
                at=time.time(),
            )
            self._put(store_paths.CHECKPOINT, report)

    def die(self) -> None:
        """The driver ends with its node: no word any more, and no heartbeat."""
        with self._lock:
            self.reporting = False
            self.connection.remove(self.place.path(store_paths.HEARTBEAT))

    def give_up(self, *nodes: str) -> None:
        """It drops its executors on nodes of the cluster by itself, as nobody leads it."""
        with self._lock:
            there = self.member.nodes
            lost = {name for name, seen in there.items() if seen.cluster_node in nodes}
            self.drop({name: there[name].incarnation for name in lost})

    def leave(self) -> None:
        """Somebody deletes the application with all its pods."""
        with self._lock:
            self.reporting = False
            self.core.delete_collection_namespaced_pod(
                self.namespace,
                grace_period_seconds=0,
                label_selector=f"spark-app-name={self.application}",
                _request_timeout=FORGET_SECONDS_MAX,
            )

    def close(self) -> None:
        """It ends, and neither its pods nor its records are left to the operator."""
        self._ending.set()
        self._thread.join()
        self.leave()
        self.connection.remove(self.place.path(store_paths.HEARTBEAT))
        forgotten = process_sets.await_condition(self._forget, limit_seconds=FORGET_SECONDS_MAX)
        if self.error is not None:
            raise self.error
        assert forgotten, f"records of {self.place} are left"

    def executors(self) -> list[Any]:
        """Pods of executors that are not being deleted."""
        found = self.core.list_namespaced_pod(self.namespace, label_selector=self._selector)
        return [pod for pod in found.items if pod.metadata.deletion_timestamp is None]

    def executors_names(self) -> set[str]:
        """Of these pods."""
        return {pod.name for pod in self._look()}

    def plans(self) -> list[tuple[float, Directive]]:
        return [item for item in self.directives if isinstance(item[1].order, PlanOrder)]

    def _forget(self) -> bool:
        """Whether no record is left: until the operator knows, it may write another one."""
        try:
            self._remove(self.place.path())
        except RekindleError:
            return False
        return True

    def _remove(self, path: str) -> None:
        for name in self.connection.children(path):
            self._remove(f"{path}/{name}")
        self.connection.remove(path)

    def _run(self) -> None:
        try:
            while not self._has_all() and not self._ending.wait(REPORT_SECONDS):
                pass  # a run begins when all its executors have joined
            self._introduce()
            while not self._ending.wait(REPORT_SECONDS):
                # as a sidecar does: what the store does not take now it takes later
                with suppress(StoreUnreachable):
                    self._beat()
        except BaseException as error:
            self.error = error

    @property
    def _selector(self) -> str:
        return f"spark-role=executor,spark-app-name={self.application}"

    def _look(self) -> list[_Executor]:
        """The same as `executors`, without the client's own objects: it looks all the time."""
        answer = self.core.list_namespaced_pod(
            self.namespace, label_selector=self._selector, _preload_content=False
        )
        items = json.loads(answer.data)["items"]
        return [_executor(pod) for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def _has_all(self) -> bool:
        self._pods = self._look()
        self._see_executors()
        return len(self.member.nodes) == self.executors_wanted

    def _introduce(self) -> None:
        self._live()
        for report, name in zip(
            self.member.beginning(),
            (store_paths.TOPOLOGY, store_paths.STATISTICS, store_paths.CHECKPOINT),
            strict=True,
        ):
            self._put(name, report)

    def _live(self) -> None:
        """A heartbeat goes with its session, which the store may end while it is away."""
        if self.connection.get(self.place.path(store_paths.HEARTBEAT)) is None:
            heartbeat = Heartbeat(
                generation=self.generation, since=self.since, host=f"{self.application}-driver"
            )
            self._put(store_paths.HEARTBEAT, heartbeat, ephemeral=True)

    def _beat(self) -> None:
        with self._lock:
            if not self.reporting:
                return
            if self.watching and next(self._beats) % 2 == 0:
                self._end_dropped()
                self._pods = self._look()
                self._keep_executors()
            self._see_executors()
            self._live()
            self._obey()
            self._put(store_paths.PROGRESS, self._progress())

    def _keep_executors(self) -> None:
        """As many pods as are wanted, as Spark does it: those that are there count."""
        for _ in range(self.executors_wanted - len(self._pods)):
            self.number += 1
            owner = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": f"{self.application}-driver",
                "uid": self.uid,
                "controller": True,
            }
            body = pod_body(
                f"{self.application}-exec-{self.number}",
                "executor",
                self.application,
                **{"spark-exec-id": str(self.number), **self.labels},
                **{"rekindle.dev/executor": "true"},
            )
            body["metadata"]["ownerReferences"] = [owner]
            self.core.create_namespaced_pod(self.namespace, body)

    def _end_dropped(self) -> None:
        """A dropped executor that hears the driver again ends, and Spark deletes its pod."""
        for pod in self._pods:
            if pod.incarnation in self.dropped and pod.node not in self.silent:
                try:
                    self.core.delete_namespaced_pod(pod.name, self.namespace)
                except client.ApiException as error:
                    if error.status != HTTPStatus.NOT_FOUND:  # somebody else was faster
                        raise

    def _see_executors(self) -> None:
        now = time.monotonic()
        for pod in self._pods:  # what runs goes on while nobody can ask the API server
            address, node, incarnation = pod.address, pod.node, pod.incarnation
            if not address or not pod.runs or incarnation in self.dropped:
                continue
            if node not in self.silent:
                self.heard[address] = now
            if address not in self.heard:
                continue
            silence = now - self.heard[address]
            self.member.nodes[address] = NodeSeen(
                incarnation=incarnation,
                capacity_percent=CPU_PERCENT,
                silent_seconds=silence,
                cluster_node=node,
            )

    def _obey(self) -> None:
        folder = self.place.path(store_paths.DIRECTIVES)
        for sequence in sorted(store_paths.numbers(self.connection.children(folder))):
            name = store_paths.numbered(sequence)
            if sequence <= self.member.directive:
                continue
            found = self.connection.get(f"{folder}/{name}")
            if found is None:
                continue
            directive = protocol.decode(found[0], Directive, f"{folder}/{name}")
            self.directives.append((time.monotonic(), directive))
            self._take(directive)

    def _take(self, directive: Directive) -> None:
        order = directive.order
        if isinstance(order, DropOrder):
            self.drop(order.nodes)
        if isinstance(order, PlanOrder) and not self.plans_taken:
            return
        self.member.take(directive)
        answer = Acknowledgement(
            sequence=directive.sequence,
            generation=self.generation,
            outcome="done",
            epoch=self.member.epoch,
            plan_epoch=self.member.plan_epoch,
        )
        self._put(f"{store_paths.ACKS}/{store_paths.numbered(directive.sequence)}", answer)

    def drop(self, nodes: dict[str, str]) -> None:
        for node, incarnation in nodes.items():
            self.dropped.add(incarnation)
            if node in self.member.nodes:
                self.member.lose(node)

    def _progress(self) -> ProgressReport:
        return self.member.progress()

    def _put(self, name: str, message: Any, *, ephemeral: bool = False) -> None:
        self.connection.put(self.place.path(name), protocol.encode(message), ephemeral=ephemeral)


def _executor(pod: dict[str, Any]) -> _Executor:
    metadata, status = pod["metadata"], pod["status"]
    return _Executor(
        name=metadata["name"],
        incarnation=f"{metadata['labels']['spark-exec-id']}.0",
        node=pod["spec"].get("nodeName", ""),
        address=status.get("podIP", ""),
        runs=status.get("phase") == "Running",
    )
