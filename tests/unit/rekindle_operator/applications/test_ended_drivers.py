"""When the Recovery of a driver without a SparkApplication ends: by who may make another one."""

from collections.abc import Callable

import pytest
import spark_objects as objects
from gated_world import GATE, KARPENTER, World, iso
from spark_objects import Body

from rekindle_operator.applications import application_incident

SELECTOR = {"sparkApplications": {"labelSelector": {}}, "drivers": {"labelSelector": {}}}


def test_a_recovery_ends_with_a_driver_that_nobody_makes_again(
    made: Callable[..., World],
) -> None:
    """The pod of a driver of spark-submit stands there after its end."""
    world = made(provisioning=(KARPENTER,), selector=SELECTOR)
    world.see(objects.submitted_driver("nightly", node="drivers"))
    world.see(objects.submitted_executor(1, node="a"))
    world.lose("a")
    world.turn()
    assert world.story("nightly")["phase"] == "Recovering"
    world.see(objects.submitted_driver("nightly", node="drivers", phase="Succeeded"))
    world.turn()
    assert (world.story("nightly")["phase"], world.story("nightly")["reason"]) == (
        "Abandoned",
        "ApplicationGone",
    )
    again = objects.submitted_driver("nightly", start="t", node="", phase="Pending", second=60)
    again["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(again)
    world.turn()
    assert world.story("nightly")["phase"] == "Recovering", "its next start waits as others do"


def fail_driver(world: World, *owners: Body, phase: str = "Failed") -> None:
    """A driver on a node that lives ends because of a node that is lost."""
    world.see(objects.submitted_driver("nightly", node="drivers", owners=owners))
    world.see(objects.submitted_executor(1, node="a"))
    world.lose("a")
    world.turn()
    assert world.story("nightly")["phase"] == "Recovering"
    ended = {"finishedAt": iso(1_795_000_000 + int(world.now)), "exitCode": 1}
    statuses = [{"name": "spark-kubernetes-driver", "state": {"terminated": ended}}]
    status = {"phase": phase, "containerStatuses": statuses}
    world.see(objects.submitted_driver("nightly", node="drivers", owners=owners, status=status))
    world.turn()


def test_a_recovery_goes_on_while_a_job_makes_another_driver(made: Callable[..., World]) -> None:
    world = made(provisioning=(KARPENTER,), selector=SELECTOR)
    job = objects.owner("Job", "nightly", "uid-of-job", "batch/v1")
    fail_driver(world, job)
    world.turn(application_incident.SILENT_SECONDS_MAX - 10.0)
    assert world.story("nightly")["phase"] != "Abandoned"
    assert any("nightly" in bucket for bucket in world.shell.buckets), "its next driver waits too"
    again = objects.submitted_driver(
        "nightly", start="t", node="", phase="Pending", second=60, owners=(job,)
    )
    again["spec"]["schedulingGates"] = [{"name": GATE}]
    world.see(again)
    world.turn(20.0)
    assert world.story("nightly")["phase"] != "Abandoned"
    assert len([name for name in world.recoveries if name.startswith("nightly")]) == 1


def test_a_recovery_ends_where_a_job_makes_no_other_driver_for_ten_minutes(
    made: Callable[..., World],
) -> None:
    world = made(provisioning=(KARPENTER,), selector=SELECTOR)
    fail_driver(world, objects.owner("Job", "nightly", "uid-of-job", "batch/v1"))
    world.turn(application_incident.SILENT_SECONDS_MAX)
    world.turn(application_incident.SILENT_SECONDS_MAX)
    assert world.story("nightly")["phase"] == "Abandoned"
    assert len([name for name in world.recoveries if name.startswith("nightly")]) == 1


@pytest.mark.parametrize(
    ("phase", "kind", "controls"),
    [("Failed", "ConfigMap", False), ("Succeeded", "Job", True)],
    ids=["nobody controls it", "it has succeeded"],
)
def test_a_recovery_ends_at_once_with_a_driver_after_which_nobody_makes_another(
    made: Callable[..., World], phase: str, kind: str, controls: bool
) -> None:
    world = made(provisioning=(KARPENTER,), selector=SELECTOR)
    fail_driver(world, objects.owner(kind, "nightly", "uid", controls=controls), phase=phase)
    assert world.story("nightly")["phase"] == "Abandoned"
