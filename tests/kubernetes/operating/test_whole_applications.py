"""Whole Spark applications without anything of ours, which come back by priority."""

from typing import Any

import pytest
from acting_driver import pod_body
from kubernetes import client
from node_requests import KARPENTER, NodeRequests
from operating_world import Object, World, await_that
from recorded_ui import RecordedUi, serving

GATE, QUOTA = "rekindle.dev/turn", "example.com/quota"
TEAM = {"team": "reports"}
SELECTS = {"drivers": {"labelSelector": {"matchLabels": TEAM}}}
# Nodes have 4 cores: an executor fills one, beside which no other finds room.
EXECUTOR_CPU, DRIVER_CPU = "3", "1500m"
# No UI is called there, so nothing is awaited from it.
NO_UI_PORT = 80


class Application:
    """A driver and its executors as plain spark-submit makes them, without a Spark in them."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.count = world, name, 0
        self.uid = ""

    def start(self, driver: str, executor: str, ui_port: int) -> None:
        """Driver and executor on these nodes."""
        body = pod_body(f"{self.name}-driver", "driver", self.name, cpu=DRIVER_CPU, **TEAM)
        del body["spec"]["initContainers"]  # nothing of ours
        body["spec"]["nodeName"] = driver
        port = {"name": "spark-ui", "containerPort": ui_port}
        body["spec"]["containers"][0]["ports"] = [port]
        made = self.world.core.create_namespaced_pod(self.world.namespace, body)
        self.uid = made.metadata.uid
        self.add(executor)

    def add(self, node: str = "", *gates: str, dry_run: bool = False) -> Any:
        """Another executor, as Spark makes one in place of one that it has lost."""
        self.count += not dry_run
        name = f"{self.name}-exec-{self.count + dry_run}"
        body = pod_body(name, "executor", self.name, cpu=EXECUTOR_CPU)
        body["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": f"{self.name}-driver", "uid": self.uid}
        ]
        if node:
            body["spec"]["nodeName"] = node
        if gates:
            body["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
        create: Any = self.world.core.create_namespaced_pod
        return create(self.world.namespace, body, **({"dry_run": "All"} if dry_run else {}))

    def take_address(self, address: str) -> None:
        """Have its driver's pod at an address, as its kubelet says it."""
        name = f"{self.name}-driver"

        def has_taken() -> bool:
            pod = self.world.core.read_namespaced_pod(name, self.world.namespace)
            if not pod.status.pod_ip:
                return False
            pod.status.pod_ip, pod.status.pod_ips = address, [client.V1PodIP(ip=address)]
            try:
                self.world.core.replace_namespaced_pod_status(name, self.world.namespace, pod)
            except client.ApiException as error:
                if error.status != 409:
                    raise
                return False  # its kubelet has written meanwhile
            return True

        await_that(has_taken, "its pod does not run")

    @property
    def executor(self) -> Any:
        """The newest."""
        name = f"{self.name}-exec-{self.count}"
        return self.world.core.read_namespaced_pod(name, self.world.namespace)

    @property
    def gates(self) -> list[str]:
        """Of the newest executor."""
        return names(self.executor)

    @property
    def would_wait(self) -> bool:
        """Whether an executor that is made now would get the gate."""
        return GATE in names(self.add(dry_run=True))

    @property
    def story(self) -> Object:
        """The status of its Recovery; empty while there is none."""
        found = [
            item.get("status", {})
            for item in self.world.recoveries()
            if item["spec"]["application"]["name"] == self.name
        ]
        return found[-1] if found else {}


def names(pod: Any) -> list[str]:
    return [gate.name for gate in pod.spec.scheduling_gates or ()]


def pods_of(world: World) -> set[str]:
    found = world.core.list_namespaced_pod(world.namespace).items
    return {pod.metadata.name for pod in found}


def started(
    world: World, ui_port: int = NO_UI_PORT, **class_: Any
) -> tuple[Application, Application, list[str]]:
    """Two applications, their drivers on one node, and the nodes of their executors; `class_` are
    fields of the class. `ui_port` is of the UI of the more important one's driver."""
    world.operator.lead()
    world.grounds.lay_out({"a": 3})
    # nobody answers its requests: with none that makes any, an autoscaler would be left to look
    world.make_class(provisioning=[KARPENTER], **class_)
    world.make_policy(
        selector=SELECTS,
        recovers="Applications",
        priorities=[{"query": "high", "priority": 9}, {"query": "low", "priority": 1}],
    )
    await_that(lambda: world.condition("Accepted").get("reason") not in (None, "ClassMissing"))
    low, high = Application(world, "low"), Application(world, "high")
    drivers, *executors = world.nodes.names
    low.start(drivers, executors[0], NO_UI_PORT)
    high.start(drivers, executors[1], ui_port)
    await_that(lambda: world.policy().get("status", {}).get("applicationsSelected") == 2)
    await_that(world.is_calm, "it does not come to rest")
    world.operator.mark()
    return low, high, executors


@pytest.mark.usefixtures("asking")
def test_pods_wait_for_their_turn_and_the_most_important_application_comes_first(
    world: World, requests: NodeRequests
) -> None:
    low, high, lost = started(world)
    assert not high.would_wait, "before an incident no pod is changed"
    before = [low.executor.metadata.name, high.executor.metadata.name]
    world.nodes.lose(*lost)
    await_that(lambda: low.would_wait and high.would_wait, "no incident begins")
    await_that(lambda: low.story and high.story, "nobody tells of it")
    low.add("", QUOTA)
    high.add()
    assert (low.gates, high.gates) == ([QUOTA, GATE], [GATE])
    await_that(lambda: low.story.get("reason") == high.story.get("reason") == "NoCapacity")
    await_that(lambda: requests.counts()["Karpenter"] == 2, "no nodes are asked for")
    world.nodes.add(1, zone="a")
    await_that(lambda: high.executor.spec.node_name, "the first node is not used")
    assert low.gates == [QUOTA, GATE]
    assert "needs 3 cores" in low.story["message"]
    await_that(lambda: high.story.get("phase") == "Recovered")
    assert low.gates == [QUOTA, GATE], "the incident goes on"
    assert low.would_wait
    world.nodes.add(1, zone="a")
    await_that(lambda: low.gates == [QUOTA], "the gate stays, or another's was lifted")
    gone = {"spec": {"schedulingGates": [{"name": QUOTA, "$patch": "delete"}]}}
    world.core.patch_namespaced_pod(low.executor.metadata.name, world.namespace, gone)
    await_that(lambda: low.story.get("phase") == "Recovered")
    await_that(lambda: not low.would_wait, "the incident does not end")
    assert pods_of(world).isdisjoint(before), "executors of lost nodes stay"
    assert {row["name"] for row in low.story["lostNodes"]} == {lost[0]}
    assert {low.story["caughtUpBy"], high.story["caughtUpBy"]} == {"Pods"}
    assert len(low.story["plans"]) == 1
    await_that(lambda: world.events("Recovered"), "nobody was told")
    await_that(requests.is_clear, "nodes are asked for after the end")


@pytest.mark.usefixtures("asking", "requests")
def test_an_application_is_catching_up_until_its_driver_says_otherwise(world: World) -> None:
    with serving(RecordedUi(queries=("behind",))) as ui:
        low, high, (lows, highs) = started(world, ui.port)
        high.take_address("127.0.0.1")
        world.nodes.lose(highs)
        await_that(lambda: high.would_wait, "no incident begins")
        high.add()
        assert not ui.asked, "its pods are not back"
        world.nodes.add(1, zone="a")
        await_that(lambda: high.story.get("podsBackAt"), "its pods do not come back")
        await_that(lambda: high.story.get("message", "").endswith("behind."), "it is not read")
        assert high.story["phase"] == "CatchingUp"
        await_that(lambda: not low.would_wait, "pods wait for one that catches up")
        world.operator.kill()
        since = high.story["podsBackAt"]
        ui.picture = "caught_up"
        world.operator.lead()
        await_that(lambda: high.story.get("phase") == "Recovered", "it does not end")
    told = high.story
    assert (told["caughtUpBy"], told["podsBackAt"]) == ("Progress", since)
    assert "Caught up: behind (" in told["message"]
    assert told["queries"][0]["backAt"] > since
    assert low.executor.spec.node_name == lows
    assert all(path.startswith("/api/v1/applications") for path, _ in ui.asked)


@pytest.mark.usefixtures("asking", "requests")
def test_gates_are_lifted_when_the_policy_goes_and_another_operator_goes_on_with_the_others(
    world: World,
) -> None:
    low, high, lost = started(world)
    world.nodes.lose(*lost)
    await_that(lambda: low.would_wait and high.would_wait, "no incident begins")
    low.add()
    high.add()
    assert (low.gates, high.gates) == ([GATE], [GATE])
    await_that(lambda: low.story and high.story, "nobody tells of it")
    world.operator.kill()
    world.operator.lead()
    world.nodes.add(1, zone="a")
    await_that(lambda: high.executor.spec.node_name, "nobody goes on with it")
    assert low.gates == [GATE]
    assert len(world.recoveries()) == 2, "the incident was begun anew"
    world.delete_policy()
    await_that(lambda: not low.gates, "it waits for ever")


@pytest.mark.usefixtures("asking", "requests")
def test_a_less_important_application_makes_room_where_the_class_allows_it_and_comes_back(
    world: World,
) -> None:
    low, high, (lows, highs) = started(world, displacement="LessImportant")
    before = low.executor.metadata.name
    world.nodes.lose(highs)
    await_that(lambda: low.would_wait and high.would_wait, "no incident begins")
    high.add()
    await_that(lambda: low.story.get("reason") == "Displaced", "nothing makes room")
    assert low.story["displaced"]["by"] == "high"
    await_that(lambda: before not in pods_of(world), "it does not go")
    low.add()
    assert low.gates == [GATE], "it would take the room back"
    await_that(lambda: high.executor.spec.node_name == lows, "the room is for another one")
    await_that(lambda: high.story.get("phase") == "Recovered")
    assert low.gates == [GATE]
    assert low.story["displaced"]["goneAt"]
    assert f"{low.name}-driver" in pods_of(world), "nobody makes another driver"
    world.operator.kill()
    world.operator.lead()
    world.nodes.add(1, zone="a")
    await_that(lambda: low.story.get("phase") == "Recovered", "it does not come back")
    await_that(lambda: not low.would_wait, "the incident does not end")
    assert world.events("Displaced"), "nobody was told"
    assert len(world.recoveries()) == 2
