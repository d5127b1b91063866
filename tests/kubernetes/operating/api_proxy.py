"""Between an operator and the API server: it passes everything on, but what a test has it not.

It refuses requests with 429, lets a test act just before a request goes on, and makes watches go
silent while their connections stay open, as a router does that has forgotten them. Answers are the
API server's own, and so are conflicts. It asks as an administrator, whoever asks it.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from testbed import kubeconfigs
from testbed.control_plane import ControlPlane

__all__ = ["ApiProxy"]

HOST = "127.0.0.1"
START_SECONDS_MAX = 30.0
STOP_SECONDS = 0.1
PASSED_ON = ("Accept", "Content-Type")
TOO_MANY = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": "the server has received too many requests and has asked us to try again later",
    "reason": "TooManyRequests",
    "details": {"retryAfterSeconds": 1},
    "code": 429,
}
Question = Callable[[], bool]
Action = Callable[[str, str], None]


class ApiProxy:
    """A context manager. `refuses` is asked about each request whether it is refused with 429, and
    `refused` is how many were; `before` (method, path with query) is called before one goes on, on
    a thread that may wait."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._directory = directory
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._ready = threading.Event()
        self._silent: set[str] = set()
        self._watches: dict[str, str] = {}
        self._count = 0
        self.refuses: Question = lambda: False
        self.before: Action | None = None
        self.refused = 0
        self.kubeconfig = directory / "proxied.yaml"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_SECONDS_MAX), "the proxy does not serve"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def silence(self) -> set[str]:
        """Not a byte comes on the watches of now any more; the paths of what they watch. Watches
        that are begun later are sound."""
        self._silent |= self._watches.keys()
        return self.silent

    @property
    def silent(self) -> set[str]:
        """The paths of silenced watches that are still open."""
        return {
            path.partition("?")[0] for key, path in self._watches.items() if key in self._silent
        }

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        made = self._control_plane.serving_certificate(HOST)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(made.certificate, made.key)
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{rest:.*}", self._answer)
        runner = web.AppRunner(
            application, shutdown_timeout=STOP_SECONDS, access_log=None, handler_cancellation=True
        )
        connector = aiohttp.TCPConnector(ssl=self._control_plane.ssl_context(), limit=0)
        limits = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=limits) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, HOST, 0, ssl_context=context)
            await site.start()
            port = runner.addresses[0][1]
            kubeconfigs.write_kubeconfig(
                self.kubeconfig,
                server=f"https://{HOST}:{port}",
                authority=self._control_plane.authority,
                user="proxied",
                credential=kubeconfigs.token_credential("nobody-looks"),
            )
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method, path = request.method, request.path_qs
        if self.refuses():
            self.refused += 1
            return web.Response(
                status=TOO_MANY["code"],  # type: ignore[arg-type]
                body=json.dumps(TOO_MANY),
                content_type="application/json",
                headers={"Retry-After": "1"},
            )
        body = await request.read()
        if self.before is not None:
            await asyncio.to_thread(self.before, method, path)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        try:
            async with self._session.request(
                method, f"{self._control_plane.server}{path}", data=body or None, headers=headers
            ) as answer:
                return await self._pass_on(request, answer)
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=str(error))

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        said = web.StreamResponse(status=answer.status)
        said.content_type = answer.content_type
        self._count += 1
        key = f"{self._count}"
        if "watch=true" in request.query_string:
            self._watches[key] = request.path_qs
        try:
            await said.prepare(request)
            async for piece in answer.content.iter_any():
                if key in self._silent:
                    await asyncio.Event().wait()  # until who asked goes away
                await said.write(piece)
            if key in self._silent:
                await asyncio.Event().wait()
            await said.write_eof()
        except ConnectionResetError:
            pass  # who asked has gone away
        finally:
            self._watches.pop(key, None)
        return said
