"""A cluster of real nodes: started, nodes added and lost, ended.

The API server listens on the switch that the nodes are on, and so this host's programs, a driver or
an operator, reach nodes and pods. Whatever ends the owner, nothing is left running: a watcher
process sees to that, and the next cluster, or `clean`, removes folders. Calls come from one thread.
"""

import atexit
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rekindle.model.errors import InputError, RunError
from rekindle_cli import cli_options
from rekindle_local import process_sets
from rekindle_local.daemons import DaemonGroup
from rekindle_local.process_reaper import ProcessReaper
from testbed import owned_folders, test_programs
from testbed.cluster import cluster_cleanup, cluster_lock, cluster_prerequisites, kernel_limits
from testbed.cluster.cluster_dns import start_name_service
from testbed.cluster.cluster_node import ClusterAccess, ClusterMachine
from testbed.cluster.image_template import NodeTemplate, check_images
from testbed.cluster.machine_names import HOST, NODES_MAX, ClusterFolders
from testbed.cluster.machine_namespaces import NamespacedMachine, end_machines
from testbed.cluster.machine_network import Network, remove_link
from testbed.cluster.node_configuration import MEMORY_LEFT_MIB, NodeSpec, machine_mib
from testbed.control_plane import ControlPlane
from testbed.node_objects import NOT_READY, UNREACHABLE
from testbed.test_programs import CONTROL_PLANE, COREDNS, KUBE_PROXY, KUBELET

READY_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.25
SWITCH = "switch"
TEMPLATE = "template"
NODE_GROUP = "system:nodes"
PROXY_USER = "system:kube-proxy"


class NodeCluster(DaemonGroup):
    """A context manager: inside, a control plane serves, and nodes can be added; after it, none is.

    `directory` takes what it needs; `logs` and `shared` stay there. `images` are archives of images
    for its nodes, which also have `containerd_images.BUSYBOX`. `shared`, a folder of this host, is
    where it is on every node as well: for volumes of type hostPath. `arguments`,
    `node_grace_seconds` and `node_monitor_seconds` are ControlPlane's. Raises `InputError` where a
    cluster cannot be had.
    """

    def __init__(
        self,
        *,
        directory: Path,
        images: Sequence[Path] = (),
        shared: Path | None = None,
        programs: Mapping[str, Path] | None = None,
        node_grace_seconds: float = 50.0,
        node_monitor_seconds: float = 5.0,
        arguments: Mapping[str, Sequence[str]] | None = None,
        progress: Callable[[str], None] = test_programs.say,
    ) -> None:
        check_images(images)
        self.layout = ClusterFolders(directory.absolute())
        self.shared = (shared or self.layout.shared).absolute()
        self._images = tuple(images)
        self._programs = dict(programs or {})
        self._progress = progress
        self._seconds = (node_grace_seconds, node_monitor_seconds)
        self._arguments = arguments
        self._owner = os.getpid()
        self._nodes: dict[str, ClusterMachine] = {}
        self._killed: dict[str, ClusterMachine] = {}
        self._given = 0
        self._held = ExitStack()
        self._watcher: ProcessReaper | None = None
        self._machines: list[NamespacedMachine] = []

    @property
    def logs(self) -> Path:
        """Logs of what runs on nodes and switch; those of the control plane are in `plane.logs`."""
        return self.layout.logs

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes that are there: neither killed nor removed."""
        return tuple(self._nodes)

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.plane.kubeconfig

    def start(self) -> None:
        """Start control plane, switch and name service, without nodes; wait until they serve."""
        cluster_prerequisites.check_folder(self.layout.directory)
        cluster_prerequisites.check_folder(self.shared, "--shared")
        for folder in self.layout.passing:
            owned_folders.check(folder)
        for folder in (self.layout.plane, self.logs):
            owned_folders.check_place(folder)
        owned_folders.check_place(self.shared, remedy="name another folder by --shared")
        names = () if self._programs else (*CONTROL_PLANE, *test_programs.NODE)
        self._installed = cluster_prerequisites.find_installed(*test_programs.lacking(names))
        self._programs = self._programs or test_programs.find(names)
        for name in test_programs.NODE:
            cluster_prerequisites.check_folder(self._programs[name])
        atexit.register(self.close)
        try:
            self._take_seat()
            self._make_switch()
            self._start_plane()
            self._make_template()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything and remove what it made but logs and the shared folder. Safe to repeat."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        self._nodes.clear()
        self._held.close()

    def add(
        self, count: int, spec: NodeSpec | None = None, *, zones: Sequence[str] = ("",)
    ) -> tuple[str, ...]:
        """Add nodes of one kind, in these zones in turn; their names, when all are Ready.

        Raises `InputError` for what this machine does not have, `RunError` when a node does not
        come up.
        """
        cli_options.check_range("nodes", count, 1, NODES_MAX - self._given)
        spec = _checked(spec or NodeSpec())
        nodes = [self._make_node(spec, zones[turn % len(zones)]) for turn in range(count)]
        self._start(nodes)
        added = tuple(node.name for node in nodes)
        self.await_ready(*added)
        return added

    def kill(self, *names: str) -> None:
        """Machines die: no packet leaves them any more, then all that is on them is dead.

        Their Node objects stay, as those of lost machines do. Returns when nothing is left.
        """
        lost = self._select(names)
        self._network.cut(node.place for node in lost)
        end_machines([node.machine for node in lost])
        self._network.forget(node.place for node in lost)
        for node in lost:
            self._killed[node.name] = self._nodes.pop(node.name)
            self._machines.remove(node.machine)

    def revive(self, *names: str) -> None:
        """Machines that were killed are on again, with empty disks; does not wait until their nodes
        are Ready."""
        self._check(names, self._killed, what="is no killed machine")
        nodes = [self._killed.pop(name) for name in dict.fromkeys(names)]
        for node in nodes:
            self._nodes[node.name] = node
            self._machines.append(node.machine)
        self._start(nodes)

    def cut(self, *names: str) -> None:
        """A partition: from here on no packet reaches these nodes or leaves them; they live on."""
        self._network.cut(node.place for node in self._select(names))

    def heal(self, *names: str) -> None:
        """The partition of these nodes is over."""
        self._network.heal(node.place for node in self._select(names))

    def stop_kubelet(self, *names: str) -> None:
        """The kubelets of these nodes die, while their pods run on."""
        for node in self._select(names):
            if not node.has_kubelet:
                raise InputError(
                    where=node.name, what="has no kubelet that runs", remedy="start it first"
                )
            node.stop_kubelet()

    def start_kubelet(self, *names: str) -> None:
        """Start kubelets again that were stopped; does not wait until the nodes are Ready."""
        for node in self._select(names):
            if node.has_kubelet:
                raise InputError(
                    where=node.name, what="has a kubelet that runs", remedy="stop it first"
                )
            node.start_kubelet()

    def remove(self, *names: str) -> None:
        """Machines go, and their Node objects are deleted, as an autoscaler does it.

        Those that were killed before may be named.
        """
        self._check(names, [*self._nodes, *self._killed])
        self.kill(*(name for name in names if name in self._nodes))
        with self.plane.api_client() as api_client:
            core = client.CoreV1Api(api_client)
            for name in dict.fromkeys(names):
                _delete_node(core, name)
                del self._killed[name]

    def await_ready(self, *names: str) -> None:
        """Wait until pods can be scheduled to these nodes. Raises `RunError` when they cannot."""
        awaited = set(names)
        with self.plane.api_client() as api_client:
            core = client.CoreV1Api(api_client)

            def are_ready() -> bool:
                awaited.difference_update(map(_ready_name, core.list_node().items))
                return not awaited or any(map(self._has_failed, awaited))

            process_sets.await_condition(
                are_ready, limit_seconds=READY_SECONDS_MAX, interval_seconds=LOOK_SECONDS
            )
        if awaited:
            name = max(awaited, key=self._has_failed)
            raise RunError(
                where=str(self._nodes[name].machine.log(KUBELET)),
                what=f"{name} has not become Ready",
                remedy="read this log, and those beside it",
            )

    def is_alive(self, *names: str) -> bool:
        """Whether something runs on each of these nodes, reached by others or not."""
        return all(map(self.processes, names))

    def processes(self, *names: str) -> tuple[int, ...]:
        """Ids of all processes on these nodes, containers' too; none for nodes that are gone."""
        return self._installed.groups.processes(*names)

    def _take_seat(self) -> None:
        self._held.enter_context(cluster_lock.claimed())
        record = cluster_lock.read()
        layouts = (
            [self.layout] if record is None else [ClusterFolders(record.directory), self.layout]
        )
        if left := cluster_cleanup.find(layouts, logs=False):
            ended = "a cluster" if record is None else f"process {record.owner}"
            self._progress(f"removing what {ended} has left: {left}")
            cluster_cleanup.remove(left)
        before = kernel_limits.instances() if record is None else record.instances
        ticks = process_sets.start_ticks(os.getpid())
        cluster_lock.write(
            cluster_lock.ClusterRecord(os.getpid(), self.layout.directory, before, ticks)
        )
        self._held.callback(cluster_lock.forget)
        kernel_limits.lift()
        self._held.callback(kernel_limits.put_back, before)
        self._held.callback(self._remove_folders)
        for folder in (self.layout.machines, self.layout.plane, self.logs):
            owned_folders.make(folder)
        if self.shared == self.layout.shared:
            owned_folders.make(self.shared)
            self.shared.chmod(0o1777)  # containers write there as whoever they are
        self.shared.mkdir(parents=True, exist_ok=True)

    def _remove_folders(self) -> None:
        for folder in self.layout.passing:
            with suppress(OSError):
                owned_folders.remove(folder)

    def _make_switch(self) -> None:
        watcher = ProcessReaper(self._installed.groups.tops, self.logs / "watcher.log")
        self._watcher = watcher
        self._held.callback(watcher.close)
        self._held.callback(self._end_machines)
        self._switch = self._make_machine(SWITCH)
        self._switch.start()
        self._held.callback(remove_link)
        self._network = Network(self._switch)
        self._network.start()

    def _start_plane(self) -> None:
        grace, monitor = self._seconds
        plane = ControlPlane(
            directory=self.layout.plane,
            programs=self._programs,
            node_grace_seconds=grace,
            node_monitor_seconds=monitor,
            arguments=self._arguments,
            address=str(HOST),
            group=self._installed.groups.plane,
        )
        self.plane = self._held.enter_context(plane)
        self._proxy_access = plane.user_kubeconfig(PROXY_USER)
        with plane.api_client() as api_client:
            start_name_service(self._switch, self._programs[COREDNS], plane.kubeconfig, api_client)

    def _make_template(self) -> None:
        folder = self.layout.machines / "images"
        installed = self._installed
        self._template = NodeTemplate(self._images, installed.busybox, installed.plugins, folder)
        if not self._template.is_made:
            if self._images:
                self._progress(f"importing {len(self._images)} archives of images")
            self._template.make(self._make_machine(TEMPLATE))

    def _make_machine(self, name: str) -> NamespacedMachine:
        assert self._watcher is not None
        folder = self.layout.machines / name
        machine = NamespacedMachine(name, folder, self.logs, self._installed.groups, self._watcher)
        self._machines.append(machine)
        return machine

    def _end_machines(self) -> None:
        end_machines(self._machines)
        self._machines.clear()

    def _make_node(self, spec: NodeSpec, zone: str) -> ClusterMachine:
        self._given += 1
        place = self.layout.place(self._given)
        node = ClusterMachine(
            place, replace(spec, zone=zone or spec.zone), self._make_machine(place.name)
        )
        self._nodes[node.name] = node
        return node

    def _start(self, nodes: Sequence[ClusterMachine]) -> None:
        for node in nodes:
            self._boot(node)
        for node in nodes:
            node.start_programs(self._programs[KUBELET], self._programs[KUBE_PROXY])

    def _boot(self, node: ClusterMachine) -> None:
        self._template.copy(node.machine.folder)
        node.machine.start(node.spec.quota_cores)
        self._network.connect(node.place, node.machine)
        user = f"system:node:{node.name}"
        kubeconfig = self.plane.user_kubeconfig(user, groups=[NODE_GROUP])
        access = ClusterAccess(self.plane.authority, kubeconfig, self._proxy_access)
        node.configure(access, self._installed.plugins)
        node.start_containerd()

    def _select(self, names: Sequence[str]) -> list[ClusterMachine]:
        self._check(names, self._nodes)
        return [self._nodes[name] for name in dict.fromkeys(names)]

    @staticmethod
    def _check(names: Sequence[str], known: Collection[str], what: str = "is no node") -> None:
        for name in names:
            if name not in known:
                there = ", ".join(known) or "none"
                raise InputError(where=name, what=what, remedy=f"there are: {there}")

    def _has_failed(self, name: str) -> bool:
        return not self._nodes[name].has_kubelet


def _checked(spec: NodeSpec) -> NodeSpec:
    """The kind of node. Raises `InputError` for one that has more than this machine."""
    cli_options.check_range("cores", spec.cores, 0.1, os.cpu_count() or 1)
    cli_options.check_range("memory_mib", spec.memory_mib, 64, machine_mib() - MEMORY_LEFT_MIB)
    return spec


def _delete_node(core: client.CoreV1Api, name: str) -> None:
    try:
        core.delete_node(name)
    except ApiException as error:
        if error.status != 404:  # somebody has deleted it before
            raise


def _ready_name(node: client.V1Node) -> str:
    """The name of a node to which pods can be scheduled; otherwise nothing."""
    assert node.metadata is not None
    assert node.spec is not None
    assert node.status is not None
    conditions = {one.type: one.status for one in node.status.conditions or ()}
    marked = {taint.key for taint in node.spec.taints or ()} & {NOT_READY, UNREACHABLE}
    return node.metadata.name or "" if conditions.get("Ready") == "True" and not marked else ""
