"""One sidecar, from its start to its end.

    socket ──► store ──► requests and rounds ──SIGTERM, SIGINT──► the last round ──► heartbeat gone,
    socket gone

A sidecar that is killed leaves a session that runs out, and a socket file that the next one
replaces. `__main__` calls `serve`.
"""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

import rekindle_zookeeper
from rekindle.model.errors import InputError
from rekindle.protocol import msgspec_warmup, store_paths
from rekindle_sidecar import http_api, json_log
from rekindle_sidecar.sidecar_options import SidecarOptions
from rekindle_sidecar.sidecar_session import SidecarSession
from rekindle_sidecar.store_sync import StoreSync
from rekindle_zookeeper import Connection, Encryption

# a handler that is about to answer may do so; long polls are answered at once
SHUTDOWN_SECONDS = 1.0
LAST_ROUND_SECONDS = 3.0


def serve(options: SidecarOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises InputError for options that cannot be followed."""
    json_log.configure()
    place = store_paths.Place(options.namespace, options.application).checked()
    path = Path(options.socket)
    if options.secret_file is not None:
        rekindle_zookeeper.read_secret(Path(options.secret_file))
    encryption = Encryption.of(None if options.ca_file is None else Path(options.ca_file))
    msgspec_warmup.work_out()
    listener = http_api.listen(path)
    inode = path.stat().st_ino
    try:
        asyncio.run(_serve(options, place, encryption, listener))
    finally:
        listener.close()
        http_api.remove_socket(path, inode)
    json_log.tell("ended")


async def _serve(
    options: SidecarOptions,
    place: store_paths.Place,
    encryption: Encryption | None,
    listener: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    desk = SidecarSession(place, options.session_seconds, clock=loop.time, wall_clock=time.time)
    async with (
        _connected(options, encryption) as connection,
        _serving(desk, listener, options),
    ):
        tender = StoreSync(connection, desk)
        rounds = asyncio.create_task(tender.run())
        json_log.tell("started", place=str(place), socket=options.socket)
        stopped = asyncio.create_task(stop.wait())
        # rounds end by themselves only by a bug; then the sidecar does, and is started again
        await asyncio.wait([rounds, stopped], return_when=asyncio.FIRST_COMPLETED)
        json_log.tell("ending")
        desk.end()
        tender.end()
        await asyncio.wait([rounds], timeout=LAST_ROUND_SECONDS)
        if rounds.done():
            rounds.result()


@contextlib.asynccontextmanager
async def _connected(
    options: SidecarOptions, encryption: Encryption | None
) -> AsyncIterator[Connection]:
    connection = rekindle_zookeeper.connect(
        options.zookeeper,
        secret_file=None if options.secret_file is None else Path(options.secret_file),
        encryption=encryption,
        session_seconds=options.session_seconds,
    )
    try:
        yield connection
    finally:
        await asyncio.to_thread(connection.close)


@contextlib.asynccontextmanager
async def _serving(
    desk: SidecarSession, listener: socket.socket, options: SidecarOptions
) -> AsyncIterator[None]:
    """Requests of the driver and, where wanted, metrics."""
    runner = _runner(http_api.application(desk))
    await runner.setup()
    await web.SockSite(runner, listener).start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        if options.port is not None:
            await stack.enter_async_context(_monitored(desk, options.host, options.port))
        yield


@contextlib.asynccontextmanager
async def _monitored(desk: SidecarSession, host: str, port: int) -> AsyncIterator[None]:
    from rekindle_sidecar import sidecar_metrics  # two MB that are not needed without a port

    runner = _runner(sidecar_metrics.application(desk))
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise InputError(
                where=f"--port {port}",
                what=f"cannot be listened on at {host} ({error.strerror})",
                remedy="name a port that is free, on an address of this machine",
            ) from error
        yield
    finally:
        await runner.cleanup()


def _runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_SECONDS,
        # What is compressed is refused, but aiohttp would unpack it before a handler is asked.
        auto_decompress=False,
    )
