"""The surroundings of an application: claims, quotas, nodes, policies and classes.

What nobody may read is None, and the checks say so instead of guessing. Pure; the plugin fills it
with what the API server gives, or a file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rekindle_operator.api import quantities
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.policies import policy_selection
from rekindle_operator.preflight.subjects.executor_sizes import QuotaDemand
from rekindle_operator.preflight.subjects.workloads import Workload

OFFLINE = "leave --offline out, so that the cluster is asked, or put it into the file"
DOMAIN_KEY = "topology.kubernetes.io/zone"
# By resource, the names that a quota may have for it: several may stand in one quota.
NAMES = {
    "pods": ("pods", "count/pods"),
    "cpu": ("requests.cpu", "cpu"),
    "cpu_limit": ("limits.cpu",),
    "memory": ("requests.memory", "memory", "limits.memory"),
}
Labels = Mapping[str, str]
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota: per name of a resource what it allows and what is used, in the units of
    `QuotaDemand`. `scoped`: it holds for some pods only. `resources`: all that it counts."""

    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scoped: bool = False
    resources: tuple[str, ...] = ()

    def short(self, wanted: QuotaDemand, held: QuotaDemand) -> tuple[str, ...]:
        """The resources of which there is not enough for `wanted` when `held` of it is there."""
        more = {
            "pods": wanted.pods - held.pods,
            "cpu": wanted.cpu_millis - held.cpu_millis,
            "cpu_limit": wanted.cpu_limit_millis - held.cpu_limit_millis,
            "memory": wanted.memory_bytes - held.memory_bytes,
        }
        return tuple(
            name
            for kind, names in NAMES.items()
            for name in names
            if name in self.hard and max(more[kind], 0) > self.hard[name] - self.used.get(name, 0)
        )


@dataclass(frozen=True, slots=True)
class PreflightEnvironment:
    """What could be read; None where nobody could. `claims` (name -> access modes), `quotas` and
    `limit_ranges` (objects) are of the application's namespace, `policies` too; `nodes` are the
    labels of the nodes that take pods, `classes` by name, `webhooks` the available replicas of
    Rekindle's, by namespace/name. `asked`: whether a cluster was asked."""

    claims: Mapping[str, tuple[str, ...]] | None = None
    quotas: tuple[Quota, ...] | None = None
    limit_ranges: tuple[Record, ...] | None = None
    nodes: tuple[Labels, ...] | None = None
    policies: tuple[RecoveryPolicy, ...] | None = None
    classes: Mapping[str, RecoveryClass] | None = None
    webhooks: Mapping[str, int] | None = None
    asked: bool = True

    def remedy(self, right: str) -> str:
        """What to do about what was not read: `right` where somebody may not read it."""
        return right if self.asked else OFFLINE


def quota(body: Record) -> Quota:
    """A quota from its object; InputError for quantities that are none."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    hard = status.get("hard") or spec.get("hard") or {}
    return Quota(
        name=body["metadata"]["name"],
        hard=_amounts(hard),
        used=_amounts(status.get("used") or {}),
        scoped=bool(spec.get("scopes") or spec.get("scopeSelector")),
        resources=tuple(hard),
    )


def policies_of(
    application: Workload, policies: Iterable[RecoveryPolicy]
) -> tuple[RecoveryPolicy, ...]:
    """The policies that select the application; the first one holds."""
    subject = policy_selection.SelectableApplication(
        application.namespace,
        application.kind,
        application.name,
        application.labels,
        application.group or None,
    )
    found = {
        identity(policy): policy
        for policy in policies
        if policy.metadata.namespace == application.namespace
    }
    assigned = policy_selection.assign(found.values(), (subject,))
    holder = next((name for name, held in assigned.holders.items() if held), None)
    if holder is None:
        return ()
    others = assigned.overlaps[0].others if assigned.overlaps else ()
    return tuple(found[name] for name in (holder, *others))


def class_of(application: Workload, around: PreflightEnvironment) -> RecoveryClass | None:
    """The class of the policy that holds; None where it is not there, or not known."""
    holding = policies_of(application, around.policies or ())
    if not holding or around.classes is None:
        return None
    return around.classes.get(holding[0].spec.class_name)


def _amounts(record: Record) -> dict[str, int]:
    found = {}
    for kind, names in NAMES.items():
        amount = quantities.cpu_millis if "cpu" in kind else quantities.memory_bytes
        for name in names:
            if name in record:
                found[name] = amount(record[name])
    return found
