"""How applications stand, from policies and recoveries: a row for each application.

Pure; the command `status` shows it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rekindle_operator.api.conditions import (
    ACCEPTED,
    COORDINATION_AT_RISK,
    EXCLUSIVE,
    QUERIES_RUNNING,
    Condition,
)
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.recovery_policy import RecoveryPolicy, SelectedApplication
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.api.recovery_status import ENDED

SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Row:
    """An application. `protected` is None where no policy's status says it; `reason` and `message`
    are why not, or what is not in order. `recovery` is the open one, "" without one, and `phase`
    is "" until somebody has looked at it. `at_risk` is the reason why coordination may fail, ""
    where it may not, None where nobody has looked."""

    namespace: str
    application: str
    kind: str
    policy: str
    protected: bool | None
    reason: str = ""
    message: str = ""
    recovery: str = ""
    phase: str = ""
    back: str = ""
    lost_nodes: int = 0
    story: str = ""
    at_risk: str | None = None


@dataclass(frozen=True, slots=True)
class StatusNotice:
    """Something that a person should know about an object; `reason` as its conditions have it."""

    where: str
    reason: str
    text: str


def rows(policies: Iterable[RecoveryPolicy], recoveries: Iterable[Recovery]) -> tuple[Row, ...]:
    """All applications that a policy's status or an open recovery names, in order."""
    found: dict[tuple[str, str, str], Row] = {}
    for policy in policies:
        for item in policy.status.applications:
            namespace = policy.metadata.namespace
            found[namespace, item.group or item.kind, item.name] = _selected(policy, item)
    for recovery in sorted(recoveries, key=age):
        if recovery.status.phase not in ENDED:
            application = recovery.spec.application
            group = application.group or application.kind
            key = (recovery.metadata.namespace, group, application.name)
            found[key] = _recovering(found.get(key), recovery)
    return tuple(found[key] for key in sorted(found))


def notices(policies: Iterable[RecoveryPolicy]) -> Iterator[StatusNotice]:
    """What is wrong with policies, or not as their authors may think."""
    for policy in policies:
        where, status = f"policy {identity(policy)}", policy.status
        if status.observed_generation < policy.metadata.generation:
            text = "The operator has not looked at it since it was changed; does one run?"
            yield StatusNotice(where, "NotObserved", text)
        if policy.spec.paused:
            yield StatusNotice(where, "Paused", "Nothing is planned or requested.")
        if policy.spec.dry_run:
            yield StatusNotice(where, "DryRun", "Nothing is carried out.")
        for condition in status.conditions:
            if _is_wrong(condition):
                yield StatusNotice(where, condition.reason, condition.message)
        hidden = status.applications_selected - len(status.applications)
        if hidden > 0:
            text = f"{hidden} more applications are selected than its status has room for."
            yield StatusNotice(where, "Cut", text)


def merged(found: Iterable[StatusNotice]) -> tuple[StatusNotice, ...]:
    """The same of several objects said once, in the place of the first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for notice in found:
        groups.setdefault((notice.reason, notice.text), []).append(notice.where)
    return tuple(
        StatusNotice(_all_of(places), reason, text) for (reason, text), places in groups.items()
    )


def _all_of(places: Sequence[str]) -> str:
    hidden = len(places) - SHOWN_MAX
    if hidden < 1:
        return ", ".join(places)
    return f"{', '.join(places[:SHOWN_MAX])} and {hidden} more"


def age(found: Recovery) -> tuple[float, int]:
    """What puts recoveries in order, the newest last."""
    created = found.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0), found.spec.incident


def _selected(policy: RecoveryPolicy, item: SelectedApplication) -> Row:
    return Row(
        namespace=policy.metadata.namespace,
        application=item.name,
        kind=item.kind,
        policy=policy.metadata.name,
        protected=item.protected,
        reason=item.reason or "",
        message=item.message or "",
        at_risk=_risk(policy.status.conditions),
    )


def _recovering(before: Row | None, recovery: Recovery) -> Row:
    spec, status = recovery.spec, recovery.status
    return Row(
        namespace=recovery.metadata.namespace,
        application=spec.application.name,
        kind=spec.application.kind,
        policy=before.policy if before else spec.policy_name,
        protected=before.protected if before else None,
        reason=before.reason if before else "",
        message=before.message if before else "",
        recovery=recovery.metadata.name,
        phase=status.phase or "",
        back=status.back,
        lost_nodes=status.lost_nodes_total,
        story=status.message or "",
        at_risk=_risk(status.conditions) or _risk_before(before, status.conditions),
    )


def _risk_before(before: Row | None, conditions: Sequence[Condition]) -> str | None:
    """What its policy says; where that says nothing, what the recovery does."""
    found = before.at_risk if before else None
    return _risk(conditions) if found is None else found


def _is_wrong(condition: Condition) -> bool:
    """A condition that is not as it should be, or that has a remark."""
    if condition.type == COORDINATION_AT_RISK:
        return condition.status == "True"
    if condition.type == ACCEPTED:
        return condition.status != "True" or condition.reason != "AsWritten"
    return condition.type in (EXCLUSIVE, QUERIES_RUNNING) and condition.status == "False"


def _risk(conditions: Sequence[Condition]) -> str | None:
    """The reason; "" for none, None where no condition says it."""
    for item in conditions:
        if item.type == COORDINATION_AT_RISK and item.status != "Unknown":
            return item.reason if item.status == "True" else ""
    return None
