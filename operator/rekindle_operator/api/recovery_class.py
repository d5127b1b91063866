"""RecoveryClass as values: the limits of policies.

The fields, their defaults and limits are those of crds/recoveryclasses.yaml, which the API server
holds; a test compares the two. `effective_policy` takes a policy and its class together.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.api import quantities
from rekindle_operator.api.custom_resources import (
    Condition,
    Count,
    Name,
    Resource,
    Seconds,
    Value,
    clipped,
    read,
    written,
)
from rekindle_operator.api.node_providers import Provider
from rekindle_operator.api.recovery_policy import Approval, NodeCount, Percent

PROVIDERS_LENGTH_MAX = 200
# The Secret that the operator makes in each namespace, for classes whose drivers are to have it.
CREDENTIAL_SECRET, CREDENTIAL_KEY = "rekindle-credential", "secret"
# In it, the authorities of the certificates of the store's servers.
AUTHORITY_KEY = "ca.crt"

Certainty = Literal[
    "ShutdownTaint", "NodeClaimGone", "MachineGone", "SelfNodeRemediation", "Approval"
]
Displacement = Literal["Never", "LessImportant"]
Effect = Literal["None", "PreferNoSchedule", "NoSchedule"]
Quantity = Annotated[str, msgspec.Meta(max_length=32)] | int
Address = Annotated[str, msgspec.Meta(min_length=3, max_length=259)]


class Fencing(Value, frozen=True):
    """What may be done with a driver's lost node, and what counts as certain that it is off."""

    mode: Literal["None", "OutOfServiceTaint", "DeleteNode"] = "None"
    certainty: Annotated[tuple[Certainty, ...], msgspec.Meta(max_length=5)] = ()


class Executors(Value, frozen=True):
    """What may be done with executors."""

    delete_pods_of_lost_nodes: bool = True
    avoid_impaired_domains: bool = True


class Taints(Value, frozen=True):
    """Effects of our taints on nodes; "None" sets none."""

    suspected_nodes: Effect = "None"
    impaired_domains: Effect = "None"


class NodeDeletion(Value, frozen=True):
    """Whether, and how long after the confirmed loss, Node objects are deleted."""

    enabled: bool = False
    after_seconds: Seconds = 60
    nodes_per_incident_max: Annotated[int, msgspec.Meta(ge=1, le=5_000)] = 100


class ClassLimits(Value, frozen=True):
    """Bounds over all providers, and over what policies may ask for."""

    nodes_per_incident_max: NodeCount = 100
    nodes_at_once_max: NodeCount = 50
    concurrent_recoveries_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    node_cpu_cap_percent_max: Percent = 100
    solver_budget_seconds_max: Annotated[int, msgspec.Meta(ge=1, le=60)] = 5
    recoveries_kept_max: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 20


class Requests(Value, frozen=True):
    """What the sidecar asks for."""

    cpu: Quantity = "20m"
    memory: Quantity = "64Mi"


class Bounds(Value, frozen=True):
    """What the sidecar may use."""

    cpu: Quantity | None = None
    memory: Quantity = "192Mi"


class Resources(Value, frozen=True):
    """Of the sidecar's container."""

    requests: Requests = Requests()
    limits: Bounds = Bounds()


class SecretReference(Value, frozen=True):
    """A key of a Secret in the driver's namespace. The secret itself is never read here."""

    name: Name
    key: Name = "secret"


class AuthorityReference(Value, frozen=True):
    """A key of a Secret in the driver's namespace: authorities of the servers' certificates."""

    name: Name
    key: Name = AUTHORITY_KEY


class StoreSpec(Value, frozen=True):
    """HOST:PORT of each server of the coordination store, where its password is, and whose
    certificates its servers have; without authorities there is no TLS."""

    addresses: Annotated[tuple[Address, ...], msgspec.Meta(min_length=1, max_length=9)]
    secret_ref: SecretReference | None = None
    ca_secret_ref: AuthorityReference | None = None


class SidecarSpec(Value, frozen=True):
    """The sidecar that drivers get; None is as the operator was started with."""

    image: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)] | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    session_seconds: Annotated[int, msgspec.Meta(ge=2, le=60)] = 10
    resources: Resources = Resources()
    store: StoreSpec | None = None


NoticeDeadline = Annotated[int, msgspec.Meta(ge=0, le=86_400)]


class NoticeSeconds(Value, frozen=True):
    """How long a node is still there once its notice is first seen, by what says so, where that
    does not say it itself."""

    shutdown: NoticeDeadline = 30
    aws: NoticeDeadline = 120
    gke: NoticeDeadline = 30
    aks: NoticeDeadline = 30
    karpenter: NoticeDeadline = 120
    cluster_autoscaler: NoticeDeadline = 600
    drain: NoticeDeadline = 30

    @property
    def by_source(self) -> dict[str, float]:
        """Source -> seconds, as detection calls the sources."""
        return {name: float(value) for name, value in msgspec.to_builtins(self).items()}


class Detection(Value, frozen=True):
    """Suspected after so many intervals of so many seconds without a change of the lease."""

    lease_intervals: Annotated[int, msgspec.Meta(ge=2, le=30)] = 2
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=300)] = 10
    driver_silence_seconds: Annotated[int, msgspec.Meta(ge=1, le=600)] = 15
    notice_seconds: NoticeSeconds = NoticeSeconds()


class ClassSpec(Value, frozen=True):
    """What is allowed. `displacement`: whether whole applications that run make room in an incident
    for one that matters more."""

    paused: bool = False
    dry_run: bool = False
    allowed_namespaces: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], ...],
        msgspec.Meta(max_length=500),
    ] = ("*",)
    approval: Approval = "Automatic"
    provisioning: Annotated[tuple[Provider, ...], msgspec.Meta(min_length=1, max_length=10)] = (
        Provider(name="pending-pods", provider="PendingPods"),
    )
    fencing: Fencing = Fencing()
    executors: Executors = Executors()
    displacement: Displacement = "Never"
    taints: Taints = Taints()
    node_deletion: NodeDeletion = NodeDeletion()
    limits: ClassLimits = ClassLimits()
    sidecar: SidecarSpec | None = None
    detection: Detection = Detection()

    def allows(self, namespace: str) -> bool:
        """Whether policies of a namespace may use the class."""
        return any(
            namespace == allowed or (allowed[-1] == "*" and namespace.startswith(allowed[:-1]))
            for allowed in self.allowed_namespaces
        )

    @property
    def has_store_secret(self) -> bool:
        """Whether drivers of the class reach the coordination store with a secret."""
        store = None if self.sidecar is None else self.sidecar.store
        return store is not None and store.secret_ref is not None

    @property
    def has_store_tls(self) -> bool:
        """Whether drivers of the class reach the coordination store by TLS."""
        store = None if self.sidecar is None else self.sidecar.store
        return store is not None and store.ca_secret_ref is not None

    @property
    def has_credentials(self) -> bool:
        """Whether that is the credential that the operator makes for each namespace."""
        store = None if self.sidecar is None else self.sidecar.store
        secret = None if store is None else store.secret_ref
        return secret is not None and secret.name == CREDENTIAL_SECRET


class ClassStatus(Value, frozen=True):
    """What the operator has made of a class: who uses it."""

    observed_generation: Count = 0
    providers: Annotated[str, msgspec.Meta(max_length=PROVIDERS_LENGTH_MAX)] = ""
    policies: Count = 0
    recovering: Count = 0
    conditions: Annotated[tuple[Condition, ...], msgspec.Meta(max_length=10)] = ()


class RecoveryClass(Resource, frozen=True):
    """A class of the cluster."""

    kind: ClassVar[str] = "RecoveryClass"
    spec: ClassSpec = ClassSpec()
    status: ClassStatus = ClassStatus()


def from_object(record: object) -> RecoveryClass:
    """The class in an object from the API; InputError names object and field."""
    return read(record, RecoveryClass)


def misfit(resources: Resources) -> str:
    """Why no pod could be made with a container of such resources, as a sentence; "" when one can.

    The API server refuses such a class; it keeps one that it has stored before it did.
    """
    requests, limits = resources.requests, resources.limits
    try:
        pairs = (
            ("cpu", requests.cpu, limits.cpu, quantities.cpu_millis),
            ("memory", requests.memory, limits.memory, quantities.memory_bytes),
        )
        for name, request, limit, amount in pairs:
            asked = amount(request)
            allowed = asked if limit is None else amount(limit)
            if min(asked, allowed) < 0:
                return f"{name} of the sidecar is below 0; write a quantity such as 20m or 64Mi"
            if asked > allowed:
                return (
                    f"the sidecar's limits.{name} {limit} is below its requests.{name} {request}; "
                    "raise the one, or lower the other"
                )
    except InputError as error:
        return str(error)
    return ""


def to_status(status: ClassStatus, spec: ClassSpec) -> dict[str, Any]:
    """The whole status as JSON, within the schema's limits: it replaces what was there."""
    providers = ",".join(dict.fromkeys(item.provider for item in spec.provisioning))
    return written(
        msgspec.structs.replace(status, providers=clipped(providers, PROVIDERS_LENGTH_MAX))
    )
