"""Keeps users' code from ending, blocking, moving or flooding the command that calls it.

While a guard is on, in the main thread:

    reads standard input       InputError with the line: a driver on a cluster has none
    os._exit, sys.exit         InputError with the line
    raises KeyboardInterrupt   an error like others, and told from Ctrl-C
    runs for too long          a note after a while, then InputError with the line
    starts Spark               InputError with the line: that is the driver's
    starts a thread            it becomes a daemon, so that it cannot hold up the end; a finding
    changes the folder         set back; a finding with the line
    limits the recursion       set back
    prints                     to standard error, up to a limit

What ends the process all the same, `child_process` sees from outside. Called by `pipeline_file`
around a pipeline file's import, and by commands around its functions.
"""

import io
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from pyspark import SparkContext

from rekindle import interrupts
from rekindle.model.errors import InputError
from rekindle_cli import child_process
from rekindle_spark.checks.check_findings import CheckFinding, warning
from rekindle_spark.user_code import code_locations
from rekindle_spark.user_code.print_forwarding import ForwardingFile
from rekindle_spark.user_code.watchdog import Watchdog, read

PRINTED_LINES_MAX = 200
NOTE_SECONDS, TICK_SECONDS = 10.0, 0.25
# How long code that ignores the interruption, or never returns from C, may go on; then how long
# until the parent of this process ends it, where the watchdog here has not even come to run.
GRACE_SECONDS, PARENT_SECONDS = 1.5, 0.5
WATCHED_SECONDS = GRACE_SECONDS + PARENT_SECONDS
# What code may use up in any case, however late it is.
LEAST_SECONDS = 3.0
# What to do instead of starting a thread, on import and in a function.
NO_THREADS = "start none while the pipeline is made: executors do not have it"
NO_THREADS_IN_FUNCTIONS = (
    "let the function do the work itself, or join the thread before it returns: what is done "
    "later belongs to no epoch"
)
# Guarded code finds other functions under these names.
EXIT_AT_ONCE, CHDIR, FCHDIR = child_process.EXIT_AT_ONCE, os.chdir, os.fchdir


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long users' code may take, and the option that lets it take longer.

    From the moment `ends_at` (of `time.monotonic`) on it is given up as soon as it has used
    `LEAST_SECONDS`: on a busy machine its time would not be over for a long while.
    """

    seconds_max: float
    option: str = ""
    ends_at: float = math.inf

    def are_over(self, used_seconds: float, now: float) -> bool:
        """Say whether code that has used so many seconds is to be given up."""
        is_late = now >= self.ends_at and used_seconds >= LEAST_SECONDS
        return is_late or used_seconds >= self.seconds_max


class CodeTooSlowError(InputError):
    """Users' code was given up because it took too long."""


class _TooSlow(code_locations.Stopped):
    """Users' code has run for too long."""


class _Exited(code_locations.Stopped):
    """Users' code has called os._exit, with this code."""


class _Interrupted(code_locations.Stopped):
    """Ctrl-C, while users' code runs."""


@dataclass(slots=True)
class Guard:
    """What a guard has seen. `what` names the guarded code in messages.

    `used_seconds` is how long the code has run since it last got on (`renew`). `watchdog` notes
    what it works on for the parent of this process, where there is one (`child_process`).
    `is_interrupted` says that Ctrl-C was pressed, whatever the code has made of that.
    """

    what: str
    findings: list[CheckFinding] = field(default_factory=list)
    line: str = ""
    moved_at: str = ""
    used_seconds: float = 0.0
    is_interrupted: bool = False
    watchdog: Watchdog = field(default_factory=Watchdog)
    process: int = field(default_factory=os.getpid)

    def renew(self) -> None:
        """Let the code have its whole time again: it has got on."""
        self.used_seconds = 0.0

    def refuse(self, what: str, remedy: str, frame: FrameType | None) -> NoReturn:
        """Raise InputError for what the code does at the user's newest line."""
        raise InputError(where=_where(self.what, frame), what=what, remedy=remedy)


# Those that are on, the innermost last.
_guards: list[Guard] = []


@contextmanager
def guarded(
    what: str, limits: CallLimits, *, remedy_for_threads: str = NO_THREADS, is_quiet: bool = False
) -> Iterator[Guard]:
    """Run the code of the `with` block guarded; `what` names it, as "pipeline file x.py".

    What it prints is left out where it `is_quiet`: it has been shown before. Raises InputError for
    what cannot be let pass; the rest is in the guard's findings.
    """
    before, depth = _current_folder(), sys.getrecursionlimit()
    guard = Guard(what, watchdog=child_process.noting(limits.seconds_max + WATCHED_SECONDS))
    printer = _Printer(sys.stderr, what, 0 if is_quiet else PRINTED_LINES_MAX)
    stdin, start, exit_at_once = sys.stdin, threading.Thread.start, os._exit
    start_spark = SparkContext.__init__
    sys.stdin = _NoInput(guard)
    os._exit = _exit  # type: ignore[assignment]
    os.chdir, os.fchdir = _chdir, _fchdir
    _guards.append(guard)
    SparkContext.__init__ = _no_spark(guard)  # type: ignore[method-assign]
    threading.Thread.start = _noting(guard, start, remedy_for_threads)  # type: ignore[method-assign, assignment]
    try:
        with (
            code_locations.shown_from(before),
            redirect_stdout(printer),
            redirect_stderr(printer),
            _watched(guard, limits),
        ):
            yield guard
        # Libraries may drop the interruption, or raise another error because of it: an import
        # of pandas within one of pyarrow does both.
        if guard.is_interrupted:
            raise _Interrupted
    except _Exited as error:
        guard.refuse(f"calls os._exit({error})", "leave it out", _deepest(error))
    except BaseException:
        if guard.is_interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        # A process that users' code has forked, and that goes on in ours.
        if guard.process != os.getpid():
            EXIT_AT_ONCE(0)
        sys.stdin, os._exit = stdin, exit_at_once
        os.chdir, os.fchdir = CHDIR, FCHDIR
        _guards.pop()
        threading.Thread.start = start  # type: ignore[method-assign]
        SparkContext.__init__ = start_spark  # type: ignore[method-assign]
        sys.setrecursionlimit(depth)
        guard.watchdog.end()
        printer.close_limit()
        _return_to(before, guard)


def _where(what: str, frame: FrameType | None) -> str:
    """The line of the newest frame in a user's file; the guarded code's name where none is."""
    while frame is not None and not code_locations.is_users_file(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return what
    return code_locations.place(frame.f_code.co_filename, frame.f_lineno)


def _deepest(error: BaseException) -> FrameType | None:
    """The frame that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else trace.tb_frame


def _exit(code: int) -> NoReturn:
    if _guards and _guards[-1].process != os.getpid():  # users' code has forked it
        EXIT_AT_ONCE(code)
    raise _Exited(code)


def _no_spark(guard: Guard) -> Callable[..., None]:
    """SparkContext.__init__ for users' code: the one context of this process is the driver's."""

    def refused(*_: Any, **__: Any) -> None:
        guard.refuse(
            "starts Spark by itself",
            "leave it out: `rekindle run` starts Spark, and sources read the data",
            sys._getframe(1),
        )

    return refused


def _noting(guard: Guard, start: Callable[[Any], None], remedy: str) -> Callable[[Any], None]:
    """Thread.start for users' threads: they become daemons, and a finding."""

    def noted(thread: threading.Thread) -> None:
        frame = sys._getframe(1)
        starter = _starter(frame)
        is_quiet = thread.daemon and starter is not frame  # a library's, which ends with us
        if starter is not None and not is_quiet:
            thread.daemon = True
            where = _where(guard.what, frame)
            if all(finding.where != where for finding in guard.findings):
                guard.findings.append(warning(where, f"starts the thread {thread.name!r}", remedy))
        start(thread)

    return noted


def _starter(frame: FrameType | None) -> FrameType | None:
    """The user's frame that starts a thread, itself or by a library; None where we do."""
    while frame is not None:
        file = frame.f_code.co_filename
        if code_locations.is_users_file(file):
            return frame
        if code_locations.is_own_file(file):
            return None
        frame = frame.f_back
    return None


def _current_folder() -> str:
    """The current folder; empty where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _chdir(path: Any) -> None:
    """Stands in for os.chdir."""
    _note_move(sys._getframe(1))
    CHDIR(path)


def _fchdir(fd: Any) -> None:
    """Stands in for os.fchdir."""
    _note_move(sys._getframe(1))
    FCHDIR(fd)


def _note_move(frame: FrameType) -> None:
    """Keep the user's line that has changed the folder last."""
    if _guards:
        _guards[-1].moved_at = _where(_guards[-1].what, frame)


def _return_to(before: str, guard: Guard) -> None:
    """Go back to the folder that the command was called in."""
    now = _current_folder()
    if now == before or not before:
        return
    CHDIR(before)
    guard.findings.append(
        warning(
            guard.moved_at or guard.what,
            f"changes the current folder to {now or 'one that is gone'}; it was set back",
            "begin paths at Path(__file__).parent; executors have a current folder of their own",
        )
    )


class _NoInput(io.TextIOBase):
    """Standard input for users' code: reading it is refused."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def readable(self) -> bool:
        """It looks readable, so that `input` comes here."""
        return True

    def isatty(self) -> bool:
        """It is no terminal."""
        return False

    def fileno(self) -> int:
        """It has no number, so that `input` reads by the methods below."""
        raise io.UnsupportedOperation("fileno")

    def read(self, _: int | None = -1, /) -> str:
        """Refuse."""
        self._refuse()

    def readline(self, _: int = -1, /) -> str:  # type: ignore[override]
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        self._guard.refuse(
            "reads standard input, which a driver on a cluster has not",
            "read a file or an environment variable",
            sys._getframe(2),
        )


class _Printer(ForwardingFile):
    """Passes on what users' code prints, up to a limit of lines while the guard is on.

    Handlers of logging may keep it for longer than that.
    """

    def __init__(self, to: TextIO, what: str, lines_max: int) -> None:
        super().__init__(to)
        self._what = what
        self._lines, self._lines_max = 0, lines_max
        self._is_limited, self._is_within_line = True, False

    def write(self, text: str) -> int:
        """Pass on the text while the limit is not reached."""
        if not self._is_limited or self._lines < self._lines_max:
            self._to.write(text)
            self._is_within_line = not text.endswith("\n") if text else self._is_within_line
        self._lines += text.count("\n")
        return len(text)

    def close_limit(self) -> None:
        """End the last line, say how much was left out; pass on everything from now on."""
        more = self._lines - self._lines_max
        if self._is_limited and self._is_within_line:  # a prompt, before the message about it
            print(file=self._to)
        if self._is_limited and self._lines_max and more > 0:
            print(f"{self._what}: printed {more:,} more lines, left out here", file=self._to)
        self._is_limited = False


@contextmanager
def _watched(guard: Guard, limits: CallLimits) -> Iterator[None]:
    """Interrupt the block when it takes too long; only where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, frame: FrameType | None) -> None:
        if watchdog.done.is_set():  # it was just in time
            return
        guard.line = _where(guard.what, frame)
        raise _TooSlow

    raise_interrupted = interrupts.raising(_Interrupted)

    def note_interruption(number: int, frame: FrameType | None) -> None:
        guard.is_interrupted = True
        raise_interrupted(number, frame)

    watchdog = _Watchdog(guard, limits, sys.stderr if sys.stderr is not None else io.StringIO())
    before = {
        signal.SIGUSR2: signal.signal(signal.SIGUSR2, interrupt),
        signal.SIGINT: signal.signal(signal.SIGINT, note_interruption),
    }
    watchdog.start()
    try:
        yield
    except _TooSlow:
        raise _too_slow(guard, limits) from None
    finally:
        watchdog.done.set()
        watchdog.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def _too_slow(guard: Guard, limits: CallLimits) -> CodeTooSlowError:
    remedy = "take out what it waits for, or what takes so long"
    if limits.option:
        remedy += f"; or give {limits.option} more"
    used_seconds = min(round(guard.used_seconds, 1), limits.seconds_max)
    if used_seconds < limits.seconds_max:
        remedy += "; or, as this machine is busy, try again when it has less to do"
    where, noted = guard.line or guard.what, read(bytes(guard.watchdog.memory))
    if noted is not None and noted.step and where == guard.what:
        where += f": step {noted.step}"
    return CodeTooSlowError(
        where=where,
        what=f"has run for {used_seconds:g} s and is not done",
        remedy=remedy,
    )


class _Watchdog(threading.Thread):
    """Notes what takes long, interrupts the main thread, and ends the process where that fails."""

    def __init__(self, guard: Guard, limits: CallLimits, notes: TextIO) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.done = threading.Event()
        self._guard, self._limits, self._notes = guard, limits, notes

    def run(self) -> None:
        """Wait for the end of the code, or for its time to be over."""
        guard, noted = self._guard, 0.0
        while not self._limits.are_over(guard.used_seconds, time.monotonic()):
            began, queued = time.monotonic(), _queued_seconds()
            if self.done.wait(min(TICK_SECONDS, self._limits.seconds_max)):
                return
            # Neither a wait for a processor counts, nor that the whole process was stopped: on a
            # busy machine an import takes several times as long.
            passed = min(time.monotonic() - began, 2 * TICK_SECONDS)
            guard.used_seconds += max(0.0, passed - (_queued_seconds() - queued))
            noted = min(noted, guard.used_seconds)
            if guard.used_seconds - noted >= NOTE_SECONDS:
                noted = guard.used_seconds
                self._note()
        for _ in range(3):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
            if self.done.wait(GRACE_SECONDS / 3):
                return
        if not self._guard.line:  # the code has put something else in the interruption's place
            self._guard.line = self._line()
        print(_too_slow(self._guard, self._limits), file=self._notes, flush=True)
        child_process.exit_at_once(2)

    def _note(self) -> None:
        print(f"{self._line()}: is still running", file=self._notes, flush=True)

    def _line(self) -> str:
        """Where the main thread is."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return _where(self._guard.what, frame)


def _queued_seconds() -> float:
    """How long the main thread has waited for a processor; 0 where the kernel does not say."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/schedstat").read_text()
        return int(text.split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
