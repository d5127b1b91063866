"""The sources of the next epoch, run while the epoch before is still on its way.

    none ──the next epoch is due before this one has run──► on its way ──that one counts──► taken
      ▲                                                         │
      └──a loss, or that one failed: its own job runs them──────┘

A stage of a job waits for its slowest executor while the others have nothing to do. Where nodes
have unlike shares of each stage, as in a recovery, an epoch would take the sum of the slowest of
each; sources need nothing of the epoch before, so they fill that time. Their frames are retained
and read by the epoch's own job, like those of any source that is ahead of its readers. Of sources
too an epoch counts after the one before, so the result is taken when their epoch begins. Where
epochs are in time nothing goes ahead, and nothing costs more.

It is begun when what is left of the epoch's job is about as long as sources took last: sooner, rows
would wait longer for no gain. What uncertain steps give is not made apart from who reads it, for
made again it may be something else. Called by the epoch loop.

Why: docs/decisions/0045-sources-run-ahead-of-a-late-epoch.md.
"""

from collections.abc import Set
from dataclasses import dataclass

from rekindle.model.switch_mode import ON
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.jobs import job_runner, stage_timing
from rekindle_spark.jobs.job_runner import Result, RunningJob

__all__ = ["SourcePrefetch"]


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
        first, *_ = stage_timing.longest(sources.stages or others.stages)
        if sources.finished:
            first = min(first, self.sources_seconds + sources.seconds)
        self.sources_seconds = first
        self.others_seconds = others.seconds - (0.0 if sources.finished else first)

    def _sources(self) -> Set[int]:
        """Those that go ahead; none where nothing else is live that would take its time."""
        program, live = self.application.program, self.application.progress.live
        sources = (program.sources - program.parents.keys()) & live
        return sources - program.uncertain if sources != live else frozenset()
