"""The demand for nodes: incidents, the core's requests for each, and their limits.

Says nothing of how nodes are got. A shell makes a demand for every incident whose requests it
knows, and for every incident that is over and has something left (`orphan_scan`). An incident
without a demand is not touched: not to know what is wanted is not to know that nothing is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from rekindle.coordination.directives import NodeRequestOrder
from rekindle_operator.api.node_providers import Provider
from rekindle_operator.api.recovery_class import ClassSpec
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.policies.effective_policy import Effective
from rekindle_operator.provisioning.executor_shape import ExecutorShape

PENDING_PODS = "PendingPods"


class NodeIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of an application. `recovery` and `uid` are of its Recovery object: incidents are
    counted anew when the coordination store is lost, objects' uids are not."""

    namespace: str
    application: str
    number: int
    recovery: str
    uid: str


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
