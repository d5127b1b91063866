"""Failure domains: the domain of a node, the losses of a domain, and whether to avoid it.

A domain is a label and its value: a zone, a rack. Which labels tell domains apart is the policy's
choice, in order; a node belongs to the first that it carries. Whether a domain is impaired is
judged for every one of these labels, because a rack may fail in a zone that holds, and a zone with
all its racks. Only evidence counts: lost nodes, against those that are left. Pure; the operator's
shell calls it when it asks for replacements and writes down where they may not be, and the webhook
keeps new executors away from domains by `away_from`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rekindle_operator.cluster.json_access import Body, items, mapping
from rekindle_operator.detection.detection_events import DetectionReason

Labels = Mapping[str, str]

HOSTNAME = "kubernetes.io/hostname"
LOST_MIN = 2
LOST_SHARE_MIN = 0.5
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True, order=True)
class Domain:
    """A failure domain: the value of a label. Prints as `key=value`."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a domain's losses say of it. `nodes` are all that it has or had when the failure came,
    `lost` those of them that are lost."""

    domain: Domain
    nodes: frozenset[str]
    lost: frozenset[str]
    reason: DetectionReason

    @property
    def impaired(self) -> bool:
        """Whether replacements should be got elsewhere."""
        return self.reason in (DetectionReason.DOMAIN_LOST, DetectionReason.DOMAIN_MOSTLY_LOST)

    @property
    def text(self) -> str:
        """A sentence for people."""
        count = f"{len(self.lost)} of {len(self.nodes)} nodes of {self.domain} are lost"
        advice = "avoided" if self.impaired else "not avoided"
        return f"{count}: {advice}, {self.reason.meaning}."


def listed(domains: Iterable[Domain]) -> str:
    """Domains in one line; neither keys nor values have a comma, or the sign between the two."""
    return ",".join(map(str, domains))


def parse(text: str) -> tuple[Domain, ...]:
    """The domains of such a line; what is none is passed over."""
    parts = (part.partition("=") for part in text.split(","))
    return tuple(Domain(key, value) for key, sign, value in parts if sign)


def of(labels: Labels, keys: Sequence[str]) -> Domain | None:
    """The domain of a node by the first of `keys` that it carries; None when it carries none."""
    return next((Domain(key, labels[key]) for key in keys if labels.get(key)), None)


def group(
    nodes: Mapping[str, Labels], lost: Iterable[str], keys: Sequence[str]
) -> dict[Domain | None, tuple[str, ...]]:
    """Lost nodes by their domain, None for those in no domain; names in order."""
    found: dict[Domain | None, list[str]] = {}
    for name in sorted(set(lost)):
        found.setdefault(of(nodes.get(name, {}), keys), []).append(name)
    return {domain: tuple(names) for domain, names in found.items()}


def judge(
    nodes: Mapping[str, Labels],
    lost: Mapping[str, float],
    keys: Sequence[str],
    arrived: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Judgement, ...]:
    """Each domain that has lost nodes, with whether to avoid it and why.

    `nodes` (name -> labels) are the nodes of the cluster, ours or not, those that are lost or
    deleted included; `lost` says when, and `arrived` since when a node that is up has been there,
    both in whole seconds, by clocks that agree. In this order: who gives nodes since its last loss
    is not avoided; one lost node says nothing of its domain; more than half of a domain is
    evidence; and where every domain is hit there is nothing to turn to.
    """
    found: list[Judgement] = []
    for key in keys:
        members = _members(nodes, key)
        judged = [
            Judgement(
                domain, names, gone, _reason(names, {name: lost[name] for name in gone}, arrived)
            )
            for domain, names in sorted(members.items())
            if (gone := names & lost.keys())
        ]
        if judged and all(item.impaired for item in judged) and len(judged) == len(members):
            judged = [
                Judgement(item.domain, item.nodes, item.lost, DetectionReason.NOWHERE_ELSE)
                for item in judged
            ]
        found += judged
    return tuple(found)


def impaired(judgements: Iterable[Judgement]) -> tuple[Domain, ...]:
    """The domains to avoid, without those that lie inside another one of them."""
    hit = [item for item in judgements if item.impaired]
    return tuple(
        sorted(
            item.domain
            for number, item in enumerate(hit)
            if not any(
                item.nodes < other.nodes or (item.nodes == other.nodes and index < number)
                for index, other in enumerate(hit)
            )
        )
    )


def away_from(affinity: Body, avoided: Iterable[Domain]) -> dict[str, Any]:
    """An affinity by which a pod may run in none of the domains either: each of its alternatives
    gets the requirement, where it has not got it yet."""
    added = [
        {"key": domain.key, "operator": "NotIn", "values": [domain.value]} for domain in avoided
    ]
    if not added:
        return dict(affinity)
    node = dict(mapping(affinity, "nodeAffinity"))
    required = mapping(node, _REQUIRED)
    alternatives = items(required, "nodeSelectorTerms") or [{"matchExpressions": []}]
    terms = [_with(alternative, added) for alternative in alternatives]
    node[_REQUIRED] = {**required, "nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": node}


def _with(alternative: Body, added: list[dict[str, Any]]) -> Body:
    """An alternative with more requirements. An empty one is for no node at all, and stays so."""
    if not alternative:
        return alternative
    there = items(alternative, "matchExpressions")
    missing = [requirement for requirement in added if requirement not in there]
    return {**alternative, "matchExpressions": [*there, *missing]}


def _members(nodes: Mapping[str, Labels], key: str) -> dict[Domain, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, labels in nodes.items():
        if value := labels.get(key):
            found.setdefault(value, set()).add(name)
    return {Domain(key, value): frozenset(names) for value, names in found.items()}


def _reason(
    names: frozenset[str], lost: Mapping[str, float], arrived: Mapping[str, float]
) -> DetectionReason:
    newest = max(lost.values())
    if any(arrived[name] >= newest for name in (names - lost.keys()) & arrived.keys()):
        return DetectionReason.DOMAIN_GIVES_NODES
    if len(lost) < LOST_MIN or len(lost) <= LOST_SHARE_MIN * len(names):
        return DetectionReason.DOMAIN_HOLDS
    return (
        DetectionReason.DOMAIN_LOST if lost.keys() == names else DetectionReason.DOMAIN_MOSTLY_LOST
    )
