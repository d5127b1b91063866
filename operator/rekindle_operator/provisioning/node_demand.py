"""The demand for nodes: incidents, the core's requests for each, and their limits.

Says nothing of how nodes are got. A shell makes a demand for every incident whose requests it
knows, and for every incident that is over and has something left (`remains`). An incident without a
demand is not touched: not to know what is wanted is not to know that nothing is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rekindle.coordination.directives import NodeRequestOrder
from rekindle.protocol.store_paths import Place
from rekindle_operator.api import quantities
from rekindle_operator.api.node_providers import Provider
from rekindle_operator.api.recovery_class import ClassSpec
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.cluster.json_access import Body, items, mapping, text
from rekindle_operator.cluster.pods import spark_container
from rekindle_operator.detection.failure_domains import Domain, away_from
from rekindle_operator.policies.effective_policy import Effective

# The size and the needs of an executor, taken from one of its pods.
#
# A request for nodes must ask for what the executors will need, or the nodes that come do not
# fit. Of a pod only that is kept which decides where it may run. Makes no pods: no pod is ever
# made of the templates here. The shell calls `executor_of` on any executor pod of the
# application, best before those of lost nodes are deleted; the providers make templates and
# requirements of it.

# What tells one executor from another, or makes others take a template's pod for a real one.
_OWN_LABELS = ("spark-exec-id", "spark-exec-inactive", "pod-template-hash")
_KEPT = ("nodeSelector", "affinity", "schedulerName", "runtimeClassName")
# Kubernetes adds these two to every pod.
_ADDED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CPU = "cpu"
# A template needs an image.
_NO_IMAGE = "never-run"


@dataclass(frozen=True, slots=True)
class ExecutorShape:
    """`requests` (resource -> amount, of CPU in thousandths of a core) are those of the whole pod;
    `spec` and `labels` are what decides where it may run."""

    requests: Mapping[str, int]
    image: str = _NO_IMAGE
    spec: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def executor_of(pod: Body) -> ExecutorShape:
    """An executor as its pod has it. InputError for a quantity that is none."""
    spec = mapping(pod, "spec")
    kept: dict[str, Any] = {key: spec[key] for key in _KEPT if spec.get(key)}
    tolerations = [
        item
        for item in items(spec, "tolerations")
        if not (text(item, "key") in _ADDED_TOLERATIONS and "tolerationSeconds" in item)
    ]
    if tolerations:
        kept["tolerations"] = tolerations
    containers = items(spec, "containers")
    first = containers[spark_container(spec, mapping(pod, "metadata")) :][:1]
    images = (text(container, "image") for container in (*first, *containers))
    labels = mapping(pod, "metadata", "labels")
    return ExecutorShape(
        requests={
            name: quantities.requested(pod, name, _amount(name))
            for name in sorted({*_resources(spec)})
        },
        image=next(filter(None, images), _NO_IMAGE),
        spec=kept,
        labels={key: value for key, value in labels.items() if key not in _OWN_LABELS},
    )


def requests_of(executor: ExecutorShape, count: int = 1) -> dict[str, str]:
    """What `count` of them request together, as quantities."""
    return {
        name: f"{amount * count}m" if name == _CPU else str(amount * count)
        for name, amount in executor.requests.items()
    }


def pod_template(executor: ExecutorShape, avoided: Iterable[Domain]) -> dict[str, Any]:
    """The template of a pod like that executor, which may run in none of the domains `avoided`."""
    spec = dict(executor.spec)
    affinity = away_from(mapping(spec, "affinity"), avoided)
    if affinity:
        spec["affinity"] = affinity
    container = {
        "name": "executor",
        "image": executor.image,
        "resources": {"requests": requests_of(executor)},
    }
    return {
        "metadata": {"labels": dict(executor.labels)},
        "spec": {**spec, "containers": [container]},
    }


def _resources(spec: Body) -> Iterator[str]:
    """Names of all resources that anything in the pod requests."""
    for holder in (spec, *items(spec, "containers"), *items(spec, "initContainers")):
        yield from mapping(holder, "resources", "requests")
    yield from mapping(spec, "overhead")


def _amount(resource: str) -> quantities.Amount:
    return quantities.cpu_millis if resource == _CPU else quantities.memory_bytes


PENDING_PODS = "PendingPods"


class NodeIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of an application. `recovery` and `uid` are of its Recovery object: incidents are
    counted anew when the coordination store is lost, objects' uids are not."""

    namespace: str
    application: str
    number: int
    recovery: str
    uid: str

    @classmethod
    def of(cls, place: Place, recovery: Recovery) -> "NodeIncident":
        """The incident of an application that a Recovery tells of."""
        return cls(
            namespace=place.namespace,
            application=place.application,
            number=recovery.spec.incident,
            recovery=recovery.metadata.name,
            uid=recovery.metadata.uid,
        )


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Where nodes may come from, in this order, and how many for one incident: in all, and on their
    way at a time. Each provider has limits of its own, over all incidents of the class."""

    providers: tuple[Provider, ...] = ()
    nodes_per_incident_max: int = 100
    nodes_at_once_max: int = 50

    @property
    def makers(self) -> tuple[Provider, ...]:
        """The providers that make requests; pending pods do their part without."""
        return tuple(item for item in self.providers if item.provider != PENDING_PODS)


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """What is wanted for an incident.

    `requests` are the core's, by identity; what they say of drivers is not for here, nor what they
    say of domains: the operator knows of nodes that the application was never on. `impaired` are
    the domains to avoid, of `domain_keys`, as it judges them. `missing` is how many nodes the
    application still lacks: not more are on their way, for nodes come by themselves too.
    `executors_per_node` stood on a lost node. `held`: nothing new is made for now. `over`: the
    incident has ended, give back.
    """

    incident: NodeIncident
    class_name: str
    limits: NodeLimits
    requests: Mapping[str, NodeRequestOrder] = field(default_factory=dict)
    domain_keys: tuple[str, ...] = ()
    impaired: tuple[Domain, ...] = ()
    missing: int | None = None
    executor: ExecutorShape | None = None
    executors_per_node: int = 1
    held: bool = False
    over: bool = False


def limits_of(held: Effective, allowed: ClassSpec) -> NodeLimits:
    """The limits for a policy: the class's own for its providers, because those count over all
    policies, and what holds of the policy for each incident."""
    entries = {item.name: item for item in allowed.provisioning}
    return NodeLimits(
        providers=tuple(entries[item.name] for item in held.providers if item.name in entries),
        nodes_per_incident_max=held.nodes_per_incident_max,
        nodes_at_once_max=held.nodes_at_once_max,
    )


def node_requests(demand: NodeDemand) -> dict[str, NodeRequestOrder]:
    """The requests for nodes, the oldest first; none once the incident is over."""
    wanted = {} if demand.over else demand.requests
    return {
        identity: wanted[identity]
        for identity in sorted(wanted, key=_age)
        if wanted[identity].what == "nodes" and wanted[identity].count > 0
    }


def outside_of(demand: NodeDemand) -> tuple[str, ...]:
    """The failure domains that new nodes must be outside of, as people are told: those that are
    impaired. Lost nodes are avoided as well, and not told."""
    return tuple(
        sorted({domain.value for domain in demand.impaired if domain.key in demand.domain_keys})
    )


def _age(identity: str) -> list[str]:
    """Identities hold numbers that grow; as texts, 10 would come before 9."""
    return [part.zfill(20) for part in identity.split("-")]
