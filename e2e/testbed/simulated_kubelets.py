"""Simulated nodes: they register, renew their leases and run pods, as far as the API shows it.

A node that is lost falls silent. Its Node object, its lease and its pods stay as they were, the
pods Running, until somebody does something about them: so it is with real nodes. For the API there
is no difference between a node that died and a kubelet that was stopped. For what runs on a real
node there is: its *fate* (pod_processes.py).

One thread serves all nodes. The controller manager marks the silent ones, the scheduler binds pods;
nothing here does their work. Tests and the command line call it, from any thread.
"""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, TypeVar

from rekindle.model.errors import InputError, RunError
from rekindle_cli import cli_options
from testbed import node_objects, test_programs
from testbed.background_threads import EventLoopThread
from testbed.bulk_connection import STRATEGIC_PATCH, UNREACHABLE, BulkAnswer, BulkConnection
from testbed.control_plane import ControlPlane
from testbed.kubelet_state import Kubelet, settle
from testbed.node_heartbeats import NodeHeartbeats
from testbed.node_objects import NodeShape
from testbed.pod_processes import PodProcesses
from testbed.pod_runner import PodRunner

NODES_MAX = 10_000
NODES = "/api/v1/nodes"
SET_LABEL = "testbed.rekindle.dev/set"
READY_SECONDS_MAX = 120.0
READY_SECONDS_MAX_EACH = 0.1
# A list of a thousand nodes costs a second of CPU on both sides.
READY_POLL_SECONDS = 0.25
READY_POLL_SECONDS_EACH = 0.001
BULK_SECONDS_MAX = 60.0
# A lease is taken for expired after four intervals, as that of a real kubelet.
LEASE_INTERVALS = 4

Value = TypeVar("Value")


class Fate(Enum):
    """What becomes of the processes on a real node that is lost."""

    GO_ON = "go on"  # only the kubelet has stopped
    DIE = "die"  # killed, and their connections are reset: the machine's kernel lives
    FREEZE = "freeze"  # not a word on any connection, as when the machine or its network is gone


class SimulatedKubelets(EventLoopThread):
    """A context manager: inside, its nodes live; after it, they and the pods on them are gone.

    Leases are renewed every `lease_seconds`: 10 with a real kubelet. Node names begin with
    `prefix`, and no two sets use the same. `machines` are needed for nodes of a real shape.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        lease_seconds: float = 10.0,
        prefix: str = "node",
        machines: PodProcesses | None = None,
    ) -> None:
        cli_options.check_range("lease_seconds", lease_seconds, 0.2, 3_600)
        self._set = secrets.token_hex(3)
        self._prefix = f"{prefix}-{self._set}"
        super().__init__(self._prefix)
        self._control_plane = control_plane
        self._machines = machines
        self._lease_seconds = lease_seconds
        self._version = test_programs.kubernetes_version(os.environ)
        self._kubelets: dict[str, Kubelet] = {}
        self._count = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that were added and not removed, lost ones too."""
        return tuple(self._kubelets)

    @property
    def living(self) -> tuple[str, ...]:
        """Those of them that are not lost."""
        return tuple(name for name, kubelet in self._kubelets.items() if kubelet.alive)

    @property
    def with_set_clocks(self) -> tuple[str, ...]:
        """Those whose clocks were set: after one was set back, the controller manager takes no
        renewal for newer than the last until it has caught up."""
        return tuple(name for name, kubelet in self._kubelets.items() if kubelet.clock_was_set)

    @property
    def renewals(self) -> int:
        """How many renewals of leases have been done."""
        return self._heartbeats.renewals

    @property
    def late_seconds_max(self) -> float:
        """How late a renewal was begun, at worst: above an interval, this machine is too slow."""
        return self._heartbeats.late_seconds_max

    def add(
        self, count: int = 1, shape: NodeShape | None = None, *, zone: str = "", wait: bool = True
    ) -> tuple[str, ...]:
        """Add nodes, and wait until pods can be scheduled on them; their names.

        `zone` is the value of the zone's label, which is left out when it is empty. Raises
        `RunError` when the API server refuses one, or the controller manager does not take its
        taint away.
        """
        cli_options.check_range("count", count, 1, NODES_MAX - len(self._kubelets))
        if shape is not None and shape.real and self._machines is None:
            raise InputError(
                where="a real node",
                what="needs a machine",
                remedy="give `machines` to Nodes, or leave `real` out of the shape",
            )
        return self._call(self._add(count, shape or NodeShape(), zone, wait))

    def await_ready(self, *names: str) -> None:
        """Wait until these nodes are Ready and without taints about that."""
        self._call(self._await_ready(self._check(names)))

    def lose(self, *names: str, fate: Fate = Fate.GO_ON) -> None:
        """These nodes fall silent, all at once; when it returns, nothing of them is under way.

        `fate` is that of the processes on those that are real.
        """
        self._call(self._lose(self._check(names), fate))

    def bring_back(self, *names: str) -> None:
        """Lost nodes renew their leases again, say that they are Ready, and look at their pods.

        Frozen processes go on, those of pods that were deleted meanwhile end; pods whose processes
        have died become Failed.
        """
        self._call(self._bring_back(self._check(names)))

    def remove(self, *names: str) -> None:
        """The nodes fall silent and their Node objects are deleted, as an autoscaler does it; what
        runs on real ones dies."""
        self._call(self._remove(self._check(names)))

    def report_ready(self, *names: str, ready: bool, reason: str = "", message: str = "") -> None:
        """The kubelets of these nodes say themselves whether they are Ready, and why."""
        self._call(self._report_ready(self._check(names), ready, reason, message))

    def set_clock(self, *names: str, ahead_seconds: float) -> None:
        """From now on the clocks of these nodes are so far ahead, or behind."""

        async def set_all() -> None:
            for kubelet in self._check(names):
                kubelet.clock_seconds = ahead_seconds
                kubelet.clock_was_set = True

        self._call(set_all())

    def close(self) -> None:
        """Remove all nodes, their leases and the pods on them. Safe to repeat."""
        if self._thread.is_alive():
            try:
                self._call(self._clear())
            finally:
                super().close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        context = self._control_plane.ssl_context()
        async with BulkConnection(self._control_plane.server, context) as self._connection:
            self._heartbeats = NodeHeartbeats(self._connection, self._lease_seconds, self._speak)
            self._runner = PodRunner(self._connection, self._kubelets, self._machines)
            async with asyncio.TaskGroup() as group:
                serving = [group.create_task(one.run()) for one in (self._heartbeats, self._runner)]
                yield
                for task in serving:
                    task.cancel()

    def _call(self, action: Coroutine[Any, Any, Value]) -> Value:
        try:
            return super()._call(action)
        except UNREACHABLE as error:
            raise RunError(
                where=self._control_plane.server,
                what=f"does not answer ({type(error).__name__})",
                remedy="see whether the API server was stopped or killed",
            ) from error

    async def _add(self, count: int, shape: NodeShape, zone: str, wait: bool) -> tuple[str, ...]:
        labels = {SET_LABEL: self._set, **({node_objects.ZONE: zone} if zone else {})}
        numbers = range(self._count + 1, self._count + count + 1)
        self._count += count
        added = await _gather([self._register(number, shape, labels) for number in numbers])
        self._kubelets.update({kubelet.name: kubelet for kubelet in added})
        names = tuple(kubelet.name for kubelet in added)
        self._heartbeats.begin(added)
        self._runner.look_again(names)  # some may have been bound before we knew the node
        if wait:
            await self._await_ready(added)
        return names

    async def _register(self, number: int, shape: NodeShape, labels: dict[str, str]) -> Kubelet:
        address = node_objects.node_address(number)
        kubelet = Kubelet(f"{self._prefix}-{number}", "", address, real=shape.real)
        now = kubelet.now()
        node = node_objects.node(
            kubelet.name, shape, address=address, labels=labels, version=self._version, now=now
        )
        answer = _accepted(await self._connection.send("POST", NODES, node))
        kubelet.uid = json.loads(answer.content)["metadata"]["uid"]
        seconds = max(1, round(LEASE_INTERVALS * self._lease_seconds))
        lease = node_objects.lease(
            kubelet.name, kubelet.uid, seconds=seconds, labels={SET_LABEL: self._set}, now=now
        )
        _accepted(await self._connection.send("POST", node_objects.LEASES, lease))
        return kubelet

    async def _await_ready(self, kubelets: Sequence[Kubelet]) -> None:
        awaited = {kubelet.name for kubelet in kubelets}
        loop = asyncio.get_running_loop()
        limit_seconds = READY_SECONDS_MAX + READY_SECONDS_MAX_EACH * len(awaited)
        poll_seconds = max(READY_POLL_SECONDS, READY_POLL_SECONDS_EACH * len(awaited))
        deadline = loop.time() + limit_seconds
        while True:
            listed = await self._send_to_all("GET", NODES)
            awaited -= {node["metadata"]["name"] for node in _items(listed) if _is_ready(node)}
            if not awaited:
                return
            if loop.time() > deadline:
                raise RunError(
                    where=f"node {min(awaited)}",
                    what=f"is not Ready after {limit_seconds:.0f} s",
                    remedy="see whether the controller manager runs, and read its log",
                )
            await asyncio.sleep(poll_seconds)

    async def _lose(self, kubelets: Sequence[Kubelet], fate: Fate = Fate.DIE) -> None:
        for kubelet in kubelets:
            kubelet.alive = False
        self._heartbeats.forget_dead()
        await settle(kubelets)
        real = [kubelet.name for kubelet in kubelets if kubelet.real]
        if self._machines is not None and fate is Fate.DIE:
            self._machines.kill(*real)
        elif self._machines is not None and fate is Fate.FREEZE:
            self._machines.stop(*real)

    async def _bring_back(self, kubelets: Sequence[Kubelet]) -> None:
        lost = [kubelet for kubelet in kubelets if not kubelet.alive]
        for kubelet in lost:
            kubelet.alive = True
        if self._machines is not None:
            self._machines.proceed(*(kubelet.name for kubelet in lost if kubelet.real))
        self._heartbeats.begin(lost)
        await self._report_ready(lost, True, "", "")
        self._runner.look_again([kubelet.name for kubelet in lost])

    async def _remove(self, kubelets: Sequence[Kubelet]) -> None:
        await self._lose(kubelets)
        for kubelet in kubelets:
            del self._kubelets[kubelet.name]
        await _gather(
            [self._connection.send("DELETE", f"{NODES}/{kubelet.name}") for kubelet in kubelets]
        )

    async def _report_ready(
        self, kubelets: Sequence[Kubelet], ready: bool, reason: str, message: str
    ) -> None:
        for kubelet in kubelets:
            kubelet.said = (ready, reason, message)
        for answer in await _gather([self._speak(kubelet) for kubelet in kubelets]):
            _accepted(answer)

    async def _speak(self, kubelet: Kubelet) -> BulkAnswer:
        """A kubelet says how it is."""
        ready, reason, message = kubelet.said
        said = node_objects.conditions(kubelet.now(), ready=ready, reason=reason, message=message)
        path, patch = f"{NODES}/{kubelet.name}/status", node_objects.saying(said)
        return await self._connection.send("PATCH", path, patch, kind=STRATEGIC_PATCH)

    async def _clear(self) -> None:
        kubelets = [*self._kubelets.values()]
        await self._lose(kubelets)
        left = self._runner.on_nodes(self.names)
        await _gather([self._runner.delete(pod) for pod in left])
        for path in (NODES, node_objects.LEASES):
            await self._send_to_all("DELETE", path)
        self._kubelets.clear()

    async def _send_to_all(self, method: str, path: str) -> BulkAnswer:
        """List or delete all objects of this set, in one request."""
        selected = f"{path}?labelSelector={SET_LABEL}%3D{self._set}"
        return _accepted(
            await self._connection.send(method, selected, seconds_max=BULK_SECONDS_MAX)
        )

    def _check(self, names: Sequence[str]) -> list[Kubelet]:
        for name in names:
            if name not in self._kubelets:
                raise InputError(
                    where=f"node {name!r}",
                    what="is not among the simulated nodes",
                    remedy="name one that `add` has returned",
                )
        return [self._kubelets[name] for name in names]


async def _gather(actions: Sequence[Awaitable[Value]]) -> list[Value]:
    return list(await asyncio.gather(*actions))


def _accepted(answer: BulkAnswer) -> BulkAnswer:
    if not answer.done:
        told = json.loads(answer.content or b"{}")
        raise RunError(
            where="the API server",
            what=f"refuses with {answer.status}: {told.get('message', '')}",
            remedy="see whether something else changes these nodes",
        )
    return answer


def _items(answer: BulkAnswer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(answer.content)["items"]
    return items


def _is_ready(node: dict[str, Any]) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not taints & {
        node_objects.NOT_READY,
        node_objects.UNREACHABLE,
    }
