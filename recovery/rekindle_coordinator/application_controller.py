"""One application on the coordinator's desk: read, decide, write, ask.

    records ──► session.decide ──► one transaction: case and directives ──► log, provider

Does with the store exactly what rekindle_simulation/simulated_coordinators.py models. What is kept
in memory follows from the store: when a transaction fails, for whatever reason, the case is read
again. The shell says when, and whether this coordinator leads.
"""

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from rekindle import protocol
from rekindle.coordination import session
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.incident_history import IncidentHistory
from rekindle.coordination.session import ApplicationReading, Case, Decision
from rekindle.model.errors import RekindleError
from rekindle.protocol import Directive, PlanOrder, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator import coordinator_ports
from rekindle_coordinator.coordinator_health import Metrics
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.record_cache import RecordCache
from rekindle_zookeeper import Connection

# Which application is looked at next, and when without news.
#
#     news of an application      at once, in the order in which they came
#     a moment that has come      the same
#     all of them, at a takeover  one by one, whenever nothing of the above waits
#
# So a failure is answered at once even while a thousand others are still being read. Knows names
# and moments only; its caller is one thread.

NEVER = math.inf


@dataclass(slots=True)
class ApplicationQueue:
    """Moments are in seconds since 1970."""

    _first: dict[Place, None] = field(default_factory=dict)
    _later: dict[Place, None] = field(default_factory=dict)
    _moments: dict[Place, float] = field(default_factory=dict)
    _heap: list[tuple[float, Place]] = field(default_factory=list)

    def __len__(self) -> int:
        """How many wait for a turn now."""
        return len(self._first.keys() | self._later.keys())

    def hurry(self, place: Place) -> None:
        """Something has happened to it."""
        self._first[place] = None

    def queue(self, places: Iterable[Place]) -> None:
        """They have to be looked at, some time."""
        self._later.update(dict.fromkeys(places))

    def at(self, place: Place, moment: float) -> None:
        """It has to be looked at, at this moment and at no other."""
        if self._moments.get(place, NEVER) == moment:
            return
        self._moments[place] = moment
        if moment != NEVER:
            heapq.heappush(self._heap, (moment, place))

    def forget(self, place: Place) -> None:
        """It is not there any more."""
        for waiting in (self._first, self._later, self._moments):
            waiting.pop(place, None)

    def next(self, now: float) -> Place | None:
        """Whose turn it is."""
        while self._heap and self._heap[0][0] <= now:
            moment, place = heapq.heappop(self._heap)
            if self._moments.get(place) == moment:
                del self._moments[place]
                self.hurry(place)
        for waiting in (self._first, self._later):
            if waiting:
                place = next(iter(waiting))
                self._first.pop(place, None)
                self._later.pop(place, None)
                return place
        return None

    def upcoming(self, count: int) -> Iterator[Place]:
        """So many whose turns come next, as far as is known now."""
        later = (place for place in self._later if place not in self._first)
        return islice(chain(self._first, later), count)

    def wait_seconds(self, now: float, most: float) -> float:
        """How long nothing has to be done, at most `most`."""
        if self._first or self._later:
            return 0.0
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        until = self._heap[0][0] - now if self._heap else most
        return min(most, max(0.0, until))


PROVIDER_RETRY_SECONDS = 5.0
# a directive that a driver has not looked at for so long may have been lost by the store
AWAITED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an application: case, and the reading on the terms that hold for it."""

    case: Case
    reading: ApplicationReading


@dataclass(slots=True)
class ApplicationController:
    """`case` is None while the store has to be asked for it; `look_at` (seconds since 1970) is when
    to look again without news, `stirred` that there is other news than records. `known` is replaced
    as a whole, so that any thread may take it; None without a driver's topology."""

    connection: Connection
    place: Place
    log: Log
    metrics: Metrics
    provider: coordinator_ports.NodeProvider | None = None
    oversight: coordinator_ports.DecisionObserver | None = None
    history: IncidentHistory = field(default_factory=IncidentHistory)
    known: Known | None = None
    records: RecordCache = field(init=False)
    case: Case | None = None
    version: int | None = None
    look_at: float = NEVER
    gone: tuple[frozenset[str], bool] = (frozenset(), False)
    notices: Mapping[str, LossNotice] | None = None
    provider_troubles: dict[str, str] = field(default_factory=dict)
    stirred: bool = False
    awaited: range = range(0)
    awaited_at: float = 0.0

    def __post_init__(self) -> None:
        self.records = RecordCache(self.connection, self.place)

    @property
    def _own(self) -> tuple[str, ...]:
        """Records that are only written while the case is in memory."""
        return () if self.case is None else (store_paths.COORDINATION,)

    def send_reads(self) -> None:
        """Send the reads that `lead` or `follow` will need, without waiting for answers."""
        self.records.send_reads(*self._own)

    def follow(self, now: float) -> None:
        """Take in what has changed, without doing anything about it: another one leads."""
        self.drop()
        if self.records.refresh():
            with suppress(RekindleError):  # for whoever leads to say
                reading = self.records.reading(*self.gone)
                self._tell(reading)
                self._keep(self.records.case, reading, now)
        self.look_at = NEVER

    def lead(self, now: float) -> None:
        """Take in what has changed, and do about it what is to be done.

        Raises Conflict and StoreUnreachable, after which the case has to be dropped, and the
        trouble with a record or a policy.
        """
        fresh = self.records.refresh(*self._own)
        self.stirred |= self._looks_otherwise()
        if not (fresh or self.stirred or self.case is None or now >= self.look_at):
            return
        self.stirred = False
        reading = self.records.reading(*self.gone)
        self._tell(reading)
        if reading is None:
            self.known, self.look_at = None, NEVER
            return
        # asked once it is told which nodes there are: a plan may be made of the very first ones
        reading = replace(reading, domains=self._domains(), notices=self.notices)
        if self.case is None:
            self.case, self.version = self.records.take_case()
        reading = replace(reading, directives=self._held(self.case, reading, now))
        self.metrics.decisions.inc()
        terms = self._terms(reading)
        self.case = self._decide(self.case, terms, now)
        self._note(self.case, terms.reading, now)
        self._request(self.case)
        self.look_at = min(self._due(self.case, terms, now), self._retry_at(now))

    def _held(self, case: Case, reading: ApplicationReading, now: float) -> frozenset[int] | None:
        """Numbers of the directives in the store, looked at when the driver has taken none for
        long; else None."""
        awaited = session.awaited(case, reading.progress)
        if not awaited or awaited != self.awaited or now < self.awaited_at:
            self.awaited, self.awaited_at = awaited, now
        if now - self.awaited_at < AWAITED_SECONDS:
            return None
        self.awaited_at = now
        return self.records.directives()

    def _keep(self, case: Case, reading: ApplicationReading | None, now: float) -> None:
        """Keep for others what whoever leads knows."""
        if reading is None:
            self.known = None
        else:
            reading = replace(reading, domains=self._domains())
            self._note(case, self._terms(reading).reading, now)

    def _note(self, case: Case, reading: ApplicationReading, now: float) -> None:
        self.known = Known(case, reading)
        self.history.note(self.place, case, now)

    def drop(self) -> None:
        """Forget what was decided; the store knows."""
        if self.case is not None:
            self.case, self.version = None, None
            self.records.mark([store_paths.COORDINATION])

    def look_around(self) -> bool:
        """Whether the provider knows of something gone, or back, that was not so before."""
        self.stirred |= self.case is not None and self._looks_otherwise()
        return self.stirred

    def _looks_otherwise(self) -> bool:
        """Ask the provider; whether its answer is another one. From one in trouble, no driver is
        gone, no other nodes are, and the notices that were known hold on."""
        if self.provider is None:
            return False
        before = (self.gone, self.notices)
        try:
            nodes, notices = (
                self.provider.gone_nodes(self.place),
                self.provider.notices(self.place, self._recorded()),
            )
            driver = self.records.is_silent and self.provider.driver_gone(
                self.place, self.records.heartbeat, self.records.generation
            )
            self.gone, self.notices = (nodes, driver), notices
            self._note_provider("look", "")
        except Exception as trouble:
            # what was certain of one driver may be said of the next one by nobody
            self.gone = (self.gone[0], False)
            self._note_provider("look", _told(trouble))
        return (self.gone, self.notices) != before

    def _recorded(self) -> Mapping[str, LossNotice]:
        """Notices in the case, also in one that has just been read."""
        case = self.case or self.records.case
        state = case.state or case.kept
        views = {} if state is None else state.nodes
        return {name: view.notice for name, view in views.items() if view.notice is not None}

    def _domains(self) -> Mapping[str, str]:
        """Nodes with their failure domains; what is known of them stays where the provider is in
        trouble."""
        if self.provider is None:
            return {}
        try:
            return self.provider.domains(self.place)
        except Exception as trouble:
            self._note_provider("look", _told(trouble))
            return {}

    def _tell(self, reading: ApplicationReading | None) -> None:
        if self.oversight is not None and reading is not None:
            self.oversight.heard(self.place, reading)

    def _terms(self, reading: ApplicationReading) -> coordinator_ports.DecisionTerms:
        if self.oversight is None:
            return coordinator_ports.DecisionTerms(reading)
        return self.oversight.terms(self.place, reading)

    def _decide(self, case: Case, terms: coordinator_ports.DecisionTerms, now: float) -> Case:
        """Decide, write, say so; the case from now on."""
        decision = session.decide(
            case,
            terms.reading,
            now,
            clock=time.monotonic,
            plan=terms.plan,
            recover=terms.recover,
            dry_run=terms.dry_run,
        )
        self._write(decision)
        if self.oversight is not None:
            self.oversight.decided(
                self.place, coordinator_ports.Look(case, terms.reading, decision, now)
            )
        return decision.case

    def _write(self, decision: Decision) -> None:
        """Write case and directives if there is news, and say so once the store has them."""
        if decision.changed:
            path = self.place.path(store_paths.COORDINATION)
            writes = {path: session.to_record(decision.case)}
            for directive in decision.directives:
                writes[self._directive(directive.sequence)] = protocol.encode(directive)
            self.version = self.connection.transact({path: self.version}, writes)[path]
        self.log.decided(self.place, decision)
        self._count(decision.directives)

    def _count(self, directives: tuple[Directive, ...]) -> None:
        for directive in directives:
            self.metrics.directives.inc()
            if isinstance(directive.order, PlanOrder):
                self.metrics.plans.inc()

    def _request(self, case: Case) -> None:
        """Ask the provider for everything that is wanted, again and again: it knows its own. What
        it raises must not stop other applications, be it a bug."""
        if self.provider is None:
            return
        try:
            for identity, request in case.requests.items():
                self.provider.request(self.place, identity, request)
            self._note_provider("request", "")
        except Exception as trouble:
            self._note_provider("request", _told(trouble))

    def _note_provider(self, what: str, trouble: str) -> None:
        if trouble and trouble != self.provider_troubles.get(what):
            self.log.write("provider-failed", application=str(self.place), text=trouble)
        self.provider_troubles[what] = trouble

    def _retry_at(self, now: float) -> float:
        return now + PROVIDER_RETRY_SECONDS if any(self.provider_troubles.values()) else NEVER

    def _due(self, case: Case, terms: coordinator_ports.DecisionTerms, now: float) -> float:
        """When time alone changes something: a plan is due, somebody's priority ends."""
        overrides = terms.reading.orders.priorities.values()
        moments = [override.until for override in overrides if override.until is not None]
        if terms.due is not None:
            moments.append(terms.due)
        if case.state is not None and case.state.due is not None:
            moments.append(case.state.due.at)
        # what is due already waits for the driver, not for a moment
        return min((moment for moment in moments if moment > now), default=NEVER)

    def _directive(self, sequence: int) -> str:
        return self.place.path(store_paths.DIRECTIVES, store_paths.numbered(sequence))


def _told(trouble: Exception) -> str:
    expected = isinstance(trouble, RekindleError | OSError)
    return str(trouble) if expected else f"{type(trouble).__name__}: {trouble}"
