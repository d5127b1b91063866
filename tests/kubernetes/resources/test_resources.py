"""The definitions of crds/ on a real API server: what it takes, fills in, stores and shows."""

import copy
import json
from typing import Any

import pytest
from resource_requests import (
    DEFINITIONS,
    Api,
    Object,
    assert_refused,
    class_of,
    condition,
    examples,
    place,
    policy,
    recovery,
)

from rekindle_operator.api import recovery_resource
from rekindle_testing.operator_builders import longest_story

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
# What etcd takes by default is 1.5 MiB.
OBJECT_BYTES_MAX = 1_400_000


@pytest.mark.parametrize("record", DEFINITIONS, ids=lambda record: record["metadata"]["name"])
def test_a_definition_is_established_without_remarks(api: Api, record: Object) -> None:
    found = api.get(record)
    assert condition(found, "NamesAccepted")
    assert not condition(found, "NonStructuralSchema")
    assert not condition(found, "KubernetesAPIApprovalPolicyConformant")
    _, listed = api.send("GET", "/apis/rekindle.dev/v1alpha1")
    names = record["spec"]["names"]
    (resource,) = [item for item in listed["resources"] if item["name"] == names["plural"]]
    assert (resource["shortNames"], resource["categories"]) == (names["shortNames"], ["rekindle"])


def test_no_other_resource_has_our_names(api: Api) -> None:
    """Names of what every API server has; those of others are in the unit tests."""
    _, groups = api.send("GET", "/apis")
    taken: list[str] = []
    for path in (
        "/api/v1",
        *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups["groups"]),
    ):
        for resource in api.send("GET", path)[1]["resources"]:
            taken += [*resource.get("shortNames", []), resource["name"], resource["singularName"]]
    for record in DEFINITIONS:
        names = record["spec"]["names"]
        for name in (*names["shortNames"], names["plural"], names["singular"]):
            assert taken.count(name) == 1


@pytest.mark.parametrize("example", examples(), ids=lambda example: example["metadata"]["name"])
def test_every_example_of_the_documentation_is_taken_as_it_stands(
    api: Api, namespace: str, made: list[Object], example: Object
) -> None:
    record = copy.deepcopy(example)
    if "namespace" in record["metadata"]:
        record["metadata"]["namespace"] = namespace
    made.append(record)
    status, answer = api.apply(record, "tests")
    assert status == 201, answer["message"]
    if "status" in record:
        answer["status"] = record["status"]
        status, answer = api.put(answer, "/status")
        assert status == 200, answer["message"]
        assert answer["status"] == record["status"]
    assert includes(answer.get("spec", {}), record.get("spec", {}))


def includes(whole: Any, part: Any) -> bool:
    """Whether all that was given is there; defaults may be there as well."""
    if isinstance(part, dict):
        return all(name in whole and includes(whole[name], item) for name, item in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(includes, whole, part))
    return bool(whole == part)


def test_a_policy_is_filled_in_with_defaults(api: Api, namespace: str) -> None:
    _, answer = api.create(policy(namespace))
    assert answer["spec"] == {
        "selector": {
            "sparkApplications": {
                "groups": ["sparkoperator.k8s.io", "spark.apache.org"],
                "labelSelector": {},
            }
        },
        "recovers": "Queries",
        "className": "default",
        "strategy": "incremental",
        "buffering": "always",
        "ordering": "always",
        "correlated": {"nodesMin": 2, "windowSeconds": 120},
        "failureDomainKeys": ["topology.kubernetes.io/zone"],
        "nodeCpuCapPercent": 80,
        "placement": "even",
        "stabilisationSeconds": 10,
        "planning": {
            "solver": "auto",
            "solverBudgetSeconds": 1,
            "catchUpSeconds": 15,
            "catchUpCostPercent": 100,
            "unevenSeconds": 15,
            "defaultCpuMillicores": 20,
        },
        "guards": {"fencing": "Class"},
        "paused": False,
        "dryRun": False,
        "approval": "Automatic",
    }


def test_a_class_is_filled_in_with_what_harms_nothing(api: Api, made: list[Object]) -> None:
    record = class_of("filled-in")
    del record["spec"]
    made.append(record)
    _, answer = api.create(record)
    assert answer["spec"] == {
        "paused": False,
        "dryRun": False,
        "approval": "Automatic",
        "displacement": "Never",
        "allowedNamespaces": ["*"],
        "provisioning": [{"name": "pending-pods", "provider": "PendingPods"}],
        "fencing": {"mode": "None"},
        "executors": {"deletePodsOfLostNodes": True, "avoidImpairedDomains": True},
        "taints": {"suspectedNodes": "None", "impairedDomains": "None"},
        "nodeDeletion": {"enabled": False, "afterSeconds": 60, "nodesPerIncidentMax": 100},
        "limits": {
            "nodesPerIncidentMax": 100,
            "nodesAtOnceMax": 50,
            "concurrentRecoveriesMax": 1000,
            "nodeCpuCapPercentMax": 100,
            "solverBudgetSecondsMax": 5,
            "recoveriesKeptMax": 20,
        },
        "detection": {
            "leaseIntervals": 2,
            "leaseSeconds": 10,
            "driverSilenceSeconds": 15,
            "noticeSeconds": {
                "shutdown": 30,
                "aws": 120,
                "gke": 30,
                "aks": 30,
                "karpenter": 120,
                "clusterAutoscaler": 600,
                "drain": 30,
            },
        },
    }


def test_status_and_spec_are_written_apart(api: Api, namespace: str) -> None:
    record = recovery(namespace)
    record["status"] = {"phase": "Recovered"}
    _, created = api.create(record)
    assert "status" not in created
    created["status"] = {"phase": "Suspected", "back": "0/3"}
    created["spec"]["approved"] = True
    _, written = api.put(created, "/status")
    assert written["status"] == {"phase": "Suspected", "back": "0/3"}
    assert written["spec"]["approved"] is False
    assert written["metadata"]["generation"] == 1
    written["status"]["phase"] = "Gone"
    assert_refused(*api.put(written, "/status"), 'Unsupported value: "Gone"')


def test_the_longest_story_can_be_stored_and_read_back(api: Api, namespace: str) -> None:
    record = recovery(namespace)
    _, created = api.create(record)
    created["status"] = recovery_resource.to_status(longest_story())
    status, answer = api.put(created, "/status")
    assert status == 200, answer["message"]
    stored = api.get(record)
    assert len(json.dumps(stored)) < OBJECT_BYTES_MAX
    assert (
        recovery_resource.to_status(recovery_resource.from_object(stored).status)
        == created["status"]
    )


def columns(api: Api, record: Object) -> dict[str, tuple[Any, int]]:
    """Of the table that `kubectl get` prints: by column the cell, and the priority (1: wide)."""
    _, table = api.send("GET", place(record), accept=TABLE)
    definitions = table["columnDefinitions"]
    (row,) = table["rows"]
    return {
        column["name"]: (cell, column["priority"])
        for column, cell in zip(definitions, row["cells"], strict=True)
    }


def test_a_recovery_tells_its_story_in_a_line(api: Api, namespace: str) -> None:
    (example,) = [item for item in examples() if item["kind"] == "Recovery"]
    example["metadata"]["namespace"] = namespace
    _, created = api.create(example)
    api.put({**created, "status": example["status"]}, "/status")
    cells = columns(api, example)
    assert cells.pop("Age")[1] == cells.pop("Ended")[1] - 1 == 0
    assert {name: cell for name, (cell, priority) in cells.items() if priority == 0} == {
        "Name": "departures-7-1f3a9",
        "Application": "departures",
        "Phase": "Recovering",
        "Kind": "Complete",
        "Lost nodes": 3,
        "Back": "6/15",
        "Plans": 4,
    }
    assert {name: cell for name, (cell, priority) in cells.items() if priority == 1} == {
        "Reason": "CompleteFailure",
        "Incident": 7,
        "Policy": "departures",
        "Domains": "zone-a",
        "Nodes requested": 3,
        "Dry run": False,
        "Message": "3 of 4 nodes were lost within 12 s; 9 of 15 queries wait for capacity.",
    }


def test_policies_and_classes_show_their_conditions_in_columns(
    api: Api, namespace: str, made: list[Object]
) -> None:
    found = {}
    for example in examples():
        if "status" in example and example["kind"] != "Recovery":
            if "namespace" in example["metadata"]:
                example["metadata"]["namespace"] = namespace
            made.append(example)
            _, created = api.create(example)
            api.put({**created, "status": example["status"]}, "/status")
            found[example["kind"]] = columns(api, example)
    shown = found["RecoveryPolicy"]
    assert [shown[name][0] for name in ("Class", "Strategy", "Applications", "Recovering")] == [
        "default",
        "incremental",
        2,
        1,
    ]
    assert shown["Accepted"] == ("True", 0)
    assert shown["Protected"] == (None, 0)
    assert shown["Message"][0].startswith("nodeCpuCapPercent asks for 80")
    shown = found["RecoveryClass"]
    assert shown["Providers"] == ("PendingPods,ProvisioningRequest,Karpenter,ClusterAPI", 0)
    assert [shown[name][0] for name in ("Fencing", "Policies", "Accepted", "Node deletion")] == [
        "OutOfServiceTaint",
        12,
        "True",
        True,
    ]
