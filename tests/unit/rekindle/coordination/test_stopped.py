"""Queries that a user's function has stopped are no loss: nothing is planned or awaited."""

from dataclasses import replace
from typing import Any

import msgspec
from application_world import COSTS, Desk, orders, running

from rekindle.coordination.coordination_state import CoordinationState
from rekindle.protocol import CheckpointReport, Heartbeat, PlanOrder

WHY = "step tops: raised ValueError: bad"
STOPPED = {"ranking/0": WHY}


def stop(desk: Desk) -> None:
    """The driver takes the ranking out of what runs."""
    del desk.placement["tops/0"]
    desk.report(stopped=STOPPED)


def settle(desk: Desk, **fields: Any) -> list[PlanOrder]:
    """Report and decide for a while; the plans that were made."""
    plans = []
    for _ in range(5):
        desk.report(stopped=STOPPED, **fields)
        plans += orders(desk.decide(), PlanOrder)
        desk.placement.pop("tops/0", None)
    return plans


def state(desk: Desk) -> CoordinationState:
    assert desk.case.state is not None
    return desk.case.state


def test_no_plan_is_made_for_a_query_that_has_stopped() -> None:
    desk = running()
    stop(desk)
    assert not desk.decide().directives
    assert settle(desk) == []
    assert state(desk).stopped == STOPPED
    assert state(desk).incident is None


def test_after_a_loss_the_others_are_planned_and_their_incident_ends_without_it() -> None:
    desk = running()
    stop(desk)
    desk.decide()
    del desk.nodes[desk.placement["counts/0"]]
    plans = settle(desk)
    planned = {partition for plan in plans for partition in plan.placement}
    assert "counts/0" in planned
    assert "tops/0" not in planned
    assert set(desk.placement) == COSTS.keys() - {"tops/0"}
    assert state(desk).incident is not None
    report = CheckpointReport(generation=1, sequence=9, epoch=9, at=desk.now)
    desk.reading = replace(desk.reading, checkpoint=report)
    settle(desk)
    assert state(desk).incident is None


def test_a_plan_on_its_way_that_names_it_is_carried_out_for_the_others_only() -> None:
    desk = running()
    node = desk.placement["tops/0"]
    del desk.nodes[node]
    desk.report()
    plan = orders(desk.decide(), PlanOrder)[0]
    assert "tops/0" in plan.placement
    del desk.placement["tops/0"]
    assert settle(desk) == []
    assert set(desk.placement) == COSTS.keys() - {"tops/0"}


def test_another_coordinator_hears_of_it_with_the_next_report() -> None:
    desk = running()
    stop(desk)
    desk.decide()
    desk.case = desk.restart()
    assert not desk.decide().directives
    assert state(desk).stopped == STOPPED


def test_a_new_driver_brings_it_back() -> None:
    desk = running()
    stop(desk)
    desk.decide()
    desk.reading = replace(
        desk.reading,
        topology=msgspec.structs.replace(desk.reading.topology, generation=2, resumed=True),
        heartbeat=Heartbeat(generation=2, since=0.0),
    )
    desk.placement, desk.plan_epoch = {}, 0
    desk.report()
    (plan,) = orders(desk.decide(), PlanOrder)
    assert "tops/0" in plan.placement
    assert state(desk).stopped == {}
