"""The protocol of driver, sidecar and coordinator: messages, versions, places in the store.

    messages           reports, directives, acknowledgements, and the records of the coordinator
    msgspec_warmup     msgspec's inspection of types, done before there are threads
    store_paths        where each record lies in the coordination store, and how large ones are
                       split

Pure; docs/protocol.md is this package in prose. Sidecar, runtime and coordinator import it.
"""

from rekindle.protocol.messages import (
    MESSAGE_BYTES_MAX,
    PROTECTED_QUERIES,
    VERSION,
    VERSION_OLDEST,
    Acknowledgement,
    BufferingOrder,
    CheckpointReport,
    Directive,
    DropOrder,
    Handshake,
    HandshakeAnswer,
    Heartbeat,
    LagGoalsOrder,
    MoveOrder,
    NodeSeen,
    OrderingOrder,
    Orders,
    PauseOrder,
    PlanOrder,
    PriorityOverride,
    ProgressReport,
    Report,
    ResumeOrder,
    SourceSeen,
    StatisticsReport,
    TopologyReport,
    agree,
    decode,
    encode,
    schema,
)

__all__ = [
    "MESSAGE_BYTES_MAX",
    "PROTECTED_QUERIES",
    "VERSION",
    "VERSION_OLDEST",
    "Acknowledgement",
    "BufferingOrder",
    "CheckpointReport",
    "Directive",
    "DropOrder",
    "Handshake",
    "HandshakeAnswer",
    "Heartbeat",
    "LagGoalsOrder",
    "MoveOrder",
    "NodeSeen",
    "OrderingOrder",
    "Orders",
    "PauseOrder",
    "PlanOrder",
    "PriorityOverride",
    "ProgressReport",
    "Report",
    "ResumeOrder",
    "SourceSeen",
    "StatisticsReport",
    "TopologyReport",
    "agree",
    "decode",
    "encode",
    "schema",
]
