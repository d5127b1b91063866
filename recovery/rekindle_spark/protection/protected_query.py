"""One protected query: how far it is, stopped at a boundary, started again.

    running ──not planned──► stopping ──its Python tasks are gone──► waiting ──planned──► starting
       │ ▲                                                                                    │
       │ └────────────────────────────────────────────────────────────────────────────────────┤
       └──ends by itself──► ended ◄──────────────────────────────its start function raises────┘
                              └──somebody else has started it again──► running

A stop loses nothing: a batch that is interrupted runs again from the same offsets. Where there is
a trigger interval, it waits for the end of the batch. `stop` of Spark waits for a function of
`foreachBatch`, so stops and starts are made by threads of a pool. What ends by itself is the
user's business, and never started again from here.
"""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.errors import InputError, first_line

BOUNDARY_SECONDS_MAX, BOUNDARY_STEP_SECONDS = 5.0, 0.05
# A Python worker may live on for `spark.python.task.killTimeout`, 2 s, after its task was killed.
PYTHON_SECONDS = 2.5
# A batch that takes no longer than this, by what is usual, has no backlog.
USUAL_FACTOR = 2.0
USUAL_WEIGHT = 0.2
# Triggers with which a query cannot be stopped and started at will, and what they are called.
REFUSED_TRIGGERS = {
    "ContinuousTrigger": "continuous",
    "OneTimeTrigger": "once",
    "AvailableNowTrigger": "availableNow",
}
INTERVAL_TRIGGER = "ProcessingTimeTrigger(0)"

Start = Callable[[], Any]


@dataclass(slots=True, eq=False)
class ProtectedQuery:
    """`start` gives a `StreamingQuery`; `query` is the newest that it has given, `ended` why it
    does not run although nobody here has stopped it. `caught_up_at` is when it was last seen
    without a backlog (time.monotonic()), `usual_seconds` how long a batch takes without one."""

    name: str
    start: Start
    query: Any = None
    ended: str | None = None
    is_caught_up: bool = False
    caught_up_at: float = field(default_factory=time.monotonic)
    usual_seconds: float | None = None
    rests_until: float = 0.0
    _is_stopped: bool = False
    _work: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it is being stopped or started."""
        return self._work is not None

    @property
    def is_running(self) -> bool:
        """Whether it runs, as far as was seen."""
        return self.query is not None and not (self._is_stopped or self.ended or self.is_busy)

    @property
    def run_id(self) -> str:
        """The id of its run; the group of its jobs."""
        return str(self.query.runId)

    def begin(self) -> None:
        """Start it for the first time; what its function raises is the caller's."""
        self.query = _checked(self.name, self.start())

    def look(self, active: Mapping[str, Any], now: float) -> None:
        """Take in how it is. `active` (id -> query) are all queries that run in this session.
        Raises an error of Spark with which a stop has failed."""
        if self._work is not None and self._work.done():
            work, self._work = self._work, None
            work.result()  # what a stop of Spark raises
        if self.is_busy or self.query is None:
            return
        if self._is_stopped:
            return
        if not self.query.isActive:
            other = active.get(str(self.query.id))
            self.query, self.ended = (
                (self.query, self.ended or _why(self.query)) if other is None else (other, None)
            )
        if self.ended is None:
            self._note_progress(now)

    def steer(self, *, wanted: bool, pool: Executor, now: float) -> None:
        """Stop it, or start it again, unless it is as it is wanted or has ended by itself."""
        if self.is_busy or self.ended is not None or wanted != self._is_stopped:
            return
        if wanted and now >= self.rests_until:
            self._work = pool.submit(self._start_again)
        elif not wanted:
            self._is_stopped, self.is_caught_up = True, False
            self._work = pool.submit(self._stop)

    def _note_progress(self, now: float) -> None:
        newest = self.query._jsq.lastProgress()
        if newest is None:
            # without new input there is no batch, and so no progress
            self.is_caught_up = str(self.query.status["message"]).startswith("Waiting for")
        else:
            progress = json.loads(newest.json())
            seconds = progress.get("batchDuration", 0) / 1_000.0
            self.is_caught_up = _is_caught_up(progress, seconds, self.usual_seconds)
            if self.is_caught_up and seconds:
                usual = seconds if self.usual_seconds is None else self.usual_seconds
                self.usual_seconds = usual + USUAL_WEIGHT * (seconds - usual)
        if self.is_caught_up:
            self.caught_up_at = now

    def _stop(self) -> None:
        limit = time.monotonic() + (BOUNDARY_SECONDS_MAX if _has_interval(self.query) else 0.0)
        while self.query.status["isTriggerActive"] and time.monotonic() < limit:
            time.sleep(BOUNDARY_STEP_SECONDS)  # Spark has no call that waits for the boundary
        self.query.stop()
        self.rests_until = time.monotonic() + PYTHON_SECONDS

    def _start_again(self) -> None:
        try:
            self.query = _checked(self.name, self.start())
        except Exception as error:  # of a user's function: whatever it raises is why it is not back
            self.ended = f"its start function raises {type(error).__name__}: {first_line(error)}"
        self._is_stopped = False


def _is_caught_up(progress: Mapping[str, Any], seconds: float, usual: float | None) -> bool:
    """Whether a batch has taken all that there was, by the offsets where the source says what is
    newest, else by its time."""
    sources = progress.get("sources") or ()
    if sources and all(one.get("latestOffset") is not None for one in sources):
        return all(one["endOffset"] == one["latestOffset"] for one in sources)
    return usual is None or seconds <= USUAL_FACTOR * usual


def _why(query: Any) -> str:
    """Why a query has ended by itself, or been stopped by somebody else."""
    error = query.exception()
    return "somebody has stopped it" if error is None else f"it has failed: {first_line(error)}"


def _trigger(query: Any) -> str:
    """The trigger as Spark's engine has it, such as `ProcessingTimeTrigger(5000)`."""
    return str(query._jsq.streamingQuery().trigger().toString())


def _has_interval(query: Any) -> bool:
    return _trigger(query) != INTERVAL_TRIGGER


def _checked(name: str, query: Any) -> Any:
    """What a start function has given, if it can be stopped and started; else InputError."""
    where = f"protect: query {name}"
    if not (hasattr(query, "stop") and hasattr(query, "runId")):
        raise InputError(
            where=where,
            what=f"its start function gives {type(query).__name__}, and no StreamingQuery",
            remedy="return what `start()` of the stream gives",
        )
    trigger = _trigger(query)
    for kind, called in REFUSED_TRIGGERS.items():
        if trigger.startswith(kind):
            query.stop()
            raise InputError(
                where=where,
                what=f"has the trigger {called}, and cannot be stopped and started at any time",
                remedy="give it `trigger(processingTime=...)`, or leave it out of `protect`",
            )
    return query
