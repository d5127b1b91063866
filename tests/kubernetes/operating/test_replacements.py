"""Each kind of provider under the running operator: asked once, and nothing is left at the end."""

from typing import Any

from node_requests import AUTOSCALER, KARPENTER, NodeRequests, machines
from operating_world import World, await_that

ONE = {"nodesPerIncidentMax": 1, "nodesAtOnceMax": 1}


def test_missing_nodes_are_asked_for_once_and_given_up_when_they_are_not_needed(
    world: World, requests: NodeRequests
) -> None:
    entries: list[dict[str, Any]] = [AUTOSCALER, KARPENTER, machines(world.namespace)]
    requests.deploy_machines()
    world.make_class(provisioning=[{**entry, "limits": ONE} for entry in entries])
    world.start(nodes=4)
    none = dict(requests.counts())
    one_each = dict.fromkeys(none, 1)
    world.lose(*world.executors_nodes()[:3])
    await_that(lambda: requests.notes(), "nothing was noted")
    world.operator.kill()  # whatever it was at
    world.operator.start()
    await_that(lambda: requests.counts() == one_each, "there is no request for each lost node")
    await_that(lambda: len(world.status().get("requests", ())) == 3)
    world.operator.kill()
    world.operator.start()
    await_that(lambda: world.operator.acts)
    world.pause()
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
