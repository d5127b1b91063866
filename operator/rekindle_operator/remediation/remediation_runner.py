"""Computes once a second which nodes to fence, delete or taint, and queues the writes.

Which nodes are lost or suspected is the judge's to say, what may be done the classes';
`remediation_rules` has the rules. `RemediationRunner` is used by the deciding thread alone,
`RemediationWriter` carries them out in work items.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_class import Fencing, RecoveryClass
from rekindle_operator.cluster import api_client, object_kinds
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.cluster.nodes import ClusterNode
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.detection.detection_input import READY
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.provisioning.providers.cluster_api_machines import MACHINE
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.recovery.recovery_inputs import Fenced
from rekindle_operator.remediation import remediation_rules
from rekindle_operator.remediation.remediation_rules import NodeEvidence, NodeToRemedy

# Fences, deletes and taints nodes as `remediation_rules` says, after another look at each.
#
# Everything is done to the very machine that was meant: by its UID, and by the version that was
# read. Runs in errands.

REMEDIATION = ObjectKind(
    "self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediation", "selfnoderemediations"
)
FENCED_PHASE = "Fencing-Completed"


@dataclass(slots=True)
class RemediationWriter:
    """`fenced` (application, node, how) and `gone` (application, UID of the node, whether we have
    deleted its object) are called on any thread."""

    api: api_client.Api
    errands: WorkQueue
    log: Log
    fenced: Callable[[Place, NodeToRemedy, Fenced], None]
    gone: Callable[[Place, str, bool], None]
    _tainted: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fence(self, place: Place, node: NodeToRemedy, allowed: Fencing, *, approved: bool) -> None:
        """Fence a driver's lost node if it is certain by now that nothing runs there."""
        self.errands.leave(
            f"fence {place} {node.uid}", partial(self._fence, place, node, allowed, approved)
        )

    def release(self, place: Place, driver: PodSeen) -> None:
        """Delete the pod of a driver whose node was fenced."""
        self.errands.leave(f"release {driver.uid}", partial(self._release, place, driver))

    def delete(self, place: Place, node: NodeToRemedy) -> None:
        """Delete the object of a lost node."""
        self.errands.leave(f"delete-node {node.uid}", partial(self._delete, place, node))

    def taint(self, wanted: Mapping[str, Mapping[str, str]], there: Mapping[str, set[str]]) -> None:
        """Have just these taints of ours on nodes (node -> key -> effect); `there` has the keys of
        ours that nodes have, the one that set it out of service only where the node is back."""
        for name in wanted.keys() | there.keys():
            keys, effects = there.get(name, set()), wanted.get(name, {})
            with self._lock:
                known = self._tainted.get(name)
            if keys == set(effects) and known in (None, effects):
                continue
            if known == effects and keys != set(effects):
                continue  # on its way
            with self._lock:
                self._tainted[name] = effects
            self.errands.leave(f"taint {name}", partial(self._taint, name, effects))

    def forget(self) -> None:
        """Another one acts from now on."""
        with self._lock:
            self._tainted.clear()

    def _fence(self, place: Place, node: NodeToRemedy, allowed: Fencing, approved: bool) -> None:
        body = self._lost(place, node)
        if body is None:
            return
        certainty = remediation_rules.certain(
            body, allowed, self._evidence(node, allowed, approved)
        )
        if certainty is None:
            return
        if allowed.mode == "DeleteNode":
            self._remove(body)
        else:
            self._mark_out_of_service(body)
        self.log.write(
            "node-fenced", application=str(place), node=node.name, mode=allowed.mode, by=certainty
        )
        self.fenced(place, node, Fenced(time.time(), certainty))

    def _release(self, place: Place, driver: PodSeen) -> None:
        """Kubernetes would delete it, too, up to a minute later."""
        path = api_client.path_of(object_kinds.PODS, driver.namespace, driver.name)
        force = {"gracePeriodSeconds": 0, "preconditions": {"uid": driver.uid}}
        try:
            there = self.api.delete(path, force)
        except api_client.ObjectConflict:
            return  # the next one has its name by now
        if there:
            self.log.write(
                "driver-deleted", application=str(place), pod=driver.name, node=driver.node
            )

    def _evidence(self, node: NodeToRemedy, allowed: Fencing, approved: bool) -> NodeEvidence:
        claimed = machines = None
        remediated = False
        if "NodeClaimGone" in allowed.certainty:
            claims = self._all(NODE_CLAIM)
            claimed = None if claims is None else {_node_name(claim) for claim in claims}
        if "MachineGone" in allowed.certainty:
            found = self._all(MACHINE)
            machines = None if found is None else {item["metadata"]["name"] for item in found}
        if "SelfNodeRemediation" in allowed.certainty:
            remediated = any(
                item["metadata"]["name"] == node.name
                and (item.get("status") or {}).get("phase") == FENCED_PHASE
                for item in self._all(REMEDIATION) or ()
            )
        return NodeEvidence(claimed, machines, remediated, approved)

    def _all(self, kind: ObjectKind) -> list[api_client.Body] | None:
        """None where there is no such kind: that says nothing of any machine."""
        try:
            return self.api.all(api_client.path_of(kind))
        except api_client.ApiRefused as refused:
            if refused.status == api_client.NOT_FOUND:
                return None
            raise

    def _mark_out_of_service(self, body: api_client.Body) -> None:
        taints = body.get("spec", {}).get("taints") or []
        if any(taint["key"] == remediation_rules.OUT_OF_SERVICE for taint in taints):
            return
        ours = {
            "key": remediation_rules.OUT_OF_SERVICE,
            "value": remediation_rules.OURS,
            "effect": "NoExecute",
        }
        self._set_taints(body, [*taints, ours])

    def _delete(self, place: Place, node: NodeToRemedy) -> None:
        body = self._lost(place, node)
        if body is None:
            return
        self._remove(body)
        self.log.write("node-deleted", application=str(place), node=node.name)
        self.gone(place, node.uid, True)

    def _lost(self, place: Place, node: NodeToRemedy) -> api_client.Body | None:
        """The Node if it is still lost; of one that is gone nothing is left to do."""
        body = self.api.get(api_client.path_of(object_kinds.NODES, name=node.name))
        if body is None or body["metadata"]["uid"] != node.uid:
            self.gone(place, node.uid, False)
            return None
        return body if remediation_rules.still_lost(body, node) else None

    def _remove(self, body: api_client.Body) -> None:
        metadata = body["metadata"]
        conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        path = api_client.path_of(object_kinds.NODES, name=metadata["name"])
        self.api.delete(path, {"preconditions": conditions})

    def _taint(self, name: str, effects: Mapping[str, str]) -> None:
        body = self.api.get(api_client.path_of(object_kinds.NODES, name=name))
        taints = None if body is None else remediation_rules.retainted(body, effects)
        if body is not None and taints is not None:
            self._set_taints(body, taints)
            self.log.write("node-tainted", node=name, taints=dict(effects))
        with self._lock:
            if self._tainted.get(name) == effects:
                del self._tainted[name]

    def _set_taints(self, body: api_client.Body, taints: list[api_client.Body]) -> None:
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
        path = api_client.path_of(object_kinds.NODES, name=body["metadata"]["name"])
        self.api.patch(path, {"metadata": metadata, "spec": {"taints": taints or None}})


def _node_name(claim: api_client.Body) -> str:
    """The node that a NodeClaim has become."""
    return str((claim.get("status") or {}).get("nodeName", ""))


TEND_SECONDS = 1.0
FENCE_SECONDS = 5.0


@dataclass(slots=True)
class RemediatedNodes:
    """What was done for one application, by the UIDs of nodes: of those that it misses now `done`
    need nothing more, `deleted` ones are among them; `tried` says when fencing was, and how the
    Node was then."""

    done: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    tried: dict[str, tuple[float, ClusterNode | None]] = field(default_factory=dict)

    def keep(self, uids: Collection[str]) -> None:
        """Forget nodes that are not missed any more: lost again, they are tended to again."""
        self.done &= set(uids)
        self.tried = {uid: tried for uid, tried in self.tried.items() if uid in uids}


@dataclass(slots=True)
class RemediationRunner:
    """Keeps what was done, so that it is done once. Without `fencing_approvals` nobody sees to it
    that only those approve of fencing who may, so none counts."""

    known: ClusterView
    judge: DetectionRunner
    tender: RemediationWriter
    fencing_approvals: bool = False
    _fenced: dict[Place, Fenced] = field(default_factory=dict)
    _tended: dict[Place, RemediatedNodes] = field(default_factory=dict)
    _at: float = 0.0

    def tend(self, recovering: Collection[Place]) -> None:
        """Fence, delete and taint what is due; `recovering` are applications with an incident."""
        now = time.monotonic()
        if now - self._at < TEND_SECONDS:
            return
        self._at = now
        if self.judge.state.suspects or self.judge.state.told:
            standing: dict[str, set[Place]] = {}
            for item in self.known.applications():
                driver = item.driver
                if driver is not None and driver.node and not driver.ended:
                    standing.setdefault(driver.node, set()).add(item.place)
            silent = self.judge.looks_lost()
            for place in list(self.judge.sightings):
                self._remedy(place, standing, silent)
        self._taint(recovering)

    def fencing(self, place: Place) -> Fenced | None:
        """What was done for an application's newest lost driver, maybe before there was an incident
        of it: since its node fell silent."""
        sightings = self.judge.sightings.get(place, {}).values()
        silent = [
            item.suspected_at or item.confirmed_at or 0.0 for item in sightings if item.driver
        ]
        found = self._fenced.get(place)
        return found if found is not None and found.at >= max(silent, default=math.inf) else None

    def note_fenced(self, place: Place, node: NodeToRemedy, how: Fenced) -> None:
        """The driver's lost node was fenced. Its pod goes where somebody then submits the next one;
        another application would be gone with it."""
        self._fenced[place] = how
        self._tended.setdefault(place, RemediatedNodes()).done.add(node.uid)
        self.known.changed.add(place)
        application = self.known.application(place)
        if application is None or application.resource is None or application.driver is None:
            return
        if application.driver.node == node.name and not application.driver.ended:
            self.tender.release(place, application.driver)

    def note_gone(self, place: Place, uid: str, by_us: bool) -> None:
        """The object of a lost node is not there any more; `by_us`: as we have deleted it."""
        tended = self._tended.setdefault(place, RemediatedNodes())
        tended.done.add(uid)
        if by_us:
            tended.deleted.add(uid)

    def forget(self, place: Place) -> None:
        """An application that is gone."""
        self._fenced.pop(place, None)
        self._tended.pop(place, None)

    def _remedy(
        self, place: Place, standing: Mapping[str, Collection[Place]], silent: frozenset[str]
    ) -> None:
        """Nodes that an application has lost; `standing` says whose drivers a node has, `silent`
        nodes look lost. A node with drivers of others only is for those others to say."""
        held, sightings = self.known.held(place), self.judge.sightings.get(place, {})
        if held is None or held.paused or held.dry_run:
            return
        lost = [
            NodeToRemedy(
                name,
                item.uid,
                item.confirmed_at or item.suspected_at or 0.0,
                place in standing.get(name, ()),
            )
            for name, item in sightings.items()
            if item.uid is not None and (item.is_lost or (item.driver and name in silent))
        ]
        if not lost:
            self._tended.pop(place, None)
            return
        tended = self._tended.setdefault(place, RemediatedNodes())
        tended.keep({node.uid for node in lost})
        left = [
            node
            for node in lost
            if node.uid not in tended.done and (node.driver or node.name not in standing)
        ]
        deleted = len(tended.deleted)
        wanted = remediation_rules.due(left, held.fencing, held.node_deletion, deleted, time.time())
        for remedy in wanted:
            if remedy.fence:
                if not self._is_time(tended, remedy.node):
                    continue
                approved = self.fencing_approvals and self.known.has_fencing_approval(place)
                self.tender.fence(place, remedy.node, held.fencing, approved=approved)
            else:
                self.tender.delete(place, remedy.node)

    def _is_time(self, tended: RemediatedNodes, lost: NodeToRemedy) -> bool:
        """Whether to look for certainty once more: it may take minutes to come. At once when the
        Node has changed, for a mark on it may be what is waited for."""
        now, node = time.monotonic(), self.known.registry.nodes.get(lost.name)
        tried_at, seen = tended.tried.get(lost.uid, (-math.inf, None))
        if now - tried_at < FENCE_SECONDS and node == seen:
            return False
        tended.tried[lost.uid] = now, node
        return True

    def _taint(self, recovering: Collection[Place]) -> None:
        nodes = self.known.registry.nodes
        ours = {remediation_rules.SUSPECTED_TAINT, remediation_rules.IMPAIRED_TAINT}
        there: dict[str, set[str]] = {}
        for name, node in nodes.items():
            keys = ours.intersection(node.judged.taints)
            if node.fenced and node.judged.ready == READY:
                keys.add(remediation_rules.OUT_OF_SERVICE)  # it is back
            if keys:
                there[name] = keys
        specs = [class_.spec.taints for class_ in self._classes_in_earnest()]
        effects = (
            remediation_rules.strongest(item.suspected_nodes for item in specs),
            remediation_rules.strongest(item.impaired_domains for item in specs),
        )
        held = self.judge.state.held_at is not None
        suspects = frozenset() if held else self.judge.state.suspects.keys() & nodes.keys()
        suspected = sorted(suspects - self._spared(suspects))
        impaired = self._impaired_nodes(recovering) if effects[1] != "None" else ()
        self.tender.taint(remediation_rules.taints_wanted(suspected, impaired, effects), there)

    def _classes_in_earnest(self) -> list[RecoveryClass]:
        """Without those that are a dry run, or that only policies in a dry run name."""
        dry: dict[str, bool] = {}
        for policy in self.known.policies.values():
            name = policy.spec.class_name
            class_ = self.known.classes.get(name)
            if class_ is None or not class_.spec.allows(policy.metadata.namespace):
                continue
            dry[name] = dry.get(name, True) and policy.spec.dry_run
        return [
            class_
            for name, class_ in self.known.classes.items()
            if not (class_.spec.dry_run or dry.get(name, False))
        ]

    def _spared(self, names: Collection[str]) -> frozenset[str]:
        """Of some nodes those where all applications are in a dry run."""
        dry: dict[str, bool] = {}
        for application in self.known.applications() if names else ():
            held = self.known.held(application.place)
            for name in application.all_nodes:
                if name in names:
                    dry[name] = dry.get(name, True) and held is not None and held.dry_run
        return frozenset(name for name, spared in dry.items() if spared)

    def _impaired_nodes(self, recovering: Collection[Place]) -> frozenset[str]:
        """What is left of impaired domains, while an incident is open there."""
        domains: set[Domain] = set()
        for place in recovering:
            held = self.known.held(place)
            if held is not None and not held.dry_run and held.taints.impaired_domains != "None":
                domains.update(self.judge.impaired(place, held))
        return frozenset(
            name
            for name, node in self.known.registry.nodes.items()
            if any(node.judged.labels.get(domain.key) == domain.value for domain in domains)
        )
