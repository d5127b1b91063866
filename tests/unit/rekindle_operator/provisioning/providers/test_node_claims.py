"""Karpenter's NodeClaims: what they ask for, when a node has come, and when one is given back."""

from dataclasses import replace
from typing import Any

import pytest
from provider_world import FLIGHTS, KARPENTER, ZONE, World, lost, stamp

from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.provisioning import Delete

SPECIAL: dict[str, Any] = {
    **KARPENTER,
    "karpenter": {
        **KARPENTER["karpenter"],
        "labels": {"team": "flights", "rekindle.dev/slot": "99"},
        "taints": [{"key": "spark", "value": "only", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "cni/starting", "effect": "NoExecute"}],
        "expireAfter": "24h",
    },
}


def asked(count: int, *records: dict[str, Any], **limits: int) -> World:
    """A world in which so many nodes were requested."""
    world = World(*(records or (KARPENTER,)), **limits)
    world.want(requests={f"1-nodes-{count}": lost(count)})
    world.settle()
    return world


def outcomes(world: World) -> list[str]:
    return [row.outcome for row in world.settle().requests[FLIGHTS] or ()]


def test_a_claim_asks_for_a_node_outside_of_the_impaired_domains_with_room_for_the_executors() -> (
    None
):
    world = World(SPECIAL)
    world.want(
        requests={"1-nodes-1": lost(1)},
        impaired=(Domain(ZONE, "a"), Domain(ZONE, "c"), Domain("kubernetes.io/hostname", "n1")),
        executors_per_node=2,
    )
    world.settle()
    (claim,) = world.all("NodeClaim")
    assert claim["apiVersion"] == "karpenter.sh/v1"
    assert claim["spec"] == {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "spark"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": ZONE, "operator": "NotIn", "values": ["a", "c"]},
        ],
        "resources": {"requests": {"cpu": "3000m", "memory": str(2 * 4 * 2**30)}},
        "expireAfter": "24h",
        "taints": [{"key": "spark", "value": "only", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "cni/starting", "effect": "NoExecute"}],
    }
    labels = claim["metadata"]["labels"]
    assert (labels["team"], labels["rekindle.dev/slot"]) == ("flights", "1")
    assert "ownerReferences" not in claim["metadata"]


def test_a_node_has_come_when_karpenter_says_so_and_pods_may_start_there() -> None:
    world = asked(1)
    (claim,) = world.all("NodeClaim")
    world.say(claim, "Launched", "False", "no instance yet")
    row = (world.settle().requests[FLIGHTS] or ())[0]
    assert (row.outcome, row.message) == ("Pending", "Not launched yet: no instance yet.")
    world.bring(claim, "n1", taints=("karpenter.sh/unregistered",))
    assert outcomes(world) == ["Pending"]
    world.join("n1", ready=False)
    assert outcomes(world) == ["Pending"]
    world.join("n1")
    row = (world.settle().requests[FLIGHTS] or ())[0]
    assert (row.outcome, row.message) == ("Arrived", "Nodes: n1.")


def test_startup_taints_keep_a_node_from_counting_as_arrived() -> None:
    world = asked(1, SPECIAL)
    world.bring(world.all("NodeClaim")[0], "n1", taints=("cni/starting",))
    assert outcomes(world) == ["Pending"]


def test_a_claim_that_karpenter_deletes_has_failed_and_is_made_again_after_the_back_off() -> None:
    world = asked(1)
    for wait in (30, 60, 120, 240, 480, 600, 600):
        world.remove(world.all("NodeClaim")[0])
        decision = world.settle()
        assert (decision.requests[FLIGHTS] or ())[-1].outcome == "Failed"
        assert f"backs off for {wait} s" in decision.waiting[FLIGHTS]
        assert decision.due == world.now + wait
        world.now += wait - 1
        world.settle()
        assert world.all("NodeClaim") == []
        world.now += 1
        world.settle()
        assert len(world.all("NodeClaim")) == 1
    assert world.counted("NodeClaim") == 8


def test_claims_that_fail_together_are_one_wave_and_an_arrival_ends_the_back_off() -> None:
    world = asked(3)
    first, second, third = world.all("NodeClaim")
    world.remove(first)
    world.settle()
    world.now += 5
    world.remove(second)
    assert "backs off for 25 s" in world.settle().waiting[FLIGHTS]
    world.bring(third, "n1")
    world.settle()
    assert len(world.all("NodeClaim")) == 3


def test_a_claim_that_brings_no_node_for_too_long_is_given_up() -> None:
    world = asked(1)
    world.now += 899
    assert outcomes(world) == ["Pending"]
    world.now += 2
    decision = world.settle()
    row = (decision.requests[FLIGHTS] or ())[0]
    assert row.outcome == "Failed"
    assert row.message is not None
    assert row.message.startswith("It has brought no node for 900 s. Not launched yet")
    assert world.all("NodeClaim") == []


def test_a_claim_whose_node_has_registered_is_not_given_up() -> None:
    world = asked(1)
    (claim,) = world.all("NodeClaim")
    world.say(claim, "Launched")
    world.say(claim, "Registered")
    world.now += 5_000
    assert outcomes(world) == ["Pending"]
    world.want(requests={})
    assert outcomes(world) == ["Pending"]
    assert len(world.all("NodeClaim")) == 1


def test_claims_on_their_way_are_withdrawn_when_nobody_wants_them_and_nodes_that_came_stay() -> (
    None
):
    world = asked(2)
    world.bring(world.all("NodeClaim")[0], "n1")
    world.settle()
    world.want(requests={})
    assert outcomes(world) == ["Arrived", "Withdrawn"]
    assert len(world.all("NodeClaim")) == 1
    world.idle["n1"] = 10_000.0
    assert world.round().actions == ()


def test_after_the_incident_a_node_is_given_back_once_it_has_been_idle_for_ten_minutes() -> None:
    world = asked(1)
    world.bring(world.all("NodeClaim")[0], "n1")
    world.settle()
    world.want(over=True)
    assert world.round().actions == ()
    world.idle["n1"] = 599.0
    assert world.round().actions == ()
    world.idle["n1"] = 600.0
    world.settle()
    assert world.objects == {}


def test_a_node_that_went_by_itself_leaves_nothing_to_give_back() -> None:
    world = asked(1)
    (claim,) = world.all("NodeClaim")
    world.bring(claim, "n1")
    world.settle()
    world.remove(claim)
    assert outcomes(world) == ["Arrived"]
    world.want(over=True)
    world.settle()
    assert world.objects == {}


def test_a_claim_that_is_being_deleted_already_is_not_deleted_again() -> None:
    world = asked(1)
    world.all("NodeClaim")[0]["metadata"]["deletionTimestamp"] = stamp(world.now)
    decision = world.settle()
    assert (decision.requests[FLIGHTS] or ())[0].outcome == "Failed"
    world.want(over=True)
    assert not any(isinstance(action, Delete) for action in world.round().actions)
    assert len(world.all("ConfigMap")) == 1
    world.remove(world.all("NodeClaim")[0])
    world.settle()
    assert world.objects == {}


def test_an_object_that_a_late_operator_makes_for_a_request_that_has_ended_is_deleted() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-1": lost(1)})
    late = world.decide()
    world.act(late.actions[:1])
    world.want(requests={})
    world.settle()
    world.act(late.actions[1:])
    assert len(world.all("NodeClaim")) == 1
    world.settle()
    assert world.all("NodeClaim") == []


@pytest.mark.parametrize(
    ("operator", "values", "made"),
    [("In", ["a"], 0), ("In", ["a", "b"], 1), ("NotIn", ["b"], 1), ("Exists", [], 1)],
)
def test_a_class_that_names_impaired_domains_only_gets_no_claims(
    operator: str, values: list[str], made: int
) -> None:
    requirement = {"key": ZONE, "operator": operator, "values": values}
    settings = {**KARPENTER["karpenter"], "requirements": [requirement]}
    world = World({**KARPENTER, "karpenter": settings})
    world.want(requests={"1-nodes-1": lost(1)})
    decision = world.settle()
    assert world.counted("NodeClaim") == made
    assert bool(made) or "may only use" in decision.waiting[FLIGHTS]


def test_a_claim_is_one_node_whatever_the_limit_on_a_request_says() -> None:
    limits = {"nodesPerRequestMax": 3}
    world = asked(4, {**KARPENTER, "limits": limits})
    assert world.counted("NodeClaim") == 4


def lose(world: World, node: str) -> None:
    """Have Karpenter end a machine, with its node."""
    for claim in world.all("NodeClaim"):
        if claim.get("status", {}).get("nodeName") == node:
            world.remove(claim)
    world.nodes.pop(node)


@pytest.mark.parametrize("own", [{"nodesPerIncidentMax": 2, "nodesAtOnceMax": 2}, {}])
def test_an_incident_of_weeks_gets_nodes_however_many_of_them_have_come_and_gone(
    own: dict[str, int],
) -> None:
    """Spot nodes, and a query that fits on none: the incident stays open."""
    world = World({**KARPENTER, "limits": own}, **({} if own else {"nodes_per_incident_max": 2}))
    wanted = {}
    for number in range(1, 7):
        wanted[f"1-nodes-{number}"] = lost(1)
        world.want(requests=wanted)
        world.settle()
        newest = world.all("NodeClaim")[-1]
        assert "status" not in newest, f"node {number} is not requested"
        world.bring(newest, f"node-{number}")
        world.settle()
        world.now += 7_200
        if number % 3:
            lose(world, f"node-{number}")
        else:
            world.lost.add(f"node-{number}")


@pytest.mark.parametrize("is_there", [True, False], ids=["suspected", "gone at once"])
def test_nodes_that_are_there_or_have_gone_within_an_hour_of_coming_count(is_there: bool) -> None:
    """A loop in which nodes come and go within minutes ends at the limit, for an hour."""
    world = World(KARPENTER, nodes_per_incident_max=3)
    for number in range(1, 5):
        world.want(requests={f"1-nodes-{known}": lost(1) for known in range(1, number + 1)})
        world.settle()
        for claim in world.all("NodeClaim"):
            if "status" not in claim:
                world.bring(claim, f"node-{number}")
        world.settle()
        world.now += 60
        if f"node-{number}" in world.nodes and not is_there:
            lose(world, f"node-{number}")
    first_came_at = world.now - 240
    assert world.counted("NodeClaim") == 3
    decision = world.settle()
    assert "the incident has its 3 nodes" in decision.waiting[FLIGHTS]
    assert (decision.due == first_came_at + 3_600) is not is_there
    world.now = first_came_at + 3_600
    if is_there:  # one that does not answer is in nobody's list of lost ones yet
        world.nodes["node-1"] = replace(world.nodes["node-1"], ready=False)
    world.settle()
    assert world.counted("NodeClaim") == (3 if is_there else 4)
