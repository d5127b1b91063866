"""Incidents of whole applications, from lost nodes to lifted gates and told Recoveries."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import spark_objects as objects
from gated_world import GATE, KARPENTER, QUOTA, World, executor, iso
from operator_world import tell

from rekindle.model.reasons import Reason
from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.applications import application_incident
from rekindle_operator.cluster.api_client import NOT_FOUND, ApiRefused
from rekindle_testing.operator_builders import make_class


def test_before_an_incident_nothing_is_done(made: Callable[..., World]) -> None:
    world = made()
    world.turn()
    assert (world.shell.buckets, world.recoveries, world.shell.demands) == (frozenset(), {}, ())


def test_pods_wait_until_there_is_room_and_the_most_important_comes_first(
    broken: Callable[..., World],
) -> None:
    world = broken()
    assert world.shell.buckets
    assert {world.story(name)["phase"] for name in ("low", "high")} == {"Recovering"}
    world.replaced("low", QUOTA)
    world.replaced("high")
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([QUOTA, GATE], [GATE])
    assert world.story("high")["reason"] == "NoCapacity"
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([QUOTA, GATE], [])
    assert world.story("high")["queries"][0]["plannedAt"]
    world.run("high", "c")
    world.turn()
    world.turn(10.0)
    assert world.story("high")["phase"] == "Recovered"
    assert world.story("low")["phase"] == "Recovering"
    assert world.shell.buckets, "the incident goes on"
    tell(world.known.registry, objects.node("d", "2"))
    world.turn()
    assert world.gates("low") == [QUOTA], "those of others stay"
    low = world.pods[executor("low", 2)["metadata"]["name"]]
    low["spec"]["schedulingGates"] = []
    world.run("low", "d")
    world.turn()
    world.turn(10.0)
    assert world.story("low")["phase"] == "Recovered"
    assert (world.shell.buckets, world.shell.demands) == (frozenset(), ())
    assert len(world.recoveries) == 2
    assert any(event["reason"] == "Recovered" for event in world.events)


def test_nodes_are_wanted_for_what_waits(broken: Callable[..., World]) -> None:
    world = broken("low", "high")
    world.turn()
    wanted = {item.incident.application: item for item in world.shell.demands}
    assert {name: item.missing for name, item in wanted.items()} == {"high": 1, "low": 1}
    assert all(item.limits.makers for item in wanted.values())
    requested_at = datetime.fromtimestamp(1_795_000_000, UTC)
    world.rows = {1: (NodeRequest("r", "karpenter", 1, "Pending", requested_at),)}
    world.turn()
    assert world.story("low")["requests"][0]["provider"] == "karpenter"


@pytest.mark.parametrize("pods", ["on the lost node", "deleted"])
def test_no_node_is_wanted_before_pods_are_made_for_which_there_is_room(
    made: Callable[..., World], pods: str
) -> None:
    world = made(provisioning=(KARPENTER,))
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    world.lose("b")
    for _ in range(3):
        world.turn()
        assert {item.missing for item in world.shell.demands} <= {0}
        assert not any(item.requests for item in world.shell.demands)
        if pods == "deleted":
            world.forget_executors("high")
    assert world.story("high")["reason"] != "NoCapacity"


def test_a_request_for_nodes_keeps_its_reason_once_they_have_come(
    broken: Callable[..., World],
) -> None:
    world = broken("low", "high")
    tell(world.known.registry, objects.node("c", "8"))
    for _ in range(2):
        reasons = [order.reason for one in world.shell.demands for order in one.requests.values()]
        assert set(reasons) == {Reason.NO_CAPACITY}
        world.turn()


@pytest.mark.parametrize("more", [{"paused": True}, {"dryRun": True}, {"recovers": "Queries"}])
def test_nothing_waits_once_the_policy_does_not_act(
    broken: Callable[..., World], more: dict[str, Any]
) -> None:
    world = broken("low")
    assert world.gates("low") == [GATE]
    world.set_policy(2, **more)
    world.turn()
    assert world.gates("low") == []
    assert world.shell.buckets == frozenset()


def test_a_policy_that_is_deleted_leaves_no_gate(made: Callable[..., World]) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.known.forget_policy("flights", "all")
    world.turn()
    assert world.gates("low") == []


def _without_its_policy(world: World) -> None:
    world.known.forget_policy("flights", "all")


def _with_another_kind_of_policy(world: World) -> None:
    world.set_policy(2, recovers="Queries")


def _left_out_by_its_policy(world: World) -> None:
    world.set_policy(2, selector={"sparkApplications": {"names": ["high"]}})


@pytest.mark.parametrize(
    "change", [_without_its_policy, _with_another_kind_of_policy, _left_out_by_its_policy]
)
def test_a_recovery_ends_with_the_policy_that_recovered_the_application(
    broken: Callable[..., World], change: Callable[[World], None]
) -> None:
    """One that stays open keeps the nodes that were asked for in its name."""
    world = broken()
    world.turn()
    assert world.story("low")["phase"] == "Recovering"
    change(world)
    world.turn()
    told = world.story("low")
    assert (told["phase"], told["reason"]) == ("Abandoned", "PolicyGone")
    assert "endedAt" in told
    assert Place("flights", "low") not in dict(world.known.open_recoveries())
    assert not any(demand.incident.application == "low" for demand in world.shell.demands)


@pytest.mark.parametrize(
    ("state", "message"), [("COMPLETED", "low has ended."), ("SUSPENDED", "low is suspended.")]
)
def test_a_recovery_ends_with_an_application_of_which_nothing_is_to_come_back(
    made: Callable[..., World], state: str, message: str
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    tell(world.known.registry, objects.kubeflow_application("low", state=state))
    world.turn()
    told = world.story("low")
    assert (told["phase"], told["reason"]) == ("Abandoned", "ApplicationGone")
    assert told["message"] == message


def _with_another_policy(world: World) -> None:
    world.known.forget_policy("flights", "all")
    world.set_policy(1, "others")


def _with_an_end(world: World) -> None:
    tell(world.known.registry, objects.kubeflow_application("low", state="COMPLETED"))


@pytest.mark.parametrize(
    "change",
    [
        _without_its_policy,
        _with_another_kind_of_policy,
        _left_out_by_its_policy,
        _with_another_policy,
        _with_an_end,
    ],
)
def test_a_recovery_ends_though_nobody_acted_when_what_recovered_the_application_went(
    broken: Callable[..., World], change: Callable[[World], None]
) -> None:
    world = broken()
    (left,) = (name for name in world.recoveries if name.startswith("low-"))
    world.shell.forget()
    change(world)
    world.turn()
    assert world.recoveries[left]["status"]["phase"] == "Abandoned"
    world.turn()
    assert left not in world.known.open_of(Place("flights", "low"))


def test_a_recovery_that_tells_of_queries_is_left_to_whoever_tells_of_them(
    broken: Callable[..., World],
) -> None:
    world = broken()
    for body in world.recoveries.values():
        (condition,) = body["status"]["conditions"]
        body["status"]["conditions"].append({**condition, "type": "Planned"})
    world.turn()
    world.shell.forget()
    _with_another_kind_of_policy(world)
    world.turn()
    world.turn()
    assert [world.story(name)["phase"] for name in ("low", "high")] == ["Recovering"] * 2


def test_the_end_of_an_incident_does_not_give_way_to_the_beginning_of_the_next_one(
    broken: Callable[..., World],
) -> None:
    world = broken()
    world.errands = {}
    _with_another_policy(world)
    world.turn()
    world.turn()
    for errand in world.errands.values():
        errand()
    told = [
        (item["spec"]["policyName"], item["spec"]["incident"], item["status"]["phase"])
        for name, item in sorted(world.recoveries.items())
        if name.startswith("low-")
    ]
    assert told == [("all", 1, "Abandoned"), ("others", 2, "Recovering")]
    (text,) = (
        item["status"]["message"]
        for name, item in world.recoveries.items()
        if name.startswith("low-1")
    )
    assert text == "Policy others recovers low from now on."


def test_an_incident_has_another_number_than_one_whose_recovery_is_not_seen_yet(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.errands = {}
    world.lose("a", "b")
    world.turn()
    _with_another_policy(world)
    world.turn()
    world.turn()
    for errand in world.errands.values():
        errand()
    assert {item["spec"]["incident"] for item in world.recoveries.values()} == {2}


def _forget_applications(world: World) -> None:
    for pod in world.pods.values():
        world.known.registry.forget_pod(pod["metadata"]["uid"])
    for name in ("low", "high"):
        world.known.registry.forget_resource("sparkoperator.k8s.io", "flights", name)


def test_a_write_that_is_refused_as_the_namespace_is_gone_is_not_tried_again(
    made: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, _: object) -> None:
        raise ApiRefused(path, NOT_FOUND, "no such namespace")

    world = made(provisioning=(KARPENTER,))
    world.errands = {}
    world.lose("a", "b")
    world.turn()
    errands = list(world.errands.values())
    monkeypatch.setattr(world, "create", refuse)
    for errand in errands:
        with pytest.raises(ApiRefused):
            errand()
    _forget_applications(world)
    world.turn()
    for errand in errands:
        errand()


def test_nothing_is_kept_of_applications_and_recoveries_that_are_gone(
    broken: Callable[..., World],
) -> None:
    world = broken()
    _without_its_policy(world)
    world.turn()
    assert world.shell.has_told(Place("flights", "low"), 1), "its end is not seen yet"
    world.turn()
    assert not world.shell.has_told(Place("flights", "low"), 1)
    _forget_applications(world)
    world.turn()
    assert world.shell._samples == {}


def test_a_write_into_a_namespace_that_is_gone_gives_way_to_the_end(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.errands = {}
    world.lose("a", "b")
    world.turn()
    _without_its_policy(world)
    world.turn()
    for errand in world.errands.values():
        errand()
    assert world.recoveries == {}


def test_under_a_class_that_is_withdrawn_nothing_waits_and_the_recovery_goes_on_to_its_end(
    broken: Callable[..., World],
) -> None:
    world = broken("low", "high")
    assert world.shell.demands
    world.known.see_class(make_class(provisioning=(KARPENTER,), allowedNamespaces=["others"]))
    world.turn()
    told = world.story("low")
    assert (told["phase"], told["reason"]) == ("Held", "ClassWithdrawn")
    assert "default" in told["message"]
    assert (world.shell.demands, world.shell.buckets, world.gates("low")) == ((), frozenset(), [])
    tell(world.known.registry, objects.node("c", "4"))
    for name in ("low", "high"):
        world.run(name, "c")
    for _ in range(3):
        world.turn(application_incident.SETTLE_SECONDS)
    assert [world.story(name)["phase"] for name in ("low", "high")] == ["Recovered"] * 2
    world.lose("c")
    world.turn()
    assert len(world.recoveries) == 2


def test_an_approval_is_awaited_and_nothing_waits_for_it(broken: Callable[..., World]) -> None:
    world = broken(approval="Manual")
    world.turn()
    assert world.story("low")["phase"] == "AwaitingApproval"
    assert world.shell.buckets == frozenset()
    for body in world.recoveries.values():
        body["spec"]["approved"] = True
    world.turn()
    world.turn()
    assert world.shell.buckets


def test_no_pod_waits_longer_than_an_hour(broken: Callable[..., World]) -> None:
    world = broken("low")
    assert world.gates("low") == [GATE]
    world.turn(application_incident.WAIT_SECONDS_MAX)
    assert world.gates("low") == []


def test_an_executor_for_which_there_never_was_room_keeps_no_incident_open(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.see(executor("high", 3, node="", phase="Pending"))
    world.lose("b")
    world.turn()
    tell(world.known.registry, objects.node("c", "2"))
    world.remade("high")
    world.run("high", "c")
    world.turn()
    world.turn(application_incident.QUIET_SECONDS)
    assert world.story("high")["phase"] == "CatchingUp", "an autoscaler may bring a node for it"
    world.turn(application_incident.WAIT_SECONDS_MAX)
    world.turn(application_incident.SETTLE_SECONDS)
    told = world.story("high")
    assert told["phase"] == "Recovered"
    assert "1 more have been without a node for over an hour." in told["message"]
    world.turn()
    assert world.shell.buckets == frozenset()


def test_an_executor_that_finds_no_node_for_an_hour_keeps_no_room_from_others(
    made: Callable[..., World],
) -> None:
    """It has CPU there, and no memory perhaps."""
    world = made(provisioning=(KARPENTER,))
    world.see(executor("high", 3, node="", phase="Pending"))
    world.lose("a")
    world.turn(application_incident.WAIT_SECONDS_MAX / 2)
    tell(world.known.registry, objects.node("c", "2"))
    low = executor("low", 2, node="", phase="Pending")
    low["metadata"]["creationTimestamp"] = iso(1_795_000_000 + int(world.now))
    low["spec"]["schedulingGates"] = [{"name": GATE}]
    world.known.registry.forget_pod(executor("low", 1)["metadata"]["uid"])
    world.see(low)
    world.turn()
    assert world.gates("low") == [GATE]
    world.turn(application_incident.WAIT_SECONDS_MAX / 2)
    assert world.gates("low") == []


def test_an_executor_that_has_waited_for_an_hour_gets_minutes_to_find_a_node(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a")
    world.turn()
    extra = executor("high", 3, node="", phase="Pending")
    extra["metadata"]["creationTimestamp"] = iso(1_795_000_000 + int(world.now))
    extra["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(extra)
    world.turn(application_incident.WAIT_SECONDS_MAX)
    assert not world.pods[extra["metadata"]["name"]]["spec"]["schedulingGates"]
    tell(world.known.registry, objects.node("c", "2"))
    world.remade("low")
    low = world.pods[executor("low", 2)["metadata"]["name"]]
    low["metadata"]["creationTimestamp"] = iso(1_795_000_000 + int(world.now))
    low["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(low)
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.gates("low") == [GATE], "the node is kept for the other one"
    assert world.story("high")["phase"] == "CatchingUp"
    world.turn(application_incident.SILENT_SECONDS_MAX)
    world.turn(application_incident.SETTLE_SECONDS)
    assert world.gates("low") == []
    assert world.story("high")["phase"] == "Recovered"


def test_an_application_that_lacks_its_minimum_keeps_its_incident_open(
    made: Callable[..., World],
) -> None:
    needs = {"name": "high", "minimumExecutors": 2}
    world = made(provisioning=(KARPENTER,), applications=[needs])
    world.see(executor("high", 3, node="", phase="Pending"))
    world.lose("b")
    world.turn()
    world.remade("high")
    tell(world.known.registry, objects.node("c", "2"))
    world.run("high", "c")
    world.turn()
    world.turn(application_incident.WAIT_SECONDS_MAX)
    world.turn(application_incident.QUIET_SECONDS)
    assert "endedAt" not in world.story("high")


@pytest.mark.parametrize(
    ("state", "timeout", "waits_seconds"),
    [
        pytest.param("DriverRequested", {}, 150.0, id="default"),
        pytest.param("DriverRequested", {"driverStartTimeoutMillis": 60_000}, 30.0, id="set"),
        pytest.param("DriverRequested", {"driverStartTimeoutMillis": 900}, 0.5, id="short"),
        pytest.param("DriverRequested", {"driverStartTimeoutMillis": 0}, 3_600.0, id="none"),
        pytest.param("DriverReady", {"executorStartTimeoutMillis": 60_000}, 30.0, id="executors"),
        pytest.param("RunningHealthy", {"driverStartTimeoutMillis": 60_000}, 3_600.0, id="running"),
    ],
)
def test_no_pod_waits_so_long_that_its_operator_ends_the_application(
    made: Callable[..., World], state: str, timeout: dict[str, int], waits_seconds: float
) -> None:
    world = made(provisioning=(KARPENTER,))
    tolerations = {"applicationTimeoutConfig": timeout}
    body = objects.apache_application("nightly", state=state, applicationTolerations=tolerations)
    tell(world.known.registry, body)
    world.lose("a", "b")
    world.turn()
    driver = objects.apache_driver("nightly", node="", phase="Pending")
    driver["spec"]["containers"] = [objects.container("spark-kubernetes-driver", cpu="2")]
    driver["metadata"]["creationTimestamp"] = iso(1_795_000_000 + int(world.now))
    driver["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(driver)
    if waits_seconds > 1.0:
        world.turn(waits_seconds - 1.0)
    assert world.pods["nightly-0-driver"]["spec"]["schedulingGates"]
    world.turn(1.0)
    assert not world.pods["nightly-0-driver"]["spec"]["schedulingGates"]


def test_another_operator_goes_on_with_the_same_incident(broken: Callable[..., World]) -> None:
    world = broken("low", "high")
    world.shell = world.operator()
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([GATE], [GATE])
    assert world.shell.buckets
    assert len(world.recoveries) == 2


def test_an_operator_that_does_not_know_yet_which_nodes_are_silent_lifts_no_gate(
    broken: Callable[..., World],
) -> None:
    world = broken("low")
    lost, world.lost, world.judge.knows_silence = world.lost, frozenset(), False
    tell(world.known.registry, objects.node("c", "2"))
    world.shell = world.operator()
    world.turn()
    assert (world.gates("low"), bool(world.shell.buckets)) == ([GATE], True)
    world.lost, world.judge.knows_silence = lost, True
    world.turn()
    assert world.gates("low") == [GATE], "the more important one needs the node"


def another_begins(world: World) -> None:
    """Another operator acts, and does not know yet which nodes are silent."""
    world.lost, world.judge.knows_silence = frozenset(), False
    world.shell = world.operator()
    world.turn()


def test_while_an_operator_learns_which_nodes_are_silent_pods_of_an_open_incident_get_gates(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    before = world.shell.buckets
    another_begins(world)
    assert world.shell.buckets == before, "what comes now would take nodes in no order"


def test_while_an_operator_learns_which_nodes_are_silent_others_get_no_gates(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,), approval="Manual")
    world.lose("a", "b")
    world.turn()
    another_begins(world)
    assert world.shell.buckets == frozenset()


def test_while_every_node_looks_lost_nothing_is_begun(made: Callable[..., World]) -> None:
    world = made()
    world.held_at = 1.0
    world.lose("a", "b")
    world.turn()
    assert world.recoveries == {}


def test_while_every_node_looks_lost_a_pod_waits_no_longer_than_an_hour(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.held_at = 1.0
    world.turn()
    assert (world.gates("low"), bool(world.shell.buckets)) == ([GATE], True), "it waits on"
    world.turn(application_incident.WAIT_SECONDS_MAX)
    assert world.gates("low") == []


@pytest.mark.parametrize("more", [{"paused": True}, {"dryRun": True}])
def test_a_pause_ends_all_waiting_also_while_every_node_looks_lost(
    made: Callable[..., World], more: dict[str, Any]
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.held_at = 1.0
    world.set_policy(2, **more)
    world.turn()
    assert (world.gates("low"), world.shell.buckets) == ([], frozenset())


def test_a_pod_that_another_gate_holds_keeps_no_room_from_others(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.replaced("high", QUOTA)
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([GATE], [QUOTA])
    world.turn()
    assert world.gates("low") == [], "the quota may hold the other one for hours"


def lose_driver(world: World) -> None:
    """The more important application loses its driver with its executor, and what is left has room
    for these, or for the executor of the other one."""
    world.see(objects.kubeflow_driver("high", uid="driver-high", node="b"))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()


def test_the_place_of_a_driver_that_nobody_starts_again_is_kept_for_some_minutes(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    lose_driver(world)
    assert world.gates("low") == [GATE]
    world.turn(application_incident.SILENT_SECONDS_MAX - 10.0)
    assert world.gates("low") == [GATE], "a driver's node takes its time to be fenced"
    world.turn(10.0)
    assert world.gates("low") == []
    told = world.story("high")
    assert (told["phase"], told["reason"]) == ("Recovering", "NoNewPods")
    assert told["message"].startswith("No new pod of it has come for 10 minutes")


def test_pods_that_somebody_may_have_refused_for_their_gate_get_none(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    lose_driver(world)
    resources = [f"sparkoperator.k8s.io/flights/{name}" for name in ("low", "high")]
    assert world.shell.buckets.issuperset(resources)
    world.turn(application_incident.SILENT_SECONDS_MAX)
    assert world.shell.buckets.intersection(resources) == {resources[0]}
    world.known.registry.forget_pod("driver-high")
    world.see(objects.kubeflow_driver("high", uid="driver-2", node="", phase="Pending"))
    world.turn()
    assert world.shell.buckets.issuperset(resources), "its executors have their turn again"


def test_an_incident_of_which_nothing_comes_back_gives_nobody_a_gate(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    lose_driver(world)
    world.turn(application_incident.SILENT_SECONDS_MAX)
    world.run("low", "c")
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    assert (world.story("low")["phase"], world.story("high")["phase"]) == (
        "Recovered",
        "Recovering",
    )
    world.turn()
    assert world.shell.buckets == frozenset()
    world.known.registry.forget_pod("driver-high")
    world.see(objects.kubeflow_driver("high", uid="driver-2", node="", phase="Pending"))
    world.turn()
    assert world.shell.buckets, "once it comes, it and the others have their turns again"
