"""A benchmark's cluster, written to the API server: nodes that live, pods that stand there.

No kubelet is acted here but for leases: pods are bound from the start, and those of Spark are said
to be Running. `testbed.simulated_kubelets` does more, for fewer. `operator_at_scale` uses it.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from operator_benchmark import bulk_objects, cluster_layout
from operator_benchmark.cluster_layout import Body, ClusterSize, Spark
from rekindle.model.errors import RunError
from testbed import node_objects, test_programs
from testbed.background_threads import EventLoopThread
from testbed.bulk_connection import MERGE_PATCH, BulkConnection
from testbed.control_plane import ControlPlane
from testbed.kubelet_state import Kubelet, settle
from testbed.node_heartbeats import NodeHeartbeats
from testbed.node_objects import NodeShape, PodContainer

WORKERS = 16
LEASE_INTERVALS = 4
ACCOUNT_SECONDS_MAX = SERVED_SECONDS_MAX = 60.0
REQUEST_SECONDS_MAX = 60.0
SHAPE = NodeShape(cpu="64", memory="256Gi", pods=1_000)
DRIVER = (PodContainer("rekindle-sidecar", "sidecar", True), PodContainer("spark", "spark:4.3"))
EXECUTOR = (PodContainer("spark", "spark:4.3"),)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE_NAMESPACE = "kube-node-lease"
OURS = "/apis/rekindle.dev/v1alpha1"

Item = TypeVar("Item")


class Crowd(EventLoopThread):
    """A context manager: inside, its nodes renew their leases every `lease_seconds`."""

    def __init__(self, control_plane: ControlPlane, lease_seconds: int) -> None:
        super().__init__("crowd")
        self._control_plane = control_plane
        self._etcd = bulk_objects.address(control_plane)
        self._lease_seconds = lease_seconds
        self._version = test_programs.kubernetes_version(os.environ)
        self._kubelets: dict[str, Kubelet] = {}

    @property
    def late_seconds_max(self) -> float:
        """How late a renewal was begun, at worst: above an interval, this machine is too slow."""
        return self._heartbeats.late_seconds_max

    def define(self, definitions: Iterable[Body]) -> None:
        """Custom resources, until they are served."""
        self._call(_each(definitions, self._define))

    def add_nodes(self, size: ClusterSize) -> None:
        """All nodes, with their leases."""
        self._call(self._add_nodes(size))

    def add_resources(self, size: ClusterSize) -> None:
        """Namespaces, the class, and a policy for each application."""
        self._call(self._add_resources(size))

    def add_spark(self, sparks: Iterable[Spark]) -> None:
        """The pods of applications, Running."""
        self._call(bulk_objects.write(self._etcd, self._spark_pods(sparks)))

    def add_others(self, size: ClusterSize) -> None:
        """All other pods, which nobody has started."""
        pods = (
            bulk_objects.stored(cluster_layout.other_pod(*item))
            for item in cluster_layout.others(size)
        )
        self._call(bulk_objects.write(self._etcd, ((_pod_path(pod), pod) for pod in pods)))

    def lose(self, names: Iterable[str]) -> datetime:
        """These nodes renew their leases a last time, all within moments, and fall silent; when the
        last one has."""
        return self._call(self._lose([self._kubelets[name] for name in names]))

    def recoveries(self, namespace: str = "") -> list[Body]:
        """All Recovery objects, or those of a namespace."""
        within = f"/namespaces/{namespace}" if namespace else ""
        listed = self._call(self._send("GET", f"{OURS}{within}/recoveries"))
        items: list[Body] = listed["items"]
        return items

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        context = self._control_plane.ssl_context()
        async with BulkConnection(self._control_plane.server, context) as self._connection:
            self._heartbeats = NodeHeartbeats(self._connection, self._lease_seconds)
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._heartbeats.run())
                yield
                renewing.cancel()

    async def _define(self, body: Body) -> None:
        await self._send("POST", DEFINITIONS, body)
        path = f"{DEFINITIONS}/{body['metadata']['name']}"
        deadline = self._loop.time() + SERVED_SECONDS_MAX
        while not _is_served(await self._send("GET", path)):
            if self._loop.time() > deadline:
                raise RunError(where=path, what="is not served", remedy="see the API server's log")
            await asyncio.sleep(0.2)

    async def _add_nodes(self, size: ClusterSize) -> None:
        made: list[Kubelet] = []

        def objects() -> Iterator[tuple[str, Body]]:
            for index in range(size.nodes):
                kubelet = Kubelet(
                    cluster_layout.node_name(index), "", node_objects.node_address(index)
                )
                node = bulk_objects.stored(self._node(kubelet, cluster_layout.zone_of(index)))
                kubelet.uid = node["metadata"]["uid"]
                made.append(kubelet)
                yield f"minions/{kubelet.name}", node
                yield f"leases/{LEASE_NAMESPACE}/{kubelet.name}", self._lease(kubelet)

        await bulk_objects.write(self._etcd, objects())
        self._kubelets.update({kubelet.name: kubelet for kubelet in made})
        self._heartbeats.begin(made)

    def _node(self, kubelet: Kubelet, zone: str) -> Body:
        return node_objects.node(
            kubelet.name,
            SHAPE,
            address=kubelet.address,
            labels={node_objects.ZONE: zone},
            version=self._version,
            now=kubelet.now(),
        )

    def _lease(self, kubelet: Kubelet) -> Body:
        seconds, now = LEASE_INTERVALS * self._lease_seconds, kubelet.now()
        lease = node_objects.lease(kubelet.name, kubelet.uid, seconds=seconds, labels={}, now=now)
        lease["metadata"]["namespace"] = LEASE_NAMESPACE
        return bulk_objects.stored(lease)

    async def _add_resources(self, size: ClusterSize) -> None:
        await _each(cluster_layout.namespaces(size), self._add_namespace)
        body = cluster_layout.recovery_class(self._lease_seconds)
        await self._send("POST", f"{OURS}/recoveryclasses", body)

        async def add(spark: Spark) -> None:
            path = f"{OURS}/namespaces/{spark.place.namespace}/recoverypolicies"
            await self._send("POST", path, cluster_layout.policy(spark))

        await _each(cluster_layout.applications(size), add)

    async def _add_namespace(self, name: str) -> None:
        """With its account, without which no pod is let in."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self._send("POST", "/api/v1/namespaces", body)
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        deadline = self._loop.time() + ACCOUNT_SECONDS_MAX
        while not (await self._connection.send("GET", path)).done:
            if self._loop.time() > deadline:
                raise RunError(
                    where=f"namespace {name}",
                    what="gets no service account",
                    remedy="see the controller manager's log",
                )
            await asyncio.sleep(0.2)

    def _spark_pods(self, sparks: Iterable[Spark]) -> Iterator[tuple[str, Body]]:
        for spark in sparks:
            driver = bulk_objects.stored(cluster_layout.driver_pod(spark))
            yield self._running(driver, DRIVER, spark.driver_address)
            for executor in spark.executors:
                pod = cluster_layout.executor_pod(spark, executor, driver["metadata"]["uid"])
                yield self._running(bulk_objects.stored(pod), EXECUTOR, executor.address)

    def _running(
        self, pod: Body, containers: tuple[PodContainer, ...], address: str
    ) -> tuple[str, Body]:
        host = self._kubelets[pod["spec"]["nodeName"]].address
        status = node_objects.running_status(
            containers, node_address=host, address=address, now=datetime.now(UTC)
        )
        return _pod_path(pod), {**pod, **status}

    async def _lose(self, kubelets: list[Kubelet]) -> datetime:
        async def renew(kubelet: Kubelet) -> None:
            path, body = (
                f"{node_objects.LEASES}/{kubelet.name}",
                node_objects.renewal(kubelet.now()),
            )
            await self._send("PATCH", path, body, kind=MERGE_PATCH)

        for kubelet in kubelets:
            kubelet.alive = False
        self._heartbeats.forget_dead()
        await settle(kubelets)
        await _each(kubelets, renew)
        return datetime.now(UTC)

    async def _send(self, method: str, path: str, body: Body | None = None, **more: Any) -> Body:
        answer = await self._connection.send(
            method, path, body, seconds_max=REQUEST_SECONDS_MAX, **more
        )
        found: Body = json.loads(answer.content or b"{}")
        if not answer.done:
            what = f"{answer.status}: {found.get('message', '')}"
            raise RunError(where=f"{method} {path}", what=what, remedy="see the API server's log")
        return found


def _pod_path(pod: Body) -> str:
    return f"pods/{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _is_served(definition: Body) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


async def _each(items: Iterable[Item], action: Callable[[Item], Awaitable[None]]) -> None:
    """The action on all items, a few at a time."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await action(item)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
