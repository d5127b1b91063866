"""Whether this machine can have a cluster of real nodes, and if not, what is missing.

Everything is looked for before anything is made, and all that is missing is said at once.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rekindle.errors import InputError
from testbed.cluster import groups, network
from testbed.cluster.groups import Groups
from testbed.cluster.machine import ENVIRONMENT, HIDDEN

__all__ = ["Installed", "check_folder", "find_installed"]

# Programs, and the Debian packages that have them.
_PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "iptables-restore": "iptables",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "busybox": "busybox-static",
}
_PLUGINS = ("ptp", "host-local", "loopback")
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_PLUGIN_PACKAGE = "containernetworking-plugins"


@dataclass(frozen=True, slots=True)
class Installed:
    """What this machine has: the folder of CNI's plugins, busybox, its cgroups."""

    plugins: Path
    busybox: Path
    groups: Groups


def find_installed() -> Installed:
    """Raises `InputError` where a cluster cannot be had: it says why, and what to do."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise InputError(
            where="the cluster of real nodes",
            what="needs root, and Linux",
            remedy="run it as root, or use simulated nodes: `python -m testbed up`",
        )
    path = ENVIRONMENT["PATH"]
    found = {name: shutil.which(name, path=path) for name in _PROGRAMS}
    plugins = next(filter(_has_plugins, _PLUGIN_FOLDERS), None)
    missing = [name for name, place in found.items() if place is None]
    packages = {_PROGRAMS[name] for name in missing}
    if plugins is None:
        missing.extend(f"CNI plugin {name}" for name in _PLUGINS)
        packages.add(_PLUGIN_PACKAGE)
    if missing or plugins is None:
        raise InputError(
            where="the cluster of real nodes",
            what=f"these are not installed: {', '.join(missing)}",
            remedy=f"on Debian `apt-get install --no-install-recommends "
            f"{' '.join(sorted(packages))}`",
        )
    network.check_addresses()
    return Installed(plugins, Path(found["busybox"] or ""), groups.find_groups())


def check_folder(folder: Path) -> None:
    """Raises `InputError` for a folder that machines do not see, having one of their own there."""
    resolved = folder.resolve()
    for hidden in HIDDEN:
        if resolved.is_relative_to(hidden):
            raise InputError(
                where=str(folder),
                what=f"is below {hidden}, of which every node has its own",
                remedy="use another folder; REKINDLE_TESTBED and --directory choose",
            )


def _has_plugins(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _PLUGINS)
