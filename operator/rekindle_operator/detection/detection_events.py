"""Findings of detection, one value per event, each with its reason and a sentence.

    (watched) ──suspected──► suspected ──confirmed──► lost, application by application
        ▲                     │    │                    │
        └───────cleared───────┘    └─────departed───────┤
        └─────────────────────returned──────────────────┘

Beside it, for the cluster: held and released. Only values: `node_detector` decides, the operator's
shell turns them into events of applications.
"""

from dataclasses import dataclass
from enum import StrEnum

from rekindle.model.reasons import Explained, Reason

# The words of detection that the core's list of reasons does not have.
#
# The same form as `rekindle.model.reasons`: a word, and what it means in a line.


class DetectionReason(Explained):
    """A kebab-case word; `meaning` says it in a line."""

    DRIVER_HEARS_NOTHING = (
        "driver-hears-nothing",
        "the lease has stopped, and the driver hears nothing from its executors there",
    )
    NODE_NOT_READY = (
        "node-not-ready",
        "the lease has stopped, the node is not Ready, and there is no driver to ask",
    )
    NODE_DELETED = "node-deleted", "the Node object is gone, and nobody had announced that"
    NODE_REPLACED = "node-replaced", "another machine has taken the node's name"
    DEPARTURE_ANNOUNCED = "departure-announced", "the node has gone as it was announced"
    CLUSTER_ANSWERS = "cluster-answers", "a lease that had stopped changes, or a node is Ready"
    DOMAIN_LOST = "domain-lost", "every node of the failure domain is lost, and there were several"
    DOMAIN_MOSTLY_LOST = "domain-mostly-lost", "more than half of the failure domain is lost"
    DOMAIN_HOLDS = "domain-holds", "at most half of the failure domain, or one node of it, is lost"
    DOMAIN_GIVES_NODES = (
        "domain-gives-nodes",
        "a node has come up in the domain since its last loss",
    )
    NOWHERE_ELSE = "nowhere-else", "all failure domains are hit, so there is none to turn to"


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
