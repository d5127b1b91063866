"""The words of a recovery's course that the core's list of reasons does not have.

The same form as `rekindle.model.reasons`: a word, and what it means in a line. Decides nothing; the
story, `coordination_risks` and `kubernetes_events` use it.
"""

from rekindle.model.reasons import Explained, Reason


class RecoveryReason(Explained):
    """A kebab-case word; `meaning` says it in a line."""

    APPROVAL_AWAITED = "approval-awaited", "a person has to approve the recovery"
    APPROVAL_NOT_NEEDED = "approval-not-needed", "neither policy nor class wants an approval"
    APPROVED = "approved", "somebody has approved the recovery"
    TURN_AWAITED = (
        "turn-awaited",
        "as many recoveries go on as the policy, or its class, lets at once",
    )
    DISPLACED = "displaced", "it made room for an application that matters more"
    ALL_PLACED = "all-placed", "every query is placed"
    CATCHING_UP = "catching-up", "all that was lost is placed, and some of it is behind"
    STILL_BEHIND = (
        "still-behind",
        "its pods run, and its queries have not caught up within half an hour",
    )
    PLAN_REFUSED = "plan-refused", "the driver has not carried out a plan"
    NODES_REQUESTED = "nodes-requested", "nodes were asked for in place of those that are lost"
    NODES_ARRIVED = "nodes-arrived", "a request for nodes has been met"
    REQUEST_FAILED = "request-failed", "a provider cannot give the nodes that it was asked for"
    FRESH_START = "fresh-start", "a driver has started afresh: there is nothing to bring back"
    RUN_FINISHED = "run-finished", "the run has ended in order before the incident was over"
    APPLICATION_GONE = "application-gone", "the application is not there any more"
    POLICY_GONE = "policy-gone", "its policy recovers the application as a whole no more"
    NO_NEW_PODS = "no-new-pods", "no new pod of the application has come for ten minutes"
    CLASS_WITHDRAWN = "class-withdrawn", "the policy has no class any more that it may use"
    STORE_DEGRADED = "store-degraded", "a server of the coordination store does not answer"
    STORE_SINGLE = "store-single", "the coordination store has one server only"
    WEBHOOK_AWAY = "webhook-away", "no replica of the webhook is available"
    GATES_MISSING = "gates-missing", "the webhook is not asked whether pods wait for their turn"
    NO_STANDBY = "no-standby", "nobody would take over from the coordinator"


Word = Reason | RecoveryReason
