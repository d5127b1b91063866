"""Runs one job to its end and makes its results finished, or says why not.

A job counts as a whole: either all its partitions ran, then their blocks are retained, their
output is committed and their epochs are finished; or nothing of it counts and it may be run
again on what is left, because every state version that it started from is still there.

Why: docs/decisions/0018-a-job-counts-as-a-whole.md.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.errors import RunError
from rekindle.model.settings import LINKS, SINGLE
from rekindle.model.switch_mode import ON
from rekindle_spark.driver import away_sources, driver_clock
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.executor import job_activity
from rekindle_spark.executor.host_scheduler import AHEAD, BEHIND, CATCH_UP, URGENT
from rekindle_spark.jobs import fault_attribution, job_idleness, job_results, job_specs
from rekindle_spark.jobs.job_idleness import Watch
from rekindle_spark.jobs.job_results import Result
from rekindle_spark.jobs.job_specs import Ranges, Specification
from rekindle_spark.output import dead_letters, output_commit
from rekindle_spark.spark.spark_gateway import Job
from rekindle_spark.user_code import print_forwarding

__all__ = [
    "AHEAD",
    "BEHIND",
    "CATCH_UP",
    "POLL_SECONDS",
    "RETRY_SECONDS",
    "URGENT",
    "Attempts",
    "Result",
    "RunningJob",
    "follow",
    "give_up",
    "poll",
    "poll_seconds",
    "start",
    "submit",
]

POLL_SECONDS = 0.02
# While all that is placed runs. Executors are not looked at more often either.
STEADY_POLL_SECONDS = 0.1
# before a job that has failed is issued again
RETRY_SECONDS = 0.15
ROW_GAP_SECONDS = 150.0
# for which jobs are Spark's after one that failed over links
LINKS_REST_SECONDS = 30.0
LINKS_MISSING = (
    "executors there have no port for links, so jobs are Spark's; free the one that "
    "spark.rekindle.links.port names, or take the setting out (the executors' logs say why)"
)


@dataclass(slots=True)
class Attempts:
    """Failures of one kind of job in a row: since the last that went well, close together."""

    step_errors: int = 0
    failing_since: float | None = None
    failed_at: float = 0.0

    def count(self, step_error: bool, idle_seconds: float = 0.0) -> None:
        """One more failure; one long after the others begins a row of its own, but for the time in
        which nothing was done."""
        now = time.monotonic()
        gap_seconds = now - self.failed_at - idle_seconds
        if self.failing_since is None or gap_seconds > ROW_GAP_SECONDS:
            self.step_errors, self.failing_since = 0, now
        self.failed_at = now
        self.step_errors += step_error

    def clear(self) -> None:
        """A job went well."""
        self.step_errors, self.failing_since = 0, None

    @property
    def seconds(self) -> float:
        """Since the first failure of the row."""
        return 0.0 if self.failing_since is None else time.monotonic() - self.failing_since


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job on its way, with its number in requests. `patience_seconds` is how much longer than
    others it may do nothing."""

    specification: Specification
    job: Job
    losses: int
    began: float
    number: int
    patience_seconds: float = 0.0
    watch: Watch = field(default_factory=Watch)


def start(
    application: DriverContext,
    work: Ranges,
    *,
    urgency: int,
    checkpoint: int | None = None,
    patience_seconds: float = 0.0,
) -> RunningJob:
    """Submit a job that runs `work`."""
    return submit(
        application,
        lambda: _specification(application, work, urgency, checkpoint),
        patience_seconds,
        linked=urgency != CATCH_UP,
    )


def follow(application: DriverContext, before: RunningJob, work: Ranges) -> RunningJob | None:
    """Submit a job that runs the next epoch of what `before` runs, which goes over links and is on
    its way or has ended: on each executor each task behind that of the same partitions. None, and
    nothing runs, where an executor has no link any more, or where there has been a loss since."""
    began = time.monotonic()
    with application.lock:
        if application.losses != before.losses:
            return None
        specification = _specification(application, work, AHEAD, None)
        number = application.attempts
        application.readers.begin(specification.reads)
    job = application.exchange.follow(before.job, specification.stages, specification.output_order)
    if job is None:
        with application.lock:
            free = application.readers.end(specification.reads)
        application.exchange.remove(free)
        return None
    return RunningJob(specification, job, before.losses, began, number)


def submit(
    application: DriverContext,
    specify: Callable[[], Specification],
    patience_seconds: float = 0.0,
    *,
    linked: bool = False,
) -> RunningJob:
    """Submit the job that `specify` gives for the moment at which nothing changes; `linked`: over
    links, where the settings have these."""
    began = time.monotonic()
    with application.lock:
        losses, specification = application.losses, specify()
        number = application.attempts
        application.readers.begin(specification.reads)
    is_linked = linked and application.settings.runtime.exchange == LINKS
    is_linked = is_linked and began >= application.links_rest_until
    job = application.exchange.submit(
        specification.stages, specification.output_order, linked=is_linked
    )
    if is_linked:
        _note_missing_links(application, specification, job)
    return RunningJob(specification, job, losses, began, number, patience_seconds)


def poll_seconds(application: DriverContext) -> float:
    """How long a loop of the driver may wait before it looks again."""
    is_busy = application.progress.catching_up or application.claimed or application.paused
    return POLL_SECONDS if is_busy else STEADY_POLL_SECONDS


def poll(application: DriverContext, running: RunningJob, seconds: float) -> Result | None:
    """The job's result once it has ended, waiting up to `seconds`. A loss on the way ends it."""
    if running.job.wait(seconds):
        result = _absorb(application, running.specification, running.job, running.losses)
    elif application.losses != running.losses or application.stopping:
        fault_attribution.note_deaths(application, running.job.reports())
        _cancel(application, running, "executors were lost")
        result = Result(False, 0.0, reason="interrupted")
    elif (hopeless := _hopeless(application, running)) is not None:
        _cancel(application, running, hopeless.reason)
        result = hopeless
    else:
        return None
    _end(application, running)
    result.seconds = time.monotonic() - running.began
    result.losses = running.losses
    result.linked = running.job.is_linked
    if result.linked and not result.finished and result.reason != "interrupted":
        _rest_links(application, result)
    return result


def _note_missing_links(application: DriverContext, specification: Specification, job: Job) -> None:
    """Say once which nodes have no port for links, so that a job that was to go over links does
    not."""
    if job.is_linked:
        application.unlinked, application.linkless = set(), []
        return
    executors = specification.executors
    if executors == application.unlinked:
        return  # an executor has its port from its start on, or never
    seen = (one for one in application.exchange.executors() if one.executor in executors)
    nodes = sorted({one.node for one in seen if not one.linked})
    if nodes and nodes != application.linkless:
        application.events.write("links-missing", nodes=nodes, text=LINKS_MISSING)
    application.unlinked, application.linkless = executors, nodes


def _rest_links(application: DriverContext, result: Result) -> None:
    """A link may be broken or blocked that Spark's own connections do not need: whether executors
    reach each other is found out by those, before anybody is dropped for it."""
    result.cut_links.clear()
    application.links_rest_until = time.monotonic() + LINKS_REST_SECONDS
    application.events.write("links-rest", seconds=LINKS_REST_SECONDS, text=result.reason)


def _hopeless(application: DriverContext, running: RunningJob) -> Result | None:
    """What is to come of a job that will not end well: somebody has done nothing for it for too
    long, or could not read, and the stages behind would only wait for the same blocks."""
    now, specification = time.monotonic(), running.specification
    if not running.watch.is_due(now):
        return None
    reports = running.job.reports()
    owing = job_idleness.owing(specification.produced, reports)
    signs = job_activity.read_all(application.exchange.signs(), owing)
    idle = running.watch.look(running.number, owing, signs, now)
    if any(report["status"] == "unreadable" for report in reports):
        result = _judged(application, specification, reports, "")
        result.blamed = fault_attribution.note_deaths(application, reports)
        return result
    seconds_max = application.settings.idle_seconds + running.patience_seconds
    if idle is None or idle.seconds <= seconds_max:
        return None
    text = idle.described(application.executors)
    return Result(False, 0.0, reason=text, idle_seconds=idle.seconds)


def give_up(application: DriverContext, running: RunningJob, why: str) -> Result:
    """End a job of which nothing is to count; what hosts have said up to now of other things. After
    a loss it is not known of whom that is, but for states that are written. Over links a host may
    have died in it and in no other job."""
    reports = running.job.reports()
    result = _judged(application, running.specification, reports, why)
    if running.job.is_linked:
        result.blamed = fault_attribution.note_deaths(application, reports)
    _cancel(application, running, why)
    _end(application, running)
    if application.losses != running.losses:
        return Result(False, 0.0, acknowledgements=result.acknowledgements)
    return result


def _cancel(application: DriverContext, running: RunningJob, why: str) -> None:
    running.job.cancel(why)
    _discard(application, running.specification, running.job)


def _end(application: DriverContext, running: RunningJob) -> None:
    with application.lock:
        free = application.readers.end(running.specification.reads)
    application.exchange.remove(free)


def _specification(
    application: DriverContext, work: Ranges, urgency: int, checkpoint: int | None
) -> Specification:
    common = {**application.next_header(), "urgency": urgency, "checkpoint": checkpoint}
    first, last = min(first for first, _ in work.values()), max(last for _, last in work.values())
    if checkpoint is not None and urgency == URGENT and checkpoint == last:
        application.checkpoint_attempt = common["attempt"]
    elif checkpoint is not None:
        crossing = (n for n, (begin, end) in work.items() if begin <= checkpoint <= end)
        application.trailing_attempts |= dict.fromkeys(crossing, common["attempt"])
    offsets = {epoch: application.offsets(epoch) for epoch in range(first, last + 1)}
    return job_specs.specify(application.progress, work, application.executors, common, offsets)


def _absorb(
    application: DriverContext, specification: Specification, job: Job, losses: int
) -> Result:
    failure = job.failure()
    reports = job.reports()
    result = _judged(application, specification, reports, failure)
    result.blamed = fault_attribution.note_deaths(application, reports)
    with application.lock:
        if application.losses != losses:
            result.finished, result.reason = False, "interrupted"
        if not result.finished:
            _discard(application, specification, job)
            return result
        partitions = job_results.outcomes(reports)
        application.warm |= specification.executors
        _retain(application, specification, job, partitions)
        counted = job_results.counted(specification, partitions)
        # what follows unordered epochs counts no earlier than they do
        unordered = not specification.ordered or output_commit.is_unordered(application)
        held = counted.keys() if unordered else counted.keys() & application.program.uncertain
        certain = {number: one for number, one in counted.items() if number not in held}
        if certain:
            _check_digests(application, {number: partitions[number] for number in certain})
            _commit(application, specification, certain)
        _stage(application, {number: counted[number] for number in held}, unordered=unordered)
        for partition, (_, last) in specification.ranges.items():
            application.progress.finished[partition] = last
        if application.settings.runtime.classes != SINGLE:
            for partition, seconds in result.seconds_by_partition.items():
                epochs = max(1, len(counted[partition]["epochs"]))
                application.progress.took(partition, seconds / epochs)
        fault_attribution.note_passed(application, counted)
        away_sources.note_read(application, counted)
    return result


def _judged(
    application: DriverContext,
    specification: Specification,
    reports: list[dict[str, Any]],
    failure: str,
) -> Result:
    print_forwarding.show(reports)
    failing = tuple(application.links.failing)
    result = job_results.judge(application.progress, specification, reports, failure, failing)
    application.machines |= set(result.machines.values())
    return result


def _check_digests(application: DriverContext, partitions: Mapping[int, Any]) -> None:
    """A repeat must give what the first run gave; else nothing downstream can be trusted."""
    for number, outcome in partitions.items():
        for epoch, _, digest, *_ in outcome["epochs"]:
            known = application.digests.setdefault((number, epoch), digest)
            if known != digest:
                step = application.program.owner[number].name
                raise differing(step, epoch, application.machines)


def _retain(
    application: DriverContext,
    specification: Specification,
    job: Job,
    partitions: Mapping[int, dict[str, Any]],
) -> None:
    """Keep the exchanges that some consumer may still need; remove the others at once.

    Without buffering that are those of partitions which lag behind: once all are live, nothing.
    Over the limit of an executor's disk, sources make again what somebody needs; what they made for
    readers in this job alone has been read.
    """
    program, emptied = application.program, []
    needed = {p for p in specification.ranges if _feeds(program, p)}
    for stage, tasks in enumerate(specification.produced):
        kept = [
            (executor, {p: span for p, span in produced.items() if p in needed})
            for executor, produced in tasks
        ]
        shuffle = job.shuffle(stage)
        buffering = application.buffering == ON or not application.progress.complete
        if buffering and any(produced for _, produced in kept):
            sizes = [sum(partitions[p]["bytes"] for p in produced) for _, produced in tasks]
            emptied += application.progress.retained.add(shuffle, kept, sizes)
        else:
            emptied.append(shuffle)
    if application.buffering != ON and application.progress.complete:
        emptied += application.progress.retained.clear()
    limit_bytes = application.settings.runtime.retained_bytes_max
    emptied += _shed(application, limit_bytes)
    application.remove(emptied)


def _shed(application: DriverContext, limit_bytes: int) -> list[int]:
    """Let go what sources can make again, and say so once until the next checkpoint."""
    sources = application.program.sources - application.program.uncertain
    gone = application.progress.retained.shed(limit_bytes, sources)
    if gone and not application.sheds:
        application.events.write("shed", limit_bytes=limit_bytes, epoch=application.newest)
    application.sheds = application.sheds or bool(gone)
    return gone


def _feeds(program: Any, partition: int) -> bool:
    return bool(program.outputs[program.owner[partition].index])


def _discard(application: DriverContext, specification: Specification, job: Job) -> None:
    application.exchange.remove(job.shuffle(stage) for stage in range(len(specification.stages)))


def _stage(
    application: DriverContext, partitions: Mapping[int, Mapping[str, Any]], *, unordered: bool
) -> None:
    """Keep what the job has given until the next global checkpoint."""
    for number, outcome in sorted(partitions.items()):
        parts = application.program.output_parts(number)
        output_commit.stage(
            application.staged, number, parts, outcome["epochs"], unordered=unordered
        )


def _commit(
    application: DriverContext, specification: Specification, partitions: Mapping[int, Any]
) -> None:
    """One commit record for all of the job that counts now."""
    program, finished, outputs, late = application.program, {}, [], {}
    choices: list[list[Any]] = []
    for number in sorted(partitions):
        epochs = partitions[number]["epochs"]
        digests = [digest for _, _, digest, *_ in epochs]
        late[number] = {epoch: rows for epoch, _, _, _, rows, *_ in epochs}
        choices += dead_letters.take_in(application.progress, application.committed, number, epochs)
        finished[program.partition_names[number]] = [*specification.ranges[number], digests]
        for output, part in program.output_parts(number).items():
            done = application.committed.get(part, 0)
            outputs += [
                [part, epoch, *sinks[output]]
                for epoch, _, _, sinks, *_ in epochs
                if output in sinks and epoch > done
            ]
    output_commit.publish(
        application,
        {
            "at": driver_clock.now(),
            "plan_epoch": application.plan_epoch,
            "finished": finished,
            "outputs": outputs,
            "late": application.late.fresh(late),
            **({"choices": choices} if choices else {}),
            **output_commit.marks(application, partitions),
        },
    )


# On CPUs of several kinds native libraries may rightly give another last bit, and that is another
# mistake than a clock or a set in a function.
DIFFERS = "gave another output when it ran again on the same input"
DIFFERS_REMEDY = "take clocks, random numbers and unordered data out of its function"


def differing(step: str, epoch: int, machines: Iterable[str]) -> RunError:
    """The error for a step whose repeat differs; `machines` are the kinds of CPU of the executors
    that there have been, as `native_libraries.machine` describes them."""
    kinds = sorted(set(machines))
    where = f"step {step}, epoch {epoch}"
    if len(kinds) < 2:
        return RunError(where=where, what=DIFFERS, remedy=DIFFERS_REMEDY)
    return RunError(
        where=where,
        what=f"{DIFFERS}, and executors have CPUs of several kinds ({', '.join(kinds)}), on which "
        "libraries of numbers may give another last bit",
        remedy="declare the step uncertain (deterministic=False), or run on nodes of one kind "
        f"(docs/pipelines.md); if that changes nothing, {DIFFERS_REMEDY}",
    )
