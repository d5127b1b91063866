"""Whether Rekindle looks after the application: policy, class, the driver's label, its sidecar.

Pure; `inspection` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.injection.terms import INJECT_LABEL
from rekindle_operator.pods import APPLICATION_LABEL, SIDECAR
from rekindle_operator.preflight.findings import Concern, Finding, Severity
from rekindle_operator.preflight.surroundings import Surroundings, class_of, policies_of
from rekindle_operator.preflight.workloads import Workload

__all__ = ["check", "check_cluster"]


def check(application: Workload, around: Surroundings) -> Iterator[Finding]:
    """Who looks after it, then what the driver needs for that."""
    if not application.named:
        yield Finding(
            Concern.NAME_MISSING,
            Severity.ERROR,
            "No label of the driver's pod names its application, so it gets no sidecar.",
            f"give the pod the label {APPLICATION_LABEL}, the same for each start",
        )
    yield from _policies(application, around)
    yield from _sidecar(application)


def check_cluster(around: Surroundings) -> Iterator[Finding]:
    """Whether strangers are kept from the records of applications."""
    classes = (around.classes or {}).items()
    found = sorted(name for name, class_ in classes if not class_.spec.has_store_secret)
    if found:
        yield Finding(
            Concern.STORE_OPEN,
            Severity.WARNING,
            f"Drivers of RecoveryClass {', '.join(found)} reach the coordination store without a "
            "secret, so whoever reaches it does what the operator and all drivers may do there.",
            "close the store, as docs/install.md says under ZooKeeper",
        )


def _policies(application: Workload, around: Surroundings) -> Iterator[Finding]:
    if around.policies is None:
        yield Finding(
            Concern.NOT_CHECKED,
            Severity.NOTE,
            "Policies could not be read, so who looks after it is not known.",
            around.remedy("ask for the right to list recoverypolicies"),
        )
        return
    found = policies_of(application, around.policies)
    if not found:
        yield Finding(
            Concern.NO_POLICY,
            Severity.ERROR,
            f"No RecoveryPolicy of namespace {application.namespace} selects it.",
            "make one, or widen the selector of one that is there; see docs/resources.md",
        )
        return
    holder, *others = found
    if others:
        names = ", ".join(policy.metadata.name for policy in others)
        yield Finding(
            Concern.POLICIES_OVERLAP,
            Severity.WARNING,
            f"Policy {holder.metadata.name} holds; it is selected by {names} too, which do not.",
            "narrow the selectors, or delete what is not meant",
        )
    yield from _class(application, around, holder.spec.class_name)


def _class(application: Workload, around: Surroundings, name: str) -> Iterator[Finding]:
    if around.classes is None:
        yield Finding(
            Concern.NOT_CHECKED,
            Severity.NOTE,
            f"RecoveryClass {name} could not be read, so what the policy may have is not known.",
            around.remedy("ask for the role rekindle-class-reader"),
        )
    elif class_of(application, around) is None:
        yield Finding(
            Concern.CLASS_MISSING,
            Severity.ERROR,
            f"There is no RecoveryClass {name}, so nothing is done for the policy's applications.",
            "make the class, or name one that is there",
        )
    elif not around.classes[name].spec.allows(application.namespace):
        yield Finding(
            Concern.CLASS_NOT_ALLOWED,
            Severity.ERROR,
            f"RecoveryClass {name} is not for namespace {application.namespace}, so nothing is "
            "done for the policy's applications.",
            "name another class, or ask for allowedNamespaces of that one",
        )


def _sidecar(application: Workload) -> Iterator[Finding]:
    """A driver that runs unprotected, and one that would."""
    asks = application.driver_labels.get(INJECT_LABEL) == "true"
    if application.sidecar in ("ready", "starting"):
        return
    if not asks and not application.brings_sidecar:
        where = application.driver_labels_field
        yield Finding(
            Concern.INJECT_LABEL_MISSING,
            Severity.ERROR,
            f'The driver does not ask for a sidecar: {where} have no {INJECT_LABEL}: "true".',
            f'add {INJECT_LABEL}: "true" to {where}; it holds from the next start of the driver',
        )
    elif application.sidecar == "absent":
        yield Finding(
            Concern.SIDECAR_MISSING,
            Severity.ERROR,
            f"The driver asks for a sidecar and runs without {SIDECAR}: the webhook was away when "
            "it was made, or refused.",
            "see that the webhook answers, then start the driver again",
        )
