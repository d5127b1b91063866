"""Decides on the additions to a new pod, or why it gets none.

A driver asks by the label `rekindle.dev/inject: "true"`. Its application gets the name by which the
registry will know it (`application_matching`), and what holds is said by the policy that selects it
and by that policy's class. Executors ask by the label `rekindle.dev/executor: "true"`, which the
runtime has Spark give them: those of other Spark applications are left alone. Pure: `policy_watch`
gathers what is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_class
from rekindle_operator.api.recovery_class import Executors, RecoveryClass, SidecarSpec, StoreSpec
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster import application_matching
from rekindle_operator.cluster.json_access import items, mapping, text
from rekindle_operator.cluster.pods import APPLICATION_LABEL, ROLE_LABEL, SIDECAR, PodSeen, pod_seen
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook.injection_spec import (
    EXECUTOR_LABEL,
    INJECT_LABEL,
    Body,
    ExecutorTerms,
    InjectionRefusal,
    SidecarTerms,
    Terms,
)

# The webhook's view: policies, classes, resources, domains to avoid.
#
# A value: the shell makes a new one when something has changed, on whatever thread it likes, and
# the server's thread reads the newest.


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
            known = found.get(key, ())
            # most buckets are of one application alone, and need no sorting of hundreds
            domains = impairment.domains
            found[key] = tuple(sorted({*known, *domains})) if known else domains
    return found


# A pod that is about to be made has no uid, and often no name.
_UNKNOWN = "unknown"
ROLES = ("driver", "executor")


def terms_of(pod: Body, namespace: str, known: PolicyView) -> Terms | InjectionRefusal | None:
    """What holds for a pod; None when it asks neither for a sidecar nor as an executor of ours."""
    labels = mapping(pod, "metadata", "labels")
    is_executor = labels.get(ROLE_LABEL) == "executor"
    if labels.get(EXECUTOR_LABEL if is_executor else INJECT_LABEL) != "true":
        return None
    try:
        seen = _seen(pod, namespace, is_executor=is_executor)
        if is_executor:
            return ExecutorTerms(known.avoided.get(application_matching.bucket(seen), ()))
        return _of_driver(seen, known)
    except InputError as error:
        return InjectionRefusal(str(error))


def waits(pod: Body, namespace: str, known: PolicyView) -> bool:
    """Whether a new driver or executor of Spark waits for its turn, with a gate of ours. One that
    names no application, or has a node already, does not."""
    role = mapping(pod, "metadata", "labels").get(ROLE_LABEL)
    if role not in ROLES or text(pod, "spec", "nodeName"):
        return False
    try:
        seen = _seen(pod, namespace, is_executor=role == "executor")
    except InputError:
        return False  # the API server refuses a pod with such a quantity
    if role == "executor":
        return application_matching.bucket(seen) in known.waiting
    place = application_matching.place_of(seen, known.policies.get(namespace, {}))
    return place is not None and not known.waiting.isdisjoint(
        application_matching.named_buckets(place)
    )


def _of_driver(driver: PodSeen, known: PolicyView) -> SidecarTerms | InjectionRefusal:
    policies = known.policies.get(driver.namespace, {})
    place = application_matching.place_of(driver, policies)
    if place is None:
        return InjectionRefusal(
            f"nothing names the driver's application; give it {APPLICATION_LABEL}"
        )
    place.checked()
    resources = _resources(driver, place, known)
    holder = application_matching.join(place, (driver,), (), resources, policies).policy
    if not holder:
        return InjectionRefusal(
            f"no RecoveryPolicy selects {place.application}; make one in its namespace"
        )
    policy = policies[holder.partition("/")[2]]
    class_ = known.classes.get(policy.spec.class_name)
    if class_ is None:
        missing = policy.spec.class_name
        return InjectionRefusal(
            f"policy {holder} has no RecoveryClass {missing}; make it, or name another"
        )
    if not class_.spec.allows(driver.namespace):
        name = policy.spec.class_name
        return InjectionRefusal(f"RecoveryClass {name} is not for namespace {driver.namespace}")
    sidecar = class_.spec.sidecar or SidecarSpec()
    bad = recovery_class.misfit(sidecar.resources)
    if bad:  # the API server would refuse the driver with it
        return InjectionRefusal(f"in RecoveryClass {policy.spec.class_name} {bad}")
    return _sidecar(place, sidecar, known)


def _sidecar(
    place: Place, sidecar: SidecarSpec, known: PolicyView
) -> SidecarTerms | InjectionRefusal:
    image = sidecar.image or known.defaults.image
    store = sidecar.store or known.defaults.store
    if not image:
        return InjectionRefusal("no image of the sidecar is known; name one in the RecoveryClass")
    if store is None:
        return InjectionRefusal("no coordination store is known; name one in the RecoveryClass")
    return SidecarTerms(
        place=place,
        image=image,
        image_pull_policy=sidecar.image_pull_policy,
        store=store,
        session_seconds=sidecar.session_seconds,
        resources=sidecar.resources,
    )


def _resources(driver: PodSeen, place: Place, known: PolicyView) -> Sequence[SparkApplicationSeen]:
    """The SparkApplications of a driver's name. One that no watch has told of yet is taken to have
    the labels of its driver's pod: kubeflow's operator copies them there."""
    there = known.resources.get(place, ())
    if not driver.resource or any(item.group == driver.group for item in there):
        return there
    unseen = SparkApplicationSeen(
        group=driver.group,
        namespace=driver.namespace,
        name=driver.resource,
        uid=_UNKNOWN,
        labels=driver.labels,
    )
    return (*there, unseen)


def _seen(pod: Body, namespace: str, *, is_executor: bool) -> PodSeen:
    """A pod as the registry will see it once it is there, a driver with its sidecar."""
    metadata = {
        **mapping(pod, "metadata"),
        "namespace": namespace,
        "uid": _UNKNOWN,
        "name": text(pod, "metadata", "name") or _UNKNOWN,
    }
    spec = dict(mapping(pod, "spec"))
    if not is_executor:
        spec["initContainers"] = [*items(spec, "initContainers"), {"name": SIDECAR}]
    seen = pod_seen({"metadata": metadata, "spec": spec})
    assert isinstance(seen, PodSeen)  # a sidecar makes a driver, the label an executor
    return seen
