"""Waiting for sockets, as the ZooKeeper client does many times for each request.

kazoo makes an epoll anew for each wait: five system calls, at each of which the thread gives up the
interpreter and has to get it back. poll(2) is one. `sessions` hands it to the client.
"""

import select
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

__all__ = ["PollingHandler"]

Files = list[Any]


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's own threads and queues, with another way to wait."""

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        exceptional: Sequence[Any] = (),
        timeout: float | None = None,
    ) -> tuple[Files, Files, Files]:
        """Those of the files that can be read or written, within `timeout` seconds. One that is
        broken can be both: reading or writing it tells why."""
        del exceptional
        wanted: dict[int, int] = {}
        for files, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for file in files:
                wanted[file.fileno()] = wanted.get(file.fileno(), 0) | event
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        ready = dict(poll.poll(None if timeout is None else timeout * 1_000))
        return (
            [file for file in readers if ready.get(file.fileno(), 0) & ~select.POLLOUT],
            [file for file in writers if ready.get(file.fileno(), 0) & ~select.POLLIN],
            [],
        )
