"""The coordinator core: events in, a new state and instructions out.

    events            what the shells report
    instructions      what the shells carry out
    plans             a recovery plan as a value, printed as a sentence
    state             all that the coordinator knows
    load              what partitions cost and what is free on each node
    drafting          the next plan, or none
    survival          a placement of which a lost failure domain stops least
    balancing         partitions that run and should run elsewhere
    membership        nodes that come, fall silent, are lost
    moments           after the clock has been set back
    adoption          what the driver says is active becomes what the coordinator knows
    observation       a driver's report into events
    recollection      what must not be forgotten when the coordinator dies
    directives        instructions as numbered orders to a driver
    application       what was read of an application in, orders out: `decide`
    following         the driver's side: which orders it takes, when it plans by itself
    standing          how an application stands, with what is wrong in words
    explanation       why a query is not back yet, and what would bring it
    prospect          what the coordinator would do if it planned now
    incident_history  the incidents that a process has seen, open and past
    switches          buffering and ordering, on or off
    transitions       one event in: `advance`

No I/O, no clock, no chance: the same events give the same instructions. The driver (and later the
operator and the local coordinator) are its shells: they gather events and apply instructions.
"""

from rekindle.coordination.application import Case, Decision, Driver, Reading, decide
from rekindle.coordination.events import (
    CheckpointCompleted,
    DriverLost,
    Event,
    NodeBack,
    NodePaced,
    NodesLocated,
    NodesLost,
    NodeSuspected,
    PlacementReported,
    PlanAcknowledged,
    PolicyChanged,
    QueryCaughtUp,
    Started,
    StatisticsReported,
    StoreReachable,
    StoreUnreachable,
    Tick,
)
from rekindle.coordination.instructions import (
    DropExecutors,
    Instruction,
    MovePartitions,
    PublishPlan,
    Record,
    RequestNodes,
    RestartDriver,
    SetBuffering,
    SetOrdering,
)
from rekindle.coordination.plans import Plan, describe
from rekindle.coordination.state import NodeView, State, Status, initial
from rekindle.coordination.transitions import advance

__all__ = [
    "Case",
    "CheckpointCompleted",
    "Decision",
    "Driver",
    "DriverLost",
    "DropExecutors",
    "Event",
    "Instruction",
    "MovePartitions",
    "NodeBack",
    "NodePaced",
    "NodeSuspected",
    "NodeView",
    "NodesLocated",
    "NodesLost",
    "PlacementReported",
    "Plan",
    "PlanAcknowledged",
    "PolicyChanged",
    "PublishPlan",
    "QueryCaughtUp",
    "Reading",
    "Record",
    "RequestNodes",
    "RestartDriver",
    "SetBuffering",
    "SetOrdering",
    "Started",
    "State",
    "StatisticsReported",
    "Status",
    "StoreReachable",
    "StoreUnreachable",
    "Tick",
    "advance",
    "decide",
    "describe",
    "initial",
]
