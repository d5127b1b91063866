"""Other nodes from providers: asked for once, whatever is killed, deleted or lost meanwhile."""

from typing import Any

from node_requests import AUTOSCALER, KARPENTER, ONE, NodeRequests, machines
from operating_world import GROUP, VERSION, World, await_that

from rekindle.coordination import NodeView, session
from rekindle.protocol import store_paths
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.cluster.api_client import path_of
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.request_ledger import CONFIG_MAP


def test_an_operator_that_is_killed_again_and_again_asks_each_provider_once(
    world: World, requests: NodeRequests
) -> None:
    """And gives up what is not needed any more."""
    entries: list[dict[str, Any]] = [AUTOSCALER, KARPENTER, machines(world.namespace)]
    requests.deploy_machines()
    none = dict(requests.counts())
    one_each = dict.fromkeys(none, 1)
    world.start(nodes=4, class_={"provisioning": [{**entry, "limits": ONE} for entry in entries]})
    world.lose(*world.executors_nodes()[:3])
    for is_begun in (world.phase, world.driver.plans, requests.notes):
        await_that(is_begun)
        world.operator.kill()  # whatever it was at
        world.operator.start()
    await_that(lambda: requests.counts() == one_each, "there is no request for each lost node")
    await_that(lambda: len(world.status().get("requests", ())) == 3)
    world.operator.kill()
    world.operator.lead()
    world.rest()
    requests.act_as_cluster_api()
    assert requests.counts() == one_each
    rows = world.status()["requests"]
    assert {row["provider"] for row in rows} == {entry["name"] for entry in entries}
    world.finish(nodes=3)
    await_that(
        lambda: requests.act_as_cluster_api() and requests.counts() == none,
        "what nobody needs any more is still asked for",
    )
    await_that(lambda: requests.act_as_cluster_api() and requests.is_clear(), "something is left")
    assert len(world.recoveries()) == 1


def test_what_somebody_deletes_in_the_middle_of_a_recovery_is_made_again_and_not_more(
    world: World, requests: NodeRequests
) -> None:
    """A claim, the note of it, the Recovery itself with a request that belongs to it."""
    providers = [{**entry, "limits": ONE} for entry in (AUTOSCALER, KARPENTER)]
    world.start(nodes=4, class_={"provisioning": providers})
    lost = world.executors_nodes()[:2]
    world.lose(*lost)
    wanted = {"Karpenter": 1, "ProvisioningRequest": 1, "ClusterAPI": 0}
    await_that(lambda: requests.counts() == wanted)
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    plans = len(world.driver.plans())

    (claim,) = requests.claims()
    requests.api.delete(path_of(NODE_CLAIM, name=claim["metadata"]["name"]), {})
    await_that(lambda: claim["metadata"]["uid"] not in uids(requests.claims()))
    (note,) = requests.notes()
    requests.api.delete(path_of(CONFIG_MAP, requests.home, note["metadata"]["name"]), {})
    await_that(lambda: uids(requests.notes()) not in ([], uids([note])), "nothing is noted")
    world.rest()
    assert all(count <= 1 for count in requests.counts().values())

    (recovery,) = world.recoveries()
    delete_recovery(world, recovery["metadata"]["name"])
    await_that(lambda: uids(world.recoveries()) not in ([], uids([recovery])), "it is not there")
    await_that(lambda: requests.counts() == wanted)
    world.rest()
    assert requests.counts() == wanted
    assert len(world.driver.plans()) == plans, "it was planned again"
    world.finish()
    assert world.lost_nodes() == set(lost)
    assert len(world.recoveries()) == 1
    await_that(requests.is_clear, "something is left")


def delete_recovery(world: World, name: str) -> None:
    world.custom.delete_namespaced_custom_object(
        GROUP, VERSION, world.namespace, "recoveries", name
    )


def uids(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["uid"] for item in items]


def test_a_loss_while_the_store_is_away_is_dealt_with_when_it_is_back(
    world: World, requests: NodeRequests, store: LocalZookeeper
) -> None:
    world.start(class_={"provisioning": [KARPENTER]})
    lost = world.executors_nodes()[:2]
    before = world.executors()
    store.stop(*store.servers)
    pods = world.lose(*lost)
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_suspected") == 2)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") == "StoreUnreachable")
    world.rest_without_driver()
    assert (world.executors(), requests.claims()) == (before, [])
    store.proceed(*store.servers)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") != "StoreUnreachable")
    await_that(lambda: world.driver.plans(), "the loss is forgotten")
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(requests.claims)  # for those that have found no other node meanwhile
    assert len(requests.claims()) <= 2
    world.finish()
    assert len(world.recoveries()) == 1
    assert world.lost_nodes() == set(lost)
    planned = len(world.driver.plans())
    assert len(world.status()["plans"]) == planned
    await_that(requests.is_clear)
    world.lose(world.busy_nodes()[0])
    await_that(lambda: len(world.driver.plans()) > planned, "the next loss is not planned for")


def test_for_a_node_that_is_announced_to_go_another_one_is_requested_until_it_stays(
    world: World, requests: NodeRequests
) -> None:
    taint = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
    world.start(nodes=4, class_={"provisioning": [{**KARPENTER, "limits": ONE}]})
    node = world.executors_nodes()[0]
    (pod,) = [pod for pod in world.driver.executors() if pod.spec.node_name == node]

    def recorded() -> NodeView:
        path = world.driver.place.path(store_paths.COORDINATION)
        found = world.driver.connection.get(path)
        assert found is not None
        kept = session.from_record(found[0], path).kept
        assert kept is not None
        return kept.nodes[pod.status.pod_ip]

    world.core.patch_node(node, {"spec": {"taints": [taint]}})
    await_that(lambda: recorded().notice is not None, "the record has no notice")
    notice = recorded().notice
    assert notice is not None
    assert notice.source == f"taint {taint['key']}"
    await_that(lambda: requests.counts()["Karpenter"] == 1, "no node was requested")
    await_that(lambda: world.status().get("reason") == "LossAnnounced")
    assert [row["name"] for row in world.status()["announcedNodes"]] == [node]
    await_that(lambda: world.events("LossAnnounced"), "no event says it")
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_announced") == 1)
    world.rest()
    assert requests.counts()["Karpenter"] == 1

    world.core.patch_node(node, {"spec": {"taints": None}})
    await_that(lambda: world.phase() == "Abandoned", "the notice is not withdrawn")
    assert recorded().notice is None
    await_that(requests.is_clear, "something is left")
    assert world.lost_nodes() == set()
    assert len(world.recoveries()) == 1
