"""Computes the plan that would be made now, and the number of nodes that would change it.

Asks the same core on an assumed state and carries out nothing. `application_status` and
`query_explanation` use it to say why something waits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rekindle.coordination.coordination_events import Tick
from rekindle.coordination.coordination_state import (
    CoordinationState,
    Due,
    NodeStatus,
    NodeView,
    inactive,
)
from rekindle.coordination.instructions import PublishPlan, RecordEvent
from rekindle.coordination.recovery_plan import Plan, describe
from rekindle.coordination.state_machine import advance
from rekindle.model.reasons import Reason

NODES_MAX = 256


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """The next plan, or why there is none."""

    plan: Plan | None
    reason: Reason
    text: str


def next_step(
    state: CoordinationState, now: float, *, clock: Callable[[], float]
) -> PlanPreview | None:
    """What planning at `now` would come to; None when nothing waits. The solver's budget is the
    policy's."""
    if not inactive(state):
        return None
    reason = Reason.NODE_BACK if state.due is None else state.due.reason
    assumed = replace(state, due=Due(now, reason), unacknowledged=None)
    found = None
    for instruction in advance(assumed, Tick(), now, clock=clock)[1]:
        if isinstance(instruction, PublishPlan):
            plan = instruction.plan
            return PlanPreview(plan, plan.reason, describe(plan))
        if isinstance(instruction, RecordEvent):
            found = PlanPreview(None, instruction.reason, instruction.text)
    return found


def settled(state: CoordinationState, now: float) -> CoordinationState:
    """The state once all that catches up has caught up, and what waits had no more backlog: one
    plan then has all that several would bring back, one after the other."""
    incident = None if state.incident is None else replace(state.incident, behind_since=now)
    return replace(state, catching_up=frozenset(), charges={}, incident=incident)


def is_next(
    state: CoordinationState, wanted: frozenset[str], now: float, *, clock: Callable[[], float]
) -> bool:
    """Whether a plan made at `now` holds all query partitions `wanted`."""
    step = next_step(state, now, clock=clock)
    return step is not None and step.plan is not None and wanted <= set(step.plan.query_partitions)


def more_nodes(
    state: CoordinationState, wanted: frozenset[str], now: float, *, clock: Callable[[], float]
) -> int | None:
    """The least number of nodes, each as large as the largest known and empty, with which the next
    plan holds the query partitions `wanted`; None when up to 256 do not help."""
    capacity = max((view.capacity_percent for view in state.nodes.values()), default=0.0)
    if not capacity:
        return None

    def helps(count: int) -> bool:
        added = {f"+{index}": NodeView(NodeStatus.UP, capacity) for index in range(count)}
        assumed = replace(state, nodes={**state.nodes, **added})
        return is_next(assumed, wanted, now, clock=clock)

    enough = 0
    while not helps(enough):
        if enough >= NODES_MAX:
            return None
        enough = max(1, 2 * enough)
    short = enough // 2 if enough > 1 else enough - 1
    while enough - short > 1:
        middle = (enough + short) // 2
        short, enough = (short, middle) if helps(middle) else (middle, enough)
    return enough
