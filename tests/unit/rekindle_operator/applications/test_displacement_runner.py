"""Executors that make room in an incident, from the choice to the end of it."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import spark_objects as objects
from gated_world import GATE, KARPENTER, World, executor
from operator_world import tell

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    Displaced,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_operator.applications import application_recovery, displacement_runner
from rekindle_operator.applications.application_incident import OpenStory
from rekindle_operator.applications.application_plan import (
    ApplicationDemand,
    PlanSolver,
    PodDemand,
    PodHeld,
    plan,
)
from rekindle_operator.applications.displacement import NotInTime, RoomMade
from rekindle_operator.applications.displacement_runner import DisplacementRunner


def displacing(made: Callable[..., World], **more: Any) -> World:
    """The node of the more important application is lost, and its new executor waits: there is
    room for it on the other one's node alone."""
    world = made(provisioning=(KARPENTER,), displacement="LessImportant", **more)
    world.lose("b")
    world.turn()
    world.replaced("high")
    return world


LOW = executor("low", 1)["metadata"]["name"]


def test_without_leave_of_the_class_nothing_that_runs_makes_room(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,))
    world.lose("b")
    world.turn()
    world.replaced("high")
    for _ in range(5):
        world.turn()
    assert (world.deleted, world.gates("high"), world.story("low")) == ([], [GATE], {})


def test_a_less_important_application_makes_room_and_comes_back_by_plan(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.turn()
    assert world.deleted == [], "before anybody can read why"
    story = world.story("low")
    assert (story["phase"], story["reason"]) == ("Recovering", "Displaced")
    assert (story["displaced"]["by"], story["displaced"]["executors"]) == ("high", 1)
    assert "makes room for high" in story["message"]
    assert "make room for it: low" in world.story("high")["message"]
    assert [event["reason"] for event in world.events].count("Displaced") == 2, "its owner too"
    world.turn()
    world.turn()
    assert world.deleted == [LOW]
    assert world.gates("high") == [], "its room is on the way"
    world.remade("low", GATE)
    world.turn()
    assert world.gates("low") == [GATE]
    world.run("high", "a")
    world.turn()
    assert world.story("low")["displaced"]["goneAt"]
    world.turn(10.0)
    assert world.story("high")["phase"] == "Recovered"
    assert "make room for it: low" in world.story("high")["plans"][0]["text"]
    world.turn()
    assert world.gates("low") == [GATE]
    assert {item.incident.application for item in world.shell.demands} == {"low"}
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    world.run("low", "c")
    world.turn()
    world.turn(10.0)
    assert world.story("low")["phase"] == "Recovered"
    assert (world.deleted, world.shell.buckets) == ([LOW], frozenset())


def test_while_the_class_is_gone_nothing_is_deleted_and_then_the_displacement_is_over(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.turn()
    assert world.story("low")["reason"] == "Displaced"
    class_ = next(iter(world.known.classes.values()))
    world.known.forget_class(class_.metadata.name)
    for _ in range(3):
        world.turn()
    assert (world.deleted, world.gates("high")) == ([], [])
    world.run("high", "drivers")
    world.known.see_class(class_)
    for _ in range(5):
        world.turn()
    assert world.deleted == [], "it was for the sake of a pod that has its node"


def test_an_application_keeps_its_minimum_where_that_is_enough(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,), displacement="LessImportant")
    tell(world.known.registry, objects.node("c", "2"))
    world.see(executor("low", 7, node="c"))
    world.lose("b")
    world.turn()
    world.replaced("high")
    for _ in range(4):
        world.turn()
    assert len(world.deleted) == 1
    story = world.story("low")
    assert (story["phase"], story["displaced"]["keeps"]) == ("CatchingUp", 1)
    assert "it keeps 1" in story["message"]
    assert "lostAt" not in story["queries"][0], "it runs all the time"


def test_nothing_makes_room_on_a_node_where_what_waits_may_not_run(
    made: Callable[..., World],
) -> None:
    """Something else that waits may run there."""
    world = displacing(made)
    pod = world.pods[executor("high", 2)["metadata"]["name"]]
    pod["spec"]["nodeSelector"] = {"pool": "gpu"}
    world.see(pod)
    other = executor("low", 7, node="", phase="Pending")
    other["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(other)
    for _ in range(5):
        world.turn()
    assert world.deleted == []


def test_another_operator_goes_on_with_what_makes_room(made: Callable[..., World]) -> None:
    world = displacing(made)
    world.turn()
    world.shell = world.operator()
    for _ in range(3):
        world.turn()
    assert (world.deleted, world.gates("high")) == ([LOW], [])
    assert len(world.recoveries) == 2


def test_another_operator_has_the_same_executors_deleted(made: Callable[..., World]) -> None:
    """The older one, on the node where the pod that waits may run."""
    world = made(provisioning=(KARPENTER,), displacement="LessImportant")
    for name, pool in (("a", "gpu"), ("c", "cpu")):
        node = objects.node(name, "2")
        node["metadata"].setdefault("labels", {})["pool"] = pool
        tell(world.known.registry, node)
    world.see(executor("low", 7, node="c"))
    world.lose("b")
    world.turn()
    world.replaced("high")
    pod = world.pods[executor("high", 2)["metadata"]["name"]]
    pod["spec"]["nodeSelector"] = {"pool": "gpu"}
    world.see(pod)
    world.turn()
    assert world.story("low")["displaced"]["uids"] == [executor("low", 1)["metadata"]["uid"]]
    world.shell = world.operator()
    for _ in range(3):
        world.turn()
    assert (world.deleted, world.gates("high")) == ([LOW], [])
    assert world.story("low")["displaced"]["keeps"] == 1


def test_a_choice_that_was_not_made_in_time_is_told_and_tried_again(
    made: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = displacing(made)
    pause, ticks = displacement_runner.PAUSE_SECONDS, itertools.count()

    def slow(_: object, *more: Any) -> PlanSolver:
        return PlanSolver(lambda: world.now + next(ticks), *more)

    for seconds, cpu in ((0.0, "3"), (pause, "3500m"), (2 * pause, "3")):
        # as long as the pause lasts nothing is tried, whatever changes
        if seconds:
            tell(world.known.registry, objects.node("drivers", cpu))
            world.turn(seconds - 1.0)
            assert (world.deleted, world.story("low")) == ([], {})
        with monkeypatch.context() as patched:
            patched.setattr(application_recovery, "PlanSolver", slow)
            ticks = itertools.count()
            world.turn(3 * pause)
        assert "was not found out within" in world.story("high")["message"]
    for _ in range(3):
        world.turn()
    assert world.story("low") == {}
    world.turn(8 * pause)
    assert world.story("low")["reason"] == "Displaced"
    assert "found out" not in world.story("high")["message"]


def test_pauses_after_choices_that_were_not_made_in_time_grow() -> None:
    nothing = cast(Any, None)
    runner = DisplacementRunner(nothing, nothing, nothing, nothing)
    held = (PodHeld("low-1", "a", 1_000),)
    low = ApplicationDemand("low", 1, running=1, driver_runs=True, minimum=0, held=held)
    high = ApplicationDemand("high", 9, executors=(PodDemand("high-1", 1_000),), driver_runs=True)
    known = {"low": low, "high": high}
    ticks = itertools.count(step=2)
    solver = PlanSolver(lambda: float(next(ticks)))
    made = plan(known.values(), {"a": 0}, solver)
    for seconds in (10, 20, 40, 80, 160, 320, 600, 600):
        found = runner.choose("all", known, made, RoomMade(), lambda _: {"a"}, solver)
        assert found == NotInTime("high")
        now = next(ticks)
        assert not runner.is_due("all", now + seconds - 3)
        assert runner.is_due("all", now + seconds)
        ticks = itertools.count(now + seconds, 2)
    runner.forget("all")
    assert not runner.is_due("all", now + 10_000)


@pytest.mark.parametrize(
    ("began", "called_off", "first"),
    [(0, False, {"high"}), (0, True, set()), (2, False, set()), (None, False, set())],
)
def test_room_is_for_the_incident_for_which_it_was_made(
    began: int | None, called_off: bool, first: set[str]
) -> None:
    def at(seconds: int) -> datetime:
        return datetime.fromtimestamp(1_795_000_000 + seconds, UTC)

    def story(name: str, started: datetime | None, told: Displaced | None = None) -> OpenStory:
        spec = RecoverySpec(ApplicationReference("Driver", name), 1, "all", "default")
        return OpenStory("flights/all", spec, RecoveryStatus(started_at=started), told)

    told = Displaced(at(1), "high", 1, gone_at=at(3), called_off=called_off)
    open_ = {Place("flights", "low"): story("low", at(1), told)}
    if began is not None:
        open_[Place("flights", "high")] = story("high", at(began))
    assert displacement_runner.comes_first(open_) == first


def test_what_spark_makes_in_place_is_left_alone_also_without_a_gate(
    made: Callable[..., World],
) -> None:
    """The webhook is away: there would be no end to it."""
    world = displacing(made)
    for _ in range(3):
        world.turn()
    world.remade("low")
    world.run("low", "a")
    for _ in range(5):
        world.turn()
    assert world.deleted == [LOW]


END: dict[str, Callable[[World], None]] = {
    "paused": lambda world: world.set_policy(2, paused=True),
    "a dry run": lambda world: world.set_policy(2, dryRun=True),
    "deleted": lambda world: world.known.forget_policy("flights", "all"),
    "another leads": lambda world: world.shell.forget(),
}


@pytest.mark.parametrize("ends", END)
def test_nothing_is_deleted_once_the_policy_does_not_act(
    made: Callable[..., World], ends: str
) -> None:
    world = displacing(made)
    world.turn()
    world.errands = {}
    world.turn()
    (errand,) = (it for key, it in world.errands.items() if key.startswith("displace "))
    world.errands = None
    END[ends](world)
    if ends != "another leads":
        world.turn()
        assert world.gates("high") == []
    errand()
    assert world.deleted == []


def test_a_displacement_that_a_pause_has_called_off_is_not_taken_up_again(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.turn()
    world.set_policy(2, paused=True)
    world.turn()
    assert world.story("low")["displaced"]["goneAt"]
    world.set_policy(3)
    for _ in range(4):
        world.turn()
    assert world.deleted == []


def test_nothing_is_deleted_while_its_recovery_cannot_be_written(
    made: Callable[..., World],
) -> None:
    world = displacing(made)
    world.errands = {}
    for _ in range(20):
        world.turn()
    assert not any(key.startswith(("displace ", "gate ")) for key in world.errands)
    for errand in world.errands.values():
        errand()
    world.errands = None
    for _ in range(3):
        world.turn()
    assert world.deleted == [LOW]


def test_what_does_not_go_within_ten_minutes_stays(made: Callable[..., World]) -> None:
    """Until then further executors of the policy wait."""
    world = displacing(made)
    world.turn()
    world.errands = {}
    world.turn()
    world.turn(displacement_runner.ROOM_SECONDS_MAX)
    for errand in world.errands.values():
        errand()
    world.errands = None
    for _ in range(4):
        world.turn()
    world.turn(10.0)
    assert (world.deleted, world.story("low")["phase"]) == ([], "Recovered")


def test_an_application_makes_room_once_in_an_incident(made: Callable[..., World]) -> None:
    """Another one, which fits nowhere, keeps the incident open."""
    world = displacing(made)
    world.see(objects.kubeflow_driver("huge", uid="driver-huge", node="drivers"))
    tell(world.known.registry, objects.kubeflow_application("huge"))
    huge = objects.kubeflow_executor(
        1,
        "huge",
        driver_uid="driver-huge",
        node="",
        phase="Pending",
        containers=(objects.container("spark-kubernetes-executor", cpu="64"),),
    )
    huge["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(huge)
    for _ in range(4):
        world.turn()
    world.remade("low", GATE)
    world.run("high", "a")
    tell(world.known.registry, objects.node("c", "2"))
    world.turn()
    world.turn()
    world.run("low", "c")
    world.turn()
    world.turn(10.0)
    assert world.story("low")["phase"] == "Recovered"
    world.lose("a")
    world.turn()
    world.remade("high", GATE, number=3)
    for _ in range(5):
        world.turn()
    assert world.deleted == [LOW], "back and forth"
    assert world.story("high")["reason"] == "NoCapacity"


@pytest.mark.parametrize("more", [{"dryRun": True}, {"approval": "Manual"}])
def test_what_would_make_room_is_told_and_stays(
    made: Callable[..., World], more: dict[str, Any]
) -> None:
    world = made(provisioning=(KARPENTER,), displacement="LessImportant", **more)
    world.lose("b")
    world.turn()
    world.remade("high")
    for _ in range(3):
        world.turn()
    assert "low would make room for high" in world.story("high")["message"]
    assert (world.deleted, world.story("low")) == ([], {})
    if "approval" in more:
        for body in world.recoveries.values():
            body["spec"]["approved"] = True
        world.turn()
        world.replaced("high")
        for _ in range(4):
            world.turn()
        assert world.deleted == [LOW]
