"""Adaptive buffering and ordering: off while nothing fails, on from a failure to its end.

With both off nothing is retained, output appears with checkpoints, and survivors roll back once.
"""

import pytest
from application import Application, Event

Prepare = object
ADAPTIVE = {"buffering": "adaptive", "ordering": "adaptive"}


def modes(application: Application, after: int, kind: str) -> list[Event]:
    return application.happened(kind, after=after)


@pytest.mark.parametrize("ordering", ["adaptive", "always"])
def test_switches_go_on_with_a_failure_and_off_at_the_first_whole_checkpoint(
    prepare, ordering: str
) -> None:
    application = prepare(policy={"buffering": "adaptive", "ordering": ordering})
    application.start_and_recover()
    application.await_event("statistics")
    begin = application.seen
    victims = [node.name for node in application.cluster.nodes[:2]]
    application.cluster.kill(victims)
    on = application.await_event("buffering", after=begin, mode="on")
    rolled = application.await_event("rolled-back", after=begin)
    assert rolled["epoch"] <= on["epoch"]
    for victim in victims:
        application.cluster.start_worker(victim)
    application.await_event("recovered", after=begin)
    off = application.await_event("buffering", after=begin, mode="off")
    closed = application.await_event("incident-closed", after=begin)
    checkpoints = application.happened("checkpoint", after=begin)
    assert off["reason"] == "recovered"
    assert on["epoch"] < off["epoch"]
    assert any(checkpoint["at"] <= closed["at"] for checkpoint in checkpoints)
    assert len(application.happened("rolled-back", after=begin)) == 1
    switched = [event["mode"] for event in modes(application, begin, "ordering")]
    assert switched == (["on", "off"] if ordering == "adaptive" else [])
    application.finish()


def test_unordered_output_appears_with_checkpoints_only_and_once_also_if_the_driver_dies(
    prepare,
) -> None:
    application = prepare(policy=ADAPTIVE)
    application.start_and_recover()
    begin = application.seen
    application.await_condition(
        "two checkpoints", lambda: len(application.happened("checkpoint", after=begin)) >= 2
    )
    taken = {event["epoch"] for event in application.happened("checkpoint")}
    committed = {event["epoch"] for event in application.happened("commit", after=begin)}
    assert committed
    assert committed <= taken
    application.driver.kill()
    application.start_and_recover()
    application.finish()


def test_a_second_failure_in_a_recovery_rolls_nobody_back_again(prepare) -> None:
    application = prepare(policy=ADAPTIVE, runtime={"node_cpu_percent": 40})
    application.start_and_recover()
    begin = application.seen
    first, second = (node.name for node in application.cluster.nodes[:2])
    application.cluster.kill([first])
    application.await_event("rolled-back", after=begin)
    application.cluster.kill([second])
    application.await_event("confirmed", after=begin, node=second)
    for victim in (first, second):
        application.cluster.start_worker(victim)
    application.await_event("recovered", after=begin)
    assert len(application.happened("rolled-back", after=begin)) == 1
    application.finish()
