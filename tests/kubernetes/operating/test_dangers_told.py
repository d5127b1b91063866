"""What conditions say before anything is lost: of operators, records, and what cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from operating_world import World, await_that

from rekindle.protocol import tree
from rekindle_local import processes
from testbed.control_plane import ControlPlane

DEFINITION = Path(__file__).parents[3] / "crds" / "recoverypolicies.yaml"
POLICIES = "recoverypolicies.rekindle.dev"
STRATEGIES = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/strategy/enum"


@contextmanager
def newer_definitions(plane: ControlPlane) -> Iterator[None]:
    """The API server takes a strategy that we have never heard of."""
    with plane.api_client() as api_client:
        extensions = client.ApiextensionsV1Api(api_client)
        add = [{"op": "add", "path": f"{STRATEGIES}/-", "value": "gradual"}]
        extensions.patch_custom_resource_definition(POLICIES, add)
        try:
            yield
        finally:
            known: Any = yaml.safe_load(DEFINITION.read_text())
            extensions.patch_custom_resource_definition(POLICIES, {"spec": known["spec"]})


def test_an_operator_without_a_standby_says_so_until_there_is_one(world: World) -> None:
    world.start()
    await_that(lambda: "One operator runs" in world.condition("CoordinationAtRisk")["message"])
    standby = world.make_operator("operator-b")
    standby.start()
    await_that(lambda: "One operator" not in world.condition("CoordinationAtRisk")["message"])
    standby.kill()
    await_that(lambda: "One operator runs" in world.condition("CoordinationAtRisk")["message"])


def test_a_record_that_cannot_be_read_is_told_until_it_can(world: World) -> None:
    world.start()
    path = world.driver.place.path(tree.STATISTICS)
    sound, _ = world.driver.connection.get(path) or (b"", 0)
    world.driver.connection.put(path, b"{")
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") == "BadRecord")
    assert "flights" in world.condition("CoordinationAtRisk")["message"]
    await_that(lambda: world.events("BadRecord"))
    world.driver.connection.put(path, sound)
    await_that(lambda: world.condition("CoordinationAtRisk").get("reason") != "BadRecord")


def test_a_policy_that_cannot_be_read_says_so(world: World, control_plane: ControlPlane) -> None:
    world.start()
    with newer_definitions(control_plane):

        def is_made() -> bool:
            try:
                world.make_policy("newer", strategy="gradual")
            except ApiException:
                return False
            return True

        assert processes.await_condition(is_made, limit_seconds=60)
        await_that(lambda: world.condition("Accepted", "newer").get("reason") == "BadResource")
        assert "gradual" in world.condition("Accepted", "newer")["message"]
        await_that(lambda: world.events("BadResource"))
        world.change_policy("newer", strategy="blocking")
        await_that(lambda: world.condition("Accepted", "newer").get("status") == "True")


def test_what_the_loss_of_a_zone_would_stop_is_told_beforehand_and_placement_goes_by_it(
    world: World,
) -> None:
    """Two sources, each with queries of its own: of priority 4 behind one, 6 behind the other."""
    world.start(zones=("a", "b"), placement="domains")
    await_that(lambda: "60% if" in world.condition("DomainLossSurvived").get("message", ""))
    found = world.condition("DomainLossSurvived")
    assert (found["status"], found["reason"]) == ("True", "SomeSurvives")
    assert "40% if" in found["message"]
    await_that(lambda: shares(world).keys() == {"a", "b"})
    assert sorted(shares(world).values()) == [0.4, 0.6]


def shares(world: World) -> dict[str, float]:
    """By zone, what the metric says that its loss would stop."""
    metric = "rekindle_operator_domain_loss_stops_ratio{"
    lines = [line for line in world.operator.page("/metrics").splitlines() if metric in line]
    return {
        line.partition('domain="')[2].partition('"')[0]: float(line.rpartition(" ")[2])
        for line in lines
    }
