"""Sources that cannot be reached: their queries wait, the others go on, nothing is planned.

    the driver cannot ask ──► epochs take nothing of the source until it answers (`source_intake`)

    a host cannot read ──hold_back──► held: behind, and so is all that is downstream
                           ▲             │ read again after a rest, in a job of its own
                           └──fails──────┤
                                         └──is read──► let go: it catches up like anything behind

Either way it lasts for the source's `patience_seconds` at most; then the run ends. Called by the
epoch loop, the catch-up loop and `control_loop`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rekindle.model.errors import RunError, SourceAwayError
from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.driver_context import DriverContext, HeldSource
from rekindle_spark.driver.source_intake import Intake
from rekindle_spark.jobs import job_specs
from rekindle_spark.pipeline.chains import Chain

# Between two readings of a source that was away.
RETRY_SECONDS = 2.0


def heed_answers(application: DriverContext) -> None:
    """Take in what sources have said; report those that have gone and come back, and why offsets
    could not be committed.

    Raises RunError for one that has been away for too long, and what a source has failed with.
    """
    if application.polls is None:
        return
    for step, text in application.polls.take_commit_news().items():
        application.events.write("source-commit-failed", source=step, text=text)
    for step, text in application.polls.take_work_news().items():
        application.events.write("source-busy", source=step, text=text)
    intakes, now = application.arrivals.intakes.by_step, driver_clock.now()
    for step, answer in application.polls.newest().items():
        intake = intakes[step]
        was_away = intake.is_away
        intake.heed(answer)
        if intake.is_away and not was_away:
            application.events.write("source-away", source=step, text=answer.away)
        elif was_away and not intake.is_away:
            application.events.write("source-back", source=step)
        if intake.away_since is not None:
            _check_patience(intake, now - intake.away_since, answer.away)


def hold_back(application: DriverContext, faults: Mapping[int, SourceAwayError]) -> None:
    """Hosts could not read these partitions of sources: they, and what is downstream of them, wait.

    Raises RunError for a source that has been away for too long.
    """
    now = driver_clock.now()
    with application.lock:
        chains = {application.program.owner[number].index: one for number, one in faults.items()}
        for index, fault in chains.items():
            chain, text = application.program.chains[index], fault.text
            held = application.held.get(index)
            if held is None:
                application.events.write("source-away", source=chain.source, text=text)
            since = now if held is None else held.since
            unread = frozenset() if held is None else held.unread
            unread |= {number for number in faults if number in chain.partitions}
            application.held[index] = HeldSource(since, now + RETRY_SECONDS, text, unread)
            application.progress.hold_back(
                number for number in chain.partitions if number in application.progress.placed
            )
            intake = application.arrivals.intakes.by_step[chain.source]
            _check_patience(intake, now - since, text)


def note_read(application: DriverContext, counted: Mapping[int, Mapping[str, Any]]) -> None:
    """Partitions have run: let go of sources that all have read again which could not. That others
    have says nothing."""
    for number, outcome in counted.items() if application.held else ():
        chain = application.program.owner[number]
        held = application.held.get(chain.index)
        if held is None or not outcome.get("read"):
            continue
        # one that was stopped will not read again
        if unread := held.unread - {number} - application.progress.stopped.keys():
            application.held[chain.index] = replace(held, unread=unread)
        else:
            _let_go(application, chain)


def let_go_of_finished(application: DriverContext) -> None:
    """Let go of sources that have nothing to read: only what they had given before was asked for
    again."""
    now = driver_clock.now()
    with application.lock:
        for index, held in list(application.held.items()):
            chain, progress = application.program.chains[index], application.progress
            behind = any(
                progress.finished.get(number, 0) < application.newest
                for number in chain.partitions
                if number in progress.placed
            )
            if now >= held.retry_at and not behind:
                _let_go(application, chain)


def is_held(application: DriverContext, partition: int) -> bool:
    """Whether a partition is of a source that hosts could not read."""
    return application.program.owner[partition].index in application.held


def is_due(application: DriverContext, partition: int) -> bool:
    """Whether a partition of such a source may be tried again."""
    held = application.held.get(application.program.owner[partition].index)
    return held is not None and driver_clock.now() >= held.retry_at


def without_held(application: DriverContext, work: job_specs.Ranges) -> dict[int, tuple[int, int]]:
    """Work without what would have such sources read again for it."""
    if application.held:
        again = job_specs.made_again(application.progress, work)
        if any(is_held(application, source) for source in again):
            below = _downstream(application)
            return {number: span for number, span in work.items() if number not in below}
    return dict(work)


def apart(application: DriverContext, work: job_specs.Ranges) -> dict[int, tuple[int, int]]:
    """Of work on sources that may be tried again that of one source: none waits for another."""
    first = next((application.program.owner[number].index for number in work), None)
    owner = application.program.owner
    return {number: span for number, span in work.items() if owner[number].index == first}


def _downstream(application: DriverContext) -> set[int]:
    """All that is downstream of the sources that are held."""
    program = application.program
    found: set[int] = set()
    for number in program.in_order(range(len(program.owner))):
        fed: Iterable[int] = program.upstream(number)
        if is_held(application, number) or any(producer in found for producer in fed):
            found.add(number)
    return found


def _let_go(application: DriverContext, chain: Chain) -> None:
    if application.held.pop(chain.index, None) is not None:
        application.events.write("source-back", source=chain.source)


def _check_patience(intake: Intake, seconds: float, text: str) -> None:
    if seconds > intake.terms.patience_seconds:
        raise RunError(
            where=f"step {intake.step}",
            what=f"its source could not be reached for {seconds:.0f} s ({text})",
            remedy="see that it is there, and start again: committed output stays",
        )
