"""Replacement nodes: turns the core's requests into objects of node providers.

    demand, standing ──► deciding ──► a note of what is going to be asked for, then the requests

Before anything is made, a *note* (a ConfigMap of ours, one per incident) names it; its name follows
from the note. So an operator that is killed at any step, or two at once, ask for nothing twice. All
of it is pure: a shell reads the objects, and carries out the actions in their order.

    node_demand           the demand: incidents, requests, limits
    cluster_state         the present state: objects, nodes, idle nodes
    provisioning_planner  both into actions, and into rows of a Recovery
    request_ledger        the note, its slots and steps, and the ConfigMap that holds it
    provisioning_actions  actions for the shell
    node_slots            providers, limits and progress of slots, and new slots

`decide` is the entrance; effective_policy.py says what a policy may have, node_providers.py what a
class says.

    node_provisioner      replacement nodes
    providers             one module for each kind of provider
"""

from rekindle_operator.provisioning.cluster_state import ClusterState, NodeNow
from rekindle_operator.provisioning.node_demand import (
    ExecutorShape,
    NodeDemand,
    NodeIncident,
    NodeLimits,
    executor_of,
    limits_of,
)
from rekindle_operator.provisioning.provisioning_actions import (
    Action,
    Create,
    Delete,
    Mark,
    Replace,
    SetReplicas,
)
from rekindle_operator.provisioning.provisioning_planner import (
    ProvisioningDecision,
    decide,
    remains,
)

__all__ = [
    "Action",
    "ClusterState",
    "Create",
    "Delete",
    "ExecutorShape",
    "Mark",
    "NodeDemand",
    "NodeIncident",
    "NodeLimits",
    "NodeNow",
    "ProvisioningDecision",
    "Replace",
    "SetReplicas",
    "decide",
    "executor_of",
    "limits_of",
    "remains",
]
