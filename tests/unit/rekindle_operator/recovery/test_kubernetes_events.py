"""Events for people: what is told of a story, by which name, and how often."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from story_world import APPLICATION, NODES, RECOVERY, Kill, World, running

from rekindle.model.reasons import Reason
from rekindle_operator.api import custom_resources
from rekindle_operator.api.custom_resources import Condition, camel_case
from rekindle_operator.api.recovery_resource import NodeRequest, PlanMade, RecoveryStatus
from rekindle_operator.recovery import kubernetes_events
from rekindle_operator.recovery.kubernetes_events import KubernetesEvent, ObjectReference
from rekindle_operator.recovery.recovery_inputs import NodeObservation
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

NOW = datetime(2026, 11, 21, 17, 14, 51, 123_456, tzinfo=UTC)
POLICY = ObjectReference("rekindle.dev/v1alpha1", "RecoveryPolicy", "departures", "flights", "p")
WORDS = {camel_case(word) for words in (Reason, RecoveryReason) for word in words}


def play(kill: Kill = Kill.NEVER) -> World:
    """Three of four nodes are lost, and come back."""
    world = running()
    world.sight(n4=NodeObservation(suspected_at=world.now))
    world.step(kill)
    world.lose("n2", "n3", "n4")
    world.step(kill)
    for _ in range(3):
        world.step(kill)
        world.catch_up()
    world.sight(n4=NodeObservation())
    world.restore("n2", "n3", "n4")
    for _ in range(5):
        world.step(kill)
        world.catch_up()
    world.complete_checkpoint()
    world.step(kill)
    return world


def about(world: World, kind: str) -> list[KubernetesEvent]:
    return [item for item in world.announced.values() if item.about.kind == kind]


def test_a_recovery_gets_the_whole_story_in_order() -> None:
    found = [(item.type, item.reason) for item in about(play(), "Recovery")]
    assert found[:4] == [
        ("Warning", "SuspectedFailure"),
        ("Warning", "CorrelatedFailure"),
        ("Normal", "CorrelatedFailure"),
        ("Normal", "NodesRequested"),
    ]
    assert ("Warning", "NoCapacity") in found
    assert ("Normal", "NodeBack") in found
    assert ("Normal", "NodesArrived") in found
    assert ("Normal", "QueryCaughtUp") in found
    assert found[-1] == ("Normal", "Recovered")
    assert {reason for _, reason in found} <= WORDS


def test_an_application_gets_the_few_lines_that_matter() -> None:
    found = [item.reason for item in about(play(), "SparkApplication")]
    assert found == ["CorrelatedFailure", "Recovered"]


def test_a_loss_says_nodes_domain_and_queries() -> None:
    (loss, *_) = about(play(), "SparkApplication")
    assert loss.message == (
        "The failure is correlated: 3 nodes lost. Lost now: n4, n2, n3 in a. "
        "Lost queries: ranking, busiest, landed."
    )


@pytest.mark.parametrize("kill", list(Kill), ids=str)
def test_an_operator_that_dies_tells_nothing_twice_and_leaves_nothing_out(kill: Kill) -> None:
    assert play(kill).announced == play().announced


def test_a_refused_plan_is_a_warning_once() -> None:
    plan = PlanMade(number=7, at=NOW, reason="NodeBack", text="Plan 7.")
    refused = msgspec.structs.replace(plan, refused="its plan epoch 7 is behind 9")
    before, after = RecoveryStatus(plans=(plan,)), RecoveryStatus(plans=(refused,))
    (told,) = kubernetes_events.of_recovery(RECOVERY, None, before, after)
    assert (told.type, told.reason) == ("Warning", "PlanRefused")
    assert told.message == "Plan 7 was not carried out: its plan epoch 7 is behind 9"
    assert kubernetes_events.of_recovery(RECOVERY, None, after, after) == ()


def test_a_request_that_fails_is_a_warning() -> None:
    asked = NodeRequest("r-1", "karpenter", 1, "Pending", NOW)
    failed = msgspec.structs.replace(asked, outcome="Failed", message="No quota.")
    before, after = RecoveryStatus(requests=(asked,)), RecoveryStatus(requests=(failed,))
    (told,) = kubernetes_events.of_recovery(RECOVERY, None, before, after)
    assert (told.type, told.reason) == ("Warning", "RequestFailed")
    assert told.message == "The request r-1 (karpenter) has failed: No quota."


def condition(kind: str, status: str, reason: str) -> Condition:
    return Condition(kind, status, reason, "Because.", NOW, 1)  # type: ignore[arg-type]


TURNS = [
    ([], [("Protected", "True", "SidecarsPresent")], []),
    ([], [("Protected", "Unknown", "NothingSelected")], []),
    ([], [("Protected", "False", "SidecarMissing")], [("Warning", "SidecarMissing")]),
    ([], [("CoordinationAtRisk", "False", "CoordinationSound")], []),
    ([], [("CoordinationAtRisk", "True", "NoStandby")], [("Warning", "NoStandby")]),
    (
        [("CoordinationAtRisk", "True", "NoStandby")],
        [("CoordinationAtRisk", "False", "CoordinationSound")],
        [("Normal", "CoordinationSound")],
    ),
    ([("Accepted", "True", "AsWritten")], [("Accepted", "True", "AsWritten")], []),
    (
        [("Accepted", "True", "AsWritten")],
        [("Accepted", "False", "ClassMissing")],
        [("Warning", "ClassMissing")],
    ),
]


@pytest.mark.parametrize(("before", "after", "expected"), TURNS)
def test_conditions_are_told_when_they_turn(
    before: list[tuple[str, str, str]],
    after: list[tuple[str, str, str]],
    expected: list[tuple[str, str]],
) -> None:
    found = kubernetes_events.of_conditions(
        POLICY, [condition(*item) for item in before], [condition(*item) for item in after]
    )
    assert [(item.type, item.reason) for item in found] == expected


def test_an_event_is_one_that_the_api_server_takes() -> None:
    item = next(iter(play().announced.values()))
    record = kubernetes_events.to_object(
        item, NOW, controller="rekindle.dev/operator", instance="operator-0"
    )
    assert record["apiVersion"] == "events.k8s.io/v1"
    assert record["eventTime"] == "2026-11-21T17:14:51.123456Z"
    assert record["metadata"]["namespace"] == record["regarding"]["namespace"] == "flights"
    assert record["metadata"]["name"].startswith("departures-1-abcde.")


def test_events_of_objects_of_the_cluster_go_to_the_default_namespace() -> None:
    about_class = ObjectReference("rekindle.dev/v1alpha1", "RecoveryClass", "shared")
    found = kubernetes_events.of_conditions(
        about_class, (), [condition("Accepted", "False", "BadResource")]
    )
    record = kubernetes_events.to_object(found[0], NOW, controller="c", instance="i")
    assert record["metadata"]["namespace"] == "default"
    assert set(record["regarding"]) == {"apiVersion", "kind", "name"}


@given(st.text(max_size=3_000), st.text("abc-.", min_size=1, max_size=253))
def test_names_and_notes_keep_to_the_limits(text: str, name: str) -> None:
    reference = ObjectReference("v1", "K", name, "flights")
    plan = PlanMade(number=1, at=NOW, reason="NodeBack", text=text)
    found = kubernetes_events.of_recovery(
        reference, None, RecoveryStatus(), RecoveryStatus(plans=(plan,))
    )
    assert all(len(item.name) <= 253 for item in found)
    assert all(len(item.message.encode()) < 1_024 for item in found)


def test_nodes_are_never_told_about() -> None:
    world = play()
    assert set(NODES)
    kinds = {item.about.kind for item in world.announced.values()}
    assert kinds == {RECOVERY.kind, APPLICATION.kind}
    assert custom_resources.COORDINATION_AT_RISK
