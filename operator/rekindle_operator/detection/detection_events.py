"""Findings of detection, one value per event, each with its reason and a sentence.

    (watched) ──suspected──► suspected ──confirmed──► lost, application by application
        ▲                     │    │                    │
        └───────cleared───────┘    └─────departed───────┤
        └─────────────────────returned──────────────────┘

Beside it, for the cluster: held and released. Only values: `node_detector` decides, the operator's
shell turns them into events of applications.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rekindle.model.reasons import Reason
from rekindle_operator.detection.detection_reasons import DetectionReason

Word = Reason | DetectionReason


class DetectionKind(StrEnum):
    """What has become of a node, or of the cluster (held, released).

    A suspicion and its end concern everybody. `confirmed` and `departed` concern one application
    each, or nobody when no application had executors there; `departed` is no failure. `returned`
    goes to those that had lost the node.
    """

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    CLEARED = "cleared"
    HELD = "held"
    RELEASED = "released"
    RETURNED = "returned"
    DEPARTED = "departed"


@dataclass(frozen=True, slots=True)
class DetectionEvent:
    """An event at the moment `at` (seconds, our clock). `node` is None for the whole cluster,
    `application` ("namespace/name") None where it concerns everybody or nobody. `uid` is of the
    Node object meant, None where nobody has seen it."""

    kind: DetectionKind
    reason: Word
    at: float
    text: str
    node: str | None = None
    application: str | None = None
    uid: str | None = None


def lost_nodes(verdicts: Iterable[DetectionEvent], application: str) -> tuple[str, ...]:
    """The nodes that an application has lost by these verdicts: one loss, told at once."""
    return tuple(
        verdict.node
        for verdict in verdicts
        if verdict.kind is DetectionKind.CONFIRMED
        and verdict.application == application
        and verdict.node is not None
    )
