"""The loop of a coordinator over all applications in the store.

    watches, clock, provider ──► turns ──► desk by desk: lead, or follow while another one leads

One thread decides; watches and the election only note what has happened. Whatever goes wrong with
one application stops that one, and is said once. The command `coordinator` runs it.
"""

import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from rekindle.coordination import application_status
from rekindle.coordination.coordination_state import CoordinationState, slow
from rekindle.coordination.incident_history import IncidentHistory
from rekindle.coordination.session import ApplicationReading
from rekindle.model.errors import InputError, RekindleError
from rekindle.model.reasons import Reason
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.application_controller import ApplicationController, ApplicationQueue
from rekindle_coordinator.application_retention import ApplicationRetention
from rekindle_coordinator.coordinator_health import Metrics
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_ports import DecisionObserver, NodeProvider
from rekindle_coordinator.record_cache import NAMES
from rekindle_zookeeper import Conflict, Connection, StoreUnreachable

TURN_SECONDS_MAX = 1.0
PROVIDER_SECONDS = 0.25
# After a loss of a thousand nodes it takes long to ask, and plans are to be made meanwhile: as much
# time is left to them, but asking is never put off for longer than this.
PROVIDER_SECONDS_MAX = 0.5
RETRY_SECONDS = 1.0
# Applications whose records are on their way while another one is decided about.
READ_AHEAD = 8
STOPPED_SECONDS = 10.0
FIRST_ANSWER = "the coordination store answers."


class Candidacy(Protocol):
    """Standing for the one place of a leader."""

    @property
    def leads(self) -> bool:
        """Whether this process leads now."""

    @property
    def term(self) -> object:
        """Another one whenever somebody else may have led meanwhile."""

    def close(self) -> None:
        """Give leadership up, and do not stand any more."""


@dataclass(slots=True)
class CoordinatorLoop:
    """`now` gives seconds since 1970; `stand` (who is told of changes) -> candidacy is the store's
    own election unless somebody else decides who leads. Without a `retention` the records of
    applications that are gone stay."""

    connection: Connection
    log: Log
    metrics: Metrics
    identity: str
    provider: NodeProvider | None = None
    oversight: DecisionObserver | None = None
    stand: Callable[[Callable[[], None]], Candidacy] | None = None
    now: Callable[[], float] = time.time
    desks: dict[Place, ApplicationController] = field(default_factory=dict)
    turns: ApplicationQueue = field(default_factory=ApplicationQueue)
    stopped: dict[Place, str] = field(default_factory=dict)
    history: IncidentHistory = field(default_factory=IncidentHistory)
    retention: ApplicationRetention | None = None
    leading: bool = False
    _candidacy: Candidacy | None = None
    _watched: set[str] = field(default_factory=set)
    # Of namespaces, as they were listed last.
    _folders: set[str] = field(default_factory=set)
    _closed: dict[str, str] = field(default_factory=dict)
    _news: dict[Place, set[str]] = field(default_factory=dict)
    _listing: bool = True
    _term: object = None
    _ending: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stirred: threading.Event = field(default_factory=threading.Event)
    _newest: float = 0.0
    _provider_due_at: float = 0.0
    _retry_at: float = 0.0
    _reached: bool = False
    _had_store: bool = False
    _provider_fails: bool = False

    def __post_init__(self) -> None:
        self.metrics.queries_stopped.set_function(
            lambda: self._count(application_status.stopped_queries)
        )
        self.metrics.slow.set_function(lambda: self._count(slow))
        self.metrics.readings = self._readings

    def run(self) -> None:
        """Coordinate until `stop` is called."""
        self.connection.on_change(self._stirred.set)
        try:
            while not self._ending:
                self._stirred.clear()
                self.step()
                self._rest()
        finally:
            if self._candidacy is not None:
                self._candidacy.close()

    def take_stock(self) -> None:
        """Take in what the provider knows, before anything is decided."""
        if self.provider is not None:
            self._news_of(self.provider)

    def stop(self) -> None:
        """End within a second. A signal handler may call it: it takes no lock."""
        self._ending = True

    def step(self) -> None:
        """Do what is to be done next."""
        now = self.now()
        self.metrics.turned_at = time.monotonic()
        self._note_store()
        self._ask_around()
        if self.connection.reachable and time.monotonic() >= self._retry_at:
            try:
                self._take_part()
                self._list()
                self._take_news(now)
                self._attend(now)
                self._retire()
            except StoreUnreachable:
                self._retry_at = time.monotonic() + RETRY_SECONDS
        self.metrics.applications.set(len(self.desks))
        self.metrics.stopped.set(len(self.stopped))
        self.metrics.waiting.set(len(self.turns))

    def _count(self, what: Callable[[CoordinationState], Sized]) -> int:
        """What all applications have of something; asked for by a thread that shows metrics."""
        cases = [desk.case for desk in tuple(self.desks.values())]
        return sum(len(what(case.state)) for case in cases if case and case.state)

    def _readings(self) -> Iterator[tuple[Place, ApplicationReading]]:
        """What all drivers have reported last; asked for by a thread that shows metrics."""
        for place, desk in tuple(self.desks.items()):
            known = desk.known
            if known is not None:
                yield place, known.reading

    def _note_store(self) -> None:
        reachable = self.connection.reachable
        if reachable != self._reached:
            self._reached = reachable
            self.metrics.reachable.set(reachable)
            reason = Reason.STORE_REACHABLE if reachable else Reason.STORE_UNREACHABLE
            text = f"{reason.meaning}." if self._had_store else FIRST_ANSWER
            self._had_store = True
            self.log.write(str(reason), reason=str(reason), text=text)

    def _take_part(self) -> None:
        """Stand for election, and see who leads."""
        if self._candidacy is None:
            self._candidacy = (self.stand or self._elect)(self._stirred.set)
        leads, term = self._candidacy.leads, self._candidacy.term
        # in a new term another one may have led meanwhile
        if leads == self.leading and (term == self._term or not leads):
            return
        self.leading, self._term = leads, term
        self.metrics.leads.set(leads)
        self.stopped.clear()
        if self.retention is not None:
            self.retention.postpone()
        self.log.write("leading" if leads else "following", identity=self.identity)
        urgency = {place: desk.records.urgency for place, desk in self.desks.items()}
        for desk in self.desks.values():
            desk.drop()
        for place in sorted(urgency, key=lambda place: -urgency[place]) if leads else ():
            if urgency[place]:
                self.turns.hurry(place)
        self.turns.queue(self.desks)

    def _elect(self, on_change: Callable[[], None]) -> Candidacy:
        return self.connection.elect(store_paths.ELECTION, self.identity, on_change)

    def _list(self) -> None:
        """Find applications that are new, and forget those that are gone."""
        if not self._listing:
            return
        self._listing = False
        try:
            found = self._places()
            for place in found - self.desks.keys():
                for name in NAMES:
                    self._watch(place.path(name), partial(self._changed, place, name))
                self.desks[place] = ApplicationController(
                    self.connection,
                    place,
                    self.log,
                    self.metrics,
                    self.provider,
                    self.oversight,
                    self.history,
                )
                self.turns.queue([place])
        except BaseException:
            self._listing = True
            raise
        for place in self.desks.keys() - found:
            del self.desks[place]
            for name in NAMES:
                self._unwatch(place.path(name))
            self.stopped.pop(place, None)
            self.history.forget(place)
            self.turns.forget(place)
            if self.oversight is not None:
                self.oversight.forget(place)

    def _places(self) -> set[Place]:
        self._watch(store_paths.APPLICATIONS, self._listed)
        found, folders = set(), set()
        for namespace in self.connection.children(store_paths.APPLICATIONS):
            path = f"{store_paths.APPLICATIONS}/{namespace}"
            folders.add(path)
            self._watch(path, self._listed)
            for application in self._names(path):
                with suppress(InputError):  # no driver has such a name
                    found.add(Place(namespace, application).checked())
        for path in self._folders - folders:
            self._unwatch(path)
            self._closed.pop(path, None)
        self._folders = folders
        return found

    def _names(self, path: str) -> list[str]:
        """Names below a path; none where we may not look, as with another team's secret."""
        try:
            names = self.connection.children(path)
        except StoreUnreachable:
            raise
        except RekindleError as trouble:
            if self._closed.get(path) != str(trouble):
                self._closed[path] = str(trouble)
                self.log.write("namespace-closed", path=path, text=str(trouble))
            return []
        self._closed.pop(path, None)
        return names

    def _watch(self, path: str, callback: Callable[[], None]) -> None:
        if path not in self._watched:
            self.connection.watch(path, callback)
            self._watched.add(path)

    def _unwatch(self, path: str) -> None:
        self.connection.unwatch(path)
        self._watched.discard(path)

    def _take_news(self, now: float) -> None:
        with self._lock:
            news, self._news = self._news, {}
        for place, names in news.items():
            if place in self.desks:
                self.desks[place].records.mark(names)
                self.turns.hurry(place)
        if now < self._newest - TURN_SECONDS_MAX:
            # the clock was set back: nobody knows what is due
            self.turns.queue(self.desks)
            for desk in self.desks.values():
                desk.stirred = True
        self._newest = now

    def _ask_around(self) -> None:
        """Ask the provider what is otherwise than before; one that does not know is asked about
        each application."""
        began = time.monotonic()
        if self.provider is None or began < self._provider_due_at:
            return
        self._ask(self.provider)
        now = time.monotonic()
        pause = min(now - began, PROVIDER_SECONDS_MAX)
        self._provider_due_at = now + max(pause, PROVIDER_SECONDS)

    def _ask(self, provider: NodeProvider) -> None:
        places = self._news_of(provider)
        for place in self.desks if places is None else places:
            desk = self.desks.get(place)
            if desk is None or not self.leading:
                continue
            desk.stirred |= places is not None
            if desk.look_around():
                self.turns.hurry(place)

    def _news_of(self, provider: NodeProvider) -> Collection[Place] | None:
        """What the provider has news of; of one that fails, that may be anything."""
        try:
            places = provider.news()
        except Exception:  # a bug with one application must not end the loop for all
            if not self._provider_fails:
                self.log.write("provider-failed", text=traceback.format_exc())
            self._provider_fails = True
            return None
        self._provider_fails = False
        return places

    def _attend(self, now: float) -> None:
        """Look at the application whose turn it is; the reads for the next ones are under way
        meanwhile."""
        place = self.turns.next(now)
        if place is None:
            return
        for upcoming in self.turns.upcoming(READ_AHEAD):
            self.desks[upcoming].send_reads()
        desk = self.desks[place]
        try:
            if self.leading:
                desk.lead(now)
                self._note_stopped(place, "")
            else:
                desk.follow(now)
        except Conflict:
            self.metrics.conflicts.inc()
            desk.drop()
            self.turns.hurry(place)
        except StoreUnreachable:
            desk.drop()
            self.turns.hurry(place)
            raise
        except RekindleError as trouble:
            self._note_stopped(place, str(trouble))
            desk.drop()
            desk.look_at = now + STOPPED_SECONDS
        except Exception as error:
            # a bug of ours in one application must not stop a thousand others
            self._note_stopped(place, f"{type(error).__name__}: {error}", traceback.format_exc())
            desk.drop()
            desk.look_at = now + STOPPED_SECONDS
        self.turns.at(place, desk.look_at)

    def _retire(self) -> None:
        """Have records of applications that are gone removed, when it is time."""
        if not self.leading or self.retention is None or not self.retention.is_due:
            return
        silent = [place for place, desk in self.desks.items() if desk.records.is_silent]
        gone = [place for place in silent if not self._exists(place)]
        self.retention.begin(gone, lambda place: self.leading and not self._exists(place))
        if self.oversight is not None:
            self.oversight.retire(self.retention.days)

    def _exists(self, place: Place) -> bool:
        """Whether there is anything of an application; also where the provider cannot say."""
        try:
            return self.provider is not None and self.provider.exists(place)
        except Exception:  # it is asked again in an hour
            return True

    def _note_stopped(self, place: Place, text: str, trace: str = "") -> None:
        """Say once that an application cannot be decided about, and once that it can again."""
        if text == self.stopped.get(place, ""):
            return
        if text:
            self.stopped[place] = text
            more = {"trace": trace} if trace else {}
            self.log.write("application-stopped", application=str(place), text=text, **more)
        else:
            del self.stopped[place]
            self.log.write("application-goes-on", application=str(place))

    def _rest(self) -> None:
        """Wait for news, or until something is due."""
        most = TURN_SECONDS_MAX if self.provider is None else PROVIDER_SECONDS
        if self.connection.reachable and time.monotonic() >= self._retry_at:
            most = self.turns.wait_seconds(self.now(), most)
        if most and not self._ending:
            self._stirred.wait(most)

    def _changed(self, place: Place, name: str) -> None:
        # The leader has the case that it writes itself; once it leads no more, `drop` has it read
        # again. A case that it has not taken yet may still be another one's.
        desk = self.desks.get(place)
        is_ours = self.leading and desk is not None and desk.case is not None
        if name == store_paths.COORDINATION and is_ours:
            return
        with self._lock:
            self._news.setdefault(place, set()).add(name)
        self._stirred.set()

    def _listed(self) -> None:
        self._listing = True
        self._stirred.set()
