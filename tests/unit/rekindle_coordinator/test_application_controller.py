"""Whose turn it is: news first, moments when they have come, all the others in between."""

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.application_controller import NEVER, ApplicationQueue

A, B, C = (Place("test", name) for name in "abc")


def order(turns: ApplicationQueue, now: float = 0.0) -> list[Place]:
    found = []
    while (place := turns.next(now)) is not None:
        found.append(place)
    return found


def test_news_come_before_those_that_only_have_to_be_looked_at_some_time() -> None:
    turns = ApplicationQueue()
    turns.queue([A, B, C])
    turns.hurry(C)
    assert order(turns) == [C, A, B]


def test_one_turn_is_enough_however_often_something_happens() -> None:
    turns = ApplicationQueue()
    turns.queue([A])
    for _ in range(3):
        turns.hurry(A)
    assert len(turns) == 1
    assert order(turns) == [A]


def test_a_moment_comes_once_and_the_newest_word_about_it_counts() -> None:
    turns = ApplicationQueue()
    turns.at(A, 10.0)
    turns.at(A, 20.0)
    turns.at(B, 15.0)
    turns.at(B, NEVER)
    assert order(turns, 19.9) == []
    assert turns.wait_seconds(19.0, 100.0) == 1.0
    assert order(turns, 20.0) == [A]
    assert order(turns, 30.0) == []


def test_there_is_no_waiting_while_somebody_waits_for_a_turn() -> None:
    turns = ApplicationQueue()
    assert turns.wait_seconds(0.0, 7.0) == 7.0
    turns.queue([A])
    assert turns.wait_seconds(0.0, 7.0) == 0.0


def test_who_is_forgotten_has_no_turn() -> None:
    turns = ApplicationQueue()
    turns.hurry(A)
    turns.at(B, 1.0)
    turns.forget(A)
    turns.forget(B)
    assert order(turns, 2.0) == []


def test_one_that_always_has_news_has_one_turn_while_a_thousand_others_have_theirs() -> None:
    """So each of them waits for one plan of it at most, which its budget bounds."""
    queue, greedy = ApplicationQueue(), Place("tenants", "greedy")
    others = [Place("tenants", f"a{number}") for number in range(1_000)]
    queue.hurry(greedy)
    for other in others:
        queue.hurry(other)
    served = []
    while len(served) <= len(others):
        place = queue.next(0.0)
        assert place is not None
        served.append(place)
        if place == greedy:
            queue.hurry(greedy)
    assert served == [greedy, *others]
    assert queue.next(0.0) == greedy
