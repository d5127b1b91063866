"""Adaptive buffering and ordering: off while nothing fails, on from a failure to its end.

With both off nothing is retained, output appears with checkpoints, and survivors roll back once.
"""

from collections.abc import Callable

from application import LASTING, Application
from harms import all_nodes, lose, meet, start_workers

Prepare = Callable[..., Application]
ADAPTIVE = {"buffering": "adaptive", "ordering": "adaptive"}


def test_with_both_adaptive_each_failure_rolls_back_once_and_no_row_changes(
    prepare: Prepare,
) -> None:
    application = prepare(policy=ADAPTIVE, runtime={**LASTING, "node_cpu_percent": 40})
    application.start_and_recover()
    meet(
        application,
        unordered_output_appears_with_checkpoints_only,
        both_switches_go_on_with_a_failure_and_off_at_the_first_whole_checkpoint,
        spread=False,
    )
    # partitions do not move while nothing is retained: the next driver's are on all nodes
    output_appears_once_also_if_the_driver_dies(application)
    meet(application, a_second_failure_in_a_recovery_rolls_nobody_back_again)
    application.finish()


def test_with_fixed_ordering_only_buffering_is_switched_and_no_row_changes(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"buffering": "adaptive", "ordering": "always"})
    application.start_and_recover()
    assert switches_in_a_failure(application) == []
    application.finish()


def unordered_output_appears_with_checkpoints_only(application: Application) -> None:
    begin = application.seen
    application.await_condition(
        "two checkpoints", lambda: len(application.happened("checkpoint", after=begin)) >= 2
    )
    taken = {event["epoch"] for event in application.happened("checkpoint")}
    committed = {event["epoch"] for event in application.happened("commit", after=begin)}
    assert committed
    assert committed <= taken


def both_switches_go_on_with_a_failure_and_off_at_the_first_whole_checkpoint(
    application: Application,
) -> None:
    assert switches_in_a_failure(application) == ["on", "off"]


def switches_in_a_failure(application: Application) -> list[str]:
    """Lose two nodes and get them back; how ordering was switched meanwhile, beside buffering."""
    application.await_event("statistics")
    begin = application.seen
    victims = all_nodes(application)[:2]
    application.cluster.kill(victims)
    on = application.await_event("buffering", after=begin, mode="on")
    rolled = application.await_event("rolled-back", after=begin)
    assert rolled["epoch"] <= on["epoch"]
    start_workers(application, *victims, after=begin)
    application.await_event("recovered", after=begin)
    off = application.await_event("buffering", after=begin, mode="off")
    closed = application.await_event("incident-closed", after=begin)
    checkpoints = application.happened("checkpoint", after=begin)
    assert off["reason"] == "recovered"
    assert on["epoch"] < off["epoch"]
    assert any(checkpoint["at"] <= closed["at"] for checkpoint in checkpoints)
    assert len(application.happened("rolled-back", after=begin)) == 1
    return [event["mode"] for event in application.happened("ordering", after=begin)]


def a_second_failure_in_a_recovery_rolls_nobody_back_again(application: Application) -> None:
    begin = application.seen
    first, second = all_nodes(application)[:2]
    application.cluster.kill([first])
    application.await_event("rolled-back", after=begin)
    lose(application, [second])
    start_workers(application, first, second, after=begin)
    application.await_event("recovered", after=begin)
    application.await_event("incident-closed", after=begin)
    assert len(application.happened("rolled-back", after=begin)) == 1


def output_appears_once_also_if_the_driver_dies(application: Application) -> None:
    application.await_event("checkpoint", after=application.seen)
    application.driver.kill()
    application.start_and_recover()
