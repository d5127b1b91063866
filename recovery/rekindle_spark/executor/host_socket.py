"""The socket of a host: listens for the host's own JVM alone, for as long as that runs.

The JVM (HostProcess.java) makes a folder for it that no other user can enter and no other executor
knows: executors of one machine may share a temporary folder, and in their containers their JVMs may
have the same process id. Whoever else reaches the socket is refused, by what the kernel says of the
caller. Programs that clean temporary folders may take the socket away; then it is made again.
Called by `host`.
"""

import json
import os
import select
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# Threads that serve connections: one for each that is served at a time, kept for the next.
#
#     waiting ──accept──► serving ──served──► waiting
#                            └────used up────► ends
#
# A thread that goes to serve sees to it that another one waits. There are one more than there ever
# were connections at a time, which are the tasks of an executor.
#
# Why: docs/decisions/0042-host-threads-are-kept.md.


@dataclass(slots=True)
class ConnectionThreads:
    """Each connection of `listener` gets a thread, which calls `serve` with it. That returns
    whether its thread may serve another; one in which it raises, which is printed, may not. A
    process that can accept none any more ends, so that it is started again."""

    listener: socket.socket
    serve: Callable[[socket.socket], bool]
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0

    def start(self) -> None:
        """Serve from now on."""
        with self.lock:
            self._start_one()

    def _start_one(self) -> None:
        """The caller holds the lock."""
        self.waiting += 1
        threading.Thread(target=self._run, name="requests", daemon=True).start()

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            connection, goes_on = self._accept(), False
            try:
                goes_on = self.serve(connection)
            except BaseException:  # a panic of a native library is no Exception
                traceback.print_exc()
            with self.lock:
                self.waiting += goes_on

    def _accept(self) -> socket.socket:
        try:
            connection, _ = self.listener.accept()
            with self.lock:
                self.waiting -= 1
                if self.waiting == 0:
                    self._start_one()
        except BaseException:  # no descriptor, no thread
            traceback.print_exc()
            os._exit(1)
        return connection


Serve = Callable[[socket.socket], bool]
LOOKS_SECONDS = 0.25
CREDENTIALS = struct.Struct("3i")
PIECE_BYTES = 1 << 16


def serve(path: Path, jvm: int, answer: Serve, beside: str = "") -> None:
    """Have `answer` serve connections of the process `jvm`, our parent, at `path`. Returns when it
    has ended, with the folder removed, and with it files like `beside`: a process that is killed
    removes nothing itself."""
    try:
        descriptor = os.pidfd_open(jvm)
        if os.getppid() == jvm:  # else it ended before it could be watched
            _serve(path, descriptor, _guarded(jvm, answer))
    except ProcessLookupError:
        pass
    with suppress(OSError):
        for left in (path, *(path.parent.glob(beside) if beside else ())):
            left.unlink(missing_ok=True)
        path.parent.rmdir()


def _serve(path: Path, descriptor: int, answer: Serve) -> None:
    ConnectionThreads(_listening(path), answer).start()
    while not select.select([descriptor], [], [], LOOKS_SECONDS)[0]:
        if not path.exists():
            ConnectionThreads(_listening(path), answer).start()


def is_from(connection: socket.socket, process: int) -> bool:
    """Whether a process has connected, and not one of the same number in another container: the
    kernel calls one that cannot be seen from here 0."""
    options = socket.SOL_SOCKET, socket.SO_PEERCRED
    caller, _, _ = CREDENTIALS.unpack(connection.getsockopt(*options, CREDENTIALS.size))
    return bool(caller == process)


def _guarded(jvm: int, answer: Serve) -> Serve:
    def guarded(connection: socket.socket) -> bool:
        if is_from(connection, jvm):
            return answer(connection)
        _refuse(connection, jvm)
        return True

    return guarded


def _listening(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(64)
    return listener


def _refuse(connection: socket.socket, jvm: int) -> None:
    """Read the request to its end, for an answer before that may be lost, and refuse it."""
    try:
        with connection, connection.makefile("rb") as reader:
            (size,) = struct.unpack(">i", reader.read(4))
            request = json.loads(reader.read(size))
            (total,) = struct.unpack(">q", reader.read(8))
            while total > 0 and (piece := reader.read(min(total, PIECE_BYTES))):
                total -= len(piece)
            text = f"this is the host of process {jvm}, and another process has asked"
            report = {"status": "refused", "executor": request.get("executor"), "text": text}
            said = json.dumps(report).encode()
            connection.sendall(struct.pack(">i", len(said)) + said + struct.pack(">i", 0))
    except (OSError, ValueError, AttributeError, struct.error):
        return
