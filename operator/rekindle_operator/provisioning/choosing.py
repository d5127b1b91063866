"""Which provider a slot belongs to, and within which limits.

A class may be changed while its nodes are on their way: what it names no more gets default limits,
and is still cleared away. Called by `settling`, `ending` and `filling`.
"""

from rekindle_operator.providers import Provider, ProviderLimits
from rekindle_operator.provisioning.machine_deployments import MachineDeployments
from rekindle_operator.provisioning.node_claims import NodeClaims
from rekindle_operator.provisioning.notes import Slot
from rekindle_operator.provisioning.provisioning_requests import ProvisioningRequests
from rekindle_operator.provisioning.sources import Scene, Source

__all__ = ["limits", "source"]


def limits(entry: str, scene: Scene) -> ProviderLimits:
    """The limits of an entry."""
    found = _entry(entry, scene)
    return found.limits if found is not None else ProviderLimits()


def source(slot: Slot, scene: Scene) -> Source:
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


def _entry(name: str, scene: Scene) -> Provider | None:
    return next((one for one in scene.demand.limits.providers if one.name == name), None)
