"""Why an important query waits while a lesser one runs, in a sentence."""

from dataclasses import replace

from rekindle.planning import wait_explanation
from rekindle.planning.wait_explanation import Lesser, Wait

WAIT = Wait("late", 7.0, needed=34.2, largest=20.0, free=12.04, free_on_one=8.0)
SURVIVOR = Lesser("windy", 1.0, ran_before=True)


def test_a_query_that_survived_is_not_stopped_for_one_that_has_no_room() -> None:
    assert wait_explanation.sentence(WAIT, SURVIVOR) == (
        "late (priority 7) waits while windy (priority 1) runs: it needs 34 % of a core and 12 % "
        "is left, and what runs is not stopped for it."
    )


def test_a_query_that_comes_back_with_the_plan_needed_less() -> None:
    said = wait_explanation.sentence(WAIT, replace(SURVIVOR, ran_before=False))
    assert said == (
        "late (priority 7) waits while windy (priority 1) comes back: it needs 34 % of a core and "
        "12 % is left, and windy needed less."
    )


def test_a_partition_that_is_too_large_for_any_node_is_named() -> None:
    said = wait_explanation.sentence(replace(WAIT, free=40.0, free_on_one=15.0), SURVIVOR)
    assert "a partition of it needs 20 % of a core and no node has more than 15 %," in said


def test_room_that_is_there_only_in_pieces_is_said_to_be() -> None:
    said = wait_explanation.sentence(replace(WAIT, free=40.0, free_on_one=21.0), SURVIVOR)
    assert "it needs 34 % of a core and the 40 % that is left does not hold it in pieces" in said


def test_no_room_at_all_is_nothing() -> None:
    assert "and nothing is left, and" in wait_explanation.sentence(
        replace(WAIT, free=0.01), SURVIVOR
    )
