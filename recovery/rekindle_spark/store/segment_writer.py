"""Puts commit records that all checkpoints cover into segments, in the background of a driver.

    records' own files ──all read──► segment made ──read again──► own files removed ──► next segment

What is done is the same whoever does it, and may end anywhere: a segment counts as soon as it is
there, and until then the records' own files do. So a driver that was superseded does no harm, and
one that starts only removes what the last segment has made needless, once more.

A segment keeps no digests. Whichever checkpoint a start goes on from, its fold has those of what
may run again, and no record in a segment is behind it: `CheckpointStore.covered`.

A record that sealed the log at a driver's start keeps its own file for good. It is where a commit
of the driver before would go that is still on its way, however late: that must find the name taken.

Processes that are killed while they write leave files. These are removed before the first segment,
PAUSE_SECONDS after the start, and once a day from then on.
Called by `driver_main`. Readers: `rekindle_store.commit_log`.
"""

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, RunError, first_line
from rekindle_store import commit_log, commit_segments
from rekindle_store.commit_segments import CommitSegment, Record
from rekindle_store.store_files import Files

# Between two segments: an old store with a million records is not put together at once.
PAUSE_SECONDS = 5.0
# Of a file that a process was killed at; who lives is not at one for so long.
LEFTOVER_SECONDS = 86_400.0
READERS = 16


@dataclass(slots=True)
class SegmentWriter:
    """Makes segments of the records up to the number that `covered` gives, but for the last.
    `trouble` is told of a record that cannot be read; the log then stays as it is from there on."""

    files: Files
    covered: Callable[[], int]
    trouble: Callable[[str], None] = lambda _: None
    begin: int = 0
    # when leftovers are removed next, by time.monotonic()
    leftovers_at: float = 0.0
    ending: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        """Begin in a thread, which goes on until `stop`."""
        thread = threading.Thread(target=self._run, name="sealing", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Have the thread end once it has done what it is at."""
        self.ending.set()

    def _run(self) -> None:
        while not self.ending.wait(PAUSE_SECONDS):
            self._remove_leftovers()
            try:
                self.advance()
            except RunError as error:
                self.trouble(str(error))
                return
            except OSError:
                continue  # the store is away: what is not sealed now will be later
            except Exception as error:  # a bug: it is not to end this thread unnoticed
                traceback.print_exc()
                self.trouble(f"ended by {type(error).__name__}: {first_line(error)}")
                return

    def _remove_leftovers(self) -> None:
        """Remove them once a day: a driver may live for months, and lose executors all the time."""
        now = time.monotonic()
        if now >= self.leftovers_at:
            self.leftovers_at = now + LEFTOVER_SECONDS
            with suppress(OSError):  # what cannot be removed now goes a day later
                self.files.remove_leftovers(LEFTOVER_SECONDS)

    def advance(self) -> bool:
        """Make the next segment, if all checkpoints cover it; whether it has been made.

        Raises DamagedError for a record that is not there or not whole, OSError while the store is
        away. Done again after an error, it goes on where it was.
        """
        covered = self.covered()
        if not self.begin:
            self.begin = commit_segments.first_of(max(1, commit_segments.newest(self.files)))
        # the newest record keeps its own file, so that it can be found by listing them
        if self.begin + commit_segments.LENGTH > covered:
            return False
        segment = commit_segments.read(self.files, self.begin) or self._made(self._own_lines())
        self.files.remove(
            [
                _name(number)
                for number, record in segment.records()
                if not commit_log.is_seal(record)
            ]
        )
        self.begin += commit_segments.LENGTH
        return True

    def _own_lines(self) -> list[bytes]:
        """The lines of the next segment's records, from their own files."""
        numbers = range(self.begin, self.begin + commit_segments.LENGTH)
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(self._read, numbers))

    def _made(self, lines: list[bytes]) -> CommitSegment:
        """The next segment, which is made, and read again. What is damaged is not passed on."""
        data = commit_segments.pack(self._decoded(lines))
        # an older driver may be faster: it packs in another way, or is of the version before
        with suppress(FileExistsError):
            self.files.create(commit_segments.name_of(self.begin), data)
        made = commit_segments.read(self.files, self.begin)
        if made is None or not self._is_of(made, lines):
            raise commit_segments.damaged(self.files, self.begin, "is not what its records are")
        return made

    def _is_of(self, segment: CommitSegment, lines: list[bytes]) -> bool:
        """Whether a segment has all that is kept of the records that have these lines."""
        pairs = zip(segment.records(), self._decoded(lines), strict=True)
        kept = commit_segments.kept
        return all(kept(record) == kept(own) for (_, record), own in pairs)

    def _read(self, number: int) -> bytes:
        try:
            return self.files.read(_name(number))
        except FileNotFoundError:
            # an older driver may just have made it
            segment = commit_segments.read(self.files, number)
            if segment is not None:
                return segment.own_file(number)
            where = f"{self.files.place}/{_name(number)}"
            remedy = "restore it from a copy of the store"
            raise DamagedError(where=where, what="is not there", remedy=remedy) from None

    def _decoded(self, lines: list[bytes]) -> Iterator[Record]:
        for number, line in enumerate(lines, self.begin):
            yield record_format.decode("commit", line, f"{self.files.place}/{_name(number)}")


def _name(number: int) -> str:
    return f"commits/{number}.json"
