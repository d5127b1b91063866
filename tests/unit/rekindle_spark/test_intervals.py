"""Stretches of consecutive numbers."""

from hypothesis import given
from hypothesis import strategies as st

from rekindle_spark import intervals


def test_numbers_in_a_row_become_one_stretch() -> None:
    assert intervals.of([]) == ()
    assert intervals.of([3, 1, 2, 7, 7]) == (1, 4, 7, 8)


@given(st.sets(st.integers(-5, 30)))
def test_stretches_have_the_numbers_that_they_were_made_of(found: set[int]) -> None:
    stretches = intervals.of(found)
    assert list(intervals.numbers(stretches)) == sorted(found)
    assert {number for number in range(-6, 32) if intervals.has(stretches, number)} == found


@given(st.lists(st.sets(st.integers(0, 12)), max_size=4))
def test_a_union_has_what_some_of_several_have(several: list[set[int]]) -> None:
    stretches = intervals.union(intervals.of(one) for one in several)
    assert stretches == intervals.of(set().union(*several))


@given(st.sets(st.integers(0, 12)), st.integers(-1, 13), st.integers(-1, 14))
def test_stretches_meet_a_span_that_has_one_of_their_numbers(
    found: set[int], begin: int, end: int
) -> None:
    assert intervals.meets(intervals.of(found), begin, end) == (
        not found.isdisjoint(range(begin, end))
    )
