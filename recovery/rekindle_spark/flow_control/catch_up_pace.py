"""How many epochs one job of catching up takes on, and how long catching up rests.

A job costs something whatever it carries, and more with each epoch. Both are estimated from the
executor's own jobs, recent ones counting most; its first one loads classes and says nothing. The
next piece takes as long as it is to, or, where what a job costs by itself takes more than half of
that, as long again as this: shorter pieces would then gain hardly anything on the live epochs, and
longer ones hold those up for little. Jobs that are all alike do not tell the two costs apart: the
next one is a little larger then, for what was found before may hold no more, and half as large
after the only one that was measured, where that was too long. On nodes that had just
come, whose code was not compiled yet, pieces stayed at two epochs that took as long as eight.

On an executor catching up shares the CPU with live queries. Work is done in whole epochs of
partitions, which cannot be put aside for a live query, so catching up is paced: after each of its
jobs an executor with live partitions rests, the longer the more the epochs exceed what they take
otherwise. Never so long that it gains less than two epochs in the time of one: where nodes have
little to spare, it would be behind for minutes. Pure: measured times are given.
"""

from dataclasses import dataclass

PIECE_EPOCHS_FIRST, PIECE_EPOCHS_MAX = 8, 64
# of what is known, with each further job
KEPT = 0.8
# of squared epochs: below it, jobs were too much alike to tell the two costs apart
VARIANCE_MIN = 0.1


@dataclass(slots=True)
class CatchUpBatching:
    """Sizes of one executor's pieces: `epochs` of the next one, at most.

    `jobs` is the weight of those that were measured; the others are weighted means of their epochs
    and seconds, of the squares of the epochs and of the products. `is_cold`: none has run yet.
    """

    epochs: int = PIECE_EPOCHS_FIRST
    is_cold: bool = True
    jobs: float = 0.0
    mean_epochs: float = 0.0
    mean_seconds: float = 0.0
    mean_square: float = 0.0
    mean_product: float = 0.0

    def took(self, epochs: int, seconds: float, target_seconds: float) -> None:
        """A piece of so many epochs went well: the next one is sized to take `target_seconds`, at
        most twice as large as this one was to be and at least half."""
        if self.is_cold:
            self.is_cold = False
            return
        self._count(epochs, seconds)
        found = self.costs()
        if found is not None:
            job_seconds, epoch_seconds = found
            wanted = max(target_seconds - job_seconds, job_seconds) / max(epoch_seconds, 1e-6)
        elif epochs < self.epochs:
            return  # there was no more to do
        elif seconds < target_seconds / 2:
            wanted = 2 * self.epochs
        elif self.is_first and seconds > target_seconds:
            wanted = self.epochs // 2
        else:
            wanted = self.epochs + 1
        least, most = max(1, self.epochs // 2), min(PIECE_EPOCHS_MAX, 2 * self.epochs)
        self.epochs = max(least, min(most, round(wanted)))

    @property
    def is_first(self) -> bool:
        """Whether only one has been measured."""
        return self.jobs == 1.0

    def failed(self) -> None:
        """A piece did not count: the next one is small."""
        self.epochs = 1

    def costs(self) -> tuple[float, float] | None:
        """Seconds of a job by itself, and of each of its epochs, by least squares; None while jobs
        are too much alike."""
        variance = self.mean_square - self.mean_epochs**2
        if variance < VARIANCE_MIN:
            return None
        covariance = self.mean_product - self.mean_epochs * self.mean_seconds
        most = self.mean_seconds / self.mean_epochs
        epoch_seconds = min(most, max(0.0, covariance / variance))
        return self.mean_seconds - epoch_seconds * self.mean_epochs, epoch_seconds

    def _count(self, epochs: int, seconds: float) -> None:
        self.jobs = KEPT * self.jobs + 1.0
        share = 1.0 / self.jobs
        self.mean_epochs += share * (epochs - self.mean_epochs)
        self.mean_seconds += share * (seconds - self.mean_seconds)
        self.mean_square += share * (epochs * epochs - self.mean_square)
        self.mean_product += share * (epochs * seconds - self.mean_product)


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
