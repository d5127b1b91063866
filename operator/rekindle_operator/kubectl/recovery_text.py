"""A recovery in words: losses, plans, requested nodes, waiting pods, restored and waiting queries.

Pure; the commands `explain` and `plan` show it. Times are of the moment that is given as now.

Executor pods that nobody has room for make every autoscaler act, so where they are the only
provider of nodes nothing is requested. A person still wants to know why nothing comes: the
scheduler's own words say it.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import COORDINATION_AT_RISK, clipped, identity
from rekindle_operator.api.recovery_resource import (
    LostNode,
    NodeRequest,
    PlanMade,
    QueryRecovery,
    Recovery,
)
from rekindle_operator.cluster import json_access
from rekindle_operator.cluster.json_access import Body
from rekindle_operator.kubectl.durations import clock, span

NODES_SHOWN_MAX = 20
REASONS_MAX = 3
REASON_LENGTH_MAX = 150


def story(recovery: Recovery, now: datetime) -> Iterator[str]:
    """All of it but the queries, a sentence or more each."""
    yield from _heading(recovery, now)
    yield from _announced(recovery, now)
    yield from _losses(recovery, now)
    yield from _driver(recovery, now)
    yield from _requests(recovery, now)
    yield from _plans(recovery, now)
    for condition in recovery.status.conditions:
        if condition.type == COORDINATION_AT_RISK and condition.status == "True":
            yield f"Coordination is at risk ({condition.reason}): {condition.message}"
    status = recovery.status
    if status.queries_total:
        text = f"{status.back} queries are back"
        hidden = status.queries_total - len(status.queries)
        yield f"{text}; {hidden} of them are not listed." if hidden > 0 else f"{text}."


def out_seconds(query: QueryRecovery, recovery: Recovery, now: datetime) -> float | None:
    """How long a query was out, or has been until now; None when it never was."""
    if query.lost_at is None:
        return None
    until = query.back_at or recovery.status.ended_at or now
    return max(0.0, (until - query.lost_at).total_seconds())


def query_named(recovery: Recovery, name: str) -> QueryRecovery:
    """A query of the recovery; InputError where there is none of that name."""
    there = [query.name for query in recovery.status.queries]
    for query in recovery.status.queries:
        if query.name == name:
            return query
    near = difflib.get_close_matches(name, there, n=3)
    remedy = f"did you mean {' or '.join(near)}?" if near else "explain without a query lists them"
    where = f"query {name!r:.100} of {recovery.metadata.name}"
    raise InputError(where=where, what="is not among its queries", remedy=remedy)


def of_query(query: QueryRecovery, recovery: Recovery, now: datetime) -> Iterator[str]:
    """What became of one query."""
    priority = f"{query.name} has priority {query.priority:g}"
    if query.lost_at is None:
        yield f"{priority}. It was not lost: it has run all the time."
        return
    yield f"{priority}. It was lost at {clock(query.lost_at, now)}."
    named = [plan for plan in recovery.status.plans if query.name in plan.queries]
    if query.planned_at is not None:
        after = span((query.planned_at - query.lost_at).total_seconds())
        yield f"A plan had all of it at {clock(query.planned_at, now)}, {after} later."
    for plan in named:
        yield _plan(plan, recovery, now)
    out = out_seconds(query, recovery, now) or 0.0
    if query.back_at is not None:
        yield f"It had caught up at {clock(query.back_at, now)}: out for {span(out)}."
        return
    if recovery.status.ended_at is not None:
        yield f"It was not back when the recovery ended, after {span(out)}."
        return
    why = f" ({query.reason}): {query.message}" if query.reason else "."
    yield f"It has been out for {span(out)}, and waits{why}"
    before = _before(query, recovery)
    if before and query.planned_at is None:
        others = "one other query" if before == 1 else f"{before} other queries"
        yield f"Of what waits, {others} of higher priority come first."


def _before(query: QueryRecovery, recovery: Recovery) -> int:
    """How many queries that matter more wait too."""
    return sum(
        other.priority > query.priority
        and other.lost_at is not None
        and other.planned_at is None
        and other.back_at is None
        for other in recovery.status.queries
    )


def _heading(recovery: Recovery, now: datetime) -> Iterator[str]:
    spec, status = recovery.spec, recovery.status
    application = f"{recovery.metadata.namespace}/{spec.application.name}"
    yield (
        f"{identity(recovery)} is incident {spec.incident} of {spec.application.kind} "
        f"{application}, under policy {spec.policy_name} and class {spec.class_name}."
    )
    if status.phase is None and recovery.left_out:
        yield "It is in a phase that only a newer release knows; use its kubectl-rekindle."
        return
    if status.phase is None:
        yield "The operator has not told anything of it yet."
        return
    reason = f" ({status.reason})" if status.reason else ""
    yield f"{status.phase}{reason}: {status.message or 'nothing is said.'}"
    if status.dry_run:
        yield "A dry run: nothing of this was carried out."
    if status.started_at is not None:
        began = f"It began at {clock(status.started_at, now)}"
        kind = f" as {_article(status.kind)} failure" if status.kind else ""
        lasted = span(((status.ended_at or now) - status.started_at).total_seconds())
        if status.ended_at is None:
            yield f"{began}{kind}, {lasted} ago."
        else:
            yield f"{began}{kind} and ended at {clock(status.ended_at, now)}, after {lasted}."


def _article(kind: str) -> str:
    word = kind.lower()
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _losses(recovery: Recovery, now: datetime) -> Iterator[str]:
    status = recovery.status
    if not status.lost_nodes:
        return
    where = f" Impaired: {status.domains_impaired}." if status.domains_impaired else ""
    count = status.lost_nodes_total
    yield f"{count} {'node was' if count == 1 else 'nodes were'} lost or suspected.{where}"
    for node in status.lost_nodes[:NODES_SHOWN_MAX]:
        yield f"  {_node(node, now)}"
    hidden = count - min(len(status.lost_nodes), NODES_SHOWN_MAX)
    if hidden > 0:
        yield f"  and {hidden} more"


def _announced(recovery: Recovery, now: datetime) -> Iterator[str]:
    """Nodes that were announced to go, and what that has saved."""
    status = recovery.status
    for node in status.announced_nodes[:NODES_SHOWN_MAX]:
        end = "stays after all" if node.withdrawn else f"until {clock(node.until, now)}"
        yield f"Announced to go: {node.name} ({node.by}), {end}."
    if status.moved_partitions:
        moved, saved = status.moved_partitions, status.saved_query_partitions
        yield (
            f"Saved by notice: {moved} {'partition' if moved == 1 else 'partitions'} had moved "
            f"before; {saved} query {'partition' if saved == 1 else 'partitions'} of priority "
            f"{status.saved_priority:g} did not stop."
        )
    yield from _requested_before(recovery)


def _requested_before(recovery: Recovery) -> Iterator[str]:
    """Nodes that were requested at a notice, once the first announced node is lost."""
    status = recovery.status
    names = {node.name for node in status.announced_nodes if not node.withdrawn}
    lost = [node.confirmed_at for node in status.lost_nodes if node.name in names]
    first = min((at for at in lost if at is not None), default=None)
    early = [item for item in status.requests if first is not None and item.requested_at < first]
    if first is None or not early:
        return
    count = sum(item.count for item in early)
    there = sum(
        item.count
        for item in early
        if item.outcome == "Arrived" and item.ended_at is not None and item.ended_at <= first
    )
    before = span((first - min(item.requested_at for item in early)).total_seconds())
    nodes = "1 node was" if count == 1 else f"{count} nodes were"
    yield (
        f"Saved by notice: {nodes} requested up to {before} before the first announced node was "
        f"lost; {there} had come by then."
    )


def _node(node: LostNode, now: datetime) -> str:
    parts = [f"{node.name} in {node.domain}" if node.domain else node.name]
    if node.driver:
        parts.append("with the driver")
    if node.suspected_at is not None:
        parts.append(f"suspected at {clock(node.suspected_at, now)}")
    if node.confirmed_at is not None:
        confirmed = f"confirmed at {clock(node.confirmed_at, now)}"
        if node.suspected_at is not None:
            after = span((node.confirmed_at - node.suspected_at).total_seconds())
            confirmed = f"confirmed {after} later"
        parts.append(confirmed)
    if node.back_at is not None:
        parts.append(f"back at {clock(node.back_at, now)}")
    return ", ".join(parts)


def _driver(recovery: Recovery, now: datetime) -> Iterator[str]:
    driver = recovery.status.driver
    if driver is None or driver.lost_at is None:
        return
    parts = [f"The driver was lost at {clock(driver.lost_at, now)}"]
    if driver.fenced_at is not None:
        by = f" ({driver.certainty})" if driver.certainty else ""
        parts.append(f"its node fenced at {clock(driver.fenced_at, now)}{by}")
    if driver.back_at is not None:
        after = span((driver.back_at - driver.lost_at).total_seconds())
        parts.append(f"the next one there {after} after the loss")
    else:
        parts.append("the next one is not there")
    yield ", ".join(parts) + "."


def _requests(recovery: Recovery, now: datetime) -> Iterator[str]:
    status = recovery.status
    if not status.requests:
        return
    nodes = "node was" if status.nodes_requested == 1 else "nodes were"
    yield f"{status.nodes_requested} {nodes} requested."
    for request in status.requests:
        yield f"  {_request(request, now)}"


def _request(request: NodeRequest, now: datetime) -> str:
    outside = f" outside of {', '.join(request.outside_domains)}" if request.outside_domains else ""
    text = f"{clock(request.requested_at, now)} {request.count} of {request.provider}{outside}"
    reason = f" ({request.reason})" if request.reason else ""
    outcome = request.outcome.lower()
    if request.ended_at is not None:
        after = span((request.ended_at - request.requested_at).total_seconds())
        outcome = f"{outcome} after {after}"
    said = f": {request.message}" if request.message else ""
    return f"{text}{reason}, {outcome}{said}"


def _plans(recovery: Recovery, now: datetime) -> Iterator[str]:
    status = recovery.status
    if not status.plans_total:
        return
    yield f"{status.plans_total} {'plan was' if status.plans_total == 1 else 'plans were'} made."
    if status.plans_dropped:
        yield f"  the first {status.plans_dropped} are not listed any more"
    for plan in status.plans:
        yield f"  {_plan(plan, recovery, now)}"


def _plan(plan: PlanMade, recovery: Recovery, now: datetime) -> str:
    started = recovery.status.started_at
    after = f", {span((plan.at - started).total_seconds())} in" if started else ""
    text = f"{clock(plan.at, now)}{after} ({plan.reason}): {plan.text}"
    if plan.refused:
        return f"{text} Refused: {plan.refused}"
    if plan.acknowledged_at is not None:
        done = span((plan.acknowledged_at - plan.at).total_seconds())
        return f"{text} Carried out {done} later."
    return f"{text} The driver has not answered yet."


# The queries of a recovery that wait, and the causes, from the API's objects.
#
# What the next plan will be is decided with what each partition costs, as measured, and with the
# free CPU of nodes. Both are in the coordination store and not in the API, so nothing here
# guesses: it says what the operator has said last, and in which order the planner looks at what
# waits.

UNKNOWN = (
    "Which of them fit is decided with measured CPU of partitions and nodes, which the API does "
    "not have; `rekindle explain NAMESPACE/APPLICATION QUERY --zookeeper HOST:PORT` computes it."
)


@dataclass(frozen=True, slots=True)
class WaitOutlook:
    """`waiting` are queries that no plan has, the most important first; `catching_up` those that
    one has and that are behind. `hindrance` is what keeps any plan from being made, a reason and a
    sentence, None where nothing does. `unanswered` is a plan that the driver has not acknowledged,
    `last` the newest one. `coming` are requests for nodes that are on their way."""

    over: bool
    waiting: tuple[QueryRecovery, ...] = ()
    catching_up: tuple[QueryRecovery, ...] = ()
    hindrance: tuple[str, str] | None = None
    last: PlanMade | None = None
    unanswered: PlanMade | None = None
    coming: tuple[NodeRequest, ...] = ()

    @property
    def reasons(self) -> dict[str, str]:
        """Why queries wait: reason -> sentence, of the most important query that says so."""
        found: dict[str, str] = {}
        for query in self.waiting:
            if query.reason:
                found.setdefault(query.reason, query.message or "")
        return found


HINDERED = ("Suspected", "Held", "AwaitingApproval", "AwaitingDriver")


def outlook(recovery: Recovery) -> WaitOutlook:
    """What is known of the next plan of a recovery."""
    status = recovery.status
    if status.has_ended:
        return WaitOutlook(over=True)
    hindrance = None
    if status.phase in HINDERED:
        hindrance = (status.reason or str(status.phase), status.message or "")
    last = status.plans[-1] if status.plans else None
    unanswered = last is not None and last.acknowledged_at is None and not last.refused
    return WaitOutlook(
        over=False,
        waiting=tuple(_lost(recovery, planned=False)),
        catching_up=tuple(_lost(recovery, planned=True)),
        hindrance=hindrance,
        last=last,
        unanswered=last if unanswered else None,
        coming=tuple(item for item in status.requests if item.outcome == "Pending"),
    )


def _lost(recovery: Recovery, *, planned: bool) -> Iterator[QueryRecovery]:
    """Queries that are not back, by whether a plan has them, the most important first."""
    ordered = sorted(recovery.status.queries, key=lambda query: (-query.priority, query.name))
    for query in ordered:
        lost = query.lost_at is not None and query.back_at is None
        if lost and (query.planned_at is not None) is planned:
            yield query


def pending_pods(pods: Iterable[Body], now: float) -> str:
    """One or two sentences on the executor pods that wait for a node; empty when none does."""
    waiting = [pod for pod in pods if _waits(pod)]
    if not waiting:
        return ""
    created = [
        json_access.moment(json_access.text(pod, "metadata", "creationTimestamp"))
        for pod in waiting
    ]
    oldest = max((now - at for at in created if at is not None), default=0.0)
    number = f"{len(waiting)} executor pod{'s' if len(waiting) > 1 else ''}"
    verb = "wait" if len(waiting) > 1 else "waits"
    why = _most_frequent(Counter(_scheduler_reason(pod) for pod in waiting))
    return f"{number} {verb} for a node, the oldest for {max(0.0, oldest):.0f} s: {why}."


def _most_frequent(reasons: Counter[str]) -> str:
    """The most frequent reasons, each once."""
    told = [
        reason if len(reasons) == 1 else f"{reason} ({number})"
        for reason, number in reasons.most_common(REASONS_MAX)
    ]
    more = len(reasons) - len(told)
    return "; ".join([*told, f"and {more} more reasons"] if more > 0 else told)


def _waits(pod: Body) -> bool:
    """Whether it is no node's yet, and not on its way out."""
    return (
        json_access.text(pod, "status", "phase") == "Pending"
        and not json_access.text(pod, "spec", "nodeName")
        and not json_access.text(pod, "metadata", "deletionTimestamp")
    )


def _scheduler_reason(pod: Body) -> str:
    found = json_access.condition(pod, "PodScheduled")
    if found is None:
        return "the scheduler has not looked at it yet"
    said = found.message or found.reason or "the scheduler says no more"
    return clipped(said.rstrip("."), REASON_LENGTH_MAX)
