"""One cgroup per node: a bounded CPU, its weight, the CPU time used, and every process in it.

It speaks cgroup v1 (controllers `cpu` and `cpuacct`, in one mount or in two) and v2. It signals no
process (process_sets.py) and does not decide when a quota holds (spark_cluster.py, its caller). All
functions raise `OSError` where the kernel refuses; nothing here imports the rest of the project,
because the watcher must start fast.

Groups lie in a tree of two levels, `rekindle-PID-TOKEN/NODE`, so that one cluster is found, emptied
and removed by the name of its top group alone.
"""

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PERIOD_MICROSECONDS = 100_000
# What the kernel gives a new group: cpu.weight of v2, cpu.shares of v1.
WEIGHT_USUAL, SHARES_USUAL = 100, 1024
REMOVAL_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups are made: `cpu` takes quotas, `accounting` counts CPU time (v2: the same)."""

    version: int
    cpu: Path
    accounting: Path

    @property
    def roots(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.cpu, self.accounting)))


@dataclass(frozen=True, slots=True)
class Group:
    """A cgroup, named by its path below the roots of its hierarchy."""

    hierarchy: Hierarchy
    name: str

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(root / self.name for root in self.hierarchy.roots)

    @property
    def entrances(self) -> tuple[Path, ...]:
        """Files into which a process writes its id to be in the group."""
        return tuple(directory / "cgroup.procs" for directory in self.directories)

    def create(self) -> None:
        """Make the group and the groups above it."""
        for root in self.hierarchy.roots:
            directory = root
            for part in Path(self.name).parts:
                if self.hierarchy.version == 2:
                    _write(directory / "cgroup.subtree_control", "+cpu")
                directory = directory / part
                directory.mkdir(exist_ok=True)

    def set_quota(self, cores: float) -> None:
        """Bound the group's CPU time to `cores` in every period of 100 ms."""
        quota_microseconds = round(cores * PERIOD_MICROSECONDS)
        if self.hierarchy.version == 2:
            _write(self._cpu / "cpu.max", f"{quota_microseconds} {PERIOD_MICROSECONDS}")
        else:
            _write(self._cpu / "cpu.cfs_period_us", str(PERIOD_MICROSECONDS))
            _write(self._cpu / "cpu.cfs_quota_us", str(quota_microseconds))

    def lift_quota(self) -> None:
        """Let the group use all the CPU there is."""
        if self.hierarchy.version == 2:
            _write(self._cpu / "cpu.max", "max")
        else:
            _write(self._cpu / "cpu.cfs_quota_us", "-1")

    def quota(self) -> float | None:
        """The quota as the kernel holds it, in cores; None while it is lifted."""
        if self.hierarchy.version == 2:
            quota, period = (self._cpu / "cpu.max").read_text().split()
        else:
            quota = (self._cpu / "cpu.cfs_quota_us").read_text().strip()
            period = (self._cpu / "cpu.cfs_period_us").read_text()
        return None if quota in ("max", "-1") else int(quota) / int(period)

    def set_weight(self, share: float) -> None:
        """Give the group this share of the usual weight; it counts while CPU is short.

        A weight divides the CPU among groups below the same group, so it says nothing about
        processes outside the cluster.
        """
        if self.hierarchy.version == 2:
            _write(self._cpu / "cpu.weight", str(max(1, round(share * WEIGHT_USUAL))))
        else:
            _write(self._cpu / "cpu.shares", str(max(2, round(share * SHARES_USUAL))))

    def weight(self) -> float:
        """The weight as the kernel holds it, as a share of the usual one."""
        if self.hierarchy.version == 2:
            return int((self._cpu / "cpu.weight").read_text()) / WEIGHT_USUAL
        return int((self._cpu / "cpu.shares").read_text()) / SHARES_USUAL

    def throttled_periods(self) -> int:
        """In how many periods of 100 ms the quota was used up, since the group was made; 0 where
        the kernel counts none, as for the group at the top."""
        try:
            lines = (self._cpu / "cpu.stat").read_text().splitlines()
        except OSError:  # the group was removed meanwhile
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("nr_throttled")), 0)

    def cpu_seconds(self) -> float:
        """CPU time used in the group since it was made, by the dead too."""
        accounting = self.hierarchy.accounting / self.name
        if self.hierarchy.version == 1:
            return int((accounting / "cpuacct.usage").read_text()) / 1e9
        lines = (accounting / "cpu.stat").read_text().splitlines()
        statistics = dict(line.split() for line in lines)
        return int(statistics["usage_usec"]) / 1e6

    def processes(self) -> tuple[int, ...]:
        """Ids of the processes in the group itself, not below it; empty when it is gone."""
        return _read_processes(self._cpu / "cgroup.procs")

    @property
    def _cpu(self) -> Path:
        return self.hierarchy.cpu / self.name


def find_hierarchy() -> Hierarchy | None:
    """The hierarchy of this machine in which quotas can be set, or None."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return None
    hierarchy = parse_mounts(mounts)
    return hierarchy if hierarchy is not None and holds_quotas(hierarchy) else None


def parse_mounts(mounts: str) -> Hierarchy | None:
    """The hierarchy with the CPU controller in the text of `/proc/self/mounts`; v1 first.

    A controller belongs to one version at a time, and a machine with both keeps `cpu` in v1.
    """
    controllers: dict[str, Path] = {}
    unified: Path | None = None
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            controllers |= {option: Path(place) for option in options.split(",")}
        elif kind == "cgroup2":
            unified = Path(place)
    if "cpu" in controllers and "cpuacct" in controllers:
        return Hierarchy(1, controllers["cpu"], controllers["cpuacct"])
    return None if unified is None else Hierarchy(2, unified, unified)


def holds_quotas(hierarchy: Hierarchy) -> bool:
    """Whether a group can be made here and its quota reads back as it was set.

    Only reading back tells: under the tmpfs in which v1 hierarchies are mounted, `mkdir` makes a
    plain directory.
    """
    probe = Group(hierarchy, f"rekindle-probe-{os.getpid()}")
    try:
        probe.create()
        probe.set_quota(0.5)
        return probe.quota() == 0.5 and all(path.exists() for path in probe.entrances)
    except (OSError, ValueError):
        return False
    finally:
        for directory in probe.directories:
            with suppress(OSError):
                directory.rmdir()


def tree_processes(tops: Iterable[Path]) -> tuple[int, ...]:
    """Ids of all processes in the groups `tops` and below them."""
    files = [file for top in tops for file in top.glob("**/cgroup.procs")]
    return tuple(sorted({pid for file in files for pid in _read_processes(file)}))


def remove_tree(top: Path) -> None:
    """Remove the group `top` and the groups below it; their processes are dead already."""
    if not top.is_dir():
        return
    for entry in top.iterdir():
        if entry.is_dir():
            remove_tree(entry)
    deadline = time.monotonic() + REMOVAL_SECONDS_MAX
    while not _removed(top, last_try=time.monotonic() > deadline):
        time.sleep(0.01)


def _removed(directory: Path, *, last_try: bool) -> bool:
    """Try to remove a group: it stays busy for a moment after its last process has died."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if last_try or error.errno != errno.EBUSY:
            raise
        return False
    return True


def _read_processes(file: Path) -> tuple[int, ...]:
    try:
        return tuple(int(line) for line in file.read_text().split())
    except OSError:  # the group was removed meanwhile
        return ()


def _write(file: Path, text: str) -> None:
    """Write to a file of the kernel; where it is missing, fail instead of making a plain one."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
