"""The catch-up loop: brings newly placed partitions forward beside the epochs of the live ones.

A thread of its own. Each round is one job over all partitions that are behind, in pieces of some
epochs, producers before consumers (paper, Algorithm 2, lines 17-21: the buffered outputs go to
the restored partitions). A partition that is close behind is left to the epoch loop, which takes
it along in its next epoch.
"""

import threading
import time
from dataclasses import dataclass, field

from rekindle_spark import jobs, running
from rekindle_spark.application import Application
from rekindle_spark.control import Control

__all__ = ["CatchUp"]

IDLE_SECONDS = 0.05
RETRY_SECONDS = 0.15
PIECE_EPOCHS_MAX = 64
PIECE_ROWS_MAX = 4_000_000


@dataclass(slots=True)
class CatchUp:
    """Runs until the application stops; a failure is left in `application.failure`."""

    application: Application
    control: Control
    piece_epochs: int = 4
    attempts: running.Attempts = field(default_factory=running.Attempts)

    def start(self) -> threading.Thread:
        """Start the thread."""
        thread = threading.Thread(target=self._loop, name="catch-up", daemon=True)
        thread.start()
        return thread

    def _loop(self) -> None:
        application = self.application
        while not application.stopping:
            try:
                if not self._round():
                    time.sleep(IDLE_SECONDS)
            except Exception as error:
                application.failure = error
                return

    def _round(self) -> bool:
        application = self.application
        with application.lock:
            work = self._work()
            application.claimed = frozenset(work)
        if not work:
            return False
        result = running.run(application, work, urgency=running.CATCH_UP)
        with application.lock:
            application.claimed = frozenset()
        self.control.results.put(result)
        if result.finished:
            self.attempts.clear()
            self._resize(result.seconds)
        elif result.reason != "interrupted":
            self._failed(result)
        return True

    def _work(self) -> dict[int, tuple[int, int]]:
        """Each partition that is behind, with its next piece."""
        application, progress = self.application, self.application.progress
        gap = application.settings.runtime.join_gap_epochs
        work: dict[int, tuple[int, int]] = {}
        for partition in sorted(progress.catching_up):
            if progress.caught_up(partition, application.newest, gap):
                continue
            first = progress.finished[partition] + 1
            goal = min(application.newest, self._piece_end(first))
            last = jobs.reachable(progress, partition, work, goal)
            if last >= first:
                work[partition] = (first, last)
        return work

    def _piece_end(self, first: int) -> int:
        """The last epoch of a piece: bounded in epochs and in rows of input."""
        rows, last = 0, first
        for epoch in range(first, first + self.piece_epochs):
            if epoch not in self.application.cuts:
                break
            rows += self.application.cuts[epoch].rows
            last = epoch
            if rows > PIECE_ROWS_MAX:
                break
        return last

    def _resize(self, seconds: float) -> None:
        target = self.application.settings.runtime.catch_up_piece_seconds
        factor = min(2.0, max(0.5, target / max(seconds, 0.05)))
        self.piece_epochs = max(1, min(PIECE_EPOCHS_MAX, round(self.piece_epochs * factor)))

    def _failed(self, result: running.Result) -> None:
        self.piece_epochs = max(1, self.piece_epochs // 2)
        self.control.failures.put((result, self.attempts))
        time.sleep(RETRY_SECONDS)
