"""Fences, deletes and taints nodes as `remediation_rules` says, after another look at each.

Everything is done to the very machine that was meant: by its UID, and by the version that was read.
Runs in errands.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_class import Fencing
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import (
    NOT_FOUND,
    Api,
    ApiRefused,
    Body,
    ObjectConflict,
    path_of,
)
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.provisioning.providers.cluster_api_machines import MACHINE
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.recovery import Fenced
from rekindle_operator.remediation import remediation_rules
from rekindle_operator.remediation.remediation_rules import NodeEvidence, NodeToRemedy

REMEDIATION = ObjectKind(
    "self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediation", "selfnoderemediations"
)
FENCED_PHASE = "Fencing-Completed"


@dataclass(slots=True)
class RemediationWriter:
    """`fenced` (application, node, how) and `gone` (application, UID of the node, whether we have
    deleted its object) are called on any thread."""

    api: Api
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
        path = path_of(object_kinds.PODS, driver.namespace, driver.name)
        force = {"gracePeriodSeconds": 0, "preconditions": {"uid": driver.uid}}
        try:
            there = self.api.delete(path, force)
        except ObjectConflict:
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

    def _all(self, kind: ObjectKind) -> list[Body] | None:
        """None where there is no such kind: that says nothing of any machine."""
        try:
            return self.api.all(path_of(kind))
        except ApiRefused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise

    def _mark_out_of_service(self, body: Body) -> None:
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

    def _lost(self, place: Place, node: NodeToRemedy) -> Body | None:
        """The Node if it is still lost; of one that is gone nothing is left to do."""
        body = self.api.get(path_of(object_kinds.NODES, name=node.name))
        if body is None or body["metadata"]["uid"] != node.uid:
            self.gone(place, node.uid, False)
            return None
        return body if remediation_rules.still_lost(body, node) else None

    def _remove(self, body: Body) -> None:
        metadata = body["metadata"]
        conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        path = path_of(object_kinds.NODES, name=metadata["name"])
        self.api.delete(path, {"preconditions": conditions})

    def _taint(self, name: str, effects: Mapping[str, str]) -> None:
        body = self.api.get(path_of(object_kinds.NODES, name=name))
        taints = None if body is None else remediation_rules.retainted(body, effects)
        if body is not None and taints is not None:
            self._set_taints(body, taints)
            self.log.write("node-tainted", node=name, taints=dict(effects))
        with self._lock:
            if self._tainted.get(name) == effects:
                del self._tainted[name]

    def _set_taints(self, body: Body, taints: list[Body]) -> None:
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
        path = path_of(object_kinds.NODES, name=body["metadata"]["name"])
        self.api.patch(path, {"metadata": metadata, "spec": {"taints": taints or None}})


def _node_name(claim: Body) -> str:
    """The node that a NodeClaim has become."""
    return str((claim.get("status") or {}).get("nodeName", ""))
