"""Queues the API writes that decisions require: recoveries, executors, nodes, statuses.

Called by the deciding thread only; what it hands on are values. Nothing is left while another
operator acts, and all of it again by one that begins to: each errand may be repeated.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rekindle.coordination import application_status, next_plan, session
from rekindle.coordination.session import Case, Resumption
from rekindle.model.incidents import Incident
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_ports import Look
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import ApplicationReference, NodeRequest
from rekindle_operator.applications.application_recovery import ApplicationRecovery
from rekindle_operator.applications.progress_reader import ProgressReader
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import EventInbox
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.coordination_risks import DriverContacts
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.detection import node_inventory
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.policies import policy_conditions
from rekindle_operator.policies.concurrency_limiter import Limiter
from rekindle_operator.policies.effective_policy import Effective
from rekindle_operator.policies.policy_conditions import DomainLossForecast
from rekindle_operator.policies.policy_status_writer import PolicyStatusWriter
from rekindle_operator.provisioning import (
    ExecutorShape,
    NodeDemand,
    NodeIncident,
    NodeLimits,
    limits_of,
)
from rekindle_operator.provisioning.node_provisioner import NodeProvisioner, Rows, Wanted, by_place
from rekindle_operator.recovery.recovery_inputs import ClusterFacts, RecoveryTerms, lost_hosts
from rekindle_operator.recovery.recovery_writer import Moment, RecoveryWriter
from rekindle_operator.remediation.pod_eviction import PodEviction, kept_off_needlessly
from rekindle_operator.remediation.remediation_runner import RemediationRunner, RemediationWriter
from rekindle_zookeeper import Connection

# Nodes that an incident has taken executors from as it had been announced: a drain, mostly.
#
# Such a loss is told to nobody.


@dataclass(slots=True)
class DrainedNodes:
    """What is announced of a node after its loss says only that somebody else has noticed, so that
    each is judged once in an incident."""

    judge: DetectionRunner
    _announced: dict[Place, tuple[int, dict[str, bool]]] = field(default_factory=dict)

    def of(self, place: Place, incident: Incident | None) -> frozenset[str]:
        """The Nodes that an application's open incident has lost as it had been announced."""
        if incident is None:
            self.forget(place)
            return frozenset()
        number, found = self._announced.get(place, (0, {}))
        if number != incident.number:
            found = {}
            self._announced[place] = incident.number, found
        for node in lost_hosts(incident, self.judge.hosts_ever(place)).values():
            found.setdefault(node, self._is_leaving(node))
        return frozenset(name for name, announced in found.items() if announced)

    def forget(self, place: Place) -> None:
        """An application that is gone."""
        self._announced.pop(place, None)

    def clear(self) -> None:
        """Another one acts from now on."""
        self._announced.clear()

    def _is_leaving(self, node: str) -> bool:
        """Whether a node goes, or has gone, as it was announced."""
        state, known = self.judge.state, self.judge.known.registry.nodes.get(node)
        if known is not None:
            # what stood there is lost: a cordoned node is drained as far as that concerns us
            by = node_inventory.departure(state, node, known.judged, {}, self.judge.rules)
            if by is not None:
                return True
        gone = state.gone.get(node)
        announced = node in state.leaving or (gone is not None and gone.departure is not None)
        return announced and node not in state.suspects


# What was decided last about each application, and what others ask of it.
#
# Kept in the deciding thread; `policy_status_writer` asks.


class DecisionCache(dict[Place, Case]):
    """The newest case of each application that was decided about."""

    def __init__(self) -> None:
        super().__init__()
        self._outlooks: dict[Place, tuple[object, DomainLossForecast | None]] = {}
        self._bases: dict[Place, object] = {}

    def take(self, place: Place, case: Case) -> bool:
        """Keep a newer case; whether what others ask of it may be otherwise. Works nothing out: a
        decision waits for no figure that is only told."""
        stopped, basis = self.stopped(place), self._bases.get(place)
        self[place] = case
        found = _basis(case)
        if found != basis:
            self._bases[place] = found
        return found != basis or self.stopped(place) != stopped

    def forget(self, place: Place) -> None:
        """An application that is no more."""
        for known in (self, self._outlooks, self._bases):
            known.pop(place, None)

    def outlook(self, place: Place) -> DomainLossForecast | None:
        """What the loss of each failure domain would stop; in an incident what was so before it.
        Worked out again only when something is elsewhere. None where that is not known."""
        case = self.get(place)
        known = self._outlooks.get(place)
        if case is None or case.state is None:
            return None if known is None else known[1]
        basis = self._bases[place]
        if known is None or known[0] is not basis:
            found = policy_conditions.look_out(case.state)
            if found is None and known is not None:
                return known[1]
            self._outlooks[place] = known = basis, found
        return known[1]

    def queries(self, place: Place) -> frozenset[str] | None:
        """The queries of an application; None where nobody has heard of it."""
        case = self.get(place)
        if case is None or case.state is None:
            return None
        return frozenset(query.name for query in case.state.topology.queries)

    def stopped(self, place: Place) -> Mapping[str, tuple[str, ...]] | None:
        """Its queries that have stopped, with why; None where nobody has heard of it."""
        case = self.get(place)
        return (
            None
            if case is None or case.state is None
            else application_status.stopped_queries(case.state)
        )

    def priority(self, place: Place) -> float:
        """Of its most important query partition; 0 where nobody has heard of it."""
        case = self.get(place)
        priorities = {} if case is None or case.state is None else case.state.priorities
        return max(priorities.values(), default=0.0)


def _basis(case: Case) -> object:
    """What an outlook follows from; None where nobody has heard of the application."""
    state = case.state
    if state is None:
        return None
    domains = {node: (view.status, view.domain) for node, view in state.nodes.items()}
    running = not state.starting and state.incident is None
    return running, state.placement, state.priorities, domains


RowsByNumber = Mapping[int, tuple[NodeRequest, ...]]


@dataclass(slots=True)
class Effects:
    """`api` writes only while this process acts (`acts`); `reads` are of the UIs of drivers; `home`
    is the operator's namespace, `identity` its pod; requests for nodes are looked at every
    `look_seconds`."""

    known: ClusterView
    judge: DetectionRunner
    inbox: EventInbox[ClusterView]
    errands: WorkQueue
    reads: WorkQueue
    api: Api
    connection: Connection
    log: Log
    home: str
    identity: str
    look_seconds: float
    metrics: OperatorMetrics
    limiter: Limiter
    acts: Callable[[], bool]
    contacts: DriverContacts
    fencing_approvals: bool = False
    storyteller: RecoveryWriter = field(init=False)
    evictor: PodEviction = field(init=False)
    requester: NodeProvisioner = field(init=False)
    statuses: PolicyStatusWriter = field(init=False)
    remedying: RemediationRunner = field(init=False)
    departures: DrainedNodes = field(init=False)
    whole: ApplicationRecovery = field(init=False)
    # an executor of each application, with the UID of its driver
    _shapes: dict[Place, tuple[str, ExecutorShape]] = field(default_factory=dict)
    _rows: dict[Place, dict[int, tuple[NodeRequest, ...]]] = field(default_factory=dict)
    # names of requests for nodes, also of applications that are gone
    _pending: set[tuple[Place, str]] = field(default_factory=set)
    _cases: DecisionCache = field(default_factory=DecisionCache)
    _demands: dict[Place, NodeDemand] = field(default_factory=dict)
    _idle_since: dict[str, float] = field(default_factory=dict)
    _per_node: dict[Place, int] = field(default_factory=dict)
    _risk: tuple[object, ...] = ()
    _acting: bool = False
    _dirty: bool = True
    _wanting: bool = True

    def __post_init__(self) -> None:
        # errands answer on threads of their own: what they say comes back through the inbox
        put = self.inbox.put
        self.storyteller = RecoveryWriter(
            self.api,
            self.connection,
            self.errands,
            self.identity,
            self.metrics,
            settled=lambda place: put(lambda _: self.judge.settle(place)),
        )
        self.evictor = PodEviction(
            self.api,
            self.errands,
            self.log,
            self.metrics,
            measured=lambda *news: put(lambda _: self._measured(*news)),
        )
        self.requester = NodeProvisioner(
            self.api,
            self.errands,
            self.log,
            self.home,
            self.metrics,
            told=lambda rows: put(lambda _: self._told(rows)),
            look_seconds=self.look_seconds,
        )
        tender = RemediationWriter(
            self.api,
            self.errands,
            self.log,
            fenced=lambda *news: put(lambda _: self.remedying.note_fenced(*news)),
            gone=lambda *news: put(lambda _: self.remedying.note_gone(*news)),
        )
        self.remedying = RemediationRunner(self.known, self.judge, tender, self.fencing_approvals)
        self.departures = DrainedNodes(self.judge)
        self.whole = ApplicationRecovery(
            self.known,
            self.judge,
            self.api,
            self.errands,
            self.log,
            self.identity,
            reference,
            self._shape,
            self._measure,
            lambda place: self._rows.get(place, {}),
            ProgressReader(self.reads, self.log, lambda take: put(lambda _: take())),
        )
        self.statuses = PolicyStatusWriter(
            self.api,
            self.errands,
            self.known,
            self.identity,
            self._cases.queries,
            self._cases.stopped,
            self.outlook,
            self.contacts.dangers,
            self.contacts.gate_dangers,
        )

    def decided(self, place: Place, look: Look) -> None:
        """A decision was written."""
        before, case = self._cases.get(place), look.decision.case
        self._dirty |= self._cases.take(place, case)
        if before is None or before.plan_sequence != look.case.plan_sequence:
            self.storyteller.read_again(place)  # another one has decided meanwhile
        self.limiter.decided(place, case)
        self.judge.note_decision(place, case)
        self.contacts.decided(place, look)
        application_ = self.known.application(place)
        if application_ is None or not self._acting:
            self.storyteller.pass_over(look, place)
            return
        held = self.known.held(place)
        if held is None:
            self._tell_on(place, application_, look)
            return
        policy = self.known.policies[application_.policy]
        dry_run = held.dry_run and case.resumption is Resumption.OVER
        limit = self.limiter.reached(place, held)
        cluster = self._cluster(
            place, self.judge.impaired(place, held), held.executors.avoid_impaired_domains
        )
        if not (held.approval_needed or held.paused or held.dry_run):
            # otherwise somebody waits for a Recovery, a drain's too
            cluster = replace(cluster, left=self.departures.of(place, case.incident))
        moment = Moment(
            place=place,
            application=reference(application_),
            policy_name=policy.metadata.name,
            class_name=policy.spec.class_name,
            look=_imagined(look, recover=limit is None) if dry_run else look,
            terms=RecoveryTerms(held.paused, dry_run, held.approval_needed, limit=limit),
            cluster=cluster,
            recoveries=dict(self.known.recoveries.get(place, {})),
            requests=self._rows.get(place, {}),
            makes=any(item.provider != "PendingPods" for item in held.providers),
            provider=held.providers[0].name if held.providers else "none",
            dangers=self.contacts.dangers([place]),
            kept_max=held.recoveries_kept_max,
        )
        self.storyteller.tell(moment)
        self._demand(place, application_, held)

    def _tell_on(self, place: Place, application_: MatchedApplication, look: Look) -> None:
        """Go on with stories that have begun under a policy, or a class, that is gone."""
        open_ = self.known.open_of(place)
        if not open_:
            self.storyteller.pass_over(look, place)
            return
        spec = next(iter(open_.values())).spec
        moment = Moment(
            place=place,
            application=reference(application_),
            policy_name=spec.policy_name,
            class_name=spec.class_name,
            look=look,
            terms=RecoveryTerms(),
            cluster=self._cluster(place, (), avoids=False),
            recoveries=open_,
            requests=self._rows.get(place, {}),
            makes=True,
            dangers=self.contacts.dangers([place]),
        )
        self.storyteller.tell(moment)

    def outlook(self, place: Place) -> DomainLossForecast | None:
        """What the loss of each failure domain would stop of an application."""
        return self._cases.outlook(place)

    def stirred(self, places: frozenset[Place]) -> None:
        """Something may be otherwise with these applications; called again and again, also without
        any."""
        acts = self.acts()
        if acts != self._acting:
            self._acting = acts
            self._begin() if acts else self._end()
            known = self.known
            places = known.registry.places() | known.recoveries.keys() | self._cases.keys()
        self._note_idle()
        if not acts:
            return
        for place in places:
            self._look_at(place)
        self._wanting |= self.whole.refresh()
        self.remedying.tend(frozenset(self._demands))
        risk = self.contacts.state
        self._dirty |= bool(places) or self.known.stirred or risk != self._risk
        self._risk = risk
        self.known.stirred = False
        if self.statuses.refresh(stirred=self._dirty):
            self._dirty = False
        if self._wanting or self.requester.is_due:
            self._wanting = False
            self.requester.want(self._wanted())

    def forget(self, place: Place) -> None:
        """An application that is gone: one of its name that is made later has other incidents and
        executors."""
        self.contacts.forget(place)
        self._cases.forget(place)
        self.limiter.forget(place)
        self.departures.forget(place)
        self.remedying.forget(place)
        self.storyteller.note_gone(place)
        for known in (self._rows, self._shapes, self._per_node):
            known.pop(place, None)

    def _shape(self, place: Place) -> ExecutorShape | None:
        known = self._shapes.get(place)
        return None if known is None else known[1]

    def _measure(self, place: Place, pod: PodSeen) -> None:
        """Look at an executor, soon, unless one of the same driver was looked at: the next driver
        may have been submitted with larger ones."""
        known = self._shapes.get(place)
        if known is None or known[0] != pod.driver_uid:
            self.evictor.measure(place, pod)

    def _measured(self, place: Place, pod: PodSeen, executor: ExecutorShape) -> None:
        """An executor of an application, as its pod had it: all of a driver look the same,
        mostly."""
        if self.known.application(place) is None:
            return  # it has gone meanwhile
        if self._shape(place) != executor:
            self.known.changed.add(place)
        self._shapes[place] = pod.driver_uid, executor

    def _told(self, rows: Rows) -> None:
        """What has become of requests for nodes: of all that there are. A look that was under way
        when another operator began to act says nothing that lasts."""
        if not self._acting:
            return
        told = by_place(rows)
        self._count(told)
        for place, those in told.items():
            # of an application that is gone nothing is kept for the next one of its name
            is_there = self.known.application(place) is not None
            if is_there and self._rows.get(place, {}) != those:
                self._rows[place] = those
                self.known.changed.add(place)

    def _count(self, told: Mapping[Place, RowsByNumber]) -> None:
        """Requests that have come to an end since."""
        before, self._pending = self._pending, set()
        for place, numbered_rows in told.items():
            for row in (row for rows in numbered_rows.values() for row in rows):
                if row.outcome == "Pending":
                    self._pending.add((place, row.name))
                elif (place, row.name) in before:
                    self.metrics.requests.labels(row.provider, row.outcome).inc()

    def _begin(self) -> None:
        self._dirty = self._wanting = True
        self.limiter.begin()

    def _end(self) -> None:
        """Another one acts: what it does is to be read again."""
        self.errands.clear()
        self.storyteller.forget()
        self.statuses.forget()
        self.remedying.tender.forget()
        self.departures.clear()
        self.judge.forget_decisions()
        self.whole.forget()
        self._demands.clear()
        self._rows.clear()
        self.contacts.forget_answers()

    def _look_at(self, place: Place) -> None:
        application_, held = self.known.application(place), self.known.held(place)
        if application_ is None:
            self.forget(place)
            for recovery in self.known.open_of(place).values():
                if not self.whole.has_told(place, recovery.spec.incident):
                    self.storyteller.abandon(recovery)
        if application_ is None or held is None:
            self.evictor.forget(place)
            if self._demands.pop(place, None) is not None:
                self._wanting = True
            return
        lost = self.judge.lost_nodes(place) | self.whole.lost_nodes(place)
        avoided = self.judge.avoided(place, held)
        others = application_.orphans + kept_off_needlessly(
            application_.executors, avoided, self.known.registry.nodes
        )
        if not lost and not others:
            self.evictor.forget(place)
            return
        if not held.executors.delete_pods_of_lost_nodes or held.paused or held.dry_run:
            self.evictor.evict(place, ())  # those that were left are not deleted either
            return
        pods = tuple(pod for pod in application_.executors_on(lost) if pod.name)
        per_node = max((len(application_.executors_on({node})) for node in lost), default=0)
        if per_node:
            self._per_node[place] = per_node
        self.evictor.evict(place, pods, others)

    def _cluster(self, place: Place, domains: tuple[Domain, ...], avoids: bool) -> ClusterFacts:
        return ClusterFacts(
            sightings=dict(self.judge.sightings.get(place, {})),
            hosts=self.judge.hosts_ever(place),
            held=self.judge.state.held_at is not None,
            driver=self.judge.drivers_node(place),
            domains_impaired=tuple(domain.value for domain in domains),
            domains_avoided=tuple(domain.value for domain in domains if avoids),
            fencing=self.remedying.fencing(place),
        )

    def _demand(self, place: Place, application_: MatchedApplication, held: Effective) -> None:
        """What is wanted for the incident that is open, once its Recovery is there and open."""
        case = self._cases[place]
        state, incident, recovery = case.state, case.incident, None
        if incident is not None:
            name = recovery_resource.recovery_name(reference(application_), incident.number)
            recovery = self.known.open_of(place).get(name)
        before = self._demands.get(place)
        if state is None or incident is None or recovery is None:
            if before is not None:
                del self._demands[place]
                self._wanting = True
            return
        policy = self.known.policies[application_.policy]
        class_ = self.known.classes[policy.spec.class_name]
        if application_.executors and case.requests:
            self._measure(place, application_.executors[0])
        demand = NodeDemand(
            incident=NodeIncident.of(place, recovery),
            class_name=class_.metadata.name,
            limits=limits_of(held, class_.spec),
            requests=dict(case.requests),
            domain_keys=held.failure_domain_keys,
            impaired=self.judge.avoided(place, held),
            missing=next_plan.nodes_missing(state),
            executor=self._shape(place),
            executors_per_node=self._per_node.get(place, 1),
            held=held.paused
            or held.dry_run
            or not self.known.approved(place, held)
            or self.limiter.reached(place, held) is not None,
        )
        if demand != before:
            self._demands[place] = demand
            self._wanting = True

    def _wanted(self) -> Wanted:
        open_ = {item.metadata.uid for _, item in self.known.open_recoveries()}
        now = time.monotonic()
        return Wanted(
            demands=(*(self._demands[place] for place in self._urgent()), *self.whole.demands),
            classes={
                name: NodeLimits(class_.spec.provisioning)
                for name, class_ in self.known.classes.items()
            },
            open=frozenset(open_),
            nodes=dict(self.known.registry.nodes),
            idle_seconds={name: now - since for name, since in self._idle_since.items()},
            lost=self.judge.nodes_lost,
        )

    def _urgent(self) -> list[Place]:
        """Applications with demands, those with the most important queries waiting first."""
        return sorted(self._demands, key=lambda place: (-self._cases.priority(place), str(place)))

    def _note_idle(self) -> None:
        now, idle = time.monotonic(), self.known.registry.idle_nodes
        for name in self._idle_since.keys() - idle:
            del self._idle_since[name]
        for name in idle:
            self._idle_since.setdefault(name, now)


def reference(application_: MatchedApplication) -> ApplicationReference:
    """An application as a Recovery names it."""
    if application_.kind == "Driver":
        return ApplicationReference("Driver", application_.place.application)
    resource = application_.resource
    return ApplicationReference(
        "SparkApplication",
        application_.place.application,
        application_.group,  # type: ignore[arg-type]  # one of the two, where there is any
        None if resource is None else resource.uid,
    )


def _imagined(look: Look, *, recover: bool) -> Look:
    """The same with the plan that a dry run does not carry out."""
    decision = session.decide(
        look.case, look.reading, look.at, clock=time.monotonic, recover=recover
    )
    return replace(look, decision=decision)
