"""The words of detection that the core's list of reasons does not have.

The same form as `rekindle.model.reasons`: a word, and what it means in a line. Decides nothing;
`detection_events` and `failure_domains` use it.
"""

from rekindle.model.reasons import Explained


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
