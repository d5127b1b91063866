"""Who is who: drivers and executors, SparkApplications and policies, joined to applications.

An application is a name in a namespace (`Place`), the same through all restarts. A driver's is
    1. the name of its SparkApplication, by its operator's label, else by owner;
    2. else the value of `rekindle.dev/application`;
    3. else the value of the policy's `nameLabel`, by default `spark-app-name`, which Spark makes of
       the name given at submission, the same each time. Without it the driver belongs to nobody.
Only what is known when the pod is created goes into it, so that the webhook comes to the same name.
The name that a program gives itself later is only on its executors, and not used.

An executor belongs to a driver, not to a name, for those of an earlier driver may outlive it:
    1. to the pod that owns it;
    2. else, in its SparkApplication, to the driver of the same submission;
    3. else to the newest driver that was there before it, with the same application id of Spark
       where both tell theirs. (That id alone is not enough: it may come again.)

The newest driver is the application's; others are earlier ones. Pure; `cluster_cache` calls it with
what has changed.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_policy import ApplicationKind, RecoveryPolicy
from rekindle_operator.cluster.pods import (
    APPLICATION_LABEL,
    RUN_LABEL,
    SPARK_APPLICATION_GROUPS,
    PodSeen,
)
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen
from rekindle_operator.policies import policy_selection
from rekindle_operator.policies.policy_selection import ProtectionReason, judge

NAME_LABEL = "spark-app-name"
# the kind of bucket of executors that a driver's pod owns
OWNER = "pod"
Policies = Mapping[str, RecoveryPolicy]
Executors = Iterable[tuple[PodSeen, PodSeen | None]]


@dataclass(frozen=True, slots=True)
class MatchedApplication:
    """An application with its pods.

    `executors` are those of `driver`; `earlier_executors` those of drivers before it, or of one
    that nobody has seen. `resource` is its SparkApplication, None where it has none or that one has
    not been seen (any more). `policy` (`namespace/name`) holds for it, "" when none selects it;
    `overlapping` ones select it too. `footing` is what is wrong, `protected` whether it has its
    sidecar all the same.
    """

    place: Place
    kind: ApplicationKind
    group: str = ""
    driver: PodSeen | None = None
    executors: tuple[PodSeen, ...] = ()
    earlier_drivers: tuple[PodSeen, ...] = ()
    earlier_executors: tuple[PodSeen, ...] = ()
    resource: SparkApplicationSeen | None = None
    policy: str = ""
    overlapping: tuple[str, ...] = ()
    footing: ProtectionReason | None = None

    @property
    def protected(self) -> bool:
        """Whether its driver runs with its sidecar."""
        return self.footing in (None, ProtectionReason.NAME_SHARED)

    @property
    def had_driver(self) -> bool:
        """Whether a driver has run here, by what is left where there is none: the state of the
        SparkApplication, or executors that a pod owns."""
        owned = any(pod.driver_uid for pod in self.earlier_executors)
        return owned or (self.resource is not None and self.resource.had_driver)

    @property
    def pods(self) -> tuple[PodSeen, ...]:
        """All of them, earlier ones included."""
        drivers = () if self.driver is None else (self.driver,)
        return (*drivers, *self.earlier_drivers, *self.executors, *self.earlier_executors)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes with executors of the driver, by their names in Kubernetes."""
        return frozenset(executor.node for executor in self.executors if executor.node)

    @property
    def all_nodes(self) -> frozenset[str]:
        """The same with its driver's."""
        driver = self.driver
        return self.nodes | ({driver.node} if driver is not None and driver.node else set())

    @property
    def orphans(self) -> tuple[PodSeen, ...]:
        """Executors that nobody can use any more: their driver has gone, and another one is there.

        On machines that live they would wait for it for ten minutes, and keep those of the new one
        from their nodes. Younger executors are of a driver that has not been seen yet.
        """
        driver = self.driver
        if driver is None or driver.ended or any(not one.ended for one in self.earlier_drivers):
            return ()
        return tuple(pod for pod in self.earlier_executors if pod.created_at < driver.created_at)

    def executors_on(self, nodes: Container[str]) -> tuple[PodSeen, ...]:
        """All executors on some nodes, earlier ones included; never a driver."""
        return tuple(pod for pod in (*self.executors, *self.earlier_executors) if pod.node in nodes)


def named_place(pod: PodSeen) -> Place | None:
    """The application that a pod itself names, by its SparkApplication or our label."""
    name = pod.resource or pod.application
    return Place(pod.namespace, name) if name else None


def place_of(driver: PodSeen, policies: Policies) -> Place | None:
    """The application of a driver; None for one without a name. `policies` are those of its
    namespace, by name."""
    found = named_place(driver)
    if found is not None:
        return found
    holder, _ = _holder(policies, driver_as_selected(driver))
    drivers = policies[holder.partition("/")[2]].spec.selector.drivers if holder else None
    name = dict(driver.labels).get(drivers.name_label if drivers else NAME_LABEL)
    return Place(driver.namespace, name) if name else None


def bucket(executor: PodSeen) -> str:
    """Where an executor is looked for: one place only, so that it is kept once. "" for one that
    says nothing of itself."""
    if executor.resource:
        return _bucket(executor.group, executor.namespace, executor.resource)
    if executor.driver_uid:
        return _bucket(OWNER, executor.namespace, executor.driver_uid)
    if executor.application:
        return _bucket(APPLICATION_LABEL, executor.namespace, executor.application)
    return _bucket(RUN_LABEL, executor.namespace, executor.run) if executor.run else ""


def buckets(driver: PodSeen, place: Place | None) -> tuple[str, ...]:
    """Everywhere where executors of a driver, of the application of a place, may be."""
    found = [_bucket(OWNER, driver.namespace, driver.uid)]
    if driver.resource:
        found.append(_bucket(driver.group, driver.namespace, driver.resource))
    elif place is not None:
        found.append(_bucket(APPLICATION_LABEL, place.namespace, place.application))
    if driver.run:
        found.append(_bucket(RUN_LABEL, driver.namespace, driver.run))
    return tuple(found)


def named_buckets(place: Place) -> frozenset[str]:
    """Where executors are that name their application themselves, whoever their driver is."""
    kinds = (*SPARK_APPLICATION_GROUPS, APPLICATION_LABEL)
    return frozenset(_bucket(kind, place.namespace, place.application) for kind in kinds)


def pod_buckets(application: MatchedApplication) -> frozenset[str]:
    """Where new pods of an application will be, as far as is known of its driver. As few as
    possible: the record must hold 2,000 applications. Executors of a SparkApplication name it
    themselves, or are owned by its driver's pod."""
    driver, place = application.driver, application.place
    found = {_bucket(application.group or APPLICATION_LABEL, place.namespace, place.application)}
    if driver is None:
        return frozenset(found)
    if application.group:
        return frozenset({*found, _bucket(OWNER, driver.namespace, driver.uid)})
    return frozenset({*found, *buckets(driver, place)})


def driver_of(executor: PodSeen, drivers: Iterable[PodSeen]) -> PodSeen | None:
    """The driver of an executor among those that look for theirs in its bucket: one of its own
    namespace, whatever the executor's pod says of its owner."""
    drivers = [driver for driver in drivers if driver.namespace == executor.namespace]
    if executor.driver_uid:
        return next((driver for driver in drivers if driver.uid == executor.driver_uid), None)
    if executor.submission:
        fitting = [driver for driver in drivers if driver.submission == executor.submission]
    else:
        fitting = [
            driver
            for driver in drivers
            if driver.created_at <= executor.created_at
            and (not driver.run or not executor.run or driver.run == executor.run)
        ]
    return max(fitting, key=_age, default=None)


def join(
    place: Place,
    drivers: Iterable[PodSeen],
    executors: Executors,
    resources: Sequence[SparkApplicationSeen],
    policies: Policies,
) -> MatchedApplication:
    """The application of a place.

    `drivers` are all that go by its name, `executors` all of theirs or of its name, each with its
    driver; `resources` the SparkApplications of its name, of either group; `policies` (name ->
    policy) those of its namespace. The order of none of them matters.
    """
    ordered = sorted(drivers, key=_age)
    driver = ordered[-1] if ordered else None
    alive = sorted((pair for pair in executors if not pair[0].ended), key=_by_number)
    group = _group(driver, resources, [executor for executor, _ in alive])
    resource = next((found for found in resources if found.group == group), None)
    kind: ApplicationKind = "SparkApplication" if group else "Driver"
    subject = _resource_as_selected(place, group, resource) if group else None
    if driver is not None and subject is None:
        subject = driver_as_selected(driver)
    policy, overlapping = _holder(policies, subject) if subject is not None else ("", ())
    return MatchedApplication(
        place=place,
        kind=kind,
        group=group,
        driver=driver,
        executors=tuple(pod for pod, its in alive if _is(its, driver)),
        earlier_drivers=tuple(ordered[:-1]),
        earlier_executors=tuple(pod for pod, its in alive if not _is(its, driver)),
        resource=resource,
        policy=policy,
        overlapping=overlapping,
        footing=judge(ordered, resources),
    )


def _group(
    driver: PodSeen | None, resources: Sequence[SparkApplicationSeen], executors: Sequence[PodSeen]
) -> str:
    """API group of the application's SparkApplication; "" where it has none."""
    if driver is not None:
        return driver.group
    there = {item.group for item in resources} | {pod.group for pod in executors}
    return next((group for group in SPARK_APPLICATION_GROUPS if group in there), "")


def _holder(
    policies: Policies, subject: policy_selection.SelectableApplication
) -> tuple[str, tuple[str, ...]]:
    """The policy that holds, and those that select the application too, as `namespace/name`."""
    found = policy_selection.assign(policies.values(), (subject,))
    holder = next((policy for policy, held in found.holders.items() if held), "")
    return holder, found.overlaps[0].others if found.overlaps else ()


def driver_as_selected(driver: PodSeen) -> policy_selection.SelectableApplication:
    """A driver without a SparkApplication, as policies select it."""
    return policy_selection.SelectableApplication(
        driver.namespace, "Driver", driver.name, dict(driver.labels)
    )


def _resource_as_selected(
    place: Place, group: str, resource: SparkApplicationSeen | None
) -> policy_selection.SelectableApplication:
    """Labels that nobody has seen select nothing; the name still does."""
    labels = dict(resource.labels) if resource is not None else {}
    name = place.application
    return policy_selection.SelectableApplication(
        place.namespace, "SparkApplication", name, labels, group
    )


def _bucket(kind: str, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def _is(pod: PodSeen | None, driver: PodSeen | None) -> bool:
    return pod is not None and driver is not None and pod.uid == driver.uid


def _age(pod: PodSeen) -> tuple[int, str]:
    return pod.created_at, pod.uid


def _by_number(pair: tuple[PodSeen, PodSeen | None]) -> tuple[int, str, str]:
    """Executors in the order of their numbers."""
    executor = pair[0]
    return len(executor.executor_id), executor.executor_id, executor.uid
