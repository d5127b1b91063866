"""Where replacement nodes come from, as a class says it: one value per entry of `provisioning`.

Requests nothing itself. `recovery_class` reads these, `effective_policy` lowers their limits, and
whoever makes NodeClaims and the like takes from them what a node must be like.
"""

from typing import Annotated, Literal

import msgspec

from rekindle_operator.api.custom_resources import Label, Name, Value
from rekindle_operator.api.recovery_policy import LabelKey, Labels, ProviderName

NodeCount = Annotated[int, msgspec.Meta(ge=1, le=5_000)]
Namespace = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class ProvisioningRequest(Value, frozen=True):
    """How requests to the cluster autoscaler are made: `executors_per_node` fill a node."""

    class_name: Name
    parameters: Annotated[
        dict[str, Annotated[str, msgspec.Meta(max_length=255)]], msgspec.Meta(max_length=100)
    ] = msgspec.field(default_factory=dict)
    executors_per_node: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


class NodeClassReference(Value, frozen=True):
    """The node class of the cloud's Karpenter provider."""

    group: Name
    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    name: Name


class NodeRequirement(Value, frozen=True):
    """A requirement on one label of a node."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
    values: Annotated[tuple[Label, ...], msgspec.Meta(max_length=50)] = ()
    min_values: Annotated[int, msgspec.Meta(ge=1, le=50)] | None = None


class Taint(Value, frozen=True):
    """A taint of a node."""

    key: LabelKey
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: Label | None = None


Taints = Annotated[tuple[Taint, ...], msgspec.Meta(max_length=20)]


class Karpenter(Value, frozen=True):
    """How NodeClaims are made; that they are outside of impaired domains comes on top."""

    node_class_ref: NodeClassReference
    requirements: Annotated[tuple[NodeRequirement, ...], msgspec.Meta(min_length=1, max_length=50)]
    labels: Labels = msgspec.field(default_factory=dict)
    taints: Taints = ()
    startup_taints: Taints = ()
    expire_after: Annotated[str, msgspec.Meta(min_length=1, max_length=32)] = "720h"


class MachineDeployment(Value, frozen=True):
    """May be scaled up to `replicas_max`, unless its failure domain is impaired."""

    namespace: Namespace
    name: Name
    replicas_max: NodeCount
    domain: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] | None = None


class KubeconfigSecret(Value, frozen=True):
    """Where the kubeconfig of the management cluster is."""

    namespace: Namespace
    name: Name
    key: Name = "kubeconfig"


class ClusterApi(Value, frozen=True):
    """What is scaled, in this order; in this cluster unless a kubeconfig is given."""

    machine_deployments: Annotated[
        tuple[MachineDeployment, ...], msgspec.Meta(min_length=1, max_length=20)
    ]
    kubeconfig_secret_ref: KubeconfigSecret | None = None


class ProviderLimits(Value, frozen=True):
    """Bounds of one provider; a failed request waits `back_off_seconds`, doubled each time."""

    nodes_per_request_max: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    nodes_per_incident_max: NodeCount = 50
    nodes_at_once_max: NodeCount = 20
    back_off_seconds: Annotated[int, msgspec.Meta(ge=1, le=3_600)] = 30
    back_off_seconds_max: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 600
    request_seconds_max: Annotated[int, msgspec.Meta(ge=10, le=86_400)] = 900


class Provider(Value, frozen=True):
    """An entry of `provisioning`; exactly what belongs to `provider` is there.

    PendingPods requests nothing itself, so limits mean nothing to it.
    """

    name: ProviderName
    provider: Literal["PendingPods", "ProvisioningRequest", "Karpenter", "ClusterAPI"]
    provisioning_request: ProvisioningRequest | None = None
    karpenter: Karpenter | None = None
    cluster_api: ClusterApi | None = msgspec.field(default=None, name="clusterAPI")
    limits: ProviderLimits = ProviderLimits()
