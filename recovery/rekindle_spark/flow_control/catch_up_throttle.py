"""Computes how long catch-up pauses, so that live queries keep their time.

On an executor both share the CPU that it may use. Work is done in whole epochs of partitions, which
cannot be put aside for a live query, so catching up is paced: after each of its jobs an executor
with live partitions rests, the longer the more the epochs exceed what they take otherwise. Never
so long that it gains less than two epochs in the time of one: where nodes have little to spare,
it would be behind for minutes.
"""

from dataclasses import dataclass

SLOWED_MAX = 0.1
REST_FIRST, REST_MAX = 0.25, 4.0
# Epochs that are caught up in the time of one, at least, however slow the live ones are.
GAIN_MIN = 3.0
GROWTH = 1.5
SMOOTHING = 0.2


@dataclass(slots=True)
class CatchUpThrottle:
    """`interval_seconds` is how far apart epochs are cut when all is well, `usual_seconds` what
    one takes when nothing catches up; `rest_ratio` what a rest takes of the time of the job before
    it."""

    interval_seconds: float
    usual_seconds: float = 0.0
    rest_ratio: float = 0.0

    def epoch_took(self, seconds: float, *, alone: bool) -> None:
        """An epoch of live partitions has run; `alone`: nothing was done for what is
        behind."""
        if alone:
            self.usual_seconds += SMOOTHING * (seconds - self.usual_seconds)
            self.rest_ratio = 0.0
        elif seconds > (1.0 + SLOWED_MAX) * max(self.interval_seconds, self.usual_seconds):
            self.rest_ratio = min(REST_MAX, max(REST_FIRST, GROWTH * self.rest_ratio))
        elif self.rest_ratio > REST_FIRST:
            self.rest_ratio /= GROWTH
        else:
            self.rest_ratio = 0.0

    def rest_seconds(self, job_seconds: float, epochs: int) -> float:
        """How long to rest after a job of catching up by so many epochs."""
        spare = epochs * self.interval_seconds / GAIN_MIN - job_seconds
        return max(0.0, min(self.rest_ratio * job_seconds, spare))
