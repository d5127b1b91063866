"""The one reason why an application's queries wait for a plan, with a sentence.

The first that holds, what a person can do about it before what time will do. Looks at the state
alone and plans nothing, so it costs little and says the same to whoever asks. `query_rows` and
`recovery_phases` call it.
"""

from typing import Final

from rekindle.coordination import next_plan
from rekindle.coordination.application_status import counted, named
from rekindle.coordination.coordination_state import NodeStatus, with_status
from rekindle.coordination.session import Driver
from rekindle.model.incidents import IncidentKind
from rekindle.model.reasons import Reason
from rekindle.model.settings import BLOCKING
from rekindle_operator.recovery.recovery_inputs import RecoveryInputs
from rekindle_operator.recovery.recovery_reasons import RecoveryReason, Word

Said = tuple[Word, str]

SETTLING: Final = "Nodes have come: the next plan is made once arrivals have settled."


def why(scene: RecoveryInputs) -> Said:
    """Why a query that is not placed waits."""
    return held(scene) or approval(scene) or away(scene) or turn(scene) or _plan(scene)


def behind(scene: RecoveryInputs) -> Said:
    """Why a query that is placed is not back."""
    plan = scene.state.unacknowledged
    if plan is None:
        return away(scene) or (RecoveryReason.CATCHING_UP, "It is placed, and catches up.")
    return away(scene) or (Reason.PLAN_AWAITED, f"Plan {plan} is on its way to the driver.")


def held(scene: RecoveryInputs) -> Said | None:
    """Why nothing is done at all, None where something is."""
    if scene.state.holding or scene.cluster.held:
        text = "Every node looks lost, so it may be us: nothing is done until one is heard of."
        return Reason.ALL_NODES_LOST, text
    if scene.terms.paused:
        return Reason.PAUSED, "Paused by policy or class: nothing is planned or requested."
    if scene.view.reading.orders.paused:
        return Reason.PAUSED, "Paused by order: no epochs, no plans."
    return None


def approval(scene: RecoveryInputs) -> Said | None:
    """The approval that is awaited, None where none is."""
    if not scene.terms.approval_needed or scene.terms.approved:
        return None
    text = "Somebody has to approve: nothing is planned until spec.approved is true."
    return RecoveryReason.APPROVAL_AWAITED, text


def away(scene: RecoveryInputs) -> Said | None:
    """What is wrong with the driver, None where it is there."""
    if scene.driver is Driver.GONE:
        return Reason.DRIVER_LOST, "The driver is gone: what was lost waits for the next one."
    if scene.driver is Driver.SILENT:
        return (
            Reason.DRIVER_SILENT,
            "The driver is silent: nothing is planned meanwhile.",
        )
    return None


def turn(scene: RecoveryInputs) -> Said | None:
    """The limit that is reached and the recoveries that fill it, None where it may go on."""
    limit = scene.terms.limit
    if limit is None:
        return None
    number = limit.recoveries_max
    going = "1 recovery" if number == 1 else f"{number} recoveries"
    text = (
        f"Waits for {named(limit.holders)}: {limit.owner} lets {going} go on at once "
        "(concurrentRecoveriesMax)."
    )
    return RecoveryReason.TURN_AWAITED, text


def _plan(scene: RecoveryInputs) -> Said:
    """What the next plan waits for."""
    state = scene.state
    up, wanted = len(with_status(state, NodeStatus.UP)), next_plan.nodes_wanted(state)
    nodes = f"{up} of {counted(wanted, 'node')} {'is' if up == 1 else 'are'} up"
    if not up:
        return Reason.WAITING_FOR_NODES, "No node is up."
    if state.unacknowledged is not None:
        text = f"Plan {state.unacknowledged} is on its way; the next one comes after it."
        return Reason.PLAN_AWAITED, text
    if state.due is not None:
        settling = state.due.reason is Reason.NODE_BACK
        return state.due.reason, SETTLING if settling else "The next plan is being made."
    incident = state.incident
    blocking = state.policy.strategy == BLOCKING
    if (
        up < wanted
        and blocking
        and incident is not None
        and incident.kind not in (IncidentKind.INDEPENDENT, IncidentKind.ANNOUNCED)
    ):
        return Reason.WAITING_FOR_NODES, f"{nodes}, and the strategy is blocking."
    if state.catching_up:
        return Reason.NO_CAPACITY, f"No room yet: {nodes}, and what was placed catches up."
    return Reason.NO_CAPACITY, f"No room: {nodes}."
