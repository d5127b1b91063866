"""How far the streaming queries of a Spark application are, by the jobs that its driver lists.

    jobs ──► batches of each query ──► settled before the loss? ──► caught up, or why not
    stages ──► rows of each batch ──┘

Spark gives each job of a micro-batch a description with the ids of query and run and the number of
the batch, without any setting. Read at a driver of 4.3; that 3.5 to 4.2 do the same is known by
their code alone. Times are the driver's own. Pure; `progress_reader` calls it.

Why: docs/decisions/0060-catch-up-is-read-from-the-jobs-of-a-driver.md.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Annotated, Final

import msgspec

from rekindle.coordination.application_status import named
from rekindle.model.errors import InputError, printable
from rekindle_operator.api.recovery_resource import CaughtUpBy

# A node is silent for so long before its loss is known. Batches of that time are no reference.
LOSS_MARGIN_SECONDS: Final = 60.0
# Batches before the loss that a reference needs, and has at most.
REFERENCE_BATCHES_MIN, REFERENCE_BATCHES_MAX = 3, 20
# Rows are read for so many of them: each batch costs requests.
REFERENCE_ROWS_MAX: Final = 5
# A batch is near another one up to this ratio; two of less than `NEAR_SECONDS` always are.
NEAR: Final = 1.25
NEAR_SECONDS: Final = 1.0
# Batches whose rows differ by less are at a limit, such as `maxOffsetsPerTrigger`.
CAPPED: Final = 1.01
CAPPED_BATCHES: Final = 3
STEADY_BATCHES: Final = 5
# A query waits for its trigger if so much of the time between two batches is left, and so many
# seconds: between batches Spark also writes its logs, which takes a second or two in a bucket.
WAITING_SHARE, WAITING_SECONDS = 0.2, 3.0
# No job for so long: it waits for input or for its trigger, if that is longer than its batches are
# apart. Where only one batch is known, the longer time counts.
QUIET_SECONDS, QUIET_SECONDS_UNKNOWN = 30.0, 120.0
# The newest batch may run another job until it has been quiet for so long.
FINISHED_SECONDS: Final = 5.0
STAGES_MAX: Final = 60
STAGES_OF_BATCH_MAX: Final = 8
NAME_LENGTH_MAX = 60
NAMES_MAX = 3

QUERY_ID = re.compile(r"\bid ?= ?([0-9a-f]{8}-[0-9a-f-]{27})")
RUN_ID = re.compile(r"\brunId ?= ?([0-9a-f]{8}-[0-9a-f-]{27})")
BATCH = re.compile(r"\bbatch ?= ?(\d{1,18})\b")
LINE_BREAK = "<br/>"

StageId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class SparkJob(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A job as Spark's status API lists it."""

    job_id: int
    status: str = ""
    description: str | None = None
    submission_time: str | None = None
    completion_time: str | None = None
    stage_ids: tuple[StageId, ...] = ()


class SparkStage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An attempt of a stage; `input_records` are the rows that it has read from a source."""

    input_records: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A batch by its jobs, in seconds since 1970 by the driver's clock. `ended`: when the last of
    its jobs ended, None while one runs. `rows` are None where they are not known."""

    number: int
    began: float
    ended: float | None
    failed: bool = False
    stages: tuple[int, ...] = ()
    rows: int | None = None

    @property
    def seconds(self) -> float:
        """How long its jobs took; 0 while one runs."""
        return 0.0 if self.ended is None else max(0.0, self.ended - self.began)


@dataclass(frozen=True, slots=True)
class StreamingQueryJobs:
    """The batches of a query that the driver still lists, in order."""

    query_id: str
    name: str
    batches: tuple[MicroBatch, ...]


@dataclass(frozen=True, slots=True)
class IncidentTimes:
    """The incident by the driver's clock: now, when nodes were lost, when pods were back."""

    now: float
    lost_at: float
    back_at: float


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Whether a query has caught up, and why, in a sentence without its end."""

    name: str
    is_caught_up: bool
    text: str


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """What a driver says of its queries. `unread` is why nothing was read, and `is_final` whether
    another attempt is useless; `unread_seconds` have passed since it was last read, or since its
    pods were back."""

    queries: tuple[StreamProgress, ...] = ()
    unread: str = ""
    is_final: bool = False
    unread_seconds: float = 0.0


# How long pods have to be back before an incident ends without progress: where the driver's UI does
# not answer; where it lists no batch; where a query does not catch up.
UNREAD_SECONDS_MAX: Final = 60.0
NO_BATCH_SECONDS_MAX: Final = 180.0
CATCH_UP_SECONDS_MAX: Final = 1_800.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Whether an application whose pods are back counts as caught up, `by` what (None: not yet),
    and why. `is_behind`: it ends although a query has not caught up."""

    by: CaughtUpBy | None
    text: str
    is_behind: bool = False


def catch_up(reading: ProgressReading, back_seconds: float) -> CatchUp:
    """What follows from the newest reading, once pods have been back for so long. As long as it
    goes on, its text has no figures: each other text is another write of the Recovery."""
    if reading.unread:
        unread_for_long = reading.unread_seconds >= UNREAD_SECONDS_MAX
        ends = reading.is_final or unread_for_long or back_seconds >= CATCH_UP_SECONDS_MAX
        text = f"Whether its queries have caught up is not known: {reading.unread}."
        return CatchUp("Pods" if ends else None, text)
    if not reading.queries:
        ends = back_seconds >= NO_BATCH_SECONDS_MAX
        return CatchUp("Pods" if ends else None, "Its driver lists no batch of a streaming query.")
    behind = [query for query in reading.queries if not query.is_caught_up]
    if not behind:
        return CatchUp("Progress", f"Caught up: {_listed(reading.queries)}.")
    if back_seconds < CATCH_UP_SECONDS_MAX:
        names = tuple(query.name for query in behind)
        return CatchUp(None, f"Its pods run. Not caught up yet: {named(names)}.")
    minutes = f"{CATCH_UP_SECONDS_MAX / 60:g} minutes"
    return CatchUp("Pods", f"Not caught up within {minutes}: {_listed(behind)}.", is_behind=True)


def _listed(queries: Sequence[StreamProgress]) -> str:
    told = "; ".join(f"{query.name} ({query.text})" for query in queries[:NAMES_MAX])
    more = len(queries) - NAMES_MAX
    return f"{told}; and {more} more" if more > 0 else told


def queries_of(jobs: Iterable[SparkJob]) -> tuple[StreamingQueryJobs, ...]:
    """The streaming queries that jobs belong to; none for an application that has none. A batch
    that ran again in a later run counts as that run had it. Raises InputError for a time that is
    none."""
    found: dict[str, dict[tuple[int, str], list[SparkJob]]] = {}
    names: dict[str, str] = {}
    for job in jobs:
        text = job.description or ""
        query, run, number = QUERY_ID.search(text), RUN_ID.search(text), BATCH.search(text)
        if query is None or run is None or number is None or job.submission_time is None:
            continue
        names[query[1]] = _named(text[: query.start()], query[1])
        key = int(number[1]), run[1]
        found.setdefault(query[1], {}).setdefault(key, []).append(job)
    return tuple(
        StreamingQueryJobs(query, names[query], _newest_runs(batches))
        for query, batches in sorted(found.items())
    )


def _named(before: str, query_id: str) -> str:
    """The name that its author gave a query, else its id. It is another party's text."""
    name = printable(before.replace(LINE_BREAK, " ")).strip()
    return name[:NAME_LENGTH_MAX] or query_id[:8]


def _newest_runs(batches: Mapping[tuple[int, str], Sequence[SparkJob]]) -> tuple[MicroBatch, ...]:
    newest: dict[int, MicroBatch] = {}
    for (number, _), jobs in batches.items():
        batch = _batch(number, jobs)
        if number not in newest or batch.began > newest[number].began:
            newest[number] = batch
    return tuple(sorted(newest.values(), key=lambda batch: (batch.began, batch.number)))


def _batch(number: int, jobs: Sequence[SparkJob]) -> MicroBatch:
    ends = [job.completion_time for job in jobs if job.completion_time is not None]
    runs = len(ends) < len(jobs)
    return MicroBatch(
        number=number,
        began=min(_moment(job.submission_time or "") for job in jobs),
        ended=None if runs else max(map(_moment, ends)),
        failed=any(job.status == "FAILED" for job in jobs),
        stages=tuple(sorted({stage for job in jobs for stage in job.stage_ids})),
    )


def _moment(text: str) -> float:
    """Spark's form, as `2026-11-30T10:40:46.123GMT`, in seconds since 1970."""
    try:
        return datetime.fromisoformat(text.replace("GMT", "+00:00")).timestamp()
    except (OverflowError, ValueError) as error:
        what = f"{printable(text)[:NAME_LENGTH_MAX]!r} is no time of Spark's status API"
        remedy = "see docs/applications.md"
        raise InputError(where="a job of the driver", what=what, remedy=remedy) from error


def rows_wanted(queries: Iterable[StreamingQueryJobs], times: IncidentTimes) -> tuple[int, ...]:
    """The stages whose rows a verdict needs: of the newest batches, and of some from before the
    loss. A batch of many stages is judged by its duration alone."""
    wanted: list[int] = []
    for query in queries:
        recent = _recent(query.batches, times)[-STEADY_BATCHES:]
        for batch in (*recent, *_before(query.batches, times)[-REFERENCE_ROWS_MAX:]):
            if len(batch.stages) <= STAGES_OF_BATCH_MAX:
                wanted += batch.stages
    return tuple(wanted[:STAGES_MAX])


def with_rows(
    queries: Iterable[StreamingQueryJobs], rows: Mapping[int, int | None]
) -> tuple[StreamingQueryJobs, ...]:
    """The same with rows of batches, by those of stages. Where no batch has any, its source does
    not count them."""
    found = []
    for query in queries:
        batches = [replace(batch, rows=_rows(batch, rows)) for batch in query.batches]
        if not any(batch.rows for batch in batches):
            batches = list(query.batches)
        found.append(replace(query, batches=tuple(batches)))
    return tuple(found)


def _rows(batch: MicroBatch, rows: Mapping[int, int | None]) -> int | None:
    known = [count for stage in batch.stages if (count := rows.get(stage)) is not None]
    return sum(known) if known and len(known) == len(batch.stages) else None


def judge_stream(query: StreamingQueryJobs, times: IncidentTimes) -> StreamProgress:
    """Whether a query has caught up since its pods were back."""
    newest = query.batches[-1]
    text = _quiet(query.batches, times)
    if newest.failed and newest.ended is not None:
        return StreamProgress(query.name, False, f"batch {newest.number} has failed")
    if text:
        return StreamProgress(query.name, True, text)
    recent = _recent(query.batches, times)
    late = _late(newest, recent or _before(query.batches, times), times)
    if late:
        return StreamProgress(query.name, False, late)
    if not recent:
        text = f"batch {newest.number} began before its pods were back"
        if newest.began >= times.back_at:
            text = f"batch {newest.number} is its first since its pods were back"
        return StreamProgress(query.name, False, text)
    for caught_up in (_took_all, _as_before, _waits, _steady):
        if text := caught_up(query.batches, times):
            return StreamProgress(query.name, True, text)
    return StreamProgress(query.name, False, _behind(recent[-1]))


def _behind(batch: MicroBatch) -> str:
    rows = "" if batch.rows is None else f" and {batch.rows} rows"
    return f"batch {batch.number} took {batch.seconds:.1f} s{rows}"


def _recent(batches: Sequence[MicroBatch], times: IncidentTimes) -> list[MicroBatch]:
    """Batches that began since pods were back, and have ended."""
    found = [batch for batch in batches if batch.ended is not None]
    if found and found[-1] == batches[-1] and _idle_seconds(batches, times) < FINISHED_SECONDS:
        found.pop()
    return [batch for batch in found if batch.began >= times.back_at and not batch.failed]


def _before(batches: Sequence[MicroBatch], times: IncidentTimes) -> list[MicroBatch]:
    """Batches that ended before nodes were lost."""
    until = times.lost_at - LOSS_MARGIN_SECONDS
    found = [
        batch
        for batch in batches
        if batch.ended is not None and batch.ended < until and not batch.failed
    ]
    return found[-REFERENCE_BATCHES_MAX:]


def _idle_seconds(batches: Sequence[MicroBatch], times: IncidentTimes) -> float:
    """For how long no job of a query has run; 0 while one runs."""
    ended = batches[-1].ended
    return 0.0 if ended is None else max(0.0, times.now - ended)


def _quiet(batches: Sequence[MicroBatch], times: IncidentTimes) -> str:
    """It waits for input, or for its trigger, longer than usual."""
    idle_seconds = _idle_seconds(batches, times)
    gaps = _gaps(batches[-STEADY_BATCHES:])
    enough = max(QUIET_SECONDS, 1.5 * max(gaps)) if gaps else QUIET_SECONDS_UNKNOWN
    since_back = times.now - times.back_at
    if min(idle_seconds, since_back) < enough:
        return ""
    return f"no job for {idle_seconds:.0f} s since batch {batches[-1].number}"


def _gaps(batches: Sequence[MicroBatch]) -> list[float]:
    """Seconds between the beginnings of batches."""
    return [max(0.0, after.began - before.began) for before, after in itertools.pairwise(batches)]


def _late(newest: MicroBatch, usual: Sequence[MicroBatch], times: IncidentTimes) -> str:
    """A batch that runs for much longer than others."""
    if newest.ended is not None or not usual:
        return ""
    seconds = times.now - newest.began
    limit = 2.0 * median(batch.seconds for batch in usual) + NEAR_SECONDS
    return f"batch {newest.number} has run for {seconds:.1f} s" if seconds > limit else ""


def _took_all(batches: Sequence[MicroBatch], times: IncidentTimes) -> str:
    """Its newest batch has found nothing to read."""
    newest = _recent(batches, times)[-1]
    return f"batch {newest.number} had no rows to read" if newest.rows == 0 else ""


def _as_before(batches: Sequence[MicroBatch], times: IncidentTimes) -> str:
    """Batches are as they were before the loss. By durations alone one batch may be so by chance:
    two count then."""
    before, recent = _before(batches, times), _recent(batches, times)
    if len(before) < REFERENCE_BATCHES_MIN:
        return ""
    newest, usual = recent[-1], median(batch.seconds for batch in before)
    rows = [batch.rows for batch in before if batch.rows is not None]
    knows_rows = bool(rows) and newest.rows is not None
    compared = recent[-1:] if knows_rows else recent[-2:]
    if len(compared) < (1 if knows_rows else 2):
        return ""
    if any(not _is_near(batch.seconds, usual, NEAR_SECONDS) for batch in compared):
        return ""
    if knows_rows and not _is_near(newest.rows or 0, median(rows)):
        return ""
    return f"{_behind(newest)}, as before the loss"


def _is_near(value: float, usual: float, slack: float = 0.0) -> bool:
    """Whether it is at most about as much as usual."""
    return value <= NEAR * usual + slack


def _waits(batches: Sequence[MicroBatch], times: IncidentTimes) -> str:
    """It has time left before each trigger, and takes in all that there is."""
    recent = _recent(batches, times)
    ahead = recent[-CAPPED_BATCHES:]
    if len(ahead) < CAPPED_BATCHES or _is_capped(ahead):
        return ""
    starts = [*(batch.began for batch in ahead[1:]), _next_start(batches, ahead[-1], times)]
    for batch, start in zip(ahead, starts, strict=True):
        left = start - batch.began - batch.seconds
        if left < WAITING_SECONDS or left < WAITING_SHARE * (start - batch.began):
            return ""
    return f"{_behind(ahead[-1])}, and waits for its trigger"


def _next_start(batches: Sequence[MicroBatch], batch: MicroBatch, times: IncidentTimes) -> float:
    """When the batch after it began; now, where that is still to come."""
    later = (other.began for other in batches if other.began > batch.began)
    return min(later, default=times.now)


def _is_capped(batches: Sequence[MicroBatch]) -> bool:
    """Whether batches take in as many rows as they may, as far as rows are known."""
    rows = [batch.rows for batch in batches if batch.rows is not None]
    return len(rows) == len(batches) and max(rows) <= CAPPED * max(1, min(rows))


def _steady(batches: Sequence[MicroBatch], times: IncidentTimes) -> str:
    """Batches follow each other, and neither shrink nor grow: each takes in what came meanwhile.
    Durations alone do not say that."""
    recent = _recent(batches, times)[-STEADY_BATCHES:]
    rows = [batch.rows for batch in recent if batch.rows is not None]
    if len(rows) < STEADY_BATCHES or _is_capped(recent):
        return ""
    if not _is_near(max(rows), min(rows)):
        return ""
    return f"{_behind(recent[-1])}, as the {STEADY_BATCHES - 1} batches before"
