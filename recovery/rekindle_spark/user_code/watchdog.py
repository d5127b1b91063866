"""Notes the present work of a process where the note outlives it, and limits each call.

A host notes partition, epoch and step before it calls a function of a user, in a file that it has
mapped into its memory: a note for each of its lanes (`host_scheduler`), one behind the other. The
JVM beside it reads the file: when the host has died, to say on what, and all the time, to end a
host whose function takes too long. So it does not matter whether the function holds the
interpreter's lock. A sandbox does the same with its trials. Time for which a
function could have run, and got no CPU, does not count, nor does time in which it may wait for the
interpreter's lock while a call in the other lane runs. A host in which a function uses far more
memory than it may is ended too: a limit of the kernel (RLIMIT_DATA) would have the function raise,
but the allocator does not give back what it got close to the limit. Used by `partition` and
`dead_letter_sieve`; `host` and `sandbox` make them.
"""

import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Partition, epoch, number of the call in them, thread, signs of progress, limits in seconds and in
# bytes, step: names have at most 100 ASCII characters. HostWatch.java reads it too.
LAYOUT = struct.Struct(">iqqiqdq100s")
SIZE = LAYOUT.size
NOTHING = LAYOUT.pack(-1, 0, 0, 0, 0, 0.0, 0, b"")
# The notes of a host: one for each lane.
LANES = 2
NOTES_BYTES = LANES * SIZE
# Exit codes of processes that a signal has ended, and of those that a watcher has.
SIGNALLED = 128
TOOK_TOO_LONG, USED_TOO_MUCH = SIGNALLED + signal.SIGALRM, SIGNALLED + signal.SIGXFSZ
# Parts of an input get less time than the whole of it, and so does who is waited for by others.
PART_SHARE, PART_SECONDS_MIN = 0.1, 1.0
# How often the time of one call a whole search may take.
SEARCH_CALLS_MAX = 10
# A watcher that was stopped itself has seen nothing meanwhile.
LOOK_SECONDS_MAX = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted behind the name of the program (proc(5)).
UTIME, STIME = 11, 12


class EndedProcess(Exception):
    """A call of a function is known to end its process, so it is not made again."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What a process was working on. `call` counts the calls of functions in this partition and
    epoch; it is 0 where none was made. `progress` grows as long as functions do their work."""

    partition: int
    epoch: int
    call: int
    step: str
    thread: int = 0
    progress: int = 0
    limit_seconds: float = 0.0
    limit_bytes: int = 0


@dataclass(slots=True)
class Watchdog:
    """Notes one piece of work at a time in `memory`, behind `place` bytes, and limits each call to
    `seconds_max`.

    0 seconds are no limit, nor are 0 bytes. Where it `counts`, each single call is noted; otherwise
    many short ones count as one. In a search `ended` has the calls that are known to end the
    process, with how they do, and `searched` the limits of the steps at fault for the calls behind
    these.
    """

    memory: mmap.mmap | bytearray = field(default_factory=lambda: bytearray(SIZE))
    seconds_max: float = 0.0
    ended: Mapping[int, str] = field(default_factory=dict)
    searched: Mapping[str, float] = field(default_factory=dict)
    counts: bool = False
    memory_bytes_max: int = 0
    place: int = 0
    partition: int = -1
    epoch: int = 0
    calls: int = 0
    thread: int = 0
    signs: int = 0
    limit_seconds: float = 0.0

    def begin(self, partition: int, epoch: int, step: str) -> None:
        """Note a partition and epoch that begin, with the chain's first step."""
        self.partition, self.epoch, self.calls = partition, epoch, 0
        self.thread, self.limit_seconds = threading.get_native_id(), 0.0
        self._note(step)

    def calling(self, step: str) -> EndedProcess | None:
        """Note a call of a step's function and limit it; or return what is known to come of it."""
        self.calls += 1
        is_behind = bool(self.ended) and self.calls > min(self.ended)
        limit_seconds = self.searched.get(step, self.seconds_max)
        self.limit_seconds = limit_seconds if is_behind else self.seconds_max
        self._note(step)
        if self.calls in self.ended:
            return EndedProcess(self.ended[self.calls])
        return None

    def end(self) -> None:
        """Note that nothing is being worked on."""
        self.memory[self.place : self.place + SIZE] = NOTHING

    def _note(self, step: str) -> None:
        self.signs += 1
        LAYOUT.pack_into(
            self.memory,
            self.place,
            self.partition,
            self.epoch,
            self.calls,
            self.thread,
            self.signs,
            self.limit_seconds,
            self.memory_bytes_max if self.calls else 0,
            step.encode(),
        )


@dataclass(slots=True)
class Clock:
    """How long the call that a process has noted has been able to run, by looking now and then.

    What counts is the thread's CPU time while it can run, and all of the time while it waits for
    something.
    """

    process: int
    progress: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    looked_at: float = 0.0

    def is_over(self, noted: Noted | None) -> bool:
        """Look; whether the call has taken longer than it may."""
        if noted is None:
            self.progress = 0
            return False
        return self.look(noted, time.monotonic(), *_state(self.process, noted.thread))

    def look(self, noted: Noted, now: float, cpu_seconds: float, runs: bool) -> bool:
        """The same, with what is found of the thread: the CPU time that it has had, and whether it
        runs or could run."""
        if noted.progress == self.progress:
            elapsed_seconds = min(now - self.looked_at, LOOK_SECONDS_MAX)
            self.seconds += cpu_seconds - self.cpu_seconds if runs else elapsed_seconds
        else:
            self.progress, self.seconds = noted.progress, 0.0
        self.looked_at, self.cpu_seconds = now, cpu_seconds
        return 0.0 < noted.limit_seconds < self.seconds


def _state(process: int, thread: int) -> tuple[float, bool]:
    """CPU seconds of a thread, and whether it runs or could run; gone threads wait."""
    folder = Path(f"/proc/{process}/task/{thread}")
    try:
        nanoseconds = int((folder / "schedstat").read_text().split()[0])
        runs = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except (OSError, IndexError, ValueError):
        return 0.0, False
    return nanoseconds / 1e9, runs


def mapped(path: Path, size: int = NOTES_BYTES) -> mmap.mmap:
    """A new file for a host's notes, with room for what comes behind them, mapped into memory."""
    path.write_bytes((LANES * NOTHING).ljust(size, b"\0"))
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def read(note: bytes) -> Noted | None:
    """What a note says; None where nothing was worked on, or the note is torn."""
    if len(note) < SIZE:
        return None
    partition, epoch, call, *limits, step = LAYOUT.unpack(note[:SIZE])
    try:
        name = step.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
    return None if partition < 0 else Noted(partition, epoch, call, name, *limits)


def read_all(notes: bytes) -> tuple[Noted, ...]:
    """What the notes of a host's lanes say, one behind the other, of those that worked."""
    found = (read(notes[place : place + SIZE]) for place in range(0, len(notes), SIZE))
    return tuple(noted for noted in found if noted is not None)


def suspected(notes: Sequence[Noted]) -> tuple[Noted, ...]:
    """The work that a process may have died of: where it had called functions, no other work."""
    return tuple(noted for noted in notes if noted.call) or tuple(notes)


def part_seconds(seconds_max: float) -> float:
    """The limit on a call with a part of an input, or with one that others wait for."""
    return min(seconds_max, max(PART_SECONDS_MIN, PART_SHARE * seconds_max))


def described(exit_code: int, noted: Noted | None) -> str:
    """How a function ended its process, or was ended with it; signals count from 128, as in a
    shell."""
    if exit_code == TOOK_TOO_LONG and noted is not None:
        return f"took longer than {noted.limit_seconds:g} s"
    if exit_code == USED_TOO_MUCH and noted is not None:
        return f"used more than {noted.limit_bytes >> 20} MiB of memory"
    if exit_code > SIGNALLED:
        try:
            return f"ended its process with {signal.Signals(exit_code - SIGNALLED).name}"
        except ValueError:
            pass
    return f"ended its process with exit code {exit_code}"


def cpu_seconds(process: int) -> float:
    """CPU time of a process, with that of its threads that have ended; 0 where there is none. It
    grows by ticks of 10 ms."""
    try:
        found = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(found[UTIME]) + int(found[STIME])) / TICKS_PER_SECOND
    except (OSError, IndexError, ValueError):
        return 0.0


def used_bytes(process: int) -> int:
    """Anonymous memory of a process; 0 where it has ended."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES
