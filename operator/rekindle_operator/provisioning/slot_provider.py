"""Which provider a slot belongs to, and within which limits.

A class may be changed while its nodes are on their way: what it names no more gets default limits,
and is still cleared away. Called by `slot_progress`, `provisioning_planner` and `slot_filling`.
"""

from rekindle_operator.api.node_providers import Provider, ProviderLimits
from rekindle_operator.provisioning.providers.machine_deployments import MachineDeployments
from rekindle_operator.provisioning.providers.node_claims import NodeClaims
from rekindle_operator.provisioning.providers.provider_base import ProviderInput, ProviderKind
from rekindle_operator.provisioning.providers.provisioning_requests import ProvisioningRequests
from rekindle_operator.provisioning.request_ledger import Slot


def limits(entry: str, scene: ProviderInput) -> ProviderLimits:
    """The limits of an entry."""
    found = _entry(entry, scene)
    return found.limits if found is not None else ProviderLimits()


def source(slot: Slot, scene: ProviderInput) -> ProviderKind:
    """The provider that fulfils a slot."""
    entry = _entry(slot.entry, scene)
    if entry is not None and entry.provider != slot.provider:
        entry = None  # another one goes by that name now
    if slot.provider == "Karpenter":
        return NodeClaims(entry.karpenter if entry else None)
    if slot.provider == "ClusterAPI":
        return MachineDeployments(entry.cluster_api if entry else None)
    assert slot.provider == "ProvisioningRequest", f"no provider makes {slot.provider}"
    return ProvisioningRequests(entry.provisioning_request if entry else None)


def _entry(name: str, scene: ProviderInput) -> Provider | None:
    return next((one for one in scene.demand.limits.providers if one.name == name), None)
