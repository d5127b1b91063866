"""A webhook on loopback that a real API server asks, for tests, and who looks after it."""

import copy
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from injection_world import Informed
from kubernetes import client
from prometheus_client import CollectorRegistry

from rekindle_local import process_sets
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.recovery_class import StoreSpec
from rekindle_operator.webhook import certificate_rotation, certificate_store, webhook_configuration
from rekindle_operator.webhook.certificate_rotation import Issued, Pair
from rekindle_operator.webhook.injection_spec import INJECT_LABEL
from rekindle_operator.webhook.injector import Defaults, PolicyView, gathered
from rekindle_operator.webhook.webhook_server import WebhookServer, make_counter
from rekindle_testing.operator_builders import make_class

Body = dict[str, Any]
Api = Any

HOST = "127.0.0.1"
NAME = "rekindle-webhook"
ASKS = {INJECT_LABEL: "true"}
CREATED_AT = "2026-11-21T17:00:00Z"
RESTRICTED: Body = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
WAIT_SECONDS_MAX = 180.0
BAD_REQUEST, NOT_FOUND = 400, 404


def known(namespace: str) -> PolicyView:
    """One policy, for all drivers and SparkApplications of the namespace, and an empty class."""
    all_of_them: Body = {"labelSelector": {}}
    metadata = {"name": "all", "namespace": namespace, "creationTimestamp": CREATED_AT}
    selector = {"drivers": all_of_them, "sparkApplications": all_of_them}
    policy = recovery_policy.from_object({"metadata": metadata, "spec": {"selector": selector}})
    defaults = Defaults(image="rekindle/sidecar:1", store=StoreSpec(addresses=("zk:2181",)))
    return gathered((policy,), (make_class(),), (), (), defaults)


def nobody_reads(word: str, **fields: object) -> None:
    """A log."""


class Webhook:
    """A server, what it knows, and what it has counted."""

    def __init__(self, namespace: str, certificates: Callable[[], Pair | None]) -> None:
        self.outlook = Informed(known(namespace))
        self.registry = CollectorRegistry()
        self.server = WebhookServer(
            self.outlook,
            certificates,
            make_counter(self.registry),
            nobody_reads,
            host=HOST,
            port=0,
            poll_seconds=0.05,
        )

    def asked(self) -> float:
        """How often it has been asked."""
        found = (
            sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "rekindle_operator_admissions_total"
        )
        return sum(found)


def issued(*hosts: str) -> Issued:
    """A certificate that is valid now."""
    return certificate_rotation.issue(hosts or (HOST,), datetime.now(UTC))


@contextmanager
def registered(
    api_client: client.ApiClient, namespace: str, where: Mapping[str, Any], bundle: bytes = b""
) -> Iterator[str]:
    """A MutatingWebhookConfiguration as the chart installs it, for one namespace; its name."""
    admission: Api = client.AdmissionregistrationV1Api(api_client)
    manifest = webhook_configuration.manifest(namespace, where, bundle=bundle)
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    for webhook in manifest["webhooks"]:
        webhook["namespaceSelector"] = {
            "matchExpressions": [*webhook["namespaceSelector"]["matchExpressions"], only]
        }
    admission.create_mutating_webhook_configuration(manifest)
    try:
        yield namespace
    finally:
        admission.delete_mutating_webhook_configuration(namespace)


@contextmanager
def serving(api_client: client.ApiClient, namespace: str) -> Iterator[Webhook]:
    """A webhook that the API server asks about the pods of a namespace, and that it trusts."""
    own = issued()
    webhook = Webhook(namespace, lambda: own.pair)
    webhook.server.start()
    try:
        url = {"url": f"https://{HOST}:{webhook.server.port}{webhook_configuration.PATH}"}
        with registered(api_client, namespace, url, own.authority):
            await_injection(api_client, namespace)
            yield webhook
    finally:
        webhook.server.close()


@contextmanager
def silent() -> Iterator[int]:
    """Somebody who listens and never answers; the port."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def await_injection(api_client: client.ApiClient, namespace: str) -> None:
    """Wait until the API server asks: it takes a moment to hear of a configuration."""
    core: Api = client.CoreV1Api(api_client)
    there = process_sets.await_condition(
        lambda: is_injected(try_pod(core, namespace, driver("probe"))),
        limit_seconds=WAIT_SECONDS_MAX,
    )
    assert there


def driver(name: str, *labels: Mapping[str, str], asks: bool = True, **spec: Any) -> Body:
    """A driver's pod as spark-submit makes it, within the standard `restricted`."""
    container = {
        "name": "spark-kubernetes-driver",
        "image": "spark:4.3.0",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": RESTRICTED,
    }
    own = {"spark-role": "driver", "spark-app-name": name, "spark-app-selector": "spark-1"}
    return pod(f"{name}-driver", {**own, **(ASKS if asks else {})}, *labels, container, spec)


def executor(name: str, number: int, *labels: Mapping[str, str], **spec: Any) -> Body:
    """One of its executors."""
    container = {
        "name": "spark-kubernetes-executor",
        "image": "spark:4.3.0",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": RESTRICTED,
    }
    own = {"spark-role": "executor", "spark-exec-id": str(number), "spark-app-selector": "spark-1"}
    own["rekindle.dev/executor"] = "true"
    return pod(f"{name}-exec-{number}", own, *labels, container, spec)


def pod(name: str, *parts: Any) -> Body:
    """A pod of labels, a container and more of its spec, in this order."""
    *labels, container, spec = parts
    merged = {key: value for part in labels for key, value in part.items()}
    return {
        "metadata": {"name": name, "labels": merged},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def make_pod(core: Api, namespace: str, body: Body) -> Body:
    """The pod as it is stored."""
    made = core.create_namespaced_pod(namespace, copy.deepcopy(body))
    found: Body = core.api_client.sanitize_for_serialization(made)
    return found


def try_pod(core: Api, namespace: str, body: Body) -> Body:
    """The pod as it would be stored; it is not."""
    made = core.create_namespaced_pod(namespace, copy.deepcopy(body), dry_run="All")
    found: Body = core.api_client.sanitize_for_serialization(made)
    return found


def is_injected(found: Body) -> bool:
    """Whether the sidecar stands before all else."""
    names = [item["name"] for item in found["spec"].get("initContainers", ())]
    return names[:1] == ["rekindle-sidecar"]


def environment(found: Body) -> dict[str, Any]:
    """Of a pod's first container."""
    variables = found["spec"]["containers"][0].get("env", ())
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in variables}


class Hands:
    """The API server by paths, as the operator's shell has it."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._client = api_client
        self.writes: list[str] = []

    def get(self, path: str) -> Body | None:
        try:
            return self._ask("GET", path)
        except client.ApiException as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def create(self, path: str, body: Mapping[str, Any]) -> object:
        return self._ask("POST", path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> object:
        return self._ask("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> object:
        return self._ask("PATCH", path, body, kind)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> Body:
        headers = {"Accept": "application/json", "Content-Type": kind}
        request = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        answer: Any = self._client.call_api(*request)
        answer.read()
        if answer.status >= BAD_REQUEST:
            raise client.ApiException(http_resp=answer)
        found: Body = msgspec.json.decode(answer.data)
        return found


SECRET_PATH = f"/api/v1/namespaces/{{}}/secrets/{certificate_store.SECRET}"
