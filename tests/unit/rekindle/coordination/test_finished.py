"""A run that has ended in order is let be, and its driver not taken for lost."""

from dataclasses import replace

import msgspec
from application_world import running

from rekindle.coordination.coordination_state import NodeStatus
from rekindle.coordination.session import Driver
from rekindle.protocol import (
    Orders,
)


def test_nothing_is_asked_for_or_planned_when_a_driver_has_finished() -> None:
    desk = running()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    assert desk.decide().case.requests
    desk.report(finished=True)
    desk.reading = replace(
        desk.reading, heartbeat=None, driver_gone=True, nodes_gone=frozenset({"n3"})
    )
    decision = desk.decide()
    assert decision.case.driver is Driver.FINISHED
    assert (decision.directives, decision.case.requests) == ((), {})
    assert decision.case.driver_at == desk.now


def test_a_finished_run_is_let_be_while_its_driver_is_still_seen() -> None:
    desk = running()
    del desk.nodes["n1"]
    desk.report(finished=True)
    desk.reading = replace(
        desk.reading, nodes_gone=frozenset({"n2"}), orders=Orders(paused=True), driver_gone=False
    )
    decision = desk.decide()
    assert desk.reading.heartbeat is not None
    assert (decision.directives, decision.case.requests) == ((), {})
    assert decision.case.state is not None
    assert decision.case.state.nodes["n2"].status is NodeStatus.UP


def test_the_next_run_begins_without_the_incident_of_one_that_has_finished() -> None:
    desk = running()
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    found = desk.decide().case.state
    assert found is not None
    assert found.incident is not None
    desk.report(finished=True)
    desk.decide()
    desk.reading = replace(
        desk.reading,
        topology=msgspec.structs.replace(desk.reading.topology, generation=2, resumed=True),
        heartbeat=None,
    )
    state = desk.decide().case.state
    assert state is not None
    assert state.incident is None or state.incident.number > found.incident.number
