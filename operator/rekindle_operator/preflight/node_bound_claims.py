"""Claims that only one node can have, so that a lost node keeps them.

A volume that is read and written from one node stays attached to a lost node until that is known to
be off, 6 minutes by default. Pure; `preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment
from rekindle_operator.preflight.subjects.volume_claims import MountedClaim
from rekindle_operator.preflight.subjects.workloads import Workload

SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
REUSE = "spark.kubernetes.driver.reusePersistentVolumeClaim"
OWNED = "spark.kubernetes.driver.ownPersistentVolumeClaim"


def check(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Each claim once, executors' with the worst that can become of them."""
    seen: set[tuple[str, str]] = set()
    for claim in application.claims:
        if (claim.role, claim.name) in seen:
            continue
        seen.add((claim.role, claim.name))
        if claim.per_pod:
            yield from _per_pod(claim, application)
        else:
            yield from _shared(claim, around)


def _per_pod(claim: MountedClaim, application: Workload) -> Iterator[PreflightFinding]:
    """A claim that is made with each pod; the driver takes those of lost executors again."""
    if claim.role == "driver":
        return
    conf = application.conf or {}
    reused = "false" not in (conf.get(REUSE, "true").lower(), conf.get(OWNED, "true").lower())
    if reused:
        yield PreflightFinding(
            Concern.CLAIM_PER_EXECUTOR,
            PreflightSeverity.WARNING,
            f"Each executor has a claim of its own ({claim.field}), and Spark gives those of lost "
            "executors to their replacements: these wait where the volume is, in the lost domain.",
            f"set {REUSE} to false, or keep scratch data in an emptyDir",
        )


def _shared(claim: MountedClaim, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    if around.claims is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            f"Claim {claim.name} of the {claim.role} ({claim.field}) could not be read.",
            f"see that its access mode is ReadWriteMany, or that the {claim.role} needs no volume",
        )
        return
    modes = around.claims.get(claim.name)
    if modes is None:
        yield PreflightFinding(
            Concern.CLAIM_MISSING,
            PreflightSeverity.ERROR,
            f"There is no claim {claim.name}, which the {claim.role} mounts ({claim.field}).",
            "make the claim, or mend its name",
        )
    elif not SHARED & frozenset(modes):
        yield _once(claim, ", ".join(modes) or "no access mode")


def _once(claim: MountedClaim, modes: str) -> PreflightFinding:
    if claim.role == "executor":
        return PreflightFinding(
            Concern.CLAIM_READ_WRITE_ONCE,
            PreflightSeverity.ERROR,
            f"All executors mount claim {claim.name} ({claim.field}), which is {modes}: they "
            "start on one node only, and after its loss on none.",
            "use a ReadWriteMany claim, or keep data in an object store",
        )
    return PreflightFinding(
        Concern.CLAIM_READ_WRITE_ONCE,
        PreflightSeverity.WARNING,
        f"The driver mounts claim {claim.name} ({claim.field}), which is {modes}: when its node is "
        "lost, the next driver waits 6 minutes for the volume, or until the node is fenced.",
        "use a ReadWriteMany claim, or keep checkpoints in an object store",
    )
