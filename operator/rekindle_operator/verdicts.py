"""What detection finds, one value per event, each with its reason and a sentence.

    (watched) ──suspected──► suspected ──confirmed──► lost, application by application
        ▲                     │    │                    │
        └───────cleared───────┘    └─────departed───────┤
        └─────────────────────returned──────────────────┘

Beside it, for the cluster: held and released. Only values: `detection` decides, the operator's
shell turns them into events of applications.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rekindle.reasons import Reason
from rekindle_operator.grounds import Grounds

__all__ = ["Kind", "Verdict", "Word", "lost_nodes"]

Word = Reason | Grounds


class Kind(StrEnum):
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
class Verdict:
    """An event at the moment `at` (seconds, our clock). `node` is None for the whole cluster,
    `application` ("namespace/name") None where it concerns everybody or nobody. `uid` is of the
    Node object meant, None where nobody has seen it."""

    kind: Kind
    reason: Word
    at: float
    text: str
    node: str | None = None
    application: str | None = None
    uid: str | None = None


def lost_nodes(verdicts: Iterable[Verdict], application: str) -> tuple[str, ...]:
    """The nodes that an application has lost by these verdicts: one loss, told at once."""
    return tuple(
        verdict.node
        for verdict in verdicts
        if verdict.kind is Kind.CONFIRMED
        and verdict.application == application
        and verdict.node is not None
    )
