"""Which applications are protected, and why the others are not, as a policy's status says it.

The words are `footing`'s; conditions are made of this by `policy_conditions`. Pure; the shell calls
it.
"""

from rekindle_operator.api.conditions import camel_case
from rekindle_operator.api.recovery_policy import SelectedApplication
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.pods import APPLICATION_LABEL, PodSeen
from rekindle_operator.policies.protection_reasons import ProtectionReason

__all__ = ["of_application", "of_nameless"]


def of_application(application: MatchedApplication) -> SelectedApplication:
    """The entry of an application that a policy selects."""
    footing = application.footing
    return SelectedApplication(
        kind=application.kind,
        name=application.place.application,
        protected=application.protected,
        group=application.group or None,
        reason=camel_case(footing) if footing else None,
        message=_sentence(application, footing) if footing else None,
    )


def of_nameless(driver: PodSeen) -> SelectedApplication:
    """The entry of a driver that a policy selects, and that nothing names: by its pod's name."""
    footing = ProtectionReason.NAME_MISSING
    return SelectedApplication(
        kind="Driver",
        name=driver.name,
        protected=False,
        reason=camel_case(footing),
        message=f"Driver {driver.name} has no label with its name; give it {APPLICATION_LABEL}.",
    )


def _sentence(application: MatchedApplication, footing: ProtectionReason) -> str:
    whose = application.driver.name if application.driver is not None else ""
    match footing:
        case ProtectionReason.SIDECAR_MISSING:
            return f"Driver {whose} runs without its sidecar; start it again with the webhook up."
        case ProtectionReason.NAME_SHARED:
            names = ", ".join([*(pod.name for pod in application.earlier_drivers), whose])
            return f"Several go by this name (drivers: {names}); give each its own."
    told = f"{footing.meaning[:1].upper()}{footing.meaning[1:]}"
    return f"{told} ({whose})." if whose else f"{told}."
