"""Kubernetes Events from the difference between two statuses.

    before, after ──► announcements ──► objects of events.k8s.io/v1

An announcement has the same name whenever it is made from the same change. So a shell may announce
before it writes the status, be killed, and do so again: the API server refuses the second one of a
name (409), and nothing is told twice or left out. Events go after an hour there, and only then can
the same words come again: what flaps is told once.

A Recovery gets the whole story, its application the few lines that matter to whoever owns it. A
Node gets none, for it belongs to no tenant. Pure; the shell creates the objects.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from rekindle.coordination.application_status import named
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle_operator.api.custom_resources import (
    COORDINATION_AT_RISK,
    Condition,
    camel_case,
    clipped,
)
from rekindle_operator.api.recovery_resource import (
    LostNode,
    NodeRequest,
    PlanMade,
    QueryRecovery,
    RecoveryStatus,
)
from rekindle_operator.recovery.recovery_reasons import RecoveryReason, Word

Type = Literal["Normal", "Warning"]

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
NOTE_BYTES_MAX = 1_000  # the API server takes 1,024
NAME_LENGTH_MAX = 200
DIGEST_LENGTH = 16
SHOWN_MAX = 40
CLUSTER_NAMESPACE = "default"  # where events of objects without a namespace go
ACTION: Final = "Recover"
# phases that somebody has to know of, and whether something is wrong
TOLD_PHASES: dict[str, Type] = {
    "Held": WARNING,
    "AwaitingApproval": WARNING,
    "AwaitingDriver": WARNING,
    "CatchingUp": NORMAL,
    "AwaitingCheckpoint": NORMAL,
    "Recovered": NORMAL,
    "Abandoned": NORMAL,
}
QUIET_PHASES = ("CatchingUp", "AwaitingCheckpoint")
WAITS = tuple(
    camel_case(word)
    for word in (
        Reason.NO_CAPACITY,
        Reason.WAITING_FOR_NODES,
        RecoveryReason.TURN_AWAITED,
        RecoveryReason.DISPLACED,
    )
)
KIND_REASONS = {
    "Suspected": Reason.SUSPECTED_FAILURE,
    "Independent": Reason.INDEPENDENT_FAILURE,
    "Correlated": Reason.CORRELATED_FAILURE,
    "Complete": Reason.COMPLETE_FAILURE,
}


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object that an event is about; `namespace` is empty for one of the cluster."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class KubernetesEvent:
    """An event. `name` is the same for the same change of the same object."""

    about: ObjectReference
    name: str
    type: Type
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Line:
    """Something to tell; `key` tells it from everything else of its object. `wide`: the application
    is told as well."""

    key: str
    type: Type
    reason: str
    message: str
    wide: bool = False


def of_recovery(
    recovery: ObjectReference,
    application: ObjectReference | None,
    before: RecoveryStatus,
    after: RecoveryStatus,
) -> tuple[KubernetesEvent, ...]:
    """What has changed in the story of a Recovery, in the order of its course."""
    lines = (
        *_of_losses(before, after),
        *_of_plans(before, after),
        *_of_requests(before.requests, after.requests),
        *_of_queries(before.queries, after),
        *_of_phase(before, after),
        *_of_risk(before.conditions, after.conditions),
    )
    told = [_announcement(recovery, line, recovery.name) for line in lines]
    if application is not None:
        told += [_announcement(application, line, recovery.name) for line in lines if line.wide]
    return tuple(told)


def of_conditions(
    about: ObjectReference, before: Iterable[Condition], after: Iterable[Condition]
) -> tuple[KubernetesEvent, ...]:
    """Conditions of a policy or class that have another status or reason than before.

    One that is as it should be from the beginning is not told.
    """
    known = {condition.type: condition for condition in before}
    return tuple(
        _announcement(about, _of_condition(condition), "")
        for condition in after
        if _is_news(known.get(condition.type), condition)
    )


def to_object(
    announcement: KubernetesEvent, now: datetime, *, controller: str, instance: str
) -> dict[str, Any]:
    """The Event to create, of events.k8s.io/v1. `controller` is a name such as
    rekindle.dev/operator, `instance` the pod that tells it."""
    about = announcement.about
    regarding = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "namespace": about.namespace,
        "uid": about.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": announcement.name,
            "namespace": about.namespace or CLUSTER_NAMESPACE,
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": controller,
        "reportingInstance": instance,
        "action": ACTION,
        "type": announcement.type,
        "reason": announcement.reason,
        "note": announcement.message,
        "regarding": {key: value for key, value in regarding.items() if value},
    }


def _of_losses(before: RecoveryStatus, after: RecoveryStatus) -> Iterator[_Line]:
    """Nodes that were suspected, lost, cleared, or are back; and another kind of failure."""
    known = {row.name: row for row in before.lost_nodes}
    lost: list[LostNode] = []
    silent: list[LostNode] = []
    back: list[LostNode] = []
    cleared: list[LostNode] = []
    for row in after.lost_nodes:
        old = known.get(row.name)
        begins = old is None or old.back_at is not None
        confirmed = row.confirmed_at is not None
        if row.back_at is not None:
            if old is None or old.back_at != row.back_at:
                (back if confirmed else cleared).append(row)
        elif confirmed:
            if begins or (old is not None and old.confirmed_at is None):
                lost.append(row)
        elif begins:
            silent.append(row)
    if silent:
        text = f"Silent: {_listed(silent)}. Nothing new is placed there."
        yield _line("silent", _marks(silent, known), WARNING, Reason.SUSPECTED_FAILURE, text)
    told = {row.name: row for row in before.announced_nodes}
    fresh = [row for row in after.announced_nodes if row.name not in told and not row.withdrawn]
    if fresh:
        names = named(tuple(f"{clipped(row.name, SHOWN_MAX)} ({row.by})" for row in fresh))
        text = f"Announced to go: {names}. Nothing new is planned there while others are up."
        key = [f"{row.name}@{row.until.isoformat()}" for row in fresh]
        yield _line("announced", key, WARNING, Reason.LOSS_ANNOUNCED, text, wide=True)
    if lost or (after.kind != before.kind and after.kind not in (None, "Suspected")):
        yield _loss(before, after, lost)
    if cleared:
        text = f"Heard of again: {_listed(cleared)}."
        yield _line("cleared", _marks(cleared, known), NORMAL, Reason.SUSPICION_CLEARED, text)
    if back:
        text = f"Back: {_listed(back)}."
        yield _line("back", _marks(back, known), NORMAL, Reason.NODE_BACK, text)


def _loss(before: RecoveryStatus, after: RecoveryStatus, lost: list[LostNode]) -> _Line:
    kind = after.kind or "Suspected"
    known = {row.name: row for row in before.queries}
    stopped = tuple(
        row.name
        for row in after.queries
        if row.lost_at is not None
        and (row.name not in known or known[row.name].lost_at != row.lost_at)
    )
    nodes = counted(after.lost_nodes_total, "node")
    sentences = [f"The failure is {kind.lower()}: {nodes} lost."]
    if lost:
        sentences.append(f"Lost now: {_listed(lost)}.")
    if after.moved_partitions > before.moved_partitions:
        moved = counted(after.moved_partitions, "partition")
        sentences.append(f"{moved} had moved off announced nodes before.")
    if stopped:
        sentences.append(f"Lost queries: {named(stopped)}.")
    key = (kind, *_marks(lost, {row.name: row for row in before.lost_nodes}))
    return _line("lost", key, WARNING, KIND_REASONS[kind], " ".join(sentences), wide=True)


def _of_plans(before: RecoveryStatus, after: RecoveryStatus) -> Iterator[_Line]:
    known = {row.number: row for row in before.plans}
    newest = max(known, default=0)
    for row in after.plans:
        if row.number > newest:
            yield _Line(f"plan/{row.number}/{row.text}", NORMAL, row.reason, row.text)
        old = known.get(row.number)
        if row.refused is not None and (old is None or old.refused is None):
            yield _refused(row)


def _refused(row: PlanMade) -> _Line:
    text = f"Plan {row.number} was not carried out: {row.refused}"
    return _line("refused", (row.number,), WARNING, RecoveryReason.PLAN_REFUSED, text)


def _of_requests(
    before: tuple[NodeRequest, ...], after: tuple[NodeRequest, ...]
) -> Iterator[_Line]:
    known = {row.name: row for row in before}
    fresh = [row for row in after if row.name not in known]
    if fresh:
        count = counted(sum(row.count for row in fresh), "node")
        domains = tuple(dict.fromkeys(name for row in fresh for name in row.outside_domains))
        where = f" outside of {named(domains)}" if domains else ""
        by = named(tuple(dict.fromkeys(row.provider for row in fresh)))
        text = f"Requested: {count}{where} ({by})."
        names = [row.name for row in fresh]
        yield _line("requested", names, NORMAL, RecoveryReason.NODES_REQUESTED, text)
    for row in after:
        old = known.get(row.name)
        if old is not None and old.outcome == row.outcome:
            continue
        about = f"{row.name} ({row.provider})"
        if row.outcome == "Failed":
            text = f"The request {about} has failed: {row.message or 'no reason is given.'}"
            yield _line("failed", (row.name,), WARNING, RecoveryReason.REQUEST_FAILED, text)
        elif row.outcome == "Arrived":
            text = f"The request {about} has been met."
            yield _line("arrived", (row.name,), NORMAL, RecoveryReason.NODES_ARRIVED, text)


def _of_queries(before: Iterable[QueryRecovery], after: RecoveryStatus) -> Iterator[_Line]:
    known = {row.name: row for row in before}
    back = tuple(
        row
        for row in after.queries
        if row.back_at is not None
        and (row.name not in known or known[row.name].back_at != row.back_at)
    )
    if back:
        text = f"Back: {named(tuple(row.name for row in back))}; {after.back} queries."
        key = [f"{row.name}@{row.lost_at}" for row in back]
        yield _line("queries", key, NORMAL, Reason.QUERY_CAUGHT_UP, text)


def _of_phase(before: RecoveryStatus, after: RecoveryStatus) -> Iterator[_Line]:
    """A phase that somebody has to know of, and why what waits does so."""
    phase, reason = after.phase, after.reason
    if phase is None or reason is None or (phase, reason) == (before.phase, before.reason):
        return
    key = f"phase/{phase}/{reason}/{after.plans_total}/{after.lost_nodes_total}/{after.back}"
    text = after.message or phase
    if phase in TOLD_PHASES:
        yield _Line(key, TOLD_PHASES[phase], reason, text, wide=phase not in QUIET_PHASES)
    elif phase == "Recovering" and reason in WAITS:
        wide = reason == camel_case(RecoveryReason.DISPLACED)
        yield _Line(key, WARNING, reason, text, wide=wide)


def _of_risk(before: Iterable[Condition], after: Iterable[Condition]) -> Iterator[_Line]:
    """The one condition of a Recovery that its phase does not tell."""
    known = {condition.type: condition for condition in before}
    for condition in after:
        if condition.type == COORDINATION_AT_RISK and _is_news(
            known.get(condition.type), condition
        ):
            yield _of_condition(condition)


def _of_condition(condition: Condition) -> _Line:
    kind, status = condition.type, condition.status
    key = f"condition/{kind}/{status}/{condition.reason}/{condition.message}"
    severity: Type = NORMAL if _is_well(condition) else WARNING
    return _Line(key, severity, condition.reason, f"{kind} is {status}: {condition.message}")


def _is_news(before: Condition | None, condition: Condition) -> bool:
    if before is None:
        return not _is_well(condition) and condition.status != "Unknown"
    return (before.status, before.reason) != (condition.status, condition.reason)


def _is_well(condition: Condition) -> bool:
    return condition.status == ("False" if condition.type == COORDINATION_AT_RISK else "True")


def _marks(rows: Iterable[LostNode], known: Mapping[str, LostNode]) -> list[str]:
    """Which nodes, and how they were told before: that is the same for whoever tells it again."""
    marks = []
    for row in rows:
        old = known.get(row.name)
        told = () if old is None else (old.suspected_at, old.confirmed_at, old.back_at)
        marks.append(f"{row.name}@{told}")
    return marks


def _listed(rows: Iterable[LostNode]) -> str:
    """Nodes by their domain, so that a person sees at once what they have in common."""
    domains: dict[str, list[str]] = {}
    for row in rows:
        domains.setdefault(row.domain or "", []).append(clipped(row.name, SHOWN_MAX))
    parts = []
    for domain, names in sorted(domains.items()):
        parts.append(named(tuple(names)) + (f" in {domain}" if domain else ""))
    return "; ".join(parts)


def _line(
    what: str,
    key: Iterable[object],
    severity: Type,
    word: Word,
    text: str,
    *,
    wide: bool = False,
) -> _Line:
    return _Line("/".join((what, *map(str, key))), severity, camel_case(word), text, wide)


def _announcement(about: ObjectReference, line: _Line, story: str) -> KubernetesEvent:
    """Named after its object, what it tells, and the story that it is from."""
    identity = (about.kind, about.uid, story, line.reason, line.key)
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:DIGEST_LENGTH]
    return KubernetesEvent(
        about=about,
        name=f"{about.name[:NAME_LENGTH_MAX].rstrip('-.')}.{digest}",
        type=line.type,
        reason=line.reason,
        message=_fitting(line.message),
    )


def _fitting(text: str) -> str:
    """A text that is short enough in UTF-8, where the API server counts bytes."""
    data = text.encode()
    if len(data) <= NOTE_BYTES_MAX:
        return text
    return data[: NOTE_BYTES_MAX - 3].decode(errors="ignore") + "…"
