"""Names, addresses and folders of a cluster of real nodes; pure.

What a cluster has on its machine, outside of its namespaces, bears one of the names here, so that
cluster_cleanup.py knows it again.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from testbed.plane_components import SERVICE_ADDRESSES

NODES = IPv4Network("10.123.0.0/16")
PODS = IPv4Network("10.124.0.0/16")
SERVICES = IPv4Network(SERVICE_ADDRESSES)
SWITCH = NODES[1]
HOST = NODES[2]
NAME_SERVICE = SERVICES[10]
DOMAIN = "cluster.local"
# A number is given to one node only, and with it its name and its addresses.
NODES_MAX = 250

LINK = "rekindle0"
PORTS = "port"
GROUP = "rekindle-testbed"
PLANE_GROUP = "rekindle-testbed-plane"


@dataclass(frozen=True, slots=True)
class MachineNames:
    """Where a node is: its number from 1, its name, its folder on this host."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> IPv4Address:
        return NODES[256 + self.number]

    @property
    def pods(self) -> IPv4Network:
        """The addresses of its pods."""
        return IPv4Network((PODS[256 * self.number], 24))

    @property
    def port(self) -> str:
        """Its link on the switch."""
        return f"{PORTS}{self.number}"


@dataclass(frozen=True, slots=True)
class ClusterFolders:
    """The folders of a cluster: `logs` and `shared` stay when it ends, the others go."""

    directory: Path

    @property
    def plane(self) -> Path:
        return self.directory / "control-plane"

    @property
    def machines(self) -> Path:
        return self.directory / "machines"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def shared(self) -> Path:
        return self.directory / "shared"

    @property
    def passing(self) -> tuple[Path, ...]:
        """What goes with the cluster."""
        return (self.machines, self.plane / "state")

    @property
    def all(self) -> tuple[Path, ...]:
        """Whatever it makes."""
        return (*self.passing, self.plane, self.logs, self.shared)

    def place(self, number: int) -> MachineNames:
        return MachineNames(number, self.machines / f"node-{number}")
