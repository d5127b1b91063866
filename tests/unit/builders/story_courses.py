"""Courses of things that happen to an application, for the tests of its story."""

from dataclasses import replace

from story_world import NODES, World

from rekindle.protocol import Orders
from rekindle_operator.policies.effective_policy import ReachedLimit
from rekindle_operator.recovery.recovery_inputs import NodeObservation, RecoveryTerms

LATER = ("n2", "n3", "n4")


def lose_three(world: World) -> None:
    world.lose(*LATER)
    world.step()


def lose_three_and_wait(world: World) -> None:
    lose_three(world)
    world.settle(3)


def bring_back(world: World) -> None:
    world.restore(*LATER)
    world.settle(6)


def recover(world: World) -> None:
    lose_three_and_wait(world)
    bring_back(world)
    world.complete_checkpoint()
    world.step()


def suspect(world: World) -> None:
    world.sight(n2=NodeObservation(suspected_at=world.now, domain="rack-7", uid="u2"))
    world.step()


def clear(world: World) -> None:
    suspect(world)
    world.sight(n2=NodeObservation(suspected_at=world.now - 1, heard_at=world.now))
    world.step()


def lose_one(world: World) -> None:
    world.lose("n4")
    world.step()


def lose_all(world: World) -> None:
    world.lose(*NODES)
    world.step()


def hold(world: World) -> None:
    world.cluster = replace(world.cluster, held=True)
    suspect(world)


def want_approval(world: World) -> None:
    world.terms = RecoveryTerms(approval_needed=True)
    lose_three(world)


def approve(world: World) -> None:
    want_approval(world)
    world.terms = RecoveryTerms(approval_needed=True, approved=True)
    world.step()


def wait_for_a_turn(world: World) -> None:
    world.terms = RecoveryTerms(limit=ReachedLimit("policy all", 1, ("flights/arrivals",)))
    lose_three(world)


def pause(world: World) -> None:
    world.terms = RecoveryTerms(paused=True)
    lose_three(world)


def pause_by_order(world: World) -> None:
    world.reading = replace(world.reading, orders=Orders(paused=True))
    lose_three(world)


def lose_driver(world: World) -> None:
    lose_one(world)
    world.kill_driver()
    world.step()


def bury_driver(world: World) -> None:
    world.bury_driver()
    world.step()


def start_driver_again(world: World) -> None:
    bury_driver(world)
    world.start_driver()
    world.step()


def start_afresh(world: World) -> None:
    lose_three(world)
    world.bury_driver()
    world.step()
    world.lose("n1")
    world.start_driver(resumed=False)
    world.step()


def recover_from_one(world: World) -> None:
    world.lose("n2")
    world.settle()
    world.complete_checkpoint()
    world.step()
    assert world.status().phase == "Recovered"


def place_all(world: World) -> None:
    lose_one(world)
    world.step()


def catch_up(world: World) -> None:
    lose_one(world)
    world.settle()


def finish(world: World) -> None:
    lose_three(world)
    world.report(finished=True)
    world.reading = replace(world.reading, heartbeat=None)
    world.tell(world.case, tuple(world.plans), world.decide())
