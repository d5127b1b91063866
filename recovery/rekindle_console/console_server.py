"""The console over HTTP: pages, and their news as server-sent events, on threads of its own.

    GET /, /applications/...        a page
    GET /events?path=...            the same page again whenever it has changed
    GET /console.css, /console.js   what the pages need beside them

Read only, and without authentication. It has limits on clients and on what they make it do, so that
the thread that decides does not notice it. `serve` starts it.
"""

import asyncio
import contextlib
import ipaddress
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from aiohttp import web

from rekindle.model.errors import InputError
from rekindle_console import html_rendering
from rekindle_console.console_reader import Reader
from rekindle_console.page_addresses import Address, PageKind, parse
from rekindle_console.page_router import Made, Pages
from rekindle_coordinator.dual_stack_server import ServerThread

# A thread for the console's work that leaves the interpreter to others most of the time.
#
# Whatever it works for a second of CPU, it rests for four: it takes a fifth of a core at most,
# also with many clients, and the thread that decides gets the interpreter back soon.

REST_PER_WORK = 4.0
SLICE_SECONDS = 0.02
REST_SECONDS_MAX = 2.0
WAITING_MAX = 256

Result = TypeVar("Result")


@dataclass(slots=True)
class Throttle:
    """Rests as long as is due for the CPU time since the last rest; of one thread."""

    _since: float = 0.0

    def begin(self) -> None:
        """Work begins."""
        self._since = time.thread_time()

    def rest(self, least: float = SLICE_SECONDS) -> None:
        """Rest, where at least so many seconds were worked."""
        worked = time.thread_time() - self._since
        if worked >= least:
            time.sleep(min(REST_SECONDS_MAX, REST_PER_WORK * worked))
            self._since = time.thread_time()


@dataclass(slots=True)
class _Job:
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    function: Callable[[], Any]


@dataclass(slots=True)
class Worker:
    """One thread; jobs are done in the order in which they came."""

    throttle: Throttle = field(default_factory=Throttle)
    _jobs: "queue.Queue[_Job | None]" = field(default_factory=lambda: queue.Queue(WAITING_MAX))
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work."""
        self._thread = threading.Thread(target=self._run, name="console-worker", daemon=True)
        self._thread.start()

    async def do(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises. Raises queue.Full where too much waits."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._jobs.put_nowait(_Job(loop, future, function))
        return await future

    def close(self) -> None:
        """End once the job in hand is done."""
        while True:
            try:
                self._jobs.put_nowait(None)
                break
            except queue.Full:
                self._jobs.get_nowait()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.throttle.begin()
            try:
                result, error = job.function(), None
            except Exception as raised:  # it is for whoever waits
                result, error = None, raised
            _deliver(job, result, error)
            self.throttle.rest(0.0)


def _deliver(job: _Job, result: Any, error: Exception | None) -> None:
    def settle() -> None:
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the console has ended
        return


CONNECTIONS_MAX = 160
BEGIN_SECONDS = 5.0
REQUESTS_MAX = 32
STREAMS_MAX = 64
STREAM_SECONDS_MAX = 600.0
PAGES_MAX = 64
PAGE_SECONDS = 1.0
TIME_SECONDS = 5.0
ANSWER_SECONDS_MAX = 3.0
WRITE_SECONDS_MAX = 10.0
SHUTDOWN_SECONDS = 1.0
CLOSE_SECONDS_MAX = 10.0
RETRY_MILLISECONDS = 3_000
BUSY_SECONDS = 10
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LOG = logging.getLogger("rekindle_console")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(reader: Reader, port: int, host: str = "127.0.0.1") -> "Console":
    """Serve a console on a port (0: any that is free) until it is closed. `host` "" is every
    address. Raises InputError for an address that cannot be listened on."""
    console = Console(reader, host, port)
    console.start()
    return console


def is_own_host(header: str, host: str) -> bool:
    """Whether a request's `Host` may be answered where the console listens at `host`: on loopback
    only names and addresses of loopback, elsewhere any.

    Else a page of somebody else, whose name leads to loopback, could read what a browser gets here.
    """
    if not _is_loopback(host):
        return True
    name = header.rpartition(":")[0] if not header.endswith("]") else header
    name = name if name and header.rpartition(":")[2].isdigit() else header
    return _is_loopback(name)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(slots=True)
class _Cached:
    at: float
    page: "asyncio.Task[Made]"


class Console:
    """A server and the thread on which it works."""

    def __init__(self, reader: Reader, host: str, port: int) -> None:
        self._host = host
        self._worker = Worker()
        self._pages = Pages(reader, self._worker.throttle.rest)
        self._made: OrderedDict[Address, _Cached] = OrderedDict()
        self._requests = self._streams = 0
        self._thread = ServerThread("console", self._serve, host, port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._thread.port

    def start(self) -> None:
        """Listen; returns when it does."""
        self._worker.start()
        try:
            self._thread.start()
        except OSError as error:
            self._worker.close()
            raise InputError(
                where=f"--console-port {self.port}",
                what=f"cannot be listened on at {self._host or 'any address'} "
                f"({error.strerror or error})",
                remedy="name a port that is free, and an address of this machine",
            ) from error

    def close(self) -> None:
        """End, with all that it does for somebody. Safe to repeat."""
        self._thread.end()
        self._pages.close()
        self._thread.join(CLOSE_SECONDS_MAX)
        self._worker.close()

    async def _serve(self) -> None:
        app = web.Application(middlewares=[self._guarded], client_max_size=1024)
        app.router.add_get("/console.css", self._style_sheet)
        app.router.add_get("/console.js", self._script)
        app.router.add_get("/events", self._events, allow_head=False)
        app.router.add_get("/{path:.*}", self._page)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            keepalive_timeout=15.0,
            auto_decompress=False,  # no page reads a body
        )
        await runner.setup()
        assert runner.server is not None
        connect = _Limited(runner.server)
        try:
            listener = self._thread.listen()
            listening = await asyncio.get_running_loop().create_server(connect, sock=listener)
            self._thread.report_listening()
            await self._thread.is_ended(None)
            listening.close()
        finally:
            await runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """No more at once than can be served, for nobody else's name, with our headers."""
        if not is_own_host(request.headers.get("Host", ""), self._host):
            text = "This console answers to names of loopback only; see docs/console.md.\n"
            return web.Response(status=421, text=text, headers=HEADERS)
        is_stream = request.path == "/events"
        if not is_stream and self._requests >= REQUESTS_MAX:
            return _busy()
        if is_stream:
            return await handler(request)
        self._requests += 1
        try:
            response = await handler(request)
        except queue.Full:
            return _busy()
        except web.HTTPException as refused:
            refused.headers.update(HEADERS)
            raise
        except Exception:  # a bug of ours; who decides goes on
            LOG.exception("the page %s cannot be made", request.path[:200])
            return web.Response(status=500, text="This page cannot be made.\n", headers=HEADERS)
        finally:
            self._requests -= 1
        response.headers.update(HEADERS)
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        address = parse(request.rel_url.raw_path, request.query)
        if address is None:
            return web.Response(status=404, text="There is no such page; begin at /.\n")
        made = await self._page_of(address)
        if made.awaits:
            await self._await_answer(address, made.awaits)
            made = await self._page_of(address)
        news = html_rendering.news_of(address, made.digest)
        text = html_rendering.whole(made.fragment, made.title, address, news, _clock())
        return web.Response(status=made.status, text=text, content_type="text/html")

    async def _await_answer(self, address: Address, key: str) -> None:
        """Wait a little for what is being worked out: who has no script sees it then."""
        kind = PageKind.FORECAST
        asker = self._pages.forecasts if address.kind is kind else self._pages.explanations
        await asyncio.to_thread(asker.await_answer, key, ANSWER_SECONDS_MAX)
        self._made.pop(address, None)

    async def _page_of(self, address: Address) -> Made:
        """The page, made anew when it is a second old; one for all who look at it."""
        now = time.monotonic()
        cached = self._made.get(address)
        if cached is None or (cached.page.done() and now - cached.at > PAGE_SECONDS):
            page = asyncio.ensure_future(
                self._worker.do(lambda: self._pages.make(address, time.time()))
            )
            cached = self._made[address] = _Cached(now, page)
            page.add_done_callback(lambda done: self._settled(cached, done))
            while len(self._made) > PAGES_MAX:
                self._made.popitem(last=False)
        self._made.move_to_end(address)
        return await asyncio.shield(cached.page)

    def _settled(self, cached: _Cached, done: "asyncio.Task[Made]") -> None:
        """It counts from when it was made; one that failed is not kept."""
        cached.at = time.monotonic()
        if done.cancelled() or done.exception() is not None:
            cached.at = float("-inf")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        address = parse(request.query.get("path", "/"), request.query)
        if address is None:
            return web.Response(status=404, text="There is no such page.\n", headers=HEADERS)
        if self._streams >= STREAMS_MAX:
            return _busy()
        self._streams += 1
        try:
            return await self._stream(request, address)
        finally:
            self._streams -= 1

    async def _stream(self, request: web.Request, address: Address) -> web.StreamResponse:
        """Send the page whenever it is another one than the client has, and the time of day."""
        response = web.StreamResponse(headers={**HEADERS, "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        sent = request.headers.get("Last-Event-ID") or request.query.get("seen", "")
        await response.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        until, told_at = time.monotonic() + STREAM_SECONDS_MAX, float("-inf")
        # one that ends is asked for anew by the browser; a bug is told with the page itself
        with contextlib.suppress(Exception):
            while time.monotonic() < until and not await self._thread.is_ended(PAGE_SECONDS):
                made = await self._page_of(address)
                news = made.digest != sent
                if not news and time.monotonic() - told_at < TIME_SECONDS:
                    continue
                text = _event("time", _clock())
                if news:
                    text = _event("page", made.fragment, made.digest) + text
                    sent = made.digest
                told_at = time.monotonic()
                await asyncio.wait_for(response.write(text.encode()), WRITE_SECONDS_MAX)
        return response

    async def _style_sheet(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text=html_rendering.style_sheet(), content_type="text/css")

    async def _script(self, request: web.Request) -> web.Response:
        del request
        return web.Response(text=html_rendering.script(), content_type="text/javascript")


class _Limited:
    """Makes protocols for connections, no more at once than are allowed."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._begun: dict[asyncio.Protocol, float] = {}

    def __call__(self) -> asyncio.Protocol:
        now, counted = time.monotonic(), set(self._server.connections)
        # the server counts a connection only some turns of the loop after it was made
        self._begun = {
            protocol: at
            for protocol, at in self._begun.items()
            if protocol not in counted and now - at < BEGIN_SECONDS
        }
        if len(counted) + len(self._begun) >= CONNECTIONS_MAX:
            return _Refusal()
        protocol = self._server()
        self._begun[protocol] = now
        return protocol


class _Refusal(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _busy() -> web.Response:
    headers = {**HEADERS, "Retry-After": str(BUSY_SECONDS)}
    return web.Response(status=503, text="Too many look at once; try again.\n", headers=headers)


def _clock() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S UTC")


def _event(kind: str, data: str, identity: str = "") -> str:
    lines = "".join(f"data: {line}\n" for line in data.splitlines())
    named = f"id: {identity}\n" if identity else ""
    return f"event: {kind}\n{named}{lines}\n"
