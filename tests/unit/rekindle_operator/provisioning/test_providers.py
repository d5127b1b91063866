"""What is requested, within which limits, and that nothing is requested twice."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from provider_world import (
    AUTOSCALER,
    FLIGHTS,
    HOME,
    KARPENTER,
    MACHINES,
    PENDING,
    WEATHER,
    World,
    lost,
)

from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.reasons import Reason
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.policies.effective_policy import effective
from rekindle_operator.provisioning import (
    ClusterState,
    Create,
    NodeLimits,
    decide,
    limits_of,
    remains,
    request_ledger,
)
from rekindle_operator.provisioning import request_ledger as notes_of
from rekindle_operator.provisioning.node_demand import NodeIncident
from rekindle_testing.operator_builders import make_class, make_policy

ONE_NOTE = """
{"version": 1,
 "incident": {"namespace": "flights", "application": "departures", "number": 1,
              "recovery": "departures-1-5e1f", "uid": "u1"},
 "class_name": "default",
 "next_number": 3,
 "asks": {"1-nodes-2": {"reason": "correlated-failure", "outside_domains": ["a"]}},
 "slots": [
   {"number": 1, "request": "1-nodes-2", "entry": "karpenter", "provider": "Karpenter",
    "requested_at": 1763740800.0, "stage": "arrived", "made_at": 1763740801.0,
    "ended_at": 1763740850.0, "arrived": ["node-7"]},
   {"number": 2, "request": "1-nodes-2", "entry": "machines", "provider": "ClusterAPI",
    "requested_at": 1763740800.0,
    "up": {"namespace": "capi", "name": "spark-b", "generation": 7, "before": 3, "after": 4,
           "newest": "2025-11-21T16:00:00Z"}}],
 "back_offs": {"autoscaler": {"failures": 2, "failed_at": 1763740790.0}}}
"""


def world_for(entry: dict[str, Any]) -> World:
    world = World(entry)
    world.deployment(replicas=3)
    world.now += 60
    return world


def requested(world: World) -> int:
    """Nodes that were ever requested, whoever was asked."""
    scaled = sum(body["spec"]["replicas"] - 3 for body in world.all("MachineDeployment"))
    return world.counted("NodeClaim") + world.counted("ProvisioningRequest") + scaled


@pytest.mark.parametrize("entry", [KARPENTER, AUTOSCALER, MACHINES], ids=lambda one: one["name"])
def test_as_many_nodes_are_requested_as_were_lost_and_no_more_on_the_next_look(
    entry: dict[str, Any],
) -> None:
    world = world_for(entry)
    world.want(requests={"1-nodes-4": lost(4)})
    world.settle()
    assert requested(world) == 4
    assert world.round().actions == ()


@pytest.mark.parametrize("entry", [KARPENTER, AUTOSCALER, MACHINES], ids=lambda one: one["name"])
def test_wherever_the_operator_is_killed_nothing_is_requested_twice(entry: dict[str, Any]) -> None:
    for kill_after in range(12):
        for again in range(4):
            world = world_for(entry)
            world.want(requests={"1-nodes-3": lost(3)})
            world.round(kill_after)
            world.now += 30
            world.round(again)
            world.settle()
            assert requested(world) == 3, f"killed after {kill_after} actions, then after {again}"


@pytest.mark.parametrize("entry", [KARPENTER, AUTOSCALER, MACHINES], ids=lambda one: one["name"])
def test_of_two_operators_that_saw_the_same_only_one_acts(entry: dict[str, Any]) -> None:
    world = world_for(entry)
    world.want(requests={"1-nodes-3": lost(3)})
    first, second = world.decide(), world.decide()
    world.act(first.actions)
    world.act(second.actions)
    world.settle()
    assert requested(world) == 3


def test_a_request_is_told_with_the_impaired_domains_that_its_nodes_are_outside_of() -> None:
    world = World(KARPENTER)
    impaired = (Domain("topology.kubernetes.io/zone", "a"), Domain("kubernetes.io/hostname", "n1"))
    world.want(
        requests={"1-nodes-1": lost(1)},
        domain_keys=("topology.kubernetes.io/zone",),
        impaired=impaired,
    )
    world.settle()
    (told,) = world.decide().requests.values()
    assert told is not None
    assert [row.outside_domains for row in told] == [("a",)]


def test_the_note_comes_before_anything_that_it_names() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    note, *claims = world.decide().actions
    assert isinstance(note, Create)
    assert note.kind.name == "ConfigMap"
    assert note.manifest["metadata"]["namespace"] == HOME
    kinds = [action.manifest["kind"] for action in claims if isinstance(action, Create)]
    assert kinds == ["NodeClaim"] * len(claims) == ["NodeClaim"] * 2


@pytest.mark.parametrize("entry", [KARPENTER, AUTOSCALER], ids=lambda one: one["name"])
def test_a_note_that_is_lost_is_made_anew_from_the_objects(entry: dict[str, Any]) -> None:
    world = world_for(entry)
    world.want(requests={"1-nodes-3": lost(3)})
    world.settle()
    world.remove(world.all("ConfigMap")[0])
    world.settle()
    assert requested(world) == 3
    assert len(world.all("ConfigMap")) == 1


def test_a_note_that_cannot_be_read_stops_its_incident_and_no_other() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    world.all("ConfigMap")[0]["data"]["note"] = '{"version": 2'
    world.want(requests={"1-nodes-2": lost(2), "1-nodes-4": lost(2)})
    world.want(WEATHER, requests={"4-nodes-1": lost(1)})
    decision = world.settle()
    assert world.counted("NodeClaim") == 3
    (trouble,) = decision.troubles.values()
    assert FLIGHTS in decision.troubles
    assert trouble.where.startswith(f"ConfigMap {HOME}/rekindle-departures-1-")
    assert "restore it" in trouble.remedy


def test_a_note_of_a_newer_version_is_left_alone() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    note = world.all("ConfigMap")[0]["data"]
    note["note"] = note["note"].replace('"version":1', '"version":2')
    decision = world.round()
    assert decision.actions == ()
    assert "has version 2" in decision.troubles[FLIGHTS].what


def test_the_notes_format_is_kept() -> None:
    body = {"metadata": {"namespace": HOME, "name": "note"}, "data": {"note": ONE_NOTE}}
    note = notes_of.read(body)
    assert json.loads(notes_of.manifest(note, HOME, None)["data"]["note"]) == json.loads(ONE_NOTE)
    with_more = ONE_NOTE.replace('"version": 1,', '"version": 1, "later": [],')
    assert notes_of.read({"data": {"note": with_more}}) == note


def test_an_incident_without_a_demand_is_not_touched() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    world.demands.clear()
    assert world.round().actions == ()
    assert remains(world.standing(), HOME) == {FLIGHTS: "default"}


def test_what_is_left_without_a_note_is_found_too() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    world.remove(world.all("ConfigMap")[0])
    world.demands.clear()
    assert remains(world.standing(), HOME) == {FLIGHTS: "default"}
    world.want(over=True)
    world.settle()
    assert world.objects == {}


def test_requests_for_drivers_are_not_for_here() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-driver-2": NodeRequestOrder("driver", Reason.DRIVER_LOST)})
    assert world.round().actions == ()


def test_pending_pods_request_nothing_and_have_no_rows() -> None:
    world = World(PENDING)
    world.want(requests={"1-nodes-2": lost(2)})
    decision = world.round()
    assert decision.actions == ()
    assert decision.requests == {FLIGHTS: None}
    assert decision.waiting == {}


def test_while_it_is_held_nothing_new_is_made_and_nothing_is_withdrawn() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.round(kill_after=2)
    world.want(requests={"1-nodes-2": lost(5)}, held=True)
    world.settle()
    assert world.counted("NodeClaim") == 1
    world.want(requests={}, held=True)
    world.settle()
    assert len(world.all("NodeClaim")) == 1
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    assert world.counted("NodeClaim") == 2


@pytest.mark.parametrize(
    ("limits", "own", "fields", "made", "why"),
    [
        ({"nodes_per_incident_max": 3}, {}, {}, 3, "the incident has its 3 nodes"),
        ({"nodes_per_incident_max": 0}, {}, {}, 0, "the incident has its 0 nodes"),
        ({"nodes_at_once_max": 4}, {}, {}, 4, "4 are on their way (nodesAtOnceMax)"),
        ({}, {"nodesPerIncidentMax": 5}, {}, 5, "karpenter has its 5 nodes of the incident"),
        ({}, {"nodesAtOnceMax": 2}, {}, 2, "karpenter has 2 nodes on their way"),
        ({}, {}, {"missing": 6}, 6, "as many are on their way as are missing"),
        ({}, {}, {"executor": None}, 0, "waits until an executor of the application has been seen"),
        ({}, {}, {}, 8, ""),
    ],
)
def test_no_limit_is_exceeded_and_what_waits_is_told(
    limits: dict[str, int], own: dict[str, int], fields: dict[str, Any], made: int, why: str
) -> None:
    own = {"nodesAtOnceMax": 20, "nodesPerIncidentMax": 20, **own}
    world = World({**KARPENTER, "limits": own}, **limits)
    world.want(requests={"1-nodes-8": lost(8)}, **fields)
    decision = world.settle()
    assert world.counted("NodeClaim") == made
    said = decision.waiting.get(FLIGHTS, "")
    assert why in said
    assert said == "" or said.startswith(f"{8 - made} more node")


def test_a_providers_limit_at_a_time_is_over_all_incidents_and_the_first_comes_first() -> None:
    world = World({**KARPENTER, "limits": {"nodesAtOnceMax": 5}})
    world.want(WEATHER, requests={"4-nodes-3": lost(3)})
    world.want(FLIGHTS, requests={"1-nodes-4": lost(4)})
    decision = world.settle()
    rows = {incident: len(found or ()) for incident, found in decision.requests.items()}
    assert rows == {WEATHER: 3, FLIGHTS: 2}


def test_what_the_first_provider_does_not_take_goes_to_the_next() -> None:
    world = World({**KARPENTER, "limits": {"nodesAtOnceMax": 2}}, PENDING, AUTOSCALER)
    world.want(requests={"1-nodes-5": lost(5)})
    decision = world.settle()
    assert [row.provider for row in decision.requests[FLIGHTS] or ()] == [
        *["karpenter"] * 2,
        *["autoscaler"] * 3,
    ]


def test_a_second_loss_is_a_request_of_its_own() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    world.want(requests={"1-nodes-2": lost(2), "1-nodes-3": lost(1)})
    world.settle()
    assert world.counted("NodeClaim") == 3


def test_a_request_for_less_withdraws_the_newest() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-4": lost(4)})
    world.settle()
    names = [body["metadata"]["name"] for body in world.all("NodeClaim")]
    world.want(requests={"1-nodes-4": lost(1)})
    decision = world.settle()
    assert [body["metadata"]["name"] for body in world.all("NodeClaim")] == names[:1]
    outcomes = [row.outcome for row in decision.requests[FLIGHTS] or ()]
    assert outcomes == ["Pending", "Withdrawn", "Withdrawn", "Withdrawn"]


def test_an_entry_that_the_class_has_no_more_is_cleared_and_asked_for_nothing() -> None:
    world = World(KARPENTER)
    world.want(requests={"1-nodes-2": lost(2)})
    world.settle()
    world.want(requests={"1-nodes-2": lost(2), "1-nodes-3": lost(1)}, limits=NodeLimits())
    world.settle()
    assert world.counted("NodeClaim") == 2
    world.want(over=True, limits=NodeLimits())
    world.settle()
    assert world.objects == {}


def test_what_the_api_server_refuses_has_failed_with_its_words() -> None:
    world = World(KARPENTER, AUTOSCALER)
    world.refusing["NodeClaim"] = 'no matches for kind "NodeClaim"'
    world.want(requests={"1-nodes-1": lost(1)})
    decision = world.settle()
    first, second = decision.requests[FLIGHTS] or ()
    assert (first.outcome, first.message) == ("Failed", 'no matches for kind "NodeClaim"')
    assert (second.provider, second.outcome) == ("autoscaler", "Pending")


def test_replicas_that_may_not_be_set_are_told_in_the_api_servers_words() -> None:
    world = world_for(MACHINES)
    world.refusing["MachineDeployment"] = "may not patch machinedeployments/scale"
    world.want(requests={"1-nodes-1": lost(1)})
    (row,) = world.settle().requests[FLIGHTS] or ()
    assert (row.outcome, row.message) == ("Failed", "may not patch machinedeployments/scale")
    assert requested(world) == 0


def test_a_note_that_may_not_be_written_is_told_and_nothing_is_made() -> None:
    world = World(KARPENTER)
    world.refusing["ConfigMap"] = "may not create configmaps"
    world.want(requests={"1-nodes-1": lost(1)})
    world.round()
    decision = world.round()
    assert decision.waiting == {
        FLIGHTS: "The note of the incident cannot be written: may not create configmaps"
    }
    assert world.created == []


def test_incidents_of_one_number_are_told_apart_when_they_were_counted_anew() -> None:
    later = msgspec.structs.replace(FLIGHTS, uid="u9")
    assert request_ledger.scope(later) != request_ledger.scope(FLIGHTS)
    world = World(KARPENTER)
    for incident in (FLIGHTS, later):
        world.want(incident, requests={"1-nodes-2": lost(2)})
        world.settle()
    assert world.counted("NodeClaim") == 4


def test_of_two_demands_of_one_incident_the_first_counts() -> None:
    """One that is wanted again may still be taken for over: that is no end for all others."""
    world = World(KARPENTER)
    world.want(FLIGHTS, requests={"1-nodes-2": lost(2)})
    world.settle()
    assert world.counted("NodeClaim") == 2
    (demand,) = world.demands.values()
    over = replace(demand, over=True)
    standing = world.standing()
    alone = decide((demand,), standing, home=HOME, now=world.now)
    both = decide((demand, over), standing, home=HOME, now=world.now)
    assert both == alone


def test_names_are_short_certain_and_a_person_can_read_them() -> None:
    name = request_ledger.slot_name(FLIGHTS, 12)
    assert name.startswith("rekindle-departures-1-")
    assert name.endswith("-12")
    assert name == request_ledger.slot_name(FLIGHTS, 12)
    other = NodeIncident(
        namespace="n", application="Été_" * 60, number=2**53 - 1, recovery="r", uid="u"
    )
    odd = request_ledger.slot_name(other, 99_999)
    assert len(odd) <= 63
    assert set(odd) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert all(len(value) <= 63 for value in request_ledger.labels(other, "karpenter", 1).values())


def test_limits_are_the_policys_for_an_incident_and_the_classs_for_a_provider() -> None:
    spec = {"provisioning": [{**KARPENTER, "limits": {"nodesAtOnceMax": 9}}, PENDING]}
    guards = {"nodesAtOnceMax": 2, "providers": ["karpenter"]}
    class_ = make_class(**spec)
    limits = limits_of(effective(make_policy(guards=guards), class_), class_.spec)
    assert limits.nodes_at_once_max == 2
    assert [(one.name, one.limits.nodes_at_once_max) for one in limits.providers] == [
        ("karpenter", 9)
    ]


def test_nothing_wanted_and_nothing_there_is_nothing_to_do() -> None:
    decision = decide([], ClusterState(), home=HOME, now=0.0)
    assert decision.actions == ()
    assert decision.due is None
