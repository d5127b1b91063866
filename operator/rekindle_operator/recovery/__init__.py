"""The status of a Recovery: the core's decisions and observations as rows, phases and events.

kubernetes_events  Kubernetes Events, from what has changed between two statuses
recovery_writer    Recovery objects and events
event_writer       announcements as Events
recovery_inputs    what is known of an application at a moment
lost_nodes         which nodes were lost, suspected, and came back; and the driver
status_rows        rows of plans and queries, and why what waits does so
recovery_phases    how far it is, why, and the conditions that say so
recovery_reasons   the words that the core's list of reasons does not have
status_builder     all of it as the next status: `tell`
"""

from rekindle_operator.recovery.lost_nodes import settled, sighted
from rekindle_operator.recovery.recovery_inputs import (
    ClusterFacts,
    Fenced,
    NodeObservation,
    RecoveryInputs,
    RecoveryTerms,
    lost_hosts,
)
from rekindle_operator.recovery.recovery_reasons import RecoveryReason
from rekindle_operator.recovery.status_builder import abandon, subject, tell

__all__ = [
    "ClusterFacts",
    "Fenced",
    "NodeObservation",
    "RecoveryInputs",
    "RecoveryReason",
    "RecoveryTerms",
    "abandon",
    "lost_hosts",
    "settled",
    "sighted",
    "subject",
    "tell",
]
