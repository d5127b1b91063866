"""Samples where CPU time of a Python process goes: stacks of threads, weighted by their CPU.

    every `PERIOD_SECONDS` in which the process has used something, for each thread:
        CPU since the last look ──► the stack that it has now

A stack is charged with what its thread has used, so threads that wait weigh nothing, and a
call into a native library counts for the line that called it. Off unless `REKINDLE_PROFILE` names
a folder; then `ROLE-PID.stacks` there is written anew each second, lines of `frame;frame;frame
MICROSECONDS` as flame graphs take them. `label` puts a name before the stacks of a thread.

Host and driver begin it; `rekindle bench profile` reads the files.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rekindle.model.errors import InputError

FOLDER = "REKINDLE_PROFILE"
PERIOD_SECONDS = 0.005
WRITE_SECONDS = 1.0
# a process that has used less since the last look is not looked at: it is charged the next time
IDLE_NANOSECONDS = 100_000
DEPTH_MAX = 60
# beyond so many different stacks new ones are charged to one of this name
STACKS_MAX, OTHERS = 20_000, "others"

# of linux/posix-timers.h: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED
_CLOCK_OF_THREAD = 4 | 2

_labels: dict[int, str] = {}


def begin(role: str, *, refuses: bool = True) -> None:
    """Sample this process until it ends, if that is asked for. Raises InputError where files cannot
    be made, or says so and goes on where it `refuses` nothing."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    if not os.access(folder, os.W_OK | os.X_OK) or not Path(folder).is_dir():
        error = InputError(
            where=FOLDER,
            what=f"is {folder[:200]}, no folder in which files can be made here",
            remedy="name one, or leave it out",
        )
        if refuses:
            raise error
        print(error, file=sys.stderr)
        return
    StackSampler(role, Path(folder) / f"{role}-{os.getpid()}.stacks").start()


@contextmanager
def label(name: str) -> Iterator[None]:
    """Put a name before the stacks of this thread, in place of one that it has."""
    thread = threading.get_ident()
    before = _labels.get(thread)
    _labels[thread] = name
    try:
        yield
    finally:
        if before is None:
            del _labels[thread]
        else:
            _labels[thread] = before


@dataclass(slots=True)
class StackSampler:
    """Microseconds by stack, whose first frame is `role`; `used` has what threads had used, and
    `looked_at` what all of them together had, in nanoseconds."""

    role: str
    path: Path
    microseconds: Counter[str] = field(default_factory=Counter)
    used: dict[int, int] = field(default_factory=dict)
    looked_at: int = -IDLE_NANOSECONDS - 1

    def start(self) -> None:
        """In a thread of its own, which is charged too."""
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def _run(self) -> None:
        written_at = 0.0
        while True:
            self.look_if_used()
            if time.monotonic() - written_at > WRITE_SECONDS:
                try:
                    self.write()
                except OSError as error:  # the folder has gone or is full: the process goes on
                    print(f"{self.path}: cannot be written ({error.strerror})", file=sys.stderr)
                    return
                written_at = time.monotonic()
            time.sleep(PERIOD_SECONDS)

    def look_if_used(self) -> None:
        """Look where threads other than this one have used something since the last time."""
        used = time.process_time_ns() - time.thread_time_ns()
        if used - self.looked_at > IDLE_NANOSECONDS:
            self.looked_at = used
            self.look()

    def look(self) -> None:
        """Charge what each thread has used since the last look; the first look charges nothing, for
        what was before it has no stack."""
        stacks = sys._current_frames()
        known, seen = self.used, {}
        for thread in threading.enumerate():
            if thread.ident is None or thread.native_id is None:
                continue
            nanoseconds = _used_nanoseconds(thread.native_id)
            seen[thread.native_id] = nanoseconds
            spent = nanoseconds - known.get(thread.native_id, 0)
            if known and spent > 0 and thread.ident in stacks:
                stack = self._stack(stacks[thread.ident], _labels.get(thread.ident))
                if stack not in self.microseconds and len(self.microseconds) >= STACKS_MAX:
                    stack = f"{self.role};{OTHERS}"
                self.microseconds[stack] += spent // 1000
        self.used = seen

    def write(self) -> None:
        """Replace the file by what is known now."""
        lines = [f"{stack} {spent}\n" for stack, spent in sorted(self.microseconds.items())]
        draft = self.path.with_suffix(".draft")
        draft.write_text("".join(lines))
        draft.replace(self.path)

    def _stack(self, frame: FrameType | None, name: str | None) -> str:
        found: list[str] = []
        while frame is not None and len(found) < DEPTH_MAX:
            module = frame.f_globals.get("__name__", "?")
            found.append(f"{module}.{frame.f_code.co_qualname}")
            frame = frame.f_back
        return ";".join((self.role, *([name] if name else []), *reversed(found)))


def _used_nanoseconds(thread: int) -> int:
    """CPU time of a thread of this process, 0 when it has just ended. By Linux's clock of the
    thread, whose number is made of the thread's: to read a file for it takes fifty times as long.
    """
    try:
        return time.clock_gettime_ns(~thread << 3 | _CLOCK_OF_THREAD)
    except OSError:
        return 0
