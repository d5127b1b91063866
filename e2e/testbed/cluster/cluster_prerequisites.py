"""Whether this machine can have a cluster of real nodes, and if not, what is missing.

Everything is looked for before anything is made, and all that is missing is said at once. A caller
that needs more than a cluster takes `lacking`, and environment_faults.py says all of it.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError
from testbed import environment_faults
from testbed.cluster import cluster_lock, machine_cgroups, machine_network
from testbed.cluster.machine_cgroups import MachineCgroups
from testbed.cluster.machine_namespaces import ENVIRONMENT, HIDDEN

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
# It runs on no machine of the cluster, and so it is looked for as any program is.
_OPENSSL = "openssl"
_AS_ROOT = "run it as root, or use simulated nodes: `python -m testbed up`"


@dataclass(frozen=True, slots=True)
class Installed:
    """What this machine has: the folder of CNI's plugins, busybox, its cgroups."""

    plugins: Path
    busybox: Path
    groups: MachineCgroups


def find_installed(*others: InputError) -> Installed:
    """Raises one `InputError` for all that is missing to have a cluster, and for others' faults."""
    environment_faults.check([*lacking(), *others])
    plugins, busybox = _plugins(), _path("busybox")
    assert plugins is not None
    assert busybox is not None
    return Installed(plugins, Path(busybox), machine_cgroups.find_groups())


def lacking() -> list[InputError]:
    """Why this machine cannot have a cluster of real nodes; nothing where it can."""
    is_root = os.geteuid() == 0
    if sys.platform != "linux":
        return [_refusal("needs Linux, and root", "use a machine that has them")]
    found = [] if is_root else [_refusal("needs root", _AS_ROOT)]
    found.extend(_missing())
    if _path("ip") is not None:
        found.extend(environment_faults.raised(machine_network.check_addresses))
    if is_root:  # nobody else may make groups anyway
        found.extend(environment_faults.raised(machine_cgroups.find_groups))
    return found


def _missing() -> Iterator[InputError]:
    """What is not installed, with the packages that have it."""
    missing = {name: package for name, package in _PROGRAMS.items() if _path(name) is None}
    if shutil.which(_OPENSSL) is None:
        missing[_OPENSSL] = _OPENSSL
    if _plugins() is None:
        missing |= {f"CNI plugin {name}": _PLUGIN_PACKAGE for name in _PLUGINS}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        yield _refusal(
            f"these are not installed: {', '.join(missing)}",
            f"on Debian `apt-get install --no-install-recommends {packages}`",
        )


def check_folder(folder: Path, chosen_by: str = "REKINDLE_TESTBED and --directory") -> None:
    """Raises `InputError` for a folder that machines do not see, having one of their own there.

    `chosen_by` names what a person has chosen it by.
    """
    resolved = folder.resolve()
    for hidden in HIDDEN:
        if resolved.is_relative_to(hidden):
            raise InputError(
                where=str(folder),
                what=f"is below {hidden}, of which every node has its own",
                remedy=f"name another folder by {chosen_by}",
            )


def _path(program: str) -> str | None:
    return shutil.which(program, path=ENVIRONMENT["PATH"])


def _plugins() -> Path | None:
    return next(filter(_has_plugins, _PLUGIN_FOLDERS), None)


def _has_plugins(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _PLUGINS)


def _refusal(what: str, remedy: str) -> InputError:
    return InputError(where=cluster_lock.WHERE, what=what, remedy=remedy)
