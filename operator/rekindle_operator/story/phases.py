"""How far a recovery is and why, and the conditions that say the same.

    Suspected ──lost──► Recovering ──all placed──► CatchingUp ──► AwaitingCheckpoint ──► Recovered
        │                  ▲   Held, AwaitingApproval, AwaitingDriver: from and to any of these
        └──all heard of──► Abandoned ◄──the run has ended, or a driver has started afresh

The phase follows from how things are now, so it may go back: a query that is lost again makes a
recovery that was catching up wait. Called by `telling` only.

Conditions are positive, but for CoordinationAtRisk: like MemoryPressure of a Node it is True when
something is wrong, before anything is lost. So all is well when those four are True and this one is
False.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from rekindle import incidents
from rekindle.coordination.application import Driver
from rekindle.coordination.standing import counted, named
from rekindle.coordination.state import inactive
from rekindle.reasons import Reason
from rekindle_operator import acceptance
from rekindle_operator.conditions import APPROVED, CONFIRMED, PLANNED, RECOVERED, Finding
from rekindle_operator.stories import LostNode, Phase, RecoveryStatus
from rekindle_operator.story import nodes, queries, waiting
from rekindle_operator.story.scene import Scene
from rekindle_operator.story.words import Course, Word

__all__ = ["Stage", "findings", "over", "stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A phase, with its reason and a sentence."""

    phase: Phase
    word: Word
    text: str


def stage(status: RecoveryStatus, rows: Iterable[LostNode], scene: Scene) -> Stage:
    """The phase now. `rows` are the nodes as they are told now."""
    if scene.driver is Driver.FINISHED:
        return Stage("Abandoned", Course.RUN_FINISHED, "The run has ended in order.")
    if not scene.begun:
        return _before(rows, scene)
    if scene.open is None:
        return _after(status, scene)
    why = waiting.held(scene)
    if why is not None:
        return Stage("Held", *why)
    why = waiting.approval(scene)
    if why is not None and inactive(scene.state):
        return Stage("AwaitingApproval", *why)
    why = waiting.away(scene)
    if why is not None:
        return Stage("AwaitingDriver", *why)
    return _during(scene)


def findings(stage: Stage, rows: Iterable[LostNode], scene: Scene) -> tuple[Finding, ...]:
    """The conditions of a Recovery; what was confirmed is not said anew once it is over."""
    confirmed = () if scene.begun and scene.open is None else (_confirmed(stage, rows, scene),)
    return (
        *confirmed,
        _approved(scene),
        _planned(scene),
        over(stage),
        acceptance.at_risk(scene.dangers),
    )


def over(stage: Stage) -> Finding:
    """Whether it is over, and all is well."""
    return _finding(RECOVERED, stage.phase == "Recovered", stage.word, stage.text)


def _before(rows: Iterable[LostNode], scene: Scene) -> Stage:
    """As long as nothing is lost."""
    silent = nodes.suspected(rows)
    if not silent:
        text = "Every node that was silent has been heard of: nothing was lost."
        return Stage("Abandoned", Reason.SUSPICION_CLEARED, text)
    why = waiting.held(scene)
    if why is not None:
        return Stage("Held", *why)
    return Stage("Suspected", Reason.SUSPECTED_FAILURE, f"Silent: {named(silent)}.")


def _after(status: RecoveryStatus, scene: Scene) -> Stage:
    """Once the core has closed it."""
    if scene.state.starting:
        text = "A driver has started afresh, without earlier work: there is nothing to bring back."
        return Stage("Abandoned", Course.FRESH_START, text)
    plans = counted(status.plans_total, "plan")
    text = f"All queries{_but(scene)} are back, after {plans}."
    return Stage("Recovered", Reason.RECOVERED, text)


def _during(scene: Scene) -> Stage:
    state = scene.state
    found = queries.standings(state)
    missing = tuple(item.name for item in found if not item.placed)
    if missing:
        word, text = waiting.why(scene)
        of_all = f"{len(missing)} of {len(found)} queries"
        return Stage("Recovering", word, f"Not placed: {of_all}, {named(missing)}. {text}")
    behind = tuple(item.name for item in found if not item.back)
    if behind:
        word, _ = waiting.behind(scene)
        return Stage("CatchingUp", word, f"All are placed; catching up: {named(behind)}.")
    text = f"All queries{_but(scene)} have caught up; the next global checkpoint ends the incident."
    return Stage("AwaitingCheckpoint", Reason.CHECKPOINT_AWAITED, text)


def _but(scene: Scene) -> str:
    """In a sentence, after all queries: those that have stopped."""
    names = tuple(item.name for item in queries.standings(scene.state) if item.stopped)
    return f" but what has stopped, {named(names)}," if names else ""


def _confirmed(stage: Stage, rows: Iterable[LostNode], scene: Scene) -> Finding:
    incident = scene.open
    if incident is None:
        return _finding(CONFIRMED, False, stage.word, stage.text)
    lost = tuple(row.name for row in rows if row.confirmed_at is not None) or incident.lost
    if not lost:
        text = "A driver has found earlier work, and nothing of it runs yet."
        return _finding(CONFIRMED, True, Reason.RESUMED, text)
    return _finding(CONFIRMED, True, incidents.reason(incident.kind), f"Lost: {named(lost)}.")


def _approved(scene: Scene) -> Finding:
    awaited = waiting.approval(scene)
    if awaited is not None:
        return _finding(APPROVED, False, *awaited)
    if scene.terms.approval_needed:
        return _finding(APPROVED, True, Course.APPROVED, "Somebody has approved it.")
    text = "Neither policy nor class wants an approval."
    return _finding(APPROVED, True, Course.APPROVAL_NOT_NEEDED, text)


def _planned(scene: Scene) -> Finding:
    waits = inactive(scene.state) if scene.open is not None else ()
    if waits:
        return _finding(PLANNED, False, *waiting.why(scene))
    text = f"Every query{_but(scene)} is placed."
    return _finding(PLANNED, True, Course.ALL_PLACED, text)


def _finding(kind: str, holds: bool, word: Word, text: str) -> Finding:
    # the type of a finding names two lists of words, and these are of a third
    return Finding(kind, holds, cast(Reason, word), text)
