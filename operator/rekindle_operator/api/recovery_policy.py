"""RecoveryPolicy as values: a team's wishes for its applications.

The fields, their defaults and limits are those of crds/recoverypolicies.yaml, which the API server
holds; a test compares the two. What of it holds is for `effective_policy`, which applications are
meant for `policy_selection`.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from rekindle_operator.api.custom_resources import (
    Condition,
    Count,
    Label,
    Moment,
    Name,
    Resource,
    Seconds,
    Value,
    clipped,
    read,
    written,
)

APPLICATIONS_MAX = 200
NARROWED_MAX = 20
SENTENCE_LENGTH_MAX = 500
SHOWN_LENGTH_MAX = 200

Group = Literal["sparkoperator.k8s.io", "spark.apache.org"]
ApplicationKind = Literal["SparkApplication", "Driver"]
Approval = Literal["Automatic", "Manual"]
Mode = Literal["always", "adaptive"]
Recovers = Literal["Queries", "Applications"]
LabelKey = Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
Labels = Annotated[dict[str, Label], msgspec.Meta(max_length=20)]
Query = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Percent = Annotated[int, msgspec.Meta(ge=5, le=100)]
NodeCount = Annotated[int, msgspec.Meta(ge=0, le=5_000)]
ProviderName = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Sentence = Annotated[str, msgspec.Meta(max_length=SENTENCE_LENGTH_MAX)]
Shown = Annotated[str, msgspec.Meta(max_length=SHOWN_LENGTH_MAX)]


class LabelRequirement(Value, frozen=True):
    """A requirement on one label."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Label, ...], msgspec.Meta(max_length=50)] = ()


class LabelSelector(Value, frozen=True):
    """All labels and requirements must be met; an empty one selects everything."""

    match_labels: Labels = msgspec.field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelRequirement, ...], msgspec.Meta(max_length=20)] = ()


class SparkApplications(Value, frozen=True):
    """SparkApplication objects of some API groups, by name or by label."""

    groups: Annotated[tuple[Group, ...], msgspec.Meta(min_length=1, max_length=2)] = (
        "sparkoperator.k8s.io",
        "spark.apache.org",
    )
    names: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=100)] | None = None
    label_selector: LabelSelector | None = None


class DriverSelector(Value, frozen=True):
    """Driver pods without a SparkApplication; the value of `name_label` is the application."""

    label_selector: LabelSelector
    name_label: LabelKey = "spark-app-name"


class Selector(Value, frozen=True):
    """Which applications of the policy's namespace it is for."""

    spark_applications: SparkApplications | None = None
    drivers: DriverSelector | None = None


class QueryPriority(Value, frozen=True):
    """A query's priority instead of the pipeline's own, until a moment or (None) for good."""

    query: Query
    priority: Annotated[int, msgspec.Meta(ge=1, le=10)]
    until: Moment | None = None


class LagGoal(Value, frozen=True):
    """The lag above which the time of a query is counted, instead of the pipeline's own."""

    query: Query
    seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)]


class ApplicationNeed(Value, frozen=True):
    """What a whole application needs to be of use: so many executors beside its driver, and other
    applications of the same policy, which come back before it or with it."""

    name: Name
    minimum_executors: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 1
    depends_on: Annotated[tuple[Name, ...], msgspec.Meta(max_length=20)] = ()


class Correlated(Value, frozen=True):
    """So many nodes lost within the window are a correlated failure."""

    nodes_min: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 2
    window_seconds: Seconds = 120


class Planning(Value, frozen=True):
    """How plans are computed; `catch_up_cost_percent` is the core's ratio times 100."""

    solver: Literal["auto", "best-density", "dp", "exact", "operator-centric"] = "auto"
    solver_budget_seconds: Annotated[int, msgspec.Meta(ge=1, le=60)] = 1
    catch_up_seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 15
    catch_up_cost_percent: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 100
    uneven_seconds: Annotated[int, msgspec.Meta(ge=1, le=3_600)] = 15
    default_cpu_millicores: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 20


class Guards(Value, frozen=True):
    """Bounds of the policy's own; None is as the class says."""

    nodes_per_incident_max: NodeCount | None = None
    nodes_at_once_max: NodeCount | None = None
    concurrent_recoveries_max: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    providers: Annotated[tuple[ProviderName, ...], msgspec.Meta(max_length=10)] | None = None
    fencing: Literal["Class", "Never"] = "Class"


class PolicySpec(Value, frozen=True):
    """What the team wants."""

    selector: Selector
    recovers: Recovers = "Queries"
    applications: Annotated[tuple[ApplicationNeed, ...], msgspec.Meta(max_length=200)] = ()
    class_name: Name = "default"
    priorities: Annotated[tuple[QueryPriority, ...], msgspec.Meta(max_length=500)] = ()
    lag_goals: Annotated[tuple[LagGoal, ...], msgspec.Meta(max_length=500)] = ()
    strategy: Literal["incremental", "blocking"] = "incremental"
    buffering: Mode = "always"
    ordering: Mode = "always"
    correlated: Correlated = Correlated()
    failure_domain_keys: Annotated[
        tuple[LabelKey, ...], msgspec.Meta(min_length=1, max_length=5)
    ] = ("topology.kubernetes.io/zone",)
    placement: Literal["even", "domains"] = "even"
    node_cpu_cap_percent: Percent = 80
    stabilisation_seconds: Annotated[int, msgspec.Meta(ge=0, le=600)] = 10
    planning: Planning = Planning()
    guards: Guards = Guards()
    paused: bool = False
    dry_run: bool = False
    approval: Approval = "Automatic"


class SelectedApplication(Value, frozen=True):
    """A selected application, and whether its driver has a sidecar."""

    kind: ApplicationKind
    name: Name
    protected: bool
    group: Label | None = None
    reason: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    message: Sentence | None = None


class Narrowing(Value, frozen=True):
    """A field of the policy, below spec, that its class has narrowed: what it asks for, and what
    holds."""

    field: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    asked: Shown
    held: Shown
    message: Sentence


class PolicyStatus(Value, frozen=True):
    """What the operator has made of a policy; the counts are `to_status`'s to fill in.

    `webhook_away`: nobody gives drivers that start their sidecar. The condition CoordinationAtRisk
    has only its worst reason, and others go before this one.
    """

    observed_generation: Count = 0
    applications_selected: Count = 0
    applications_protected: Count = 0
    recovering: Count = 0
    webhook_away: bool = False
    applications: Annotated[
        tuple[SelectedApplication, ...], msgspec.Meta(max_length=APPLICATIONS_MAX)
    ] = ()
    narrowed: Annotated[tuple[Narrowing, ...], msgspec.Meta(max_length=NARROWED_MAX)] = ()
    conditions: Annotated[tuple[Condition, ...], msgspec.Meta(max_length=10)] = ()


class RecoveryPolicy(Resource, frozen=True):
    """A policy of a namespace."""

    kind: ClassVar[str] = "RecoveryPolicy"
    spec: PolicySpec
    status: PolicyStatus = PolicyStatus()


def from_object(record: object) -> RecoveryPolicy:
    """The policy in an object from the API; InputError names object and field."""
    return read(record, RecoveryPolicy)


def to_status(status: PolicyStatus) -> dict[str, Any]:
    """The whole status as JSON, within the schema's limits: it replaces what was there.

    `status` has all applications; those that are not protected come first, and not more than fit.
    """
    ordered = sorted(status.applications, key=lambda item: (item.protected, item.name))
    bounded = msgspec.structs.replace(
        status,
        applications_selected=len(ordered),
        applications_protected=sum(item.protected for item in ordered),
        applications=tuple(map(_bounded_application, ordered[:APPLICATIONS_MAX])),
        narrowed=tuple(_bounded_narrowings(status.narrowed)),
    )
    return written(bounded)


def _bounded_application(item: SelectedApplication) -> SelectedApplication:
    if item.message is None:
        return item
    return msgspec.structs.replace(item, message=clipped(item.message, SENTENCE_LENGTH_MAX))


def _bounded_narrowings(narrowed: Iterable[Narrowing]) -> Iterable[Narrowing]:
    for item in tuple(narrowed)[:NARROWED_MAX]:
        yield msgspec.structs.replace(
            item,
            asked=clipped(item.asked, SHOWN_LENGTH_MAX),
            held=clipped(item.held, SHOWN_LENGTH_MAX),
            message=clipped(item.message, SENTENCE_LENGTH_MAX),
        )
