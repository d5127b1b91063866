"""The CPU that this machine gives a run: idle CPU, and how long processes wait for a CPU.

    processes ─► /proc/PID/task/*/schedstat   ran, waited in a run queue
    machine   ─► /proc/stat                   at rest
    cgroups   ─► cpu.stat                     periods in which a quota was used up
                                              └─► `between` two readings: one `machine` record

A thread of a node whose quota is used up stands in a run queue too, and the kernel counts that as
waiting. So a node counts in a sample only if its quota was not used up in it: a node that has used
it up got all that it may have. Nodes that start do not count, for their weight is low on purpose.
`demo_scenario` calls this.
"""

import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.spark_cluster import LocalCluster

SAMPLE_SECONDS = 1.0
# The part of a run that is no node: driver, control plane, and the demo itself.
SERVING = "serving"

# (seconds run, seconds waited) of each thread, by its id.
Waits = Mapping[int, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Counters:
    """All counters at one moment, each since its beginning.

    `waits` are by part of the run, a node or what serves all nodes, `throttled` counts the periods
    in which a node's quota was used up, `outer_throttled` the same of the group around the whole.
    `idle_seconds` is None where the kernel does not tell.
    """

    at: float
    cores: int
    idle_seconds: float | None
    waits: Mapping[str, Waits] = field(default_factory=dict)
    throttled: Mapping[str, int] = field(default_factory=dict)
    outer_throttled: int = 0


@dataclass(slots=True)
class MachineLoad:
    """Reads the counters of one run once a second, for whoever asks more often."""

    cluster: LocalCluster
    driver: DriverProcess
    control: LocalControlPlane
    _newest: Counters | None = None
    _starting: frozenset[str] = frozenset()

    def sample(self, starting: Collection[str]) -> dict[str, Any] | None:
        """Give the fields of a `machine` record about the time since the last one; None until a
        second is over. `starting` are the nodes that have not joined yet."""
        newest = self._newest
        if newest is not None and time.monotonic() - newest.at < SAMPLE_SECONDS:
            return None
        reading, before = self._read(), self._starting
        self._newest, self._starting = reading, frozenset(starting)
        return None if newest is None else between(newest, reading, before | self._starting)

    def _read(self) -> Counters:
        nodes = [node.name for node in self.cluster.nodes]
        sessions = self._sessions()
        waits: dict[str, dict[int, tuple[float, float]]] = {SERVING: read_waits(Path("/proc/self"))}
        for name in os.listdir("/proc"):
            part = sessions.get(_session(name)) if name.isdigit() else None
            if part is not None:
                waits.setdefault(part, {}).update(read_waits(Path("/proc", name)))
        return Counters(
            at=time.monotonic(),
            cores=len(os.sched_getaffinity(0)),
            idle_seconds=_idle_now(),
            waits=waits,
            throttled={name: self.cluster.throttled_periods(name) for name in nodes},
            outer_throttled=self.cluster.outer_throttled_periods(),
        )

    def _sessions(self) -> dict[int, str]:
        """Which part of the run a session of processes is, by its id."""
        leaders = self.cluster.leaders().items()
        sessions = {leader: name for name, leader in leaders if leader is not None}
        serving = [*self.control.leading_processes(), self.cluster.leading_process()]
        serving += [None if self.driver.process is None else self.driver.process.pid]
        return sessions | {leader: SERVING for leader in serving if leader is not None}


def between(before: Counters, after: Counters, starting: Collection[str]) -> dict[str, Any]:
    """Give the fields of a `machine` record: shares of 1, cores, seconds.

    `starting` are the nodes that count as starting in that time.
    """
    seconds = after.at - before.at
    spent = {part: _spent(before, after, part) for part in after.waits}
    counted = [
        spent[part] for part in spent if part not in starting and not _used_up(before, after, part)
    ]
    ran, waited = (sum(pair[index] for pair in counted) for index in (0, 1))
    own = sum(run_seconds for run_seconds, _ in spent.values()) / seconds
    idle_share = _idle_share(before, after)
    busy = None if idle_share is None else after.cores * (1 - idle_share)
    return {
        "seconds": seconds,
        "cores": after.cores,
        "idle_share": idle_share,
        "waiting_share": waited / (ran + waited) if ran + waited > 0 else None,
        "own_cores": own,
        "other_cores": 0.0 if busy is None else max(0.0, busy - own),
        "outer_throttled": after.outer_throttled > before.outer_throttled,
        "starting_waited_seconds": sum(spent[part][1] for part in spent if part in starting),
    }


def read_waits(process: Path) -> dict[int, tuple[float, float]]:
    """Read the threads of the process with this folder in /proc; none when it is gone, or where
    the kernel does not count (proc(5): schedstat has nanoseconds run and waited)."""
    found: dict[int, tuple[float, float]] = {}
    # a run has hundreds of threads, so no objects and no decoding where they can be spared
    tasks = f"{process}/task"
    with suppress(OSError):
        for thread in os.listdir(tasks):
            with suppress(OSError, ValueError):
                descriptor = os.open(f"{tasks}/{thread}/schedstat", os.O_RDONLY)
                try:
                    ran, waited = os.read(descriptor, 100).split()[:2]
                finally:
                    os.close(descriptor)
                found[int(thread)] = (int(ran) / 1e9, int(waited) / 1e9)
    return found


def read_idle_seconds(statistics: str, cores: Collection[int], ticks: int) -> float | None:
    """Read from the text of /proc/stat how long these cores were at rest; None without a figure
    for each."""
    found = 0
    rows = {
        line.split()[0]: line.split()[1:]
        for line in statistics.splitlines()
        if line.startswith("cpu")
    }
    for core in cores:
        row = rows.get(f"cpu{core}", ())
        if len(row) < 5 or not any(int(value) for value in row):
            return None
        found += int(row[3]) + int(row[4])  # idle, and waiting for a disk
    return found / ticks


def _idle_now() -> float | None:
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return None
    return read_idle_seconds(text, os.sched_getaffinity(0), os.sysconf("SC_CLK_TCK"))


def _session(process: str) -> int:
    """The session of a process, 0 when it is gone."""
    try:
        return os.getsid(int(process))
    except OSError:
        return 0


def _spent(before: Counters, after: Counters, part: str) -> tuple[float, float]:
    """What the threads of a part ran and waited in between; what ended in between is not known."""
    earlier = before.waits.get(part, {})
    ran = waited = 0.0
    for thread, (ran_by_now, waited_by_now) in after.waits[part].items():
        ran_before, waited_before = earlier.get(thread, (0.0, 0.0))
        ran += max(0.0, ran_by_now - ran_before)
        waited += max(0.0, waited_by_now - waited_before)
    return ran, waited


def _used_up(before: Counters, after: Counters, part: str) -> bool:
    return after.throttled.get(part, 0) > before.throttled.get(part, 0)


def _idle_share(before: Counters, after: Counters) -> float | None:
    if before.idle_seconds is None or after.idle_seconds is None:
        return None
    share = (after.idle_seconds - before.idle_seconds) / (after.cores * (after.at - before.at))
    return min(1.0, max(0.0, share))
