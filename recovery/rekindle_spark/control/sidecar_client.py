"""The driver's end of the sidecar: reports out, directives in, over HTTP on a Unix socket.

Two threads, so that a report need not wait for a long poll: one sends what is newest, the other
asks for directives. The epoch loop only leaves and takes; it never waits for a socket. Whatever
fails is tried again, and how long ago the store last answered is all that anybody needs to know.
"""

import http.client
import json
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from rekindle import protocol
from rekindle.model.errors import FencedError, InputError, RekindleError
from rekindle.protocol import Acknowledgement, Directive, Handshake, Report, msgspec_warmup
from rekindle.protocol.store_paths import Place

ANSWER_SECONDS_MAX = 5.0
WAIT_SECONDS = 5
RETRY_SECONDS = 0.5
ACKNOWLEDGEMENTS_MAX = UNREADABLE_KNOWN_MAX = 1_000
OF_ERRORS = ("where", "what", "remedy")
# What a sidecar that ends, or one of another version, may lead to.
FORESEEN = (OSError, http.client.HTTPException, InputError, KeyError, ValueError)
# Answers that say something of the connection, and not of the one message: a newer driver is known,
# there was no handshake, the sidecar is busy.
OF_THE_CONNECTION = (
    http.HTTPStatus.CONFLICT,
    http.HTTPStatus.REQUEST_TIMEOUT,
    http.HTTPStatus.PRECONDITION_REQUIRED,
    http.HTTPStatus.TOO_MANY_REQUESTS,
)


def handshake(identity: Place, generation: int, store: str = "") -> Handshake:
    """How this process introduces itself as the driver of an application; `store` is the identity
    of its checkpoint store, empty where it has none."""
    return Handshake(
        oldest=protocol.VERSION_OLDEST,
        newest=protocol.VERSION,
        namespace=identity.namespace,
        application=identity.application,
        generation=generation,
        host=socket.gethostname(),
        process_id=os.getpid(),
        store=store,
    )


def refusal(path: Path, identity: Place, generation: int, store: str) -> InputError | None:
    """Why the sidecar would not take a driver that would be of this generation, before anything is
    started; None where it would, or cannot say. `store` is as in `handshake`."""
    would_be = handshake(identity, generation, store)
    asked = urlencode({**identity._asdict(), "generation": generation, "store": store})
    channel = _Channel(path)
    try:
        channel.get(f"/v1/admission?{asked}")
    except SidecarRefused as refused:
        if refused.status == http.HTTPStatus.CONFLICT:
            error = _reason_to_stop(would_be, refused.body)
            return InputError(where=error.where, what=error.what, remedy=error.remedy)
        if refused.status == http.HTTPStatus.BAD_REQUEST and "what" in refused.body:
            return InputError(**_told(refused.body))
    except FORESEEN:  # it is not there yet, or of a release that does not know the request
        pass
    finally:
        channel.close()
    return None


class SidecarRefused(Exception):
    """The sidecar has answered with an error; `body` is its JSON, as far as it is an object."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        self.body: dict[str, Any] = body if isinstance(body, dict) else {}

    @property
    def is_of_message(self) -> bool:
        """Whether the very message will never be taken, and others may be."""
        return 400 <= self.status < 500 and self.status not in OF_THE_CONNECTION


class SidecarClient:
    """A connection that is made again whenever it breaks; `trouble` is why it last did.

    A message that the sidecar refuses is not sent again, so that it holds up no other: `refusals`
    has what was said of it, by kind, until one of its kind is taken.
    """

    def __init__(self, path: Path, hello: Handshake) -> None:
        self._path = path
        self._hello = hello
        self._changed = threading.Condition()
        self._reports: dict[str, Report] = {}
        self._said: dict[str, Report] = {}
        self._acknowledgements: list[Acknowledgement] = []
        self._directives: list[Directive] = []
        self._newest = 0
        self._unreadable: dict[int, None] = {}
        self._sending = False
        self._stopping = False
        self._contact_at = time.monotonic()
        self._led = True
        self._fenced: RekindleError | None = None
        self.trouble = ""
        self._refusals: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(work,), name=name, daemon=True)
            for name, work in (("sidecar-out", self._send), ("sidecar-in", self._ask))
        ]

    def start(self) -> None:
        """Begin to talk."""
        msgspec_warmup.work_out()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Say what is still to be said, for some seconds at most, and stop talking: the sidecar
        sees the driver go."""
        with self._changed:
            self._changed.wait_for(self._is_idle, timeout=ANSWER_SECONDS_MAX)
            self._stopping = True
            self._changed.notify_all()

    @property
    def contact_at(self) -> float:
        """When the store was last known to answer, by time.monotonic()."""
        return self._contact_at

    @property
    def led(self) -> bool:
        """Whether a coordinator leads, as far as is known."""
        return self._led

    @property
    def fenced(self) -> RekindleError | None:
        """Why this driver must stop: FencedError once a newer one is known, InputError once another
        store's history is."""
        return self._fenced

    @property
    def waiting(self) -> bool:
        """Whether there are directives to be looked at."""
        return bool(self._directives)

    @property
    def unreadable(self) -> frozenset[int]:
        """Directives that have been refused because this version cannot read them."""
        return frozenset(self._unreadable)

    @property
    def refusals(self) -> Mapping[str, str]:
        """By kind of message why the last one was refused."""
        with self._changed:
            return dict(self._refusals)

    def report(self, report: Report) -> None:
        """Send a report; a newer one of its kind takes its place if it waits."""
        with self._changed:
            self._reports[type(report).__name__] = report
            self._said[type(report).__name__] = report
            self._changed.notify_all()

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Say what became of a directive."""
        with self._changed:
            self._acknowledgements.append(acknowledgement)
            del self._acknowledgements[:-ACKNOWLEDGEMENTS_MAX]
            self._changed.notify_all()

    def directives(self) -> list[Directive]:
        """What has come since the last call, in order."""
        with self._changed:
            found, self._directives = self._directives, []
            self._changed.notify_all()
        return found

    def looked_at(self, sequence: int) -> None:
        """Directives up to this one need not be given again."""
        with self._changed:
            self._newest = max(self._newest, sequence)

    def _keep(self, work: Callable[["_Channel"], None]) -> None:
        """One thread's life: a channel, and another one when it breaks."""
        while not self._stopping and not self.fenced:
            channel = _Channel(self._path)
            try:
                channel.post("/v1/handshake", protocol.encode(self._hello))
                self._say_again()
                while not self._stopping:
                    work(channel)
            except SidecarRefused as refused:
                self.trouble = str(refused)
                if refused.status == http.HTTPStatus.CONFLICT:
                    self._fenced = _reason_to_stop(self._hello, refused.body)
            except Exception as error:  # a thread that ended would be a driver that says nothing
                self.trouble = f"{type(error).__name__}: {error}"
                if not isinstance(error, FORESEEN):
                    traceback.print_exc()
            finally:
                channel.close()
            self._rest(RETRY_SECONDS)

    def _say_again(self) -> None:
        """Whoever is greeted may know nothing: it gets the newest report of each kind."""
        with self._changed:
            self._reports = {**self._said, **self._reports}

    def _send(self, channel: "_Channel") -> None:
        """Send everything that waits; what could not be sent waits again."""
        with self._changed:
            self._changed.wait_for(self._has_news, timeout=WAIT_SECONDS)
            reports, self._reports = self._reports, {}
            acknowledgements, self._acknowledgements = self._acknowledgements, []
            self._sending = True
        try:
            while reports:
                name = next(iter(reports))
                answer = self._post(channel, "/v1/reports", name, reports[name])
                self._forget(name, reports.pop(name), is_taken=answer is not None)
                if answer is not None:
                    self._note(answer)
            while acknowledgements:
                self._post(channel, "/v1/acks", Acknowledgement.__name__, acknowledgements[0])
                del acknowledgements[0]
        finally:
            with self._changed:
                self._reports = {**reports, **self._reports}
                self._acknowledgements = acknowledgements + self._acknowledgements
                self._sending = False
                self._changed.notify_all()

    def _post(
        self, channel: "_Channel", target: str, name: str, message: Report | Acknowledgement
    ) -> dict[str, Any] | None:
        """The answer to a message; None where this one is refused, and others may not be."""
        try:
            answer = channel.post(target, protocol.encode(message))
        except SidecarRefused as refused:
            if not refused.is_of_message:
                raise
            with self._changed:
                self._refusals[name] = self.trouble = str(refused)
            return None
        with self._changed:
            self._refusals.pop(name, None)
        return answer

    def _forget(self, name: str, report: Report, *, is_taken: bool) -> None:
        """What is refused is not said again to the next sidecar either."""
        with self._changed:
            for known in () if is_taken else (self._said, self._reports):
                if known.get(name) is report:
                    del known[name]

    def _ask(self, channel: "_Channel") -> None:
        """Ask for directives once the last ones have been looked at."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._directives)
            newest = self._newest
        query = f"after={newest}&generation={self._hello.generation}&wait={WAIT_SECONDS}"
        answer = channel.get(f"/v1/directives?{query}")
        self._note(answer)
        found = [self._read(item) for item in answer["directives"]]
        with self._changed:
            self._directives += [item for item in found if item and item.sequence > self._newest]
            idle = bool(found) and not self._directives
        if idle:
            self._rest(RETRY_SECONDS)

    def _read(self, item: dict[str, Any]) -> Directive | None:
        """A directive; one that this version cannot read is refused, and not asked for again."""
        try:
            return protocol.decode(json.dumps(item).encode(), Directive, "directive")
        except InputError as error:
            refused = Acknowledgement(
                sequence=int(item["sequence"]),
                generation=self._hello.generation,
                outcome="refused",
                epoch=0,
                plan_epoch=0,
                text=str(error),
            )
            self.acknowledge(refused)
            self.looked_at(refused.sequence)
            self._unreadable[refused.sequence] = None
            if len(self._unreadable) > UNREADABLE_KNOWN_MAX:
                del self._unreadable[next(iter(self._unreadable))]
            return None

    def _note(self, answer: dict[str, Any]) -> None:
        self._led = bool(answer.get("led", True))  # an older sidecar does not say
        if answer["store_reachable"]:
            self._contact_at = time.monotonic()
            self.trouble = ""

    def _has_news(self) -> bool:
        return bool(self._stopping or self._reports or self._acknowledgements)

    def _is_idle(self) -> bool:
        waits = self._sending or self._reports or self._acknowledgements
        return bool(self._fenced or not waits)

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, timeout=seconds)


def _told(body: Mapping[str, Any]) -> dict[str, str]:
    """Place, fault and remedy as the sidecar says them."""
    return {name: str(body.get(name, ""))[:1_000] for name in OF_ERRORS}


def _reason_to_stop(hello: Handshake, body: Mapping[str, Any]) -> RekindleError:
    """What a driver ends with that the sidecar does not take any more."""
    place = f"{hello.namespace}/{hello.application}"
    if "store" in body:
        return InputError(**_told(body))
    return FencedError(
        where=f"application {place}",
        what=f"has had a driver of generation {body.get('generation', '?')}, this one is of "
        f"generation {hello.generation}",
        remedy="let the newer one go on; where none runs, name the checkpoint store that the "
        f"application had, or start over with `rekindle reset {place}`",
    )


class _Channel:
    """One HTTP connection on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._connection = http.client.HTTPConnection("sidecar", timeout=ANSWER_SECONDS_MAX)
        self._path = path

    def get(self, target: str) -> dict[str, Any]:
        return self._request("GET", target, None, ANSWER_SECONDS_MAX + WAIT_SECONDS)

    def post(self, target: str, body: bytes) -> dict[str, Any]:
        return self._request("POST", target, body, ANSWER_SECONDS_MAX)

    def close(self) -> None:
        self._connection.close()

    def _request(
        self, method: str, target: str, body: bytes | None, seconds: float
    ) -> dict[str, Any]:
        if self._connection.sock is None:
            self._connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.sock.settimeout(seconds)
            self._connection.sock.connect(str(self._path))
        self._connection.sock.settimeout(seconds)
        self._connection.request(method, target, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise SidecarRefused(response.status, content.decode(errors="replace"))
        answer: dict[str, Any] = json.loads(content)
        return answer
