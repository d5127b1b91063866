"""Providers of nodes: Karpenter, Cluster API, ProvisioningRequest, and pending pods.

provider_base          what the kinds of provider have in common
pending_pods           says what is pending and why; asks for nothing
provisioning_requests  a ProvisioningRequest with its PodTemplate per node
node_claims            a Karpenter NodeClaim per node
machine_deployments    a MachineDeployment of Cluster API, scaled up
cluster_api_machines   the machines of a MachineDeployment, and which may be given back
"""
