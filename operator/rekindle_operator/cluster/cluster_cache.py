"""All pods, nodes, SparkApplications and policies that have been seen, joined as they change.

    see, forget ──► what is kept ──► places to look at again ──► one application, joined anew

An event costs as much as what it touches: an executor is kept in one bucket
(`application_matching.bucket`), its driver looks there, and only their application is joined again,
when somebody asks for it. What is known at the end does not depend on the order in which it was
told, nor on what was forgotten since. Reads nothing and knows no clock; the shell keeps one and
tells it what a list or a watch gives.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster import application_matching
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.nodes import ClusterNode, Room, room
from rekindle_operator.cluster.pods import SPARK_APPLICATION_GROUPS, Occupant, PodSeen
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen

Pods = dict[str, PodSeen]
Resources = dict[tuple[str, str], SparkApplicationSeen]
Key = TypeVar("Key")


@dataclass(slots=True)
class ClusterCache:
    """One for the whole cluster; used by one thread."""

    _nodes: dict[str, ClusterNode] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)
    _held: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _guests: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _pods: dict[str, PodSeen | Occupant] = field(default_factory=dict)
    _gated: Pods = field(default_factory=dict)
    _executors: dict[str, Pods] = field(default_factory=dict)
    _drivers: dict[str, Pods] = field(default_factory=dict)
    _drivers_of_place: dict[Place, Pods] = field(default_factory=dict)
    _drivers_of_namespace: dict[str, Pods] = field(default_factory=dict)
    _places: dict[str, Place | None] = field(default_factory=dict)
    _resources: dict[str, Resources] = field(default_factory=dict)
    _policies: dict[str, dict[str, RecoveryPolicy]] = field(default_factory=dict)
    _joined: dict[Place, MatchedApplication] = field(default_factory=dict)
    _changed: set[Place] = field(default_factory=set)

    @property
    def nodes(self) -> Mapping[str, ClusterNode]:
        """All nodes by name; not to be changed."""
        return self._nodes

    @property
    def leaving_nodes(self) -> frozenset[str]:
        """Nodes that say that they will go, or that are cordoned."""
        return frozenset(self._leaving)

    @property
    def idle_nodes(self) -> frozenset[str]:
        """Nodes on which there is nothing but what belongs to the node itself."""
        return frozenset(name for name in self._nodes if name not in self._guests)

    @property
    def gated_pods(self) -> Mapping[str, PodSeen]:
        """Pods that wait for their turn, by UID; not to be changed."""
        return self._gated

    def free_millis(self, node: str) -> int:
        """CPU of a node that no pod on it requests; 0 for a node that is not there."""
        known = self._nodes.get(node)
        return 0 if known is None else max(0, known.cpu_millis - self._held.get(node, 0))

    def see_pod(self, seen: PodSeen | Occupant) -> None:
        """A pod as it is now."""
        known = self._pods.get(seen.uid)
        if known != seen:
            if known is not None:
                self._remove_pod(known)
            self._add_pod(seen)

    def forget_pod(self, uid: str) -> None:
        """A pod that is gone, or that matters to nobody any more."""
        known = self._pods.get(uid)
        if known is not None:
            self._remove_pod(known)

    def forget_pods_but(self, uids: Container[str]) -> None:
        """After a list of all pods: those that went while nobody watched."""
        for uid in [uid for uid in self._pods if uid not in uids]:
            self.forget_pod(uid)

    def see_node(self, seen: ClusterNode) -> None:
        """A node as it is now."""
        self._nodes[seen.name] = seen
        if seen.judged.notice is not None or seen.judged.unschedulable:
            self._leaving.add(seen.name)
        else:
            self._leaving.discard(seen.name)

    def forget_node(self, name: str) -> None:
        """A Node object that is gone; the pods on it are still told one by one."""
        self._nodes.pop(name, None)
        self._leaving.discard(name)

    def see_resource(self, seen: SparkApplicationSeen) -> None:
        """A SparkApplication as it is now."""
        resources = self._resources.setdefault(seen.namespace, {})
        if resources.get((seen.group, seen.name)) != seen:
            resources[seen.group, seen.name] = seen
            self._touch(Place(seen.namespace, seen.name))

    def forget_resource(self, group: str, namespace: str, name: str) -> None:
        """A SparkApplication that is gone."""
        resources = self._resources.get(namespace, {})
        if resources.pop((group, name), None) is not None:
            self._touch(Place(namespace, name))
        if not resources:
            self._resources.pop(namespace, None)

    def resources(self) -> tuple[SparkApplicationSeen, ...]:
        """All SparkApplications."""
        return tuple(item for those in self._resources.values() for item in those.values())

    def see_policy(self, policy: RecoveryPolicy) -> None:
        """A policy as it is now; what was written to its status changes nothing."""
        namespace, name = policy.metadata.namespace, policy.metadata.name
        policies = self._policies.setdefault(namespace, {})
        known = policies.get(name)
        policies[name] = policy
        if known is None or _weight(known) != _weight(policy):
            self._policies_changed(namespace)

    def forget_policy(self, namespace: str, name: str) -> None:
        """A policy that is gone."""
        policies = self._policies.get(namespace, {})
        if policies.pop(name, None) is not None:
            self._policies_changed(namespace)
        if not policies:
            self._policies.pop(namespace, None)

    def take_changed(self) -> frozenset[Place]:
        """Applications about which something may be different since the last call."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def places(self) -> frozenset[Place]:
        """All applications that have a driver or a SparkApplication."""
        named = {
            Place(namespace, name)
            for namespace, resources in self._resources.items()
            for _, name in resources
        }
        return frozenset(self._drivers_of_place.keys() | named)

    def application(self, place: Place) -> MatchedApplication | None:
        """An application as it is now; None when nothing of it is there."""
        joined = self._joined.get(place)
        if joined is None:
            joined = self._join(place)
            if joined is not None:
                self._joined[place] = joined
        return joined

    def nameless(self, namespace: str) -> tuple[PodSeen, ...]:
        """Drivers of a namespace that nothing names, so that they belong to no application."""
        drivers = self._drivers_of_namespace.get(namespace, {}).values()
        found = [pod for pod in drivers if self._places[pod.uid] is None and not pod.ended]
        return tuple(sorted(found, key=lambda pod: (pod.name, pod.uid)))

    def room(self, node: str, application: MatchedApplication) -> Room | None:
        """What an application may have of a node's CPU; None for a node that is not there."""
        known = self._nodes.get(node)
        if known is None:
            return None
        return room(known, self._held.get(node, 0), application.executors)

    def has_objects(self, place: Place) -> bool:
        """Whether there is a pod or a SparkApplication of an application. Remembers nothing, so any
        thread may ask; RuntimeError where what is seen changes meanwhile."""
        drivers = self._drivers_of_place.get(place, {})
        executors = self._executors_of(place, drivers)
        return bool(drivers or self._resources_of(place)) or next(executors, None) is not None

    def _join(self, place: Place) -> MatchedApplication | None:
        drivers = self._drivers_of_place.get(place, {})
        executors = tuple(self._executors_of(place, drivers))
        resources = self._resources_of(place)
        if not drivers and not executors and not resources:
            return None
        policies = self._policies.get(place.namespace, {})
        return application_matching.join(place, drivers.values(), executors, resources, policies)

    def _executors_of(
        self, place: Place, drivers: Pods
    ) -> Iterator[tuple[PodSeen, PodSeen | None]]:
        """Executors of these drivers, and those of the place's name that have none (any more)."""
        keys = {key for pod in drivers.values() for key in application_matching.buckets(pod, place)}
        keys |= application_matching.named_buckets(place)
        for key in keys:
            near = self._drivers.get(key, {})
            for executor in self._executors.get(key, {}).values():
                driver = application_matching.driver_of(executor, near.values())
                its = (
                    application_matching.named_place(executor)
                    if driver is None
                    else self._places[driver.uid]
                )
                if its == place:
                    yield executor, driver

    def _resources_of(self, place: Place) -> tuple[SparkApplicationSeen, ...]:
        there = self._resources.get(place.namespace, {})
        found = (there.get((group, place.application)) for group in SPARK_APPLICATION_GROUPS)
        return tuple(resource for resource in found if resource is not None)

    def _add_pod(self, pod: PodSeen | Occupant) -> None:
        self._pods[pod.uid] = pod
        if pod.node:
            self._held[pod.node] += pod.held_millis
            if not _is_resident(pod):
                self._guests[pod.node] += 1
        if isinstance(pod, Occupant):
            return
        if pod.gated:
            self._gated[pod.uid] = pod
        if pod.role == "driver":
            policies = self._policies.get(pod.namespace, {})
            self._add_driver(pod, application_matching.place_of(pod, policies))
        else:
            key = application_matching.bucket(pod)
            _put(self._executors, key, pod)
            self._touch_executor(pod, key)

    def _remove_pod(self, pod: PodSeen | Occupant) -> None:
        del self._pods[pod.uid]
        self._gated.pop(pod.uid, None)
        if pod.node:
            self._held[pod.node] -= pod.held_millis
            if not self._held[pod.node]:
                del self._held[pod.node]
            if not _is_resident(pod):
                self._guests[pod.node] -= 1
                if not self._guests[pod.node]:
                    del self._guests[pod.node]
        if isinstance(pod, Occupant):
            return
        if pod.role == "driver":
            self._remove_driver(pod)
        else:
            key = application_matching.bucket(pod)
            _drop(self._executors, key, pod)
            self._touch_executor(pod, key)

    def _add_driver(self, pod: PodSeen, place: Place | None) -> None:
        self._places[pod.uid] = place
        _put(self._drivers_of_namespace, pod.namespace, pod)
        if place is not None:
            _put(self._drivers_of_place, place, pod)
        for key in application_matching.buckets(pod, place):
            _put(self._drivers, key, pod)
        self._touch_driver(pod, place)

    def _remove_driver(self, pod: PodSeen) -> None:
        place = self._places[pod.uid]
        self._touch_driver(pod, place)
        for key in application_matching.buckets(pod, place):
            _drop(self._drivers, key, pod)
        if place is not None:
            _drop(self._drivers_of_place, place, pod)
        _drop(self._drivers_of_namespace, pod.namespace, pod)
        del self._places[pod.uid]

    def _policies_changed(self, namespace: str) -> None:
        """Policies hold for applications, and give drivers their names."""
        policies = self._policies.get(namespace, {})
        for pod in list(self._drivers_of_namespace.get(namespace, {}).values()):
            place = application_matching.place_of(pod, policies)
            self._touch_driver(pod, place)
            if place != self._places[pod.uid]:
                self._remove_driver(pod)
                self._add_driver(pod, place)
        for _, name in self._resources.get(namespace, {}):
            self._touch(Place(namespace, name))
        # what is left of an application without a driver and a resource can be selected by name
        for place in [place for place in self._joined if place.namespace == namespace]:
            self._touch(place)

    def _touch_executor(self, pod: PodSeen, key: str) -> None:
        """Whoever looks into its bucket may have one more or less."""
        self._touch(application_matching.named_place(pod))
        for uid in self._drivers.get(key, ()):
            self._touch(self._places[uid])

    def _touch_driver(self, pod: PodSeen, place: Place | None) -> None:
        """Whoever looks where it looks may have to share."""
        self._touch(place)
        for key in application_matching.buckets(pod, place):
            for uid in self._drivers.get(key, ()):
                self._touch(self._places[uid])

    def _touch(self, place: Place | None) -> None:
        if place is not None:
            self._joined.pop(place, None)
            self._changed.add(place)


def _is_resident(pod: PodSeen | Occupant) -> bool:
    return isinstance(pod, Occupant) and pod.resident


def _weight(policy: RecoveryPolicy) -> tuple[object, ...]:
    """What of a policy decides which one holds, and for what."""
    return policy.spec.selector, policy.metadata.creation_timestamp


def _put(index: dict[Key, Pods], key: Key, pod: PodSeen) -> None:
    index.setdefault(key, {})[pod.uid] = pod


def _drop(index: dict[Key, Pods], key: Key, pod: PodSeen) -> None:
    pods = index[key]
    del pods[pod.uid]
    if not pods:
        del index[key]
