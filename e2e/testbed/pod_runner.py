"""What a kubelet says of the pods on its node, said for all simulated nodes.

    bound to a living node, Pending            ─► Running, with an address
    bound to a living node, to be deleted      ─► gone
    bound to a node that is lost               ─► left as it is, as in reality
    on a real node, its containers have ended  ─► Succeeded or Failed

On most nodes no container runs; on real ones pod_processes.py runs them. A list tells of the pods
that are bound to any node, and a watch of what becomes of them. When it breaks off both begin
again, and what was known holds until the new list is there. simulated_kubelets.py runs it.
"""

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress

import msgspec

from testbed import node_objects
from testbed.bulk_connection import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    UNREACHABLE,
    BulkAnswer,
    BulkConnection,
)
from testbed.kubelet_state import Kubelet
from testbed.node_objects import PodContainer
from testbed.pod_processes import PodProcesses

WORKERS = 16
AGAIN_SECONDS = 0.5
LIST_SECONDS_MAX = 60.0
ENDED_POLL_SECONDS = 0.2
KILLED = -9
RUN, DELETE = "run", "delete"
_BOUND = "/api/v1/pods?fieldSelector=spec.nodeName!="


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    deletionTimestamp: str | None = None  # noqa: N815 - as the API writes it


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    image: str = ""
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class RunnablePod(msgspec.Struct, frozen=True):
    """Of a pod, as it came from the API server, what is needed here."""

    metadata: _Metadata
    spec: _Spec
    status: _Status

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    def containers(self) -> list[PodContainer]:
        """All containers; those at the start stay when they are sidecars."""
        initial = [
            PodContainer(one.name, one.image, True, one.restart_policy == "Always")
            for one in self.spec.init_containers
        ]
        return [*initial, *(PodContainer(one.name, one.image) for one in self.spec.containers)]


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: tuple[RunnablePod, ...]


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_EVENTS = msgspec.json.Decoder(_Event)
_PODS = msgspec.json.Decoder(RunnablePod)
_LISTS = msgspec.json.Decoder(_List)


def read_event(line: bytes) -> tuple[str, RunnablePod] | None:
    """The kind of an event of the watch and its pod; None for one that tells of no pod."""
    event = _EVENTS.decode(line)
    if event.type not in ("ADDED", "MODIFIED", "DELETED"):
        return None
    return event.type, _PODS.decode(event.object)


def decide(pod: RunnablePod) -> str | None:
    """What the kubelet of a living node has to do about a pod: `RUN`, `DELETE`, or nothing."""
    if pod.metadata.deletionTimestamp is not None:
        return DELETE
    return RUN if pod.status.phase == "Pending" else None


class PodRunner:
    """`kubelets` are the nodes by name, which others change; `machines` run what really runs."""

    def __init__(
        self,
        connection: BulkConnection,
        kubelets: Mapping[str, Kubelet],
        machines: PodProcesses | None = None,
    ) -> None:
        self._connection = connection
        self._kubelets = kubelets
        self._machines = machines
        self._pods: dict[str, RunnablePod] = {}
        self._addresses: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> None:
        """Follow the pods for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())
            if self._machines is not None:
                group.create_task(self._report_ended(self._machines))
            while True:
                with suppress(*UNREACHABLE):
                    await self._follow()
                await asyncio.sleep(AGAIN_SECONDS)

    def look_again(self, nodes: Sequence[str]) -> None:
        """Look at all pods of these nodes: they have been lost and are back."""
        for pod in self.on_nodes(nodes):
            self._queue.put_nowait(pod.metadata.uid)
        if self._machines is not None:  # what was deleted meanwhile ends now
            self._machines.end(*self._machines.running(*nodes) - self._pods.keys())

    def on_nodes(self, nodes: Sequence[str]) -> list[RunnablePod]:
        """The pods that are bound to these nodes."""
        wanted = frozenset(nodes)
        return [pod for pod in self._pods.values() if pod.spec.node_name in wanted]

    async def delete(self, pod: RunnablePod) -> BulkAnswer:
        """Take a pod away, at once and for good, unless another one has its name by now."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.metadata.uid},
        }
        return await self._connection.send("DELETE", pod.path, options)

    async def _follow(self) -> None:
        answer = await self._connection.send("GET", _BOUND, seconds_max=LIST_SECONDS_MAX)
        if not answer.done:
            return
        listed = _LISTS.decode(answer.content)
        self._take(listed.items)
        since = f"{_BOUND}&resourceVersion={listed.metadata.resource_version}"
        async with aclosing(self._connection.watch(since)) as lines:
            async for line in lines:
                event = read_event(line)
                if event is None:
                    return  # the API server says that this watch is of no use any more
                self._note(*event)

    def _take(self, pods: Sequence[RunnablePod]) -> None:
        """There are these pods and no others: what went while nobody watched ends now."""
        there = {pod.metadata.uid for pod in pods}
        for pod in [pod for uid, pod in self._pods.items() if uid not in there]:
            self._note("DELETED", pod)
        for pod in pods:
            self._note("ADDED", pod)

    def _note(self, kind: str, pod: RunnablePod) -> None:
        uid = pod.metadata.uid
        if kind == "DELETED":
            self._pods.pop(uid, None)
            self._addresses.pop(uid, None)
            self._end(pod)
            return
        self._pods[uid] = pod
        if decide(pod) is not None:
            self._queue.put_nowait(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            pod = self._pods.get(uid)
            kubelet = None if pod is None else self._kubelets.get(pod.spec.node_name)
            if pod is None or kubelet is None or not kubelet.alive:
                continue
            with kubelet.work():
                done = await self._act(pod, kubelet)
            if not done:
                loop = asyncio.get_running_loop()
                loop.call_later(AGAIN_SECONDS, self._queue.put_nowait, uid)

    async def _act(self, pod: RunnablePod, kubelet: Kubelet) -> bool:
        """Do what is to be done about a pod; False when it is worth another try."""
        duty = decide(pod)
        try:
            if duty == DELETE:
                self._end(pod)
                answer = await self.delete(pod)
            elif duty == RUN:
                answer = await self._start(pod, kubelet)
            elif self._died(pod, kubelet):
                codes = {one.name: KILLED for one in pod.spec.containers}
                answer = await self._say_ended(pod, codes, kubelet)
            else:
                return True
        except UNREACHABLE:
            return False
        return answer.done or answer.refused

    async def _start(self, pod: RunnablePod, kubelet: Kubelet) -> BulkAnswer:
        uid = pod.metadata.uid
        if self._machines is not None and kubelet.real:
            read = await self._connection.send("GET", pod.path)
            if not read.done:
                return read
            address = self._machines.start(json.loads(read.content), kubelet.name, kubelet.address)
        else:
            address = self._addresses.setdefault(uid, node_objects.pod_address(next(self._numbers)))
        status = node_objects.running_status(
            pod.containers(), node_address=kubelet.address, address=address, now=kubelet.now()
        )
        return await self._connection.send(
            "PATCH", f"{pod.path}/status", {"metadata": {"uid": uid}, **status}, kind=MERGE_PATCH
        )

    def _end(self, pod: RunnablePod) -> None:
        """End what runs of a pod; on a node that is lost nobody can."""
        kubelet = self._kubelets.get(pod.spec.node_name)
        if self._machines is not None and (kubelet is None or kubelet.alive):
            self._machines.end(pod.metadata.uid)

    def _died(self, pod: RunnablePod, kubelet: Kubelet) -> bool:
        """Whether a pod on a real node ought to run, and its machine has died in between."""
        if self._machines is None or not kubelet.real or pod.status.phase != "Running":
            return False
        return pod.metadata.uid not in self._machines.running(kubelet.name)

    async def _report_ended(self, machines: PodProcesses) -> None:
        """Say of pods, for ever, that all their containers have ended by themselves."""
        while True:
            await asyncio.sleep(ENDED_POLL_SECONDS)
            for uid, codes in machines.ended().items():
                pod = self._pods.get(uid)
                kubelet = None if pod is None else self._kubelets.get(pod.spec.node_name)
                if pod is None or kubelet is None or not kubelet.alive:
                    continue
                own = {one.name for one in pod.spec.containers}
                # Not before it is known to run: that is said at about the same time.
                if pod.status.phase != "Running" or not own <= codes.keys():
                    continue
                with kubelet.work(), suppress(*UNREACHABLE):
                    main = {name: codes[name] for name in sorted(own)}
                    answer = await self._say_ended(pod, main, kubelet)
                    if answer.done or answer.refused:
                        machines.end(uid)

    async def _say_ended(
        self, pod: RunnablePod, codes: Mapping[str, int], kubelet: Kubelet
    ) -> BulkAnswer:
        status = node_objects.ended_status(codes, now=kubelet.now())
        body = {"metadata": {"uid": pod.metadata.uid}, **status}
        return await self._connection.send(
            "PATCH", f"{pod.path}/status", body, kind=STRATEGIC_PATCH
        )
