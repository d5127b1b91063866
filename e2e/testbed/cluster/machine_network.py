"""The switch between machines, and the link by which this host is on it.

The switch is a machine of its own with a bridge, to which each node and the host have a link; pods
of other nodes are reached by way of it. On the host there is nothing but the end of one link and
routes through it, which go when the switch does: no rule, no bridge, no setting of the kernel.
"""

import json
import subprocess
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

from rekindle.model.errors import InputError
from testbed import program_runs
from testbed.cluster.machine_names import HOST, LINK, NODES, PODS, SERVICES, SWITCH, MachineNames
from testbed.cluster.machine_namespaces import ENVIRONMENT, NamespacedMachine

COMMAND_SECONDS_MAX = 60.0
_BRIDGE = "nodes"
# With an address of its own: a bridge would take that of its lowest port, which comes and goes.
_BRIDGE_ADDRESS = "02:52:4b:00:00:01"
# Nodes reach each other's pods by way of the switch, and are not told of a shorter way.
_SETTINGS = {"ip_forward": 1, "conf/all/send_redirects": 0, "conf/default/send_redirects": 0}
_REMEDY = (
    "remove what is left of another cluster with `python -m testbed cluster clean`, "
    "and see whether the kernel has bridges and veth links"
)


class Network:
    """The switch, on a machine that is up."""

    def __init__(self, switch: NamespacedMachine) -> None:
        self._switch = switch

    def start(self) -> None:
        """Make the bridge and put this host on it. Raises `RunError` where the kernel refuses."""
        for name, value in _SETTINGS.items():
            self._switch.run("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}")
        self._configure(
            f"link add {_BRIDGE} address {_BRIDGE_ADDRESS} type bridge",
            f"address add {SWITCH}/{NODES.prefixlen} dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        )
        _configure(
            [],
            f"link add {LINK} type veth peer name host netns {self._switch.pid}",
            f"address add {HOST}/{NODES.prefixlen} dev {LINK}",
            f"link set {LINK} up",
        )
        self._configure(f"link set host master {_BRIDGE} up")
        _configure([], f"route add {PODS} via {SWITCH} dev {LINK}")

    def connect(self, place: MachineNames, machine: NamespacedMachine) -> None:
        """Give a node its address and its way to the others."""
        self._configure(
            f"link add {place.port} type veth peer name eth0 netns {machine.pid}",
            f"link set {place.port} master {_BRIDGE} up",
            f"route replace {place.pods} via {place.address} dev {_BRIDGE}",
        )
        _configure(
            ["nsenter", f"--target={machine.pid}", "--net"],
            f"address add {place.address}/{NODES.prefixlen} dev eth0",
            "link set eth0 up",
            f"route add default via {SWITCH}",
        )
        machine.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def cut(self, places: Iterable[MachineNames]) -> None:
        """From here on no packet leaves or reaches these nodes, and no error tells a sender."""
        self._configure(*(f"link set {place.port} down" for place in places))

    def heal(self, places: Iterable[MachineNames]) -> None:
        """Packets pass again."""
        self._configure(*(f"link set {place.port} up" for place in places))

    def forget(self, places: Iterable[MachineNames]) -> None:
        """Remove the ways to nodes that are gone."""
        gone = list(places)
        for place in gone:  # it may have gone already with the other end, which takes a while
            link = [*self._within, "ip", "link", "del", place.port]
            _finish(link, "", f"link {place.port}")
        self._configure(*(f"route del {place.pods} dev {_BRIDGE}" for place in gone))

    @property
    def _within(self) -> list[str]:
        return ["nsenter", f"--target={self._switch.pid}", "--net"]

    def _configure(self, *lines: str) -> None:
        if lines:
            _configure(self._within, *lines)


def check_addresses() -> None:
    """Raises `InputError` where this host already uses addresses that the cluster takes."""
    told = _run(["ip", "-json", "-4", "route", "show", "table", "all"])
    routes = [route for route in json.loads(told) if route.get("dev") not in (LINK, "lo")]
    for ours in (NODES, PODS, SERVICES):
        if used := overlapping(ours, [str(route["dst"]) for route in routes]):
            raise InputError(
                where=f"addresses {ours}",
                what=f"this machine has a route to {used} already",
                remedy="see it with `ip route`, and end what has made it",
            )


def overlapping(ours: IPv4Network, destinations: Sequence[str]) -> str | None:
    """The first of the destinations of routes that takes a part of these addresses away.

    A wider route does not: the narrower one is followed.
    """
    for destination in destinations:
        if destination[:1].isdigit() and IPv4Network(destination, strict=False).subnet_of(ours):
            return destination
    return None


def remove_link() -> bool:
    """Remove this host's end of the link if it is there; whether it was."""
    return _finish(["ip", "link", "del", LINK], "", f"link {LINK}").returncode == 0


def _configure(within: Sequence[str], *lines: str) -> None:
    _run([*within, "ip", "-batch", "-"], "".join(f"{line}\n" for line in lines))


def _run(command: Sequence[str], text: str = "") -> str:
    where = f"{' '.join(command)[:80]}: {text[:200]!r}"
    done = _finish(command, text, where)
    if done.returncode != 0:
        # The kernel's word comes first, and then which of the lines it was.
        said = done.stderr.strip().partition("\n")[0]
        raise program_runs.failure(done, said, where=where, remedy=_REMEDY)
    return done.stdout


def _finish(command: Sequence[str], text: str, where: str) -> subprocess.CompletedProcess[str]:
    return program_runs.finish(
        command,
        where=where,
        remedy=_REMEDY,
        seconds_max=COMMAND_SECONDS_MAX,
        input=text,
        env=ENVIRONMENT,
    )
