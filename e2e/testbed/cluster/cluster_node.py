"""One node of a cluster: containerd, kubelet and kube-proxy on a machine of its own.

It does not wait for the API server to say that the node is Ready, nor does it touch the network:
node_cluster.py, its caller, does both.
"""

from dataclasses import dataclass
from pathlib import Path

from testbed.cluster import node_configuration
from testbed.cluster.image_template import BOOTED, CONTAINERD
from testbed.cluster.machine_names import NAME_SERVICE, MachineNames
from testbed.cluster.machine_namespaces import NamespacedMachine
from testbed.cluster.node_configuration import NodeSpec
from testbed.test_programs import KUBE_PROXY, KUBELET


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """What a node's programs need of the cluster: the authority, and a kubeconfig for each."""

    authority: Path
    kubelet: Path
    proxy: Path


class ClusterMachine:
    """A node that can be started, and again once its machine is gone."""

    def __init__(self, place: MachineNames, spec: NodeSpec, machine: NamespacedMachine) -> None:
        self.place = place
        self.spec = spec
        self.machine = machine
        self._kubelet: list[str | Path] = []

    @property
    def name(self) -> str:
        return self.place.name

    def configure(self, access: ClusterAccess, plugins: Path) -> None:
        """Write what its programs read. The machine is up."""
        self._access = access
        settings = self.machine.settings
        networks = settings / "networks"
        networks.mkdir()
        texts = {
            "networks/pods.conflist": node_configuration.pod_network(self.place.pods),
            "containerd.toml": node_configuration.containerd(plugins, networks),
            "resolv.conf": f"nameserver {NAME_SERVICE}\n",
            "kube-proxy.yaml": node_configuration.proxy(self.name, access.proxy),
            "kubelet.yaml": node_configuration.kubelet(self.place, self.spec, access.authority),
        }
        for name, text in texts.items():
            (settings / name).write_text(text)

    def start_containerd(self) -> None:
        """Start containerd; `start_programs` waits until it serves."""
        settings = self.machine.settings / "containerd.toml"
        self._containerd = self.machine.start_program(CONTAINERD, CONTAINERD, "--config", settings)

    def start_programs(self, kubelet: Path, proxy: Path) -> None:
        """Start kubelet and kube-proxy, once containerd serves.

        Raises `RunError`, naming the log, when that does not come up.
        """
        self._containerd.await_line(BOOTED)
        settings = self.machine.settings
        self._kubelet = [
            kubelet,
            f"--config={settings / 'kubelet.yaml'}",
            f"--kubeconfig={self._access.kubelet}",
            *node_configuration.kubelet_arguments(self.place, self.spec),
        ]
        self.start_kubelet()
        self.machine.start_program(KUBE_PROXY, proxy, f"--config={settings / 'kube-proxy.yaml'}")

    def start_kubelet(self) -> None:
        """Start the kubelet, anew where it was stopped."""
        self.machine.start_program(KUBELET, *self._kubelet)

    def stop_kubelet(self) -> None:
        """The kubelet alone dies; containers run on."""
        self.machine.end_program(KUBELET)

    @property
    def has_kubelet(self) -> bool:
        return not self.machine.has_ended(KUBELET)
