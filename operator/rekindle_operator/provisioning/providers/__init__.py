"""Providers of nodes: Karpenter, Cluster API and ProvisioningRequest.

provider_base          what the kinds of provider have in common
provisioning_requests  a ProvisioningRequest with its PodTemplate per node
node_claims            a Karpenter NodeClaim per node
machine_deployments    a MachineDeployment of Cluster API, scaled up
cluster_api_machines   the machines of a MachineDeployment, and which may be given back
"""
