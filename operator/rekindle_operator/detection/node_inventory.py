"""The nodes of the cluster as detection knows them: who is there, who has gone, who has executors.

A machine whose Node object is gone is judged once. Until then it is *gone*, not yet lost: a list
may be as broken as everything else, so it waits while nothing is confirmed. A name that executors
stand on and no list has ever had waits for a full period: the lists of pods and of nodes are of
different moments. Says nothing of leases and gives no verdicts; called by `node_detector` only.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rekindle.coordination import Driver
from rekindle_operator.detection import lease_timers
from rekindle_operator.detection.detection_input import (
    Observation,
    Rules,
    WatchedApplication,
    WatchedNode,
    announcement,
)
from rekindle_operator.detection.detection_reasons import DetectionReason
from rekindle_operator.detection.lease_timers import Timers

Applications = Mapping[str, WatchedApplication]
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Gone:
    """A machine whose Node object is gone and that is not judged yet; `node` is the object as seen
    last, None when nobody has seen it.

    `applications` had executors there, `departure` is what had announced that it goes. It is
    judged by a look at `due_at` or later.
    """

    node: WatchedNode | None
    reason: DetectionReason
    applications: frozenset[str]
    due_at: float
    departure: str | None = None


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """All that detection knows; begin with `NodeInventory()`, also whenever somebody else takes
    over.

    `nodes` and `applications` are those of the newest round. `suspects` (node -> moment) have been
    silent since they were suspected; one that is gone stays among them until it is judged.
    `leaving` (node -> by what) fell silent after it had been announced. `told` (node ->
    applications) are those that know that the node is lost or has departed. `held_at` is since when
    nothing is confirmed.
    """

    timers: Timers = field(default_factory=Timers)
    nodes: Mapping[str, WatchedNode] = field(default_factory=dict)
    applications: Applications = field(default_factory=dict)
    suspects: Mapping[str, float] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, Gone] = field(default_factory=dict)
    told: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held_at: float | None = None


def take_in(
    state: NodeInventory, observation: Observation, now: float, rules: Rules
) -> NodeInventory:
    """The state after a list of nodes, with those set apart that have gone since the last one."""
    nodes = observation.nodes
    if nodes is None:
        return replace(state, applications=observation.applications)
    vanished = frozenset(name for name in state.nodes if name not in nodes)
    replaced = _replaced(state.nodes, nodes)
    gone = {name: item for name, item in state.gone.items() if not _is_back(item, nodes.get(name))}
    gone |= _gone(state, observation, vanished, DetectionReason.NODE_DELETED, rules)
    gone |= _gone(state, observation, replaced, DetectionReason.NODE_REPLACED, rules)
    gone |= _never_seen(state, observation, gone, now, rules)
    timers = lease_timers.watch(lease_timers.forget(state.timers, vanished), replaced, now)
    # A node that has no lease and is not Ready is still starting: nothing is expected of it.
    begun = [name for name in nodes.keys() - timers.since.keys() if name in timers.tokens]
    return replace(
        state,
        timers=lease_timers.watch(timers, begun, now),
        nodes=nodes,
        applications=observation.applications,
        suspects=_without(state.suspects, replaced),
        leaving=_without(state.leaving, vanished | replaced),
        gone=gone,
    )


def departure(
    state: NodeInventory, name: str, node: WatchedNode, applications: Applications, rules: Rules
) -> str | None:
    """What has announced that this node goes; None when it goes by accident.

    What is announced of a suspected node says only that somebody else has noticed. What was
    announced of one that is silent now holds, though its Ready has become Unknown since. A cordon
    counts once the node is drained, as far as that concerns us: no executor is left there.
    """
    if name in state.suspects:
        return None
    announced = state.leaving.get(name) or announcement(node, rules)
    if announced or not node.unschedulable:
        return announced
    if any(name in application.executors for application in applications.values()):
        return None
    return "a cordon, and no executor is left there"


def users(applications: Applications, names: Set[str]) -> dict[str, frozenset[str]]:
    """The applications with executors on nodes (node -> applications); no key for nodes without."""
    found: dict[str, set[str]] = {}
    for application, view in applications.items():
        if view.driver is not Driver.FINISHED:
            for name in view.executors:
                if name in names:
                    found.setdefault(name, set()).add(application)
    return {name: frozenset(those) for name, those in found.items()}


def forget_told(state: NodeInventory) -> NodeInventory:
    """Forget what was told of names that are in no list and have no executors any more."""
    absent = {name for name in state.told if name not in state.nodes}
    if absent:
        absent -= users(state.applications, absent).keys()
    if not absent:
        return state
    return replace(state, told={name: t for name, t in state.told.items() if name not in absent})


def _replaced(
    before: Mapping[str, WatchedNode], nodes: Mapping[str, WatchedNode]
) -> frozenset[str]:
    """Names that another machine has now."""
    return frozenset(
        name
        for name, node in nodes.items()
        if (old := before.get(name)) is not None and old is not node and old.uid != node.uid
    )


def _without(entries: Mapping[str, Entry], names: Set[str]) -> Mapping[str, Entry]:
    if entries.keys().isdisjoint(names):
        return entries
    return {name: entry for name, entry in entries.items() if name not in names}


def _is_back(item: Gone, node: WatchedNode | None) -> bool:
    """Whether a machine that seemed to be gone is in the list after all."""
    return node is not None and (item.node is None or item.node.uid == node.uid)


def _gone(
    state: NodeInventory,
    observation: Observation,
    names: frozenset[str],
    reason: DetectionReason,
    rules: Rules,
) -> dict[str, Gone]:
    """Machines that were in the list before and are not any more."""
    if not names:
        return {}
    affected = users(state.applications, names)
    if reason is DetectionReason.NODE_DELETED:
        # Under a name that another machine has now, executors not seen before may stand on that.
        for name, those in users(observation.applications, names).items():
            affected[name] = affected.get(name, frozenset()) | those
    return {
        name: Gone(
            node=state.nodes[name],
            reason=reason,
            applications=affected.get(name, frozenset()),
            due_at=state.timers.asked_at or 0.0,
            departure=departure(state, name, state.nodes[name], observation.applications, rules),
        )
        for name in names
    }


def _never_seen(
    state: NodeInventory,
    observation: Observation,
    gone: Mapping[str, Gone],
    now: float,
    rules: Rules,
) -> dict[str, Gone]:
    """Names that executors stand on and that no list has had, as far as nobody was told."""
    assert observation.nodes is not None
    names = {
        name
        for view in observation.applications.values()
        for name in view.executors
        if name not in observation.nodes and name not in gone
    }
    if not names:
        return {}
    due_at = now + rules.period_seconds
    return {
        name: Gone(None, DetectionReason.NODE_DELETED, those, due_at)
        for name, those in users(observation.applications, names).items()
        if not those <= state.told.get(name, frozenset())
    }
