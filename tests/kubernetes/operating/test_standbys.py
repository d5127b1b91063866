"""Two operators: whatever becomes of the one that acts, the other one goes on, nothing twice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from grounds import Grounds
from operating_world import World, await_that, new_world
from operator_process import OperatorProcess

from rekindle_zookeeper import Connection

# Short, so that nobody acts for seconds only; long enough for an API server that is busy.
LEASE_SECONDS = 6
ALONE = "One operator runs"


@dataclass
class Pair:
    """Of two operators `acting` acts, and `standby` stands by once a test has started it."""

    acting: OperatorProcess
    standby: OperatorProcess

    def swap(self) -> None:
        """The other one acts now."""
        self.acting, self.standby = self.standby, self.acting


@pytest.fixture(scope="module")
def pair(operators: Callable[..., OperatorProcess]) -> Pair:
    """For all tests of the module; who has acted last goes on."""
    lease = ("--lease-seconds", str(LEASE_SECONDS))
    return Pair(*(operators(name, *lease) for name in ("operator-a", "operator-b")))


@pytest.fixture
def world(namespace: str, grounds: Grounds, connection: Connection, pair: Pair) -> Iterator[World]:
    """A world in which one operator acts and another one stands by."""
    if pair.acting.ended:
        pair.swap()
    with new_world(namespace, grounds, connection, pair.acting) as made:
        yield made


def alone(world: World) -> bool:
    """Whether the policy says that no operator stands by."""
    return ALONE in world.condition("CoordinationAtRisk")["message"]


def test_a_killed_operator_is_followed_by_its_standby_in_the_middle(
    world: World, pair: Pair
) -> None:
    """Without a standby, before and after, policies say so."""
    world.start()
    await_that(lambda: alone(world))
    pair.standby.start()
    await_that(lambda: not alone(world))
    lost = world.executors_nodes()[:2]
    # as long as their executors are heard they are suspected, and not lost
    world.nodes.lose(*lost)
    await_that(lambda: world.phase() == "Suspected")
    pair.acting.kill()
    pods = world.lose(*lost)
    await_that(lambda: world.driver.plans(), "the standby does not plan")
    await_that(lambda: pods.isdisjoint(world.executors()))
    world.finish()
    assert len(world.recoveries()) == 1
    assert world.lost_nodes() == set(lost)
    assert len(world.status()["plans"]) == len(world.driver.plans())
    await_that(lambda: alone(world))


def test_a_leader_that_ends_or_stands_still_is_followed_and_does_nothing_when_it_goes_on(
    world: World, pair: Pair
) -> None:
    world.start()
    pair.standby.start()
    assert pair.acting.end() == 0
    assert pair.acting.lines("operator-ended")
    await_that(lambda: pair.standby.acts)
    pair.swap()
    first = world.lose(*world.executors_nodes()[:1])
    await_that(lambda: world.driver.plans())
    await_that(lambda: first.isdisjoint(world.executors()))
    world.nodes.add(1, zone="a")
    await_that(lambda: world.driver.is_whole)
    world.end()

    pair.standby.start()
    pair.standby.mark()
    pair.acting.mark()
    pair.acting.stop()
    await_that(lambda: pair.standby.acts, "the standby does not take over")
    planned = len(world.driver.plans())
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    await_that(lambda: len(world.driver.plans()) > planned)
    pair.acting.proceed()
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: pair.acting.lines("lease-not-held"))
    await_that(lambda: not pair.acting.acts)
    assert pair.standby.acts
    assert pair.acting.lines("executor-deleted") == []
    assert len(world.recoveries()) == 2
    assert len(world.driver.plans()) == planned + 1
    pair.swap()  # the standby has gone on to act


def test_operators_that_come_after_a_loss_tell_which_nodes_were_lost(
    world: World, pair: Pair
) -> None:
    """By the record: neither the pods nor what the driver has said of them is left by then."""
    world.start()
    pair.standby.kill()
    pair.acting.kill()
    lost = world.executors_nodes()[:2]
    pods = world.lose(*lost)
    world.driver.give_up(*lost)
    for name in pods:
        world.core.delete_namespaced_pod(name, world.namespace, grace_period_seconds=0)
    await_that(lambda: not pods & world.executors(), "pods of lost executors are left")
    pair.acting.start()
    await_that(lambda: world.lost_nodes() == set(lost), "the Recovery does not name them")
    world.finish()
    assert world.lost_nodes() == set(lost)
    assert len(world.recoveries()) == 1
