"""Incidents of whole applications, from lost nodes to lifted gates and told Recoveries."""

import copy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
import spark_objects as objects
from operator_world import tell
from spark_objects import Body

from rekindle_operator.api import recovery_policy, recovery_resource
from rekindle_operator.api.recovery_resource import ApplicationReference, NodeRequest
from rekindle_operator.applications import application_recovery, displacement_runner
from rekindle_operator.applications.application_recovery import ApplicationRecovery
from rekindle_operator.cluster.api_client import NOT_FOUND, ApiRefused
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.provisioning import executor_of
from rekindle_testing.operator_builders import make_class

GATE, QUOTA = "rekindle.dev/turn", "example.com/quota"
KARPENTER = {
    "name": "karpenter",
    "provider": "Karpenter",
    "karpenter": {
        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
        "requirements": [{"key": "k", "operator": "Exists"}],
    },
}


class World:
    """A cluster with two applications on a node each, drivers elsewhere; work is done at once,
    unless `errands` are collected."""

    def __init__(
        self,
        *,
        provisioning: tuple[Body, ...] = (),
        displacement: str = "Never",
        **policy: Any,
    ) -> None:
        self.known = ClusterView()
        self.lost: frozenset[str] = frozenset()
        self.silent: frozenset[str] = frozenset()
        self.held_at: float | None = None
        self.pods: dict[str, Body] = {}
        self.recoveries: dict[str, Body] = {}
        self.events: list[Body] = []
        self.rows: dict[int, tuple[NodeRequest, ...]] = {}
        self.deleted: list[str] = []
        self.errands: dict[str, Callable[[], object]] | None = None
        self.now = 1_000.0
        self.set_policy(**policy)
        allowed: Body = {"provisioning": provisioning} if provisioning else {}
        self.known.see_class(make_class(**allowed, displacement=displacement))
        for name, cpu in (("drivers", "3"), ("a", "2"), ("b", "2")):
            tell(self.known.registry, objects.node(name, cpu))
        for name, node in (("low", "a"), ("high", "b")):
            self.see(objects.kubeflow_driver(name, uid=f"driver-{name}", node="drivers"))
            self.see(executor(name, 1, node=node))
            tell(self.known.registry, objects.kubeflow_application(name))
        self.judge = SimpleNamespace(
            state=self,
            looks_lost=lambda: self.lost,
            knows_silence=True,
            avoidance=self,
            domains=lambda _: {},
        )
        self.shell = self.operator()

    def operator(self) -> ApplicationRecovery:
        return ApplicationRecovery(
            self.known,
            cast(Any, self.judge),
            cast(Any, self),
            cast(Any, self),
            cast(Any, SimpleNamespace(write=lambda *_, **__: None)),
            "operator-a",
            lambda item: ApplicationReference(
                "SparkApplication", item.place.application, "sparkoperator.k8s.io", "uid"
            ),
            lambda _: executor_of(executor("high", 1)),
            lambda *_: None,
            lambda _: self.rows,
        )

    def set_policy(self, generation: int = 1, **more: Any) -> None:
        spec = {
            "selector": {"sparkApplications": {"labelSelector": {}}},
            "recovers": "Applications",
            "priorities": [{"query": "high", "priority": 9}],
            **more,
        }
        metadata = {"name": "all", "namespace": "flights", "generation": generation}
        self.known.see_policy(recovery_policy.from_object({"metadata": metadata, "spec": spec}))

    def see(self, pod: Body) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        tell(self.known.registry, pod)

    def lose(self, *nodes: str) -> None:
        """They are not Ready, and their pods stand there."""
        self.lost |= set(nodes)
        for name in nodes:
            node = objects.node(name, "2")
            node["status"]["conditions"][1]["status"] = "Unknown"
            tell(self.known.registry, node)

    def replaced(self, name: str, *gates: str) -> None:
        """The lost executor is gone, and Spark has made another one, which waits."""
        self.remade(name, *gates, GATE)

    def run(self, name: str, node: str) -> None:
        """The new executor has got its node."""
        assert not self.gates(name), "the API server would refuse it"
        self.see(executor(name, 2, node=node))

    def remade(self, name: str, *gates: str, number: int = 2) -> None:
        """The executor before is gone, and Spark has made another one, with these gates."""
        before = executor(name, number - 1)
        self.known.registry.forget_pod(before["metadata"]["uid"])
        self.pods.pop(before["metadata"]["name"], None)
        made = executor(name, number, node="", phase="Pending")
        made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
        self.see(made)

    def turn(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.shell.refresh()
        for body in self.recoveries.values():
            self.known.see_recovery(recovery_resource.from_object(body))

    def gates(self, name: str) -> list[str]:
        pod = self.pods[executor(name, 2)["metadata"]["name"]]
        return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]

    def story(self, name: str) -> Body:
        found = [
            item.get("status", {})
            for item in self.recoveries.values()
            if item["spec"]["application"]["name"] == name
        ]
        return cast(Body, found[-1]) if found else {}

    # the API server
    def get(self, path: str) -> Body | None:
        return copy.deepcopy(self.recoveries.get(path.rpartition("/")[2]))

    def create(self, path: str, body: Mapping[str, Any]) -> Body:
        made = copy.deepcopy(dict(body))
        if path.endswith("/events"):
            self.events.append(made)
            return made
        name = made["metadata"]["name"]
        made["metadata"] |= {"uid": f"uid-of-{name}", "generation": 1}
        self.recoveries[name] = made
        return made

    def replace(self, path: str, body: Mapping[str, Any]) -> Body:
        name = path.split("/")[-2]
        self.recoveries[name] = copy.deepcopy(dict(body))
        return self.recoveries[name]

    def delete(self, path: str, body: Mapping[str, Any]) -> bool:
        assert body["preconditions"]
        kind, name = path.split("/")[-2:]
        if kind == "recoveries":
            del self.recoveries[name]
            return True
        pod = self.pods.pop(name)
        assert body["preconditions"]["uid"] == pod["metadata"]["uid"]
        assert "gracePeriodSeconds" not in body, "Spark may end in order"
        self.deleted.append(name)
        pod["metadata"]["deletionTimestamp"] = _iso(1_795_000_000)
        tell(self.known.registry, pod)
        return True

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> Body:
        assert kind == "application/strategic-merge-patch+json"
        pod = copy.deepcopy(self.pods.get(path.rpartition("/")[2]))
        if pod is None:
            raise ApiRefused(path, NOT_FOUND, "not found")
        assert body["metadata"]["uid"] == pod["metadata"]["uid"]
        (gone,) = body["spec"]["schedulingGates"]
        assert gone["$patch"] == "delete"
        kept = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != gone["name"]]
        pod["spec"]["schedulingGates"] = kept
        self.see(pod)
        return pod

    # the work queue
    def leave(self, key: str, errand: Callable[[], object]) -> None:
        assert key
        if self.errands is None:
            errand()
        else:
            self.errands[key] = errand


def executor(name: str, number: int, **more: Any) -> Body:
    return objects.kubeflow_executor(
        number,
        name,
        driver_uid=f"driver-{name}",
        containers=(objects.container("spark-kubernetes-executor", cpu="2"),),
        **more,
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes worlds whose clock is theirs."""

    def make(**more: Any) -> World:
        world = World(**more)
        clock = SimpleNamespace(
            monotonic=lambda: world.now, time=lambda: 1_795_000_000.0 + world.now
        )
        monkeypatch.setattr(application_recovery, "time", clock)
        created = 1_795_000_000
        monkeypatch.setattr(objects, "at", lambda _: _iso(created))
        return world

    return make


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_before_an_incident_nothing_is_done(made: Callable[..., World]) -> None:
    world = made()
    world.turn()
    assert (world.shell.buckets, world.recoveries, world.shell.demands) == (frozenset(), {}, ())


def test_pods_wait_until_there_is_room_and_the_most_important_comes_first(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
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


def test_nodes_are_wanted_for_what_waits(made: Callable[..., World]) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.replaced("high")
    world.turn()
    world.turn()
    wanted = {item.incident.application: item for item in world.shell.demands}
    assert {name: item.missing for name, item in wanted.items()} == {"high": 1, "low": 1}
    assert all(item.limits.makers for item in wanted.values())
    requested_at = datetime.fromtimestamp(1_795_000_000, UTC)
    world.rows = {1: (NodeRequest("r", "karpenter", 1, "Pending", requested_at),)}
    world.turn()
    assert world.story("low")["requests"][0]["provider"] == "karpenter"


def test_an_autoscaler_sees_the_most_important_application_alone(
    made: Callable[..., World],
) -> None:
    world = made()
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.replaced("high")
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([GATE], [])
    world.turn()
    assert world.gates("low") == [GATE]


@pytest.mark.parametrize("more", [{"paused": True}, {"dryRun": True}, {"recovers": "Queries"}])
def test_nothing_waits_once_the_policy_does_not_act(
    made: Callable[..., World], more: dict[str, Any]
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.turn()
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


def test_an_approval_is_awaited_and_nothing_waits_for_it(made: Callable[..., World]) -> None:
    world = made(provisioning=(KARPENTER,), approval="Manual")
    world.lose("a", "b")
    world.turn()
    world.turn()
    assert world.story("low")["phase"] == "AwaitingApproval"
    assert world.shell.buckets == frozenset()
    for body in world.recoveries.values():
        body["spec"]["approved"] = True
    world.turn()
    world.turn()
    assert world.shell.buckets


def test_no_pod_waits_longer_than_an_hour(made: Callable[..., World]) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.turn()
    assert world.gates("low") == [GATE]
    world.turn(application_recovery.WAIT_SECONDS_MAX)
    assert world.gates("low") == []


def test_another_operator_goes_on_with_the_same_incident(made: Callable[..., World]) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.replaced("high")
    world.turn()
    world.shell = world.operator()
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([GATE], [GATE])
    assert world.shell.buckets
    assert len(world.recoveries) == 2


def test_an_operator_that_does_not_know_yet_which_nodes_are_silent_lifts_no_gate(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.turn()
    lost, world.lost, world.judge.knows_silence = world.lost, frozenset(), False
    tell(world.known.registry, objects.node("c", "2"))
    world.shell = world.operator()
    world.turn()
    assert (world.gates("low"), bool(world.shell.buckets)) == ([GATE], True)
    world.lost, world.judge.knows_silence = lost, True
    world.turn()
    assert world.gates("low") == [GATE], "the more important one needs the node"


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
    world.turn(application_recovery.WAIT_SECONDS_MAX)
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


def test_a_less_important_pod_that_finds_no_node_keeps_no_other_from_an_autoscaler(
    made: Callable[..., World],
) -> None:
    world = made()
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.turn()
    assert world.gates("low") == [], "it is all that waits"
    world.replaced("high")
    world.turn()
    assert world.gates("high") == []


def test_an_autoscaler_sees_what_the_most_important_application_depends_on(
    made: Callable[..., World],
) -> None:
    needs = [{"name": "high", "dependsOn": ["low"]}, {"name": "low", "dependsOn": ["high"]}]
    world = made(applications=needs)
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.replaced("high")
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([], []), "they come together"


def displacing(made: Callable[..., World], **more: Any) -> World:
    """The node of the more important application is lost, and its new executor waits: there is
    room for it on the other one's node alone."""
    world = made(provisioning=(KARPENTER,), displacement="LessImportant", **more)
    world.lose("b")
    world.turn()
    world.replaced("high")
    return world


LOW = executor("low", 1)["metadata"]["name"]


def test_without_leave_of_the_class_nothing_that_runs_makes_room(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("b")
    world.turn()
    world.replaced("high")
    for _ in range(5):
        world.turn()
    assert (world.deleted, world.gates("high"), world.story("low")) == ([], [GATE], {})


def test_a_less_important_application_makes_room_and_comes_back_by_plan(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.turn()
    assert world.deleted == [], "before anybody can read why"
    story = world.story("low")
    assert (story["phase"], story["reason"]) == ("Recovering", "Displaced")
    assert (story["displaced"]["by"], story["displaced"]["executors"]) == ("high", 1)
    assert "makes room for high" in story["message"]
    assert "make room for it: low" in world.story("high")["message"]
    assert [event["reason"] for event in world.events].count("Displaced") == 2, "its owner too"
    world.turn()
    world.turn()
    assert world.deleted == [LOW]
    assert world.gates("high") == [], "its room is on the way"
    world.remade("low", GATE)
    world.turn()
    assert world.gates("low") == [GATE]
    world.run("high", "a")
    world.turn()
    assert world.story("low")["displaced"]["goneAt"]
    world.turn(10.0)
    assert world.story("high")["phase"] == "Recovered"
    assert "make room for it: low" in world.story("high")["plans"][0]["text"]
    world.turn()
    assert world.gates("low") == [GATE]
    assert {item.incident.application for item in world.shell.demands} == {"low"}
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    world.run("low", "c")
    world.turn()
    world.turn(10.0)
    assert world.story("low")["phase"] == "Recovered"
    assert (world.deleted, world.shell.buckets) == ([LOW], frozenset())


def test_an_application_keeps_its_minimum_where_that_is_enough(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,), displacement="LessImportant")
    tell(world.known.registry, objects.node("c", "2"))
    world.see(executor("low", 7, node="c"))
    world.lose("b")
    world.turn()
    world.replaced("high")
    for _ in range(4):
        world.turn()
    assert len(world.deleted) == 1
    story = world.story("low")
    assert (story["phase"], story["displaced"]["keeps"]) == ("CatchingUp", 1)
    assert "keeps its minimum of 1" in story["message"]
    assert "lostAt" not in story["queries"][0], "it runs all the time"


def test_nothing_makes_room_on_a_node_where_what_waits_may_not_run(
    made: Callable[..., World],
) -> None:
    """Something else that waits may run there."""
    world = displacing(made)
    pod = world.pods[executor("high", 2)["metadata"]["name"]]
    pod["spec"]["nodeSelector"] = {"pool": "gpu"}
    world.see(pod)
    other = executor("low", 7, node="", phase="Pending")
    other["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(other)
    for _ in range(5):
        world.turn()
    assert world.deleted == []


def test_another_operator_goes_on_with_what_makes_room(made: Callable[..., World]) -> None:
    world = displacing(made)
    world.turn()
    world.shell = world.operator()
    for _ in range(3):
        world.turn()
    assert (world.deleted, world.gates("high")) == ([LOW], [])
    assert len(world.recoveries) == 2


def test_what_spark_makes_in_place_is_left_alone_also_without_a_gate(
    made: Callable[..., World],
) -> None:
    """The webhook is away: there would be no end to it."""
    world = displacing(made)
    for _ in range(3):
        world.turn()
    world.remade("low")
    world.run("low", "a")
    for _ in range(5):
        world.turn()
    assert world.deleted == [LOW]


END: dict[str, Callable[[World], None]] = {
    "paused": lambda world: world.set_policy(2, paused=True),
    "a dry run": lambda world: world.set_policy(2, dryRun=True),
    "deleted": lambda world: world.known.forget_policy("flights", "all"),
    "another leads": lambda world: world.shell.forget(),
}


@pytest.mark.parametrize("ends", END)
def test_nothing_is_deleted_once_the_policy_does_not_act(
    made: Callable[..., World], ends: str
) -> None:
    world = displacing(made)
    world.turn()
    world.errands = {}
    world.turn()
    (errand,) = (it for key, it in world.errands.items() if key.startswith("displace "))
    world.errands = None
    END[ends](world)
    if ends != "another leads":
        world.turn()
        assert world.gates("high") == []
    errand()
    assert world.deleted == []


def test_a_displacement_that_a_pause_has_called_off_is_not_taken_up_again(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.turn()
    world.set_policy(2, paused=True)
    world.turn()
    assert world.story("low")["displaced"]["goneAt"]
    world.set_policy(3)
    for _ in range(4):
        world.turn()
    assert world.deleted == []


def test_nothing_is_deleted_while_its_recovery_cannot_be_written(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.errands = {}
    for _ in range(20):
        world.turn()
    assert not any(key.startswith(("displace ", "gate ")) for key in world.errands)
    for errand in world.errands.values():
        errand()
    world.errands = None
    for _ in range(3):
        world.turn()
    assert world.deleted == [LOW]


def test_what_does_not_go_within_ten_minutes_stays(made: Callable[..., World]) -> None:
    """Until then further executors of the policy wait."""
    world = displacing(made)
    world.turn()
    world.errands = {}
    world.turn()
    world.turn(displacement_runner.ROOM_SECONDS_MAX)
    for errand in world.errands.values():
        errand()
    world.errands = None
    for _ in range(4):
        world.turn()
    world.turn(10.0)
    assert (world.deleted, world.story("low")["phase"]) == ([], "Recovered")


def test_an_application_makes_room_once_in_an_incident(made: Callable[..., World]) -> None:
    """Another one, which fits nowhere, keeps the incident open."""
    world = displacing(made)
    world.see(objects.kubeflow_driver("huge", uid="driver-huge", node="drivers"))
    tell(world.known.registry, objects.kubeflow_application("huge"))
    huge = objects.kubeflow_executor(
        1,
        "huge",
        driver_uid="driver-huge",
        node="",
        phase="Pending",
        containers=(objects.container("spark-kubernetes-executor", cpu="64"),),
    )
    huge["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(huge)
    for _ in range(4):
        world.turn()
    world.remade("low", GATE)
    world.run("high", "a")
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    world.turn()
    world.run("low", "c")
    world.turn()
    world.turn(10.0)
    assert world.story("low")["phase"] == "Recovered"
    world.lose("a")
    world.turn()
    world.remade("high", GATE, number=3)
    for _ in range(5):
        world.turn()
    assert world.deleted == [LOW], "back and forth"
    assert world.story("high")["reason"] == "NoCapacity"


@pytest.mark.parametrize("more", [{"dryRun": True}, {"approval": "Manual"}])
def test_what_would_make_room_is_told_and_stays(
    made: Callable[..., World], more: dict[str, Any]
) -> None:
    world = made(provisioning=(KARPENTER,), displacement="LessImportant", **more)
    world.lose("b")
    world.turn()
    world.remade("high")
    for _ in range(3):
        world.turn()
    assert "low would make room for high" in world.story("high")["message"]
    assert (world.deleted, world.story("low")) == ([], {})
    if "approval" in more:
        for body in world.recoveries.values():
            body["spec"]["approved"] = True
        world.turn()
        world.replaced("high")
        for _ in range(4):
            world.turn()
        assert world.deleted == [LOW]
