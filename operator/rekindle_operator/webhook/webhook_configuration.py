"""The MutatingWebhookConfiguration: when the API server asks, and whom it trusts.

    drivers.rekindle.dev      pods with the label rekindle.dev/inject: "true"
    executors.rekindle.dev    pods with spark-role: executor and rekindle.dev/executor: "true"
    turns.rekindle.dev        pods with spark-role, which may have to wait for their turn

All fail open: a webhook that is away must never keep a pod from being made. The chart installs the
same as `manifest` gives; a test compares them. `certificate_store` sets the authorities
(`caBundle`).
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from rekindle_operator.cluster.json_access import items, mapping, text
from rekindle_operator.cluster.pods import ROLE_LABEL, SIDECAR
from rekindle_operator.webhook.injection_spec import EXECUTOR_LABEL, INJECT_LABEL, Body

DRIVERS, EXECUTORS = "drivers.rekindle.dev", "executors.rekindle.dev"
TURNS = "turns.rekindle.dev"
PATH = "/inject"
PORT = 443
# Of a webhook that hangs, each new pod waits for so long. Spark makes its executors one by one.
DRIVER_SECONDS_MAX, EXECUTOR_SECONDS_MAX = 5, 2
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")

Json = dict[str, Any]

_LABELLED = "has(object.metadata.labels)"
_HAS_NO_SIDECAR = (
    "!has(object.spec.initContainers) || "
    f"!object.spec.initContainers.exists(container, container.name == '{SIDECAR}')"
)
# kubeflow's operator gives the labels of a SparkApplication to executors too.
_NO_EXECUTOR = (
    f"!{_LABELLED} || !('{ROLE_LABEL}' in object.metadata.labels) || "
    f"object.metadata.labels['{ROLE_LABEL}'] != 'executor'"
)
_NOT_PLACED = "!has(object.spec.nodeName) || object.spec.nodeName == ''"


def service(name: str, namespace: str, port: int = PORT) -> Json:
    """A `clientConfig` that names a Service."""
    named = {"name": name, "namespace": namespace, "path": PATH, "port": port}
    return {"service": named}


def manifest(
    name: str,
    where: Mapping[str, Any],
    *,
    excluded_namespaces: Sequence[str] = (),
    bundle: bytes = b"",
    turns: bool = False,
) -> Json:
    """The configuration of this name. `where` is the `clientConfig` without its bundle;
    `excluded_namespaces` are never asked about, besides those of the system; with `turns`, pods of
    whole applications wait for theirs."""
    excluded = sorted({*SYSTEM_NAMESPACES, *excluded_namespaces})
    client = dict(where)
    if bundle:
        client["caBundle"] = base64.b64encode(bundle).decode()
    namespaces = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": excluded}
    shared: Json = {
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [namespaces]},
        "reinvocationPolicy": "IfNeeded",
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "sideEffects": "None",
    }
    drivers = {
        "name": DRIVERS,
        **shared,
        "matchConditions": [
            {"name": "no-executor", "expression": _NO_EXECUTOR},
            {"name": "no-sidecar-yet", "expression": _HAS_NO_SIDECAR},
        ],
        "objectSelector": {"matchLabels": {INJECT_LABEL: "true"}},
        "timeoutSeconds": DRIVER_SECONDS_MAX,
    }
    executors = {
        "name": EXECUTORS,
        **shared,
        "matchConditions": [{"name": "no-node-yet", "expression": _NOT_PLACED}],
        "objectSelector": {"matchLabels": {ROLE_LABEL: "executor", EXECUTOR_LABEL: "true"}},
        "timeoutSeconds": EXECUTOR_SECONDS_MAX,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [drivers, executors, *([_turns(shared)] if turns else [])],
    }


def _turns(shared: Json) -> Json:
    role = {"key": ROLE_LABEL, "operator": "In", "values": ["driver", "executor"]}
    return {
        "name": TURNS,
        **shared,
        "matchConditions": [{"name": "no-node-yet", "expression": _NOT_PLACED}],
        "objectSelector": {"matchExpressions": [role]},
        "timeoutSeconds": EXECUTOR_SECONDS_MAX,
    }


def bundle_of(configuration: Body) -> bytes:
    """The authorities in PEM that every webhook of a configuration trusts; none where they differ
    or one has none."""
    found = {text(item, "clientConfig", "caBundle") for item in items(configuration, "webhooks")}
    if len(found) != 1:
        return b""
    try:
        return base64.b64decode(found.pop(), validate=True)
    except ValueError:
        return b""


def bundle_patch(configuration: Body, bundle: bytes) -> Json | None:
    """The strategic merge patch by which all its webhooks trust these authorities; None when they
    do already. It is refused where the configuration has changed since."""
    if bundle_of(configuration) == bundle:
        return None
    written = base64.b64encode(bundle).decode()
    version = text(mapping(configuration, "metadata"), "resourceVersion")
    return {
        "metadata": {"resourceVersion": version},
        "webhooks": [
            {"name": text(item, "name"), "clientConfig": {"caBundle": written}}
            for item in items(configuration, "webhooks")
        ],
    }
