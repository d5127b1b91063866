"""Many small requests to the API server over a few connections, from one thread.

The official client takes some milliseconds of CPU for each object; a thousand leases need a cheaper
way. It repeats nothing: what a failure means is up to node_heartbeats.py, pod_runner.py and
simulated_kubelets.py.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# What a request raises while the API server is away, silent, or just coming up.
UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError)
CONNECTIONS_MAX = 16
REQUEST_SECONDS_MAX = 10.0
# The API server ends a watch after the first of them; silence that lasts for longer is no watch.
WATCH_SECONDS = 240
SILENCE_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """The status code of an answer, and its body."""

    status: int
    content: bytes

    @property
    def done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the same request would be refused again; otherwise it is worth another try."""
        return not self.done and self.status < 500 and self.status != 429


class BulkConnection:
    """An asynchronous context manager; all calls come from its event loop."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._server = server
        self._context = context

    async def __aenter__(self) -> Self:
        # One more than the requests may have: the watch keeps one for itself.
        connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX + 1, ssl=self._context)
        self._session = aiohttp.ClientSession(self._server, connector=connector)
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = JSON,
        seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> BulkAnswer:
        """The answer to a request, whatever its status. Raises one of `UNREACHABLE` without one."""
        content = None if body is None else json.dumps(body).encode()
        limit = aiohttp.ClientTimeout(total=seconds_max)
        async with (
            self._turns,
            self._session.request(
                method, path, data=content, headers={"Content-Type": kind}, timeout=limit
            ) as answer,
        ):
            return BulkAnswer(answer.status, await answer.read())

    async def watch(self, path: str) -> AsyncGenerator[bytes, None]:
        """The events of a watch, one line each, until the API server ends it.

        Raises one of `UNREACHABLE` when it cannot be begun or breaks off.
        """
        limit = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX
        )
        query = {"watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}
        separator = "&" if "?" in path else "?"
        parameters = "&".join(f"{name}={value}" for name, value in query.items())
        rest = b""
        async with self._session.get(f"{path}{separator}{parameters}", timeout=limit) as answer:
            answer.raise_for_status()
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line
