"""The fewest faults with which a trial still fails: halves are left out first, then single ones.

Pure but for the question whether a trial fails, which takes a run each. Zeller and Hildebrandt,
"Simplifying and isolating failure-inducing input", IEEE TSE 2002, section 3, with a limit of runs.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shortest(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], runs: int
) -> list[Item]:
    """A part of `items`, in order, that still fails; as short as `runs` runs make it.

    All of them together are known to fail.
    """
    left, pieces = list(items), 2
    while len(left) > 0 and runs > 0:
        size = -(-len(left) // pieces)
        for begin in range(0, len(left), size):
            rest = left[:begin] + left[begin + size :]
            runs -= 1
            if fails(rest):
                left, pieces = rest, max(2, pieces - 1)
                break
            if runs == 0:
                break
        else:
            if size == 1:
                break
            pieces = min(len(left), pieces * 2)
    return left
