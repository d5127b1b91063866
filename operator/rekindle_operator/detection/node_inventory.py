"""The nodes of the cluster as detection knows them: who is there, who has gone, who has executors.

A machine whose Node object is gone is judged once. Until then it is *gone*, not yet lost: a list
may be as broken as everything else, so it waits while nothing is confirmed. A name that executors
stand on and no list has ever had waits for a full period: the lists of pods and of nodes are of
different moments. Says nothing of leases and gives no verdicts; called by `node_detector` only.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeVar

from rekindle.coordination import Driver, NodeView
from rekindle.protocol import NodeSeen
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.detection import lease_timers
from rekindle_operator.detection.detection_events import DetectionReason
from rekindle_operator.detection.detection_input import (
    Observation,
    Rules,
    WatchedApplication,
    WatchedNode,
    announcement,
)
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


# Which pod, and so which node of the cluster, a driver means by a node of its report.
#
# The runtime calls a node by its executor's host, which on Kubernetes is the pod's IP, and an
# incarnation of it EXECUTOR.RELAPSES. Executor ids are unique in a driver's life and on the pod
# as a label; IPs are given again. So the id decides, and an address that says otherwise makes it
# nobody's: the next driver counts its executors from 1 again, and a pod of those has no address
# at first. An executor that cannot be placed is never taken for one on a lost node.


@dataclass(frozen=True, slots=True)
class Located:
    """Nodes of a report with their pods, and those without one, by the report's names."""

    pods: Mapping[str, PodSeen]
    unknown: tuple[str, ...]

    def on(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """What the report calls the executors on some nodes of the cluster."""
        wanted = frozenset(nodes)
        return tuple(sorted(name for name, pod in self.pods.items() if pod.node in wanted))


def locate(nodes: Mapping[str, NodeSeen | NodeView], executors: Iterable[PodSeen]) -> Located:
    """The pods of a report's nodes, or of a record's, among the executors of its driver."""
    there = tuple(executors)
    numbered = {pod.executor_id: pod for pod in there if pod.executor_id}
    found: dict[str, PodSeen] = {}
    for name, seen in nodes.items():
        executor, _, _ = (seen.incarnation or "").rpartition(".")
        pod = numbered.get(executor) if executor else None
        if pod is None:
            # Without a label (old Spark on a StatefulSet) only those that have none come into
            # question.
            among = there if not executor else [pod for pod in there if not pod.executor_id]
            pod = _only(pod for pod in among if _is_at(pod, name))
        if pod is not None and not _contradicts(pod, name):
            found[name] = pod
    unknown = tuple(sorted(name for name in nodes if name not in found))
    return Located(found, unknown)


def _only(pods: Iterable[PodSeen]) -> PodSeen | None:
    """The one pod that there is; None where there is no telling."""
    found = tuple(pods)
    return found[0] if len(found) == 1 else None


def _is_at(pod: PodSeen, name: str) -> bool:
    """Whether a node's name in a report can mean a pod: by its IP, or by the node that it is on."""
    address = _address(name)
    return pod.node == name if address is None else _address(pod.ip) == address


def _contradicts(pod: PodSeen, name: str) -> bool:
    if pod.ip == name:  # as nearly always: parsing takes longer than all else here
        return False
    address = _address(name)
    return address is not None and _address(pod.ip) != address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An IP address, in brackets or not, as Spark writes those of version 6; None for a name."""
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None
