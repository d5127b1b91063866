"""Which applications a policy selects, and which policy holds where several select the same.

Of several the oldest holds, so that a new policy never takes an application from one that has
looked after it; of equally old ones the first by name. Pure; `policy_conditions` tells people, the
shell acts on `Assignment.holders`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rekindle.model.reasons import Explained
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.custom_resources import ResourceReason, identity
from rekindle_operator.cluster.pods import APPLICATION_LABEL, PodSeen
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen

# Why an application is not protected, or not in order.
#
# The same form as `rekindle.model.reasons`: a word, and what it means in a line. Says nothing
# about policies that overlap or queries that are unknown: those are in `policy_conditions`.


class ProtectionReason(Explained):
    """A kebab-case word; `meaning` says it in a line."""

    NO_DRIVER = "no-driver", "there is no driver's pod"
    DRIVER_ENDED = "driver-ended", "the newest driver has ended"
    DRIVER_PENDING = "driver-pending", "the driver's pod does not run yet"
    SIDECAR_MISSING = ResourceReason.SIDECAR_MISSING.value, ResourceReason.SIDECAR_MISSING.meaning
    SIDECAR_STARTING = "sidecar-starting", "the driver's sidecar is not ready"
    NAME_SHARED = "name-shared", "several applications or several drivers go by the same name"
    NAME_MISSING = "name-missing", "the driver's pod has no label that names its application"


def judge(
    drivers: Sequence[PodSeen], resources: Sequence[SparkApplicationSeen]
) -> ProtectionReason | None:
    """What is wrong with an application, the worst first; None when nothing is.

    `drivers` are all of its name, the newest last; `resources` the SparkApplications of its name.
    """
    if not drivers:
        return ProtectionReason.NO_DRIVER
    driver = drivers[-1]
    if driver.ended:
        return ProtectionReason.DRIVER_ENDED
    if not driver.node or driver.phase == "Pending":
        return ProtectionReason.DRIVER_PENDING
    if driver.sidecar == "absent":
        return ProtectionReason.SIDECAR_MISSING
    if driver.sidecar == "starting":
        return ProtectionReason.SIDECAR_STARTING
    return ProtectionReason.NAME_SHARED if _is_shared(drivers, resources) else None


def _is_shared(drivers: Sequence[PodSeen], resources: Sequence[SparkApplicationSeen]) -> bool:
    """Two drivers that both run would write to one place in the store. One that is being deleted,
    on a lost node for instance, is on its way out."""
    running = [pod for pod in drivers if not pod.ended and not pod.deleting_at]
    groups = {pod.group for pod in running} | {item.group for item in resources if not item.ended}
    return len(running) > 1 or len(groups) > 1


# No creation time is there only before an object has been stored: such a policy is the newest.
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SelectableApplication:
    """An application as policies see it: labels of the SparkApplication, or of the driver's pod.

    Only the policy that selects a Driver knows which of its labels names it (`nameLabel`): until
    then `name` is the pod's.
    """

    namespace: str
    kind: recovery_policy.ApplicationKind
    name: str
    labels: Mapping[str, str]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """An application that several policies select: `holder` holds, `others` do not, the oldest
    first. Policies as `namespace/name`."""

    application: str
    holder: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """`holders` (policy -> its applications) has every policy; policies as `namespace/name`."""

    holders: Mapping[str, tuple[SelectableApplication, ...]]
    overlaps: tuple[Overlap, ...] = ()


def assign(
    policies: Iterable[recovery_policy.RecoveryPolicy],
    applications: Iterable[SelectableApplication],
) -> Assignment:
    """Each application to the policy that holds for it."""
    ordered = sorted(policies, key=_age)
    by_namespace: dict[str, list[recovery_policy.RecoveryPolicy]] = defaultdict(list)
    for policy in ordered:
        by_namespace[policy.metadata.namespace].append(policy)
    # Dicts for their order: two pods of one driver, the old and the new, are one application.
    holders: dict[str, dict[tuple[str, str], SelectableApplication]] = {
        identity(item): {} for item in ordered
    }
    overlaps: dict[tuple[str, str, str], Overlap] = {}
    for application in applications:
        among = by_namespace.get(application.namespace, ())
        found = [policy for policy in among if selects(policy.spec.selector, application)]
        if not found:
            continue
        its = replace(application, name=called(found[0].spec.selector, application))
        key = (its.group or its.kind, its.name)
        holder, *others = map(identity, found)
        holders[holder].setdefault(key, its)
        if others:
            overlaps[its.namespace, *key] = Overlap(its.name, holder, tuple(others))
    held = {policy: tuple(its.values()) for policy, its in holders.items()}
    return Assignment(holders=held, overlaps=tuple(overlaps.values()))


def called(selector: recovery_policy.Selector, application: SelectableApplication) -> str:
    """The application's name by the policy that selects it; a driver's own word goes before."""
    if application.kind != "Driver" or selector.drivers is None:
        return application.name
    names = (APPLICATION_LABEL, selector.drivers.name_label)
    found = [application.labels[name] for name in names if application.labels.get(name)]
    return found[0] if found else application.name


def selects(selector: recovery_policy.Selector, application: SelectableApplication) -> bool:
    """Whether the selector of a policy of its namespace selects an application."""
    if application.kind == "Driver":
        return selector.drivers is not None and matches(
            selector.drivers.label_selector, application.labels
        )
    wanted = selector.spark_applications
    if wanted is None or application.group not in wanted.groups:
        return False
    by_name = wanted.names is not None and application.name in wanted.names
    return by_name or (
        wanted.label_selector is not None and matches(wanted.label_selector, application.labels)
    )


def matches(selector: recovery_policy.LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether labels meet every requirement, as Kubernetes' own selectors do."""
    same = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return same and all(_meets(labels, item) for item in selector.match_expressions)


def _meets(labels: Mapping[str, str], requirement: recovery_policy.LabelRequirement) -> bool:
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present


def _age(policy: recovery_policy.RecoveryPolicy) -> tuple[datetime, str]:
    metadata = policy.metadata
    return metadata.creation_timestamp or NEVER, metadata.name
