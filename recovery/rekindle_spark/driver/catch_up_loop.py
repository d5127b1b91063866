"""The catch-up loop: brings newly placed partitions forward beside the epochs of the live ones.

A thread of its own. Each executor has at most one catch-up job at a time, for those of its
partitions whose producers are ahead of them or in the same job, in pieces of some epochs. So
executors do not wait for each other, and a source can run far ahead of what others read of it: what
it has made is retained (paper, Algorithm 2, lines 17-21: buffered outputs go to the restored
partitions). A partition that is close behind is left to the epoch loop, which takes it along in its
next epoch.

The first job of an executor that has just come is slow: classes are loaded, the program is fetched.
Where nothing is behind any more, a roll call is that job, so that no epoch has to wait for it when
partitions move there.

Why: docs/decisions/0015-catch-up-is-a-stream-of-jobs.md.
"""

import threading
import time
from dataclasses import dataclass, field

from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.driver import away_sources, epoch_pipeline
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.flow_control.catch_up_pace import CatchUpBatching
from rekindle_spark.jobs import job_results, job_runner, job_specs
from rekindle_spark.jobs.job_runner import RETRY_SECONDS, Attempts, Result, RunningJob
from rekindle_spark.user_code.watchdog import SEARCH_CALLS_MAX

PIECE_ROWS_MAX = 4_000_000
# A partition that joins the epochs lacks at most so many: live ones wait for the job with these.
COMING_MAX = 16
# How much longer a piece may take where nothing live shares the executor: half of a short piece is
# what a job costs by itself.
UNSHARED_STRETCH = 2.0


@dataclass(slots=True)
class CatchUpStream:
    """One executor's jobs, one after the other: the one that runs, and how the next is to be.
    `newest` is the newest epoch that counted when that one was submitted."""

    job: RunningJob | None = None
    newest: int = 0
    pieces: CatchUpBatching = field(default_factory=CatchUpBatching)
    attempts: Attempts = field(default_factory=Attempts)
    rests_until: float = 0.0

    def may_start(self, now: float) -> bool:
        """Whether the next job may be submitted."""
        return self.job is None and now >= self.rests_until

    def failed(self, now: float) -> None:
        """A job did not count: the next one is small, and comes after a rest."""
        self.pieces.failed()
        self.rests_until = now + RETRY_SECONDS


@dataclass(slots=True)
class CatchUpLoop:
    """Runs until the application stops; a failure is left in `application.failure`."""

    application: DriverContext
    control: ControlLoop
    streams: dict[str, CatchUpStream] = field(default_factory=dict)
    # of partitions that are suspected to end their process: nobody else is in their jobs
    lone_streams: dict[str, CatchUpStream] = field(default_factory=dict)

    def start(self) -> threading.Thread:
        """Start the thread."""
        thread = threading.Thread(target=self._loop, name="catch-up", daemon=True)
        thread.start()
        return thread

    def _loop(self) -> None:
        while not self.application.stopping:
            try:
                self._attend()
                seconds = job_runner.poll_seconds(self.application)
            except BaseException as error:  # whoever waits for this thread is told, whatever it is
                self.application.failure = error
                return
            time.sleep(seconds)

    def _attend(self) -> None:
        """Take the results of jobs that have ended, then start what can go on."""
        present, starved = list(self.application.executors), self._starved()
        if self.application.held:
            away_sources.let_go_of_finished(self.application)
        for streams in (self.streams, self.lone_streams):
            for executor, stream in list(streams.items()):
                if stream.job is not None:
                    self._look_at(executor, stream, stream.job)
                if executor not in present and stream.job is None:
                    del streams[executor]
                    with self.application.lock:
                        self.application.coming.pop(executor, None)
                        self.application.outrun.discard(executor)
        for executor in present:
            if executor in starved or self.application.paused:
                continue
            stream = self.streams.setdefault(executor, CatchUpStream())
            if stream.may_start(time.monotonic()):
                self._start(executor, stream)
            stream = self.lone_streams.setdefault(executor, CatchUpStream())
            if self.application.progress.suspects.alone and stream.may_start(time.monotonic()):
                self._start_alone(executor, stream)

    def _is_behind(self, executor: str) -> bool:
        """Whether an executor has partitions that catch up, or have yet to join the epochs."""
        progress = self.application.progress
        return any(progress.placed[number] == executor for number in progress.catching_up)

    def _starved(self) -> set[str]:
        """Executors on which live partitions come first: they had no memory for an epoch."""
        application = self.application
        if not application.budget.starved:
            return set()
        with application.lock:
            progress = application.progress
            return application.budget.starved & {progress.placed[n] for n in progress.live}

    def _start(self, executor: str, stream: CatchUpStream) -> None:
        application = self.application
        with application.lock:
            work = self._work(executor, stream) or self._held_work(executor, stream)
            if not work:
                if not self._is_behind(executor):
                    application.coming.pop(executor, None)
                    application.outrun.discard(executor)
                if application.progress.complete and executor not in application.warm:
                    stream.job = self._roll_call(executor)
                return
            application.claimed |= set(work)
            stream.newest = application.newest
            try:
                stream.job = job_runner.start(application, work, urgency=job_runner.CATCH_UP)
            except BaseException:
                application.claimed -= set(work)
                raise

    def _start_alone(self, executor: str, stream: CatchUpStream) -> None:
        """Start the next job of one suspected partition. A search for what is at fault takes long,
        and nobody waits for it."""
        application = self.application
        runtime = application.settings.runtime
        with application.lock:
            work = self._work(executor, stream, alone=True)
            if not work:
                return
            application.claimed |= set(work)
            patience_seconds = SEARCH_CALLS_MAX * runtime.function_seconds_max
            try:
                stream.job = job_runner.start(
                    application,
                    work,
                    urgency=job_runner.CATCH_UP,
                    patience_seconds=patience_seconds,
                )
            except BaseException:
                application.claimed -= set(work)
                raise

    def _roll_call(self, executor: str) -> RunningJob:
        """A job without work on one executor."""
        application = self.application
        progress, present = application.progress, {executor: application.executors[executor]}
        return job_runner.submit(
            application, lambda: job_specs.roll_call(progress, present, application.next_header())
        )

    def _look_at(self, executor: str, stream: CatchUpStream, job: RunningJob) -> None:
        application = self.application
        result = job_runner.poll(application, job, 0.0)
        if result is None:
            return
        stream.job = None
        with application.lock:
            application.claimed -= set(job.specification.ranges)
        spans = job.specification.ranges.values()
        epochs = max((last - first + 1 for first, last in spans), default=0)
        result.piece_epochs = epochs
        self.control.results.put(result)
        if result.finished and epochs:
            stream.attempts.clear()
            self._tell(executor, job, epochs, result)
            self._pace(executor, stream, epochs, result.seconds)
        elif not result.finished and result.reason != "interrupted":
            stream.failed(time.monotonic())
            self.control.failures.put((result, stream.attempts))

    def _tell(self, executor: str, job: RunningJob, epochs: int, result: Result) -> None:
        """Say how long a piece has taken, and each of its stages."""
        self.application.events.write(
            "piece",
            executor=executor,
            partitions=len(job.specification.ranges),
            epochs=epochs,
            seconds=result.seconds,
            stage_seconds=job_results.longest(result.stages),
        )

    def _pace(self, executor: str, stream: CatchUpStream, epochs: int, seconds: float) -> None:
        """How large the next piece is, and how long the executor rests before it: where nothing on
        it is live, pieces are longer and follow at once."""
        progress = self.application.progress
        with self.application.lock:
            shares = any(progress.placed.get(partition) == executor for partition in progress.live)
            if stream is self.streams.get(executor) and not stream.pieces.is_cold:
                came = self.application.newest - stream.newest
                most = min(stream.pieces.epochs, COMING_MAX)
                self.application.coming[executor] = min(came, most)
                # one that was short only because it reached the newest says nothing
                if came > epochs >= stream.pieces.epochs:
                    self.application.outrun.add(executor)
                else:
                    self.application.outrun.discard(executor)
        target_seconds = self.application.settings.runtime.catch_up_piece_seconds
        stream.pieces.took(
            epochs, seconds, target_seconds if shares else UNSHARED_STRETCH * target_seconds
        )
        rest_seconds = self.application.pace.rest_seconds(seconds, epochs) if shares else 0.0
        stream.rests_until = time.monotonic() + rest_seconds

    def _work(
        self, executor: str, stream: CatchUpStream, *, alone: bool = False
    ) -> dict[int, tuple[int, int]]:
        """The executor's partitions that are behind and can go on, each with its next piece; or one
        of those that have to run alone."""
        application, progress = self.application, self.application.progress
        work: dict[int, tuple[int, int]] = {}
        for partition in progress.program.in_order(progress.catching_up):
            if progress.placed[partition] != executor or partition in application.claimed:
                continue
            if (partition in progress.suspects.alone) != alone or (alone and work):
                continue
            if away_sources.is_held(application, partition):
                continue
            if not alone and epoch_pipeline.has_caught_up(application, partition):
                continue
            if self._waits(executor, partition):
                continue
            first = progress.finished[partition] + 1
            goal = min(application.newest, self._piece_end(executor, stream, first))
            last = job_specs.reachable(progress, partition, goal, work)
            if last >= first:
                work[partition] = (first, last)
        return away_sources.without_held(application, job_specs.together(progress, work))

    def _held_work(self, executor: str, stream: CatchUpStream) -> dict[int, tuple[int, int]]:
        """The next pieces of a source that hosts could not read, where it may be tried again. No
        epoch takes it along: it would fail too."""
        application, progress = self.application, self.application.progress
        work: dict[int, tuple[int, int]] = {}
        for partition in progress.catching_up if application.held else ():
            if progress.placed[partition] != executor or partition in application.claimed:
                continue
            first = progress.finished[partition] + 1
            if away_sources.is_due(application, partition) and first <= application.newest:
                end = self._piece_end(executor, stream, first)
                work[partition] = (first, min(application.newest, end))
        return away_sources.apart(application, work)

    def _waits(self, executor: str, partition: int) -> bool:
        """Whether a source is ahead of who reads it while its executor keeps a lot already: what it
        would make now might have to go before it is read."""
        program, progress = self.application.program, self.application.progress
        limit_bytes = self.application.settings.runtime.retained_bytes_max
        if partition not in program.sources or progress.retained.held[executor] <= limit_bytes / 2:
            return False
        readers = (number for number in program.consumers(partition) if number in progress.placed)
        return any(progress.finished[number] < progress.finished[partition] for number in readers)

    def _piece_end(self, executor: str, stream: CatchUpStream, first: int) -> int:
        """The last epoch of a piece: bounded in epochs, the fewer the less memory there is, and in
        rows of input."""
        rows, last = 0, first
        epochs = self.application.budget.piece_epochs(executor, stream.pieces.epochs)
        for epoch in range(first, first + epochs):
            if epoch not in self.application.cuts:
                break
            rows += self.application.cuts[epoch].rows
            last = epoch
            if rows > PIECE_ROWS_MAX:
                break
        return last
