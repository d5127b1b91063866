"""The incidents that this process has seen: how nodes and partitions went and came back, and when.

    case after case ──► note ──► the open incident of each application, then the ended ones

The store keeps an incident only as long as it is open. What is past is kept here, in memory, and is
gone with the process. One thread notes, any thread may read. The coordinator's desks call it, and
the console shows what it has.
"""

from collections import deque
from dataclasses import dataclass, field

from rekindle.coordination.coordination_state import NodeStatus
from rekindle.coordination.session import Case, Driver, PersistedState
from rekindle.model.incidents import Incident
from rekindle.protocol.store_paths import Place

ENDED_MAX = 500
ENDED_OF_APPLICATION_MAX = 20
POINTS_MAX = 200


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """How an application was at a moment (seconds since 1970); `placed` counts partitions,
    `catching_up` query partitions."""

    at: float
    nodes_up: int
    placed: int
    catching_up: int
    plan_epoch: int


@dataclass(frozen=True, slots=True)
class SeenIncident:
    """An incident as it was last, and how it went, point by point. `ended_at` is when it was
    first seen to be over; None while it is open."""

    incident: Incident
    points: tuple[ProgressPoint, ...]
    ended_at: float | None = None


@dataclass(slots=True)
class _Open:
    incident: Incident
    points: list[ProgressPoint]


@dataclass(slots=True)
class IncidentHistory:
    """Of all applications of a coordinator. What is oldest goes first where there is too much."""

    _open: dict[Place, _Open] = field(default_factory=dict)
    _ended: dict[Place, tuple[SeenIncident, ...]] = field(default_factory=dict)
    _order: deque[Place] = field(default_factory=deque)

    def note(self, place: Place, case: Case, now: float) -> None:
        """Take in the newest case of an application; costs nothing while no incident is open."""
        kept, known = case.kept, self._open.get(place)
        incident = None if kept is None or case.driver is Driver.FINISHED else kept.incident
        if known is not None and (incident is None or incident.number != known.incident.number):
            self._end(place, known, now)
            known = None
        if kept is None or incident is None:
            return
        if known is None:
            known = self._open[place] = _Open(incident, [])
        known.incident = incident
        seen = _point(kept, now)
        newest = known.points[-1] if known.points else None
        if newest is None or _changed(newest, seen):
            known.points.append(seen)
            if len(known.points) > POINTS_MAX:
                del known.points[1:-1:2]

    def of(self, place: Place) -> tuple[SeenIncident, ...]:
        """What was seen of an application, the newest incident first."""
        known, ended = self._open.get(place), self._ended.get(place, ())
        if known is None:
            return ended
        return (SeenIncident(known.incident, tuple(known.points)), *ended)

    def forget(self, place: Place) -> None:
        """An application that is gone from the store."""
        self._open.pop(place, None)
        self._ended.pop(place, None)

    def _end(self, place: Place, known: _Open, now: float) -> None:
        del self._open[place]
        ended = SeenIncident(known.incident, tuple(known.points), now)
        before = self._ended.get(place, ())
        self._ended[place] = (ended, *before)[:ENDED_OF_APPLICATION_MAX]
        self._order.append(place)
        if len(self._order) > ENDED_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        place = self._order.popleft()
        left = self._ended.get(place, ())[:-1]
        if left:
            self._ended[place] = left
        else:
            self._ended.pop(place, None)


def _point(kept: PersistedState, now: float) -> ProgressPoint:
    up = sum(view.status is not NodeStatus.LOST for view in kept.nodes.values())
    return ProgressPoint(now, up, len(kept.placement), len(kept.catching_up), kept.plan_epoch)


def _changed(before: ProgressPoint, after: ProgressPoint) -> bool:
    return (before.nodes_up, before.placed, before.catching_up, before.plan_epoch) != (
        after.nodes_up,
        after.placed,
        after.catching_up,
        after.plan_epoch,
    )
