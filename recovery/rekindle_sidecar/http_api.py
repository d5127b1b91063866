"""HTTP on the Unix socket: requests to the desk, its answers and refusals back.

    POST /v1/handshake    GET /v1/directives?after=N&generation=G&wait=S    GET /v1/schema
    POST /v1/reports      POST /v1/acks                                     GET /v1/health
    GET /v1/admission?namespace=N&application=A&generation=G&store=S

Every body is JSON, that of a refusal has `where`, `what` and `remedy`. Only an admission waits for
the store.
Only the user that the sidecar runs as may connect. A socket file that a killed sidecar has left is
replaced; one that somebody listens on is not.
"""

import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import msgspec
from aiohttp import web

from rekindle import protocol
from rekindle.model.errors import InputError
from rekindle.protocol import MESSAGE_BYTES_MAX
from rekindle_sidecar import http_errors
from rekindle_sidecar.http_errors import Cause, RequestRefusal
from rekindle_sidecar.json_log import tell
from rekindle_sidecar.sidecar_session import DriverConnection, SidecarSession

WAIT_SECONDS_MAX = 30.0
# of a path in `sockaddr_un`, with the zero at its end
PATH_BYTES_MAX = 107
BACKLOG = 64
PROBE_SECONDS = 1.0
CREDENTIALS = struct.Struct("3i")  # process, user, group

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpApi:
    """The handlers, over one desk."""

    def __init__(self, desk: SidecarSession) -> None:
        self._desk = desk
        self._told = ""

    async def handshake(self, request: web.Request) -> web.Response:
        """Introduces a driver."""
        body, line = await _body(request, "handshake"), _line(request)
        peer = process_at(line.get_extra_info("socket"))
        return _answer(self._desk.handshake(body, line, peer))

    async def reports(self, request: web.Request) -> web.Response:
        """Takes one report."""
        body = await _body(request, "report")
        return _answer(self._desk.report(body, _line(request)))

    async def acks(self, request: web.Request) -> web.Response:
        """Takes one acknowledgement."""
        body = await _body(request, "acknowledgement")
        return _answer(self._desk.acknowledge(body, _line(request)))

    async def directives(self, request: web.Request) -> web.Response:
        """Gives directives, or waits for one."""
        where = "directives"
        after = _count(request, where, "after")
        generation = _count(request, where, "generation")
        wait = _seconds(request, "wait")
        return _answer(await self._desk.directives(after, generation, wait, _line(request)))

    async def admission(self, request: web.Request) -> web.Response:
        """Tells whether a driver would be taken."""
        namespace, application, store = (
            request.query.get(name, "") for name in ("namespace", "application", "store")
        )
        generation = _count(request, "admission", "generation")
        return _answer(await self._desk.admission(namespace, application, generation, store))

    async def schema(self, request: web.Request) -> web.Response:  # noqa: ARG002
        """Gives the schema of all messages."""
        return _answer(msgspec.json.encode(protocol.schema()))

    async def health(self, request: web.Request) -> web.Response:  # noqa: ARG002
        """Tells how things are."""
        return _answer(msgspec.json.encode(self._desk.health()))

    @web.middleware
    async def refusing(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers with what was refused, and why."""
        try:
            return await handler(request)
        except RequestRefusal as error:
            refusal = error
        except web.HTTPException as error:
            refusal = _unknown(request, error)
        self._desk.figures.refusals[refusal.cause] += 1
        if str(refusal) != self._told:  # one that is repeated is told once
            self._told = str(refusal)
            tell("refused", level=logging.WARNING, cause=refusal.cause, text=self._told[:1_000])
        return _answer(msgspec.json.encode(refusal.body), refusal.status)


def application(desk: SidecarSession) -> web.Application:
    """What serves the driver's requests."""
    endpoints = HttpApi(desk)
    app = web.Application(middlewares=[endpoints.refusing], client_max_size=MESSAGE_BYTES_MAX)
    app.router.add_post("/v1/handshake", endpoints.handshake)
    app.router.add_post("/v1/reports", endpoints.reports)
    app.router.add_post("/v1/acks", endpoints.acks)
    app.router.add_get("/v1/directives", endpoints.directives, allow_head=False)
    app.router.add_get("/v1/admission", endpoints.admission)
    app.router.add_get("/v1/schema", endpoints.schema)
    app.router.add_get("/v1/health", endpoints.health)
    return app


def listen(path: Path) -> socket.socket:
    """A socket that listens at `path`, mode 0600. Raises InputError where that cannot be."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        _refuse_path(path, f"is longer than {PATH_BYTES_MAX} bytes", "name a shorter path")
    try:
        _clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError as error:
        _refuse_path(
            path, f"cannot be made ({error.strerror})", "name a path in a folder of your own"
        )
    listener.setblocking(False)
    return listener


def remove_socket(path: Path, inode: int) -> None:
    """Remove the socket file, unless another one has taken its place."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return


def process_at(other: socket.socket) -> int:
    """The process at the other end; 0 when it is in another process namespace."""
    data = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process: int = CREDENTIALS.unpack(data)[0]
    return process


def _answer(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


async def _body(request: web.Request, where: str) -> bytes:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":  # a few bytes could become as many as fit into memory
        error = InputError(
            where=where, what=f"is encoded ({encoding[:60]})", remedy="send it plain"
        )
        raise http_errors.malformed(error)
    if (request.content_length or 0) > MESSAGE_BYTES_MAX:
        raise _oversized(where)
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise _oversized(where) from error


def _oversized(where: str) -> RequestRefusal:
    error = InputError(
        where=where,
        what=f"is larger than {MESSAGE_BYTES_MAX} bytes",
        remedy="send less at once, see docs/protocol.md",
    )
    return RequestRefusal(413, Cause.OVERSIZED, error)


def _unknown(request: web.Request, error: web.HTTPException) -> RequestRefusal:
    found = InputError(
        where=f"{request.method} {request.path[:200]}",
        what=error.reason.lower(),
        remedy="see docs/protocol.md for paths and methods",
    )
    return RequestRefusal(error.status, Cause.UNKNOWN, found)


def _line(request: web.Request) -> DriverConnection:
    transport = request.transport
    if transport is None:  # gone while its request was read
        raise ConnectionResetError
    return transport


def _count(request: web.Request, where: str, name: str) -> int:
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        _refuse_parameter(where, name, text, "a whole number that is not negative")
    return int(text)


def _seconds(request: web.Request, name: str) -> float:
    text = request.query.get(name, "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= WAIT_SECONDS_MAX:
        wanted = f"seconds from 0 to {WAIT_SECONDS_MAX:g}"
        _refuse_parameter("directives", name, text, wanted)
    return seconds


def _refuse_parameter(where: str, name: str, text: str, wanted: str) -> NoReturn:
    error = InputError(where=f"{where}: {name}", what=f"is {text[:60]!r}", remedy=f"give {wanted}")
    raise http_errors.malformed(error)


def _clear(path: Path) -> None:
    """Remove what a killed sidecar has left."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        _refuse_path(path, "is there and no socket", "name a path that is free")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # somebody is there, but does not answer
    _refuse_path(path, "is in use by another process", "give each sidecar a path of its own")


def _refuse_path(path: Path, what: str, remedy: str) -> NoReturn:
    raise InputError(where=f"socket {path}", what=what, remedy=remedy)
