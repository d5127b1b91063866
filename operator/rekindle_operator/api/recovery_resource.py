"""Recovery as values: one incident of one application, from the first suspicion to its end.

The operator makes the object when an incident begins, and writes its status whenever the story
(`RecoveryStatus`) has gone on; a person sets approvals, nothing else.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from rekindle.model.reasons import Reason
from rekindle_operator.api.custom_resources import (
    API_VERSION,
    Condition,
    Count,
    Label,
    Moment,
    Name,
    Number,
    Resource,
    Value,
    Word,
    camel_case,
    clipped,
    read_parts,
    written,
)
from rekindle_operator.api.recovery_class import Certainty
from rekindle_operator.api.recovery_policy import ApplicationKind, Group, ProviderName, Query

# The story of a recovery as values, and as the status of its object.
#
# A story may outgrow an object, so `to_status` keeps it within the limits of crds/recoveries.yaml
# (a test compares the two) and counts what it leaves out. `from_object` reads it back.
# Decides nothing about an incident.

LOST_NODES_MAX = 200
REQUESTS_MAX = 100
PLANS_MAX = 20
PLAN_QUERIES_MAX = 50
QUERIES_MAX = 500
DISPLACED_MAX = 1_000
DOMAINS_MAX = 20
MESSAGE_LENGTH_MAX = 1_000
SENTENCE_LENGTH_MAX = 500
WAITING_LENGTH_MAX = 300

Phase = Literal[
    "Suspected",
    "Held",
    "AwaitingApproval",
    "AwaitingDriver",
    "Recovering",
    "CatchingUp",
    "AwaitingCheckpoint",
    "Recovered",
    "Abandoned",
]
ENDED: tuple[Phase, ...] = ("Recovered", "Abandoned")
STOPPED = camel_case(Reason.QUERY_STOPPED)
Message = Annotated[str, msgspec.Meta(max_length=MESSAGE_LENGTH_MAX)]
Sentence = Annotated[str, msgspec.Meta(max_length=SENTENCE_LENGTH_MAX)]
Uid = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


# What says that a whole application has caught up: its own progress, or its pods alone.
CaughtUpBy = Literal["Progress", "Pods"]


class LostNode(Value, frozen=True):
    """A node that was lost or is suspected; `driver`: the application's driver was there."""

    name: Name
    uid: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    domain: Label | None = None
    driver: bool = False
    suspected_at: Moment | None = None
    confirmed_at: Moment | None = None
    back_at: Moment | None = None


class AnnouncedNode(Value, frozen=True):
    """A node that was announced to go `until` then, `by` what; `withdrawn`: it stays."""

    name: Name
    by: Sentence
    until: Moment
    withdrawn: bool = False


class DriverRecovery(Value, frozen=True):
    """What became of a driver whose node was lost too."""

    lost_at: Moment | None = None
    fenced_at: Moment | None = None
    certainty: Certainty | None = None
    back_at: Moment | None = None


class Displaced(Value, frozen=True):
    """An application that made room for `by`, which matters more: so many `executors` were to be
    deleted, and it `keeps` so many. Where it keeps some, `uids` are of those that go. `gone_at` is
    when the last one was gone, or the rest was `called_off`."""

    at: Moment
    by: Query
    executors: Count
    keeps: Count = 0
    uids: Annotated[tuple[Uid, ...], msgspec.Meta(max_length=DISPLACED_MAX)] = ()
    gone_at: Moment | None = None
    called_off: bool = False


class NodeRequest(Value, frozen=True):
    """A request for `count` nodes, and what became of it."""

    name: Name
    provider: ProviderName
    count: Annotated[int, msgspec.Meta(ge=1, le=5_000)]
    outcome: Literal["Pending", "Arrived", "Failed", "Withdrawn"]
    requested_at: Moment
    outside_domains: Annotated[tuple[Label, ...], msgspec.Meta(max_length=DOMAINS_MAX)] = ()
    reason: Word | None = None
    message: Sentence | None = None
    ended_at: Moment | None = None


class PlanMade(Value, frozen=True):
    """A plan; `queries` are those that it brings back, the most important first."""

    number: Number
    at: Moment
    reason: Word
    text: Message
    queries: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=200)], ...],
        msgspec.Meta(max_length=PLAN_QUERIES_MAX),
    ] = ()
    queries_total: Count = 0
    capacity_millicores: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0
    priority_sum: Amount = 0.0
    acknowledged_at: Moment | None = None
    refused: Sentence | None = None


class QueryRecovery(Value, frozen=True):
    """When a query was lost, planned and caught up, and why it waits, or has stopped; never lost
    has no times."""

    name: Query
    priority: Amount
    lost_at: Moment | None = None
    planned_at: Moment | None = None
    back_at: Moment | None = None
    reason: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=WAITING_LENGTH_MAX)] | None = None


class RecoveryStatus(Value, frozen=True):
    """The story. Totals, `back` and `plans_dropped` are `to_status`'s to fill in; read back, they
    say what lists that were cut do not."""

    observed_generation: Count = 0
    phase: Phase | None = None
    kind: Literal["Suspected", "Independent", "Correlated", "Complete"] | None = None
    reason: Word | None = None
    message: Message | None = None
    dry_run: bool = False
    started_at: Moment | None = None
    ended_at: Moment | None = None
    domains_impaired: Annotated[str, msgspec.Meta(max_length=SENTENCE_LENGTH_MAX)] = ""
    lost_nodes_total: Count = 0
    lost_nodes: Annotated[tuple[LostNode, ...], msgspec.Meta(max_length=LOST_NODES_MAX)] = ()
    announced_nodes: Annotated[
        tuple[AnnouncedNode, ...], msgspec.Meta(max_length=LOST_NODES_MAX)
    ] = ()
    moved_partitions: Count = 0
    saved_query_partitions: Count = 0
    saved_priority: Amount = 0.0
    driver: DriverRecovery | None = None
    displaced: Displaced | None = None
    pods_back_at: Moment | None = None
    caught_up_by: CaughtUpBy | None = None
    nodes_requested: Count = 0
    requests: Annotated[tuple[NodeRequest, ...], msgspec.Meta(max_length=REQUESTS_MAX)] = ()
    plans_total: Count = 0
    plans_dropped: Count = 0
    plans: Annotated[tuple[PlanMade, ...], msgspec.Meta(max_length=PLANS_MAX)] = ()
    queries_total: Count = 0
    queries_back: Count = 0
    back: Annotated[str, msgspec.Meta(max_length=32)] = ""
    queries: Annotated[tuple[QueryRecovery, ...], msgspec.Meta(max_length=QUERIES_MAX)] = ()
    conditions: Annotated[tuple[Condition, ...], msgspec.Meta(max_length=10)] = ()

    @property
    def has_ended(self) -> bool:
        """Whether the recovery is over, also in a phase that only a newer release knows."""
        return self.phase in ENDED or (self.phase is None and self.ended_at is not None)


def to_status(status: RecoveryStatus) -> dict[str, Any]:
    """The whole status as JSON, within the schema's limits: it replaces what was there.

    Plans are given in order; those that were dropped before are counted in `plans_dropped` and not
    given again. Lost nodes and queries are given all, or as they were read.
    """
    return written(_bounded(_counted(status)))


def _counted(status: RecoveryStatus) -> RecoveryStatus:
    """With totals of lists that are whole; a list that was cut keeps the totals that it had."""
    whole = len(status.queries) >= status.queries_total
    total = len(status.queries) if whole else status.queries_total
    back = sum(map(_is_back, status.queries)) if whole else status.queries_back
    dropped = status.plans_dropped + max(0, len(status.plans) - PLANS_MAX)
    return msgspec.structs.replace(
        status,
        lost_nodes_total=max(status.lost_nodes_total, len(status.lost_nodes)),
        nodes_requested=max(status.nodes_requested, sum(item.count for item in status.requests)),
        plans_total=status.plans_dropped + len(status.plans),
        plans_dropped=dropped,
        queries_total=total,
        queries_back=back,
        back=f"{back}/{total}" if total else "",
    )


def _bounded(status: RecoveryStatus) -> RecoveryStatus:
    return msgspec.structs.replace(
        status,
        message=_cut(status.message, MESSAGE_LENGTH_MAX),
        domains_impaired=clipped(status.domains_impaired, SENTENCE_LENGTH_MAX),
        lost_nodes=bounded_losses(status.lost_nodes),
        announced_nodes=status.announced_nodes[:LOST_NODES_MAX],
        requests=tuple(map(_bounded_request, status.requests[-REQUESTS_MAX:])),
        plans=tuple(map(_bounded_plan, status.plans[-PLANS_MAX:])),
        queries=tuple(_bounded_queries(status.queries)),
    )


def bounded_losses(rows: tuple[LostNode, ...]) -> tuple[LostNode, ...]:
    """Those that are not back are kept first, and of these the newest; all stay in their order."""
    newest_first = sorted(range(len(rows)), key=lambda index: _recency(rows[index]), reverse=True)
    return tuple(rows[index] for index in sorted(newest_first[:LOST_NODES_MAX]))


def _recency(row: LostNode) -> tuple[bool, float]:
    moments = (row.suspected_at, row.confirmed_at)
    return row.back_at is None, max((at.timestamp() for at in moments if at), default=0.0)


def _bounded_request(request: NodeRequest) -> NodeRequest:
    return msgspec.structs.replace(
        request,
        message=_cut(request.message, SENTENCE_LENGTH_MAX),
        outside_domains=request.outside_domains[:DOMAINS_MAX],
    )


def _bounded_plan(plan: PlanMade) -> PlanMade:
    return msgspec.structs.replace(
        plan,
        text=clipped(plan.text, MESSAGE_LENGTH_MAX),
        queries=plan.queries[:PLAN_QUERIES_MAX],
        queries_total=max(plan.queries_total, len(plan.queries)),
        refused=_cut(plan.refused, SENTENCE_LENGTH_MAX),
    )


def _bounded_queries(queries: Iterable[QueryRecovery]) -> Iterable[QueryRecovery]:
    """Those that wait are kept first; what is kept is in order of priority."""
    kept = sorted(queries, key=lambda query: (_is_back(query), *_importance(query)))
    for query in sorted(kept[:QUERIES_MAX], key=_importance):
        yield msgspec.structs.replace(query, message=_cut(query.message, WAITING_LENGTH_MAX))


def _importance(query: QueryRecovery) -> tuple[float, str]:
    return -query.priority, query.name


def _is_back(query: QueryRecovery) -> bool:
    """Whether it runs: never lost, or caught up since, and nothing keeps it from running."""
    if query.reason == STOPPED:
        return False
    return query.lost_at is None or query.back_at is not None


def _cut(text: str | None, length_max: int) -> str | None:
    return None if text is None else clipped(text, length_max)


NAME_LENGTH_MAX = 253
DIGEST_LENGTH = 5


class ApplicationReference(Value, frozen=True):
    """An application of the Recovery's namespace; a Driver has neither group nor uid."""

    kind: ApplicationKind
    name: Name
    group: Group | None = None
    uid: Uid | None = None


class RecoverySpec(Value, frozen=True):
    """What the recovery is about; `approved` is set by a person, `fencing_approved` by one who may
    say of a node that it is off."""

    application: ApplicationReference
    incident: Number
    policy_name: Name
    class_name: Name
    approved: bool = False
    fencing_approved: bool = False


class Recovery(Resource, frozen=True):
    """One incident of one application. `left_out`: some of the status only a newer release can
    read, so nothing is written in its place."""

    kind: ClassVar[str] = "Recovery"
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()
    left_out: bool = False


def from_object(record: object) -> Recovery:
    """The recovery in an object from the API; InputError names object and field."""
    found, left_out = read_parts(record, Recovery)
    return msgspec.structs.replace(found, left_out=left_out)


def recovery_name(application: ApplicationReference, incident: int) -> str:
    """The object's name: the same for the same incident, so that it is made only once.

    A digest keeps apart what kind, group, uid or a name cut for its length would let collide.
    """
    identity = (application.kind, application.group, application.name, application.uid)
    digest = hashlib.sha256(repr((*identity, incident)).encode()).hexdigest()[:DIGEST_LENGTH]
    ending = f"-{incident}-{digest}"
    return application.name[: NAME_LENGTH_MAX - len(ending)].rstrip("-.") + ending


def to_object(namespace: str, spec: RecoverySpec) -> dict[str, Any]:
    """The object to create at the beginning of an incident; its status comes separately."""
    name = recovery_name(spec.application, spec.incident)
    return {
        "apiVersion": API_VERSION,
        "kind": Recovery.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": written(spec),
    }


def age(found: Recovery) -> tuple[float, int]:
    """What puts recoveries in order, the newest last. Their numbers alone do not: they may have
    begun anew."""
    created = found.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0), found.spec.incident
