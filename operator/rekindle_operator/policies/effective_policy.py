"""The effective policy: a policy within the limits of its class, and the narrowed fields.

A class says what a policy may have, so of two bounds the lower one holds, and of two switches the
more careful one. The outcome is the core's own policy and whatever else the operator goes by; a
policy that asks for more than it gets is told so, in sentences. Pure; called by `policy_conditions`
and by the shell whenever a policy or a class has changed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from rekindle.model import settings
from rekindle.model.settings import Policy
from rekindle.protocol.messages import PriorityOverride
from rekindle_operator.api import recovery_class
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.node_providers import Provider
from rekindle_operator.api.recovery_policy import Guards, Narrowing, PolicySpec, RecoveryPolicy

# for an application that no policy selects, where there is no class
SOLVER_SECONDS_MAX = 1


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds for the applications of a policy.

    `policy` is the core's; `overrides` (query -> priority until a moment) go to the application's
    orders. `providers` may be used in this order, with their limits lowered to those here.
    `narrowed` is where the policy asks for more. `concurrent_recoveries_max` is of the policy,
    `class_recoveries_max` of all policies of its class.
    """

    policy: Policy
    overrides: Mapping[str, PriorityOverride]
    paused: bool
    dry_run: bool
    approval_needed: bool
    failure_domain_keys: tuple[str, ...]
    providers: tuple[Provider, ...]
    nodes_per_incident_max: int
    nodes_at_once_max: int
    concurrent_recoveries_max: int
    class_name: str
    class_recoveries_max: int
    recoveries_kept_max: int
    fencing: recovery_class.Fencing
    executors: recovery_class.Executors
    displacement: recovery_class.Displacement
    taints: recovery_class.Taints
    node_deletion: recovery_class.NodeDeletion
    detection: recovery_class.Detection
    sidecar: recovery_class.SidecarSpec | None
    narrowed: tuple[Narrowing, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedLimit:
    """A limit on recoveries that keeps another one waiting: the `concurrentRecoveriesMax` of
    `owner` ("policy all"), and the applications whose recoveries fill it, the first first."""

    owner: str
    recoveries_max: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownQuery:
    """A query that a policy names, in its `field`, and no pipeline has."""

    field: str
    query: str
    known: tuple[str, ...]


def effective(policy: RecoveryPolicy, class_: recovery_class.RecoveryClass) -> Effective:
    """What holds of `policy` within the class that it names.

    InputError for settings that the core refuses, which the API server does not let in.
    """
    spec, allowed = policy.spec, class_.spec
    limits = allowed.limits
    incident = _lower(spec.guards.nodes_per_incident_max, limits.nodes_per_incident_max)
    at_once = min(incident, _lower(spec.guards.nodes_at_once_max, limits.nodes_at_once_max))
    return Effective(
        policy=_core_policy(policy, class_),
        overrides={
            item.query: PriorityOverride(priority=item.priority, until=item.until.timestamp())
            for item in spec.priorities
            if item.until is not None
        },
        paused=spec.paused or allowed.paused,
        dry_run=spec.dry_run or allowed.dry_run,
        approval_needed="Manual" in (spec.approval, allowed.approval),
        failure_domain_keys=spec.failure_domain_keys,
        providers=tuple(_providers(spec.guards, allowed, incident, at_once)),
        nodes_per_incident_max=incident,
        nodes_at_once_max=at_once,
        concurrent_recoveries_max=_lower(
            spec.guards.concurrent_recoveries_max, limits.concurrent_recoveries_max
        ),
        class_name=class_.metadata.name,
        class_recoveries_max=limits.concurrent_recoveries_max,
        recoveries_kept_max=limits.recoveries_kept_max,
        fencing=recovery_class.Fencing() if spec.guards.fencing == "Never" else allowed.fencing,
        executors=allowed.executors,
        displacement=allowed.displacement,
        taints=allowed.taints,
        node_deletion=allowed.node_deletion,
        detection=allowed.detection,
        sidecar=allowed.sidecar,
        narrowed=tuple(_narrowed(spec, class_)),
    )


def known(held: Effective, queries: Collection[str]) -> tuple[Effective, tuple[UnknownQuery, ...]]:
    """What holds for an application with these queries, without priorities and goals of others.

    The core refuses these, and one policy may select applications with different queries.
    """
    policy, there = held.policy, tuple(sorted(queries))
    asked = {"priorities": {*policy.priorities, *held.overrides}, "lagGoals": {*policy.lag_goals}}
    unknown = tuple(
        UnknownQuery(field, name, there)
        for field, names in asked.items()
        for name in sorted(names)
        if name not in queries
    )
    if not unknown:
        return held, ()
    kept = {name: value for name, value in policy.priorities.items() if name in queries}
    goals = {name: value for name, value in policy.lag_goals.items() if name in queries}
    overrides = {name: value for name, value in held.overrides.items() if name in queries}
    policy = replace(policy, priorities=kept, lag_goals=goals)
    return replace(held, policy=policy, overrides=overrides), unknown


def without_policy(own: Policy, classes: Iterable[recovery_class.RecoveryClass]) -> Policy:
    """The policy of a pipeline that no RecoveryPolicy selects: planning for it may take the one
    thread that decides no longer than any class allows."""
    limits = [class_.spec.limits.solver_budget_seconds_max for class_ in classes]
    most = float(min(limits, default=SOLVER_SECONDS_MAX))
    if own.solver_budget_seconds <= most:
        return own
    return replace(own, solver_budget_seconds=most)


def _core_policy(policy: RecoveryPolicy, class_: recovery_class.RecoveryClass) -> Policy:
    spec, limits = policy.spec, class_.spec.limits
    planning = spec.planning
    record = {
        "strategy": spec.strategy,
        "buffering": spec.buffering,
        "ordering": spec.ordering,
        "correlated_nodes_min": spec.correlated.nodes_min,
        "correlated_window_seconds": spec.correlated.window_seconds,
        "stabilisation_seconds": spec.stabilisation_seconds,
        "placement": spec.placement,
        "silent_seconds": class_.spec.detection.driver_silence_seconds,
        "cpu_cap": min(spec.node_cpu_cap_percent, limits.node_cpu_cap_percent_max) / 100,
        "solver": planning.solver,
        "solver_budget_seconds": min(
            planning.solver_budget_seconds, limits.solver_budget_seconds_max
        ),
        "catch_up_seconds": planning.catch_up_seconds,
        "catch_up_cost_ratio": planning.catch_up_cost_percent / 100,
        "uneven_seconds": planning.uneven_seconds,
        "default_cpu_percent": planning.default_cpu_millicores / 10,
        "lag_goals": {item.query: float(item.seconds) for item in spec.lag_goals},
        "priorities": {item.query: item.priority for item in spec.priorities if item.until is None},
    }
    where = f"{policy.kind} {identity(policy)}"
    return settings.from_record({"policy": record}, where).policy


def _providers(
    guards: Guards, allowed: recovery_class.ClassSpec, incident: int, at_once: int
) -> Iterator[Provider]:
    """The class's providers that the policy wants, bounded; none where no node may be requested."""
    for provider in allowed.provisioning:
        if guards.providers is not None and provider.name not in guards.providers:
            continue
        if provider.provider == "PendingPods":
            yield provider
        elif at_once > 0:
            own = provider.limits
            limits = msgspec.structs.replace(
                own,
                nodes_per_request_max=min(own.nodes_per_request_max, at_once),
                nodes_per_incident_max=min(own.nodes_per_incident_max, incident),
                nodes_at_once_max=min(own.nodes_at_once_max, at_once),
            )
            yield msgspec.structs.replace(provider, limits=limits)


def _narrowed(spec: PolicySpec, class_: recovery_class.RecoveryClass) -> Iterator[Narrowing]:
    allowed, name = class_.spec, class_.metadata.name
    yield from _lowered(spec, allowed.limits, name)
    if allowed.paused and not spec.paused:
        yield Narrowing("paused", "false", "true", f"Class {name} is paused, and so is the policy.")
    if allowed.dry_run and not spec.dry_run:
        text = f"Class {name} is a dry run, and so is the policy."
        yield Narrowing("dryRun", "false", "true", text)
    if allowed.approval == "Manual" and spec.approval != "Manual":
        text = f"Class {name} wants every recovery approved by a person."
        yield Narrowing("approval", spec.approval, "Manual", text)
    asked = spec.guards.providers or ()
    there = [provider.name for provider in allowed.provisioning]
    missing = [provider for provider in asked if provider not in there]
    if missing:
        held = ", ".join(provider for provider in asked if provider in there) or "none"
        text = (
            f"guards.providers names {', '.join(missing)}, class {name} has {', '.join(there)}: "
            f"{held} may be used."
        )
        yield Narrowing("guards.providers", ", ".join(asked), held, text)


def _lowered(
    spec: PolicySpec, limits: recovery_class.ClassLimits, class_name: str
) -> Iterator[Narrowing]:
    """Where a number is above the class's; what the policy leaves out cannot be."""
    guards = spec.guards
    for field, asked, held in (
        ("nodeCpuCapPercent", spec.node_cpu_cap_percent, limits.node_cpu_cap_percent_max),
        (
            "planning.solverBudgetSeconds",
            spec.planning.solver_budget_seconds,
            limits.solver_budget_seconds_max,
        ),
        (
            "guards.nodesPerIncidentMax",
            guards.nodes_per_incident_max,
            limits.nodes_per_incident_max,
        ),
        ("guards.nodesAtOnceMax", guards.nodes_at_once_max, limits.nodes_at_once_max),
        (
            "guards.concurrentRecoveriesMax",
            guards.concurrent_recoveries_max,
            limits.concurrent_recoveries_max,
        ),
    ):
        if asked is not None and asked > held:
            text = f"{field} asks for {asked}, class {class_name} allows {held}: {held} holds."
            yield Narrowing(field, str(asked), str(held), text)


def _lower(asked: int | None, allowed: int) -> int:
    return allowed if asked is None else min(asked, allowed)
