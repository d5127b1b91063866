"""Whether Rekindle looks after the application: policy, class, the driver's label, its sidecar.

Pure; `preflight_checks` calls it.
"""

from collections.abc import Iterator

from rekindle_operator.cluster.pods import APPLICATION_LABEL, SIDECAR
from rekindle_operator.preflight.preflight_findings import (
    Concern,
    PreflightFinding,
    PreflightSeverity,
)
from rekindle_operator.preflight.subjects.environment import (
    PreflightEnvironment,
    class_of,
    policies_of,
)
from rekindle_operator.preflight.subjects.workloads import Workload
from rekindle_operator.webhook.injection_spec import INJECT_LABEL


def check(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Who looks after it, then what the driver needs for that."""
    if not application.named:
        yield PreflightFinding(
            Concern.NAME_MISSING,
            PreflightSeverity.ERROR,
            "No label of the driver's pod names its application, so it gets no sidecar.",
            f"give the pod the label {APPLICATION_LABEL}, the same for each start",
        )
    yield from _policies(application, around)
    yield from _sidecar(application)


def check_cluster(around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    """Whether the webhook answers, and strangers are kept from the records of applications."""
    for seen in _webhook_away(around):
        yield PreflightFinding(
            Concern.WEBHOOK_AWAY,
            PreflightSeverity.ERROR,
            f"No replica of the webhook is available ({seen}), so drivers come up without their "
            "sidecar.",
            "see docs/runbooks/RekindleWebhookAbsent.md",
        )
    classes = (around.classes or {}).items()
    found = sorted(name for name, class_ in classes if not class_.spec.has_store_secret)
    if found:
        yield PreflightFinding(
            Concern.STORE_OPEN,
            PreflightSeverity.WARNING,
            f"Drivers of RecoveryClass {', '.join(found)} reach the coordination store without a "
            "secret, so whoever reaches it does what the operator and all drivers may do there.",
            "close the store, as docs/install.md says under ZooKeeper",
        )
    plain = sorted(name for name, class_ in classes if not class_.spec.has_store_tls)
    if plain:
        yield PreflightFinding(
            Concern.STORE_PLAINTEXT,
            PreflightSeverity.WARNING,
            f"Drivers of RecoveryClass {', '.join(plain)} reach the coordination store in plain "
            "text, so whoever reads packets on the way has their credentials and records.",
            "set sidecar.store.caSecretRef, as docs/install.md says under ZooKeeper, unless a mesh "
            "encrypts the way",
        )


def _webhook_away(around: PreflightEnvironment) -> list[str]:
    """By what it is known that the webhook is away: its Deployment, or, for who may not list those,
    what the operator has written into a policy; nothing where it is there."""
    if around.webhooks is not None:
        return [f"Deployment {name}" for name, up in sorted(around.webhooks.items()) if not up]
    told = [
        f"webhookAway of policy {policy.metadata.name}"
        for policy in around.policies or ()
        if policy.status.webhook_away
    ]
    return sorted(told)[:1]


def _policies(application: Workload, around: PreflightEnvironment) -> Iterator[PreflightFinding]:
    if around.policies is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            "Policies could not be read, so who looks after it is not known.",
            around.remedy("ask for the right to list recoverypolicies"),
        )
        return
    found = policies_of(application, around.policies)
    if not found:
        yield PreflightFinding(
            Concern.NO_POLICY,
            PreflightSeverity.ERROR,
            f"No RecoveryPolicy of namespace {application.namespace} selects it.",
            "make one, or widen the selector of one that is there; see docs/resources.md",
        )
        return
    holder, *others = found
    if others:
        names = ", ".join(policy.metadata.name for policy in others)
        yield PreflightFinding(
            Concern.POLICIES_OVERLAP,
            PreflightSeverity.WARNING,
            f"Policy {holder.metadata.name} holds; it is selected by {names} too, which do not.",
            "narrow the selectors, or delete what is not meant",
        )
    yield from _class(application, around, holder.spec.class_name)


def _class(
    application: Workload, around: PreflightEnvironment, name: str
) -> Iterator[PreflightFinding]:
    if around.classes is None:
        yield PreflightFinding(
            Concern.NOT_CHECKED,
            PreflightSeverity.NOTE,
            f"RecoveryClass {name} could not be read, so what the policy may have is not known.",
            around.remedy("ask for the role rekindle-class-reader"),
        )
    elif class_of(application, around) is None:
        yield PreflightFinding(
            Concern.CLASS_MISSING,
            PreflightSeverity.ERROR,
            f"There is no RecoveryClass {name}, so nothing is done for the policy's applications.",
            "make the class, or name one that is there",
        )
    elif not around.classes[name].spec.allows(application.namespace):
        yield PreflightFinding(
            Concern.CLASS_NOT_ALLOWED,
            PreflightSeverity.ERROR,
            f"RecoveryClass {name} is not for namespace {application.namespace}, so nothing is "
            "done for the policy's applications.",
            "name another class, or ask for allowedNamespaces of that one",
        )


def _sidecar(application: Workload) -> Iterator[PreflightFinding]:
    """A driver that runs unprotected, and one that would."""
    asks = application.driver_labels.get(INJECT_LABEL) == "true"
    if application.sidecar in ("ready", "starting"):
        return
    if not asks and not application.brings_sidecar:
        where = application.driver_labels_field
        yield PreflightFinding(
            Concern.INJECT_LABEL_MISSING,
            PreflightSeverity.ERROR,
            f'The driver does not ask for a sidecar: {where} have no {INJECT_LABEL}: "true".',
            f'add {INJECT_LABEL}: "true" to {where}; it holds from the next start of the driver',
        )
    elif application.sidecar == "absent":
        yield PreflightFinding(
            Concern.SIDECAR_MISSING,
            PreflightSeverity.ERROR,
            f"The driver asks for a sidecar and runs without {SIDECAR}: the webhook was away when "
            "it was made, or refused.",
            "see that the webhook answers, then start the driver again",
        )
