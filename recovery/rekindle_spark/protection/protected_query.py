"""One protected query: how far it is, stopped at a boundary, started again.

    running ──not planned──► stopping ──its Python tasks are gone──► waiting ──planned──► starting
       │ ▲                                                              ▲                     │ │
       │ │                                                              └─start function raises─┤
       │ └─────────────────────────────────────────────────────────────────────────────────────┤
       └──ends by itself──► ended ◄───────────────────────its start function raises once more───┘
                              └──somebody else has started it again──► running

A stop loses nothing: a batch that is interrupted runs again from the same offsets. Where there is
a trigger interval, it waits for the end of the batch. `stop` of Spark waits for a function of
`foreachBatch`, so stops and starts are made by threads of a pool. A start function that raises is
called a few times more, for its source may be away for a moment; one that exits is not. What ends
by itself is the user's business, and never started again from here.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from rekindle.model.errors import InputError, first_line
from rekindle_spark.protection import start_terms
from rekindle_spark.protection.start_terms import BatchLimit

BOUNDARY_SECONDS_MAX, BOUNDARY_STEP_SECONDS = 5.0, 0.05
# A Python worker may live on for `spark.python.task.killTimeout`, 2 s, after its task was killed.
PYTHON_SECONDS = 2.5
# A batch that takes no longer than this, by what is usual, has no backlog.
USUAL_FACTOR = 2.0
# What is usual follows batches that take longer too, only more slowly: a query whose batches have
# become longer permanently would else be behind permanently.
USUAL_WEIGHT, LATE_WEIGHT = 0.2, 0.05
# A start function that raises is called again after these seconds.
START_REST_SECONDS = (2.0, 6.0, 18.0)
# Triggers with which a query cannot be stopped and started at will, and what they are called.
REFUSED_TRIGGERS = {
    "ContinuousTrigger": "continuous",
    "OneTimeTrigger": "once",
    "AvailableNowTrigger": "availableNow",
    "RealTimeTrigger": "realTime",
}
INTERVAL_TRIGGER = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
# The end of a checkpoint's path where Spark makes up its name: a temporary folder, which goes with
# the query, or one below the default location for a query without a name.
DEFAULT_LOCATION = "spark.sql.streaming.checkpointLocation"
UNNAMED_CHECKPOINT = re.compile(r"/(temporary-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")

log = logging.getLogger(__name__)

# Takes nothing, or a BatchLimit.
Start = Callable[..., Any]


@dataclass(slots=True, eq=False)
class ProtectedQuery:
    """`start` gives a `StreamingQuery`; `query` is the newest that it has given, `ended` why it
    does not run although nobody here has stopped it, `failure` what its start function raised then.
    `prepare_thread` is called in another thread before `start` is called again there, and each call
    is within `in_pool` of Spark's scheduler. `limit` is that of the present run.
    `interval_seconds` are those of its trigger, 0 where it has none; `run_id` is the group of its
    jobs. `looked_at` is when it was last looked at, `caught_up_at` when it was last seen
    without a backlog (time.monotonic()), `usual_seconds` how long a batch takes without one,
    `rows_per_second` the most that one has worked off."""

    name: str
    start: Start
    prepare_thread: Callable[[], None] = lambda: None
    in_pool: Callable[[], AbstractContextManager[None]] = nullcontext
    query: Any = None
    ended: str | None = None
    failure: BaseException | None = None
    interval_seconds: float = 0.0
    run_id: str = ""
    looked_at: float = float("-inf")
    is_caught_up: bool = False
    caught_up_at: float = field(default_factory=time.monotonic)
    usual_seconds: float | None = None
    rows_per_second: float = 0.0
    limit: BatchLimit = field(default_factory=BatchLimit)
    rests_until: float = 0.0
    _is_stopped: bool = False
    _work: Future[None] | None = None
    _failed_starts: int = 0
    _noted_batch: tuple[str, int] | None = None
    _takes_limit: bool = field(init=False)

    def __post_init__(self) -> None:
        self._takes_limit = start_terms.is_taken_by(self.start, self.name)

    @property
    def is_busy(self) -> bool:
        """Whether it is being stopped or started."""
        return self._work is not None

    @property
    def is_running(self) -> bool:
        """Whether it runs, as far as was seen."""
        return self.query is not None and not (self._is_stopped or self.ended or self.is_busy)

    @property
    def is_settled(self) -> bool:
        """Whether it has caught up, or ended by itself: nothing is about to change."""
        return not self.is_busy and (self.is_caught_up or self.ended is not None)

    def begin(self) -> None:
        """Start it for the first time; what its function raises is the caller's."""
        self._take(self._started(BatchLimit()), BatchLimit())

    def look(self, active: Callable[[str], Any], now: float) -> None:
        """Take in how it is. `active` gives the query with an id that runs in this session, or
        None."""
        self.looked_at = now
        if self._work is not None and self._work.done():
            work, self._work = self._work, None
            if (error := work.exception()) is not None:  # of Spark's stop
                log.warning("query %s: its stop has failed: %s", self.name, first_line(error))
                self._is_stopped = not self.query.isActive
        if self.is_busy or self.query is None:
            return
        if self._is_stopped:
            return
        if not self.query.isActive:
            other = active(str(self.query.id))
            if other is None:
                self.ended = self.ended or _why(self.query)
            else:
                self._take(other, BatchLimit())
        if self.ended is None:
            self._note_progress(now)

    def raise_failure(self) -> None:
        """Raise what it has failed with, if it has ended so."""
        if self.ended is None:
            return
        if self.failure is not None:
            raise self.failure
        if (error := self.query.exception()) is not None:
            raise error

    def steer(self, *, wanted: bool, pool: Executor, now: float) -> None:
        """Stop it, or start it again, unless it is as it is wanted or has ended by itself."""
        if self.is_busy or self.ended is not None or wanted != self._is_stopped:
            return
        if wanted and now >= self.rests_until:
            self._work = pool.submit(self._start_again)
        elif not wanted:
            self._is_stopped, self.is_caught_up = True, False
            self._work = pool.submit(self._stop)

    def _take(self, query: Any, limit: BatchLimit) -> None:
        """Another run of it, which somebody has started."""
        self.query, self.limit, self.ended, self.failure = query, limit, None, None
        self.interval_seconds, self.run_id = _interval_seconds(query), str(query.runId)

    def _note_progress(self, now: float) -> None:
        newest = self.query._jsq.lastProgress()
        if newest is None:
            # without new input there is no batch, and so no progress
            self.is_caught_up = _waits(self.query.status)
        else:
            progress = json.loads(newest.json())
            self.is_caught_up = self._has_no_backlog(progress)
            self._learn(progress)
        if self.is_caught_up:
            self.caught_up_at = now

    def _has_no_backlog(self, progress: Mapping[str, Any]) -> bool:
        """Whether a batch has taken all that there was: by the offsets where the source says what
        is newest, or because the next trigger is not due and there is no input, else by its time.
        """
        sources = progress.get("sources") or ()
        knows_newest = sources and all(one.get("latestOffset") is not None for one in sources)
        if knows_newest and all(one["endOffset"] == one["latestOffset"] for one in sources):
            return True  # and Spark need not be asked for the status
        status = self.query.status
        waits = _waits(status)
        if waits and not status["isDataAvailable"]:  # by its newest trigger
            return True
        if knows_newest or self.limit.is_full(_rows(progress)):
            return False
        seconds, usual = _seconds(progress), self.usual_seconds
        if self.interval_seconds and (waits or seconds <= self.interval_seconds):
            return True
        return usual is None or seconds <= USUAL_FACTOR * usual

    def _learn(self, progress: Mapping[str, Any]) -> None:
        """How long a batch takes, and how many rows it works off, from each batch once."""
        batch = str(progress.get("runId")), int(progress.get("batchId", -1))
        seconds = _seconds(progress)
        if batch == self._noted_batch or not seconds:
            return
        self._noted_batch = batch
        usual = seconds if self.usual_seconds is None else self.usual_seconds
        weight = USUAL_WEIGHT if self.is_caught_up else LATE_WEIGHT
        self.usual_seconds = usual + weight * (seconds - usual)
        self.rows_per_second = max(self.rows_per_second, _rows(progress) / seconds)

    def _stop(self) -> None:
        limit = time.monotonic() + (BOUNDARY_SECONDS_MAX if self.interval_seconds else 0.0)
        while self.query.status["isTriggerActive"] and time.monotonic() < limit:
            time.sleep(BOUNDARY_STEP_SECONDS)  # Spark has no call that waits for the boundary
        self.query.stop()
        self.rests_until = time.monotonic() + PYTHON_SECONDS

    def _start_again(self) -> None:
        try:
            self.prepare_thread()
            limit = self._next_limit()
            query = self._started(limit)
            self._check_same(query)
        # of a user's function: whatever it raises is why it is not back, and it may call sys.exit
        except BaseException as error:
            self._start_failed(error)
            return
        self._take(query, limit)
        self._failed_starts = 0
        self._is_stopped = False

    def _started(self, limit: BatchLimit) -> Any:
        with self.in_pool():
            return _checked(self.name, self.start(limit) if self._takes_limit else self.start())

    def _check_same(self, query: Any) -> None:
        """InputError where another query was started: it would know nothing of this one's input."""
        if str(query.id) != str(self.query.id):
            query.stop()
            raise InputError(
                where=f"protect: query {self.name}",
                what=f"has been started as another query ({query.id}, and not {self.query.id})",
                remedy="name the same `checkpointLocation` each time",
            )

    def _next_limit(self) -> BatchLimit:
        if not self._takes_limit:
            return BatchLimit()
        return start_terms.of_rate(self.rows_per_second, self.interval_seconds)

    def _start_failed(self, error: BaseException) -> None:
        said = f"its start function raises {type(error).__name__}: {first_line(error)}"
        may_pass = isinstance(error, Exception) and not isinstance(error, InputError)
        if may_pass and self._failed_starts < len(START_REST_SECONDS):
            rest_seconds = START_REST_SECONDS[self._failed_starts]
            self._failed_starts += 1
            self.rests_until = time.monotonic() + rest_seconds
            log.warning("query %s: %s; tried again in %g s", self.name, said, rest_seconds)
            return
        self._failed_starts = 0
        self.failure, self.ended = error, said
        self._is_stopped = False


def _seconds(progress: Mapping[str, Any]) -> float:
    # `batchDuration` says the same, but Spark 3.5 leaves it out
    return float(progress.get("durationMs", {}).get("triggerExecution", 0)) / 1_000.0


def _rows(progress: Mapping[str, Any]) -> int:
    return int(progress.get("numInputRows", 0))


def _waits(status: Mapping[str, Any]) -> bool:
    """Whether a query waits for its trigger, or for input."""
    return str(status["message"]).startswith("Waiting for")


def _why(query: Any) -> str:
    """Why a query has ended by itself, or been stopped by somebody else."""
    error = query.exception()
    return "somebody has stopped it" if error is None else f"it has failed: {first_line(error)}"


def _trigger(query: Any) -> str:
    """The trigger as Spark's engine has it, such as `ProcessingTimeTrigger(5000)`."""
    return str(query._jsq.streamingQuery().trigger().toString())


def _interval_seconds(query: Any) -> float:
    found = INTERVAL_TRIGGER.match(_trigger(query))
    return int(found[1]) / 1_000.0 if found else 0.0


def _checked(name: str, query: Any) -> Any:
    """What a start function has given, if it can be stopped and started; else InputError."""
    where = f"protect: query {name}"
    if not (hasattr(query, "stop") and hasattr(query, "runId")):
        raise InputError(
            where=where,
            what=f"its start function gives {type(query).__name__}, and no StreamingQuery",
            remedy="return what `start()` of the stream gives",
        )
    _check_startable(where, query)
    return query


def _has_random_checkpoint(query: Any) -> bool:
    """Whether Spark has made up the name of a query's checkpoint."""
    engine = query._jsq.streamingQuery()
    root = str(engine.resolvedCheckpointRoot())
    unnamed = UNNAMED_CHECKPOINT.search(root)
    if unnamed is None:
        return False
    is_temporary = bool(unnamed[1])
    if is_temporary or query.name is not None:
        return is_temporary
    default = str(engine.sparkSession().conf().get(DEFAULT_LOCATION, ""))
    return bool(default) and root[: unnamed.start()].endswith(urlsplit(default).path.rstrip("/"))


def _check_startable(where: str, query: Any) -> None:
    """Stop a query that cannot be started again, or only as another one: InputError."""
    trigger = _trigger(query)
    for kind, called in REFUSED_TRIGGERS.items():
        if trigger.startswith(kind):
            query.stop()
            raise InputError(
                where=where,
                what=f"has the trigger {called}, and cannot be stopped and started at any time",
                remedy="give it `trigger(processingTime=...)`, or leave it out of `protect`",
            )
    if _has_random_checkpoint(query):
        query.stop()
        raise InputError(
            where=where,
            what="has no checkpoint of its own, and would lose its place in its input at a stop",
            remedy="give it a `queryName`, and the option `checkpointLocation`, the same each time",
        )
