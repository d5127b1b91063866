"""A session with ZooKeeper that is kept for ever, by one kazoo client after the other.

    connecting ──► connected ◄──► suspended ──expired──► connected, in a new session
         ▲             │              │
         └──1 s────────┴─client ended─┘

kazoo connects again by itself, unless something happens that it does not expect: then another
client takes its place. Servers that have lost their data, or were given an older copy, refuse a
client that has seen a later state than theirs, and never say that its session is over. So a client
that has been suspended for long asks as one that has seen nothing: servers that know its session
go on with it, others end it. `run` gives each request to the servers once; it does not repeat one,
since only the caller knows whether it may happen twice.
"""

import contextlib
import logging
import select
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import Callback, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from rekindle.model.errors import RunError
from rekindle_zookeeper.acl import Access
from rekindle_zookeeper.encryption import Encryption

# Errors that callers of the coordination store must handle.
#
# Whatever else goes wrong is a RunError that names the record.


class StoreUnreachable(RunError):
    """The store did not answer in time. A write may have been carried out all the same, then or
    later: read again, and write what must not happen twice on the condition of a version."""


class Conflict(Exception):
    """A record is not at the version that the write was made for; nothing has been written."""


Files = list[Any]


# Waiting for sockets, as the ZooKeeper client does many times for each request.
#
# kazoo makes an epoll anew for each wait: five system calls, at each of which the thread gives up
# the interpreter and has to get it back. poll(2) is one.
#
# What TLS has read off the network and nobody has taken yet makes no socket readable, so it is
# asked for besides: kazoo would leave an answer that came together with another one until the next
# ping.
#
# A watch that only notes something is called on the thread that reads the socket: to wake another
# one for each event takes longer than all that it does.


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's own threads and queues, with another way to wait, and TLS by `encryption`."""

    def __init__(self, encryption: Encryption | None = None) -> None:
        super().__init__()
        self._encryption = encryption

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A socket to the server that kazoo names. Raises OSError."""
        if self._encryption is None:
            return super().create_connection(*args, **kwargs)
        return self._encryption.connect(kwargs["address"], kwargs["hostname"], kwargs["timeout"])

    def dispatch_callback(self, callback: Callback) -> None:
        """Call a callback that `is_brief` at once, any other on the thread for callbacks."""
        if not getattr(callback.func, "is_brief", False):
            super().dispatch_callback(callback)
            return
        try:
            callback.func(*callback.args)
        except Exception:  # it must not end the connection
            LOG.exception("a callback of a watch has failed")

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
        held = [file for file in readers if _holds_data(file)]
        if held and not writers:
            return held, [], []
        wanted: dict[int, int] = {}
        for files, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for file in files:
                wanted[file.fileno()] = wanted.get(file.fileno(), 0) | event
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        wait = 0 if held else timeout
        ready = dict(poll.poll(None if wait is None else wait * 1_000))
        return (
            [
                file
                for file in readers
                if file in held or ready.get(file.fileno(), 0) & ~select.POLLOUT
            ],
            [file for file in writers if ready.get(file.fileno(), 0) & ~select.POLLIN],
            [],
        )


def _holds_data(file: Any) -> bool:
    """Whether something can be read of it that has come already."""
    return isinstance(file, ssl.SSLSocket) and file.pending() > 0


RESTART_SECONDS = 1.0
# of a session's time, for which it is suspended before an older state is accepted
OLDER_AFTER = 1.5
# kazoo's own limit for the wait between two attempts is an hour
RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
TROUBLE = (
    KazooTimeoutError,
    exceptions.AuthFailedError,
    exceptions.ConnectionDropped,
    exceptions.ConnectionLoss,
    exceptions.NotReadOnlyCallError,
    exceptions.OperationTimeoutError,
    exceptions.RequestTimeoutError,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
    exceptions.ThrottledOpError,
)
# what callers reckon with: a record is there, or not, or has changed
EXPECTED = (
    exceptions.BadVersionError,
    exceptions.NodeExistsError,
    exceptions.NoNodeError,
    exceptions.NotEmptyError,
)
# of the steps of a transaction around the one that failed
CONSEQUENCES = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
LOG = logging.getLogger("rekindle_zookeeper")
# kazoo logs all that it sends at DEBUG, the secret too
LOG_OF_KAZOO = logging.getLogger("rekindle_zookeeper.kazoo")
LOG_OF_KAZOO.setLevel(logging.WARNING)


class Sessions:
    """`changed` is called on the connection's own thread after connect, suspend and loss: it must
    not wait for anything. `session` is the id of the newest one, None when it is known to be over.
    """

    def __init__(
        self,
        hosts: str,
        access: Access,
        acl_of: Callable[[str], list[ACL]] | None = None,
        *,
        encryption: Encryption | None = None,
        session_seconds: float,
        deadline_seconds: float,
        changed: Callable[[], None],
    ) -> None:
        self._settings: dict[str, Any] = {
            "hosts": hosts,
            "timeout": session_seconds,
            "logger": LOG_OF_KAZOO,
        }
        self._access = access
        self._acl_of = acl_of
        self._encryption = encryption
        self._changed = changed
        self.deadline_seconds = deadline_seconds
        self.session: int | None = None
        self.closed = False
        self._changes = 0

    def start(self) -> None:
        """Begin to connect; returns at once."""
        if self.closed:
            return
        credential = self._access.credential
        client = KazooClient(
            **self._settings,
            auth_data=[] if credential is None else [credential.shown],
            default_acl=None if credential is None else credential.acl,
            handler=PollingHandler(self._encryption),
            connection_retry=KazooRetry(**RETRY),
            command_retry=KazooRetry(**RETRY),
        )
        client.add_listener(lambda state: self._listen(client, state))
        self.client = client
        self._live = client.start_async()

    @property
    def reachable(self) -> bool:
        """Whether there is a connection, as far as it is known."""
        return bool(self.client.connected) and not self.closed

    def run(self, ask: Callable[[KazooClient], Any], where: str) -> Any:
        """What the servers answer to what `ask` sends, the record `where` being concerned.

        Raises StoreUnreachable, a kazoo error of `EXPECTED`, or RunError for any other; for a
        transaction that of the step that failed.
        """
        (answer,) = self.run_all([ask], where)
        return answer

    def run_all(self, asks: Sequence[Callable[[KazooClient], Any]], where: str) -> list[Any]:
        """The answers to several requests, which are under way at the same time. Raises as `run`
        does, for the first that fails."""
        end = time.monotonic() + self.deadline_seconds
        if not self._live.wait(self.deadline_seconds) or self.closed:
            raise self._unreachable(where, "there is no connection")
        try:
            asked = [ask(self.client) for ask in asks]
            return [
                _succeeded(item.get(timeout=max(0.01, end - time.monotonic()))) for item in asked
            ]
        except TROUBLE as error:
            raise self._unreachable(where, type(error).__name__) from error
        except EXPECTED:
            raise
        except exceptions.NoAuthError as error:
            renewed = self._renew()
            raise RunError(
                where=f"coordination store: {where}",
                what="may not be read or written with this secret"
                + (", but its file has another one by now" if renewed else ""),
                remedy="try it again"
                if renewed
                else "give all parts the same secret file, or none; a namespace's credential opens "
                "the records of that namespace alone",
            ) from error
        except exceptions.QuotaExceededError as error:
            raise RunError(
                where=f"coordination store: {where}",
                what="the namespace has as many records, or bytes, as its quota allows",
                remedy="`rekindle reset` applications that are gone, or give the chart a larger "
                "store.credentials.recordsMax or megabytesMax",
            ) from error
        except exceptions.KazooException as error:
            raise RunError(
                where=f"coordination store: {where}",
                what=f"the servers refuse the request ({type(error).__name__})",
                remedy="see the logs of the servers",
            ) from error

    def send(self, ask: Callable[[KazooClient], IAsyncResult]) -> IAsyncResult | None:
        """Give the servers a request and wait for nothing; None without a connection."""
        if not self.reachable:
            return None
        try:
            return ask(self.client)
        except (*TROUBLE, exceptions.KazooException):
            return None  # the connection has just ended

    def answer(self, sent: IAsyncResult | None, where: str) -> Any:
        """The answer to a request that was sent; None where it failed, so that it has to be sent
        again. Raises StoreUnreachable where it does not come in time, and the kazoo errors of
        `EXPECTED`."""
        if sent is None:
            return None
        try:
            return sent.get(timeout=self.deadline_seconds)
        except KazooTimeoutError as error:
            raise self._unreachable(where, type(error).__name__) from error
        except EXPECTED:
            raise
        except (*TROUBLE, exceptions.KazooException):
            return None

    def acl(self, path: str) -> list[ACL] | None:
        """Who may do what with a record that is made; None where everybody may do everything."""
        credential = self._access.credential
        if credential is None:
            return None
        return credential.acl if self._acl_of is None else self._acl_of(path)

    def _renew(self) -> bool:
        """Show the credential that the file has now; whether it is another one."""
        found = self._access.renew()
        if found is None:
            return False
        LOG.warning("the secret file has another credential, which is shown from now on")
        self.client.default_acl = found.acl
        with contextlib.suppress(exceptions.KazooException):
            self.client.add_auth_async(*found.shown)
        return True

    def owner(self, where: str) -> int:
        """The session that an ephemeral record would belong to now."""
        known = self.client.client_id
        if known is None:
            raise self._unreachable(where, "there is no session")
        session: int = known[0]
        return session

    def close(self) -> None:
        """End the session, and with it what is ephemeral; without connection the servers do so
        when its time is over."""
        self.closed = True
        # an attempt to connect is not given up before it has timed out
        ending = threading.Thread(target=self._end, daemon=True)
        ending.start()
        ending.join(self.deadline_seconds)
        self.session = None

    def _end(self) -> None:
        with contextlib.suppress(exceptions.KazooException):
            self.client.stop()
            self.client.close()

    def _listen(self, client: KazooClient, state: str) -> None:
        if client is not self.client:
            return
        self._changes += 1
        change = self._changes
        if state == KazooState.CONNECTED:
            self.session = client.client_id[0]
        elif state == KazooState.SUSPENDED:
            seconds = OLDER_AFTER * self._settings["timeout"]
            _later(seconds, lambda: self._accept_older(client, change))
        elif state == KazooState.LOST:
            self.session = None
            if client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
                self._start_again()
        if not self.closed:
            self._changed()

    def _accept_older(self, client: KazooClient, change: int) -> None:
        """Have a client that has been suspended since that change accept any state of the store."""
        if self._changes == change:
            client.last_zxid = 0

    def _start_again(self) -> None:
        if not self.closed:
            LOG.warning("the ZooKeeper client has ended; another one is started")
            _later(RESTART_SECONDS, self.start)

    def _unreachable(self, where: str, why: str) -> StoreUnreachable:
        trouble = None if self._encryption is None else self._encryption.trouble
        if trouble is not None and not self.client.connected:
            return StoreUnreachable(
                where=f"coordination store: {where}",
                what=f"no answer within {self.deadline_seconds:g} s: {trouble.what}",
                remedy=trouble.remedy,
            )
        return StoreUnreachable(
            where=f"coordination store: {where}",
            what=f"no answer within {self.deadline_seconds:g} s ({why})",
            remedy="see whether the ZooKeeper servers run, and how they can be reached",
        )


def _later(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _succeeded(answer: Any) -> Any:
    """The answer, unless it is that of a transaction that was not carried out."""
    steps = answer if isinstance(answer, list) else []
    for step in steps:
        if isinstance(step, exceptions.KazooException) and not isinstance(step, CONSEQUENCES):
            raise step
    return answer
