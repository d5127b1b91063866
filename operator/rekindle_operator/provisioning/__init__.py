"""Replacement nodes: from what the core asks for to objects of whoever has the machines.

    demand, standing ──► deciding ──► a note of what is going to be asked for, then the requests

Before anything is made, a *note* (a ConfigMap of ours, one per incident) names it; its name follows
from the note. So an operator that is killed at any step, or two at once, ask for nothing twice. All
of it is pure: a shell reads the objects, and carries out the actions in their order.

    demand                  what is wanted: incidents, requests, limits
    standing                what is there: objects, nodes, which of them are idle
    deciding                both into actions, and into what a Recovery says of its requests
    filling                 slots for what is wanted and not covered yet, within all limits
    settling                what has become of each slot
    ending                  slots that nobody wants any more, and nodes that are given back
    rows                    what a Recovery says of its requests
    notes                   the note, its slots and steps, and the ConfigMap that holds it
    remains                 incidents of which something is left in the cluster
    naming                  names and labels of what we make
    actions                 what a shell is to do
    sources                 what the kinds of provider have in common
    choosing                which provider a slot belongs to, and within which limits
    pending_pods            says what is pending and why; asks for nothing
    provisioning_requests   a ProvisioningRequest with its PodTemplate per node
    node_claims             a Karpenter NodeClaim per node
    machine_deployments     a MachineDeployment of Cluster API, scaled up
    machines                the machines of a MachineDeployment, and which may be given back
    executors               the size and the needs of an executor, from a pod
    bodies                  reading objects as they come from the API

`decide` is the entrance; narrowing.py says what a policy may have, providers.py what a class says.
"""

from rekindle_operator.provisioning.actions import Action, Create, Delete, Mark, Replace, Scale
from rekindle_operator.provisioning.deciding import Decision, decide
from rekindle_operator.provisioning.demand import Demand, Incident, Limits, limits_of
from rekindle_operator.provisioning.executors import Executor, executor_of
from rekindle_operator.provisioning.notes import Note
from rekindle_operator.provisioning.remains import remains
from rekindle_operator.provisioning.standing import NodeNow, Standing

__all__ = [
    "Action",
    "Create",
    "Decision",
    "Delete",
    "Demand",
    "Executor",
    "Incident",
    "Limits",
    "Mark",
    "NodeNow",
    "Note",
    "Replace",
    "Scale",
    "Standing",
    "decide",
    "executor_of",
    "limits_of",
    "remains",
]
