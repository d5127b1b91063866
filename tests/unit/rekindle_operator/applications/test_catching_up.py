"""Whole applications whose pods are back, from there to the end of their Recoveries."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
import spark_objects as objects
from gated_world import KARPENTER, World
from operator_world import tell

from rekindle_operator.applications import application_incident
from rekindle_operator.applications.stream_progress import CatchUp

BEHIND = CatchUp(None, "Its pods run. Not caught up yet: orders.")


@pytest.fixture
def back(made: Callable[..., World]) -> World:
    """One application has lost its executor, and its pods are back; it has not caught up."""
    world = made(provisioning=(KARPENTER,))
    world.progress.said["high"] = BEHIND
    world.lose("b")
    world.turn()
    tell(world.known.registry, objects.node("c", "2"))
    world.replaced("high")
    world.turn()
    world.run("high", "c")
    assert not world.progress.asked, "its pods are not back"
    world.turn()
    world.turn(10.0)
    return world


def test_an_application_that_is_behind_is_catching_up_until_it_says_otherwise(back: World) -> None:
    told = back.story("high")
    assert (told["phase"], told["reason"]) == ("CatchingUp", "CatchingUp")
    assert told["message"] == BEHIND.text
    assert "backAt" not in told["queries"][0]
    assert "caughtUpBy" not in told
    assert told["podsBackAt"]
    back.turn(60.0)
    back.progress.said["high"] = CatchUp("Progress", "Caught up: orders (as before).")
    back.turn()
    told = back.story("high")
    assert (told["phase"], told["caughtUpBy"]) == ("Recovered", "Progress")
    assert told["message"].endswith("Caught up: orders (as before).")
    assert told["queries"][0]["backAt"] > told["podsBackAt"]


def test_where_nothing_is_known_the_pods_count(back: World) -> None:
    back.progress.said["high"] = CatchUp("Pods", "Its driver lists no batch.")
    back.turn()
    told = back.story("high")
    assert (told["phase"], told["reason"], told["caughtUpBy"]) == ("Recovered", "Recovered", "Pods")


def test_one_that_never_catches_up_ends_and_says_so(back: World) -> None:
    back.progress.said["high"] = CatchUp("Pods", "Not caught up within 30 minutes.", is_behind=True)
    back.turn()
    told = back.story("high")
    assert (told["phase"], told["reason"]) == ("Recovered", "StillBehind")
    assert told["caughtUpBy"] == "Pods"
    assert not back.shell.buckets


def test_the_driver_is_asked_about_the_time_since_its_pods_are_back(back: World) -> None:
    asked = [(lost_at, at) for name, lost_at, at in back.progress.asked if name == "high"]
    (first, at), *others = asked
    assert first is not None
    assert at - first >= timedelta(seconds=1)
    assert not others
    back.turn(60.0)
    assert back.progress.asked[-1][2] == at, "the time begins again"
    assert back.progress.kept == {"high"}


def test_pods_of_a_policy_do_not_wait_for_an_application_that_catches_up(back: World) -> None:
    assert back.shell.buckets == frozenset()
    assert [demand.missing for demand in back.shell.demands] == [0]
    back.lose("a")
    back.turn()
    assert back.shell.buckets, "another application has lost its node"
    assert back.story("high")["phase"] == "CatchingUp"


def test_another_loss_begins_again(back: World) -> None:
    back.lose("c")
    back.turn()
    told = back.story("high")
    assert told["phase"] == "Recovering"
    assert "podsBackAt" not in told
    back.turn()
    assert back.progress.kept == frozenset(), "its driver is read on"
    assert len(back.recoveries) == 1


def test_an_executor_that_comes_later_changes_nothing(back: World) -> None:
    since = back.story("high")["podsBackAt"]
    asked = len(back.progress.asked)
    more = objects.kubeflow_executor(5, "high", driver_uid="driver-high", node="", phase="Pending")
    back.see(more)
    back.turn()
    assert back.story("high")["podsBackAt"] == since
    assert len(back.progress.asked) > asked
    assert back.story("high")["message"] == BEHIND.text


def test_an_executor_that_comes_later_and_finds_no_room_keeps_no_incident_open(
    back: World,
) -> None:
    more = objects.kubeflow_executor(5, "high", driver_uid="driver-high", node="", phase="Pending")
    back.see(more)
    back.progress.said["high"] = CatchUp("Progress", "Caught up: orders (as before).")
    back.turn()
    told = back.story("high")
    assert (told["phase"], told["caughtUpBy"]) == ("Recovered", "Progress")
    assert "1 executor run, and 1 more wait for a node." in told["message"]


def test_one_that_falls_below_its_minimum_is_not_recovered(back: World) -> None:
    back.progress.said["high"] = CatchUp("Progress", "Caught up: orders (as before).")
    gone = objects.kubeflow_executor(2, "high", driver_uid="driver-high", node="", phase="Pending")
    back.see(gone)
    back.turn()
    assert back.story("high")["phase"] == "CatchingUp"
    assert "caughtUpBy" not in back.story("high")


def test_another_operator_goes_on_with_the_same_time_and_holds_nothing_back(back: World) -> None:
    since = back.story("high")["podsBackAt"]
    other = back.operator()
    back.shell = other
    back.judge.knows_silence = False
    back.turn()
    assert other.buckets == frozenset(), "pods wait although all are back"
    back.judge.knows_silence = True
    back.turn()
    assert back.story("high")["podsBackAt"] == since
    assert len(back.recoveries) == 1


def test_a_notice_while_it_catches_up_holds_pods_back_until_it_is_withdrawn(back: World) -> None:
    back.progress.said["high"] = CatchUp("Progress", "Caught up: orders (as before).")
    back.announce("c")
    back.turn()
    told = back.story("high")
    assert (told["phase"], told["reason"]) == ("Recovering", "LossAnnounced")
    assert "podsBackAt" not in told
    assert back.shell.buckets, "what Spark makes when the node goes has to wait"
    back.announce()
    back.turn()
    back.turn(application_incident.SETTLE_SECONDS)
    told = back.story("high")
    assert (told["phase"], told["caughtUpBy"]) == ("Recovered", "Progress")
    assert len(back.recoveries) == 1


def test_one_of_which_nothing_was_lost_ends_without_a_look_at_its_queries(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.progress.said["high"] = BEHIND
    world.announce("b")
    world.turn()
    world.announce()
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    told = world.story("high")
    assert (told["phase"], told["reason"]) == ("Abandoned", "NoticeWithdrawn")
    assert told["endedAt"]
    assert told.keys().isdisjoint({"podsBackAt", "caughtUpBy"})
    assert not world.progress.asked


def test_one_whose_node_was_announced_is_compared_with_the_time_before_its_loss(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.progress.said["high"] = BEHIND
    world.announce("b")
    world.turn()
    world.turn(600.0)
    world.lose("b")
    world.announce()
    world.turn()
    tell(world.known.registry, objects.node("c", "2"))
    world.replaced("high")
    world.turn()
    world.run("high", "c")
    world.turn()
    world.turn(application_incident.SETTLE_SECONDS)
    told = world.story("high")
    assert told["phase"] == "CatchingUp"
    ((name, lost_at, _),) = world.progress.asked
    assert name == "high"
    began = datetime.fromisoformat(told["startedAt"])
    assert lost_at is not None
    assert lost_at - began >= timedelta(seconds=600)
    world.progress.said["high"] = CatchUp("Progress", "Caught up: orders (as before).")
    world.turn()
    assert world.story("high")["phase"] == "Recovered"
