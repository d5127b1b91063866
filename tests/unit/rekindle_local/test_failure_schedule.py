"""Which nodes fail when: the same for every system with the same seed."""

import pytest

from rekindle.model.errors import InputError
from rekindle_local import failure_schedule

NODES = [f"127.0.0.{number}" for number in range(2, 10)]


def test_the_public_schedule_kills_one_then_two_then_four_of_eight_and_no_node_twice() -> None:
    schedule = failure_schedule.workers(5.0)
    assert (schedule.nodes, schedule.kills, schedule.every_seconds) == (8, (1, 2, 4), 300.0)
    drawn = failure_schedule.drawn(NODES, schedule.kills, seed=3)
    assert [len(nodes) for nodes in drawn] == [1, 2, 4]
    assert len({node for nodes in drawn for node in nodes}) == 7


def test_a_seed_says_who_dies_and_who_comes_back_first() -> None:
    for seed in range(20):
        assert failure_schedule.drawn(NODES, (4,), seed) == failure_schedule.drawn(
            NODES, (4,), seed
        )
        assert sorted(failure_schedule.return_order(NODES, seed)) == sorted(NODES)
    assert len({failure_schedule.drawn(NODES, (4,), seed) for seed in range(20)}) > 10
    assert len({failure_schedule.return_order(NODES, seed) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    ("nodes", "kill", "expected"),
    [(None, None, (10, (8,))), (3, None, (3, (2,))), (4, 1, (4, (1,)))],
)
def test_the_demo_kills_eight_of_ten_unless_it_is_told_otherwise(
    nodes: int | None, kill: int | None, expected: tuple[int, tuple[int, ...]]
) -> None:
    schedule = failure_schedule.demo(nodes, kill)
    assert (schedule.nodes, schedule.kills) == expected


def test_some_node_survives() -> None:
    with pytest.raises(InputError, match="leave some alive"):
        failure_schedule.demo(4, 4)
