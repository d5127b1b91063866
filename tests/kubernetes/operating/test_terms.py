"""What people say: approval, pause, dry run, priorities, policies that do not fit."""

from operating_world import World, await_that

from rekindle.protocol import PlanOrder


def test_a_recovery_waits_for_approval(world: World) -> None:
    world.start(approval="Manual")
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.phase() == "AwaitingApproval")
    await_that(lambda: pods.isdisjoint(world.executors()))
    assert world.driver.plans() == []
    (recovery,) = world.recoveries()
    world.custom.patch_namespaced_custom_object(
        "rekindle.dev",
        "v1alpha1",
        world.namespace,
        "recoveries",
        recovery["metadata"]["name"],
        {"spec": {"approved": True}},
    )
    await_that(lambda: world.driver.plans(), "the approval was not seen")
    await_that(lambda: world.phase() == "AwaitingCheckpoint")


def test_a_paused_policy_plans_nothing_until_it_goes_on(world: World) -> None:
    world.start()
    world.change_policy(paused=True)
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.phase() == "Held")
    epoch = world.driver.member.epoch
    await_that(lambda: world.driver.member.epoch > epoch + 10)
    assert world.driver.plans() == []
    assert pods <= world.executors()
    world.change_policy(paused=False)
    await_that(lambda: world.driver.plans())
    await_that(lambda: pods.isdisjoint(world.executors()))


def test_a_dry_run_tells_its_plan_and_touches_nothing(world: World) -> None:
    world.start()
    world.change_policy(dryRun=True)
    pods = world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.recoveries() and world.status().get("plans"))
    status = world.status()
    assert status["dryRun"] is True
    assert world.driver.plans() == []
    assert pods <= world.executors()


def test_priorities_of_a_policy_hold_for_plans(world: World) -> None:
    world.start(priorities=[{"query": "query-00-out", "priority": 10}])
    placement = world.driver.member.placement
    hosts = {placement[name] for name in placement if name.startswith("query-00/")}
    nodes = {pod.spec.node_name for pod in world.driver.executors() if pod.status.pod_ip in hosts}
    world.lose(*world.executors_nodes()[:1], *nodes)
    await_that(lambda: world.driver.plans())
    order = world.driver.plans()[0][1].order
    assert isinstance(order, PlanOrder)
    assert order.query_partitions[0].startswith("query-00-out")


def test_policies_tell_what_is_wrong_with_them(world: World) -> None:
    world.start()
    await_that(lambda: world.condition("Protected").get("status") in ("True", "False"))
    world.make_policy("second", priorities=[{"query": "nowhere", "priority": 3}])
    world.make_policy("third", className="missing")
    await_that(lambda: world.condition("Exclusive").get("reason") == "PoliciesOverlap")
    await_that(lambda: world.condition("Exclusive", "second").get("status") == "False")
    await_that(lambda: world.condition("Accepted", "third").get("reason") == "ClassMissing")
    world.change_policy(priorities=[{"query": "nowhere", "priority": 3}])
    await_that(lambda: world.condition("Accepted").get("reason") == "UnknownQueries")
    assert "query-00-out" in world.condition("Accepted")["message"]


def test_a_driver_without_its_sidecar_is_unprotected(world: World) -> None:
    world.start()
    body = {
        "metadata": {
            "name": "other-driver",
            "labels": {"spark-role": "driver", "spark-app-name": "other"},
        },
        "spec": {"containers": [{"name": "spark-kubernetes-driver", "image": "spark:4.3"}]},
    }
    world.core.create_namespaced_pod(world.namespace, body)
    await_that(lambda: world.condition("Protected").get("reason") == "SidecarMissing")
    rows = {row["name"]: row for row in world.policy()["status"]["applications"]}
    assert (rows["other"]["protected"], rows["other"]["reason"]) == (False, "SidecarMissing")
