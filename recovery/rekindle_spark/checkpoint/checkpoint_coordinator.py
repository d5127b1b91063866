"""When to take a checkpoint, and when one is global.

    idle ──due──► taking (epoch k) ──all acknowledged, input preserved──► global: trim, idle
                     └──a loss, or a failed write──► given up, idle

States are written by the hosts while epochs go on; acknowledgements ride on later reports. While
partitions are behind, a checkpoint has the states of those that run, and of the others their input
(`durable_input_job`): taken rarely, or when executors have a lot to keep. Live partitions that run
behind the epochs write their states when they get there, unless they are far behind: then they
count as those that catch up do. Until it is global
everything since the one before is retained, and recovery starts from that one.
"""

import time
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.switch_mode import ON
from rekindle_spark.checkpoint import durable_input_job
from rekindle_spark.checkpoint.durable_input_job import InputPreservation
from rekindle_spark.checkpoint.restore_points import DurableInput
from rekindle_spark.driver import driver_clock, stopped_branches
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.executor import job_activity
from rekindle_spark.jobs import job_runner
from rekindle_spark.jobs.job_idleness import Idle, Watch
from rekindle_spark.jobs.job_runner import Result
from rekindle_spark.jobs.job_specs import Ranges
from rekindle_spark.output import output_commit

# What an executor retains at most before a checkpoint takes it over: a share of what it may, and
# not more than goes through a host in a few pieces, one for each partition that is behind.
PRESSING_SHARE, PRESSING_BYTES_MAX = 0.5, 128 * 2**20
# How far live partitions may be behind an epoch for whose checkpoint they are waited for.
WAITED_EPOCHS_MAX = 8
# So many checkpoints in a row after which nothing could be removed are more than a store that was
# away for a moment.
TOLD_AFTER = 3


@dataclass(slots=True)
class CheckpointCoordinator:
    """The newest checkpoint that is being taken, and what it still waits for: states that are to be
    acknowledged, and the job that preserves the input of partitions that are `behind`. `trailing`
    are live partitions that run the epoch in a job of their own, behind the others. `ended` are
    results of jobs that preserve input, `completed` epochs whose checkpoint has the states of all
    that may run, `state_bytes` what the files hold that a partition's state is made of. Where it
    `is_urgent`, the next one is due at once, a savepoint; where it `is_hurried`, it is due at once
    as any other. `shared` is the newest epoch for which an older driver may still write files, as
    it has fixed its input after this one had started, or carries a savepoint over to it; `begun` is
    the newest whose checkpoint has been begun. `begins` are the cuts of the epochs that kept
    checkpoints begin with. `kept_in_a_row` counts checkpoints after which what is needed no more
    could not be removed."""

    application: DriverContext
    epoch: int | None = None
    waiting: set[int] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    trailing: frozenset[int] = frozenset()
    preserving: InputPreservation | None = None
    written: DurableInput | None = None
    is_input_stored: bool = True
    sizes: dict[int, int] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    losses: int = 0
    is_urgent: bool = False
    is_hurried: bool = False
    shared: int = 0
    begun: int = 0
    begins: dict[int, Cut] = field(default_factory=dict)
    last_at: float = field(default_factory=time.monotonic)
    watch: Watch = field(default_factory=Watch)
    ended: list[Result] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)
    state_bytes: dict[int, int] = field(default_factory=dict)
    kept_in_a_row: int = 0

    def due(self, epoch: int, work: Ranges) -> int | None:
        """The epoch to checkpoint in this job, or None.

        Not one that has run for some already, as the final epoch has when others follow to it; nor
        one for which somebody else may write files of the same names, however late: hosts of an
        older driver, or an executor that was lost once the checkpoint of this epoch was begun.
        """
        application = self.application
        if epoch <= max(application.newest, self.shared):
            return None
        if epoch == self.begun and self.losses != application.losses:
            self.epoch = None
            return None
        seconds = time.monotonic() - self.last_at
        if self.epoch is not None and (idle := self._idle()) is not None:
            self._give_up(idle.described(application.executors))
        if self.losses != application.losses:
            self.epoch = None
        finished = application.progress.finished
        if any(epoch - finished.get(n, epoch) > WAITED_EPOCHS_MAX for n in self._unfinished):
            self._give_up("partitions that were to run its epoch are far behind")
        if self.epoch is not None and self.epoch != epoch:
            return None
        if self.epoch is None and not self._is_wanted(epoch, work, seconds):
            return None
        self._begin(epoch, work)
        return epoch

    def is_coming(self, epoch: int, work: Ranges) -> bool:
        """Whether a checkpoint is on its way, or is wanted of this epoch once it begins."""
        if self.epoch is not None or self.preserving is not None:
            return True
        seconds = time.monotonic() - self.last_at
        return epoch > self.shared and self._is_wanted(epoch, work, seconds)

    def _is_wanted(self, epoch: int, work: Ranges, seconds: float) -> bool:
        application, runtime = self.application, self.application.settings.runtime
        hurried = self.is_urgent or self.is_hurried
        early = seconds < runtime.checkpoint_seconds and not hurried
        if early or self.preserving is not None:
            return False
        with application.lock:
            progress = application.progress
            behind = _behind(application, epoch, work)
            if not behind:
                return progress.complete
            kept = max(progress.retained.held.values(), default=0)
            pressing = kept > min(runtime.retained_bytes_max * PRESSING_SHARE, PRESSING_BYTES_MAX)
            if not pressing and seconds < runtime.outage_checkpoint_seconds:
                return False
            certain = application.ordering == ON and not output_commit.is_unordered(application)
            return certain and durable_input_job.is_covered(progress, epoch - 1, behind)

    def _begin(self, epoch: int, work: Ranges) -> None:
        """Wait for the states of all that runs in this epoch."""
        application = self.application
        self.epoch = self.begun = epoch
        self.losses = application.losses
        self.last_at, self.watch = time.monotonic(), Watch()
        self.trailing = _trailing(application, epoch, work)
        application.trailing_attempts.clear()
        runs = work.keys() | self.trailing
        self.waiting = {number for number in runs if application.program.owner[number].keyed}
        self.behind = _behind(application, epoch, work)
        self.written, self.is_input_stored = None, not self.behind
        self.sizes, self.bases = {}, {}
        if self.waiting or self.behind:  # else nobody writes a file there, and none is removed
            application.store.begin_checkpoint(epoch)

    def within(self, work: Ranges) -> int | None:
        """The epoch of the checkpoint on its way, where a job with `work` runs that for partitions
        behind it: they are to write their states then. None: there is nothing to write."""
        epoch, unfinished = self.epoch, self._unfinished
        if epoch is None or self.losses != self.application.losses:
            return None
        crossing = {n for n, (first, last) in work.items() if first <= epoch <= last} & unfinished
        # a job that failed may have written some, and this one writes them again
        self.waiting |= {n for n in crossing if self.application.program.owner[n].keyed}
        return epoch if crossing else None

    @property
    def _unfinished(self) -> Set[int]:
        """The partitions that have yet to run the checkpoint's epoch behind the others."""
        finished, epoch = self.application.progress.finished, self.epoch
        if epoch is None:
            return frozenset()
        return {number for number in self.trailing if finished.get(number, -1) < epoch}

    def acknowledge(self, acknowledgements: list[dict[str, Any]]) -> None:
        """Enter what hosts have written."""
        for done in acknowledgements:
            application = self.application
            attempt = application.trailing_attempts.get(
                done["partition"], application.checkpoint_attempt
            )
            if (done["epoch"], done["attempt"]) != (self.epoch, attempt):
                continue
            if "failed" in done:
                self._give_up(done["failed"])
                return
            self.waiting.discard(done["partition"])
            self.sizes[done["partition"]] = done["bytes"]
            before = 0
            if "base" in done:
                self.bases[done["partition"]] = done["base"]
                before = self.state_bytes.get(done["partition"], 0)
            else:
                self.bases.pop(done["partition"], None)
            self.state_bytes[done["partition"]] = before + done["bytes"]

    def is_taking(self, epoch: int) -> bool:
        """Whether the checkpoint of this epoch is on its way, and may still come to its end."""
        if self.epoch != epoch or self.losses != self.application.losses:
            return False
        return self._idle() is None

    def _idle(self) -> Idle | None:
        """Who has not gone on for too long with states that are waited for. An acknowledgement may
        be lost with the report that carried it, and then nobody goes on."""
        application, now = self.application, time.monotonic()
        if not self.waiting or not self.watch.is_due(now):
            return None
        owing: dict[str, frozenset[int]] = {}
        for number in self.waiting - self._unfinished:
            executor = application.progress.placed.get(number, "")
            owing[executor] = owing.get(executor, frozenset()) | {number}
        if not owing:
            return None
        signs = job_activity.read_all(application.exchange.signs(), owing)
        idle = self.watch.look(job_activity.CHECKPOINTS, owing, signs, now)
        too_long = idle is not None and idle.seconds > application.settings.idle_seconds
        return idle if too_long else None

    def taken(self) -> list[int]:
        """Epochs whose checkpoint has become global since the last call."""
        completed, self.completed = self.completed, []
        return completed

    def advance(self) -> None:
        """Complete the checkpoint when nothing is waited for: it becomes the restore point."""
        is_current = self.losses == self.application.losses
        if is_current and self._unfinished - self.application.progress.live:
            self._give_up("partitions that were to run its epoch do not run any more")
        self._preserve()
        epoch = self.epoch
        if epoch is None or self.waiting or self._unfinished or not self.is_input_stored:
            return
        if self.losses == self.application.losses:
            self._complete(epoch)
            self.epoch = None

    def _preserve(self) -> None:
        """Have the input of what is behind written once the epoch has run; see what came of it."""
        application, epoch, job = self.application, self.epoch, self.preserving
        if job is None:
            ran = epoch is not None and application.newest >= epoch and not self._unfinished
            if epoch is not None and ran and not self.is_input_stored:
                self.preserving = durable_input_job.start(application, epoch, self.behind)
                self.is_input_stored = self.preserving is None
            return
        result = job_runner.poll(application, job.running, 0.0)
        if result is None:
            return
        self.preserving = None
        self.ended.append(result)
        if epoch != job.written.checkpoint:
            return
        if result.finished:
            self.written, self.is_input_stored = job.written, True
        else:
            self._give_up(result.reason)

    def _complete(self, epoch: int) -> None:
        application = self.application
        names = application.program.partition_names
        with application.lock:
            published = output_commit.publishable(application, epoch, self.behind)
            points = application.progress.restore_points.after(
                epoch, self.behind, self.written, self.bases
            )
            left_out = stopped_branches.left_out(application.progress)
            points.branches = min(left_out.values(), default=epoch)
        record = points.record(names)
        # what is cut next would be behind it, and the loop of epochs ends here (`epoch_loop`)
        is_last = self.is_urgent and epoch == application.newest and not record["older"]
        if is_last and not application.progress.left_out:
            record["savepoint"] = True
        record["older"] |= left_out
        if greatest := application.arrivals.intakes.read():
            record["greatest"] = greatest
        is_made = application.store.complete_checkpoint(
            epoch,
            {
                "program": application.program.hash,
                "branches": application.program.branches,
                "steps": application.program.steps,
                "at": driver_clock.now(),
                "bytes": {names[number]: size for number, size in sorted(self.sizes.items())},
                "published": published,
                **record,
            },
        )
        if not is_made:
            self._give_up(f"a fenced driver has left a record of epoch {epoch}")
            return
        settled = application.store.settled
        application.events.write(
            "checkpoint", epoch=epoch, behind=len(self.behind), settled=settled
        )
        self._tell_kept(application.store.not_removed)
        if published is not None:
            output_commit.publish_staged(application, epoch, published)
        with application.lock:
            emptied = application.progress.checkpointed(points)
            application.sheds = False
            for key in [key for key in application.digests if key[1] <= points.epoch(key[0])]:
                del application.digests[key]
            self._forget_cuts(points.oldest)
        if application.polls is not None:
            application.polls.commit(self._ends(points.oldest), self._ends(settled))
        application.remove(emptied)
        if self.behind <= application.progress.stopped.keys():
            self.completed.append(epoch)

    def _tell_kept(self, trouble: str) -> None:
        """Say that what is needed no more cannot be removed: once, until it could be again."""
        self.kept_in_a_row = self.kept_in_a_row + 1 if trouble else 0
        if self.kept_in_a_row == TOLD_AFTER:
            self.application.events.write("removal-failed", text=trouble)

    def _forget_cuts(self, oldest: int) -> None:
        """Forget cuts from before the epoch that the newest checkpoint begins with, but for those
        that other kept ones begin with."""
        cuts, store = self.application.cuts, self.application.store
        known = {**self.begins, **cuts}
        self.begins = {n: known[n] for n in (oldest, *store.begins) if n in known}
        for old in [number for number in cuts if number < oldest]:
            del cuts[old]

    def _ends(self, epoch: int) -> dict[str, dict[str, int]]:
        """Up to where each source is read by an epoch that a kept checkpoint begins with; nothing
        where its cut is not known."""
        streams = self.begins[epoch].streams if epoch in self.begins else {}
        return {
            source: {one.partition: one.end for one in stream.partitions}
            for source, stream in streams.items()
        }

    def _give_up(self, text: str) -> None:
        self.application.events.write("checkpoint-failed", text=text)
        self.epoch = None


def _trailing(application: DriverContext, epoch: int, work: Ranges) -> frozenset[int]:
    """The live partitions that run an epoch behind its job, and whose states a checkpoint waits
    for; none while one of them is far behind: then it has their input, as that of others."""
    progress = application.progress
    found = frozenset(
        number
        for number in progress.trailing & progress.live - work.keys()
        if progress.finished[number] < epoch
    )
    reached = min((progress.finished[number] for number in found), default=epoch)
    return found if epoch - reached <= WAITED_EPOCHS_MAX else frozenset()


def _behind(application: DriverContext, epoch: int, work: Ranges) -> set[int]:
    """The partitions that do not run an epoch, in its job or behind it, but for sources that went
    ahead of it."""
    progress, sources = application.progress, application.program.sources
    trailing = _trailing(application, epoch, work)
    ahead = {number for number in sources if progress.finished.get(number, -1) >= epoch}
    return set(range(len(application.program.partition_names))) - work.keys() - ahead - trailing
