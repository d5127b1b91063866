"""Buffering and ordering: on or off, from the policy and the incident alone.

`always` is on; `adaptive` is on from a failure until its incident is over: until the first global
checkpoint at which everything is active and caught up (paper, sections 4.2.1 and 4.2.2). The paper
switches for correlated failures only; here an independent one is recovered by plans as well, and
what one plan leaves waiting needs the outputs made since. Nothing is stored: `state_machine`
compares before and after.

Why: docs/decisions/0024-switches-are-on-in-every-incident.md.
"""

from rekindle.coordination.coordination_state import CoordinationState
from rekindle.coordination.instructions import Instruction, SetBuffering, SetOrdering
from rekindle.model import incidents
from rekindle.model.reasons import Reason
from rekindle.model.settings import ADAPTIVE
from rekindle.model.switch_mode import OFF, ON


def announce(state: CoordinationState, reason: Reason) -> tuple[SetBuffering, SetOrdering]:
    """Both switches as they are, for a driver that has just started."""
    return (
        SetBuffering(_mode(state.policy.buffering, state), reason),
        SetOrdering(_mode(state.policy.ordering, state), reason),
    )


def announce_changes(
    before: CoordinationState, state: CoordinationState
) -> tuple[Instruction, ...]:
    """The switches that are not as before."""
    reason = _reason(before, state)
    old, new = announce(before, reason), announce(state, reason)
    return tuple(switch for switch in new if switch not in old)


def _mode(policy: str, state: CoordinationState) -> str:
    if policy != ADAPTIVE:
        return ON
    return OFF if state.incident is None else ON


def _reason(before: CoordinationState, state: CoordinationState) -> Reason:
    if before.policy != state.policy:
        return Reason.POLICY_CHANGED
    return Reason.RECOVERED if state.incident is None else incidents.reason(state.incident.kind)
