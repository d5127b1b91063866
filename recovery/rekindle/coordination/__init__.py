"""The coordinator core: events in, a new state and instructions out.

    coordination_events   events from the shells
    instructions          instructions to the shells
    coordination_state    all that the coordinator knows
    node_load             costs of partitions, and free CPU of each node
    next_plan             the next plan, or none
    domain_placement      a placement of which a lost failure domain stops least
    rebalancing           partitions that run and should run elsewhere
    announced_losses      nodes that are announced to go, and what moves off them before
    node_membership       nodes that come, fall silent, are lost
    report_diff           a driver's report into events
    directives            instructions as numbered orders to a driver
    session               a reading of an application in, directives out: `decide`
    directive_acceptance  the driver's side: which orders it takes, when it plans by itself
    application_status    the status of an application, with problems in words
    query_explanation     why a query is not back yet, and how it would come back
    incident_history      the incidents that a process has seen, open and past
    buffering_mode        buffering and ordering, on or off
    state_machine         one event in: `advance`

No I/O, no clock, no chance: the same events give the same instructions. The driver (and later the
operator and the local coordinator) are its shells: they gather events and apply instructions.
"""

from rekindle.coordination.coordination_state import (
    CoordinationState,
    NodeStatus,
    NodeView,
    initial,
)
from rekindle.coordination.session import ApplicationReading, Case, Decision, Driver, decide
from rekindle.coordination.state_machine import advance

__all__ = [
    "ApplicationReading",
    "Case",
    "CoordinationState",
    "Decision",
    "Driver",
    "NodeStatus",
    "NodeView",
    "advance",
    "decide",
    "initial",
]
