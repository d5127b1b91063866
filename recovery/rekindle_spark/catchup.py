"""The catch-up loop: brings newly placed partitions forward beside the epochs of the live ones.

A thread of its own. Each executor has at most one catch-up job at a time, for those of its
partitions whose producers are ahead of them, in pieces of some epochs. So executors do not wait
for each other, and a source can run far ahead of what reads it: what it has made is retained
(paper, Algorithm 2, lines 17-21: buffered outputs go to the restored partitions). A partition
that is close behind is left to the epoch loop, which takes it along in its next epoch.
"""

import threading
import time
from dataclasses import dataclass, field

from rekindle_spark import jobs, running
from rekindle_spark.application import Application
from rekindle_spark.control import Control
from rekindle_spark.running import Result, Running

__all__ = ["CatchUp"]

POLL_SECONDS = 0.02
RETRY_SECONDS = 0.15
PIECE_EPOCHS_FIRST, PIECE_EPOCHS_MAX = 4, 64
PIECE_ROWS_MAX = 4_000_000


@dataclass(slots=True)
class CatchUp:
    """Runs until the application stops; a failure is left in `application.failure`."""

    application: Application
    control: Control
    jobs: dict[str, Running] = field(default_factory=dict)
    piece_epochs: dict[str, int] = field(default_factory=dict)
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
                for executor in list(self.jobs):
                    self._look_at(executor)
                for executor in list(application.executors):
                    if executor not in self.jobs:
                        self._start(executor)
            except Exception as error:
                application.failure = error
                return
            time.sleep(POLL_SECONDS)

    def _start(self, executor: str) -> None:
        application = self.application
        with application.lock:
            work = self._work(executor)
            if not work:
                return
            application.claimed |= set(work)
            try:
                self.jobs[executor] = running.start(application, work, urgency=running.CATCH_UP)
            except BaseException:
                application.claimed -= set(work)
                raise

    def _look_at(self, executor: str) -> None:
        """Take a job's result, if it has ended."""
        application, job = self.application, self.jobs[executor]
        result = running.poll(application, job, 0.0)
        if result is None:
            return
        del self.jobs[executor]
        with application.lock:
            application.claimed -= set(job.specification.ranges)
        self.control.results.put(result)
        if result.finished:
            self.attempts.clear()
            self._resize(executor, result.seconds)
        elif result.reason != "interrupted":
            self._failed(executor, result)

    def _work(self, executor: str) -> dict[int, tuple[int, int]]:
        """The executor's partitions that are behind and can go on, each with its next piece."""
        application, progress = self.application, self.application.progress
        gap = application.settings.runtime.join_gap_epochs
        work: dict[int, tuple[int, int]] = {}
        for partition in sorted(progress.catching_up):
            if progress.placed[partition] != executor or partition in application.claimed:
                continue
            if progress.caught_up(partition, application.newest, gap):
                continue
            first = progress.finished[partition] + 1
            goal = min(application.newest, self._piece_end(executor, first))
            last = jobs.reachable(progress, partition, goal)
            if last >= first:
                work[partition] = (first, last)
        return work

    def _piece_end(self, executor: str, first: int) -> int:
        """The last epoch of a piece: bounded in epochs and in rows of input."""
        rows, last = 0, first
        for epoch in range(first, first + self.piece_epochs.get(executor, PIECE_EPOCHS_FIRST)):
            if epoch not in self.application.cuts:
                break
            rows += self.application.cuts[epoch].rows
            last = epoch
            if rows > PIECE_ROWS_MAX:
                break
        return last

    def _resize(self, executor: str, seconds: float) -> None:
        target = self.application.settings.runtime.catch_up_piece_seconds
        factor = min(2.0, max(0.5, target / max(seconds, 0.05)))
        size = self.piece_epochs.get(executor, PIECE_EPOCHS_FIRST)
        self.piece_epochs[executor] = max(1, min(PIECE_EPOCHS_MAX, round(size * factor)))

    def _failed(self, executor: str, result: Result) -> None:
        self.piece_epochs[executor] = 1
        self.control.failures.put((result, self.attempts))
        time.sleep(RETRY_SECONDS)
