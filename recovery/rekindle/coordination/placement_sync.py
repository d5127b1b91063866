"""What the driver says is active becomes what the coordinator knows.

A published plan counts as carried out at once, so that the next one builds on it. Once the driver
has carried out all that was published, what it reports is the truth: a partition that it could not
place waits again, and plans that it made by itself, cut off from the store, are taken over as they
run. Called by `state_machine` only.
"""

from dataclasses import replace

from rekindle.coordination.coordination_events import PlacementReported
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    active,
    inactive,
    only_behind,
    with_status,
)
from rekindle.model import topology as graph
from rekindle.model.reasons import Reason

__all__ = ["adopt"]


def adopt(state: CoordinationState, event: PlacementReported, now: float) -> CoordinationState:
    """The state with the driver's placement, unless a newer plan is on its way to it."""
    if state.unacknowledged is not None:
        return state
    if event.moving != state.moving:
        state = replace(state, moving=event.moving)
    if _is_known(state, event):
        return state
    placement, resident = _sound(state, event)
    undone = state.placement.keys() - placement.keys()
    started, incident = active(state), state.incident
    if incident is not None and event.plan_epoch > state.plan_epoch:
        # its first plan, the one that rolls survivors back, has been the driver's own
        incident = replace(incident, plans=max(1, incident.plans))
    state = replace(
        state,
        placement=placement,
        resident=resident,
        stopped=event.stopped,
        plan_epoch=max(state.plan_epoch, event.plan_epoch),
        starting=state.starting and not placement,
        incident=incident,
    )
    behind = {query for query in active(state) if not state.closures[query] <= event.live}
    state = only_behind(state, (state.catching_up & active(state)) | (behind - started))
    due = state.due
    if undone and inactive(state) and not state.starting:
        due = due or Due(now, Reason.PLAN_UNDONE)
    return replace(state, due=due)


def _is_known(state: CoordinationState, event: PlacementReported) -> bool:
    """Whether the report says what is known already, as most do."""
    return (
        event.plan_epoch <= state.plan_epoch
        and event.placement == state.placement
        and event.resident == state.resident
        and event.stopped == state.stopped
    )


def _sound(
    state: CoordinationState, event: PlacementReported
) -> tuple[dict[str, str], dict[str, str]]:
    """Placement and residents on living nodes, of partitions that there are, closed upstream."""
    living = set(with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED))
    known = set(state.partitions)
    kept = {
        name: node for name, node in event.placement.items() if node in living and name in known
    }
    running = graph.runnable(state.topology, kept)
    stopped = {**event.resident, **kept}
    return (
        {name: node for name, node in kept.items() if name in running},
        {
            name: node
            for name, node in stopped.items()
            if name not in running and node in living and name in known
        },
    )
