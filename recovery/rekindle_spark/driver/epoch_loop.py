"""The epoch loop: cut, run, commit, checkpoint, again.

    waiting ──cut──► running ──finished──► waiting, or running where the next one is cut already
                       │  ▲
                       └──┘ interrupted by a loss: the same epoch again on what is left

While something lost is not back epochs are longer: what an epoch costs hardly depends on how much
it takes in, so that less is spent on those that run, and on those that will be caught up with. The
offsets of all sources are logged before an epoch runs. Partitions that have almost caught up are
taken along: they run the epochs that they lack and the new one in the same job. Where the next
epoch is due before one has run, it is cut and its sources go ahead; over links it follows as a
whole (`epoch_pipeline`). A savepoint is a
checkpoint of the newest epoch, after which no other is cut. A drain takes the rest of the input in
epochs that follow each other without a pause, while everything runs.

Why: docs/decisions/0038-epochs-are-longer-in-an-outage.md.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace

from rekindle.model.switch_mode import ON
from rekindle_spark.checkpoint.checkpoint_coordinator import CheckpointCoordinator
from rekindle_spark.control import partition_migration, query_stop
from rekindle_spark.control.control_loop import ControlLoop
from rekindle_spark.driver import away_sources, driver_clock, epoch_pipeline
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.driver.epoch_pipeline import BegunEpoch, ConcurrentWork, EpochPipeline
from rekindle_spark.driver.priority_classes import PriorityClasses
from rekindle_spark.flow_control import memory_budget
from rekindle_spark.jobs import job_results, job_runner, job_specs
from rekindle_spark.jobs.job_runner import POLL_SECONDS, RETRY_SECONDS, Result, RunningJob
from rekindle_spark.output import output_commit

# The sources of the next epoch, run while the epoch before is still on its way.
#
#     none ──the next epoch is due before this one has run──► on its way ──that one counts──► taken
#       ▲                                                         │
#       └──a loss, or that one failed: its own job runs them──────┘
#
# A stage of a job waits for its slowest executor while the others have nothing to do. Where nodes
# have unlike shares of each stage, as in a recovery, an epoch would take the sum of the slowest of
# each; sources need nothing of the epoch before, so they fill that time. Their frames are retained
# and read by the epoch's own job, like those of any source that is ahead of its readers. Of
# sources too an epoch counts after the one before, so the result is taken when their epoch begins.
# Where epochs are in time nothing goes ahead, and nothing costs more.
#
# It is begun when what is left of the epoch's job is about as long as sources took last: sooner,
# rows would wait longer for no gain. What uncertain steps give is not made apart from who reads
# it, for made again it may be something else.
#
# Why: docs/decisions/0045-sources-run-ahead-of-a-late-epoch.md.


@dataclass(slots=True)
class SourcePrefetch:
    """At most one job, of the sources of the epoch after the one that is on its way. Seconds: what
    sources took last, and all else of an epoch."""

    application: DriverContext
    job: RunningJob | None = None
    sources_seconds: float = 0.0
    others_seconds: float = 0.0

    def is_time(self, elapsed_seconds: float, *, sources_ran: bool) -> bool:
        """Whether an epoch's job that has run for so long, with its sources or after them, has no
        more left than sources take."""
        all_seconds = self.others_seconds + (0.0 if sources_ran else self.sources_seconds)
        return elapsed_seconds >= all_seconds - self.sources_seconds

    @property
    def may_begin(self) -> bool:
        """Whether there is something that may go ahead: what it makes is retained, and hosts have
        room for it."""
        application = self.application
        budget, limit_bytes = application.budget, application.settings.runtime.retained_bytes_max
        if self.job is not None or application.paused or application.buffering != ON:
            return False
        with application.lock:
            kept_bytes = max(application.progress.retained.held.values(), default=0)
            is_roomy = not budget.starved and not budget.tight and kept_bytes <= limit_bytes / 2
            return is_roomy and bool(self._sources())

    def begin(self, epoch: int) -> None:
        """Run the live sources of an epoch."""
        application = self.application
        with application.lock:
            work = dict.fromkeys(sorted(self._sources()), (epoch, epoch))
            self.job = job_runner.start(application, work, urgency=job_runner.AHEAD)

    def take(self, seconds: float) -> Result | None:
        """The result once the job has ended, waiting up to `seconds`. Where it went well its
        sources have finished the epoch."""
        assert self.job is not None
        result = job_runner.poll(self.application, self.job, seconds)
        if result is None:
            return None
        self.job = None
        return result

    def give_up(self) -> Result | None:
        """The epoch before has not counted: nor does this, but for what hosts have said beside."""
        if self.job is None:
            return None
        result = job_runner.give_up(self.application, self.job, "the epoch before failed")
        self.job = None
        return result

    def note(self, sources: Result, others: Result) -> None:
        """An epoch has run: its sources ahead, waited for so many seconds, or all in one job. Ahead
        they wait for their turn too: that they took longer counts as far as it held up others."""
        first, *_ = job_results.longest(sources.stages or others.stages)
        if sources.finished:
            first = min(first, self.sources_seconds + sources.seconds)
        self.sources_seconds = first
        self.others_seconds = others.seconds - (0.0 if sources.finished else first)

    def _sources(self) -> Set[int]:
        """Those that go ahead; none where nothing else is live that would take its time."""
        program, live = self.application.program, self.application.progress.live
        sources = (program.sources - program.parents.keys()) & live
        sources -= self.application.progress.trailing
        return sources - program.uncertain if sources != live else frozenset()


@dataclass(slots=True)
class EpochLoop:
    """Runs epochs until the input has ended and everything is finished, or `is_saved`."""

    application: DriverContext
    control: ControlLoop
    checkpointing: CheckpointCoordinator
    finish_requested: Callable[[], bool]
    savepoint_requested: Callable[[], bool]
    drain_requested: Callable[[], bool] = lambda: False
    is_saved: bool = False
    final: Cut | None = None
    attempts: job_runner.Attempts = field(default_factory=job_runner.Attempts)
    next_cut_at: float = field(default=0.0)
    drains: bool = False
    ahead: SourcePrefetch = field(init=False)
    pipeline: EpochPipeline = field(init=False)
    waits: bool = False
    classes: PriorityClasses = field(init=False)

    def __post_init__(self) -> None:
        self.ahead = SourcePrefetch(self.application)
        self.pipeline = EpochPipeline(self.application)
        self.classes = PriorityClasses(self.application, self.control, self.checkpointing)

    def run(self) -> None:
        """The whole life of the loop. Raises what ends the application."""
        self._resume()
        while not self._done() and not self.is_saved:
            self._await_epoch()
            if not self._is_cut:
                self._cut()
            self._run_epoch(self._next_epoch)
            self._save()
        if self.final is not None and not self.is_saved:
            output_commit.publish_all(self.application, self.final.epoch)
        self._await_sinks()
        query_stop.check(self.application)

    def _await_sinks(self) -> None:
        """Wait until all that is committed is in the topics of sinks."""
        while not self.application.sinks.are_done:
            self.control.pump()
            time.sleep(POLL_SECONDS)

    def _resume(self) -> None:
        """After a restart the epochs in the log are all behind; catch-up runs them."""
        last = self.application.arrivals.last
        if last.final:
            self.final = last

    def _done(self) -> bool:
        progress = self.application.progress
        return (
            self.final is not None
            and progress.complete
            and all(epoch == self.final.epoch for epoch in progress.finished.values())
        )

    @property
    def _is_cut(self) -> bool:
        """Whether there is an epoch that has not run."""
        return self.application.arrivals.last.epoch > self.application.newest

    @property
    def _next_epoch(self) -> int:
        """The epoch to run: all up to the newest that is cut in one job, but for epochs that are on
        their way, or were called off."""
        if self.pipeline.awaited is not None:
            return self.pipeline.awaited.epoch
        if self._runs_again:
            return self.application.newest + 1
        return self.application.arrivals.last.epoch

    @property
    def _runs_again(self) -> bool:
        """Whether epochs that were called off have yet to run again."""
        return self.application.newest < self.pipeline.called_off_until

    def _await_epoch(self) -> None:
        """Wait until the next epoch is due, the first until something is placed that can run it: a
        backlog then comes in few long epochs. One on its way is waited for elsewhere."""
        application = self.application
        while True:
            self.control.pump()
            application.sinks.check()
            self.classes.advance()
            begun = application.progress.placed or application.newest > 0
            due = begun and self._is_due
            if self.pipeline.awaited or ((due or self._is_cut) and not application.paused):
                return
            time.sleep(self._poll_seconds)

    @property
    def _poll_seconds(self) -> float:
        """How long to wait before the next look: not past the next cut."""
        seconds = self.next_cut_at - driver_clock.now()
        return max(POLL_SECONDS, min(seconds, job_runner.poll_seconds(self.application)))

    @property
    def _is_due(self) -> bool:
        """Whether the next epoch may be cut: not while what runs behind is too far behind, nor
        while nobody is there who would run it."""
        if driver_clock.now() < self.next_cut_at or self.classes.is_full:
            return False
        return not self._would_be_caught_up_with

    @property
    def _would_be_caught_up_with(self) -> bool:
        """Whether the next epoch would only be one more to catch up with: more come than partitions
        catch up by, and none that a query ends in is live or close enough to join. It is waited for
        until one is: nobody would ever arrive otherwise."""
        application, progress = self.application, self.application.progress
        is_outrun = self.waits or bool(application.outrun)
        if not is_outrun or not application.claimed or application.held:
            self.waits = False
            return False
        with application.lock:
            ends = [n for n in progress.placed if application.program.output_parts(n)]
            self.waits = not any(
                n in progress.live or epoch_pipeline.has_caught_up(application, n) for n in ends
            )
        return self.waits

    def _cut(self) -> None:
        """Log the next epoch's input, unless the input has ended."""
        application, now = self.application, driver_clock.now()
        runtime, complete = application.settings.runtime, application.progress.complete
        seconds = runtime.epoch_seconds if complete else runtime.recovery_epoch_seconds
        self.next_cut_at = now + seconds
        if self.final is not None:
            return
        final = complete and self.finish_requested()
        # not in a recovery: what comes back would have ever more to catch up with
        drain = complete and self.drain_requested()
        if drain and not self.drains:
            epoch, rows = application.arrivals.last.epoch + 1, application.arrivals.rows_left()
            application.events.write("drain", epoch=epoch, rows=rows)
        self.drains = drain
        away_sources.heed_answers(application)
        cut = application.arrivals.cut(now, self.control.rows_per_second, final=final, drain=drain)
        some = bool(application.progress.live)
        if application.arrivals.hurries(now, some=some, all_run=complete):
            self.next_cut_at = now
        logged = application.store.log_offsets(cut.epoch, cut.record())
        cut = application.arrivals.adopt(logged, now)
        if logged.get("generation", application.store.generation) < application.store.generation:
            self.checkpointing.shared = max(cut.epoch, self.checkpointing.shared)
        with application.lock:
            application.cuts[cut.epoch] = cut
        application.events.write("cut", epoch=cut.epoch, rows=cut.rows, cut_at=cut.cut_at)
        for source, stream in cut.streams.items():
            for lost in stream.lost:
                application.events.write(
                    "data-lost", epoch=cut.epoch, source=source, **lost.record()
                )
        if cut.final:
            self.final = cut

    def _run_epoch(self, epoch: int) -> None:
        """Run an epoch for all live partitions, again after each loss until none interrupts."""
        application, ahead = self.application, self._result_ahead()
        while True:
            begun = self.pipeline.awaited or self._begin(epoch)
            if begun is None:
                break
            result = self._awaited_result(begun, ahead)
            if result.finished and not begun.following:
                self.ahead.note(ahead, result)
            result = _together(ahead, result)
            self.control.results.put(result)
            if result.finished:
                self.attempts.clear()
                is_ahead = ahead.finished or begun.following > 0
                self._tell(begun, result, ahead=is_ahead)
                rows, seconds = self.pipeline.usual(
                    begun, application.cuts[epoch].rows, result.seconds
                )
                if not self._has_joined(begun.work):
                    application.arrivals.ran(rows, seconds)
                usual = replace(result, seconds=seconds)
                self._note_times(usual, begun.work, begun.beside, ahead=is_ahead)
                with application.lock:
                    application.progress.live |= set(begun.work)
                    self._note_joining(begun)
                    application.newest = epoch
                    application.epoch_seconds = seconds
                break
            self._failed(result)
            ahead = Result(False, 0.0)
        self.control.pump()
        self.control.report_caught_up()
        self.checkpointing.advance()
        if self.checkpointing.epoch is None and self.final is None and not self.pipeline.awaited:
            partition_migration.carry_out(application, self.checkpointing.state_bytes)
        self.classes.advance()
        self.checkpointing.is_hurried = partition_migration.hurries_checkpoint(application)

    def _has_joined(self, work: job_specs.Ranges) -> bool:
        """Whether a partition that joined has run several epochs in a job. How long that took says
        nothing of how many rows an epoch may have."""
        live = self.application.progress.live
        return any(first != last for number, (first, last) in work.items() if number not in live)

    def _begin(self, epoch: int) -> BegunEpoch | None:
        """Begin an epoch while no other is on its way. None where nothing runs it."""
        application = self.application
        together = self.final is not None or self.drains or self.checkpointing.is_urgent
        self.classes.begin_epoch(together=together)
        with application.lock:
            application.begun = epoch
            work = self._work(epoch)
            if not work:
                application.newest = epoch
                return None
        checkpoint = self.checkpointing.due(epoch, work)
        if checkpoint is None:
            checkpoint = self.checkpointing.within(work)
        return self.pipeline.begin(epoch, work, self._concurrent_work(), checkpoint)

    def _awaited_result(self, begun: BegunEpoch, ahead: Result) -> Result:
        """Wait until the awaited epoch, with its sources or after they went `ahead`, has ended."""
        began = time.monotonic()
        while (result := self.pipeline.poll(self._poll_seconds)) is None:
            self._meanwhile(begun.epoch, began, ahead)
        return result

    def _result_ahead(self) -> Result:
        """What came of this epoch's sources where they went ahead; `seconds` is how long they were
        waited for. What they have not done the epoch's own job does.

        That hosts had the memory for it says nothing of an epoch before its own job has run too.
        """
        began = time.monotonic()
        if self.ahead.job is None:
            return Result(False, 0.0)
        while (result := self.ahead.take(POLL_SECONDS)) is None:
            self.control.pump()
        self.control.results.put(replace(result, finished=False))
        seconds = time.monotonic() - began
        if not result.finished:
            if result.blamed or result.sources_away:
                self.control.fail_after(result, job_runner.Attempts())
            elif result.reason != "interrupted":
                self.application.events.write("job-failed", text=result.reason)
            return Result(False, seconds, memory=result.memory)
        return replace(result, seconds=seconds)

    def _meanwhile(self, epoch: int, began: float, ahead: Result) -> None:
        """While an epoch's job is on its way, begun then, with its sources or after they went
        ahead: let those of the next epoch go ahead, if that is due and it is time for it. Over
        links all of the next epoch follows."""
        self.control.pump()
        self.classes.advance()
        if self.checkpointing.is_urgent or self.attempts.failing_since is not None:
            return
        awaited = self.pipeline.awaited
        if awaited is not None and awaited.job.job.is_linked:
            self._follow()
            return
        elapsed_seconds = time.monotonic() - began
        if not self.ahead.is_time(elapsed_seconds, sources_ran=ahead.finished):
            return
        is_cut = self.application.arrivals.last.epoch > epoch
        is_due = self.final is None and self._is_due
        if (is_cut or is_due) and self.ahead.may_begin:
            if not is_cut:
                self._cut()
            self.ahead.begin(epoch + 1)

    def _follow(self) -> None:
        """Begin the next epoch behind those on their way, if it is due and nothing waits for these
        to end. One that turns out to be of a drain, or as large as memory allows, waits too."""
        application, pipeline = self.application, self.pipeline
        is_cut = application.arrivals.last.epoch > pipeline.begun[-1].epoch
        if self.final is not None or self.drains or not (is_cut or self._is_due):
            return
        if application.arrivals.is_behind or not pipeline.has_room:
            return
        with application.lock:
            may_follow = pipeline.may_be_followed(self._ready()) and not self._is_waited_for
        if not may_follow:
            return
        if not is_cut:
            self._cut()
        if self.final is None and not self.drains and not application.arrivals.is_behind:
            pipeline.follow(self._concurrent_work())

    @property
    def _is_waited_for(self) -> bool:
        """Whether something waits until no epoch is on its way: a checkpoint, which has the states
        of one epoch, partitions that move, or a change of classes."""
        application, awaited = self.application, self.pipeline.begun[0]
        return (
            self.checkpointing.is_coming(awaited.epoch, awaited.work)
            or bool(partition_migration.pending(application))
            or not self.classes.is_settled
        )

    def _concurrent_work(self) -> ConcurrentWork:
        """What is being done beside an epoch."""
        is_idle = self.application.claimed <= self.classes.claimed
        return ConcurrentWork(
            is_quiet=is_idle and self.checkpointing.preserving is None,
            # classes that always are apart show nothing by it
            trails=bool(self.application.progress.trailing) and not self.classes.rule.is_fixed,
            jobs_ended=self.classes.jobs_ended,
        )

    def _note_times(
        self, result: Result, work: job_specs.Ranges, before: ConcurrentWork, *, ahead: bool
    ) -> None:
        """An epoch has run, beside what there was `before` and is now: take in how long that took,
        unless it had a backlog, or was one of a drain, which are long on purpose."""
        application, now = self.application, self._concurrent_work()
        if application.arrivals.drains or any(first != last for first, last in work.values()):
            return
        is_quiet, trails = before.is_quiet and now.is_quiet, before.trails or now.trails
        application.pace.epoch_took(result.seconds, alone=is_quiet and not trails)
        self.classes.ran(result, work)
        if is_quiet:
            is_crowded = self.classes.jobs_started > before.jobs_ended
            self.control.note_times(
                result, ahead=ahead, is_crowded=is_crowded, may_rest=self.classes.may_rest
            )

    def _tell(self, begun: BegunEpoch, result: Result, *, ahead: bool) -> None:
        """Say how long an epoch has taken, and each of its stages."""
        self.application.events.write(
            "ran",
            epoch=begun.epoch,
            seconds=result.seconds,
            stage_seconds=job_results.longest(result.stages),
            ahead=ahead,
            linked=result.linked,
            following=begun.following,
        )

    def _save(self) -> None:
        """Where a savepoint is asked for, have it taken in the next epoch, and wait for it then."""
        epoch = self.application.newest
        if self.checkpointing.is_urgent:
            while self.checkpointing.is_taking(epoch):
                self._call_roll()
            points = self.application.progress.restore_points
            lacks = self.application.progress.left_out or self._runs_again
            self.is_saved = points.newest == epoch and not points.older and not lacks
        self.checkpointing.is_urgent = self.savepoint_requested() and not self._runs_again

    def _call_roll(self) -> None:
        """Hear what hosts have written since the last job."""
        application = self.application
        running_job = job_runner.submit(
            application,
            lambda: job_specs.roll_call(
                application.progress, application.executors, application.next_header()
            ),
        )
        result = None
        while result is None:
            result = job_runner.poll(application, running_job, POLL_SECONDS)
            self.control.pump()
        self.control.results.put(result)
        if not result.finished:
            self._failed(result)
        self.control.pump()
        self.checkpointing.advance()

    def _work(self, epoch: int) -> dict[int, tuple[int, int]]:
        """Live partitions, and those that may join: all their producers are in the same job."""
        application, progress = self.application, self.application.progress
        work: dict[int, tuple[int, int]] = {}
        for partition in self._ready():
            producers = set(application.program.upstream(partition))
            if any(u not in work and progress.finished.get(u, -1) < epoch for u in producers):
                continue
            if progress.finished[partition] < epoch:
                work[partition] = (progress.finished[partition] + 1, epoch)
            elif not producers - progress.live:
                progress.live.add(partition)
        return work

    def _ready(self) -> list[int]:
        """Partitions that are live or have almost caught up, producers first."""
        progress = self.application.progress
        placed = self.application.program.in_order(progress.placed.keys() - progress.trailing)
        return [number for number in placed if number in progress.live or self._may_join(number)]

    def _may_join(self, partition: int) -> bool:
        application, progress = self.application, self.application.progress
        if partition in application.claimed or partition in progress.suspects.alone:
            return False
        if away_sources.is_held(application, partition):
            return False
        return epoch_pipeline.has_caught_up(application, partition)

    def _note_joining(self, ended: BegunEpoch) -> None:
        """An epoch counts: whoever may join, but for those that are on their way, still may once
        these count too. It would else be behind by then, and nothing would have to wait for it."""
        joining = set[int]()
        if ended.following or self.pipeline.awaited is not None:
            joining = set(self._ready()) - self.application.progress.live
        self.application.joining = joining

    def _failed(self, result: Result) -> None:
        # those in it may be too far behind for the memory that there is: they catch up in pieces
        self.application.joining = set()
        given_up = self.ahead.give_up()
        if given_up is not None:
            self.control.results.put(given_up)
        self.control.pump()
        if result.reason == "interrupted":
            return
        self.control.fail_after(result, self.attempts)
        time.sleep(RETRY_SECONDS)


def _together(ahead: Result, result: Result) -> Result:
    """What came of an epoch: of its sources ahead of it, and of its own job."""
    return replace(
        result,
        seconds=ahead.seconds + result.seconds,
        memory=memory_budget.merged(ahead.memory, result.memory),
        stages=(*ahead.stages, *result.stages),
    )
