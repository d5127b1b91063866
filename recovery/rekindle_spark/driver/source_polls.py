"""Asks sources whose future is unknown what has arrived, each in a thread of its own.

The epoch loop takes the newest answer and never waits for a source. One that cannot be reached is
asked again, and so is one that does not answer at all: that counts as away too, but where it says
that it gets on with what takes long. What nobody will
read again is committed by the same thread once an answer is there. That is for others to look at:
where it fails the run goes on. Sources that keep records here forget by it, for good: they are
committed to also while they are away, and only what no kept checkpoint needs. Called by
`driver_main`, `away_sources` and `checkpoint_coordinator`.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from rekindle.model.errors import RekindleError, RunError, SourceAwayError
from rekindle_spark.driver.source_intake import SourceAnswer
from rekindle_spark.pipeline.unbounded_source import (
    RecordKeeping,
    Resuming,
    UnboundedSource,
    WorkReporting,
)
from rekindle_spark.user_code import dead_letter_sieve

AWAY_SECONDS = 1.0
SILENT_SECONDS_MAX = 30.0
JOIN_SECONDS = 2.0


def check(sources: Mapping[str, UnboundedSource], resumed: Collection[str] = ()) -> None:
    """Ask each source once, before anything is started: what is wrong with it, and is not that it
    is away, ends the start. The store has offsets of those that are `resumed`, by step. Raises
    InputError as the source does, RunError for other errors."""
    for step, source in sources.items():
        _, error = dead_letter_sieve.attempt(_ignoring_absence(source, step in resumed))
        if error is not None:
            raise _failure(step, error)


@dataclass(slots=True)
class SourcePolls:
    """Threads that ask `sources`, by step, every `period_seconds`; those that `begin` are asked
    where reading begins first. `now` is the clock of the answers. `commit_errors` say by step
    why the newest commit has failed, `commit_news` are those that nobody has taken yet. `worked`
    has what sources had done that have not answered for long, and when; `work_news` what they are
    at, once for each time."""

    sources: Mapping[str, UnboundedSource]
    period_seconds: float
    begin: frozenset[str]
    now: Callable[[], float]
    answers: dict[str, SourceAnswer] = field(default_factory=dict)
    failure: RunError | None = None
    needless: dict[str, Mapping[str, int]] = field(default_factory=dict)
    commit_errors: dict[str, str] = field(default_factory=dict)
    commit_news: dict[str, str] = field(default_factory=dict)
    worked: dict[str, tuple[int, float]] = field(default_factory=dict)
    work_news: dict[str, str] = field(default_factory=dict)
    started_at: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start the threads."""
        self.started_at = self.now()
        for step in self.sources:
            thread = threading.Thread(
                target=self._ask, args=(step,), name=f"source-{step}", daemon=True
            )
            thread.start()
            self.threads.append(thread)  # `stop` can wait only for what has started

    def stop(self) -> None:
        """End the threads; those that still wait for their sources after a while are left alone."""
        self.ended.set()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def newest(self) -> dict[str, SourceAnswer]:
        """The newest answer of each source. Raises RunError for what a source has failed with."""
        with self.lock:
            if self.failure is not None:
                raise self.failure
            answers, now = dict(self.answers), self.now()
        for step in self.sources:
            answered_at = answers[step].at if step in answers else self.started_at
            silent_seconds = now - max(answered_at, self._worked_at(step, answered_at))
            if silent_seconds > SILENT_SECONDS_MAX:
                text = f"has not answered for {silent_seconds:.0f} s"
                answers[step] = SourceAnswer(now, away=text)
        return answers

    def commit(
        self, offsets: Mapping[str, Mapping[str, int]], settled: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Have sources told, by step, up to where no start from the newest checkpoint reads them
        again; those that keep records, up to where none from any kept checkpoint does, which is
        `settled`."""
        with self.lock:
            for step, source in self.sources.items():
                needless = settled if isinstance(source, RecordKeeping) else offsets
                if step in needless:
                    self.needless[step] = needless[step]

    def take_commit_news(self) -> dict[str, str]:
        """Why commits have failed, by step, where it is not what was taken before."""
        with self.lock:
            news, self.commit_news = self.commit_news, {}
        return news

    def take_work_news(self) -> dict[str, str]:
        """What sources are at, by step, that have not answered for long and get on."""
        news, self.work_news = self.work_news, {}
        return news

    def _worked_at(self, step: str, answered_at: float) -> float:
        """When a source that has not answered for long was last seen to get on."""
        source, now = self.sources[step], self.now()
        if now - answered_at <= SILENT_SECONDS_MAX / 2:
            self.worked.pop(step, None)
            return answered_at
        work = source.work() if isinstance(source, WorkReporting) else None
        done, at = self.worked.get(step, (0, answered_at))
        if work is None or work.done == done:
            return at
        if at == answered_at:
            self.work_news[step] = work.text
        self.worked[step] = (work.done, now)
        return now

    def _ask(self, step: str) -> None:
        """What a thread does."""
        source, initial = self.sources[step], dict[str, int]()
        begins = step in self.begin
        while not self.ended.is_set():
            try:
                if begins:
                    initial = dict(source.initial_offsets())
                    begins = False
                answer = SourceAnswer(self.now(), dict(source.latest_offsets()), initial)
            except SourceAwayError as error:
                answer = SourceAnswer(self.now(), away=error.text)
            except dead_letter_sieve.USERS_ERRORS as error:
                with self.lock:
                    self.failure = _of_a_run(_failure(step, error))
                return
            with self.lock:
                self.answers[step] = answer
            # where files were removed, it may seem away until it knows that they were read
            if not answer.away or isinstance(source, RecordKeeping):
                self._commit(step, source)
            self.ended.wait(AWAY_SECONDS if answer.away else self.period_seconds)

    def _commit(self, step: str, source: UnboundedSource) -> None:
        with self.lock:
            offsets = self.needless.pop(step, None)
        if offsets is None:
            return
        text = ""
        try:
            source.commit(offsets)
        except dead_letter_sieve.USERS_ERRORS as error:
            is_ours = isinstance(error, RekindleError)
            text = str(error) if is_ours else dead_letter_sieve.raised(error)
        with self.lock:
            if text and text != self.commit_errors.get(step):
                self.commit_news[step] = text
            self.commit_errors[step] = text


def _ignoring_absence(source: UnboundedSource, is_resumed: bool) -> Callable[[], None]:
    def ask() -> None:
        try:
            if is_resumed and isinstance(source, Resuming):
                source.resume()
            source.latest_offsets()
        except SourceAwayError:
            return

    return ask


def _of_a_run(error: RekindleError) -> RunError:
    """The same error in the middle of a run, where it is nobody's wrong usage: a topic may be found
    missing once servers that were away at the start are there."""
    if isinstance(error, RunError):
        return error
    failure = RunError(where=error.where, what=error.what, remedy=error.remedy)
    failure.__cause__ = error
    return failure


def _failure(step: str, error: BaseException) -> RekindleError:
    if isinstance(error, RekindleError):
        return error
    return RunError(
        where=f"step {step}",
        what=f"its source {dead_letter_sieve.raised(error)}",
        remedy="mend the source and start again: committed output stays",
    )
