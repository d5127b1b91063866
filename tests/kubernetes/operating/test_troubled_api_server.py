"""An API server that refuses, is contended for, goes silent or goes away: late, but right."""

import itertools
import threading
from collections import Counter

from api_proxy import ApiProxy
from kubernetes import client
from node_requests import KARPENTER, NodeRequests
from operating_world import World, await_that

from rekindle_operator.shell.api import Api
from testbed.control_plane import ControlPlane

# No longer than this may pass between two looks at the leases; else all timers start again.
GAP_SECONDS = 12.0


def test_what_is_refused_as_too_much_is_asked_again_and_done_once(
    world: World, proxy: ApiProxy, requests: NodeRequests
) -> None:
    numbers, refused = itertools.count(), threading.Event()
    proxy.refuses = lambda: refused.is_set() or next(numbers) % 3 == 0
    world.make_class(provisioning=[KARPENTER])
    world.start(nodes=4)
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: world.operator.lines("verdict"))
    before = proxy.refused
    refused.set()  # for a while everything
    await_that(lambda: proxy.refused > before + 20)
    refused.clear()
    await_that(lambda: world.driver.plans(), "there is no plan")
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: len(requests.claims()) == 2)
    proxy.refuses = lambda: False
    world.pause()
    assert len(requests.claims()) == 2
    world.finish()
    assert len(world.recoveries()) == 1
    assert {row["name"] for row in world.status()["lostNodes"]} == set(lost)
    assert len(world.status()["plans"]) == len(world.driver.plans())
    await_that(requests.is_clear, "something is left of what was asked for")


def test_who_writes_at_the_same_time_is_not_overwritten_and_stops_nobody(
    world: World, proxy: ApiProxy, api_client: client.ApiClient, requests: NodeRequests
) -> None:
    somebody, interfered = Api(api_client), Counter[str]()

    def interfere(method: str, path: str) -> None:
        """Every other write of an object finds another version than was read."""
        target = path.partition("?")[0].removesuffix("/status")
        if method != "PUT":
            return
        interfered[target] += 1
        if interfered[target] % 2:
            said = {"example.com/somebody": str(interfered[target])}
            somebody.patch(target, {"metadata": {"annotations": said}})

    proxy.before = interfere
    world.make_class(provisioning=[KARPENTER])
    world.start(nodes=4)
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.driver.plans())
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: len(requests.claims()) == 2)
    world.finish()
    await_that(requests.is_clear)
    assert len(world.recoveries()) == 1
    assert world.operator.lines("lease-not-held") == []
    written = {path.split("/")[-2] for path, times in interfered.items() if times > 1}
    assert written >= {"leases", "recoveries", "recoverypolicies", "configmaps"}
    (recovery,) = world.recoveries()
    assert "example.com/somebody" in recovery["metadata"]["annotations"]
    assert len(world.status()["plans"]) == len(world.driver.plans())


def test_watches_that_go_silent_are_begun_anew(world: World, proxy: ApiProxy) -> None:
    world.start()
    pods = world.executors()
    silenced = proxy.silence()
    assert {path.rpartition("/")[2] for path in silenced} >= {
        *("nodes", "pods", "recoverypolicies", "recoveryclasses", "recoveries")
    }
    world.make_policy("late")
    world.nodes.add(1, zone="a")
    lost = world.executors_nodes()[:2]
    gone = world.lose(*lost)
    await_that(lambda: not proxy.silent, "a silent watch is still listened to")
    await_that(lambda: world.driver.plans(), "there is no plan")
    await_that(lambda: gone.isdisjoint(world.executors()))
    assert pods - gone <= world.executors()
    await_that(lambda: world.condition("Exclusive", "late").get("status") == "False")
    world.finish()
    assert len(world.recoveries()) == 1
    assert {row["name"] for row in world.status()["lostNodes"]} == set(lost)


def test_after_an_outage_only_what_was_lost_in_it_is_lost(
    world: World, control_plane: ControlPlane
) -> None:
    world.start(nodes=6)
    lost = world.executors_nodes()[:2]
    others = [name for name in world.nodes.names if name not in lost]
    pods = world.driver.executors()
    gone = {pod.metadata.name for pod in pods if pod.spec.node_name in lost}
    world.driver.watching = False
    world.pause(1)
    control_plane.kill("kube-apiserver")
    world.nodes.lose(*world.nodes.names)
    world.driver.silent |= set(lost)
    age = "rekindle_operator_leases_age_seconds"
    await_that(lambda: world.operator.metric(age) > GAP_SECONDS + 1)
    control_plane.start_component("kube-apiserver")
    for name in others:  # their kubelets find it again one after the other
        before = world.nodes.renewals
        world.nodes.bring_back(name)
        await_that(lambda before=before: world.nodes.renewals > before)
    world.driver.watching = True
    await_that(lambda: world.driver.plans(), "what was lost in the outage is not found")
    await_that(lambda: gone.isdisjoint(world.executors()))
    assert {pod.metadata.name for pod in pods} - gone <= world.executors()
    world.finish()
    (recovery,) = [item for item in world.recoveries() if item["status"]["phase"] == "Recovered"]
    rows = {row["name"] for row in recovery["status"]["lostNodes"] if "confirmedAt" in row}
    assert rows == set(lost)
    assert len(recovery["status"]["plans"]) == len(world.driver.plans())
