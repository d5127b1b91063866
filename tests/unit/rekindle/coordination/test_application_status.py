"""How an application stands, and what is wrong."""

import json
from dataclasses import replace

import msgspec
import pytest
from standing_world import NODES, phases, running, short_of_capacity

from rekindle import protocol
from rekindle.coordination import application_status
from rekindle.coordination.application_status import ApplicationStatus, Phase
from rekindle.coordination.coordination_state import NodeStatus
from rekindle.coordination.session import Driver
from rekindle.model.reasons import Reason


def reasons(found: ApplicationStatus) -> list[Reason]:
    return [notice.reason for notice in found.notices]


def test_nothing_is_wrong_with_an_application_at_rest() -> None:
    found = running().stands()
    assert (found.driver, found.driver_since, found.incident) == (Driver.THERE, 990.0, None)
    assert found.notices == ()
    assert phases(found) == {"busiest": Phase.LIVE, "ranking": Phase.LIVE}
    assert [(query.live, query.partitions) for query in found.queries] == [(2, 2), (1, 1)]
    assert [query.lag_seconds for query in found.queries] == [1.5, 2.5]
    assert set(found.nodes.values()) == {NodeStatus.UP}


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
    refusal = protocol.Acknowledgement(
        sequence=desk.plan.sequence, generation=1, outcome="refused", epoch=3, plan_epoch=1
    )
    plan = desk.stands(answer=refusal).plan
    assert plan is not None
    assert plan.outcome == "refused"


def test_a_plan_that_the_driver_made_by_itself_is_the_newest() -> None:
    desk = running()
    newest = desk.plan_epoch + 1
    desk.report(plan_epoch=newest)
    found = desk.stands().plan
    assert found is not None
    assert (found.plan_epoch, found.reason, found.outcome) == (newest, "driver-alone", "done")


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


def test_a_query_that_has_stopped_is_shown_with_the_reason() -> None:
    desk = running()
    desk.placement.pop("tops/0")
    desk.live = tuple(desk.placement)
    desk.report(stopped={"ranking/0": "step tops: raised ValueError: bad"})
    desk.decide()
    found = desk.stands()
    assert {query.name: query.phase for query in found.queries} == {
        "busiest": Phase.LIVE,
        "ranking": Phase.STOPPED,
    }
    assert [(notice.reason, notice.text) for notice in found.notices] == [
        (Reason.QUERY_STOPPED, "ranking has stopped: step tops: raised ValueError: bad")
    ]


def test_a_notice_says_which_partition_runs_apart_and_why() -> None:
    desk = running()
    why = "step tops: ended its process with SIGSEGV, at epoch 7 of tops/0"
    desk.report(suspected={"tops/0": why})
    desk.decide()
    assert [(notice.reason, notice.text) for notice in desk.stands().notices] == [
        (Reason.FUNCTION_SUSPECTED, f"tops/0 runs apart from all others: {why}.")
    ]


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


def test_the_lag_of_a_driver_that_is_not_there_goes_on_growing() -> None:
    desk = running()
    desk.report(at=desk.now)
    desk.decide()
    reported = desk.now - 1.0

    def lags() -> list[float | None]:
        return [query.lag_seconds for query in desk.stands().queries]

    assert lags() == [1.5, 2.5], "the driver is there: the next report is on its way"
    desk.reading = replace(desk.reading, heartbeat=None)
    desk.decide()
    desk.now = reported + 60.0
    assert lags() == [61.5, 62.5]
    desk.reading = replace(desk.reading, driver_gone=True)
    desk.decide()
    desk.now = reported + 3_600.0
    assert lags() == [3_601.5, 3_602.5]
    desk.now = reported - 5.0
    assert lags() == [1.5, 2.5], "a clock that is behind the driver's takes nothing off"


def test_time_beyond_goals_grows_with_the_lags_that_nobody_reports_any_more() -> None:
    desk = running()
    goals = {"busiest": 10.0, "ranking": 2.0}
    beyond = {"busiest": 5.0, "ranking": 40.0}
    desk.report(at=desk.now, lag_goals=goals, beyond_goal_seconds=beyond)
    desk.decide()

    def shown() -> list[tuple[float | None, float | None]]:
        queries = desk.stands().queries
        return [(query.lag_goal_seconds, query.beyond_goal_seconds) for query in queries]

    assert shown() == [(10.0, 5.0), (2.0, 40.0)]
    weighted = desk.stands().weighted_beyond_goal_seconds
    assert weighted == pytest.approx((4 * 5.0 + 9 * 40.0) / 13)
    told = desk.explain("busiest").sentences
    assert "Its lag has been above its goal of 10 s for 5.0 s in all." in told
    desk.reading = replace(desk.reading, heartbeat=None)
    assert desk.reading.progress is not None
    desk.now = (desk.reading.progress.at or 0.0) + 20.0
    assert shown() == [(10.0, 5.0 + 11.5), (2.0, 60.0)], "lags were 1.5 s and 2.5 s"


def test_without_goals_nothing_is_counted() -> None:
    desk = running()
    desk.report(lag_goals={}, beyond_goal_seconds={})
    desk.decide()
    found = desk.stands()
    assert found.weighted_beyond_goal_seconds is None
    assert {query.beyond_goal_seconds for query in found.queries} == {None}
    assert not any("goal" in text for text in desk.explain("busiest").sentences)


def test_goals_are_weighted_by_the_priority_that_holds_now() -> None:
    desk = running(priorities={"ranking": 1})
    override = protocol.PriorityOverride(priority=10, until=desk.now + 100)
    desk.reading = replace(desk.reading, orders=protocol.Orders(priorities={"busiest": override}))
    desk.report(
        at=desk.now,
        lag_goals={"busiest": 1.0, "ranking": 1.0},
        beyond_goal_seconds={"busiest": 11.0, "ranking": 0.0},
    )
    desk.decide()
    assert desk.stands().weighted_beyond_goal_seconds == pytest.approx(10.0)
    desk.now += 200
    assert desk.stands().weighted_beyond_goal_seconds == pytest.approx(4 * 11.0 / 5)


def test_the_lag_of_a_run_that_has_ended_or_of_an_older_driver_stays() -> None:
    for fields in ({"finished": True, "at": 1_000.0}, {}):
        desk = running()
        desk.report(**fields)
        desk.reading = replace(desk.reading, heartbeat=None)
        desk.decide()
        desk.now += 60.0
        assert [query.lag_seconds for query in desk.stands().queries] == [1.5, 2.5]


def test_rows_that_came_too_late_are_shown_by_step() -> None:
    desk = running()
    assert desk.stands().late_rows == {}
    desk.report(late_rows={"tops": 2, "counts": 12})
    desk.decide()
    assert list(desk.stands().late_rows.items()) == [("counts", 12), ("tops", 2)]


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
    desk.reading = replace(desk.reading, orders=protocol.Orders(paused=True))
    texts = []
    for _ in range(2):
        found = desk.stands()
        assert (found.paused, reasons(found)) == (True, [Reason.PAUSED])
        texts.append(found.notices[0].text)
        desk.settle()
    assert "not obeyed yet" in texts[0]
    assert "not obeyed yet" not in texts[1]
    desk.reading = replace(desk.reading, orders=protocol.Orders())
    assert reasons(desk.stands()) == [Reason.UNPAUSED]
    desk.settle()
    assert desk.stands().notices == ()


def test_a_priority_that_people_set_is_shown_with_its_end_and_the_own_one() -> None:
    desk = running()
    override = protocol.PriorityOverride(priority=10, until=desk.now + 60)
    desk.reading = replace(desk.reading, orders=protocol.Orders(priorities={"busiest": override}))
    query = desk.stands().queries[0]
    assert (query.priority, query.own_priority, query.until) == (10, 4, override.until)
    desk.now += 61
    query = desk.stands().queries[0]
    assert (query.priority, query.until) == (4, None)


def test_suspected_nodes_are_named() -> None:
    desk = running()
    desk.nodes["n2"] = protocol.NodeSeen(incarnation="a", capacity_percent=100.0, suspected=True)
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
    found = application_status.broken("a/b", "progress: is no JSON", coordinator=False)
    assert reasons(found) == [Reason.NO_COORDINATOR, Reason.BAD_RECORD]
    assert found.notices[1].text == "progress: is no JSON"


def test_a_standing_and_an_explanation_are_json() -> None:
    desk = short_of_capacity()
    for value in (desk.stands(), desk.explain("busiest")):
        assert json.loads(json.dumps(msgspec.to_builtins(value)))
