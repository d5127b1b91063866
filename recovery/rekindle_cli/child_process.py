"""Runs a command's work in a child process, so that code that ends its process is one sentence.

    command ──fork──► child    runs the work with the user's code in it, and prints what comes of it
       ▲                │
       └── exit code, or how, on which step and at which line it died

A segfault, a kill for lack of memory, or a loop that holds the interpreter's lock cannot be handled
in the process that has it. The command forks before it has loaded anything that starts threads, so
the fork is sound and costs milliseconds. Processes that the user's code has started end with the
child; a command has no other children then. The child notes what it works on in memory that it
shares with the parent (`watchdog`), and has the interpreter write the line at which it dies
(`faulthandler`). Called by the commands `check`, `test` and `run`; `guard` notes what it guards.
"""

import faulthandler
import mmap
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Set
from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass
from typing import NoReturn

from rekindle.model.errors import InputError
from rekindle_cli import command_line
from rekindle_spark.user_code import code_locations, watchdog
from rekindle_spark.user_code.watchdog import Noted, Watchdog

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of prctl.h
# Whoever cleans up behind a process, as multiprocessing's tracker of shared memory, ends by itself
# soon after it; nobody waits longer for a process that cannot be ended.
ORPHANS_SECONDS, UNENDED_SECONDS, ORPHANS_POLL_SECONDS = 0.5, 2.0, 0.01
LOOK_SECONDS = 0.05
# How long a child has to write its line, and to end after Ctrl-C.
LINE_SECONDS, INTERRUPTED_SECONDS = 0.5, 1.0
# A line of a stack as `faulthandler` writes it.
FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+)')
# Users' code finds another function under this name while a guard is on.
EXIT_AT_ONCE = os._exit


@dataclass(slots=True)
class _Shared:
    """What a child shares with its parent: its note, and behind it whether it ended by itself."""

    memory: mmap.mmap
    process: int


# Of this process, where it is a child.
_shared: list[_Shared] = []


def run(what: str, work: Callable[[], object]) -> int:
    """Run `work` in a child process, as a command does; return the exit code that it gives.

    `what` names the user's code, as "pipeline file x.py". Raises InputError where that code ends
    the child or holds it up, with the line and the step that it was at.
    """
    if sys.stderr.isatty():  # it takes some seconds until there is more to say
        print(f"checking the {what}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    memory = mmap.mmap(-1, watchdog.SIZE + 1)
    memory[: watchdog.SIZE] = watchdog.NOTHING
    stack = os.memfd_create("stack")
    before = _children()
    try:
        # children of the child become those of this process when it ends
        _adopt_orphans(adopt=True)
        child = os.fork()
        if child == 0:
            _be_child(work, memory, stack)
        code, hung = _awaited(child, memory, stack)
        if memory[watchdog.SIZE]:
            return code
        noted = watchdog.read(bytes(memory))
        raise _died(what, code, noted, _line(stack), hung=hung)
    finally:
        _end_all_but(before)
        _adopt_orphans(adopt=False)
        os.close(stack)
        memory.close()


def noting(seconds_max: float) -> Watchdog:
    """Make what notes on which step the user's code works; where this is a child, its parent reads
    that, and ends a call that has gone on for so long."""
    if _shared and _shared[-1].process == os.getpid():
        return Watchdog(_shared[-1].memory, seconds_max)
    return Watchdog()


def exit_at_once(code: int) -> NoReturn:
    """End this process, whatever its main thread does; what there is to say has been said."""
    if _shared:
        _shared[-1].memory[watchdog.SIZE] = 1
    EXIT_AT_ONCE(code)
    raise AssertionError("the process goes on")


def _be_child(work: Callable[[], object], memory: mmap.mmap, stack: int) -> NoReturn:
    """In the child: run the work, and end."""
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(signal.SIGXCPU, stack, all_threads=False)
    shared = _Shared(memory, os.getpid())
    _shared.append(shared)
    code = 1
    try:
        code = command_line.exit_code(work)
    except BaseException:  # a bug of ours
        traceback.print_exc()
    # What users' code has forked may come out here too.
    if os.getpid() == shared.process:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        memory[watchdog.SIZE] = 1
    EXIT_AT_ONCE(code)
    raise AssertionError("the process goes on")


def _awaited(child: int, memory: mmap.mmap, stack: int) -> tuple[int, bool]:
    """Wait for the end of the child; its exit code, and whether it was ended because it hung."""
    clock, hung, until = watchdog.Clock(child), False, float("inf")
    descriptor = os.pidfd_open(child)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        while not _has_ended(poll):
            if not hung and clock.is_over(watchdog.read(bytes(memory))):
                hung, until = True, time.monotonic() + LINE_SECONDS
                signal.pidfd_send_signal(descriptor, signal.SIGXCPU)
            if time.monotonic() > until or (hung and os.fstat(stack).st_size):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except KeyboardInterrupt:
        # At a terminal the child has been interrupted as well.
        if not poll.poll(INTERRUPTED_SECONDS * 1000):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        raise
    finally:
        os.close(descriptor)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return (watchdog.SIGNALLED - code if code < 0 else code), hung


def _adopt_orphans(*, adopt: bool) -> None:
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def _children() -> set[int]:
    """Processes whose parent is this one; none where the kernel does not list them."""
    found = set[int]()
    for thread in os.listdir("/proc/self/task"):
        file = f"/proc/self/task/{thread}/children"
        with suppress(OSError), open(file, encoding="ascii") as listed:  # a thread may have ended
            found |= {int(number) for number in listed.read().split()}
    return found


def _end_all_but(kept: Set[int]) -> None:
    """End children that came since then, and what they leave behind: they may clean up first. One
    that does not end is left."""
    began = time.monotonic()
    while orphans := _children() - kept:
        elapsed_seconds = time.monotonic() - began
        if elapsed_seconds > UNENDED_SECONDS:
            return
        for orphan in orphans:
            with suppress(ProcessLookupError, PermissionError):  # it may be another user's by now
                if elapsed_seconds > ORPHANS_SECONDS:
                    os.kill(orphan, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(orphan, os.WNOHANG)
        time.sleep(ORPHANS_POLL_SECONDS)


def _has_ended(poll: select.poll) -> bool:
    return bool(poll.poll(LOOK_SECONDS * 1000))


def _line(stack: int) -> str:
    """The newest line in a file of the user, of what the interpreter has written; empty where there
    is none."""
    text = os.pread(stack, 1 << 20, 0).decode("ascii", "replace")
    for found in FRAME.finditer(text):
        # characters beyond ASCII are written as escapes
        file = re.sub(r"\\(x..|u....|U........)", _character, found["file"])
        if code_locations.is_users_file(file):
            return code_locations.place(file, int(found["line"]))
    return ""


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1][1:], 16))


def _died(what: str, code: int, noted: Noted | None, line: str, *, hung: bool) -> InputError:
    where, step = line or what, noted.step if noted is not None else ""
    if step:
        where += f": step {step}"
    if hung and noted is not None:
        return InputError(
            where=where,
            what=f"has run for {noted.limit_seconds:g} s, and cannot be interrupted",
            remedy="take out what it waits for, or what takes so long",
        )
    remedy = "mend the step's function: it would end executors' processes too"
    if not step:
        remedy = "mend the file, or leave out the library that does this"
    if code == watchdog.SIGNALLED + signal.SIGKILL:
        remedy += "; if this machine has run out of memory, let it use less"
    return InputError(where=where, what=watchdog.described(code, None), remedy=remedy)
