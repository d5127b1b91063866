"""Work of sandboxes and of the processes that they fork, as actions.

Code that runs in a forked process runs here in this one, between pipes. An error that comes out of
it ends that process: whoever waits for its answer sees that.
"""

import contextlib
import io
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from host_services import SECOND, letters, offsets, same_interval, small
from host_story import Action, Story
from pyspark import cloudpickle

from rekindle_spark.executor import frames, host_scheduler, memory_gauge, partition, sandbox
from rekindle_spark.executor.partition import PartitionWork
from rekindle_spark.executor.sandbox import SandboxTrial
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.unbounded_source import prefetch
from rekindle_spark.user_code import print_forwarding, watchdog
from rekindle_spark.user_code.watchdog import Watchdog

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def of_sandboxes(folder: Path) -> Iterator[Action]:
    """A process for trials, the one for functions that stays, and a host that uses it."""
    folder.mkdir(parents=True)
    trial = _trial()
    pickled = cloudpickle.dumps(trial)
    yield Action("trial", lambda: _tried(pickled), raises=True)
    yield Action("watch", _watched, raises=True)
    yield Action("sandbox", lambda: _sandbox(folder), raises=True)
    for ask in (_answers, _lacks_program, _dead_while_idle, _dies):
        yield Action(f"function process: {ask.__name__}", ask, raises=True)
    yield Action("fork", _forked, raises=True)
    yield Action("serve functions", lambda: _functions_served(trial), raises=True)
    yield from _of_beside(folder)


def _of_beside(folder: Path) -> Iterator[Action]:
    """Functions beside a host: in a process that has the program, has lost it, or has ended."""
    same = small(lambda s: s.map("same", lambda table: table, schema=s.schema))
    story = Story("beside", folder / "beside", same, offsets(6, 12)).begin()
    functions, digest = story.host.runner.functions, story.named[2]
    item = {"lane": host_scheduler.SECOND, "beside": {"seconds_max": 0.0}}
    ask = story.again(1, 0, item=item, urgency=host_scheduler.BEHIND).within(same_interval)

    def lost() -> Any:
        functions._end()
        functions.loaded = digest
        return ask.run()

    def ended() -> Any:
        functions.sandbox = functions.sandbox or functions.sandboxes.take()
        functions.sandbox.process.kill()
        functions.sandbox.process.wait()
        return ask.run()

    def died() -> Any:
        functions.sandbox = functions.sandbox or functions.sandboxes.take()
        reply = sandbox.Reply(b"", 3, b"")
        with mock.patch.object(sandbox._Sandbox, "ask", return_value=reply):
            return ask.run()

    def broken() -> Any:
        with mock.patch.object(sandbox._Sandbox, "ask", side_effect=ValueError):
            return ask.run()

    def grown() -> Any:
        with mock.patch.object(memory_gauge.MemoryGauge, "trial_bytes_max", return_value=1):
            return ask.run()

    yield story.again(1, 0)
    yield Action("beside: has the program", ask.run)
    yield Action("beside: has lost the program", lost)
    yield Action("beside: the sandbox has ended", ended)
    yield Action("beside: the process has died", died)
    yield Action("beside: the sandbox is asked in vain", broken)
    yield Action("beside: has grown", grown)
    functions._end()


def _trial() -> SandboxTrial:
    made = program.build(small(letters))
    received = frames.frames(memoryview(b""))
    return SandboxTrial(
        cloudpickle.dumps(made),
        PartitionWork(0, 1, 1, 0, 6, SECOND),
        partition.initial(made.owner[0]),
        sandbox.blocks(list(received)),
        60.0,
        1 << 34,
        True,
    )


class _Ended(Exception):
    """A process would have ended."""


def _ended(_: int) -> Any:
    raise _Ended


def _written(work: Callable[[], Any]) -> bytes:
    """What the code of a forked process writes, run in this one."""
    written = bytearray()

    def write(_: int, data: bytes) -> int:
        written.extend(data)
        return len(data)

    stub = types.SimpleNamespace(nice=lambda _: 0, write=write, _exit=_ended, getpid=os.getpid)
    with (
        mock.patch.object(sandbox, "os", stub),
        mock.patch.object(sandbox, "CDLL"),
        mock.patch.object(sandbox, "resource"),
        mock.patch.object(print_forwarding, "install"),
        mock.patch.object(memory_gauge, "share_arena"),
        mock.patch.object(prefetch, "bytes_max", None),
        contextlib.suppress(_Ended),
    ):
        work()
    return bytes(written)


def _tried(trial: bytes) -> Any:
    """The process of a trial."""
    memory = bytearray(watchdog.SIZE)
    return _written(lambda: sandbox._answer(trial, memory, 1))  # type: ignore[arg-type]


def _functions_served(trial: SandboxTrial) -> Any:
    """The function process: without its program, with it, and once it is loaded."""
    whole = replace(trial, digest="digest")
    without = replace(whole, program=b"")
    asked = b"".join(sandbox._sized(cloudpickle.dumps(one)) for one in (without, whole, without))
    memory = bytearray(watchdog.SIZE)
    written = _written(lambda: sandbox._serve(io.BytesIO(asked), memory, 1))  # type: ignore[arg-type]
    assert written.startswith(sandbox._sized(sandbox.SIZE.pack(-1)))
    return written


def _forked() -> Any:
    """A function process at its beginning, which closes what its parent has open."""
    stub = types.SimpleNamespace(
        pipe=lambda: (0, 0), fork=lambda: 0, close=lambda _: None, fdopen=lambda *_: None
    )
    streams: list[Any] = [types.SimpleNamespace(fileno=lambda: 0)] * 2
    with (
        mock.patch.object(sandbox, "os", stub),
        mock.patch.object(sandbox, "_serve", side_effect=_Ended),
        contextlib.suppress(_Ended),
    ):
        sandbox._WatchedProcess(bytearray(watchdog.SIZE), *streams)._fork()  # type: ignore[arg-type]


class _Commands:
    """Function processes that are shell commands, and end with this."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, process: sandbox._WatchedProcess, command: str) -> None:
        their_reading, process.writing = os.pipe()
        process.reading, their_writing = os.pipe()
        os.set_blocking(process.writing, False)
        child = subprocess.Popen(["sh", "-c", command], stdin=their_reading, stdout=their_writing)
        self.started.append(child)
        process.pid = child.pid
        os.close(their_reading)
        os.close(their_writing)

    def end(self, process: sandbox._WatchedProcess) -> None:
        if process.pid:
            process._close()
        for child in self.started:
            child.kill()
            child.wait()


def _asked(request: bytes, *commands: str) -> sandbox.Reply:
    """The reply of function processes; each but the last has ended while it did nothing."""
    requests, held = os.pipe()
    started = _Commands()
    *dead, last = commands
    with os.fdopen(requests, "rb") as stream, os.fdopen(held, "wb"):
        memory: Any = bytearray(watchdog.SIZE)
        process = sandbox._WatchedProcess(memory, stream, io.BytesIO())
        signs = sandbox._CpuSigns(io.BytesIO(), sent_at=-sandbox.SIGN_SECONDS)
        fork = lambda self: started.start(self, last)  # noqa: E731
        try:
            for command in dead:
                started.start(process, command)
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with mock.patch.object(sandbox._WatchedProcess, "_fork", fork):
                return process.ask(request, signs)
        finally:
            started.end(process)


def _answers() -> Any:
    """One that answers what it is asked, and then waits."""
    reply = _asked(sandbox.SIZE.pack(7) + b"answer", "exec cat")
    assert (reply.answer, reply.used_bytes) == (b"answer", 7)


def _lacks_program() -> Any:
    assert _asked(sandbox.SIZE.pack(-1), "exec cat").lacks_program


def _dead_while_idle() -> Any:
    assert _asked(sandbox.SIZE.pack(7) + b"answer", "exit 3", "exec cat").answer == b"answer"


def _dies() -> Any:
    """One that ends while it is asked for more than a pipe holds."""
    assert _asked(bytes(1 << 20), "head -c 9 >/dev/null; exit 3").exit_code == 3


def _watched() -> Any:
    """A process that writes and ends, and one that takes too long."""
    for command, limit in (("printf answer", 60.0), ("exec sleep 9", 0.000001)):
        reading, writing = os.pipe()
        requests, held = os.pipe()
        process = subprocess.Popen(["sh", "-c", command], stdout=writing)
        os.close(writing)
        watch = Watchdog(memory := bytearray(watchdog.SIZE), limit, memory_bytes_max=1 << 40)
        watch.begin(0, 1, "step")
        watch.calling("step")
        watch.thread = process.pid
        watch._note("step")
        signs = sandbox._CpuSigns(io.BytesIO(), sent_at=-sandbox.SIGN_SECONDS)
        try:
            with os.fdopen(requests, "rb") as stream:
                sandbox._watched(process.pid, reading, memory, stream, signs)  # type: ignore[arg-type]
        finally:
            process.kill()
            process.wait()
            os.close(held)
            os.close(reading)


def _sandbox(folder: Path) -> Any:
    """The loop of a sandbox, with a request of each kind."""
    replies = io.BytesIO()
    asked = [sandbox._sized(kind + b"request") for kind in (sandbox.ONCE, sandbox.STAYS)]
    files = iter([io.BytesIO(b"".join(asked)), replies])
    stub = types.SimpleNamespace(
        fdopen=lambda *_: next(files),
        dup=int,
        dup2=lambda *_: None,
        open=lambda *_: 0,
        devnull="",
        O_RDONLY=0,
    )
    with (
        mock.patch.object(sandbox, "os", stub),
        mock.patch.object(sandbox, "Path", return_value=folder / "score"),
        mock.patch.object(sandbox, "_tried", return_value=sandbox.Reply(b"", 0)),
        mock.patch.object(sandbox._WatchedProcess, "ask", return_value=sandbox.Reply(b"", 0)),
    ):
        sandbox.main()
    return replies.getvalue()
