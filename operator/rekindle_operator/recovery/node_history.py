"""The history of each node, from detection's verdicts.

Verdicts say what has changed, and by a clock that only this process has; a sighting says how things
are, by the clock of the object. The shell keeps the sightings of each application and asks here for
the next ones after each round of detection, and, when a recovery has ended, for what is left.
Not every node that was sighted concerns an application any more.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from rekindle.coordination.coordination_state import CoordinationState, NodeStatus
from rekindle_operator.detection.detection_events import DetectionEvent, DetectionKind
from rekindle_operator.recovery.recovery_inputs import ClusterFacts, NodeObservation


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
