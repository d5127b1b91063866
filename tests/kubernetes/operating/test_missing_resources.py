"""What the operator goes by goes away in the middle of a recovery, and comes back or does not."""

from node_requests import AUTOSCALER, KARPENTER, NodeRequests
from operating_world import GROUP, VERSION, World, await_that

from rekindle_local.zookeeper import LocalZookeeper
from rekindle_operator.provisioning.node_claims import NODE_CLAIM
from rekindle_operator.provisioning.notes import CONFIG_MAP
from rekindle_operator.shell.api import path_of


def test_a_loss_while_the_store_is_away_is_dealt_with_when_it_is_back(
    world: World, store: LocalZookeeper, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start()
    lost = world.executors_nodes()[:2]
    before = world.executors()
    store.stop(*store.servers)
    pods = world.lose(*lost)
    await_that(lambda: world.operator.metric("rekindle_operator_nodes_suspected") == 2)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") == "StoreUnreachable")
    assert (world.executors(), requests.claims()) == (before, [])
    store.proceed(*store.servers)
    await_that(lambda: world.driver.plans(), "the loss is forgotten")
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(requests.claims)  # for those that have found no other node meanwhile
    assert len(requests.claims()) <= 2
    world.finish()
    assert len(world.recoveries()) == 1
    assert {row["name"] for row in world.status()["lostNodes"]} == set(lost)
    assert len(world.status()["plans"]) == len(world.driver.plans())
    await_that(requests.is_clear)


def test_a_recovery_that_somebody_deletes_in_the_middle_is_told_anew(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[AUTOSCALER])
    world.start(nodes=4)
    lost = world.executors_nodes()[:2]
    world.lose(*lost)
    await_that(lambda: requests.counts()["ProvisioningRequest"] == 2)
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    plans = len(world.driver.plans())
    (recovery,) = world.recoveries()
    delete_recovery(world, recovery["metadata"]["name"])
    await_that(lambda: uids(world) not in ([], [recovery["metadata"]["uid"]]), "it is not there")
    await_that(lambda: requests.counts()["ProvisioningRequest"] == 2)
    world.pause()
    assert requests.counts()["ProvisioningRequest"] == 2
    assert len(world.driver.plans()) == plans, "it was planned again"
    world.finish()
    assert {row["name"] for row in world.status()["lostNodes"]} == set(lost)
    assert len(world.recoveries()) == 1
    await_that(requests.is_clear)


def test_requests_and_notes_that_somebody_deletes_are_not_made_beyond_what_is_missing(
    world: World, requests: NodeRequests
) -> None:
    world.make_class(provisioning=[KARPENTER])
    world.start(nodes=4)
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: len(requests.claims()) == 2)
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    claim = requests.claims()[0]["metadata"]
    requests.api.delete(path_of(NODE_CLAIM, name=claim["name"]), {})
    await_that(lambda: claim["uid"] not in {item["metadata"]["uid"] for item in requests.claims()})
    (note,) = requests.notes()
    name = note["metadata"]["name"]
    requests.api.delete(path_of(CONFIG_MAP, world.namespace, name), {})
    await_that(lambda: requests.notes(), "nothing is noted any more")
    world.pause()
    assert len(requests.claims()) <= 2
    world.finish()
    await_that(requests.is_clear)
    assert len(world.recoveries()) == 1


def delete_recovery(world: World, name: str) -> None:
    world.custom.delete_namespaced_custom_object(
        GROUP, VERSION, world.namespace, "recoveries", name
    )


def uids(world: World) -> list[str]:
    return [item["metadata"]["uid"] for item in world.recoveries()]
