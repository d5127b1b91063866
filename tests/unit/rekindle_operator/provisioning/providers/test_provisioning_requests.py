"""ProvisioningRequests, and the executors' size that they ask for."""

import copy
from typing import Any

import pytest
from provider_world import AUTOSCALER, FLIGHTS, POD, START, ZONE, World, lost

from rekindle.model.errors import InputError
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.provisioning import Create, executor_of
from rekindle_operator.provisioning.node_demand import pod_template, requests_of

CHECK: dict[str, Any] = {
    **AUTOSCALER,
    "provisioningRequest": {"className": "check-capacity.autoscaling.x-k8s.io"},
}


def asked(count: int = 1, record: dict[str, Any] = AUTOSCALER) -> World:
    world = World(record)
    world.want(requests={f"1-nodes-{count}": lost(count)})
    world.settle()
    return world


def row(world: World) -> Any:
    return (world.settle().requests[FLIGHTS] or ())[0]


def test_a_request_is_small_and_has_its_template_made_first() -> None:
    settings = {
        **AUTOSCALER["provisioningRequest"],
        "parameters": {"ValidUntilSeconds": "600"},
        "executorsPerNode": 3,
    }
    world = World({**AUTOSCALER, "provisioningRequest": settings})
    world.want(requests={"1-nodes-1": lost(1)})
    _, template, request = world.decide().actions
    assert isinstance(template, Create)
    assert isinstance(request, Create)
    assert template.reason == "correlated-failure"
    name = template.manifest["metadata"]["name"]
    assert template.manifest["kind"] == "PodTemplate"
    assert request.manifest["apiVersion"] == "autoscaling.x-k8s.io/v1"
    assert request.manifest["spec"] == {
        "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "parameters": {"ValidUntilSeconds": "600"},
        "podSets": [{"podTemplateRef": {"name": name}, "count": 3}],
    }
    for manifest in (template.manifest, request.manifest):
        metadata = manifest["metadata"]
        assert metadata["namespace"] == FLIGHTS.namespace
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "rekindle.dev/v1alpha1",
                "kind": "Recovery",
                "name": FLIGHTS.recovery,
                "uid": FLIGHTS.uid,
            }
        ]


def test_machines_that_are_ordered_are_not_yet_a_node() -> None:
    world = asked()
    (request,) = world.all("ProvisioningRequest")
    assert row(world).message == "Not accepted yet."
    world.say(request, "Accepted", message="queued")
    assert row(world).message == "Accepted: queued"
    world.say(request, "Provisioned")
    assert (row(world).outcome, row(world).message) == ("Pending", "Machines are ordered.")
    world.now += 60
    world.join("n1")
    assert (row(world).outcome, row(world).message) == ("Arrived", "Nodes: n1.")
    assert world.all("ProvisioningRequest") == []
    assert world.all("PodTemplate") == []


@pytest.mark.parametrize(
    ("age", "zone", "fields", "outcome"),
    [
        (60, "b", {}, "Arrived"),
        (-60, "b", {}, "Pending"),
        (60, "a", {}, "Pending"),
        (60, "b", {"ready": False}, "Pending"),
        (60, "b", {"taints": ("node.cloudprovider.kubernetes.io/uninitialized",)}, "Pending"),
        (60, "b", {"taints": ("spark",)}, "Arrived"),
    ],
)
def test_only_a_new_usable_node_outside_of_the_impaired_domains_counts(
    age: int, zone: str, fields: dict[str, Any], outcome: str
) -> None:
    world = asked()
    world.say(world.all("ProvisioningRequest")[0], "Provisioned")
    world.now += age
    world.join("n1", zone, **fields)
    world.now = START + 120
    assert row(world).outcome == outcome


def test_each_new_node_counts_for_one_request() -> None:
    world = asked(3)
    for request in world.all("ProvisioningRequest"):
        world.say(request, "Provisioned")
    world.now += 60
    world.join("n1")
    world.join("n2")
    rows = world.settle().requests[FLIGHTS] or ()
    assert [found.outcome for found in rows] == ["Arrived", "Arrived", "Pending"]
    assert [found.message for found in rows[:2]] == ["Nodes: n1.", "Nodes: n2."]


def test_a_class_that_only_checks_what_is_free_needs_no_new_node() -> None:
    world = asked(record=CHECK)
    world.say(world.all("ProvisioningRequest")[0], "Provisioned")
    assert row(world).outcome == "Arrived"


@pytest.mark.parametrize("type_", ["Failed", "CapacityRevoked", "BookingExpired"])
def test_a_request_that_the_autoscaler_gives_up_is_cleared_and_made_again_later(type_: str) -> None:
    world = asked()
    world.say(world.all("ProvisioningRequest")[0], type_, message="no capacity")
    assert (row(world).outcome, row(world).message) == ("Failed", f"{type_}: no capacity")
    assert world.all("ProvisioningRequest") == []
    assert world.all("PodTemplate") == []
    world.now += 31
    world.settle()
    assert len(world.all("ProvisioningRequest")) == 1


def test_a_request_without_its_template_has_failed() -> None:
    world = asked()
    world.remove(world.all("PodTemplate")[0])
    assert row(world).outcome == "Failed"
    assert world.all("ProvisioningRequest") == []


def test_a_request_of_several_nodes_has_come_when_all_have() -> None:
    world = asked(3, {**AUTOSCALER, "limits": {"nodesPerRequestMax": 3}})
    (request,) = world.all("ProvisioningRequest")
    assert request["spec"]["podSets"][0]["count"] == 3
    world.say(request, "Provisioned")
    world.now += 60
    world.join("n1")
    world.join("n2")
    assert row(world).outcome == "Pending"
    world.join("n3")
    assert row(world).message == "Nodes: n1, n2, n3."


def test_when_the_incident_is_over_nothing_is_left() -> None:
    world = asked(3)
    world.say(world.all("ProvisioningRequest")[0], "Provisioned")
    world.join("n1")
    world.settle()
    world.want(over=True)
    world.settle()
    assert world.objects == {}


def test_an_executor_is_known_by_its_size_and_by_where_it_may_run() -> None:
    executor = executor_of(POD)
    assert requests_of(executor, 2) == {"cpu": "3000m", "memory": str(2 * 4 * 2**30)}
    assert executor.labels == {"spark-role": "executor"}
    template = pod_template(executor, (Domain(ZONE, "a"),))
    assert template["spec"] == {
        "nodeSelector": {"pool": "spark"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": away()},
        "containers": [
            {
                "name": "executor",
                "image": "spark:4.3",
                "resources": {"requests": {"cpu": "1500m", "memory": str(4 * 2**30)}},
            }
        ],
    }


def away(*expressions: dict[str, Any]) -> dict[str, Any]:
    """A node affinity that stays out of zone a, with more expressions in front."""
    avoids = {"key": ZONE, "operator": "NotIn", "values": ["a"]}
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [*expressions, avoids]}]
        }
    }


def test_a_template_without_request_or_note_is_made_use_of_and_goes_with_the_incident() -> None:
    world = World(AUTOSCALER)
    world.want(requests={"1-nodes-1": lost(1)})
    world.round(kill_after=2)
    world.remove(world.all("ConfigMap")[0])
    assert {place[0] for place in world.objects} == {"PodTemplate"}
    over = copy.deepcopy(world)
    world.settle()
    assert [world.counted(kind) for kind in ("PodTemplate", "ProvisioningRequest")] == [1, 1]
    over.want(over=True)
    over.settle()
    assert over.objects == {}


def test_every_alternative_of_an_affinity_is_kept_out_of_the_impaired_domains() -> None:
    arm = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    names = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    affinity = {
        "podAntiAffinity": {"kept": True},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": ["kept"],
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [arm]}, names]
            },
        },
    }
    pod = {**POD, "spec": {**POD["spec"], "affinity": affinity}}
    found = pod_template(executor_of(pod), (Domain(ZONE, "a"),))["spec"]["affinity"]
    assert found["podAntiAffinity"] == {"kept": True}
    node = found["nodeAffinity"]
    assert node["preferredDuringSchedulingIgnoredDuringExecution"] == ["kept"]
    first, second = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert (
        first == away(arm)["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    )
    assert second["matchFields"] == names["matchFields"]
    assert second["matchExpressions"][0]["operator"] == "NotIn"
    assert pod_template(executor_of(pod), ())["spec"]["affinity"] == affinity


def test_a_sidecar_and_other_resources_of_an_executor_are_asked_for_too() -> None:
    def container(name: str, **requests: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": requests}}

    pod = {
        "spec": {
            "initContainers": [{**container("sidecar", cpu="100m"), "restartPolicy": "Always"}],
            "containers": [container("executor", cpu="2", **{"nvidia.com/gpu": "1"})],
            "overhead": {"memory": "64Mi"},
        }
    }
    assert requests_of(executor_of(pod)) == {
        "cpu": "2100m",
        "memory": str(64 * 2**20),
        "nvidia.com/gpu": "1",
    }


def test_a_pod_with_a_quantity_that_is_none_is_refused() -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}
    with pytest.raises(InputError, match="much"):
        executor_of(pod)
