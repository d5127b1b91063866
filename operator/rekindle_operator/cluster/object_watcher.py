"""Objects of a kind: listed page by page, then watched, from one thread each.

    list ──► watch from that version on ──► the version is too old: list again,
                 │                          after a pause where it was so at once
                 │                          an error: list again, after a pause
                 │  ended, or silent for long: watch on from the newest version

Only what is kept of an object leaves this module, as news. An object that cannot be read is told
as unreadable and does not stop the others. The operator watches pods and nodes so, of which there
is too much for kopf, as it lists without pages and keeps a record of every object; the webhook,
which has to be small, watches all that it goes by.

Why: docs/decisions/0025-kopf-watches-the-small-kinds.md.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from rekindle.model.errors import InputError, RekindleError
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator.cluster.api_client import GONE, NOT_FOUND, Api, ApiRefused, Body, path_of
from rekindle_operator.cluster.json_access import ObjectKind

# Events from watching threads to whoever goes by them, in the order in which they came.
#
# News are small changes to what is known (`cluster_view` in the operator), made ready where they
# arrive, so that the deciding thread only carries them out. Nothing is lost or told twice here;
# the queue is without bounds, since what is told again replaces what was known.


class KnownObjects(Protocol):
    """What news change."""

    def see_unreadable(self, kind: str, name: str, why: InputError) -> None:
        """A resource that the API server has let in and that means nothing."""


Known = TypeVar("Known", bound=KnownObjects)
News = Callable[[Known], None]


class EventInbox(Generic[Known]):
    """Any thread puts, one takes."""

    def __init__(self) -> None:
        self._news: SimpleQueue[News[Known]] = SimpleQueue()

    def put(self, news: News[Known]) -> None:
        """Something has changed."""
        self._news.put(news)

    def take(self) -> Iterator[News[Known]]:
        """All that is there."""
        while True:
            try:
                yield self._news.get_nowait()
            except Empty:
                return


PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.5, 10.0


@dataclass(frozen=True)
class WatchHandler(Generic[Known]):
    """How objects of a kind become news: one that is there, one that is gone, and, after a list of
    all, those that are not in it (by UID). `current` follows a list, an event and a bookmark: all
    that has been written until about then is known."""

    seen: Callable[[Body], News[Known]]
    gone: Callable[[Body], News[Known]]
    only: Callable[[Collection[str]], News[Known]]
    current: News[Known] | None = None

    def unreadable(self, body: Body, name: str, why: InputError) -> News[Known]:
        """It is there and means nothing."""
        gone, kind = self.gone(body), body.get("kind", "")

        def news(known: Known) -> None:
            gone(known)
            known.see_unreadable(kind, name, why)

        return news


@dataclass(frozen=True, slots=True)
class WatchScope:
    """Which objects of a kind: those of a `namespace`, of one `name`; all of the cluster."""

    namespace: str = ""
    name: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """As the API is asked for it: a right on one name allows it."""
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}


EVERYWHERE = WatchScope()


def list_all(
    api: Api,
    kind: ObjectKind,
    telling: WatchHandler[Known],
    inbox: EventInbox[Known],
    log: JsonLineLog,
    scope: WatchScope = EVERYWHERE,
) -> str:
    """Tell of all objects of a kind, and that there are no others; the list's version."""
    uids: set[str] = set()
    version = ""
    for page, newest in api.pages(path_of(kind, scope.namespace), **scope.query):
        version = newest
        for body in page["items"]:
            # lists leave these out of their items
            body.update(apiVersion=kind.api_version, kind=kind.name)
            uids.add(body["metadata"]["uid"])
            inbox.put(news_of(telling.seen, telling, body, kind.name, log))
    inbox.put(telling.only(uids))
    return version


def news_of(
    how: Callable[[Body], News[Known]],
    telling: WatchHandler[Known],
    body: Body,
    kind: str,
    log: JsonLineLog,
) -> News[Known]:
    """News of an object; of one that cannot be read, that nothing is known of it."""
    metadata = body["metadata"]
    name = f"{metadata.get('namespace', '')}/{metadata['name']}".lstrip("/")
    try:
        return how(body)
    except InputError as trouble:
        why = trouble
    except Exception as error:  # a shape that nobody has foreseen must not stop the others
        why = InputError(
            where=f"{kind} {name}",
            what=f"has a shape that is not known ({type(error).__name__}: {error})"[:300],
            remedy="make it again as its definition says, and report this line",
        )
    log.write("unreadable", resource=f"{kind} {name}", text=str(why))
    return telling.unreadable(body, name, why)


class TooOldError(Exception):
    """The version to watch from is not there any more."""


class BrokenWatchError(Exception):
    """The API server cannot go on with a watch: what it would have told is in a list alone."""


@dataclass(slots=True)
class ObjectWatcher(Generic[Known]):
    """Of one kind. `heard_at` (time.monotonic()) is when the API server was last heard of. A watch
    that is silent for `silence_seconds` is begun anew: the API server sends a bookmark about every
    minute. Of an `optional` kind there may be none in the cluster, and then nothing is there."""

    api: Api
    kind: ObjectKind
    telling: WatchHandler[Known]
    inbox: EventInbox[Known]
    log: JsonLineLog
    silence_seconds: float
    scope: WatchScope = EVERYWHERE
    optional: bool = False
    heard_at: float = 0.0
    listed: threading.Event = field(default_factory=threading.Event)
    _ending: threading.Event = field(default_factory=threading.Event)
    _version: str = ""
    _trouble: str = ""
    _watched_at: float = 0.0

    def start(self) -> None:
        """Watch until `stop` is called."""
        name = f"watch-{self.kind.plural}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """End; the thread goes when its connection says something, or with the process."""
        self._ending.set()

    def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                self._follow()
                pause = PAUSE_SECONDS_MIN
                continue
            except TooOldError:
                self._version = ""
                if time.monotonic() - self._watched_at >= PAUSE_SECONDS_MIN:
                    pause = PAUSE_SECONDS_MIN
                    continue
            except Exception as trouble:
                self._meet(trouble)
                # A watch that the network has ended can go on; after all else nobody knows.
                self._version = self._version if isinstance(trouble, RekindleError) else ""
                if time.monotonic() - began > PAUSE_SECONDS_MAX:
                    pause = PAUSE_SECONDS_MIN  # it went well for a while
            self._ending.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _meet(self, trouble: Exception) -> None:
        if self.optional and isinstance(trouble, ApiRefused) and trouble.status == NOT_FOUND:
            self.inbox.put(self.telling.only(()))
            self.heard_at = time.monotonic()
            self.listed.set()
        else:
            self._note(_told(trouble))

    def _follow(self) -> None:
        if not self._version:
            self._list()
        self._note("")
        path, limit = path_of(self.kind, self.scope.namespace), self.silence_seconds
        began = self._watched_at = time.monotonic()
        try:
            watch = self.api.watch(path, self._version, limit_seconds=limit, **self.scope.query)
            for line in watch:
                if self._ending.is_set():
                    return
                self.heard_at = time.monotonic()
                self._take(msgspec.json.decode(line))
        except ApiRefused as refused:
            if refused.status == GONE:
                raise TooOldError from refused
            raise
        # One that ends as soon as it has begun is begun again with a rest.
        self._ending.wait(max(0.0, began + PAUSE_SECONDS_MIN - time.monotonic()))

    def _list(self) -> None:
        self._version = list_all(
            self.api, self.kind, self.telling, self.inbox, self.log, self.scope
        )
        self._tell_current()
        self.heard_at = time.monotonic()
        self.listed.set()

    def _take(self, event: dict[str, Any]) -> None:
        kind, body = event["type"], event["object"]
        if kind == "ERROR":
            if body.get("code") == GONE:
                raise TooOldError
            raise BrokenWatchError(str(body.get("message")))
        if kind == "DELETED":
            self._tell(self.telling.gone, body)
        elif kind != "BOOKMARK":
            self._tell(self.telling.seen, body)
        self._tell_current()
        self._version = body["metadata"]["resourceVersion"]

    def _tell(self, how: Callable[[Body], News[Known]], body: Body) -> None:
        self.inbox.put(news_of(how, self.telling, body, self.kind.name, self.log))

    def _tell_current(self) -> None:
        if self.telling.current is not None:
            self.inbox.put(self.telling.current)

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self.log.write("watch-failed", resource=self.kind.plural, text=trouble)
        self._trouble = trouble


def _told(trouble: Exception) -> str:
    if isinstance(trouble, RekindleError | BrokenWatchError):
        return str(trouble)
    return f"{type(trouble).__name__}: {trouble}"
