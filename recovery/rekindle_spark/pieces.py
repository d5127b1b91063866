"""How many epochs one job of catching up takes on.

A job costs something whatever it carries, and more with each epoch. Both are estimated from the
executor's own jobs, recent ones counting most. The next piece takes as long as it is to, or, where
what a job costs by itself takes more than half of that, as long again as this: shorter pieces
would then gain hardly anything on the live epochs, and longer ones hold those up for little.
Pure: measured times are given.
"""

from dataclasses import dataclass

__all__ = ["PIECE_EPOCHS_FIRST", "PIECE_EPOCHS_MAX", "Pieces"]

PIECE_EPOCHS_FIRST, PIECE_EPOCHS_MAX = 4, 64
# of what is known, with each further job
KEPT = 0.8
# of squared epochs: below it, jobs were too much alike to tell the two costs apart
VARIANCE_MIN = 0.1


@dataclass(slots=True)
class Pieces:
    """Sizes of one executor's pieces: `epochs` of the next one, at most.

    `jobs` is the weight of those that were measured; the others are weighted means of their epochs
    and seconds, of the squares of the epochs and of the products. `epoch_seconds` is what an epoch
    was last found to take.
    """

    epochs: int = PIECE_EPOCHS_FIRST
    jobs: float = 0.0
    mean_epochs: float = 0.0
    mean_seconds: float = 0.0
    mean_square: float = 0.0
    mean_product: float = 0.0
    epoch_seconds: float | None = None

    def took(self, epochs: int, seconds: float, target_seconds: float) -> None:
        """A piece of so many epochs went well: the next one is sized to take `target_seconds`, at
        most twice as large as this one was to be and at least half."""
        self.jobs = KEPT * self.jobs + 1.0
        share = 1.0 / self.jobs
        self.mean_epochs += share * (epochs - self.mean_epochs)
        self.mean_seconds += share * (seconds - self.mean_seconds)
        self.mean_square += share * (epochs * epochs - self.mean_square)
        self.mean_product += share * (epochs * seconds - self.mean_product)
        job_seconds, epoch_seconds = self.costs()
        wanted = max(target_seconds - job_seconds, job_seconds) / max(epoch_seconds, 1e-6)
        least, most = max(1, self.epochs // 2), min(PIECE_EPOCHS_MAX, 2 * self.epochs)
        self.epochs = max(least, min(most, round(wanted)))

    def failed(self) -> None:
        """A piece did not count: the next one is small."""
        self.epochs = 1

    def costs(self) -> tuple[float, float]:
        """Seconds of a job by itself, and of each of its epochs, by least squares. While jobs are
        too much alike the epochs' are what they were found to be before, at first all of it."""
        variance = self.mean_square - self.mean_epochs**2
        if variance >= VARIANCE_MIN:
            covariance = self.mean_product - self.mean_epochs * self.mean_seconds
            self.epoch_seconds = max(0.0, covariance / variance)
        most = self.mean_seconds / max(self.mean_epochs, 1.0)
        epoch_seconds = most if self.epoch_seconds is None else min(self.epoch_seconds, most)
        return self.mean_seconds - epoch_seconds * self.mean_epochs, epoch_seconds
