"""Lost, suspected and returned nodes of an incident, and the state of the driver.

The core knows what an application has lost: executors, by the driver's word for their nodes.
Detection knows Node objects, and what was silent since when. Where both know a node the core
decides how it is, and detection gives moments, uid and domain. A row that is open (not back) keeps
its moments, so that an operator that was started anew, and sees everything later, changes nothing.
Called by `status_builder` and `recovery_phases`.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.coordination_state import CoordinationState, NodeStatus, NodeView
from rekindle.coordination.session import Driver
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.api.recovery_resource import (
    LOST_NODES_MAX,
    AnnouncedNode,
    DriverRecovery,
    LostNode,
)
from rekindle_operator.detection.detection_events import DetectionEvent, DetectionKind
from rekindle_operator.recovery.recovery_inputs import (
    EPOCH,
    ClusterFacts,
    NodeObservation,
    RecoveryInputs,
    moment,
)

# The history of each node, from detection's verdicts.
#
# Verdicts say what has changed, and by a clock that only this process has; a sighting says how
# things are, by the clock of the object. The shell keeps the sightings of each application and
# asks here for the next ones after each round of detection, and, when a recovery has ended, for
# what is left. Not every node that was sighted concerns an application any more.


def sighted(
    before: Mapping[str, NodeObservation],
    verdicts: Iterable[DetectionEvent],
    application: str,
    nodes: Mapping[str, NodeObservation],
    offset_seconds: float,
) -> dict[str, NodeObservation]:
    """The sightings of `application` after some verdicts.

    `nodes` (name -> sighting without moments) are those with its executors or its driver, with what
    is known of them; verdicts on others are passed over, unless they were sighted before.
    `offset_seconds` is what the verdicts' clock is behind seconds since 1970.
    """
    found = dict(before)
    for verdict in verdicts:
        name = verdict.node
        if name is None or verdict.application not in (None, application):
            continue
        known = found.get(name, nodes.get(name))
        if known is None:
            continue
        if name in nodes:
            fresh = nodes[name]
            known = replace(
                known,
                uid=fresh.uid or known.uid,
                domain=fresh.domain or known.domain,
                driver=fresh.driver or known.driver,
            )
        found[name] = _after(known, verdict, verdict.at + offset_seconds)
    return found


def settled(
    sightings: Mapping[str, NodeObservation], nodes: Collection[str]
) -> dict[str, NodeObservation]:
    """The sightings after a recovery has ended: what it has lost is no loss of the next one, nor
    is a node silent to it on which it has nothing any more, as where its last driver was; `nodes`
    are those with its executors or its driver."""
    return {name: item for name, item in sightings.items() if name in nodes and not item.is_lost}


def concerns(
    name: str, sighting: NodeObservation, state: CoordinationState, cluster: ClusterFacts
) -> bool:
    """Whether what detection says of a node matters to an application.

    It does where its driver is, where it has an executor, and where it has lost either in the
    incident that is open. A loss that it has recovered from is over, though a lease may tell of it
    later than the driver did, or a node that its driver has left be silent for ever. Where nobody
    knows which nodes the driver means, every node matters.
    """
    if cluster.hosts is None:
        return True
    if sighting.driver and (state.incident is not None or cluster.driver in ("", name)):
        return True
    lost = () if state.incident is None else state.incident.lost
    there = [node for node in state.nodes if cluster.hosts.get(node) == name]
    if there:
        return any(node in lost or _lives(state, node) for node in there)
    unknown = any(_lives(state, node) for node in state.nodes.keys() - cluster.hosts.keys())
    return unknown or state.incident is not None


def _lives(state: CoordinationState, node: str) -> bool:
    return state.nodes[node].status is not NodeStatus.LOST


def _after(known: NodeObservation, verdict: DetectionEvent, at: float) -> NodeObservation:
    match verdict.kind:
        case DetectionKind.SUSPECTED:
            return replace(
                known,
                suspected_at=at,
                confirmed_at=None,
                heard_at=None,
                uid=verdict.uid or known.uid,
            )
        case DetectionKind.CONFIRMED:
            # a node that was deleted is lost without having been silent
            again = known.heard_at is not None
            return replace(
                known,
                suspected_at=None if again else known.suspected_at,
                confirmed_at=at,
                heard_at=None,
                uid=verdict.uid or known.uid,
            )
        case DetectionKind.CLEARED | DetectionKind.RETURNED | DetectionKind.DEPARTED:
            return replace(known, heard_at=at)
        case DetectionKind.HELD | DetectionKind.RELEASED:
            return known


DOMAIN_LENGTH_MAX = 63
BY_LENGTH_MAX = 200
NOTHING = NodeObservation()


@dataclass(frozen=True, slots=True)
class _Look:
    """How a node is now; `status` None where nobody can tell."""

    name: str
    status: NodeStatus | None
    sighting: NodeObservation
    views: tuple[NodeView, ...]


def lost_nodes(
    before: Iterable[LostNode], scene: RecoveryInputs, now: float
) -> tuple[LostNode, ...]:
    """The rows after a look: those that were lost or are suspected first, in order of time. An old
    loss of which no moment is known, and that gave way for newer ones, does not come back."""
    rows = {row.name: row for row in before}
    is_full = len(rows) >= LOST_NODES_MAX
    for look in _looks(rows, scene):
        known = rows.get(look.name)
        if known is None and is_full and look.status is NodeStatus.LOST and _lost_at(look) is None:
            continue
        row = _next(known, look, now)
        if row is not None:
            rows[look.name] = row
    return tuple(sorted(rows.values(), key=_order))


def announced(
    before: Iterable[AnnouncedNode], lost: Iterable[LostNode], scene: RecoveryInputs
) -> tuple[AnnouncedNode, ...]:
    """Nodes of the incident that were announced to go, those that go first before others. `lost`
    are the nodes as they are told now."""
    known = {row.name for row in before}
    gone = {row.name for row in lost if row.confirmed_at is not None}
    notices: dict[str, LossNotice] = {}
    withdrawn: set[str] = set()
    for node, view in scene.state.nodes.items():
        name = scene.cluster.host(node) or node
        there = view.status is not NodeStatus.LOST
        concerned = scene.open is not None and (there or node in scene.open.lost)
        if view.notice is not None and concerned:
            notices[name] = view.notice
        elif name in known and name not in gone and there and view.notice is None:
            withdrawn.add(name)
    return announced_rows(before, notices, withdrawn)


def announced_rows(
    before: Iterable[AnnouncedNode],
    notices: Mapping[str, LossNotice],
    withdrawn: Set[str],
) -> tuple[AnnouncedNode, ...]:
    """The rows of announced nodes with the notices that there are now, those that go first before
    others; `withdrawn` names those whose notice is gone, as far as they have no other."""
    rows = {row.name: row for row in before}
    for name, notice in notices.items():
        by = clipped(notice.source, BY_LENGTH_MAX)
        rows[name] = AnnouncedNode(name=name, by=by, until=moment(notice.until))
    for name in (withdrawn - notices.keys()) & rows.keys():
        rows[name] = msgspec.structs.replace(rows[name], withdrawn=True)
    return tuple(sorted(rows.values(), key=lambda row: (row.until, row.name)))


def lost_total(before: int, rows: Iterable[LostNode], scene: RecoveryInputs) -> int:
    """How many nodes were lost, those that the object has no room for included."""
    names = {row.name for row in rows if row.confirmed_at is not None}
    return max(before, len(names | set(_lost_hosts(scene))))


def suspected(rows: Iterable[LostNode]) -> tuple[str, ...]:
    """Nodes of which the core may yet hear that they are lost, in order of name: silent ones, and
    the driver's, whose loss detection knows before the driver counts as gone."""
    return tuple(
        sorted(
            row.name for row in rows if _is_open(row) and (row.confirmed_at is None or row.driver)
        )
    )


def driver(
    before: DriverRecovery | None, scene: RecoveryInputs, now: float
) -> DriverRecovery | None:
    """What became of the driver in an incident; None while nothing has happened to it."""
    story, case, fencing = before, scene.decision.case, scene.cluster.fencing
    if case.driver in (Driver.GONE, Driver.SILENT):
        if scene.open is not None and (story is None or story.back_at is not None):
            story = DriverRecovery(
                lost_at=moment(now if case.driver_at is None else case.driver_at)
            )
    elif story is not None and story.back_at is None and case.driver is Driver.THERE:
        heartbeat = scene.view.reading.heartbeat
        back_at = moment(now)
        if heartbeat is not None and moment(heartbeat.since) >= (story.lost_at or EPOCH):
            back_at = moment(heartbeat.since)
        story = msgspec.structs.replace(story, back_at=back_at)
    if story is not None and fencing is not None and story.fenced_at is None:
        story = msgspec.structs.replace(
            story, fenced_at=moment(fencing.at), certainty=fencing.certainty
        )
    return story


def _looks(rows: dict[str, LostNode], scene: RecoveryInputs) -> Iterable[_Look]:
    """Every node that there may be something to tell about."""
    sightings = scene.cluster.sightings
    views: dict[str, list[NodeView]] = {}
    for node, view in scene.state.nodes.items():
        host = scene.cluster.host(node)
        if host is not None:
            views.setdefault(host, []).append(view)
    lost = _lost_hosts(scene)
    silent = [
        host
        for host, those in views.items()
        if any(view.status is NodeStatus.SUSPECTED for view in those)
    ]
    sighted = [
        name
        for name, item in sorted((sightings or {}).items())
        if concerns(name, item, scene.state, scene.cluster)
    ]
    for name in dict.fromkeys((*rows, *lost, *sorted(silent), *sighted)):
        sighting = (sightings or {}).get(name, NOTHING)
        seen = tuple(views.get(name, ()))
        status = _status(seen, name in lost, sighting)
        row = rows.get(name)
        if row is not None and row.confirmed_at is None and status in (None, NodeStatus.UP):
            # suspected once: over when nobody suspects it any more, and detection would know
            status = None if sightings is None else NodeStatus.UP
        yield _Look(name, status, sighting, seen)


def _status(
    views: tuple[NodeView, ...], was_lost: bool, sighting: NodeObservation
) -> NodeStatus | None:
    """How a node is. One with an executor that is up is there, whatever else was lost on it."""
    found = {view.status for view in views}
    if NodeStatus.UP in found:
        return NodeStatus.SUSPECTED if sighting.is_suspected else NodeStatus.UP
    if NodeStatus.SUSPECTED in found:
        return NodeStatus.LOST if sighting.is_lost else NodeStatus.SUSPECTED
    if was_lost or sighting.is_lost:
        return NodeStatus.LOST
    if sighting.is_suspected:
        return NodeStatus.SUSPECTED
    return NodeStatus.UP if sighting.heard_at is not None and not found else None


def _next(row: LostNode | None, look: _Look, now: float) -> LostNode | None:
    sighting = look.sighting
    if look.status is NodeStatus.LOST:
        if row is None or not _is_open(row):
            row = LostNode(name=look.name, suspected_at=_suspected_at(row, sighting))
        if row.confirmed_at is None:
            row = msgspec.structs.replace(row, confirmed_at=_confirmed_at(look, now))
    elif look.status is NodeStatus.SUSPECTED:
        if row is None or not _is_open(row):
            row = LostNode(name=look.name, suspected_at=_suspected_at(row, sighting) or moment(now))
    elif look.status is NodeStatus.UP and row is not None and _is_open(row):
        row = msgspec.structs.replace(row, back_at=_back_at(row, look, now))
    return None if row is None else _described(row, look)


def _described(row: LostNode, look: _Look) -> LostNode:
    """With all that is known of the node; what was known stays."""
    sighting = look.sighting
    domains = [sighting.domain, row.domain, *(view.domain for view in look.views)]
    domain = next((name for name in domains if name), None)
    return msgspec.structs.replace(
        row,
        uid=(row.uid if not _is_open(row) else sighting.uid) or row.uid,
        domain=None if domain is None else clipped(domain, DOMAIN_LENGTH_MAX),
        driver=row.driver or sighting.driver,
    )


def _suspected_at(row: LostNode | None, sighting: NodeObservation) -> datetime | None:
    """When it fell silent; not a suspicion that was over before."""
    if sighting.suspected_at is None:
        return None
    at = moment(sighting.suspected_at)
    over = None if row is None else row.back_at
    return None if over is not None and at <= over else at


def _confirmed_at(look: _Look, now: float) -> datetime:
    at = _lost_at(look)
    return moment(now if at is None else at)


def _lost_at(look: _Look) -> float | None:
    """When a node was lost, by detection or else by the core; None where neither knows."""
    if look.sighting.is_lost and look.sighting.confirmed_at is not None:
        return look.sighting.confirmed_at
    return max((view.lost_at for view in look.views if view.lost_at is not None), default=None)


def _back_at(row: LostNode, look: _Look, now: float) -> datetime:
    heard_at, since = look.sighting.heard_at, row.confirmed_at or row.suspected_at
    if heard_at is not None and since is not None and moment(heard_at) >= since:
        return moment(heard_at)
    return moment(now)


def _lost_hosts(scene: RecoveryInputs) -> tuple[str, ...]:
    """The nodes of the incident's losses, in order of loss."""
    incident = scene.open
    hosts = {} if incident is None else scene.cluster.lost_hosts(incident)
    return tuple(dict.fromkeys(hosts.values()))


def _is_open(row: LostNode) -> bool:
    return row.back_at is None


def _order(row: LostNode) -> tuple[bool, datetime, str]:
    """By time; those that were only suspected, and cleared, give way first."""
    cleared = row.confirmed_at is None and not _is_open(row)
    return cleared, row.suspected_at or row.confirmed_at or EPOCH, row.name
