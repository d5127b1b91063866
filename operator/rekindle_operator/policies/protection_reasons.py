"""Why an application is not protected, or not in order.

The same form as `rekindle.model.reasons`: a word, and what it means in a line. Says nothing about
policies that overlap or queries that are unknown: that is `policy_conditions`'s. Pure;
`application_matching` calls it.
"""

from collections.abc import Sequence

from rekindle.model.reasons import Explained
from rekindle_operator.api.conditions import ResourceReason
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.spark_applications import SparkApplicationSeen


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
