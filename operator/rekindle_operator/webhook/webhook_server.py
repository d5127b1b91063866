"""The webhook's server: HTTPS in a thread of its own.

    POST /inject    an AdmissionReview; the answer allows every pod; 400 for what is none

Waits for nobody: the outlook answers from what the shell has told it. The certificate is asked for
every few seconds, and a new one is presented to connections that begin from then on; those that are
open go on. Until there is one, no handshake succeeds, and pods come up without us. `webhook_main`
starts and closes it.
"""

import asyncio
import contextlib
import os
import ssl
import traceback
from asyncio import sslproto
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import cast

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge

from rekindle.model.errors import InputError, RekindleError
from rekindle_coordinator.dual_stack_server import ServerThread, listen
from rekindle_operator.webhook import admission_review, certificate_rotation, webhook_configuration
from rekindle_operator.webhook.certificate_rotation import Pair
from rekindle_operator.webhook.injection_spec import InjectionSource

# Writes a line to the log: a word, and fields that belong to it. From any thread.
Tell = Callable[..., None]

# An API server takes objects of up to 3 MiB, and JSON of a review around them.
REVIEW_BYTES_MAX = 3_584 * 2**10
# Bodies that are read at once, of all connections. Most reviews have 20 kB.
READ_BYTES_MAX = 8 * 2**20
# The API server keeps a few open, and opens one for each review that has to wait.
CONNECTIONS_MAX = 200
# It waits no longer for an answer than this.
BODY_SECONDS_MAX = 5.0
HANDSHAKE_SECONDS_MAX = 5
SHUTDOWN_SECONDS = 5.0
# So long an end of TLS waits for the other side's; asyncio waits 30 s.
TLS_END_SECONDS_MAX = 1
# For each connection, of TLS and of its body. asyncio has 256 KiB and aiohttp 64, twice as much
# of each while they are full.
TLS_BUFFER_BYTES = 2**15
BODY_BUFFER_BYTES = 2**14
POLL_SECONDS = 2.0


def make_counter(registry: CollectorRegistry) -> Counter:
    """Counts reviews by `role` (driver, executor, other) and `outcome` (injected, passed, refused,
    failed, malformed)."""
    return Counter(
        "rekindle_operator_admissions",
        "Pods that the webhook was asked about.",
        ("role", "outcome"),
        registry=registry,
    )


def make_gauge(registry: CollectorRegistry) -> Gauge:
    """When the presented certificate ends (seconds since 1970), 0 while there is none."""
    return Gauge(
        "rekindle_operator_webhook_certificate_ends_timestamp_seconds",
        "When the presented certificate ends.",
        registry=registry,
    )


class WebhookServer:
    """`source` gives what is to be presented, None while there is nothing; it is called on
    another thread and may read files. `counter` is `make_counter`'s, `tell` writes to the log.
    `host` "" is every address, `port` 0 any that is free."""

    def __init__(
        self,
        outlook: InjectionSource,
        source: Callable[[], Pair | None],
        counter: Counter,
        tell: Tell,
        *,
        host: str = "",
        port: int = 9443,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._outlook = outlook
        self._source = source
        self._counter = counter
        self._tell = tell
        self._address = (host, port)
        self._poll_seconds = poll_seconds
        self._context = _context()
        self._presented: Pair | None = None
        self._told = ""
        # connections that have brought a review
        self._known: set[asyncio.BaseProtocol] = set()
        # in the order in which they came
        self._open: dict[_Connection, None] = {}
        self._reading_bytes = 0
        self._thread = ServerThread("webhook", self._serve, host, port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._thread.port

    @property
    def is_serving(self) -> bool:
        """Whether it listens."""
        return self._thread.is_alive

    @property
    def is_presenting(self) -> bool:
        """Whether it serves and has a certificate, so that handshakes succeed."""
        return self._thread.is_alive and self._presented is not None

    @property
    def ends(self) -> datetime | None:
        """When the certificate that is presented ends; None while there is none."""
        presented = self._presented
        return None if presented is None else certificate_rotation.ends_of(presented)

    def start(self) -> None:
        """Listen; returns when it does. InputError for an address that cannot be listened on."""
        try:
            self._thread.start()
        except OSError as error:
            raise _taken(*self._address, error) from error

    def close(self) -> None:
        """Answer what has begun, and end. Safe to repeat."""
        self._thread.end()
        self._thread.join(2 * SHUTDOWN_SECONDS)

    async def _serve(self) -> None:
        app = web.Application(client_max_size=REVIEW_BYTES_MAX)
        app.router.add_post(webhook_configuration.PATH, self._review)
        sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES  # it has no argument for it
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            read_bufsize=BODY_BUFFER_BYTES,
            # Of what is compressed, 30 kB become 30 MB before anybody has read its length. An API
            # server compresses no review.
            auto_decompress=False,
        )
        await runner.setup()
        try:
            await self._renew()
            assert runner.server is not None
            site = await asyncio.get_running_loop().create_server(
                partial(self._connection, runner.server), sock=self._thread.listen()
            )
            self._thread.report_listening()
            while not await self._thread.is_ended(self._poll_seconds):
                await self._renew()
            site.close()  # what is open ends with the runner; newer Pythons would wait for it here
        finally:
            await runner.cleanup()

    def _connection(self, server: web.Server) -> asyncio.BaseProtocol:
        """What a new connection is given to. Where there are too many, the oldest one that has
        brought no review ends; where all have, the new one does."""
        if len(self._open) >= CONNECTIONS_MAX:
            idle = next((it for it in self._open if it.application not in self._known), None)
            if idle is None:
                return _Full()
            idle.end()
        application = server()
        return _Connection(application, self._context, self._open, self._known)

    async def _renew(self) -> None:
        """Present another certificate when there is one. On this thread, where handshakes begin,
        so that none gets a certificate with the key of another."""
        try:
            pair = await asyncio.to_thread(self._source)
            if pair is not None and pair != self._presented:
                _load(self._context, pair)
                self._presented = pair
                self._tell("certificate-presented")
            self._told = ""
        except (RekindleError, ssl.SSLError) as error:
            self._tell_once("certificate-refused", str(error))
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            raise
        except BaseException:  # a panic of cryptography too: the webhook goes on with what it has
            self._tell_once("certificate-failed", traceback.format_exc())

    def _tell_once(self, word: str, text: str) -> None:
        """What is repeated is told once."""
        if text != self._told:
            self._told = text
            self._tell(word, text=text)

    async def _review(self, request: web.Request) -> web.Response:
        size = request.content_length or REVIEW_BYTES_MAX
        if size > REVIEW_BYTES_MAX or self._reading_bytes + size > READ_BYTES_MAX:
            status = 413 if size > REVIEW_BYTES_MAX else 503
            answer = web.Response(status=status, text="too much at once\n")
            answer.force_close()  # the rest of its body is not read
            return answer
        self._reading_bytes += size
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                body = await request.read()
        except ConnectionError:
            return web.Response(status=400)  # nobody is there to read it
        except TimeoutError:
            answer = web.Response(status=408, text="the body did not come in time\n")
            answer.force_close()
            return answer
        finally:
            self._reading_bytes -= size
        try:
            asked = admission_review.read(body)
        except InputError as error:
            self._counter.labels("other", "malformed").inc()
            return web.Response(status=400, text=f"{error}\n")
        self._known.add(request.protocol)
        found = admission_review.answer(asked, self._outlook)
        self._counter.labels(found.role, found.outcome).inc()
        if found.trouble:
            self._tell("injection-failed", namespace=asked.namespace, text=found.trouble)
        return web.Response(body=found.body, content_type="application/json")


class _Connection(sslproto.SSLProtocol):
    """One that is open, from its first byte to its last: a handshake that does not come and an end
    that nobody confirms hold memory too, and asyncio's own list of connections has neither."""

    def __init__(
        self,
        application: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        there: "dict[_Connection, None]",
        known: set[asyncio.BaseProtocol],
    ) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            application,
            context,
            cast("asyncio.Future[None]", None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
            ssl_shutdown_timeout=TLS_END_SECONDS_MAX,
        )
        self.application = application
        self._there, self._reviewers = there, known
        self._raw: asyncio.BaseTransport | None = None
        there[self] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake; of a burst some have given way before they come here."""
        if self not in self._there:
            cast(asyncio.Transport, transport).abort()
            return
        self._raw = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It has ended."""
        self._forget()
        if self._raw is not None:
            super().connection_lost(exc)

    def end(self) -> None:
        """End it at once, whatever is under way."""
        self._forget()
        if self._raw is not None:
            cast(asyncio.Transport, self._raw).abort()

    def _forget(self) -> None:
        self._there.pop(self, None)
        self._reviewers.discard(self.application)


class _Full(asyncio.Protocol):
    """A connection that there is no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End it."""
        cast(asyncio.Transport, transport).abort()


def check_port(port: int) -> None:
    """InputError for a port that cannot be listened on; it is not listened on yet, for nobody would
    answer there."""
    try:
        listen("", port).close()
    except OSError as error:
        raise _taken("", port, error) from error


def _taken(host: str, port: int, error: OSError) -> InputError:
    return InputError(
        where=f"--port {port}",
        what=f"cannot be listened on at {host or 'any address'} ({error.strerror})",
        remedy="name a port that is free",
    )


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """Take a certificate into a context that is in use. SSLError for one that is not sound, and
    nothing has changed then."""
    with _file(pair) as path:
        # One whose key is another's would leave the context without any.
        _context().load_cert_chain(path, password=_no_password)
        context.load_cert_chain(path, password=_no_password)


def _no_password() -> str:
    """In the place of OpenSSL's question on the terminal."""
    return ""


@contextlib.contextmanager
def _file(pair: Pair) -> Iterator[str]:
    """A file in memory: the key touches no disk, and none has to be writable."""
    number = os.memfd_create("certificate")
    with os.fdopen(number, "wb") as opened:
        opened.write(pair.certificate + b"\n" + pair.key)
        opened.flush()
        yield f"/proc/self/fd/{number}"
