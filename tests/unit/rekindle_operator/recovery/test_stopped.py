"""The story of an incident in which queries have stopped, because a function of theirs raises."""

from story_courses import bring_back, lose_three_and_wait
from story_world import running


def test_a_query_that_has_stopped_does_not_count_as_back_and_keeps_nobody_waiting() -> None:
    world = running()
    lose_three_and_wait(world)
    why = "step counts: raised ValueError: bad, at epoch 7"
    world.stopped = {"busiest/0": why, "busiest/1": why}
    bring_back(world)
    assert world.status().phase == "AwaitingCheckpoint"
    world.complete_checkpoint()
    world.step()
    status = world.status()
    assert status.message == "All queries but what has stopped, busiest, are back, after 1 plan."
    assert (status.phase, status.back) == ("Recovered", "2/3")
    row = {row.name: row for row in status.queries}["busiest"]
    assert row.lost_at is not None
    assert row.back_at is None
    assert (row.reason, row.message) == ("QueryStopped", f"It has stopped: {why}")


def test_a_query_of_which_a_part_has_stopped_is_lost_with_the_rest() -> None:
    world = running()
    world.stopped = {"busiest/0": "step counts: raised ValueError: bad"}
    world.lose(world.placement["counts/1"])
    world.step()
    status = world.status()
    row = {row.name: row for row in status.queries}["busiest"]
    assert status.phase in ("Recovering", "CatchingUp")
    assert row.lost_at is not None
    assert row.reason != "QueryStopped"
    world.settle()
    row = {row.name: row for row in world.status().queries}["busiest"]
    assert row.reason == "QueryStopped"
