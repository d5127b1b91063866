"""The next status of a Recovery: `tell(before, scene, now)`.

    before ──► nodes, driver, requests, plans, queries ──► phase, conditions ──► limits ──► news?

What comes out is what the API server will give back, to the letter, so a status in memory and one
that was read again are the same. The operator's shell reads the status before it decides, calls
this afterwards, and writes what is new on condition that the object is still the one that it has
read: an operator that stood still for a while must not tell of what was before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from rekindle.coordination.application import Driver
from rekindle.coordination.state import State, Status, with_status
from rekindle.incidents import Kind
from rekindle_operator import conditions
from rekindle_operator.conditions import Finding, camel_case
from rekindle_operator.stories import ENDED, LostNode, RecoveryStatus, to_status
from rekindle_operator.story import nodes, phases, plans, queries, requests
from rekindle_operator.story.phases import Stage
from rekindle_operator.story.scene import Cluster, Scene, moment
from rekindle_operator.story.sightings import concerns
from rekindle_operator.story.words import Course

__all__ = ["Told", "abandon", "subject", "tell"]

KINDS: Mapping[Kind, Literal["Suspected", "Independent", "Correlated", "Complete"]] = {
    Kind.SUSPECTED: "Suspected",
    Kind.INDEPENDENT: "Independent",
    Kind.CORRELATED: "Correlated",
    Kind.COMPLETE: "Complete",
}


@dataclass(frozen=True, slots=True)
class Told:
    """The status from now on, and whether it is another one than before."""

    status: RecoveryStatus
    news: bool


def subject(state: State, cluster: Cluster) -> int | None:
    """The number of the incident that there is something to tell about, None where there is none.

    Suspicions belong to the incident that they may become; a loss is for the core to say, and one
    that the application has recovered from is told already. Executors that a drain has taken are
    no failure: what they ran is brought back, and nobody needs to hear of it.
    """
    incident = state.incident
    if incident is not None:
        drained = incident.kind is Kind.INDEPENDENT and all(
            cluster.host(node) in cluster.left for node in incident.lost
        )
        return None if drained else incident.number
    silent = with_status(state, Status.SUSPECTED)
    sightings = (cluster.sightings or {}).items()
    if silent or any(
        item.is_suspected and concerns(name, item, state, cluster) for name, item in sightings
    ):
        return state.incidents + 1
    return None


def tell(before: RecoveryStatus, scene: Scene, now: float) -> Told:
    """The status after a look at `now` (seconds since 1970).

    A story that has ended goes on only when nothing had been lost: the next failure has its number.
    A scene that is older than the story tells nothing.
    """
    if _is_outdated(before, scene):
        return Told(before, news=False)
    if before.phase in ENDED:
        again = before.kind == "Suspected" and _goes_on(before, scene, now)
        if not again:
            return Told(before, news=False)
        before = msgspec.structs.replace(before, phase=None, started_at=None, ended_at=None)
    lost = nodes.lost_nodes(before.lost_nodes, scene, now)
    asked = requests.requests(before.requests, scene, now)
    made = plans.plans(before.plans, before.plans_dropped, scene, now)
    incident = scene.open
    after = msgspec.structs.replace(
        before,
        observed_generation=scene.generation,
        kind=before.kind or "Suspected" if incident is None else KINDS[incident.kind],
        dry_run=scene.terms.dry_run,
        started_at=before.started_at or _started_at(lost, scene, now),
        domains_impaired=_domains(before, scene),
        lost_nodes=lost,
        lost_nodes_total=nodes.lost_total(before.lost_nodes_total, lost, scene),
        driver=nodes.driver(before.driver, scene, now),
        requests=asked,
        nodes_requested=before.nodes_requested + requests.added(before.requests, asked),
        plans=made,
        plans_total=before.plans_dropped + len(made),
        queries=queries.queries(before.queries, made, scene, now),
    )
    stage = phases.stage(after, lost, scene)
    if stage.phase in ENDED:
        after = msgspec.structs.replace(after, ended_at=_ended_at(after, stage, scene, now))
    said = phases.findings(stage, lost, scene)
    return _told(before, _staged(after, stage, said, scene.generation, now))


def abandon(before: RecoveryStatus, text: str, now: float) -> Told:
    """The end of a story whose application is not there any more."""
    if before.phase in ENDED:
        return Told(before, news=False)
    stage = Stage("Abandoned", Course.APPLICATION_GONE, text)
    after = msgspec.structs.replace(before, ended_at=moment(now))
    said = (phases.over(stage),)
    return _told(before, _staged(after, stage, said, before.observed_generation, now))


def _is_outdated(before: RecoveryStatus, scene: Scene) -> bool:
    """Whether somebody has told of what the scene does not know yet."""
    begun = before.kind not in (None, "Suspected")
    newest = 0 if before.dry_run else max((plan.number for plan in before.plans), default=0)
    return (begun and not scene.begun) or scene.state.plan_epoch < newest


def _goes_on(before: RecoveryStatus, scene: Scene, now: float) -> bool:
    """Whether what was a mere suspicion has become one again, or a loss."""
    if scene.driver is Driver.FINISHED:
        return False
    if scene.begun:
        return scene.open is not None
    rows = nodes.lost_nodes(before.lost_nodes, scene, now)
    return bool(nodes.suspected(rows))


def _staged(
    after: RecoveryStatus,
    stage: Stage,
    said: tuple[Finding, ...],
    generation: int,
    now: float,
) -> RecoveryStatus:
    return msgspec.structs.replace(
        after,
        phase=stage.phase,
        reason=camel_case(stage.word),
        message=stage.text,
        conditions=conditions.updated(after.conditions, said, generation, moment(now)),
    )


def _told(before: RecoveryStatus, after: RecoveryStatus) -> Told:
    """As the API server will give it back."""
    status = msgspec.convert(to_status(after), RecoveryStatus)
    return Told(status, news=status != before)


def _started_at(rows: tuple[LostNode, ...], scene: Scene, now: float) -> datetime:
    """The first suspicion or loss that is not over."""
    begins = [row.suspected_at or row.confirmed_at for row in rows if row.back_at is None]
    known = [at for at in begins if at is not None]
    if scene.open is not None:
        known.append(moment(scene.open.began_at))
    return min(known, default=moment(now))


def _ended_at(status: RecoveryStatus, stage: Stage, scene: Scene, now: float) -> datetime:
    """When it was over: a recovery ends with a checkpoint."""
    at = scene.state.last_checkpoint_at
    if stage.phase != "Recovered" or at is None:
        return moment(now)
    closed, started = moment(at), status.started_at
    return closed if started is not None and started <= closed <= moment(now) else moment(now)


def _domains(before: RecoveryStatus, scene: Scene) -> str:
    """The impaired domains; those of an incident that is over stay."""
    if scene.open is None and scene.begun:
        return before.domains_impaired
    domains = scene.cluster.domains_impaired
    if domains is None:
        domains = () if scene.open is None else scene.open.domains
    return ",".join(domains)
