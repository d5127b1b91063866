"""Requests to the API server about our resources, and objects to send.

Tests of this folder call it; what they ask and expect is theirs.
"""

import json
import re
from pathlib import Path
from typing import Any

import urllib3
import yaml

from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import ApplicationReference, RecoverySpec
from rekindle_testing.operator_builders import policy_object
from testbed.control_plane import ControlPlane

__all__ = [
    "DEFINITIONS",
    "Api",
    "Object",
    "assert_refused",
    "class_of",
    "condition",
    "examples",
    "place",
    "policy",
    "recovery",
]

ROOT = Path(__file__).parents[3]
DEFINITIONS = [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.yaml"))]
PLURALS = {
    "RecoveryPolicy": "recoverypolicies",
    "RecoveryClass": "recoveryclasses",
    "Recovery": "recoveries",
}
PRINTED = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

Object = dict[str, Any]


class Api:
    """Requests to the API server in its own words; answers are (status, JSON)."""

    def __init__(self, plane: ControlPlane) -> None:
        self._server = plane.server
        self._pool = urllib3.PoolManager(ssl_context=plane.ssl_context())

    def send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> tuple[int, Object]:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        answer = self._pool.request(
            method,
            f"{self._server}{path}?{asked}",
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": accept},
            timeout=30.0,
        )
        return answer.status, answer.json()

    def create(self, record: Object) -> tuple[int, Object]:
        return self.send("POST", place(record, named=False), record, fieldValidation="Strict")

    def put(self, record: Object, part: str = "") -> tuple[int, Object]:
        return self.send("PUT", place(record) + part, record, fieldValidation="Strict")

    def patch(self, record: Object, change: Object) -> tuple[int, Object]:
        return self.send("PATCH", place(record), change, content_type=MERGE)

    def get(self, record: Object) -> Object:
        status, found = self.send("GET", place(record))
        assert status == 200, found
        return found

    def apply(self, record: Object, manager: str, force: bool = False) -> tuple[int, Object]:
        return self.send(
            "PATCH",
            place(record),
            record,
            content_type=APPLY,
            fieldManager=manager,
            force=str(force).lower(),
            fieldValidation="Strict",
        )

    def delete(self, record: Object) -> None:
        self.send("DELETE", place(record))


def place(record: Object, *, named: bool = True) -> str:
    """The path of an object, or of what it is created in."""
    metadata = record["metadata"]
    ending = f"/{metadata['name']}" if named else ""
    if record["kind"] == "CustomResourceDefinition":
        return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions{ending}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/apis/rekindle.dev/v1alpha1{inside}/{PLURALS[record['kind']]}{ending}"


def condition(record: Object, kind: str) -> bool:
    found = {
        item["type"]: item["status"] for item in record.get("status", {}).get("conditions") or []
    }
    return found.get(kind) == "True"


def policy(namespace: str, name: str = "departures", **spec: Any) -> Object:
    record = policy_object(name, namespace=namespace, **spec)
    record["metadata"] = {"name": name, "namespace": namespace}
    return record


def class_of(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "rekindle.dev/v1alpha1",
        "kind": "RecoveryClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def recovery(namespace: str, incident: int = 7, **fields: Any) -> Object:
    application = ApplicationReference("SparkApplication", "departures", "spark.apache.org", "u-1")
    spec = RecoverySpec(application, incident, "all", "default")
    record = recovery_resource.to_object(namespace, spec)
    record["spec"] |= fields
    return record


def examples() -> list[Object]:
    text = (ROOT / "docs" / "resources.md").read_text()
    return [yaml.safe_load(found) for found in PRINTED.findall(text)]


def assert_refused(status: int, answer: Object, message: str) -> None:
    assert status in (400, 422), answer
    assert message in answer["message"]
