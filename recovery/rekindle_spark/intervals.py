"""Stretches of consecutive numbers: begin and end (exclusive) of each, one after the other.

of([3, 1, 2, 7])  ->  (1, 4, 7, 8)
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence


def of(found: Iterable[int]) -> tuple[int, ...]:
    """The stretches of some numbers, which may come in any order and more than once."""
    stretches: list[int] = []
    for number in sorted(set(found)):
        if stretches and stretches[-1] == number:
            stretches[-1] = number + 1
        else:
            stretches += [number, number + 1]
    return tuple(stretches)


def numbers(stretches: Sequence[int]) -> Iterator[int]:
    """All numbers in stretches, ascending."""
    for begin, end in zip(stretches[::2], stretches[1::2], strict=True):
        yield from range(begin, end)


def union(several: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The stretches of all numbers that are in some of several."""
    pairs = sorted(pair for one in several for pair in zip(one[::2], one[1::2], strict=True))
    stretches: list[int] = []
    for begin, end in pairs:
        if stretches and begin <= stretches[-1]:
            stretches[-1] = max(stretches[-1], end)
        else:
            stretches += [begin, end]
    return tuple(stretches)


def has(stretches: Sequence[int], number: int) -> bool:
    """Whether a number is in one of the stretches."""
    return bisect_right(stretches, number) % 2 == 1


def meets(stretches: Sequence[int], begin: int, end: int) -> bool:
    """Whether one of the numbers from `begin` to before `end` is in one of the stretches."""
    reached = bisect_right(stretches, begin)
    return begin < end and (
        reached % 2 == 1 or (reached < len(stretches) and stretches[reached] < end)
    )
