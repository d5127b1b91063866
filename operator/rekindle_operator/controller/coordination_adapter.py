"""The operator as the coordinator's loop sees it: provider of nodes, and oversight.

    news      take in what watchers have told, judge the nodes: who is to be looked at?
    terms     policy, class and approvals go into the reading before a decision
    decided   the decision goes out: story, nodes, executors, each as an errand
    forget    the records of an application are gone: what was decided about it goes as well
    retire    Recoveries of applications that are long gone are deleted

Runs in the deciding thread and waits for nobody: what it leaves as errands is done by others.

Why: docs/decisions/0026-the-operator-is-the-coordinator.md.
"""

import math
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import msgspec

from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.coordination.session import ApplicationReading
from rekindle.protocol import PROTECTED_QUERIES, Heartbeat, NodeSeen, Orders, ProgressReport
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_ports import DecisionTerms, Look
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.cluster import nodes as cluster_nodes
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import EventInbox
from rekindle_operator.detection import node_inventory
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.detection.lease_poller import LeasePoller
from rekindle_operator.policies import effective_policy
from rekindle_operator.policies.concurrency_limiter import Limiter
from rekindle_operator.policies.effective_policy import Effective


@dataclass(slots=True)
class CoordinationAdapter:
    """`decided_on` is called with each decision, `stirred` with the applications of which something
    is otherwise; both only leave errands. `forgotten` is called with an application that has
    neither objects nor records any more, `retired` with Recoveries that nobody needs any more."""

    inbox: EventInbox[ClusterView]
    known: ClusterView
    judge: DetectionRunner
    renewals: LeasePoller
    limiter: Limiter
    decided_on: Callable[[Place, Look], None]
    stirred: Callable[[frozenset[Place]], None]
    forgotten: Callable[[Place], None]
    retired: Callable[[Collection[Recovery]], None]
    log: Log
    _looked_at: float = -math.inf
    _progress: dict[Place, tuple[ProgressReport, ProgressReport]] = field(default_factory=dict)

    def news(self) -> Collection[Place]:
        """Applications of which something may be otherwise than before."""
        for news in self.inbox.take():
            try:
                news(self.known)
            except Exception:  # one object must not keep all others from being known
                self.log.write("news-failed", trace=traceback.format_exc())
        changed = self.known.take_changed()
        now = time.monotonic()
        newest = self.renewals.newest
        told = self.judge.judge(changed, newest, now)
        if newest is not None and newest.asked_at != self._looked_at:
            self._looked_at = newest.asked_at
            self.renewals.look_at(self.judge.expires_at())
        places = changed | told
        for place in changed:
            if self.known.application(place) is None:
                self._drop(place)
        self.stirred(places)
        return places

    def request(self, place: Place, identity: str, request: NodeRequestOrder) -> None:
        """Nothing: `decided` has all requests at once, those that are over as well."""

    def gone_nodes(self, place: Place) -> frozenset[str]:
        """Nodes whose loss to the application is confirmed."""
        return self.judge.gone_nodes(place)

    def domains(self, place: Place) -> Mapping[str, str]:
        """By the labels of the nodes that an application's executors are on."""
        return self.judge.domains(place)

    def notices(
        self, place: Place, recorded: Mapping[str, LossNotice]
    ) -> Mapping[str, LossNotice] | None:
        """Nodes that say that they will go, or that somebody drains; None before a first report."""
        return self.judge.notices(place, recorded)

    def exists(self, place: Place) -> bool:
        """Whether there is a pod or a SparkApplication of it."""
        return self.known.has_objects(place)

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None, generation: int) -> bool:
        """Whether the driver's pod has ended, was replaced, or stands on a lost node."""
        del generation
        return self.judge.driver_gone(place, heartbeat)

    def heard(self, place: Place, reading: ApplicationReading) -> None:
        """A driver has reported."""
        self.judge.hear(place, reading, time.monotonic())

    def terms(self, place: Place, reading: ApplicationReading) -> DecisionTerms:
        """The reading with what policy and class say of it.

        Without them the pipeline's own policy holds, as a driver that nobody plans for would wait
        for ever; but planning takes no longer than any class allows.
        """
        reading = self._numbered(place, self._named(place, self._capped(place, reading)))
        held = self.known.held(place)
        if held is None:
            return DecisionTerms(_unruled(reading, list(self.known.classes.values())))
        queries = {query.name for query in reading.topology.topology.queries}
        held, _ = effective_policy.known(held, queries)
        may = self.known.approved(place, held) and self.limiter.reached(place, held) is None
        return DecisionTerms(
            _within(reading, held), plan=not held.paused, recover=may, dry_run=held.dry_run
        )

    def _capped(self, place: Place, reading: ApplicationReading) -> ApplicationReading:
        """The reading with no more CPU than others leave; worked out once for each report.

        Protected queries cost slots of tasks and not CPU, and a node has as many as Spark gives it.
        Tasks that get less CPU take longer, so what others take is in the costs already.
        """
        progress, application = reading.progress, self.known.application(place)
        if progress is None or application is None:
            return reading
        if reading.topology.program == PROTECTED_QUERIES:
            return reading
        before, after = self._progress.get(place, (None, progress))
        if before is not progress:
            shares = self._shares(application, progress.nodes)
            nodes = cluster_nodes.capped(progress.nodes, shares)
            same = nodes is progress.nodes
            after = progress if same else msgspec.structs.replace(progress, nodes=nodes)
            self._progress[place] = (progress, after)
        return reading if after is progress else replace(reading, progress=after)

    def _named(self, place: Place, reading: ApplicationReading) -> ApplicationReading:
        """The reading with the Nodes that the driver's nodes are on by their pods, for the record:
        who comes after a loss may find neither the pod nor the driver's word for it."""
        progress, hosts = reading.progress, self.judge.hosts(place)
        if progress is None:
            return reading
        nodes = {
            name: msgspec.structs.replace(seen, cluster_node=hosts[name])
            for name, seen in progress.nodes.items()
            if name in hosts and hosts[name] != seen.cluster_node
        }
        if not nodes:
            return reading
        progress = msgspec.structs.replace(progress, nodes={**progress.nodes, **nodes})
        return replace(reading, progress=progress)

    def _numbered(self, place: Place, reading: ApplicationReading) -> ApplicationReading:
        """The reading with the highest number of the application's Recoveries: they outlive the
        records of the store, and an ended one of the same name would swallow a new incident."""
        known = self.known.recoveries.get(place, {}).values()
        highest = max((item.spec.incident for item in known), default=0)
        return replace(reading, incidents=highest) if highest else reading

    def _shares(
        self, application: MatchedApplication, nodes: Mapping[str, NodeSeen]
    ) -> dict[str, float]:
        """What each executor may have of its node (node of the report -> percent of one core)."""
        pods = node_inventory.locate(nodes, application.executors).pods
        found: dict[str, float] = {}
        for node in {pod.node for pod in pods.values() if pod.node}:
            room = self.known.registry.room(node, application)
            if room is not None and room.capacity_millis > 0:
                found |= cluster_nodes.shares(room, application.executors)
        return {name: found[pod.uid] for name, pod in pods.items() if pod.uid in found}

    def decided(self, place: Place, look: Look) -> None:
        """A decision was written."""
        self.decided_on(place, look)

    def forget(self, place: Place) -> None:
        """Its records are gone. An application whose objects had gone before was decided about
        since then. One that still has objects is forgotten with these."""
        if self.known.application(place) is None:
            self._drop(place)
            self.forgotten(place)

    def retire(self, days: int) -> None:
        """Have Recoveries deleted that ended so many days ago, of applications without objects."""
        self.retired(self.known.past(datetime.now(UTC) - timedelta(days=days)))

    def _drop(self, place: Place) -> None:
        self.judge.forget(place)
        self._progress.pop(place, None)


def _unruled(reading: ApplicationReading, classes: Iterable[RecoveryClass]) -> ApplicationReading:
    """The reading of an application that no policy selects.

    Why: docs/decisions/0029-without-a-policy-the-pipelines-own-holds.md.
    """
    report = reading.topology
    policy = effective_policy.without_policy(report.policy, classes)
    if policy is report.policy:
        return reading
    return replace(reading, topology=msgspec.structs.replace(report, policy=policy))


def _within(reading: ApplicationReading, held: Effective) -> ApplicationReading:
    """The reading under a policy: priorities and goals that it leaves out are the pipeline's own,
    and those that people have ordered in the store go before."""
    report = reading.topology
    priorities = {**report.policy.priorities, **held.policy.priorities}
    lag_goals = {**report.policy.lag_goals, **held.policy.lag_goals}
    policy = replace(held.policy, priorities=priorities, lag_goals=lag_goals)
    orders = Orders(
        priorities={**held.overrides, **reading.orders.priorities}, paused=reading.orders.paused
    )
    topology = msgspec.structs.replace(report, policy=policy)
    return replace(reading, topology=topology, orders=orders)
