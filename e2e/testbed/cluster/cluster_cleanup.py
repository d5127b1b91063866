"""What a cluster that was killed has left: found by its names and its record, and removed.

Its watchers end what it ran, even then; this is for folders, and for when they were killed as well.
Nothing is removed that does not bear a name of machine_names.py or stand in the record of
cluster_lock.py, and no folder of a cluster that it has not marked as its own. The caller has
claimed the seat.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import RunError
from rekindle_local import cgroups, process_sets
from testbed import owned_folders
from testbed.cluster import machine_network
from testbed.cluster.machine_cgroups import parse_roots
from testbed.cluster.machine_names import GROUP, LINK, PLANE_GROUP, ClusterFolders

END_SECONDS_MAX = 30.0
# A watcher that is at work on the same needs a moment.
SETTLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What there is: processes, cgroups, whether the link, folders."""

    processes: tuple[int, ...]
    groups: tuple[Path, ...]
    link: bool
    folders: tuple[Path, ...]

    def __bool__(self) -> bool:
        return bool(self.processes or self.groups or self.link or self.folders)

    def __str__(self) -> str:
        parts = [
            f"{len(self.processes)} processes" if self.processes else "",
            f"{len(self.groups)} cgroups" if self.groups else "",
            f"link {LINK}" if self.link else "",
            *map(str, self.folders),
        ]
        return ", ".join(filter(None, parts))


def find(layouts: Iterable[ClusterFolders], *kept: Path, logs: bool) -> Leftovers:
    """What is there, the `kept` folders with it; with `logs`, those of a cluster that stay when it
    ends count as well."""
    roots, _ = parse_roots(Path("/proc/self/mounts").read_text())
    groups = tuple(
        root / name for root in roots for name in (GROUP, PLANE_GROUP) if (root / name).is_dir()
    )
    theirs = [folder for one in layouts for folder in (one.all if logs else one.passing)]
    there = filter(owned_folders.is_ours, (*theirs, *kept))
    return Leftovers(
        processes=cgroups.tree_processes(groups),
        groups=groups,
        link=Path("/sys/class/net", LINK).exists(),
        folders=tuple(dict.fromkeys(there)),
    )


def remove(leftovers: Leftovers) -> None:
    """Remove it all. Raises `RunError` for what does not go."""

    def list_processes() -> tuple[int, ...]:
        return cgroups.tree_processes(leftovers.groups)

    left = process_sets.kill_all(list_processes, limit_seconds=END_SECONDS_MAX)
    if left:
        raise _refusal(f"processes {list(left)}", "see in /proc/PID/stack what they wait for")
    try:
        for group in leftovers.groups:
            cgroups.remove_tree(group)
        _remove_link()
        for folder in leftovers.folders:
            _remove_folder(folder)
    except OSError as error:
        raise _refusal(str(error), "see who uses it, and try again") from error


def _remove_link() -> None:
    # It goes with its namespace, a moment after the last process there.
    gone = process_sets.await_condition(
        lambda: not Path("/sys/class/net", LINK).exists(), limit_seconds=SETTLE_SECONDS
    )
    if not gone:
        machine_network.remove_link()


def _remove_folder(folder: Path) -> None:
    """Remove a folder in which nothing is mounted: a cluster's own mounts are not seen here."""
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    if inside := [place for place in mounted if Path(place).is_relative_to(folder)]:
        raise _refusal(f"{folder}: {inside[0]} is mounted there", f"`umount {inside[0]}` first")
    owned_folders.remove(folder)


def _refusal(what: str, remedy: str) -> RunError:
    return RunError(where="what a cluster has left", what=f"does not go: {what}", remedy=remedy)
