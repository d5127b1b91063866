"""Measures the memory of a host, frees it, and refuses work that would exceed the budget.

What counts is what the kernel cannot take back by itself: anonymous pages, not those of files. The
budget comes with each request, or from the container. A host asks before each epoch of a partition,
so that it can say no as long as it lives; the driver draws the consequences (`memory_budget`).

The kernel ends processes of a control group that needs more than its limit, and a container is one,
for Java and host together: what Java may take comes off first. Control groups of v1 and v2; where
nothing limits them there is no budget either. A host asks for that once, when it starts.
"""

import ctypes
import gc
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from rekindle_spark.checkpoint.state_files import Versions
from rekindle_spark.flow_control.memory_budget import TIGHT_SHARE
from rekindle_spark.pipeline.program import Program

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DRAINED_BYTES = 1 << 20
M_ARENA_MAX = -8  # of malloc.h
# What a host may use while a function runs, as a share of the budget. What is set for it may be
# passed for a while, and epochs are smaller then; at a container's limit the kernel kills.
SHARE_OF_SETTING, SHARE_OF_CONTAINER = 4.0, 1.25
TRIAL_BYTES_MIN = 128 << 20
# Of the budget, for what sources fetch before it is asked for.
PREFETCH_SHARE = 1 / 8
PROC = Path("/proc")
# What is no limit is written as a huge one by v1.
NO_LIMIT = 1 << 60
# An executor's Java has taken 130 MiB beside its heap, with one compiler and the serial collector.
JAVA_BESIDE_HEAP_BYTES = 192 * 2**20
# Of the container, where Java has not been told.
JAVA_HEAP_SHARE = 4
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class OverBudget(Exception):
    """What is asked for would take more memory than there may be used."""

    def __init__(self, used_bytes: int, max_bytes: int, wanted_bytes: int = 0) -> None:
        needed_bytes = used_bytes + wanted_bytes
        super().__init__(f"needs {needed_bytes >> 20} MiB of {max_bytes >> 20} MiB")
        self.reading = _reading(used_bytes, needed_bytes, max_bytes)


@dataclass(slots=True)
class MemoryGauge:
    """Measures this process; `allowed_bytes` is its budget where a request brings none, less what
    a process beside it has in use."""

    allowed_bytes: int | None
    beside_bytes: int = 0

    def receive(
        self, reader: BufferedReader, size: int, request: Mapping[str, Any]
    ) -> memoryview | OverBudget:
        """Read the blocks of a request; those that do not fit are passed over."""
        budget = self._budget(request)
        if budget is None or used_bytes() + size <= budget or trimmed_bytes() + size <= budget:
            return memoryview(reader.read(size))
        refusal = OverBudget(used_bytes(), budget, size)
        while size > 0:
            size -= len(reader.read(min(size, DRAINED_BYTES))) or size
        return refusal

    def check(self, request: Mapping[str, Any]) -> None:
        """Raise OverBudget where more is in use than may be, whatever can be given back."""
        budget = self._budget(request)
        if budget is None or used_bytes() <= budget:
            return
        gc.collect()
        used = trimmed_bytes()
        if used > budget:
            raise OverBudget(used, budget)

    def read(
        self,
        request: Mapping[str, Any],
        data: memoryview,
        blocks: Mapping[int, Sequence[bytes]],
    ) -> dict[str, int | None]:
        """What stays in use once this request is answered, the most there was since the last call,
        and the budget."""
        budget, used = self._budget(request), used_bytes()
        peak = max(_peak_bytes(), used)
        if budget is not None and used > TIGHT_SHARE * budget:
            used = trimmed_bytes()
        held = len(data) + sum(len(block) for parts in blocks.values() for block in parts)
        return _reading(max(0, used - held), peak, budget)

    def function_bytes_max(self, request: Mapping[str, Any]) -> int:
        """What this process may use while a function runs, until it is ended; 0: no limit."""
        budget = self._budget(request)
        if budget is None:
            return 0
        is_set = request.get("memory_bytes_max") is not None
        return int((SHARE_OF_SETTING if is_set else SHARE_OF_CONTAINER) * budget)

    def prefetch_bytes_max(self, request: Mapping[str, Any]) -> int | None:
        """What sources of this process may fetch before it is asked for; None: no limit."""
        budget = self._budget(request)
        return None if budget is None else int(PREFETCH_SHARE * budget)

    def trial_bytes_max(self, request: Mapping[str, Any]) -> int:
        """What a process beside this one may use: what this one would have left for a function, or
        half of what the machine has."""
        most = self.function_bytes_max(request)
        if most:
            return max(TRIAL_BYTES_MIN, most - used_bytes())
        lines = Path("/proc/meminfo").read_text().splitlines()
        (kib,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return max(TRIAL_BYTES_MIN, int(kib) * 1024 // 2)

    def _budget(self, request: Mapping[str, Any]) -> int | None:
        told: int | None = request.get("memory_bytes_max")
        if told is not None or self.allowed_bytes is None:
            return told
        return max(0, self.allowed_bytes - self.beside_bytes)


def _reading(used: int, peak: int, budget: int | None) -> dict[str, int | None]:
    """As it stands in a report (docs/formats.md)."""
    return {"used_bytes": used, "peak_bytes": peak, "max_bytes": budget}


def share_arena() -> None:
    """Have all threads allocate in one place, before there are any. Places of their own keep what
    was freed at their end, whoever asks for it: 40 of 226 MiB beside a state of 70."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def sizes_of_states(program: Program, versions: Mapping[int, Versions]) -> dict[str, int]:
    """Bytes of each partition's largest state; versions of one share most of theirs."""
    sizes = {}
    for number, kept in list(versions.items()):
        function = program.owner[number].root.function
        states = list(kept.by_epoch.values())
        sizes[str(number)] = max((function.state_bytes(s.operator) for s in states), default=0)
    return sizes


def used_bytes() -> int:
    """Anonymous memory of this process."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * PAGE_BYTES


def trimmed_bytes() -> int:
    """Anonymous memory of this process, once its allocator has given back to the kernel what it
    keeps for later. That was 125 of 300 MiB after forty epochs of a window of a million panes, and
    took 8 ms."""
    pa.default_memory_pool().release_unused()
    return used_bytes()


def _peak_bytes() -> int:
    """The most that was in use since the last call; 0 where the kernel does not tell."""
    with suppress(OSError, KeyError):
        lines = Path("/proc/self/status").read_text().splitlines()
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        highest, files, shared = (
            int(fields[name][0]) * 1024 for name in ("VmHWM", "RssFile", "RssShmem")
        )
        Path("/proc/self/clear_refs").write_text("5")  # it begins anew
        return highest - files - shared
    return 0


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
