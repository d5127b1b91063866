"""A cgroup for each machine of a cluster, by which all that is on it is found, bounded and removed.

A group lies in every hierarchy: a kubelet makes its pods' groups below it, in all of them. The tree
is `rekindle-testbed/MACHINE`; what is no pod is in `system` below that, for in v2 a group with
groups below it holds no process. rekindle_local's cgroups are about CPU time alone; they set the
quota here as well.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local import cgroups
from testbed.cluster.machine_names import GROUP, PLANE_GROUP

_SYSTEM = "system"
# A kubelet does not start without these.
_NEEDED = frozenset(("cpu", "cpuset", "memory"))
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_MODE = 0o755


@dataclass(frozen=True, slots=True)
class MachineCgroups:
    """The hierarchies of this machine, by the folders that they are mounted at."""

    roots: tuple[Path, ...]
    hierarchy: cgroups.Hierarchy

    @property
    def tops(self) -> tuple[Path, ...]:
        """The groups that hold all machines."""
        return tuple(root / GROUP for root in self.roots)

    @property
    def plane(self) -> cgroups.Group:
        """The group that the control plane's components have theirs in."""
        return cgroups.Group(self.hierarchy, PLANE_GROUP)

    def create(self, machine: str, quota_cores: float | None = None) -> None:
        """Make a machine's group. Raises `OSError` where the kernel refuses."""
        for root in self.roots:
            folder = root
            for part in (GROUP, machine, _SYSTEM):
                if self.hierarchy.version == 2:
                    _delegate(folder)
                folder = folder / part
                folder.mkdir(_MODE, exist_ok=True)
                _inherit_cpuset(folder)
        if quota_cores is not None:
            cgroups.Group(self.hierarchy, f"{GROUP}/{machine}").set_quota(quota_cores)

    def entrances(self, machine: str) -> tuple[Path, ...]:
        """Files into which a process writes its id to be on the machine."""
        return tuple(top / machine / _SYSTEM / "cgroup.procs" for top in self.tops)

    def processes(self, *machines: str) -> tuple[int, ...]:
        """Ids of all processes on these machines, containers' too."""
        return cgroups.tree_processes([self.tops[0] / machine for machine in machines])

    def remove(self, machine: str) -> None:
        """Remove a machine's group and those below it; no process is left in them."""
        for top in self.tops:
            cgroups.remove_tree(top / machine)


def find_groups() -> MachineCgroups:
    """The hierarchies of this machine. Raises `InputError` where no groups can be made."""
    hierarchy = cgroups.find_hierarchy()
    roots, controllers = parse_roots(Path("/proc/self/mounts").read_text())
    if hierarchy is not None and hierarchy.version == 2:
        told = (hierarchy.cpu / "cgroup.controllers").read_text()
        roots, controllers = (hierarchy.cpu,), frozenset(told.split())
    if missing := _NEEDED - controllers:
        raise InputError(
            where="cgroups",
            what=f"this machine has no controller {', '.join(sorted(missing))}",
            remedy="mount cgroup v2, or these controllers of v1, at /sys/fs/cgroup",
        )
    if hierarchy is None or not _can_write(roots):
        raise InputError(
            where="cgroups",
            what="no groups can be made in /sys/fs/cgroup",
            remedy="in a container, start it with --privileged --cgroupns=host; else run as root "
            "where /sys/fs/cgroup is mounted for writing",
        )
    return MachineCgroups(roots, hierarchy)


def parse_roots(mounts: str) -> tuple[tuple[Path, ...], frozenset[str]]:
    """All hierarchies in the text of `/proc/self/mounts`: their folders, the controllers of v1.

    A machine with v1 has a hierarchy of v2 beside it, in which a runtime makes groups as well.
    """
    roots: dict[Path, None] = {}
    controllers: set[str] = set()
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            roots.setdefault(Path(place))
            controllers.update(options.split(","))
        elif kind == "cgroup2":
            roots.setdefault(Path(place))
    return tuple(roots), frozenset(controllers)


def _can_write(roots: Iterable[Path]) -> bool:
    """Whether a group can be made in each: a plain folder has no `cgroup.procs`."""
    for root in roots:
        probe = root / f"{GROUP}-probe"
        try:
            probe.mkdir(exist_ok=True)
            if not (probe / "cgroup.procs").exists():
                return False
        except OSError:
            return False
        finally:
            with suppress(OSError):
                probe.rmdir()
    return True


def _delegate(folder: Path) -> None:
    """Let the groups below have every controller that this one has (v2)."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        with suppress(OSError):  # hugetlb, rdma and the like need not be had
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(folder: Path) -> None:
    """A new group of v1 has no CPUs, and takes no process before it has."""
    for name in _CPUSET:
        file = folder / name
        if file.exists() and not file.read_text().strip():
            file.write_text((folder.parent / name).read_text())
