"""MachineDeployments of Cluster API: scaled up as noted, and back down without harm."""

from typing import Any

import pytest
from provider_world import FLIGHTS, KARPENTER, MACHINES, WEATHER, ZONE, World, lost

from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.provisioning import Mark, SetReplicas

DELETE_FIRST = "cluster.x-k8s.io/delete-machine"


def scaled_for(count: int) -> tuple[World, dict[str, Any]]:
    """A world in which a deployment of three was scaled for so many lost nodes, which have come."""
    world = World(MACHINES)
    deployment = world.deployment(replicas=3)
    world.now += 60
    world.want(requests={f"1-nodes-{count}": lost(count)})
    world.settle()
    world.now += 60
    world.reconcile(deployment)
    world.settle()
    return world, deployment


def run(world: World, deployment: dict[str, Any], rounds: int = 30) -> None:
    """Decide and act, with Cluster API doing its part in between."""
    for _ in range(rounds):
        world.round()
        world.reconcile(deployment)
    assert world.round().actions == ()


def nodes_of(world: World) -> list[str]:
    return [machine["status"]["nodeRef"]["name"] for machine in world.all("Machine")]


def rows(world: World, incident: Any = FLIGHTS) -> list[Any]:
    return [*(world.settle().requests[incident] or ())]


def test_lost_nodes_are_added_in_one_change_of_the_replicas_and_arrive_one_by_one() -> None:
    world = World(MACHINES)
    deployment = world.deployment(replicas=3)
    world.now += 60
    world.want(requests={"1-nodes-2": lost(2)})
    _, scale = world.decide().actions
    assert isinstance(scale, SetReplicas)
    assert (scale.replicas, scale.text) == (5, "capi/spark-b goes from 4 to 5 replicas.")
    assert [row.outcome for row in rows(world)] == ["Pending", "Pending"]
    world.now += 60
    deployment["spec"]["replicas"] = 4
    world.reconcile(deployment)
    deployment["spec"]["replicas"] = 5
    assert [row.outcome for row in rows(world)] == ["Arrived", "Pending"]
    world.reconcile(deployment)
    assert [row.outcome for row in rows(world)] == ["Arrived", "Arrived"]


def test_after_the_incident_machines_of_lost_nodes_go_and_no_other() -> None:
    world, deployment = scaled_for(2)
    before = nodes_of(world)
    world.lost.update(before[:2])
    world.want(over=True)
    run(world, deployment)
    assert nodes_of(world) == before[2:]
    assert deployment["spec"]["replicas"] == 3
    assert world.all("ConfigMap") == []
    assert not any(machine["metadata"].get("annotations") for machine in world.all("Machine"))


def test_machines_in_use_are_not_given_back_until_they_are_idle() -> None:
    world, deployment = scaled_for(2)
    world.want(over=True)
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 5
    idle = nodes_of(world)[3]
    world.idle[idle] = 600.0
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 4
    assert idle not in nodes_of(world)
    assert len(world.all("ConfigMap")) == 1


def test_a_machine_that_is_used_again_before_it_goes_stays() -> None:
    world, deployment = scaled_for(1)
    idle = nodes_of(world)[0]
    world.idle[idle] = 600.0
    world.want(over=True)
    decision = world.round()
    assert [type(action) for action in decision.actions[1:]] == [Mark]
    world.idle.clear()
    run(world, deployment)
    assert idle in nodes_of(world)
    assert deployment["spec"]["replicas"] == 4
    assert not any(machine["metadata"].get("annotations") for machine in world.all("Machine"))


def test_wherever_the_operator_is_killed_replicas_are_given_back_once() -> None:
    for kill_after in range(5):
        for rounds in range(1, 8):
            world, deployment = scaled_for(2)
            world.lost.update(nodes_of(world)[:2])
            world.want(over=True)
            for _ in range(rounds):
                world.round(kill_after)
                world.reconcile(deployment)
            run(world, deployment)
            assert deployment["spec"]["replicas"] == 3
            assert world.all("ConfigMap") == []


def test_a_request_that_is_withdrawn_takes_only_machines_that_have_no_node_yet() -> None:
    world = World(MACHINES)
    deployment = world.deployment(replicas=3)
    world.now += 60
    world.want(requests={"1-nodes-1": lost(1)})
    world.settle()
    before = nodes_of(world)
    world.put(
        {
            "kind": "Machine",
            "metadata": {
                "namespace": "capi",
                "name": "starting",
                "labels": {"cluster.x-k8s.io/deployment-name": "spark-b"},
            },
            "status": {},
        }
    )
    world.reconcile(deployment)
    world.want(requests={})
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 3
    assert nodes_of(world) == before
    assert rows(world)[0].outcome == "Withdrawn"


def test_who_scales_by_hand_meanwhile_is_left_the_number() -> None:
    world = World(MACHINES)
    deployment = world.deployment(replicas=3)
    world.now += 60
    world.want(requests={"1-nodes-1": lost(1)})
    world.round(kill_after=1)
    deployment["spec"]["replicas"] = 2
    world.change(deployment, spec=True)
    (row,) = rows(world)
    assert row.outcome == "Failed"
    assert row.message == "somebody has changed it meanwhile, to 2 replicas"
    assert deployment["spec"]["replicas"] == 2
    world.want(over=True)
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 2


def test_who_scales_while_machines_are_given_back_is_left_the_number() -> None:
    world, deployment = scaled_for(1)
    world.lost.add(nodes_of(world)[0])
    world.want(over=True)
    world.round()
    world.round(kill_after=1)
    deployment["spec"]["replicas"] = 6
    world.change(deployment, spec=True)
    world.reconcile(deployment)
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 6
    assert not any(machine["metadata"].get("annotations") for machine in world.all("Machine"))


def test_machines_that_somebody_else_has_marked_would_go_instead_so_nothing_is_given_back() -> None:
    world, deployment = scaled_for(1)
    world.lost.add(nodes_of(world)[0])
    world.all("Machine")[2]["metadata"]["annotations"] = {DELETE_FIRST: ""}
    world.want(over=True)
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 4


def test_a_mark_that_somebody_sets_after_ours_stops_the_giving_back() -> None:
    world, deployment = scaled_for(1)
    world.lost.add(nodes_of(world)[0])
    world.want(over=True)
    world.round()
    world.all("Machine")[2]["metadata"]["annotations"] = {DELETE_FIRST: "by hand"}
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 4


def test_a_machine_that_is_used_again_after_its_step_was_planned_stays_too() -> None:
    world, deployment = scaled_for(1)
    idle = nodes_of(world)[0]
    world.idle[idle] = 600.0
    world.want(over=True)
    world.round()
    world.round(kill_after=1)
    world.idle.clear()
    run(world, deployment)
    assert idle in nodes_of(world)
    assert deployment["spec"]["replicas"] == 4


def test_during_a_roll_out_nothing_is_given_back() -> None:
    world, deployment = scaled_for(1)
    world.lost.add(nodes_of(world)[0])
    world.want(over=True)
    deployment["status"]["upToDateReplicas"] = 1
    for _ in range(10):
        world.round()
    assert deployment["spec"]["replicas"] == 4


def test_two_incidents_scale_the_same_deployment_one_after_the_other_and_both_back() -> None:
    world = World(MACHINES)
    deployment = world.deployment(replicas=3)
    world.now += 60
    world.want(FLIGHTS, requests={"1-nodes-2": lost(2)})
    world.want(WEATHER, requests={"4-nodes-3": lost(3)})
    run(world, deployment)
    assert deployment["spec"]["replicas"] == 8
    world.lost.update(nodes_of(world)[:5])
    world.want(FLIGHTS, over=True)
    world.want(WEATHER, over=True)
    run(world, deployment, 60)
    assert deployment["spec"]["replicas"] == 3
    assert world.all("ConfigMap") == []


def test_two_incidents_that_marked_machines_at_once_do_not_wait_for_each_other_for_ever() -> None:
    world, deployment = scaled_for(1)
    world.want(WEATHER, requests={"4-nodes-1": lost(1)})
    run(world, deployment)
    marks = [f"rekindle-{note}" for note in scopes(world)]
    world.lost.update(nodes_of(world)[:3])
    for machine, mark in zip(world.all("Machine"), marks, strict=False):
        machine["metadata"]["annotations"] = {DELETE_FIRST: mark}
    world.want(FLIGHTS, over=True)
    world.want(WEATHER, over=True)
    run(world, deployment, 60)
    assert deployment["spec"]["replicas"] == 3


def scopes(world: World) -> list[str]:
    labels = [body["metadata"]["labels"] for body in world.all("ConfigMap")]
    return [found["rekindle.dev/scope"] for found in labels]


def spoil(deployment: dict[str, Any], how: str) -> None:
    if how == "paused":
        deployment["spec"]["paused"] = True
    elif how == "annotated":
        deployment["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
    elif how == "full":
        deployment["spec"]["replicas"] = 12
    elif how == "deleted":
        deployment["metadata"]["deletionTimestamp"] = "2026-11-21T17:00:00Z"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("paused", "machines capi/spark-b is paused"),
        ("annotated", "machines capi/spark-b is paused"),
        ("full", "machines capi/spark-b is at 12 replicas of at most 12"),
        ("deleted", "machines capi/spark-b is not there"),
        ("impaired", "machines capi/spark-b is in b, which is impaired"),
    ],
)
def test_a_deployment_that_may_not_be_scaled_is_left_alone_and_the_reason_told(
    how: str, why: str
) -> None:
    world = World(MACHINES)
    spoil(world.deployment(replicas=3), how)
    impaired = (Domain(ZONE, "b" if how == "impaired" else "a"),)
    world.want(requests={"1-nodes-1": lost(1)}, impaired=impaired)
    decision = world.settle()
    assert decision.waiting == {FLIGHTS: f"1 more node cannot be requested now: {why}."}


def test_the_next_deployment_takes_what_the_first_has_no_room_for() -> None:
    places = [
        {"namespace": "capi", "name": "spark-b", "domain": "b", "replicasMax": 4},
        {"namespace": "capi", "name": "spark-c", "replicasMax": 9},
    ]
    world = World({**MACHINES, "clusterAPI": {"machineDeployments": places}})
    first, second = world.deployment("spark-b"), world.deployment("spark-c")
    world.want(requests={"1-nodes-3": lost(3)})
    world.settle()
    assert (first["spec"]["replicas"], second["spec"]["replicas"]) == (4, 5)


def elsewhere() -> dict[str, Any]:
    """The entry with its machines in another cluster."""
    secret = {"namespace": "rekindle-system", "name": "management"}
    settings = {**MACHINES["clusterAPI"], "kubeconfigSecretRef": secret}
    return {**MACHINES, "clusterAPI": settings}


def test_machines_of_another_cluster_are_left_to_the_next_provider() -> None:
    world = World(elsewhere(), KARPENTER)
    deployment = world.deployment(replicas=3)
    world.want(requests={"1-nodes-1": lost(1)})
    world.settle()
    assert deployment["spec"]["replicas"] == 3
    assert world.counted("NodeClaim") == 1


def test_where_machines_of_another_cluster_are_all_that_there_is_it_is_said() -> None:
    world = World(elsewhere())
    world.want(requests={"1-nodes-1": lost(1)})
    (text,) = world.decide().waiting.values()
    assert "is in another cluster, which cannot be reached yet" in text


def test_what_was_planned_before_names_the_other_cluster() -> None:
    world = World(MACHINES)
    world.deployment()
    world.want(requests={"1-nodes-1": lost(1)})
    world.round(kill_after=1)
    world.want(requests={"1-nodes-1": lost(1)}, limits=World(elsewhere()).limits)
    (scale,) = world.decide().actions
    assert isinstance(scale, SetReplicas)
    assert scale.cluster is not None
    assert (scale.cluster.name, scale.cluster.key) == ("management", "kubeconfig")


def test_a_deployment_that_is_gone_has_nothing_to_give_back() -> None:
    world, deployment = scaled_for(1)
    for machine in world.all("Machine"):
        world.remove(machine)
    world.nodes.clear()
    world.remove(deployment)
    world.want(over=True)
    for _ in range(5):
        world.round()
    assert world.objects == {}
