"""How far a recovery is and why, and the conditions that say the same.

    Suspected ──lost──► Recovering ──all placed──► CatchingUp ──► AwaitingCheckpoint ──► Recovered
        │                  ▲   Held, AwaitingApproval, AwaitingDriver: from and to any of these
        └──all heard of──► Abandoned ◄──the run has ended, or a driver has started afresh

The phase follows from how things are now, so it may go back: a query that is lost again makes a
recovery that was catching up wait. Called by `status_builder` only.

Conditions are positive, but for CoordinationAtRisk: like MemoryPressure of a Node it is True when
something is wrong, before anything is lost. So all is well when those four are True and this one is
False.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from rekindle.coordination import announced_losses
from rekindle.coordination.application_status import named
from rekindle.coordination.coordination_state import announced, inactive
from rekindle.coordination.session import Driver
from rekindle.model import incidents
from rekindle.model.incidents import IncidentKind
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle_operator.api.custom_resources import (
    APPROVED,
    CONFIRMED,
    PLANNED,
    RECOVERED,
    ConditionFinding,
)
from rekindle_operator.api.recovery_resource import LOST_NODES_MAX, LostNode, Phase, RecoveryStatus
from rekindle_operator.policies import policy_conditions
from rekindle_operator.recovery import lost_nodes, status_rows
from rekindle_operator.recovery.recovery_inputs import RecoveryInputs, moment
from rekindle_operator.recovery.recovery_reasons import RecoveryReason, Word


@dataclass(frozen=True, slots=True)
class PhaseReason:
    """A phase, with its reason and a sentence."""

    phase: Phase
    word: Word
    text: str


def stage(status: RecoveryStatus, rows: Iterable[LostNode], scene: RecoveryInputs) -> PhaseReason:
    """The phase now. `rows` are the nodes as they are told now."""
    if scene.driver is Driver.FINISHED:
        return PhaseReason("Abandoned", RecoveryReason.RUN_FINISHED, "The run has ended in order.")
    if not scene.begun:
        return _before(rows, scene)
    if scene.open is None:
        return _after(status, scene)
    why = status_rows.held(scene)
    if why is not None:
        return PhaseReason("Held", *why)
    why = status_rows.approval(scene)
    if why is not None and (inactive(scene.state) or announced(scene.state)):
        return PhaseReason("AwaitingApproval", *why)
    why = status_rows.away(scene)
    if why is not None:
        return PhaseReason("AwaitingDriver", *why)
    return _during(scene)


def findings(
    stage: PhaseReason, status: RecoveryStatus, scene: RecoveryInputs
) -> tuple[ConditionFinding, ...]:
    """The conditions of a Recovery; what was confirmed is not said anew once it is over."""
    confirmed = () if scene.begun and scene.open is None else (_confirmed(stage, status, scene),)
    return (
        *confirmed,
        _approved(scene),
        _planned(scene),
        over(stage),
        policy_conditions.at_risk(scene.dangers),
    )


def over(stage: PhaseReason) -> ConditionFinding:
    """Whether it is over, and all is well."""
    return _finding(RECOVERED, stage.phase == "Recovered", stage.word, stage.text)


def _before(rows: Iterable[LostNode], scene: RecoveryInputs) -> PhaseReason:
    """As long as nothing is lost."""
    silent = lost_nodes.suspected(rows)
    if not silent:
        text = "Every node that was silent has been heard of: nothing was lost."
        return PhaseReason("Abandoned", Reason.SUSPICION_CLEARED, text)
    why = status_rows.held(scene)
    if why is not None:
        return PhaseReason("Held", *why)
    return PhaseReason("Suspected", Reason.SUSPECTED_FAILURE, f"Silent: {named(silent)}.")


def _after(status: RecoveryStatus, scene: RecoveryInputs) -> PhaseReason:
    """Once the core has closed it."""
    if scene.state.starting:
        text = "A driver has started afresh, without earlier work: there is nothing to bring back."
        return PhaseReason("Abandoned", RecoveryReason.FRESH_START, text)
    if status.announced_nodes and status.kind is None:
        text = "The nodes that were announced to go stay: nothing was lost."
        return PhaseReason("Abandoned", Reason.NOTICE_WITHDRAWN, text)
    plans = counted(status.plans_total, "plan")
    text = f"All queries{_but(scene)} are back, after {plans}."
    if status.moved_partitions:
        moved = counted(status.moved_partitions, "partition")
        text += f" {moved} had moved before the loss."
    return PhaseReason("Recovered", Reason.RECOVERED, text)


def _during(scene: RecoveryInputs) -> PhaseReason:
    state = scene.state
    found = status_rows.standings(state)
    missing = tuple(item.name for item in found if not item.placed)
    if missing:
        word, text = status_rows.wait_reason(scene)
        of_all = f"{len(missing)} of {len(found)} queries"
        return PhaseReason("Recovering", word, f"Not placed: {of_all}, {named(missing)}. {text}")
    behind = tuple(item.name for item in found if not item.back)
    if behind:
        word, _ = status_rows.behind(scene)
        return PhaseReason("CatchingUp", word, f"All are placed; catching up: {named(behind)}.")
    if announced(state):
        return PhaseReason("Recovering", Reason.LOSS_ANNOUNCED, _announced(scene))
    text = f"All queries{_but(scene)} have caught up; the next global checkpoint ends the incident."
    return PhaseReason("AwaitingCheckpoint", Reason.CHECKPOINT_AWAITED, text)


def _announced(scene: RecoveryInputs) -> str:
    """Which nodes will go, and what of theirs has yet to move."""
    notices = announced(scene.state)
    names = named(tuple(scene.cluster.host(node) or node for node in notices))
    first = moment(min(notice.until for notice in notices.values()))
    left = len(announced_losses.on_announced(scene.state))
    moved = f"{counted(left, 'partition')} left there" if left else "nothing is left there"
    text = f"Announced to go: {names}, the first at {first:%H:%M:%S} UTC; {moved}."
    waits = status_rows.turn(scene)
    return text if waits is None else f"{text} {waits[1]}"


def _but(scene: RecoveryInputs) -> str:
    """In a sentence, after all queries: those that have stopped."""
    names = tuple(item.name for item in status_rows.standings(scene.state) if item.stopped)
    return f" but what has stopped, {named(names)}," if names else ""


def _confirmed(
    stage: PhaseReason, status: RecoveryStatus, scene: RecoveryInputs
) -> ConditionFinding:
    incident = scene.open
    if incident is None:
        return _finding(CONFIRMED, False, stage.word, stage.text)
    rows = status.lost_nodes
    lost = tuple(row.name for row in rows if row.confirmed_at is not None) or incident.lost
    # that many, where the object has no room for all of them
    total = status.lost_nodes_total if len(rows) == LOST_NODES_MAX else len(lost)
    if incident.kind is IncidentKind.ANNOUNCED:
        return _finding(CONFIRMED, False, Reason.LOSS_ANNOUNCED, _announced(scene))
    if not lost:
        text = "A driver has found earlier work, and nothing of it runs yet."
        return _finding(CONFIRMED, True, Reason.RESUMED, text)
    return _finding(
        CONFIRMED, True, incidents.reason(incident.kind), f"Lost: {named(lost, total)}."
    )


def _approved(scene: RecoveryInputs) -> ConditionFinding:
    awaited = status_rows.approval(scene)
    if awaited is not None:
        return _finding(APPROVED, False, *awaited)
    if scene.terms.approval_needed:
        return _finding(APPROVED, True, RecoveryReason.APPROVED, "Somebody has approved it.")
    text = "Neither policy nor class wants an approval."
    return _finding(APPROVED, True, RecoveryReason.APPROVAL_NOT_NEEDED, text)


def _planned(scene: RecoveryInputs) -> ConditionFinding:
    waits = inactive(scene.state) if scene.open is not None else ()
    if waits:
        return _finding(PLANNED, False, *status_rows.wait_reason(scene))
    text = f"Every query{_but(scene)} is placed."
    return _finding(PLANNED, True, RecoveryReason.ALL_PLACED, text)


def _finding(kind: str, holds: bool, word: Word, text: str) -> ConditionFinding:
    # the type of a finding names two lists of words, and these are of a third
    return ConditionFinding(kind, holds, cast(Reason, word), text)
