"""What tests of the webhook share: pods before they are made, and patches carried out."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import spark_objects as objects
from operator_world import policy
from spark_objects import Body

from rekindle_operator.api.recovery_class import RecoveryClass, SecretReference, StoreSpec
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster.spark_applications import application_seen
from rekindle_operator.webhook import injector, pod_patch
from rekindle_operator.webhook.injection_spec import (
    INJECT_LABEL,
    InjectionRefusal,
    SidecarTerms,
    Terms,
)
from rekindle_operator.webhook.injector import Defaults, Impairment, PolicyView, gathered
from rekindle_testing.operator_builders import make_class

STORE = StoreSpec(addresses=("zk-0.zk:2181", "zk-1.zk:2181"))
SECURED = StoreSpec(
    addresses=STORE.addresses, secret_ref=SecretReference(name="zk", key="password")
)
DEFAULTS = Defaults(image="rekindle/sidecar:1", store=STORE)
ASKS = {INJECT_LABEL: "true"}


@dataclass(slots=True)
class Informed:
    """An outlook that goes by what is known; another value may be set from any thread."""

    knowledge: PolicyView

    def terms_of(self, pod: Mapping[str, Any], namespace: str) -> Terms | InjectionRefusal | None:
        """What holds for a pod by what is known now."""
        return injector.terms_of(pod, namespace, self.knowledge)

    def waits(self, pod: Mapping[str, Any], namespace: str) -> bool:
        """Whether a new pod waits for its turn, by what is known now."""
        return injector.waits(pod, namespace, self.knowledge)

    @property
    def gates(self) -> bool:
        """Whether there are pods that wait for their turn."""
        return bool(self.knowledge.waiting)


def knowledge(
    *policies: RecoveryPolicy,
    class_: RecoveryClass | None = None,
    resources: tuple[Body, ...] = (),
    impairments: tuple[Impairment, ...] = (),
    defaults: Defaults = DEFAULTS,
) -> PolicyView:
    """What the shell knows; by default of one policy, for all applications, and an empty class."""
    return gathered(
        policies or (policy(),),
        (class_ or make_class(),),
        map(application_seen, resources),
        impairments,
        defaults,
    )


def new(pod: Body, labels: dict[str, str] | None = None) -> Body:
    """A pod as an AdmissionReview has it, before it is made; without `labels`, asking for a
    sidecar."""
    made = copy.deepcopy(pod)
    for name in ("uid", "creationTimestamp", "namespace"):
        del made["metadata"][name]
    made["metadata"]["labels"] |= ASKS if labels is None else labels
    made["spec"].pop("nodeName", None)
    del made["status"]
    return made


def driver(**spec: Any) -> Body:
    """A driver of plain spark-submit that asks for a sidecar, its spec as is given."""
    pod = new(objects.submitted_driver())
    pod["spec"] |= spec
    return pod


def terms(**more: Any) -> SidecarTerms:
    """What a driver gets."""
    found = injector.terms_of(driver(), "flights", knowledge(**more))
    assert isinstance(found, SidecarTerms), found
    return found


def patched(pod: Body, what: Terms) -> Body:
    """The pod after its patch."""
    operations = pod_patch.patch(pod, what)
    assert isinstance(operations, tuple), operations
    return applied(pod, operations)


def applied(pod: Body, operations: Any) -> Body:
    """What an API server makes of `add` operations, in JSON and back."""
    made: Any = json.loads(json.dumps(pod))
    for operation in json.loads(json.dumps(operations)):
        assert operation["op"] == "add"
        *parents, last = operation["path"].removeprefix("/").split("/")
        target = made
        for name in parents:
            target = target[int(name) if isinstance(target, list) else name]
        assert isinstance(target, dict)
        target[last] = operation["value"]
    found: Body = made
    return found


def review(pod: Any, **more: Any) -> bytes:
    """Return what the API server asks of the webhook about a pod that is made."""
    request = {
        "uid": "705ab4f5",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "flights",
        "operation": "CREATE",
        "userInfo": {"username": "spark"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        **more,
    }
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(whole).encode()
