"""Cuts the link between two nodes of one machine: packets of each to the other are dropped.

All nodes share one network, and what a node sends comes from no address of its own. So each node's
processes have a group id of their own, by which the kernel's filter knows them; the driver and all
other nodes go on hearing of both. That takes root, `setpriv` and `iptables`.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from rekindle.model.errors import InputError
from rekindle_local.daemons import Daemon
from rekindle_local.local_nodes import NODES_MAX
from rekindle_local.spark_cluster import LocalCluster

GROUPS_FROM = 1_000_000
TOOLS = ("setpriv", "iptables")
COMMAND_SECONDS_MAX = 10.0


class LinkedCluster(LocalCluster):
    """A cluster whose nodes' processes can be told apart by their group id."""

    def _command_of(self, daemon: Daemon) -> Sequence[str]:
        indices = {node.name: node.index for node in self.nodes}
        command = super()._command_of(daemon)
        if daemon.name not in indices:
            return command
        return [*in_group(indices[daemon.name]), *command]


@dataclass(slots=True)
class ClusterLinks:
    """The links between the nodes of a cluster; `cut` has those that are cut now."""

    cluster: LinkedCluster
    cuts: set[frozenset[str]] = field(default_factory=set)

    def cut(self, names: Sequence[str]) -> None:
        """Cut the link between two nodes. One that is cut already stays so."""
        self._change(frozenset(names), "-I", is_cut=True)

    def join(self, names: Sequence[str]) -> None:
        """Let packets pass again."""
        self._change(frozenset(names), "-D", is_cut=False)

    def join_all(self) -> None:
        """Let all packets pass again."""
        for names in list(self.cuts):
            self.join(sorted(names))

    def _change(self, names: frozenset[str], action: str, *, is_cut: bool) -> None:
        if (names in self.cuts) == is_cut:
            return
        indices = {node.name: node.index for node in self.cluster.nodes}
        for one, other in permutations(sorted(names)):
            _filter(action, "OUTPUT", *_packets(_group(indices[one]), other), "-j", "DROP")
        (self.cuts.add if is_cut else self.cuts.discard)(names)


def in_group(index: int) -> list[str]:
    """What is put before a command to have it run as a process of a node."""
    return ["setpriv", f"--regid={_group(index)}", "--keep-groups"]


def check_possible() -> None:
    """Raise InputError where links cannot be cut."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    what = f"needs {', '.join(missing)}" if missing else "needs root"
    if not missing and os.geteuid() == 0:
        try:
            _filter("-I", "OUTPUT", *_packets(_group(0), "127.0.0.1"), "-j", "ACCEPT")
            _filter("-D", "OUTPUT", *_packets(_group(0), "127.0.0.1"), "-j", "ACCEPT")
            return
        except (OSError, subprocess.SubprocessError) as error:
            what = f"needs iptables that match the owner of a packet ({error})"
    raise InputError(
        where="--links", what=what, remedy="leave it out, or run it as root where that is there"
    )


def _group(index: int) -> int:
    """The group of a node's processes: no other cluster of this machine has it."""
    return GROUPS_FROM + NODES_MAX * os.getpid() + index


def _packets(group: int, address: str) -> tuple[str, ...]:
    return ("-o", "lo", "-d", address, "-m", "owner", "--gid-owner", str(group))


def _filter(*words: str) -> None:
    line = ["iptables", "-w", *words]
    subprocess.run(line, check=True, capture_output=True, timeout=COMMAND_SECONDS_MAX)
