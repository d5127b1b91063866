"""Builds the next status of a Recovery: `tell(before, scene, now)`.

    before ──► nodes, driver, requests, plans, queries ──► phase, conditions ──► limits ──► news?

What comes out is what the API server will give back, to the letter, so a status in memory and one
that was read again are the same. The operator's shell reads the status before it decides, calls
this afterwards, and writes what is new on condition that the object is still the one that it has
read: an operator that stood still for a while must not tell of what was before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from rekindle.coordination import coordination_state, directives, next_plan, session
from rekindle.model.incidents import IncidentKind
from rekindle_operator.api import custom_resources
from rekindle_operator.api.custom_resources import ConditionFinding, camel_case, clipped
from rekindle_operator.api.recovery_resource import (
    ENDED,
    LostNode,
    NodeRequest,
    RecoveryStatus,
    bounded_losses,
    to_status,
)
from rekindle_operator.recovery import lost_nodes, recovery_phases, status_rows
from rekindle_operator.recovery.lost_nodes import concerns
from rekindle_operator.recovery.recovery_inputs import ClusterFacts, RecoveryInputs, moment
from rekindle_operator.recovery.recovery_phases import PhaseReason
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

ROWS_MAX = 100
COUNT_MAX = 5_000
DOMAIN_LENGTH_MAX = 63
DOMAINS_MAX = 20
PENDING: Final = "Pending"


# Requests for nodes, and what became of them.
#
# Providers that make objects tell their own rows. Where the default does, by pending pods, there
# are none: the core's requests are told as they are, for as long as nodes are missing. A row that
# nobody asks for any more has arrived when nothing is missing, and was withdrawn otherwise.


def requests(
    before: tuple[NodeRequest, ...], scene: RecoveryInputs, now: float
) -> tuple[NodeRequest, ...]:
    """The rows after a look, in order of time."""
    rows = {row.name: row for row in before}
    given = tuple(_given(scene, now))
    oldest = min(map(_order, before)) if len(before) >= ROWS_MAX else None
    for row in given:
        known = rows.get(row.name)
        if known is not None:
            rows[row.name] = msgspec.structs.replace(row, requested_at=known.requested_at)
        elif oldest is None or _order(row) > oldest:
            # one that gave way for newer ones does not come back
            rows[row.name] = row
    still = {row.name for row in given}
    for name, row in rows.items():
        if name not in still and row.outcome == PENDING:
            rows[name] = _ended(row, scene, moment(now))
    return tuple(sorted(rows.values(), key=_order))


def added(before: Iterable[NodeRequest], rows: Iterable[NodeRequest]) -> int:
    """How many nodes were requested since `before`."""
    known = {row.name for row in before}
    return sum(row.count for row in rows if row.name not in known)


def _given(scene: RecoveryInputs, now: float) -> Iterator[NodeRequest]:
    """What is asked for now."""
    if scene.requests is not None:
        yield from scene.requests
        return
    asked: Mapping[str, directives.NodeRequestOrder] = scene.decision.case.requests
    for identity, request in sorted(asked.items()):
        if request.what == "nodes" and identity.startswith(f"{scene.incident}-"):
            outside = sorted(set(scene.cluster.domains_avoided))
            yield NodeRequest(
                name=identity,
                provider=scene.provider,
                count=min(request.count, COUNT_MAX),
                outcome=PENDING,
                requested_at=moment(now),
                outside_domains=tuple(
                    clipped(name, DOMAIN_LENGTH_MAX) for name in outside[:DOMAINS_MAX]
                ),
                reason=camel_case(request.reason),
            )


def _ended(row: NodeRequest, scene: RecoveryInputs, at: datetime) -> NodeRequest:
    state = scene.state
    met = next_plan.nodes_missing(state) <= 0 and scene.driver is not session.Driver.FINISHED
    return msgspec.structs.replace(row, outcome="Arrived" if met else "Withdrawn", ended_at=at)


def _order(row: NodeRequest) -> tuple[datetime, str]:
    return row.requested_at, row.name


Kind = Literal["Suspected", "Independent", "Correlated", "Complete"]
KINDS: Mapping[IncidentKind, Kind] = {
    IncidentKind.SUSPECTED: "Suspected",
    IncidentKind.INDEPENDENT: "Independent",
    IncidentKind.CORRELATED: "Correlated",
    IncidentKind.COMPLETE: "Complete",
}


@dataclass(frozen=True, slots=True)
class StatusChange:
    """The status from now on, and whether it is another one than before."""

    status: RecoveryStatus
    news: bool


def subject(state: coordination_state.CoordinationState, cluster: ClusterFacts) -> int | None:
    """The number of the incident that there is something to tell about, None where there is none.

    Suspicions belong to the incident that they may become; a loss is for the core to say, and one
    that the application has recovered from is told already. Executors that a drain has taken are
    no failure: what they ran is brought back, and nobody needs to hear of it, unless a notice came
    before.
    """
    incident = state.incident
    if incident is not None:
        hosts = cluster.lost_hosts(incident)
        drained = (
            not incident.announced
            and incident.kind is IncidentKind.INDEPENDENT
            and all(hosts.get(node) in cluster.left for node in incident.lost)
        )
        return None if drained else incident.number
    silent = coordination_state.with_status(state, coordination_state.NodeStatus.SUSPECTED)
    sightings = (cluster.sightings or {}).items()
    if silent or any(
        item.is_suspected and concerns(name, item, state, cluster) for name, item in sightings
    ):
        return state.incidents + 1
    return None


def tell(before: RecoveryStatus, scene: RecoveryInputs, now: float) -> StatusChange:
    """The status after a look at `now` (seconds since 1970).

    A story that has ended goes on only when nothing had been lost: the next failure has its number;
    or when its application was gone and is back in the same incident. A scene that is older than
    the story tells nothing.
    """
    if _is_outdated(before, scene):
        return StatusChange(before, news=False)
    if before.has_ended:
        again = before.kind == "Suspected" and _goes_on(before, scene, now)
        if not again and not _is_back(before, scene, now):
            return StatusChange(before, news=False)
        started_at = None if again else before.started_at
        before = msgspec.structs.replace(before, phase=None, started_at=started_at, ended_at=None)
    lost = lost_nodes.lost_nodes(before.lost_nodes, scene, now)
    asked = requests(before.requests, scene, now)
    made = status_rows.plans(before.plans, before.plans_dropped, scene, now)
    after = msgspec.structs.replace(
        before,
        observed_generation=scene.generation,
        kind=_kind(before, scene),
        dry_run=scene.terms.dry_run,
        started_at=before.started_at or _started_at(lost, scene, now),
        domains_impaired=_domains(before, scene),
        lost_nodes=bounded_losses(lost),
        announced_nodes=lost_nodes.announced(before.announced_nodes, lost, scene),
        **_saved(before, scene),
        lost_nodes_total=lost_nodes.lost_total(before.lost_nodes_total, lost, scene),
        driver=lost_nodes.driver(before.driver, scene, now),
        requests=asked,
        nodes_requested=before.nodes_requested + added(before.requests, asked),
        plans=made,
        plans_total=before.plans_dropped + len(made),
        queries=status_rows.queries(before.queries, made, scene, now),
    )
    stage = recovery_phases.stage(after, lost, scene)
    if stage.phase in ENDED:
        after = msgspec.structs.replace(after, ended_at=_ended_at(after, stage, scene, now))
    said = recovery_phases.findings(stage, after, scene)
    return _told(before, _staged(after, stage, said, scene.generation, now))


def abandon(before: RecoveryStatus, word: RecoveryReason, text: str, now: float) -> StatusChange:
    """The end of a story that nobody can go on with: its application, or its policy, is gone."""
    if before.has_ended:
        return StatusChange(before, news=False)
    stage = PhaseReason("Abandoned", word, text)
    after = msgspec.structs.replace(before, ended_at=moment(now))
    said = (recovery_phases.over(stage),)
    return _told(before, _staged(after, stage, said, before.observed_generation, now))


def _kind(before: RecoveryStatus, scene: RecoveryInputs) -> Kind | None:
    """The kind of failure. None while losses are only announced: the release before knows no word
    for that."""
    if scene.open is not None:
        return KINDS.get(scene.open.kind)
    return before.kind or (None if scene.begun else "Suspected")


def _saved(before: RecoveryStatus, scene: RecoveryInputs) -> dict[str, Any]:
    """What has moved off announced nodes before they were lost, and what did not stop by that."""
    if scene.open is None:
        return {}
    saved = scene.open.saved
    priority = sum(scene.state.priorities.get(name, 0.0) for name in saved)
    return {
        "moved_partitions": max(before.moved_partitions, len(scene.open.moved)),
        "saved_query_partitions": max(before.saved_query_partitions, len(saved)),
        "saved_priority": max(before.saved_priority, priority),
    }


def _is_outdated(before: RecoveryStatus, scene: RecoveryInputs) -> bool:
    """Whether somebody has told of what the scene does not know yet."""
    begun = before.kind not in (None, "Suspected")
    newest = 0 if before.dry_run else max((plan.number for plan in before.plans), default=0)
    return (begun and not scene.begun) or scene.state.plan_epoch < newest


def _goes_on(before: RecoveryStatus, scene: RecoveryInputs, now: float) -> bool:
    """Whether what was a mere suspicion has become one again, or a loss."""
    if scene.driver is session.Driver.FINISHED:
        return False
    if scene.begun:
        return scene.open is not None
    rows = lost_nodes.lost_nodes(before.lost_nodes, scene, now)
    return bool(lost_nodes.suspected(rows))


def _is_back(before: RecoveryStatus, scene: RecoveryInputs, now: float) -> bool:
    """Whether an application that was gone is there again, and its incident goes on, as with a
    driver that is submitted anew under its name. What was seen before it went does not count."""
    gone = before.phase == "Abandoned" and before.reason == camel_case(
        RecoveryReason.APPLICATION_GONE
    )
    is_later = before.ended_at is not None and moment(now) > before.ended_at
    is_open = scene.open is not None and scene.driver is not session.Driver.FINISHED
    return gone and is_later and is_open


def _staged(
    after: RecoveryStatus,
    stage: PhaseReason,
    said: tuple[ConditionFinding, ...],
    generation: int,
    now: float,
) -> RecoveryStatus:
    return msgspec.structs.replace(
        after,
        phase=stage.phase,
        reason=camel_case(stage.word),
        message=stage.text,
        conditions=custom_resources.updated(after.conditions, said, generation, moment(now)),
    )


def _told(before: RecoveryStatus, after: RecoveryStatus) -> StatusChange:
    """As the API server will give it back."""
    status = msgspec.convert(to_status(after), RecoveryStatus)
    return StatusChange(status, news=status != before)


def _started_at(rows: tuple[LostNode, ...], scene: RecoveryInputs, now: float) -> datetime:
    """The first suspicion or loss that is not over."""
    begins = [row.suspected_at or row.confirmed_at for row in rows if row.back_at is None]
    known = [at for at in begins if at is not None]
    if scene.open is not None:
        known.append(moment(scene.open.began_at))
    return min(known, default=moment(now))


def _ended_at(
    status: RecoveryStatus, stage: PhaseReason, scene: RecoveryInputs, now: float
) -> datetime:
    """When it was over: a recovery ends with a checkpoint."""
    at = scene.state.last_checkpoint_at
    if stage.phase != "Recovered" or at is None:
        return moment(now)
    closed, started = moment(at), status.started_at
    return closed if started is not None and started <= closed <= moment(now) else moment(now)


def _domains(before: RecoveryStatus, scene: RecoveryInputs) -> str:
    """The impaired domains; those of an incident that is over stay."""
    if scene.open is None and scene.begun:
        return before.domains_impaired
    domains = scene.cluster.domains_impaired
    if domains is None:
        domains = () if scene.open is None else scene.open.domains
    return ",".join(domains)
