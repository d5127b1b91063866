"""Threads that serve connections: one for each that is served at a time, kept for the next.

    waiting ──accept──► serving ──served──► waiting
                           └────used up────► ends

A thread that goes to serve sees to it that another one waits. There are one more than there ever
were connections at a time, which are the tasks of an executor. Called by `host`.

Why: docs/decisions/0042-host-threads-are-kept.md.
"""

import os
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["ConnectionThreads"]


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
