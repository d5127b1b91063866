"""CPU used by an executor: per operator partition, and by all its processes together.

The paper's rule (section 2.3): a partition's usage is its task's usage times its share of the
task's rows. A task here is an operator on one executor; the driver does the sharing
(`cost_statistics`).
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Stopwatch:
    """Adds up the time of the blocks that it is entered for, in seconds."""

    seconds: float = 0.0
    began: float = 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self.began


@dataclass(slots=True)
class CpuMeter:
    """Measures work by process time, and the whole executor by its processes' times.

    Where one piece of work runs, the process's time is that work's, with what the data library's
    own threads did for it. Where two run, in both lanes of a host, each has its thread's time, and
    what other threads have used is shared in the ratio of these. `running` has for each thread
    with work its partition and the CPU time that it had `spent` when somebody looked last, and
    `beside` is what processes beside the host have spent for partitions.
    """

    processes: tuple[int, ...]
    totals: dict[int, float] = field(default_factory=dict)
    running: dict[int, tuple[int, float]] = field(default_factory=dict)
    spent: float = 0.0
    beside: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def measured(self, partition: int) -> Iterator[None]:
        """Count the CPU time of the block for `partition`, also where it fails."""
        thread = threading.get_ident()
        with self.lock:
            self._settle()
            self.running[thread] = (partition, time.thread_time())
        try:
            yield
        finally:
            with self.lock:
                self._settle()
                del self.running[thread]

    def _settle(self) -> None:
        """Enter what has been used since somebody looked last. The caller holds the lock."""
        process, before = time.process_time(), self.spent
        self.spent = process
        seconds: dict[int, float] = {}
        for thread, (partition, had) in self.running.items():
            has = time.clock_gettime(time.pthread_getcpuclockid(thread))
            self.running[thread] = (partition, has)
            seconds[partition] = seconds.get(partition, 0.0) + has - had
        own = sum(seconds.values())
        for partition, used in seconds.items():
            share = used / own if own else 1 / len(seconds)
            self._add(partition, share * (process - before))

    def add(self, partition: int, seconds: float) -> None:
        """Count CPU time that another process has spent for `partition`."""
        with self.lock:
            self._add(partition, seconds)
            self.beside += seconds

    def _add(self, partition: int, seconds: float) -> None:
        self.totals[partition] = self.totals.get(partition, 0.0) + seconds

    def read(self) -> dict[str, Any]:
        """CPU seconds per partition since the last call, and of all processes since start."""
        with self.lock:
            work = {str(number): seconds for number, seconds in self.totals.items()}
            self.totals.clear()
            beside = self.beside
        return {"work": work, "processes": beside + sum(map(_seconds, self.processes))}


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
