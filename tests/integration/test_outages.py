"""Outages that last: checkpoints go on while partitions are behind, and nothing is lost with more.

Under `blocking` what has stopped with a node stays behind until that node is back, so that a test
says how long an outage lasts.
"""

from collections.abc import Callable

import pytest
from application import Application

Prepare = Callable[..., Application]

POLICY = {"strategy": "blocking", "correlated_nodes_min": 1}
RUNTIME = {"checkpoint_seconds": 3, "outage_checkpoint_seconds": 3}


@pytest.fixture
def application(prepare: Prepare) -> Application:
    """It runs, all live, with a checkpoint."""
    application = prepare(policy=POLICY, runtime=RUNTIME)
    application.start_and_recover()
    return application


def lose_the_top_queries(application: Application) -> str:
    """Kill the node of `most-readings`, and wait until it is known; who it was."""
    (victim,) = application.nodes_of("most-readings")
    begin = application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
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


def test_checkpoints_of_a_long_outage_have_the_input_of_who_is_behind(
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
    application.finish()


def test_a_second_loss_during_an_outage_goes_back_no_further_than_its_checkpoints(
    application: Application,
) -> None:
    first = lose_the_top_queries(application)
    checkpoint = await_checkpoints(application, 2)
    survivors = [node.name for node in application.cluster.nodes if node.name != first]
    before, begin = len(application.commits()), application.seen
    application.cluster.kill(survivors[:1])
    application.await_event("confirmed", after=begin, node=survivors[0])
    for node in (first, survivors[0]):
        application.cluster.start_worker(node)
    application.await_event("recovered", after=begin)
    lost = {name for name, node in application.placement().items() if node == survivors[0]}
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
    application.finish()


def test_a_driver_that_dies_in_an_outage_goes_on_with_the_input_in_the_store(
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
    application.finish()


def test_a_driver_goes_on_from_the_checkpoint_before_one_with_a_damaged_file(
    application: Application,
) -> None:
    begin = application.seen
    application.await_event("checkpoint", after=begin)
    application.driver.kill()
    states = application.store.glob("checkpoints/*/by-hour-0.state")
    newest = max(states, key=lambda path: int(path.parent.name))
    newest.write_bytes(newest.read_bytes()[:-3])
    application.start()
    assert application.await_end() == 1
    assert "start again: checkpoint" in application.last_words()
    begin = application.seen
    application.start()
    application.await_event("recovered", after=begin)
    application.finish()
