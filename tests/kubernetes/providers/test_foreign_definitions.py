"""Definitions of others are found, kept, and served."""

from typing import Any

import loud_skips
import pytest
from kubernetes import client

from rekindle.model.errors import RekindleError
from testbed.foreign_crds import definition, find, install, schemaless


def test_the_definition_of_kubeflows_spark_application_is_served(
    api_client: client.ApiClient, namespace: str
) -> None:
    try:
        (file,) = find("spark-operator")
    except RekindleError as error:
        loud_skips.skip(error)
    install(api_client, [definition(file)])
    custom = client.CustomObjectsApi(api_client)
    place = ("sparkoperator.k8s.io", "v1beta2", namespace, "sparkapplications")
    body: dict[str, Any] = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "departures"},
        "spec": {"type": "Python", "sparkVersion": "4.3.0", "mode": "cluster"},
    }
    with pytest.raises(client.ApiException, match=r"spec\.driver: Required value"):
        custom.create_namespaced_custom_object(*place, body)
    spec = {**body["spec"], "mainApplicationFile": "local:///a.py", "driver": {}, "executor": {}}
    custom.create_namespaced_custom_object(*place, {**body, "spec": spec})


def test_a_definition_without_a_schema_stands_in_for_apaches_spark_application(
    api_client: client.ApiClient, namespace: str
) -> None:
    stand_in = schemaless("spark.apache.org", "v1", "SparkApplication", "sparkapplications")
    install(api_client, [stand_in])
    custom = client.CustomObjectsApi(api_client)
    place = ("spark.apache.org", "v1", namespace, "sparkapplications")
    body: dict[str, Any] = {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": {"name": "departures"},
        "spec": {"mainClass": "Departures", "runtimeVersions": {"sparkVersion": "4.3.0"}},
    }
    made = custom.create_namespaced_custom_object(*place, body)
    assert made["spec"] == body["spec"]


def test_a_definition_is_kept_and_needs_no_go_the_second_time(
    monkeypatch: pytest.MonkeyPatch, definitions: list[dict[str, Any]]
) -> None:
    assert len(definitions) == 5
    monkeypatch.setenv("PATH", "")
    for name in ("autoscaler", "karpenter", "cluster-api"):
        assert all(file.is_file() for file in find(name))
