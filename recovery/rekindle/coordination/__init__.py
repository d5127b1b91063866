"""The coordinator core: events in, a new state and instructions out.

    events        what the shells report
    instructions  what the shells carry out
    plans         a recovery plan as a value, printed as a sentence
    state         all that the coordinator knows
    load          what partitions cost and what is free on each node
    drafting      the next plan, or none
    membership    nodes that come, fall silent, are lost
    switches      buffering and ordering, on or off
    transitions   one event in: `advance`

No I/O, no clock, no chance: the same events give the same instructions. The driver (and later the
operator and the local coordinator) are its shells: they gather events and apply instructions.
"""

from rekindle.coordination.events import (
    CheckpointCompleted,
    DriverLost,
    Event,
    NodeBack,
    NodesLost,
    NodeSuspected,
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
    "CheckpointCompleted",
    "DriverLost",
    "DropExecutors",
    "Event",
    "Instruction",
    "NodeBack",
    "NodeSuspected",
    "NodeView",
    "NodesLost",
    "Plan",
    "PlanAcknowledged",
    "PolicyChanged",
    "PublishPlan",
    "QueryCaughtUp",
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
    "describe",
    "initial",
]
