"""Outages that last: checkpoints go on while partitions are behind, and nothing is lost with more.

Under `blocking` what has stopped with a node stays behind until that node is back, so that a test
says how long an outage lasts.
"""

from collections.abc import Callable

from application import LASTING, Application, Before
from harms import all_nodes, lose, meet, neighbours, start_workers

Prepare = Callable[..., Application]

POLICY = {"strategy": "blocking", "correlated_nodes_min": 1}
RUNTIME = {**LASTING, "checkpoint_seconds": 3, "outage_checkpoint_seconds": 3}


def test_in_outages_that_last_checkpoints_have_the_input_of_who_is_behind_and_no_row_changes(
    prepare: Prepare,
) -> None:
    application = prepare(policy=POLICY, runtime=RUNTIME)
    application.start_and_recover()
    meet(
        application,
        checkpoints_of_a_long_outage_have_the_input_of_who_is_behind,
        after_two_losses_nothing_is_planned_until_both_nodes_are_back,
        a_second_loss_goes_back_no_further_than_checkpoints_of_the_outage,
        a_driver_that_dies_in_an_outage_goes_on_with_the_input_in_the_store,
    )
    application.finish()


def lose_the_top_queries(application: Application) -> str:
    """Kill the node of `most-readings`, and wait until it is known; who it was."""
    (victim,) = application.nodes_of("most-readings")
    lose(application, [victim])
    return victim


def await_checkpoints(application: Application, count: int) -> int:
    """Wait for so many more checkpoints while partitions are behind; the epoch of the last."""
    begin = application.seen

    def partial() -> list[int]:
        found = application.happened("checkpoint", after=begin)
        return [event["epoch"] for event in found if event["behind"]]

    application.await_condition(f"{count} checkpoints", lambda: len(partial()) >= count)
    return partial()[-1]


def stored_inputs(application: Application) -> list[str]:
    return sorted(path.name for path in application.store.glob("checkpoints/*/*.input"))


def checkpoints_of_a_long_outage_have_the_input_of_who_is_behind(
    application: Application,
) -> None:
    victim = lose_the_top_queries(application)
    await_checkpoints(application, 3)
    assert "most-readings-0.input" in stored_inputs(application)
    begin = application.seen
    application.cluster.start_worker(victim)
    application.await_event("recovered", after=begin)
    for _ in range(2):  # the one before is kept as well
        begin = application.seen
        application.await_event("checkpoint", after=begin, behind=0)
    assert stored_inputs(application) == []


def after_two_losses_nothing_is_planned_until_both_nodes_are_back(
    application: Application,
) -> None:
    victims = all_nodes(application)[:2]
    before = Before.of(application)
    lose(application, victims)
    start_workers(application, victims[0], after=before.events)
    assert not application.happened("plan", after=before.events)
    start_workers(application, victims[1], after=before.events)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, *victims))


def a_second_loss_goes_back_no_further_than_checkpoints_of_the_outage(
    application: Application,
) -> None:
    first = lose_the_top_queries(application)
    checkpoint = await_checkpoints(application, 2)
    second = neighbours(application, first)[0]
    before = len(application.commits())
    begin = lose(application, [second])
    start_workers(application, first, second, after=begin)
    application.await_event("recovered", after=begin)
    lost = {name for name, node in application.placement().items() if node == second}
    again = [
        (name, begun)
        for record in application.commits()[before:]
        for name, (begun, _, _) in record["finished"].items()
        if name in lost
    ]
    assert again
    first_behind = {
        name
        for record in application.commits()[:before]
        for name, (_, last, _) in record["finished"].items()
        if last >= checkpoint
    }
    assert all(begun > checkpoint for name, begun in again if name in first_behind)


def a_driver_that_dies_in_an_outage_goes_on_with_the_input_in_the_store(
    application: Application,
) -> None:
    victim = lose_the_top_queries(application)
    await_checkpoints(application, 2)
    application.driver.kill()
    assert "most-readings-0.input" in stored_inputs(application)
    begin = application.seen
    application.cluster.start_worker(victim)
    application.start()
    application.await_event("recovered", after=begin)
