"""Threads that serve connections: as many as there are at a time, and they stay for the next ones.

    waiting ──accept──► serving ──served──► waiting
                           └────worn out───► ends

A thread that goes to serve sees to it that another one waits. Called by `host`.
"""

import os
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Threads"]


@dataclass(slots=True)
class Threads:
    """Each connection of `listener` gets a thread, which calls `serve` with it; False: this thread
    is to serve no other one. What `serve` raises is printed. A process that can accept none any
    more ends, so that it is started again."""

    listener: socket.socket
    serve: Callable[[socket.socket], bool]
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0

    def start(self) -> None:
        """Serve from now on."""
        with self.lock:
            self._start_one()

    def _start_one(self) -> None:
        self.waiting += 1
        threading.Thread(target=self._run, name="requests", daemon=True).start()

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            connection = self._accept()
            try:
                goes_on = self.serve(connection)
            except Exception:
                traceback.print_exc()
            with self.lock:
                self.waiting += goes_on

    def _accept(self) -> socket.socket:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            traceback.print_exc()
            os._exit(1)
        with self.lock:
            self.waiting -= 1
            if self.waiting == 0:
                self._start_one()
        return connection
