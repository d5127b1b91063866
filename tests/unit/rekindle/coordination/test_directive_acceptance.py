"""What a driver does without its coordinator: alone, led again, placement by failure domains."""

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import pytest
from application_world import COSTS, NODES, TOPOLOGY

from rekindle import coordination, protocol
from rekindle.coordination import directive_acceptance
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.coordination.instructions import MovePartitions
from rekindle.model.settings import Policy
from rekindle_spark.control.coordinator_client import CoordinatorClient

# by domain (n1 and n2, n3 and n4) this cannot be better, by node it can
ARRANGED = {
    "source/0": "n1",
    "source/1": "n2",
    "counts/0": "n1",
    "counts/1": "n1",
    "tops/0": "n2",
}


class Reports:
    """A driver that runs everything, with a node that is slow if one is named."""

    def __init__(self, slow: str) -> None:
        self.slow, self.sequence = slow, 0
        self.statistics = protocol.StatisticsReport(generation=1, sequence=0, costs=COSTS)
        self.checkpoint = None

    def progress(self, following: AcceptedDirectives, *, alone: bool) -> protocol.ProgressReport:
        self.sequence += 1
        return protocol.ProgressReport(
            generation=1,
            sequence=self.sequence,
            nodes={
                node: protocol.NodeSeen(
                    incarnation="a", capacity_percent=100.0, slow=node == self.slow
                )
                for node in NODES
            },
            placement=ARRANGED,
            live=tuple(ARRANGED),
            plan_epoch=following.plan_epoch,
            directive=following.directive,
            moving={},
            alone=alone,
        )


class Silent:
    """A sidecar that has not reached the store for long."""

    contact_at = time.monotonic() - 3_600.0
    waiting, fenced, unreadable, led = False, "", frozenset[int](), True
    refusals: Mapping[str, str] = MappingProxyType({})

    def report(self, report: object) -> None:
        """Nobody hears it."""


class Leaderless(Silent):
    """A sidecar that reaches the store, where no coordinator leads until `led` is set."""

    led = False
    directive: protocol.Directive | None = None

    @property
    def contact_at(self) -> float:  # type: ignore[override]
        return time.monotonic()

    def directives(self) -> list[protocol.Directive]:
        return [] if self.directive is None else [self.directive]

    def looked_at(self, sequence: int) -> None:
        """Not of interest."""

    def acknowledge(self, acknowledgement: object) -> None:
        """Not of interest."""


def guidance_of(contact: object, slow: str = "") -> CoordinatorClient[Any]:
    """Of a driver whose placement is by domain."""
    return CoordinatorClient(
        topology=protocol.TopologyReport(
            generation=1,
            sequence=0,
            program="p",
            topology=TOPOLOGY,
            policy=Policy(placement="domains"),
            nodes_expected=len(NODES),
        ),
        reports=cast(Any, Reports(slow)),
        following=AcceptedDirectives(
            1, contact_at=None if contact is None else time.monotonic() - 3_600.0
        ),
        contact=cast(Any, contact),
    )


def moves(contact: object, slow: str = "") -> list[MovePartitions]:
    """What a driver orders itself to move within some looks at how things are."""
    guidance = guidance_of(contact, slow)
    told = [item for _ in range(5) for item in guidance.confer(paused=False).instructions]
    return [item for item in told if isinstance(item, MovePartitions)]


def test_a_driver_that_has_lost_its_coordinator_leaves_placement_by_domain_as_it_is() -> None:
    assert moves(Silent()) == []


def test_it_empties_slow_nodes_all_the_same() -> None:
    order = moves(Silent(), slow="n2")[0]
    assert set(order.placement) == {"source/1", "tops/0"}


def test_each_node_of_a_driver_that_has_no_coordinator_is_a_domain() -> None:
    assert moves(None), "its own placement is not by node yet"


def test_a_driver_that_nobody_leads_plans_alone_and_is_led_again_without_a_double_plan() -> None:
    contact = Leaderless()
    guidance = CoordinatorClient(
        topology=protocol.TopologyReport(
            generation=1,
            sequence=0,
            program="p",
            topology=TOPOLOGY,
            policy=Policy(),
            nodes_expected=len(NODES),
        ),
        reports=cast(Any, Reports("")),
        following=AcceptedDirectives(1, contact_at=time.monotonic()),
        contact=cast(Any, contact),
    )
    was_alone = guidance.alone
    guidance.confer(paused=False)
    assert (was_alone, guidance.alone) == (False, True)
    guidance.following = directive_acceptance.planned(guidance.following, 4)  # its own plan
    contact.led = True
    contact.directive = protocol.Directive(
        sequence=9,
        after=0,
        generation=1,
        plan_epoch=5,
        reason="node-back",
        text="A plan of a coordinator that has not heard of the driver's own.",
        order=protocol.PlanOrder(query_partitions=(), placement={"tops/0": "n1"}, builds_on=3),
    )
    assert guidance.confer(paused=False).directives == ()
    assert not guidance.alone
    assert (guidance.following.plan_epoch, guidance.following.directive) == (4, 9)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """When plans are made that take their time."""
    event, decide = threading.Event(), coordination.decide

    def slowly(*arguments: Any, **options: Any) -> Any:
        assert event.wait(10)
        return decide(*arguments, **options)

    monkeypatch.setattr("rekindle_spark.control.coordinator_client.coordination.decide", slowly)
    return event


def conferred(guidance: CoordinatorClient[Any]) -> list[MovePartitions]:
    instructions = guidance.confer(paused=False).instructions
    return [item for item in instructions if isinstance(item, MovePartitions)]


def test_a_plan_that_takes_long_holds_up_nobody(solved: threading.Event) -> None:
    guidance = guidance_of(Silent(), slow="n2")
    solved.set()
    conferred(guidance)  # the first of all, when nothing runs yet
    solved.clear()
    assert [conferred(guidance) for _ in range(3)] == [[], [], []]
    was_waiting = guidance.waiting
    solved.set()
    planning = guidance.planning
    assert planning is not None
    planning.result(10)
    assert (was_waiting, guidance.waiting) == (False, True), "it is to be carried out at once"
    told = [item for _ in range(5) for item in conferred(guidance)]
    assert set(told[0].placement) == {"source/1", "tops/0"}


def test_a_plan_that_comes_when_the_coordinator_is_back_is_nobodys(solved: threading.Event) -> None:
    guidance = guidance_of(Silent(), slow="n2")
    solved.set()
    conferred(guidance)
    solved.clear()
    conferred(guidance)
    before = guidance.case
    contact = cast(Any, guidance.contact)
    contact.contact_at, contact.directives = time.monotonic(), list
    solved.set()
    planning = guidance.planning
    assert planning is not None
    planning.result(10)
    assert conferred(guidance) == []
    assert guidance.planning is None
    assert guidance.case.sequence == before.sequence


def statistics(**fields: Any) -> protocol.StatisticsReport:
    costs = {"counts/0": 10.0, "counts/1": 40.0}
    given = {"costs": costs, "overhead_percent": 5.0, "state_bytes": {"counts/0": 7}, **fields}
    return protocol.StatisticsReport(generation=1, sequence=1, **given)


@pytest.mark.parametrize(
    ("after_seconds", "fields", "news"),
    [
        (5.0, {}, False),
        (5.0, {"costs": {"counts/0": 11.9, "counts/1": 33.0}}, False),
        (5.0, {"costs": {"counts/0": 10.0, "counts/1": 50.0}}, True),
        (5.0, {"costs": {"counts/0": 10.0}}, True),
        (5.0, {"overhead_percent": 9.0}, True),
        (5.0, {"state_bytes": {"counts/0": 7, "counts/1": 8}}, True),
        (31.0, {}, True),
    ],
)
def test_costs_that_stay_are_reported_less_often(
    after_seconds: float, fields: dict[str, Any], news: bool
) -> None:
    guidance = guidance_of(None)
    assert guidance._is_news(statistics(), 1_000.0)
    assert guidance._is_news(statistics(**fields), 1_000.0 + after_seconds) is news


def test_small_steps_of_costs_add_up_to_news() -> None:
    """They are compared with those that were reported last, not with the last measured."""
    guidance = guidance_of(None)
    found = [
        guidance._is_news(statistics(overhead_percent=5.0 + step), 1_000.0 + step)
        for step in (0.0, 0.7, 1.4)
    ]
    assert found == [True, False, True]
