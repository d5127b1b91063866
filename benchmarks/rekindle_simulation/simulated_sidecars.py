"""What stands between a driver and the store: session, heartbeat, reports, directives.

Holds the newest report of each kind until the store takes it, so an outage loses nothing. Messages
to and from the driver may be late, come twice, or in another order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from rekindle import protocol
from rekindle.protocol import Directive, Heartbeat, Report, store_paths
from rekindle_simulation.simulated_store import Expired, SimulatedOutage, SimulatedStore
from rekindle_simulation.simulated_world import SimulatedWorld

PLACE = store_paths.Place("default", "application")
PATHS = {
    protocol.TopologyReport: store_paths.TOPOLOGY,
    protocol.StatisticsReport: store_paths.STATISTICS,
    protocol.ProgressReport: store_paths.PROGRESS,
    protocol.CheckpointReport: store_paths.CHECKPOINT,
}
CONTACT_SECONDS = 10.0
LEADERLESS_SECONDS = 10.0


class _Stamp(msgspec.Struct):
    """What every report has."""

    generation: int
    sequence: int


@dataclass(slots=True)
class SimulatedSidecar:
    """The sidecar of one driver. `linked`: its connection to the store is up; `listening`: the
    driver's connection to it; `refused` are kinds of reports that it does not take."""

    world: SimulatedWorld
    store: SimulatedStore
    generation: int
    deliver: Callable[[Directive], None]
    looked_at: Callable[[], int]
    linked: bool = True
    listening: bool = True
    refused: set[type[Report]] = field(default_factory=set)
    session: int | None = None
    heard_at: float = 0.0
    held: dict[str, Report] = field(default_factory=dict)
    fenced: bool = False
    introduced: bool = False
    leaderless_at: float | None = None

    @property
    def leaderless_seconds(self) -> float:
        """For how long nobody has led, as far as the sidecar has seen."""
        return 0.0 if self.leaderless_at is None else self.world.now - self.leaderless_at

    @property
    def led(self) -> bool:
        """What the sidecar says of it."""
        return self.leaderless_seconds < LEADERLESS_SECONDS

    @property
    def knows_nothing(self) -> bool:
        """Whether the store has lost the topology that it had: the driver says everything again."""
        if not self.introduced or not self.linked or not self.store.reachable:
            return False
        found = self.store.get(PLACE.path(store_paths.TOPOLOGY))
        return found is None or sequence_of(found[0])[0] < self.generation

    def report(self, report: Report) -> bool:
        """Take a report; whether the store answers, as far as the sidecar knows."""
        if not self.listening:
            return False
        self.heard_at = self.world.now
        if type(report) in self.refused:
            return self.linked and self.store.reachable
        kept = self.held.get(PATHS[type(report)])
        if kept is None or kept.sequence < report.sequence:
            self.held[PATHS[type(report)]] = report
        self.step()
        return self.linked and self.store.reachable

    def step(self) -> None:
        """Keep the session, hand on what is held, fetch directives."""
        if not self.linked:
            return
        try:
            self._keep_session()
            for name in list(self.held):
                self._hand_on(name)
            self._fetch()
            self._look_for_leader()
        except (SimulatedOutage, Expired):
            return

    def acknowledge(self, sequence: int) -> None:
        """Note the driver's answer; what cannot be written is not needed."""
        if self.linked and self.store.reachable:
            self.store.put(PLACE.path(store_paths.ACKS, store_paths.numbered(sequence)), b"{}")

    def _keep_session(self) -> None:
        """The heartbeat says that the driver is there, so it goes when that is silent."""
        if self.world.now - self.heard_at > CONTACT_SECONDS:
            return
        try:
            if self.session is None:
                raise Expired
            self.store.touch(self.session, self.world.now)
            if self.store.get(PLACE.path(store_paths.HEARTBEAT)) is None:
                self._announce()
        except Expired:
            self.session = self.store.open(self.world.now)
            self._announce()

    def _announce(self) -> None:
        path = PLACE.path(store_paths.HEARTBEAT)
        found = self.store.get(path)
        if found is not None:
            standing = protocol.decode(found[0], Heartbeat, path)
            if standing.generation > self.generation:
                return
        heartbeat = Heartbeat(generation=self.generation, since=self.world.now)
        self.store.put(path, protocol.encode(heartbeat), self.session)

    def _look_for_leader(self) -> None:
        if self.store.children(store_paths.ELECTION):
            self.leaderless_at = None
        elif self.leaderless_at is None:
            self.leaderless_at = self.world.now

    def _hand_on(self, name: str) -> None:
        report, path = self.held[name], PLACE.path(name)
        found = self.store.get(path)
        written = (0, -1) if found is None else sequence_of(found[0])
        if (report.generation, report.sequence) > written:
            self.store.put(path, protocol.encode(report))
            self.introduced = self.introduced or name == store_paths.TOPOLOGY
        self.fenced = self.fenced or written[0] > report.generation
        del self.held[name]

    def _fetch(self) -> None:
        """Give the driver all that it has not looked at, now and then twice or out of order."""
        names = self.store.children(PLACE.path(store_paths.DIRECTIVES))
        newest = self.looked_at()
        fresh = [name for name in names if store_paths.number(name) > newest]
        if not self.listening:
            return
        if self.world.chance(0.1):
            fresh = [*reversed(fresh), *fresh]
        for name in fresh:
            found = self.store.get(PLACE.path(store_paths.DIRECTIVES, name))
            if found is not None:
                directive = protocol.decode(found[0], Directive, name)
                late = 0.0 if self.world.chance(0.9) else self.world.between(0.0, 2.0)
                self.world.after(late, partial(self.deliver, directive))


def sequence_of(data: bytes) -> tuple[int, int]:
    """Generation and sequence of a report in the store."""
    stamp = msgspec.json.decode(data, type=_Stamp)
    return stamp.generation, stamp.sequence
