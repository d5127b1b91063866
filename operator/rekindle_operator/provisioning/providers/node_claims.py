"""A Karpenter NodeClaim per node: Karpenter starts the machine, whatever waits for it or not.

    planned ── NodeClaim ──► Launched ──► Registered ──► Initialized, node usable ──► arrived

A claim and its machine are one: to delete the claim is to end the machine. So a claim is deleted
only while no node has registered for it, or when its node has been idle for ten minutes. Karpenter
itself deletes claims for which the cloud has no capacity, and those that take too long; a claim
that is gone has failed. Claims of ours belong to no NodePool, so Karpenter does not consolidate
them: after the incident they are given back as they become idle.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from rekindle_operator.api.custom_resources import written
from rekindle_operator.api.node_providers import Karpenter
from rekindle_operator.cluster.json_access import (
    Body,
    ObjectKind,
    condition,
    is_deleting,
    is_true,
    items,
    text,
)
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain
from rekindle_operator.provisioning.node_demand import requests_of
from rekindle_operator.provisioning.providers.provider_base import (
    ProviderInput,
    Seen,
    Tally,
    metadata,
)
from rekindle_operator.provisioning.provisioning_actions import Action, Create, delete
from rekindle_operator.provisioning.request_ledger import LIVE, Slot

NODE_CLAIM = ObjectKind("karpenter.sh/v1", "NodeClaim", "nodeclaims", namespaced=False)
# Labels that NodeClaims may not require anything of: each node has its own.
REFUSED_KEYS = (HOSTNAME,)


@dataclass(frozen=True, slots=True)
class NodeClaims:
    """`settings` is None when the class has the entry no more: what is there is still cleared."""

    settings: Karpenter | None
    gives_back: bool = True

    def assign(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot | str:
        """A slot of one node, unless every domain that the class names is avoided."""
        del tally
        if self.settings is None:
            return "is not in the class any more"
        if scene.demand.executor is None:
            return "waits until an executor of the application has been seen, for its size"
        for requirement in self.settings.requirements:
            bad = {one.value for one in scene.avoided if one.key == requirement.key}
            if requirement.operator == "In" and bad.issuperset(requirement.values):
                return f"may only use {requirement.key} {', '.join(sorted(bad))}, which is impaired"
        # a claim is one node, whatever the limit says
        return slot if slot.nodes == 1 else msgspec.structs.replace(slot, nodes=1)

    def look(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Seen:
        """By the claim's conditions, and by its node."""
        del tally
        claim = scene.standing.find(NODE_CLAIM, "", scene.name(slot))
        if claim is None:
            return Seen(there=False)
        if is_deleting(claim):
            return Seen(there=True, failure="Karpenter, or somebody, is ending it")
        name = text(claim, "status", "nodeName")
        node = scene.standing.nodes.get(name)
        startup = [text(taint, "key") for taint in items(claim, "spec", "startupTaints")]
        if is_true(claim, "Initialized") and node is not None and node.is_usable(startup):
            return Seen(there=True, arrived=(name,))
        return Seen(there=True, message=_progress(claim))

    def is_harmless(self, slot: Slot, scene: ProviderInput) -> bool:
        """While nothing can run on the machine, or nothing has for long."""
        claim = scene.standing.find(NODE_CLAIM, "", scene.name(slot))
        return claim is None or _is_harmless(claim, scene)

    def wind_up(self, slot: Slot, scene: ProviderInput, tally: Tally) -> Slot:
        """Nothing has to be planned."""
        del scene, tally
        return slot

    def is_left(self, slot: Slot, scene: ProviderInput) -> bool:
        """Whether its claim is still there."""
        return scene.standing.find(NODE_CLAIM, "", scene.name(slot)) is not None

    def act(self, slot: Slot, scene: ProviderInput) -> Iterable[Action]:
        """Make the claim while the slot is planned; delete it once that is due and harmless."""
        claim = scene.standing.find(NODE_CLAIM, "", scene.name(slot))
        if slot.stage == "planned" and claim is None:
            if self.settings is not None and scene.demand.executor is not None:
                text_ = "A node is requested from Karpenter."
                manifest = self.manifest(slot, scene)
                yield Create(scene.scope, NODE_CLAIM, manifest, scene.reason(slot), text_)
        elif slot.stage not in LIVE and claim is not None and _may_go(claim, scene):
            yield delete(scene.scope, NODE_CLAIM, claim, f"The request is {slot.stage}.")

    def manifest(self, slot: Slot, scene: ProviderInput) -> dict[str, Any]:
        """The NodeClaim of a slot."""
        settings, executor = self.settings, scene.demand.executor
        assert settings is not None, "assign has seen to that"
        assert executor is not None, "assign has seen to that"
        about = metadata(slot, scene, "")
        # what Rekindle finds its own claims by has the last word
        about["labels"] = {**settings.labels, **about["labels"]}
        spec: dict[str, Any] = {
            "nodeClassRef": written(settings.node_class_ref),
            "requirements": [
                *map(written, settings.requirements),
                *_requirements(scene.avoided),
            ],
            "resources": {"requests": requests_of(executor, scene.demand.executors_per_node)},
            "expireAfter": settings.expire_after,
        }
        for name, taints in (
            ("taints", settings.taints),
            ("startupTaints", settings.startup_taints),
        ):
            if taints:
                spec[name] = [written(taint) for taint in taints]
        return {
            "apiVersion": NODE_CLAIM.api_version,
            "kind": NODE_CLAIM.name,
            "metadata": about,
            "spec": spec,
        }


def _requirements(avoided: Iterable[Domain]) -> list[dict[str, Any]]:
    """Outside of these domains: one requirement for each label."""
    values: dict[str, list[str]] = {}
    for domain in avoided:
        if domain.key not in REFUSED_KEYS:
            values.setdefault(domain.key, []).append(domain.value)
    return [{"key": key, "operator": "NotIn", "values": found} for key, found in values.items()]


def _may_go(claim: Body, scene: ProviderInput) -> bool:
    return not is_deleting(claim) and _is_harmless(claim, scene)


def _is_harmless(claim: Body, scene: ProviderInput) -> bool:
    registered = is_true(claim, "Registered") or text(claim, "status", "nodeName")
    return not registered or scene.standing.is_idle(text(claim, "status", "nodeName"))


def _progress(claim: Body) -> str:
    """What the claim waits for, in Karpenter's words where it has some."""
    for type_ in ("Launched", "Registered", "Initialized"):
        if not is_true(claim, type_):
            found = condition(claim, type_)
            said = found.message or found.reason if found is not None else ""
            return f"Not {type_.lower()} yet{': ' if said else ''}{said}."
    return "Its node is not usable yet."
