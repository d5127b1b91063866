"""Servers that any address of a machine or pod may be asked at: their sockets and their threads.

`health_server`, the web console and the operator's webhook listen on them.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; `host` "" is every address, `port` 0 any that is free.

    One socket for both families: two that take any free port would take different ones. Raises
    OSError when it cannot.
    """
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)


class ServerThread:
    """A thread with an event loop of its own, on which `serve` serves an address until the end.

    `serve` calls `listen`, then `report_listening` once connections are taken, and returns when
    `is_ended` says so. `port` is the one that it listens on.
    """

    def __init__(
        self, name: str, serve: Callable[[], Awaitable[None]], host: str, port: int
    ) -> None:
        self.port = port
        self._host = host
        self._serve = serve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._listening = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether it serves still."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start; returns when it listens. Raises OSError for an address that cannot be listened
        on."""
        self._thread.start()
        self._listening.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Have it end, and do not wait for that. Safe to repeat."""
        loop, end = self._loop, self._end
        if loop is not None and end is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(end.set)

    def join(self, seconds: float) -> None:
        """Wait for its end for so long at most."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def listen(self) -> socket.socket:
        """The socket to serve. Raises OSError when it cannot listen."""
        listener = listen(self._host, self.port)
        self.port = listener.getsockname()[1]
        return listener

    def report_listening(self) -> None:
        """Have `start` return."""
        self._listening.set()

    async def is_ended(self, within_seconds: float | None) -> bool:
        """Wait for `end` for so long at most, without a limit for None; whether it was called."""
        assert self._end is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._end.wait(), within_seconds)
        return self._end.is_set()

    def _run(self) -> None:
        try:
            asyncio.run(self._begin())
        except OSError as error:
            if self._listening.is_set():
                raise
            self._failure = error
        finally:
            self._listening.set()

    async def _begin(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        await self._serve()
