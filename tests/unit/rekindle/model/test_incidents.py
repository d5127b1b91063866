"""What kind of failure it is: the table of incidents.py, line by line."""

from dataclasses import replace

import pytest

from rekindle.model import incidents
from rekindle.model.incidents import Incident, IncidentKind, NodeLoss
from rekindle.model.reasons import Reason

INDEPENDENT = Incident(
    number=1,
    kind=IncidentKind.INDEPENDENT,
    began_at=0.0,
    newest_loss_at=0.0,
    behind_since=0.0,
    nodes_wanted=10,
    lost=("a",),
)
CORRELATED = replace(INDEPENDENT, kind=IncidentKind.CORRELATED, lost=("a", "b"))
COMPLETE = replace(INDEPENDENT, kind=IncidentKind.COMPLETE)


def classified(
    losses: list[NodeLoss],
    unfinished: Incident | None = None,
    *,
    nodes_left: int = 5,
    correlated_nodes_min: int = 2,
) -> IncidentKind:
    return incidents.classify(
        losses,
        unfinished,
        nodes_left=nodes_left,
        correlated_nodes_min=correlated_nodes_min,
        window_seconds=120.0,
    )


def test_without_a_confirmed_loss_it_is_suspected() -> None:
    assert classified([]) is IncidentKind.SUSPECTED


def test_one_lost_node_is_independent() -> None:
    assert classified([NodeLoss("a", 0.0)]) is IncidentKind.INDEPENDENT


def test_two_nodes_at_once_are_correlated() -> None:
    assert classified([NodeLoss("a", 0.0), NodeLoss("b", 0.0)]) is IncidentKind.CORRELATED


def test_two_nodes_within_the_window_are_correlated() -> None:
    losses = [NodeLoss("a", 0.0), NodeLoss("b", 120.0)]
    assert classified(losses) is IncidentKind.CORRELATED


def test_two_nodes_farther_apart_than_the_window_are_independent_of_each_other() -> None:
    losses = [NodeLoss("a", 0.0), NodeLoss("b", 120.1)]
    assert classified(losses) is IncidentKind.INDEPENDENT


def test_the_same_node_lost_twice_is_one_node() -> None:
    assert classified([NodeLoss("a", 0.0), NodeLoss("a", 9.0)]) is IncidentKind.INDEPENDENT


def test_a_second_loss_turns_an_unfinished_independent_incident_correlated() -> None:
    # The window and X do not matter for that, nor a checkpoint that has forgotten the first loss.
    losses = [NodeLoss("b", 500.0)]
    assert classified(losses, INDEPENDENT, correlated_nodes_min=3) is IncidentKind.CORRELATED


def test_losses_within_a_second_are_one_event() -> None:
    losses = [NodeLoss("a", 0.0), NodeLoss("b", 1.0)]
    assert classified(losses, INDEPENDENT, correlated_nodes_min=3) is IncidentKind.INDEPENDENT
    losses = [NodeLoss("a", 0.0), NodeLoss("b", 1.1)]
    assert classified(losses, INDEPENDENT, correlated_nodes_min=3) is IncidentKind.CORRELATED


def test_it_is_complete_when_no_node_is_left() -> None:
    assert classified([NodeLoss("a", 0.0)], nodes_left=0) is IncidentKind.COMPLETE
    assert classified([NodeLoss("a", 0.0)], CORRELATED, nodes_left=0) is IncidentKind.COMPLETE


@pytest.mark.parametrize("unfinished", [CORRELATED, COMPLETE])
def test_an_incident_never_becomes_less_severe(unfinished: Incident) -> None:
    assert classified([NodeLoss("c", 900.0)], unfinished) is unfinished.kind


def test_every_kind_has_a_reason_and_every_reason_a_meaning() -> None:
    assert {incidents.reason(kind).value for kind in IncidentKind} == {
        "loss-announced",
        "suspected-failure",
        "independent-failure",
        "correlated-failure",
        "complete-failure",
    }
    for reason in Reason:
        assert reason.value == reason.name.lower().replace("_", "-")
        assert reason.meaning
        assert "\n" not in reason.meaning
