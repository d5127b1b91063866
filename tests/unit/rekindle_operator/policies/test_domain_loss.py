"""What the loss of a failure domain would stop, as the operator tells it before it happens."""

from dataclasses import replace

import pytest

from rekindle.coordination import CoordinationState, advance, initial
from rekindle.coordination.coordination_events import NodesLost, NodeSuspected
from rekindle.coordination.coordination_state import NodeStatus, NodeView
from rekindle.coordination.session import Case
from rekindle.model.incidents import Incident, IncidentKind
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol.store_paths import Place
from rekindle_operator.controller.effects import DecisionCache
from rekindle_operator.policies import policy_conditions
from rekindle_operator.policies.policy_conditions import DomainLossForecast

PLACE = Place("flights", "departures")
TOPOLOGY = Topology(
    (TopologyOperator("ships", 1), TopologyOperator("birds", 1)),
    (),
    (Query("late-ships", "ships", 9), Query("rare-birds", "birds", 1)),
)
INCIDENT = Incident(
    number=1,
    kind=IncidentKind.CORRELATED,
    began_at=0.0,
    newest_loss_at=0.0,
    behind_since=0.0,
    nodes_wanted=2,
)


def running(ships: str = "n1", birds: str = "n2", **domains: str | None) -> CoordinationState:
    """One query on each node; n1 is in zone a and n2 in zone b unless it is said otherwise."""
    found = {"n1": "a", "n2": "b", **domains}
    return replace(
        initial(TOPOLOGY, Policy(), 2),
        start=None,
        starting=False,
        nodes={node: NodeView(NodeStatus.UP, 100.0, domain) for node, domain in found.items()},
        placement={"ships/0": ships, "birds/0": birds},
    )


def test_each_domain_stops_what_it_has_a_part_of_the_greatest_loss_first() -> None:
    assert policy_conditions.look_out(running()) == DomainLossForecast({"a": 0.9, "b": 0.1})
    assert policy_conditions.look_out(running(birds="n1")) == DomainLossForecast(
        {"a": 1.0, "b": 0.0}
    )


def test_a_node_without_a_label_is_no_domain_to_tell_of() -> None:
    assert policy_conditions.look_out(running(n2=None)) == DomainLossForecast({"a": 0.9})
    assert policy_conditions.look_out(running(n1=None, n2=None)) == DomainLossForecast({})


@pytest.mark.parametrize("change", [{"starting": True}, {"incident": INCIDENT}, {"placement": {}}])
def test_while_not_all_is_as_it_should_be_nothing_is_said(change: dict[str, object]) -> None:
    assert policy_conditions.look_out(replace(running(), **change)) is None  # type: ignore[arg-type]


def test_in_an_incident_what_was_so_before_it_stays_known() -> None:
    cases = DecisionCache()
    assert cases.outlook(PLACE) is None
    cases.take(PLACE, Case(state=running()))
    before = cases.outlook(PLACE)
    assert before == DomainLossForecast({"a": 0.9, "b": 0.1})
    cases.take(PLACE, Case(state=replace(running(birds="n1"), incident=INCIDENT)))
    assert cases.outlook(PLACE) is before
    cases.take(PLACE, Case(state=running(birds="n1")))
    assert cases.outlook(PLACE) == DomainLossForecast({"a": 1.0, "b": 0.0})


def test_a_node_that_is_only_suspected_still_holds_what_its_domain_would_lose() -> None:
    state, _ = advance(running(), NodeSuspected("n1"), 5.0, clock=float)
    assert policy_conditions.look_out(state) == DomainLossForecast({"a": 0.9, "b": 0.1})


def test_from_suspicion_to_loss_and_back_cases_are_kept_and_told_of() -> None:
    cases = DecisionCache()
    up = running()
    suspected, _ = advance(up, NodeSuspected("n1"), 5.0, clock=float)
    lost, _ = advance(suspected, NodesLost(("n1",)), 20.0, clock=float)
    for state in (up, suspected, lost, up):
        case = Case(state=state)
        assert cases.take(PLACE, case), "something is otherwise"
        assert cases[PLACE] is case
        assert cases.outlook(PLACE) == DomainLossForecast({"a": 0.9, "b": 0.1})
        assert not cases.take(PLACE, Case(state=replace(state, seen_at=30.0)))


def test_of_an_application_that_is_no_more_nothing_is_kept() -> None:
    cases = DecisionCache()
    cases.take(PLACE, Case(state=running()))
    cases.outlook(PLACE)
    cases.forget(PLACE)
    assert not cases
    assert cases.outlook(PLACE) is None
    assert cases.queries(PLACE) is None


def test_it_is_worked_out_again_only_when_something_is_elsewhere() -> None:
    cases = DecisionCache()
    cases.take(PLACE, Case(state=running()))
    before = cases.outlook(PLACE)
    cases.take(PLACE, Case(state=replace(running(), seen_at=5.0)))
    assert cases.outlook(PLACE) is before


@pytest.mark.parametrize(
    ("outlooks", "holds", "reason", "text"),
    [
        ({}, None, "nothing-selected", "No application is selected."),
        ({"x": None}, None, "not-heard-of", "Nothing has run yet of x."),
        (
            {"x": DomainLossForecast({})},
            None,
            "domains-unknown",
            "No node of x has a label of failureDomainKeys.",
        ),
        (
            {"x": DomainLossForecast({"a": 0.9, "b": 0.1}), "y": None},
            True,
            "some-survives",
            "Of all priority of x would stop: 90% if a is lost, 10% if b is lost.",
        ),
        (
            {"x": DomainLossForecast({"a": 0.5}), "y": DomainLossForecast({"b": 1.0, "a": 0.0})},
            False,
            "nothing-survives",
            "Of all priority of y would stop: 100% if b is lost, 0% if a is lost. "
            "Of all priority of x would stop: 50% if a is lost.",
        ),
    ],
)
def test_the_condition_says_what_would_stop_most_first(
    outlooks: dict[str, DomainLossForecast | None], holds: bool | None, reason: str, text: str
) -> None:
    found = policy_conditions.domain_loss_survived(outlooks)
    assert (found.type, found.holds, found.reason) == ("DomainLossSurvived", holds, reason)
    assert found.message == text


def test_of_many_domains_and_applications_not_all_are_named() -> None:
    many = DomainLossForecast({f"zone-{number}": 0.5 for number in range(9)})
    text = policy_conditions.domain_loss_survived({f"x{n}": many for n in range(8)}).message
    assert "not more for 4 other domains" in text
    assert text.endswith("Less of 3 more.")
