"""Time to pixels: the scale of the picture, its ticks, and labels that do not overlap.

Pure arithmetic. `timeline` calls it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

TICKS_MAX = 13


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Times in [start, end] seconds lie on pixels [left, right]."""

    start: float
    end: float
    left: float
    right: float

    def x(self, t: float) -> float:
        """Give the pixel of a time, kept within the picture."""
        inside = min(max(t, self.start), self.end)
        share = (inside - self.start) / (self.end - self.start)
        return round(self.left + share * (self.right - self.left), 2)


def ticks(scale: TimeScale) -> list[float]:
    """Give round times in the picture, at most 13, zero among them."""
    rough = (scale.end - scale.start) / TICKS_MAX
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(step for n in (1, 2, 5, 10) if (step := n * magnitude) >= rough)
    first, last = math.ceil(scale.start / step), math.floor(scale.end / step)
    return [n * step for n in range(first, last + 1)]


def spread(labels: Iterable[tuple[float, str]], pixels_per_sign: float) -> list[tuple[float, str]]:
    """Leave out labels (x, text), centred and ascending, that would touch the one before."""
    kept: list[tuple[float, str]] = []
    free_from = -math.inf
    for x, text in labels:
        half = len(text) * pixels_per_sign / 2
        if x - half >= free_from:
            kept.append((x, text))
            free_from = x + half + pixels_per_sign
    return kept
