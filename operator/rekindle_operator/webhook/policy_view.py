"""The webhook's view: policies, classes, resources, domains to avoid.

A value: the shell makes a new one when something has changed, on whatever thread it likes, and the
server's thread reads the newest. Nothing is looked up here; `injector` reads it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_class import Executors, RecoveryClass, StoreSpec
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster import application_matching
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen
from rekindle_operator.detection.failure_domains import Domain


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the operator was started with, for classes that do not say it: the sidecar's image, ""
    for none, and the store."""

    image: str = ""
    store: StoreSpec | None = None


@dataclass(frozen=True, slots=True)
class Impairment:
    """An application with an incident, and the domains that are impaired while it lasts.
    `executors` is what its class allows."""

    application: application_matching.MatchedApplication
    domains: tuple[Domain, ...]
    executors: Executors = field(default_factory=Executors)


@dataclass(frozen=True, slots=True)
class PolicyView:
    """What is known at a moment. `policies` are by namespace and name, `avoided` is by
    `application_matching.bucket` of an executor (see `avoided`). New pods in the buckets `waiting`
    get our gate."""

    policies: Mapping[str, Mapping[str, RecoveryPolicy]] = field(default_factory=dict)
    classes: Mapping[str, RecoveryClass] = field(default_factory=dict)
    resources: Mapping[Place, tuple[SparkApplicationSeen, ...]] = field(default_factory=dict)
    avoided: Mapping[str, tuple[Domain, ...]] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    waiting: frozenset[str] = frozenset()


def gathered(
    policies: Iterable[RecoveryPolicy],
    classes: Iterable[RecoveryClass],
    resources: Iterable[SparkApplicationSeen],
    impairments: Iterable[Impairment],
    defaults: Defaults,
) -> PolicyView:
    """All of it, of everything in the cluster."""
    by_namespace: dict[str, dict[str, RecoveryPolicy]] = {}
    for policy in policies:
        metadata = policy.metadata
        by_namespace.setdefault(metadata.namespace, {})[metadata.name] = policy
    by_place: dict[Place, tuple[SparkApplicationSeen, ...]] = {}
    for resource in resources:
        place = Place(resource.namespace, resource.name)
        by_place[place] = (*by_place.get(place, ()), resource)
    return PolicyView(
        policies=by_namespace,
        classes={class_.metadata.name: class_ for class_ in classes},
        resources=by_place,
        avoided=avoided(impairments),
        defaults=defaults,
    )


def avoided(impairments: Iterable[Impairment]) -> dict[str, tuple[Domain, ...]]:
    """Which domains the executors in a bucket avoid: those of the applications with an incident,
    where their classes allow it."""
    found: dict[str, tuple[Domain, ...]] = {}
    for impairment in impairments:
        if not (impairment.domains and impairment.executors.avoid_impaired_domains):
            continue
        for key in application_matching.pod_buckets(impairment.application):
            found[key] = tuple(sorted({*found.get(key, ()), *impairment.domains}))
    return found
