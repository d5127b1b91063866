"""Runs partitions in processes beside the host.

They are those that are suspected to end their process, and functions of less important queries:

    host ──request──► sandbox ──fork──► trial               one epoch of a suspected partition
      ▲                  │    └──fork──► function process    one epoch after the other
      └─ what it gave, or how it died ───┘

    python -m rekindle_spark.executor.sandbox

`partition.run` is pure: what it needs goes in, what it gives comes out, and the state stays in the
host. A trial that dies costs nothing but itself. The sandbox has one thread and runs nothing
itself, so a fork of it is sound and takes milliseconds. To find the records at fault, trials are
repeated: a call that has ended one counts as a call that raises in the next. A function process
keeps the program that it has loaded, so it costs little more than its messages. `host` starts it.

Why: docs/decisions/0001-blame-for-dead-processes.md and 0053-less-important-queries-run-behind.md.
"""

import mmap
import os
import pickle
import queue
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa

from rekindle.model.errors import RekindleError, StepError
from rekindle_spark.executor import frames, memory_gauge, partition
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.host_scheduler import NICENESS
from rekindle_spark.executor.partition import (
    Incomplete,
    PartitionOutcome,
    PartitionState,
    PartitionWork,
    QuietSteps,
)
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Step
from rekindle_spark.pipeline.unbounded_source import prefetch
from rekindle_spark.user_code import code_locations, print_forwarding, watchdog
from rekindle_spark.user_code.watchdog import Watchdog

SIZE = struct.Struct(">q")
PR_SET_PDEATHSIG = 1  # of prctl.h
LOOK_SECONDS = 0.05
DEATHS_MAX = 1_000  # in a search
# In the place of a reply: the trial has had CPU time since the last.
SIGN = b""
# The first byte of a request: for a process of its own, or for the one that stays.
ONCE, STAYS = b"o", b"s"
SIGN_SECONDS = 1.0


class Died(Exception):
    """A trial has died, or found whose fault it is: `fault` says which step and how."""

    def __init__(self, fault: StepError, epoch: int) -> None:
        super().__init__(str(fault))
        self.fault, self.epoch = fault, epoch


@dataclass(frozen=True, slots=True)
class SandboxTrial:
    """One epoch of one partition, to be run in a process beside the host.

    `program` is the pickled program, `digest` its hash where the process stays; there it is empty
    once it is loaded. `blocks` are the frames of the input one after the other. 0 seconds are no
    limit. One that `yields` leaves the CPU to others. Sources may fetch `prefetch_bytes_max` before
    they are asked, where that is limited. `ended` and `searched`: see `Watchdog`.
    """

    program: bytes
    work: PartitionWork
    state: PartitionState
    blocks: bytes
    seconds_max: float
    memory_bytes_max: int
    yields: bool = False
    prefetch_bytes_max: int | None = None
    digest: str = ""
    ended: dict[int, str] = field(default_factory=dict)
    searched: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """How a trial ended: `answer` is pickled, an outcome or error and what was printed; it is empty
    where the trial died.

    `note` is what it had noted last (`watchdog.read`). A function process that `lacks_program` has
    run nothing; it has so many `used_bytes` of memory.
    """

    answer: bytes
    exit_code: int
    note: bytes = b""
    cpu_seconds: float = 0.0
    lacks_program: bool = False
    used_bytes: int = 0


@dataclass(slots=True)
class Sandboxes:
    """The sandboxes of a host: those that wait for the next trial, and how others are started.

    A thread that never lowers its own priority starts them: they would keep a lower one for good.
    """

    idle: "queue.SimpleQueue[_Sandbox | BaseException]" = field(default_factory=queue.SimpleQueue)
    wanted: "queue.SimpleQueue[None]" = field(default_factory=queue.SimpleQueue)

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        threading.Thread(target=self._start_each, name="sandboxes", daemon=True).start()

    def prepare(self) -> None:
        """Start one: it will be needed."""
        self.wanted.put(None)

    def run(
        self,
        program: Program,
        trial: SandboxTrial,
        *,
        searches: bool,
        sign: Callable[[], None] = lambda: None,
    ) -> tuple[PartitionOutcome, int, float]:
        """What a trial gives, how many have died before it, and CPU seconds of all of them.
        `sign` is called now and then while trials get CPU time.

        Raises Died after the first death, and with `searches` once it is known what is at fault;
        otherwise what `partition.run` raises. A search is limited in deaths, and in the time that
        calls have hung: that processes start slowly on a busy node says nothing of a function.
        """
        hung, cpu_seconds = 0.0, 0.0
        while True:
            reply = self._ask(trial, sign)
            cpu_seconds += reply.cpu_seconds
            if reply.answer:
                return _given(trial, reply.answer), len(trial.ended), cpu_seconds
            hung += hung_seconds(reply)
            next_trial = following(program, trial, reply, hung) if searches else None
            if next_trial is None:
                raise Died(_fault(program, trial, reply), trial.work.epoch)
            trial = next_trial
            sign()

    def take(self) -> "_Sandbox":
        """Take one that nobody uses, or a new one where there is none."""
        try:
            sandbox = self.idle.get_nowait()
        except queue.Empty:
            self.prepare()
            sandbox = self.idle.get()
        if isinstance(sandbox, BaseException):
            why = str(sandbox) or type(sandbox).__name__
            raise RuntimeError(f"no process can be started: {why}") from sandbox
        return sandbox

    def _ask(self, trial: SandboxTrial, sign: Callable[[], None] = lambda: None) -> Reply:
        sandbox = self.take()
        try:
            reply = sandbox.ask(ONCE + pickle.dumps(trial), sign)
        except BaseException:
            sandbox.end()  # nobody knows how much of the trial it has
            raise
        if reply is None:
            self.prepare()  # somebody else may be waiting for this one
            return Reply(b"", sandbox.end())
        self.idle.put(sandbox)
        return reply

    def _start_each(self) -> None:
        while True:
            self.wanted.get()
            try:
                self.idle.put(_Sandbox())
            except BaseException as error:  # the thread outlives it: who waits is told
                self.idle.put(error)


@dataclass(slots=True)
class FunctionProcess:
    """A process beside the host that stays, and keeps the newest program that it has run.

    It runs one piece of work at a time, whoever asks: `turn` is held meanwhile. It is started
    when it is needed, again after each death, and ends with the host. `used_bytes` is the memory
    that it had in use when it answered last, `first_bytes` when it answered first: that much it
    may have beside what a piece of work may use.
    """

    sandboxes: Sandboxes
    sandbox: "_Sandbox | None" = None
    loaded: str = ""
    used_bytes: int = 0
    first_bytes: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, program: Program, trial: SandboxTrial, sign: Callable[[], None] = lambda: None
    ) -> tuple[PartitionOutcome, float]:
        """Have a piece of work run; returns what it gives, and its CPU seconds. `sign` is called
        now and then while it gets CPU time.

        Raises Died where the process has died of it, otherwise what `partition.run` raises. One
        that has died of something else, and what has not loaded the program, is asked once more.
        """
        while not self.turn.acquire(timeout=SIGN_SECONDS):
            sign()  # whoever has the turn is watched
        try:
            most = trial.memory_bytes_max
            if self.used_bytes - self.first_bytes > most // 2:
                self._end()  # it has grown by and by, and nobody is to be blamed for that
            if most:
                trial = replace(trial, memory_bytes_max=most + self.first_bytes)
            is_known = self.sandbox is not None and self.loaded == trial.digest
            reply = self._ask(replace(trial, program=b"") if is_known else trial, sign)
            if reply.lacks_program or (not reply.answer and watchdog.read(reply.note) is None):
                reply = self._ask(trial, sign)
            self.loaded = trial.digest if reply.answer else ""
            self.used_bytes = reply.used_bytes
            self.first_bytes = self.first_bytes or reply.used_bytes
        finally:
            self.turn.release()
        if not reply.answer:
            raise Died(_fault(program, trial, reply), trial.work.epoch)
        return _given(trial, reply.answer), reply.cpu_seconds

    def _ask(self, trial: SandboxTrial, sign: Callable[[], None]) -> Reply:
        sandbox = self.sandbox = self.sandbox or self.sandboxes.take()
        try:
            reply = sandbox.ask(STAYS + pickle.dumps(trial), sign)
        except BaseException:
            self._end()  # nobody knows how much of the work it has
            raise
        return Reply(b"", self._end()) if reply is None else reply

    def _end(self) -> int:
        """End it; returns its exit code, as a shell counts."""
        sandbox, self.sandbox, self.used_bytes, self.first_bytes = self.sandbox, None, 0, 0
        return 0 if sandbox is None else sandbox.end()


class _Sandbox:
    """The process, as the host sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rekindle_spark.executor.sandbox"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, request: bytes, sign: Callable[[], None]) -> Reply | None:
        """How a trial ended; None where the sandbox itself has."""
        assert self.process.stdin is not None
        assert isinstance(self.process.stdout, BufferedReader)
        try:
            self.process.stdin.write(_sized(request))
            self.process.stdin.flush()
            while (answer := _read(self.process.stdout)) == SIGN:
                sign()
        except OSError:
            return None
        return None if answer is None else pickle.loads(answer)

    def end(self) -> int:
        """Its exit code, as a shell counts."""
        self.process.kill()
        code = self.process.wait()
        return watchdog.SIGNALLED - code if code < 0 else code


def _given(trial: SandboxTrial, answer: bytes) -> PartitionOutcome:
    """The outcome of a trial that has answered; raises what it raised. What it printed counts as
    printed here."""
    given, printed = pickle.loads(answer)
    print_forwarding.add(printed)
    if isinstance(given, StepError) and trial.ended:
        raise Died(given, trial.work.epoch)
    if isinstance(given, BaseException):
        raise given
    assert isinstance(given, PartitionOutcome)
    return given


def hung_seconds(reply: Reply) -> float:
    """For how long a trial that was ended had let its last call run, in seconds; 0 for others."""
    noted = watchdog.read(reply.note)
    took_too_long = reply.exit_code == watchdog.TOOK_TOO_LONG
    return noted.limit_seconds if noted is not None and took_too_long else 0.0


def following(
    program: Program, trial: SandboxTrial, reply: Reply, hung: float
) -> SandboxTrial | None:
    """The next trial of a search in which calls have hung for so many seconds; None where there is
    nothing left to be found.

    A function without dead letters that takes too long is not searched: that would take minutes
    for the same end.
    """
    noted = watchdog.read(reply.note)
    if noted is None or noted.call == 0 or noted.call in trial.ended:
        return None
    took_too_long = reply.exit_code == watchdog.TOOK_TOO_LONG
    if took_too_long and not _has_letters(program, trial.work.partition, noted.step):
        return None
    most_seconds = watchdog.SEARCH_CALLS_MAX * trial.seconds_max
    if len(trial.ended) >= DEATHS_MAX or (most_seconds and hung > most_seconds):
        return None
    searched = trial.searched
    if took_too_long:
        searched = {**searched, noted.step: watchdog.part_seconds(trial.seconds_max)}
    ended = {**trial.ended, noted.call: watchdog.described(reply.exit_code, noted)}
    return replace(trial, ended=ended, searched=searched)


def _has_letters(program: Program, number: int, step: str) -> bool:
    return any(one.dead_letters for one in _steps(program, number) if one.name == step)


def _steps(program: Program, number: int) -> tuple[Step, ...]:
    """The steps of a partition's chain."""
    chain = program.owner[number]
    return (chain.root, *chain.steps)


def _fault(program: Program, trial: SandboxTrial, reply: Reply) -> StepError:
    number, epoch = trial.work.partition, trial.work.epoch
    noted = watchdog.read(reply.note)
    step = program.owner[number].name if noted is None or not noted.step else noted.step
    how, name = watchdog.described(reply.exit_code, noted), program.partition_names[number]
    functions = [one.function for one in _steps(program, number) if one.name == step]
    places = [f", in {place}" for one in functions if (place := code_locations.defined_at(one))]
    return StepError(
        where=f"step {step}",
        what=f"{how}, at epoch {epoch} of {name}{''.join(places)}",
        remedy="mend the step's function and start again: committed output stays",
    )


def blocks(received: Sequence[Frame]) -> bytes:
    """The bytes of frames, one frame after the other."""
    return b"".join(map(frames.raw, received))


def main() -> None:
    """Run one trial after the other, and what is for the function process, until the host ends."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what functions print goes where the host's does
    print_forwarding.close_input()
    code_locations.keep_folder()
    # on a machine that runs out of memory the kernel ends trials first
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    memory = mmap.mmap(-1, watchdog.SIZE)
    _load()
    kept = _WatchedProcess(memory, requests, replies)
    while (request := _read(requests)) is not None:
        signs, rest = _CpuSigns(replies), request[len(ONCE) :]
        if request.startswith(STAYS):
            reply = kept.ask(rest, signs)
        else:
            reply = _tried(rest, memory, requests, signs)
        _send(replies, pickle.dumps(reply))


def _load() -> None:
    """Load what every trial would: that takes a trial half a second. Nothing of it starts a thread,
    as polars would."""
    import_module("pyspark.cloudpickle")
    pa.table({"warm": [1]}).combine_chunks()


def _send(replies: BinaryIO, message: bytes) -> None:
    replies.write(_sized(message))
    replies.flush()


@dataclass(slots=True)
class _CpuSigns:
    """Reports to the host that a trial gets CPU time. On a busy node a call can take minutes until
    it has had the time that it may take, and its job is not to be given up meanwhile."""

    replies: BinaryIO
    cpu_seconds: float = 0.0
    sent_at: float = field(default_factory=time.monotonic)

    def look(self, process: int) -> None:
        """Send a sign where that is so, once a second at most."""
        now = time.monotonic()
        if now - self.sent_at < SIGN_SECONDS:
            return
        cpu_seconds = watchdog.cpu_seconds(process)
        if cpu_seconds > self.cpu_seconds:
            self.cpu_seconds, self.sent_at = cpu_seconds, now
            _send(self.replies, SIGN)


def _tried(request: bytes, memory: mmap.mmap, requests: BinaryIO, signs: _CpuSigns) -> Reply:
    """Run a trial in a process of its own, and watch it."""
    memory[:] = watchdog.NOTHING
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _answer(request, memory, writing)
    os.close(writing)
    answer, why = _watched(pid, reading, memory, requests, signs)
    os.close(reading)
    code, cpu_seconds = _waited(pid)
    whole = bytes(answer[SIZE.size :]) if _is_whole(answer) and code == 0 else b""
    return Reply(whole, why or code, bytes(memory), cpu_seconds)


def _waited(pid: int) -> tuple[int, float]:
    """The exit code of a process that ends, as a shell counts, and the CPU seconds it has had."""
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return watchdog.SIGNALLED - code if code < 0 else code, used.ru_utime + used.ru_stime


def _is_whole(answer: bytearray) -> bool:
    return len(answer) >= SIZE.size and SIZE.unpack_from(answer)[0] == len(answer) - SIZE.size


@dataclass(slots=True)
class _WatchedProcess:
    """The function process, as the sandbox sees it: process id, 0 where there is none, both ends of
    its pipes, and the CPU seconds that it had `spent` when it answered last."""

    memory: mmap.mmap
    requests: BinaryIO
    replies: BinaryIO
    pid: int = 0
    reading: int = -1
    writing: int = -1
    spent: float = 0.0

    def ask(self, request: bytes, signs: "_CpuSigns") -> Reply:
        """Have one piece of work run, and watch it."""
        self.memory[:] = watchdog.NOTHING
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self._close()  # while it did nothing: the kernel takes it first when memory is short
        if not self.pid:
            self._fork()
        self._send(request)
        answer, why = _watched(
            self.pid, self.reading, self.memory, self.requests, signs, stays=True
        )
        if _is_whole(answer) and not why:
            before, self.spent = self.spent, watchdog.cpu_seconds(self.pid)
            (used_bytes,) = SIZE.unpack_from(answer, SIZE.size)
            return Reply(
                bytes(answer[2 * SIZE.size :]),
                0,
                cpu_seconds=max(0.0, self.spent - before),
                lacks_program=used_bytes < 0,
                used_bytes=max(0, used_bytes),
            )
        code, cpu_seconds = _waited(self.pid)
        cpu_seconds -= self.spent
        self._close()
        return Reply(b"", why or code, bytes(self.memory), max(0.0, cpu_seconds))

    def _fork(self) -> None:
        their_reading, self.writing = os.pipe()
        self.reading, their_writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # what a function starts may outlive the sandbox, and its end is that of these pipes
            for descriptor in (self.writing, self.reading, self.requests, self.replies):
                os.close(descriptor if isinstance(descriptor, int) else descriptor.fileno())
            _serve(os.fdopen(their_reading, "rb"), self.memory, their_writing)
        os.close(their_reading)
        os.close(their_writing)
        os.set_blocking(self.writing, False)

    def _send(self, request: bytes) -> None:
        """Write a request, as fast as it is read, until the process or the host has ended."""
        message, process, poll = memoryview(_sized(request)), os.pidfd_open(self.pid), select.poll()
        poll.register(self.writing, select.POLLOUT)
        poll.register(process, select.POLLIN)
        poll.register(self.requests.fileno(), 0)  # only whether the host is gone
        with suppress(BrokenPipeError):  # how it died is seen by whoever waits for the answer
            while message:
                ready = dict(poll.poll())
                if self.requests.fileno() in ready:
                    os.kill(self.pid, signal.SIGKILL)
                    os._exit(0)
                if process in ready:
                    break
                with suppress(BlockingIOError):
                    message = message[os.write(self.writing, message) :]
        os.close(process)

    def _close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)
        self.pid, self.spent = 0, 0.0


def _watched(
    pid: int,
    reading: int,
    note: mmap.mmap,
    requests: BinaryIO,
    signs: _CpuSigns,
    *,
    stays: bool = False,
) -> tuple[bytearray, int]:
    """What a process writes until it ends, or has answered where it `stays`, and the exit code for
    why it was ended, 0 if it was not.

    Its end is that of the process: what it has started may hold the pipe open.
    """
    answer, why, clock = bytearray(), 0, watchdog.Clock(pid)
    os.set_blocking(reading, False)
    process = os.pidfd_open(pid)
    poll = select.poll()
    for descriptor in (reading, process):
        poll.register(descriptor, select.POLLIN)
    poll.register(requests.fileno(), 0)  # only whether the host is gone
    while True:
        ready = dict(poll.poll(LOOK_SECONDS * 1000))
        if requests.fileno() in ready:
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if reading in ready and not _drain(reading, answer):
            poll.unregister(reading)
        if process in ready:
            _drain(reading, answer)
        if process in ready or (stays and _is_whole(answer) and not why):
            os.close(process)
            return answer, why
        signs.look(pid)
        if not why:
            noted = watchdog.read(bytes(note))
            if clock.is_over(noted):
                why = watchdog.TOOK_TOO_LONG
            if noted is not None and 0 < noted.limit_bytes < watchdog.used_bytes(pid):
                why = watchdog.USED_TOO_MUCH
            if why:
                os.kill(pid, signal.SIGKILL)


def _drain(reading: int, answer: bytearray) -> bool:
    """Read what is there; whether more may come."""
    with suppress(BlockingIOError):
        while part := os.read(reading, 1 << 20):
            answer += part
        return False
    return True


def _answer(request: bytes, memory: mmap.mmap, writing: int) -> NoReturn:
    """In the process of a trial: run it, write what came of it, and end."""
    _begin()
    _send_all(writing, _sized(_answered(lambda: _run(pickle.loads(request), memory))))
    os._exit(0)


def _serve(requests: BinaryIO, memory: mmap.mmap, writing: int) -> NoReturn:
    """In the function process: run one piece of work after the other, with the newest program."""
    _begin()
    memory_gauge.share_arena()
    program, pid = _LoadedProgram(memory), os.getpid()
    while (request := _read(requests)) is not None:
        trial: SandboxTrial = pickle.loads(request)
        if not trial.program and program.digest != trial.digest:
            _send_all(writing, _sized(SIZE.pack(-1)))
            continue
        answer = _answered(partial(program.run, trial))
        if os.getpid() != pid:
            os._exit(0)  # a function has forked, and this is the child
        _send_all(writing, _sized(SIZE.pack(memory_gauge.trimmed_bytes()) + answer))
    os._exit(0)


def _begin() -> None:
    """In a process that runs functions, before the first."""
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print_forwarding.install()


def _answered(run: Callable[[], PartitionOutcome]) -> bytes:
    """Run it; what came of it, pickled, with what was printed."""
    try:
        given: Any = run()
    except (RekindleError, Incomplete) as error:
        given = error
    except BaseException:
        given = RuntimeError(traceback.format_exc())
    return pickle.dumps((given, print_forwarding.taken()))


def _send_all(writing: int, message: bytes) -> None:
    rest = memoryview(message)
    while rest:
        rest = rest[os.write(writing, rest) :]


def _run(trial: SandboxTrial, memory: mmap.mmap) -> PartitionOutcome:
    if trial.yields:
        os.nice(NICENESS)
    program: Program = pickle.loads(trial.program)
    watch = Watchdog(
        memory,
        trial.seconds_max,
        trial.ended,
        trial.searched,
        counts=True,
        memory_bytes_max=trial.memory_bytes_max,
    )
    received = list(frames.frames(memoryview(trial.blocks)))
    return partition.run(program, trial.work, trial.state, received, watch)


@dataclass(slots=True)
class _LoadedProgram:
    """The program of a function process, by its hash, and which of its steps give no rows for
    none."""

    memory: mmap.mmap
    digest: str = ""
    program: Program | None = None
    quiet: QuietSteps = field(default_factory=set)
    yields: bool = False

    def run(self, trial: SandboxTrial) -> PartitionOutcome:
        """Run one epoch of one partition."""
        if trial.yields and not self.yields:
            os.nice(NICENESS)
        self.yields |= trial.yields
        if trial.program:
            self.digest = ""
            self.program, self.quiet = pickle.loads(trial.program), set()
            self.digest = trial.digest
        assert self.program is not None
        prefetch.bytes_max = trial.prefetch_bytes_max
        received = list(frames.frames(memoryview(trial.blocks)))
        skipped = partition.skip(self.program, trial.work, trial.state, received, self.quiet)
        if skipped is not None:
            return skipped
        watch = Watchdog(self.memory, trial.seconds_max, memory_bytes_max=trial.memory_bytes_max)
        return partition.run(self.program, trial.work, trial.state, received, watch, self.quiet)


def _sized(data: bytes) -> bytes:
    return SIZE.pack(len(data)) + data


def _read(stream: BinaryIO) -> bytes | None:
    """The next message; None at the end."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size,) = SIZE.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


if __name__ == "__main__":
    # what is pickled here must have the module's own name
    from rekindle_spark.executor import sandbox

    sandbox.main()
