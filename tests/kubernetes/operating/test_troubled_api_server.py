"""An API server that refuses, is contended for or goes silent: late, but right."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from api_proxy import ApiProxy
from kubernetes import client
from node_requests import KARPENTER, NodeRequests
from operating_world import World, await_that
from operator_process import OperatorProcess

from rekindle_operator.cluster.api_client import Api
from testbed.control_plane import ControlPlane

WATCH_SILENCE_SECONDS = 4


@pytest.fixture(scope="module")
def proxy(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiProxy]:
    """What the operator of this module takes for the API server."""
    with ApiProxy(control_plane, tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def operator(
    operators: Callable[..., OperatorProcess], proxy: ApiProxy
) -> Iterator[OperatorProcess]:
    """It ends before the proxy does."""
    silence = ("--watch-silence-seconds", str(WATCH_SILENCE_SECONDS))
    made = operators("operator-a", *silence, kubeconfig=proxy.kubeconfig)
    yield made
    made.close()


def test_what_is_refused_or_overtaken_is_done_all_the_same_and_once(
    world: World, proxy: ApiProxy, api_client: client.ApiClient, requests: NodeRequests
) -> None:
    """Requests are refused until nodes are asked for; then others write the same objects."""
    numbers, refused = itertools.count(), threading.Event()
    proxy.refuses = lambda: refused.is_set() or next(numbers) % 3 == 0
    world.start(nodes=4, class_={"provisioning": [KARPENTER]})
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
    world.rest()
    assert len(requests.claims()) == 2

    world.operator.mark()
    interfered = interfere(proxy, api_client)
    world.finish()
    await_that(requests.is_clear, "something is left of what was asked for")
    kinds = {"leases", "recoveries", "recoverypolicies", "configmaps"}
    await_that(lambda: kinds <= overtaken(interfered), "not all of them were written twice")
    assert world.operator.lines("lease-not-held") == []
    (recovery,) = world.recoveries()
    assert "example.com/somebody" in recovery["metadata"]["annotations"]
    assert world.lost_nodes() == set(lost)
    assert len(world.status()["plans"]) == len(world.driver.plans())


def interfere(proxy: ApiProxy, api_client: client.ApiClient) -> Counter[str]:
    """Every other write of an object finds another version than was read; how often which path was
    written."""
    somebody, interfered = Api(api_client), Counter[str]()

    def change(method: str, path: str) -> None:
        target = path.partition("?")[0].removesuffix("/status")
        if method != "PUT":
            return
        interfered[target] += 1
        if interfered[target] % 2:
            said = {"example.com/somebody": str(interfered[target])}
            somebody.patch(target, {"metadata": {"annotations": said}})

    proxy.before = change
    return interfered


def overtaken(interfered: Counter[str]) -> set[str]:
    """The kinds of objects that were written again after somebody else had written them."""
    return {path.split("/")[-2] for path, times in interfered.copy().items() if times > 1}


@pytest.fixture(autouse=True)
def undisturbed(proxy: ApiProxy) -> Iterator[None]:
    """Each test begins and ends with a proxy that passes everything on."""
    yield
    proxy.refuses, proxy.before = (lambda: False), None


def test_watches_that_go_silent_are_begun_anew(world: World, proxy: ApiProxy) -> None:
    world.start()
    pods = world.executors()
    kinds = {"nodes", "pods", "recoverypolicies", "recoveryclasses", "recoveries"}
    await_that(  # a watch that has just ended is not open before the operator begins the next one
        lambda: kinds <= {path.rpartition("/")[2] for path in proxy.silence()},
        "not all kinds are watched",
    )
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
    assert world.lost_nodes() == set(lost)
