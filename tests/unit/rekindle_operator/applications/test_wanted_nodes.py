"""Which pods of whole applications an autoscaler sees, and for which a place is kept."""

from collections.abc import Callable
from typing import Any

import pytest
import spark_objects as objects
from gated_world import GATE, KARPENTER, QUOTA, World
from operator_world import tell

from rekindle_operator.applications import application_incident


def test_an_autoscaler_sees_the_most_important_application_alone(
    broken: Callable[..., World],
) -> None:
    world = broken("low", "high", provisioning=())
    assert (world.gates("low"), world.gates("high")) == ([GATE], [])
    world.turn()
    assert world.gates("low") == [GATE]


def test_a_less_important_pod_that_finds_no_node_keeps_no_other_from_an_autoscaler(
    broken: Callable[..., World],
) -> None:
    world = broken("low", provisioning=())
    world.turn(application_incident.COMING_SECONDS_MAX)
    assert world.gates("low") == [], "it is all that waits, and no other is expected any more"
    world.replaced("high")
    world.turn()
    assert world.gates("high") == []


@pytest.mark.parametrize("provisioning", [(), (KARPENTER,)], ids=["autoscaler", "provider"])
@pytest.mark.parametrize("deleted", [(), ("low", "high")], ids=["standing", "deleted"])
def test_pods_that_spark_is_about_to_make_keep_their_turn(
    made: Callable[..., World], provisioning: tuple[Any, ...], deleted: tuple[str, ...]
) -> None:
    world = made(provisioning=provisioning)
    world.lose("a", "b")
    world.turn()
    world.forget_executors(*deleted)
    world.turn()
    world.replaced("low")
    tell(world.known.registry, objects.node("c", "2"))
    for _ in range(3):
        world.turn(10.0)
        assert world.gates("low") == [GATE], "the node is kept for the more important one"
    world.replaced("high")
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([GATE], [])
    world.run("high", "c")
    world.turn()
    if provisioning:
        tell(world.known.registry, objects.node("d", "2"))
        world.turn()
    assert world.gates("low") == []


def test_a_place_is_kept_for_a_minute_for_pods_that_nobody_makes(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("a", "b")
    world.turn()
    world.forget_executors("low", "high")
    world.replaced("low")
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    assert world.gates("low") == [GATE]
    world.turn(application_incident.COMING_SECONDS_MAX)
    assert world.gates("low") == []


def test_an_autoscaler_sees_what_a_more_important_application_needs_that_has_yet_to_come(
    made: Callable[..., World],
) -> None:
    world = made(
        provisioning=(), applications=[{"name": "high", "dependsOn": ["low"]}, {"name": "low"}]
    )
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.turn()
    assert world.gates("low") == []


def test_a_less_important_application_that_lacks_pods_keeps_no_other_from_an_autoscaler(
    broken: Callable[..., World],
) -> None:
    world = broken("high", provisioning=())
    assert world.gates("high") == []


def test_a_pod_that_another_gate_holds_keeps_no_other_from_an_autoscaler(
    made: Callable[..., World],
) -> None:
    world = made()
    world.lose("a", "b")
    world.turn()
    world.replaced("low")
    world.replaced("high", QUOTA)
    world.turn()
    assert (world.gates("low"), world.gates("high")) == ([GATE], [QUOTA])
    world.turn()
    assert world.gates("low") == []


def test_an_autoscaler_sees_what_the_most_important_application_depends_on(
    broken: Callable[..., World],
) -> None:
    needs = [{"name": "high", "dependsOn": ["low"]}, {"name": "low", "dependsOn": ["high"]}]
    world = broken("low", "high", provisioning=(), applications=needs)
    assert (world.gates("low"), world.gates("high")) == ([], []), "they come together"
