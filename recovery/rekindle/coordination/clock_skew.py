"""Moments in a state after the clock has been set back.

A coordinator may be started again where the clock is behind, or its own clock may be corrected.
A planning that is due would then wait for hours. So all moments move back with the clock; a clock
that is set forward only makes waiting shorter. Called by `state_machine` only.
"""

from dataclasses import replace

from rekindle.coordination.coordination_state import CoordinationState

__all__ = ["rebased"]


def rebased(state: CoordinationState, now: float) -> CoordinationState:
    """The state with no moment later than `now`, differences between them as they were."""
    if state.seen_at is None or now >= state.seen_at:
        return state
    back = state.seen_at - now
    incident, checkpoint = state.incident, state.last_checkpoint_at
    uneven, surveyed = state.uneven_since, state.surveyed_at
    return replace(
        state,
        nodes={
            name: view if view.lost_at is None else replace(view, lost_at=view.lost_at - back)
            for name, view in state.nodes.items()
        },
        incident=None
        if incident is None
        else replace(
            incident,
            began_at=incident.began_at - back,
            newest_loss_at=incident.newest_loss_at - back,
            behind_since=incident.behind_since - back,
        ),
        losses=tuple(replace(loss, at=loss.at - back) for loss in state.losses),
        last_checkpoint_at=None if checkpoint is None else checkpoint - back,
        uneven_since=None if uneven is None else uneven - back,
        surveyed_at=None if surveyed is None else surveyed - back,
        due=None if state.due is None else replace(state.due, at=state.due.at - back),
    )
