"""A ProvisioningRequest with its PodTemplate per node: the cluster autoscaler makes room.

    planned ── PodTemplate, ProvisioningRequest ──► Provisioned ── a new node is usable ──► arrived

The autoscaler's atomic class grants a request as a whole or not at all, so each is small.
`Provisioned` only says that machines were ordered; a node has come when a usable one outside of the
avoided domains was created after the request. With the class that only checks what is free,
`Provisioned` is enough: the room is on nodes that stand. Both objects go as soon as the node has
come, because the autoscaler keeps the room free for ten minutes for pods that name the request, and
executors do not.
"""

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rekindle_operator.api.node_providers import ProvisioningRequest
from rekindle_operator.cluster.json_access import Body, ObjectKind, condition, is_true, text
from rekindle_operator.provisioning.node_demand import pod_template
from rekindle_operator.provisioning.providers.provider_base import (
    ProviderInput,
    Seen,
    Tally,
    metadata,
)
from rekindle_operator.provisioning.provisioning_actions import Action, Create, delete
from rekindle_operator.provisioning.request_ledger import Slot

POD_TEMPLATE = ObjectKind("v1", "PodTemplate", "podtemplates")
PROVISIONING_REQUEST = ObjectKind(
    "autoscaling.x-k8s.io/v1", "ProvisioningRequest", "provisioningrequests"
)
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
FAILURES = ("Failed", "CapacityRevoked", "BookingExpired")


@dataclass(frozen=True, slots=True)
class ProvisioningRequests:
    """`settings` is None when the class has the entry no more: what is there is still cleared."""

    settings: ProvisioningRequest | None
    gives_back: bool = False

    def assign(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot | str:
        """Any slot, once an executor's size is known."""
        del tally
        if self.settings is None:
            return "is not in the class any more"
        if scene.demand.executor is None:
            return "waits until an executor of the application has been seen, for its size"
        return slot

    def look(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Seen:
        """By the conditions of the request, and by the nodes that have come since."""
        template, request = self._objects(slot, scene)
        if request is None:
            return Seen(there=False)
        if is_true(request, "Provisioned"):
            nodes = _nodes(request, slot, scene, tally)
            if nodes is not None:
                return Seen(there=True, arrived=nodes)
        for type_ in FAILURES:
            if is_true(request, type_):
                return Seen(there=True, failure=_said(request, type_))
        if template is None:
            return Seen(there=True, failure="its PodTemplate is gone")
        return Seen(there=True, message=_progress(request))

    def is_harmless(self, slot: Slot, scene: ProviderInput) -> bool:
        """Always: a request holds no node."""
        del slot, scene
        return True

    def wind_up(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot:
        """Nothing has to be planned."""
        del scene, tally
        return slot

    def is_left(self, slot: Slot, scene: ProviderInput) -> bool:
        """Whether one of its objects is still there."""
        return any(body is not None for body in self._objects(slot, scene))

    def act(self, slot: Slot, scene: ProviderInput) -> Iterable[Action]:
        """Make both objects while the slot is planned, delete both once it has ended."""
        template, request = self._objects(slot, scene)
        if slot.stage == "planned":
            yield from self._make(slot, scene, template, request)
        elif slot.stage != "made":
            for kind, body in ((PROVISIONING_REQUEST, request), (POD_TEMPLATE, template)):
                if body is not None:
                    yield delete(scene.scope, kind, body, f"The request is {slot.stage}.")

    def manifests(self, slot: Slot, scene: ProviderInput) -> tuple[dict[str, Any], dict[str, Any]]:
        """The PodTemplate and the ProvisioningRequest of a slot."""
        assert self.settings is not None, "assign has seen to that"
        assert scene.demand.executor is not None, "assign has seen to that"
        about = metadata(slot, scene, scene.demand.incident.namespace)
        template = {
            "apiVersion": POD_TEMPLATE.api_version,
            "kind": POD_TEMPLATE.name,
            "metadata": about,
            "template": pod_template(scene.demand.executor, scene.avoided),
        }
        pods = self.settings.executors_per_node * slot.nodes
        spec: dict[str, Any] = {
            "provisioningClassName": self.settings.class_name,
            "podSets": [{"podTemplateRef": {"name": about["name"]}, "count": pods}],
        }
        if self.settings.parameters:
            spec["parameters"] = dict(self.settings.parameters)
        request = {
            "apiVersion": PROVISIONING_REQUEST.api_version,
            "kind": PROVISIONING_REQUEST.name,
            "metadata": about,
            "spec": spec,
        }
        return template, request

    def _make(
        self, slot: Slot, scene: ProviderInput, template: Body | None, request: Body | None
    ) -> Iterator[Action]:
        """The template first: a request without one is refused by the autoscaler."""
        if self.settings is None or scene.demand.executor is None:
            return
        wanted = self.manifests(slot, scene)
        reason, text_ = scene.reason(slot), f"Room for {slot.nodes} node(s) is requested."
        kinds = ((POD_TEMPLATE, template), (PROVISIONING_REQUEST, request))
        for (kind, there), manifest in zip(kinds, wanted, strict=True):
            if there is None:
                yield Create(scene.scope, kind, manifest, reason, text_)

    def _objects(self, slot: Slot, scene: ProviderInput) -> tuple[Body | None, Body | None]:
        namespace, name = scene.demand.incident.namespace, scene.name(slot)
        find = scene.standing.find
        return find(POD_TEMPLATE, namespace, name), find(PROVISIONING_REQUEST, namespace, name)


def _nodes(request: Body, slot: Slot, scene: ProviderInput, tally: Tally) -> tuple[str, ...] | None:
    """The nodes that a request has brought; None while some are still to come."""
    if text(request, "spec", "provisioningClassName") == CHECK_CAPACITY:
        return ()
    # both moments are the API server's, so its clock alone counts
    since, avoided = text(request, "metadata", "creationTimestamp"), scene.avoided
    standing, found = scene.standing, []
    for _, name in standing.ages[bisect.bisect_left(standing.ages, (since, "")) :]:
        node = standing.nodes[name]
        if name not in tally.taken and node.is_usable() and not node.is_in(avoided):
            found.append(name)
            if len(found) == slot.nodes:
                return tuple(found)
    return None


def _progress(request: Body) -> str:
    if is_true(request, "Provisioned"):
        return "Machines are ordered."
    return _said(request, "Accepted") if condition(request, "Accepted") else "Not accepted yet."


def _said(request: Body, type_: str) -> str:
    found = condition(request, type_)
    assert found is not None, "asked for only when it is there"
    return f"{type_}: {found.message or found.reason}"
