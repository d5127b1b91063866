"""Signs of a host's progress on each job, kept where the host's JVM can read them.

    host: an entry for each request ──file──► HostPlugin.java ──heartbeat──► driver (`job_idleness`)

Loading and writing take as long as the store takes, and there is no time that would be too long as
long as bytes move. So the driver does not ask for how long a job has run, but since when nothing
has been done for it. The file is the one with the notes of what runs (`watchdog`), behind these: it
can be read though a function holds the interpreter's lock.
"""

import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from mmap import mmap

from rekindle_spark.user_code import watchdog
from rekindle_spark.user_code.watchdog import Noted

# The number of a job, signs of progress, and what was begun last: ASCII, cut off where it is long.
ENTRY = struct.Struct(">qq160s")
# More requests than an executor has tasks at a time are not served, but for those of given-up jobs.
ENTRIES = 16
FILE_BYTES = watchdog.NOTES_BYTES + ENTRIES * ENTRY.size
# In the place of a job's number: states of checkpoints, which are written behind the jobs.
CHECKPOINTS, NOBODY = -1, 0
# What the JVM puts before the file: blocks that it has read, and the CPU time of each noted thread.
HEAD = struct.Struct(f">q{watchdog.LANES}q")


@dataclass(slots=True)
class Entry:
    """One request: each `sign` says that something has been done for it."""

    activity: "Activity"
    place: int | None
    job: int
    signs: int = 0
    what: str = ""

    def begin(self, what: str) -> None:
        """Something is begun."""
        self.what = what
        self.sign()

    def sign(self, _: int = 0) -> None:
        """Some bytes have come or gone, or something is done."""
        self.signs += 1
        if self.place is not None:
            self.activity.write(self.place, self.job, self.signs, self.what)


@dataclass(slots=True)
class Activity:
    """The entries of all requests of a host. Where there is no room for one more, it has no entry;
    then all that the executor does counts for it (`Signs.of`)."""

    memory: mmap | bytearray = field(default_factory=lambda: bytearray(FILE_BYTES))
    taken: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def entry(self, job: int) -> Iterator[Entry]:
        """An entry for as long as a request is being served."""
        with self.lock:
            free = [place for place in range(ENTRIES) if place not in self.taken]
            place = free[0] if free else None
            self.taken |= {place} if place is not None else set()
        entry = Entry(self, place, job)
        try:
            entry.begin("")
            yield entry
        finally:
            if place is not None:
                try:
                    self.write(place, NOBODY, 0, "")
                finally:  # whatever is raised, the place is free for the next
                    with self.lock:
                        self.taken.discard(place)

    def write(self, place: int, job: int, signs: int, what: str) -> None:
        """Write one entry."""
        position = watchdog.NOTES_BYTES + place * ENTRY.size
        ENTRY.pack_into(self.memory, position, job, signs, what.encode("ascii", "replace"))


@dataclass(frozen=True, slots=True)
class Signs:
    """What an executor said last: blocks read, by lane the function that runs and the CPU time of
    its thread in nanoseconds, and by job the signs of its requests and what each began last."""

    blocks: int = 0
    lanes: tuple[tuple[Noted | None, int], ...] = ()
    entries: Mapping[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def of(self, job: int, partitions: frozenset[int]) -> object:
        """Something that changes as long as a job goes on here. One that the host has not begun
        reads its blocks, or waits for its turn to run: then all that is done here counts."""
        if job not in self.entries and job == CHECKPOINTS:
            return ()
        if job not in self.entries:
            return (self.blocks, self.lanes, self.entries)
        ours = (lane for lane in self.lanes if lane[0] and lane[0].partition in partitions)
        return (self.entries[job], *ours)

    def what(self, job: int) -> str:
        """What was begun last for a job."""
        if job in self.entries:
            return self.entries[job][1]
        return "" if job == CHECKPOINTS else "its task has not begun"


def read_all(data: Mapping[str, bytes], executors: Iterable[str]) -> dict[str, Signs]:
    """What some executors said last."""
    return {executor: read(data.get(executor, b"")) for executor in executors}


def read(data: bytes) -> Signs:
    """What the JVM has sent; trailing zeros may be missing."""
    if len(data) < HEAD.size:
        return Signs()
    blocks, *cpu = HEAD.unpack_from(data)
    file = data[HEAD.size :].ljust(FILE_BYTES, b"\0")
    found: dict[int, tuple[tuple[int, ...], str]] = {}
    for job, signs, text in ENTRY.iter_unpack(file[watchdog.NOTES_BYTES : FILE_BYTES]):
        if job != NOBODY:
            before, _ = found.get(job, ((), ""))
            found[job] = ((*before, signs), text.rstrip(b"\0").decode("ascii", "replace"))
    places = range(0, watchdog.NOTES_BYTES, watchdog.SIZE)
    noted = [watchdog.read(file[place : place + watchdog.SIZE]) for place in places]
    return Signs(blocks, tuple(zip(noted, cpu, strict=True)), found)
