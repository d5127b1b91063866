"""How an application stands, why a query is not back, and what would bring it."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from rekindle.coordination import application, explanation, standing
from rekindle.coordination.application import Case, Driver, Reading
from rekindle.coordination.standing import Phase, Standing, View
from rekindle.coordination.state import Status
from rekindle.errors import InputError
from rekindle.protocol import (
    Acknowledgement,
    CheckpointReport,
    Directive,
    Heartbeat,
    NodeSeen,
    Orders,
    PauseOrder,
    PlanOrder,
    PriorityOverride,
    ProgressReport,
    ResumeOrder,
    StatisticsReport,
    TopologyReport,
)
from rekindle.reasons import Reason
from rekindle.settings import Policy
from rekindle.topology import Operator, Query, Topology

TOPOLOGY = Topology(
    operators=(Operator("source", 1), Operator("counts", 2), Operator("tops", 1)),
    edges=(("source", "counts"), ("source", "tops")),
    queries=(Query("busiest", "counts", 4), Query("ranking", "tops", 9)),
)
COSTS = {"source/0": 10.0, "counts/0": 60.0, "counts/1": 60.0, "tops/0": 60.0}
NODES = ("n1", "n2", "n3", "n4")


class Desk:
    """A coordinator whose case the view holds, and a driver that does what it is told."""

    def __init__(self, **policy: Any) -> None:
        self.now = 1_000.0
        self.case = Case()
        self.sequence = self.plan_epoch = self.directive = 0
        self.nodes = {node: NodeSeen(incarnation="a", capacity_percent=100.0) for node in NODES}
        self.placement: dict[str, str] = {}
        self.resident: dict[str, str] = {}
        self.live: tuple[str, ...] = ()
        self.paused = False
        self.plan: Directive | None = None
        self.reading = Reading(
            topology=TopologyReport(
                generation=1,
                sequence=0,
                program="p",
                topology=TOPOLOGY,
                policy=Policy(**policy),
                nodes_expected=len(NODES),
            ),
            statistics=StatisticsReport(generation=1, sequence=0, costs=COSTS),
            heartbeat=Heartbeat(generation=1, since=990.0),
        )

    def report(self, **fields: Any) -> None:
        self.sequence += 1
        common = {
            "generation": 1,
            "sequence": self.sequence,
            "nodes": self.nodes,
            "placement": dict(self.placement),
            "live": self.live,
            "resident": dict(self.resident),
            "plan_epoch": self.plan_epoch,
            "directive": self.directive,
            "paused": self.paused,
            "lags": {"busiest": 1.5, "ranking": 2.5},
        }
        progress = ProgressReport(**{**common, **fields})
        self.reading = replace(self.reading, progress=progress)

    def decide(self, obey: bool = True) -> None:
        self.now += 1
        decision = application.decide(self.case, self.reading, self.now, clock=float)
        self.case = decision.case
        for directive in decision.directives:
            if isinstance(directive.order, PlanOrder):
                self.plan = directive
            if not obey:
                continue
            self.directive = directive.sequence
            match directive.order:
                case PlanOrder(placement=placement):
                    self.placement |= placement
                    self.plan_epoch = directive.plan_epoch
                case PauseOrder() | ResumeOrder() as order:
                    self.paused = isinstance(order, PauseOrder)

    def settle(self) -> None:
        for _ in range(5):
            self.report()
            self.decide()

    def all_live(self) -> None:
        """What is placed has caught up."""
        self.live = tuple(self.placement)
        self.settle()

    def checkpoint(self, epoch: int) -> None:
        report = CheckpointReport(generation=1, sequence=epoch, epoch=epoch, at=self.now)
        self.reading = replace(self.reading, checkpoint=report)
        self.decide()

    def lose(self, *nodes: str) -> None:
        """Nodes go, with what ran there and what needs that."""
        for node in nodes:
            del self.nodes[node]
        running = {name: node for name, node in self.placement.items() if node not in nodes}
        if "source/0" not in running:
            self.resident, running = running, {}
        self.placement, self.live = running, tuple(running)

    def view(self, **fields: Any) -> View:
        """As another process finds it in the store."""
        case = application.from_record(application.to_record(self.case), "case")
        common = {"application": "a/b", "case": case, "reading": self.reading, "plan": self.plan}
        return View(**{**common, **fields})

    def stands(self, **fields: Any) -> Standing:
        return standing.of(self.view(**fields), self.now, clock=float)

    def explain(self, query: str) -> explanation.Explanation:
        return explanation.explain(self.view(), query, self.now, clock=float)


def running(**policy: Any) -> Desk:
    desk = Desk(**policy)
    desk.settle()
    desk.all_live()
    assert set(desk.live) == set(COSTS)
    return desk


def short_of_capacity() -> Desk:
    """One of four nodes is left: the important query is back, the other one is not."""
    desk = running()
    desk.lose(*[node for node in NODES if node != desk.placement["source/0"]])
    desk.settle()
    desk.all_live()
    return desk


def phases(found: Standing) -> dict[str, Phase]:
    return {query.name: query.phase for query in found.queries}


def reasons(found: Standing) -> list[Reason]:
    return [notice.reason for notice in found.notices]


def test_nothing_is_wrong_with_an_application_at_rest() -> None:
    found = running().stands()
    assert (found.driver, found.driver_since, found.incident) == (Driver.THERE, 990.0, None)
    assert found.notices == ()
    assert phases(found) == {"busiest": Phase.LIVE, "ranking": Phase.LIVE}
    assert [(query.live, query.partitions) for query in found.queries] == [(2, 2), (1, 1)]
    assert [query.lag_seconds for query in found.queries] == [1.5, 2.5]
    assert set(found.nodes.values()) == {Status.UP}


def test_queries_without_room_wait_and_the_reason_is_said() -> None:
    found = short_of_capacity().stands()
    assert phases(found) == {"busiest": Phase.WAITING, "ranking": Phase.LIVE}
    assert reasons(found) == [Reason.NO_CAPACITY, Reason.CORRELATED_FAILURE]
    assert found.incident is not None
    assert found.plan is not None
    assert found.plan.outcome == "done"
    assert found.plan.text.startswith("Plan 2 of incident 1")


def test_a_query_that_is_placed_but_not_live_catches_up() -> None:
    desk = running()
    desk.lose(desk.placement["tops/0"])
    desk.settle()
    assert phases(desk.stands())["ranking"] is Phase.CATCHING_UP


def test_a_plan_that_the_driver_has_not_taken_is_awaited() -> None:
    desk = running()
    desk.lose(desk.placement["tops/0"])
    desk.report()
    desk.decide(obey=False)
    found = desk.stands()
    assert Reason.PLAN_AWAITED in reasons(found)
    assert found.plan is not None
    assert found.plan.outcome == "awaited"
    assert desk.plan is not None
    refusal = Acknowledgement(
        sequence=desk.plan.sequence, generation=1, outcome="refused", epoch=3, plan_epoch=1
    )
    plan = desk.stands(answer=refusal).plan
    assert plan is not None
    assert plan.outcome == "refused"


def test_a_blocking_plan_says_that_it_waits_for_nodes() -> None:
    desk = running(strategy="blocking")
    desk.lose("n1", "n2")
    desk.settle()
    assert Reason.WAITING_FOR_NODES in reasons(desk.stands())


def test_after_the_last_query_an_incident_waits_for_a_checkpoint() -> None:
    desk = running()
    desk.lose(desk.placement["tops/0"])
    desk.settle()
    desk.all_live()
    assert Reason.CHECKPOINT_AWAITED in reasons(desk.stands())
    desk.checkpoint(7)
    found = desk.stands()
    assert (found.incident, found.notices) == (None, ())


def test_it_is_said_when_no_coordinator_runs() -> None:
    desk = running()
    desk.lose("n1", "n2", "n3")
    desk.report()
    found = desk.stands(coordinator=False)
    assert reasons(found)[0] is Reason.NO_COORDINATOR
    assert found.incident is not None, "what the coordinator would see is shown all the same"


def test_a_driver_without_heartbeat_is_silent_and_one_that_ended_is_gone() -> None:
    desk = running()
    desk.reading = replace(desk.reading, heartbeat=None)
    desk.decide()
    found = desk.stands()
    assert (found.driver, reasons(found)) == (Driver.SILENT, [Reason.DRIVER_SILENT])
    assert found.driver_since == desk.now
    desk.reading = replace(desk.reading, driver_gone=True)
    desk.decide()
    found = desk.stands()
    assert (found.driver, found.driver_since) == (Driver.GONE, desk.now)
    assert reasons(found)[0] is Reason.DRIVER_LOST
    assert set(phases(found).values()) == {Phase.WAITING}


def test_a_run_that_has_ended_in_order_wants_nothing() -> None:
    desk = running()
    desk.report(finished=True)
    desk.reading = replace(desk.reading, heartbeat=None, driver_gone=True)
    desk.decide()
    found = desk.stands(coordinator=False)
    assert (found.driver, found.driver_since) == (Driver.FINISHED, desk.now)
    assert set(phases(found).values()) == {Phase.FINISHED}
    assert found.notices == ()
    assert desk.explain("ranking").sentences == ("ranking has ended: the run is over.",)


def test_a_driver_that_plans_by_itself_is_told_of() -> None:
    desk = running()
    desk.report(alone=True)
    desk.decide()
    assert reasons(desk.stands()) == [Reason.DRIVER_ALONE]


def test_a_pause_is_told_of_until_it_has_ended() -> None:
    desk = running()
    desk.reading = replace(desk.reading, orders=Orders(paused=True))
    texts = []
    for _ in range(2):
        found = desk.stands()
        assert (found.paused, reasons(found)) == (True, [Reason.PAUSED])
        texts.append(found.notices[0].text)
        desk.settle()
    assert "not obeyed yet" in texts[0]
    assert "not obeyed yet" not in texts[1]
    desk.reading = replace(desk.reading, orders=Orders())
    assert reasons(desk.stands()) == [Reason.UNPAUSED]
    desk.settle()
    assert desk.stands().notices == ()


def test_a_priority_that_people_set_is_shown_with_its_end_and_the_own_one() -> None:
    desk = running()
    override = PriorityOverride(priority=10, until=desk.now + 60)
    desk.reading = replace(desk.reading, orders=Orders(priorities={"busiest": override}))
    query = desk.stands().queries[0]
    assert (query.priority, query.own_priority, query.until) == (10, 4, override.until)
    desk.now += 61
    query = desk.stands().queries[0]
    assert (query.priority, query.until) == (4, None)


def test_suspected_nodes_are_named() -> None:
    desk = running()
    desk.nodes["n2"] = NodeSeen(incarnation="a", capacity_percent=100.0, suspected=True)
    desk.report()
    desk.decide()
    (notice,) = desk.stands().notices
    assert (notice.reason, "n2" in notice.text) == (Reason.SUSPECTED_FAILURE, True)


def test_when_every_node_looks_lost_that_is_said() -> None:
    desk = running()
    desk.lose(*NODES)
    desk.report()
    desk.decide()
    assert Reason.ALL_NODES_LOST in reasons(desk.stands())


def test_a_record_that_cannot_be_read_is_all_that_is_known() -> None:
    found = standing.broken("a/b", "progress: is no JSON", coordinator=False)
    assert reasons(found) == [Reason.NO_COORDINATOR, Reason.BAD_RECORD]
    assert found.notices[1].text == "progress: is no JSON"


def test_a_standing_and_an_explanation_are_json() -> None:
    desk = short_of_capacity()
    for value in (desk.stands(), desk.explain("busiest")):
        assert json.loads(json.dumps(msgspec.to_builtins(value)))


def test_a_waiting_query_is_explained_by_what_it_misses_and_what_would_bring_it() -> None:
    found = short_of_capacity().explain("busiest")
    text = " ".join(found.sentences)
    assert [item.partition for item in found.missing] == ["counts/0", "counts/1"]
    assert [item.steady_percent for item in found.missing] == [60.0, 60.0]
    assert all(item.catching_up_percent > 60.0 for item in found.missing)
    assert found.free is not None
    assert sum(found.free.values()) == pytest.approx(10.0)
    assert found.next_plan == ()
    assert found.more_nodes == 2
    assert found.requests is not None
    assert sum(request.count for request in found.requests.values()) == 3
    assert "busiest waits, with 2 partitions not running that it needs: counts/0, counts/1." in text
    assert "With 2 more nodes of 100 % CPU busiest would be in the next plan." in text
    assert "Requested: 3 nodes. (correlated-failure)" in text
    assert "(no-capacity)" in text


def test_as_many_nodes_as_the_explanation_says_bring_the_query_back() -> None:
    desk = short_of_capacity()
    more = desk.explain("busiest").more_nodes
    assert more is not None
    for index in range(more):
        assert phases(desk.stands())["busiest"] is not Phase.CATCHING_UP
        desk.nodes[f"m{index}"] = NodeSeen(incarnation="b", capacity_percent=100.0)
        desk.settle()
    assert phases(desk.stands())["busiest"] is Phase.CATCHING_UP


def test_more_important_queries_that_are_not_back_either_come_first() -> None:
    desk = running()
    desk.lose(*[node for node in NODES if node != desk.placement["counts/0"]])
    desk.report()
    assert desk.explain("busiest").first == ("ranking",)
    assert desk.explain("ranking").first == ()


def test_a_query_in_the_next_plan_needs_no_more_nodes() -> None:
    desk = running()
    desk.lose(desk.placement["tops/0"])
    desk.report()
    found = desk.explain("ranking")
    assert (found.next_plan, found.more_nodes) == (("ranking/0",), 0)
    assert "ranking is in the next plan." in found.sentences


def test_a_query_that_fits_once_others_have_caught_up_is_told_so() -> None:
    desk = running(catch_up_cost_ratio=10.0, catch_up_seconds=1.0)
    desk.checkpoint(1)
    desk.now += 100
    kept = {desk.placement["source/0"], desk.placement["counts/1"]}
    desk.lose(*[node for node in NODES if node not in kept])
    desk.nodes["m1"] = NodeSeen(incarnation="b", capacity_percent=100.0)
    desk.settle()
    by_phase = {phase: name for name, phase in phases(desk.stands()).items()}
    assert set(by_phase) == {Phase.CATCHING_UP, Phase.WAITING}
    sentences = desk.explain(by_phase[Phase.WAITING]).sentences
    expected = f"{by_phase[Phase.WAITING]} fits as soon as those that catch up have caught up."
    assert expected in sentences


def test_a_query_that_is_back_or_on_its_way_is_explained_in_a_sentence() -> None:
    desk = running()
    assert desk.explain("ranking").sentences == ("ranking is live: nothing is missing.",)
    desk.lose(desk.placement["tops/0"])
    desk.settle()
    first = desk.explain("ranking").sentences[0]
    assert first == "ranking is placed and catches up: 0 of 1 query partitions are live."


def test_a_query_of_a_driver_that_is_gone_is_explained_by_that() -> None:
    desk = running()
    desk.reading = replace(desk.reading, heartbeat=None, driver_gone=True)
    desk.decide()
    text = " ".join(desk.explain("busiest").sentences)
    assert "The driver is gone; another one is asked for. (driver-lost)" in text
    assert "No node is up." in text


def test_an_unknown_query_is_refused_with_near_ones() -> None:
    with pytest.raises(InputError, match="'bussiest': is no query of a/b; name one of: busiest"):
        running().explain("bussiest")
    with pytest.raises(InputError, match="name one of: busiest, ranking"):
        running().explain("x")
