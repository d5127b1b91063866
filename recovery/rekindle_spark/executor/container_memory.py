"""The memory that an executor's container leaves to its host, in bytes.

The kernel ends processes of a control group that needs more than its limit, and a container is one,
for Java and host together: what Java may take comes off first. Control groups of v1 and v2; where
nothing limits them there is no budget either. A host asks once, when it starts.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
# What is no limit is written as a huge one by v1.
NO_LIMIT = 1 << 60
# An executor's Java has taken 130 MiB beside its heap, with one compiler and the serial collector.
JAVA_BESIDE_HEAP_BYTES = 192 * 2**20
# Of the container, where Java has not been told.
JAVA_HEAP_SHARE = 4
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def allowed_bytes(jvm: int, proc: Path = PROC) -> int | None:
    """What is left to the host of the executor with this process id; None: nothing limits it."""
    try:
        limit = min(_limits(proc), default=None)
    except FileNotFoundError:  # a kernel without control groups
        return None
    if limit is None:
        return None
    return max(0, limit - _heap_bytes(jvm, limit, proc) - JAVA_BESIDE_HEAP_BYTES)


def _heap_bytes(jvm: int, limit: int, proc: Path) -> int:
    """What Java's heap may grow to: the last -Xmx counts."""
    command = (proc / str(jvm) / "cmdline").read_bytes().decode(errors="replace")
    found = re.findall(r"(?:^|\0)-Xmx(\d+)([kmgt]?)(?=\0|$)", command, re.IGNORECASE)
    if not found:
        return limit // JAVA_HEAP_SHARE
    size, unit = found[-1]
    return int(size) * UNITS[unit.lower()]


def _limits(proc: Path) -> Iterator[int]:
    """The limits of our control group and of those above it."""
    for folder, file in _groups(proc):
        try:
            text = (folder / file).read_text().strip()
        except OSError:
            continue
        if text != "max" and int(text) < NO_LIMIT:
            yield int(text)


def _groups(proc: Path) -> Iterator[tuple[Path, str]]:
    """Folders of our control group and of those above it, as far as they are mounted here, each
    with the file that has the limit."""
    paths: dict[str, str] = {}
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in (proc / "self/mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        root, mount = place.split()[3:5]
        system, *_, options = kind.split()
        if system == "cgroup" and "memory" in options.split(","):
            path, file = paths.get("memory", "/"), "memory.limit_in_bytes"
        elif system == "cgroup2":
            path, file = paths.get("", "/"), "memory.max"
        else:
            continue
        below = _below(root, path)
        for folder in (below, *below.parents):
            yield Path(mount) / folder, file


def _below(root: str, path: str) -> PurePosixPath:
    """Our group as seen from what is mounted; the mount itself where ours is not below it."""
    try:
        return PurePosixPath(path).relative_to(root)
    except ValueError:
        return PurePosixPath()
