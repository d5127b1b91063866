"""Resources as values: what is read, what is refused and how, and what is written."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rekindle.model import incidents
from rekindle.model.errors import InputError
from rekindle.model.reasons import Reason
from rekindle_operator.api import (
    custom_resources,
    recovery_class,
    recovery_policy,
    recovery_resource,
)
from rekindle_operator.api.custom_resources import (
    Condition,
    ConditionFinding,
    ResourceReason,
    camel_case,
)
from rekindle_operator.api.recovery_policy import PolicyStatus, SelectedApplication
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    LostNode,
    PlanMade,
    QueryRecovery,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_operator.policies import policy_conditions
from rekindle_testing.operator_builders import (
    CREATED,
    longest_story,
    make_class,
    make_policy,
    policy_object,
)

APPLICATION = ApplicationReference("SparkApplication", "departures", "sparkoperator.k8s.io", "u-1")
# etcd takes 1.5 MiB; the rest is for metadata and for whatever other fields are added.
STATUS_BYTES_MAX = 1_200_000


def test_a_policy_is_read_with_what_it_leaves_out() -> None:
    policy = make_policy(priorities=[{"query": "worst-delays", "priority": 10}])
    assert (policy.metadata.namespace, policy.metadata.name) == ("flights", "departures")
    assert policy.metadata.creation_timestamp == CREATED
    assert policy.spec.class_name == "default"
    assert policy.spec.priorities[0] == recovery_policy.QueryPriority("worst-delays", 10)
    assert policy.spec.correlated == recovery_policy.Correlated(nodes_min=2, window_seconds=120)
    assert policy.status == PolicyStatus()


def test_fields_of_a_newer_version_are_ignored() -> None:
    record = policy_object(mood="good", correlated={"nodesMin": 3, "colour": "red"})
    record["extra"] = {"managedFields": []}
    assert recovery_policy.from_object(record).spec.correlated.nodes_min == 3


CONDITION = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "m",
    "lastTransitionTime": "2026-11-29T00:00:00Z",
}
NEWER = [
    ({"recovering": 3, "applications": [{"kind": "Scheduled", "name": "x", "protected": True}]}, 0),
    ({"recovering": 3, "conditions": [CONDITION] * 11}, 0),
    ({"recovering": 3, "conditions": [CONDITION, {**CONDITION, "status": "Maybe"}]}, 1),
    ({"recovering": 3, "narrowed": {"by": "another shape"}}, 0),
]


@pytest.mark.parametrize(("status", "conditions"), NEWER, ids=["kind", "more", "word", "shape"])
def test_a_status_of_a_newer_release_keeps_no_policy_from_being_read(
    status: dict[str, Any], conditions: int
) -> None:
    """Otherwise a rollback would leave its applications without one."""
    policy = recovery_policy.from_object({**policy_object(), "status": status})
    assert policy.spec == make_policy().spec
    assert (policy.status.recovering, len(policy.status.conditions)) == (3, conditions)
    assert policy.status.applications == ()


def test_a_list_with_many_items_that_cannot_be_read_is_left_out_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[object] = []
    convert = msgspec.convert

    def counted(record: Any, kind: Any) -> Any:
        tries.append(kind)
        return convert(record, kind)

    monkeypatch.setattr(msgspec, "convert", counted)
    rows = [{"kind": "Scheduled", "name": f"a{n}", "protected": True} for n in range(800)]
    status = {"recovering": 3, "applications": rows}
    policy = recovery_policy.from_object({**policy_object(), "status": status})
    assert (policy.status.recovering, policy.status.applications) == (3, ())
    assert len(tries) <= custom_resources.LEFT_OUT_MAX + 2
    assert len(rows) == 800, "what was given stays as it is"


@pytest.mark.parametrize("status", [[], 3, {"phase": "Quarantined", "kind": "Partial"}])
def test_a_story_is_read_without_the_words_that_only_a_newer_release_knows(status: Any) -> None:
    record = {"metadata": {"name": "r"}, "spec": recovery_spec(), "status": status}
    found = recovery_resource.from_object(record)
    assert found.status == RecoveryStatus()
    assert found.left_out


@pytest.mark.parametrize("phase", ["Quarantined", "Recovered", "Recovering", None])
def test_a_recovery_is_over_in_whatever_phase_a_newer_release_has_ended_it(
    phase: str | None,
) -> None:
    for ended in ({}, {"endedAt": "2026-11-29T00:00:00Z"}):
        status = {**({} if phase is None else {"phase": phase}), **ended}
        record = {"metadata": {"name": "r"}, "spec": recovery_spec(), "status": status}
        found = recovery_resource.from_object(record)
        is_open = phase == "Recovering" or (not ended and phase != "Recovered")
        assert found.status.has_ended is not is_open
        assert found.left_out == (phase == "Quarantined")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"priorities": [{"query": "q", "priority": 11}]},
            "spec.priorities[0].priority: expected `int` <= 10",
        ),
        (
            {"lagGoals": [{"query": "q", "seconds": 0}]},
            "spec.lagGoals[0].seconds: expected `int` >= 1",
        ),
        (
            {"lagGoals": [{"query": "q", "seconds": 86_401}]},
            "spec.lagGoals[0].seconds: expected `int` <= 86400",
        ),
        (
            {"lagGoals": [{"query": "q", "seconds": "soon"}]},
            "spec.lagGoals[0].seconds: expected `int`, got `str`",
        ),
        ({"strategy": "quick"}, "spec.strategy: invalid enum value 'quick'"),
        ({"guards": {"nodesAtOnceMax": -1}}, "spec.guards.nodesAtOnceMax: expected `int` >= 0"),
        ({"paused": "yes"}, "spec.paused: expected `bool`, got `str`"),
        ({"selector": None}, "spec.selector: expected `object`, got `null`"),
        ({"className": "n" * 254}, "spec.className: expected `str` of length <= 253"),
        (
            {"priorities": [{"query": "q", "priority": 1, "until": "tomorrow"}]},
            "spec.priorities[0].until: invalid RFC3339 encoded datetime",
        ),
    ],
)
def test_what_means_nothing_is_refused_with_object_and_field(
    spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_policy(**spec)
    assert str(caught.value) == (
        f"RecoveryPolicy flights/departures: {message}; see docs/resources.md"
    )


@pytest.mark.parametrize(
    ("record", "where"),
    [
        (None, "RecoveryClass without a name"),
        ([], "RecoveryClass without a name"),
        ({"spec": {}}, "RecoveryClass without a name"),
        ({"metadata": 3}, "RecoveryClass without a name: metadata"),
        ({"metadata": {"name": 3}}, "RecoveryClass without a name: metadata.name"),
        ({"metadata": {"name": "a"}, "spec": 3}, "RecoveryClass a: spec"),
        ({"metadata": {"name": "x" * 999}, "spec": 3}, f"RecoveryClass {'x' * 199}…: spec"),
    ],
)
def test_whatever_comes_in_place_of_an_object_is_refused_by_name(record: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        recovery_class.from_object(record)
    assert caught.value.where == where


def test_a_class_without_a_spec_is_the_default_one() -> None:
    spec = recovery_class.from_object({"metadata": {"name": "default"}}).spec
    assert [(item.name, item.provider) for item in spec.provisioning] == [
        ("pending-pods", "PendingPods")
    ]
    assert (spec.fencing.mode, spec.node_deletion.enabled) == ("None", False)
    assert spec.detection == recovery_class.Detection(2, 10, 15)


def test_what_harms_is_opt_in() -> None:
    spec = make_class().spec
    assert spec.fencing == recovery_class.Fencing(mode="None", certainty=())
    assert spec.taints == recovery_class.Taints(suspected_nodes="None", impaired_domains="None")
    assert not spec.node_deletion.enabled


def test_nothing_is_written_of_what_is_not_there() -> None:
    spec = RecoverySpec(ApplicationReference("Driver", "backfill"), 7, "all", "default")
    assert custom_resources.written(spec) == {
        "application": {"kind": "Driver", "name": "backfill"},
        "incident": 7,
        "policyName": "all",
        "className": "default",
        "approved": False,
        "fencingApproved": False,
    }


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 67_891, tzinfo=UTC), "2026-01-02T03:04:05.067Z"),
        (datetime.fromisoformat("2026-01-02T05:04:05+02:00"), "2026-01-02T03:04:05Z"),
    ],
)
def test_moments_are_written_in_utc(moment: datetime, text: str) -> None:
    assert custom_resources.written(recovery_resource.DriverRecovery(lost_at=moment)) == {
        "lostAt": text
    }


@pytest.mark.parametrize(
    ("word", "written"),
    [("no-capacity", "NoCapacity"), ("paused", "Paused"), ("all-nodes-lost", "AllNodesLost")],
)
def test_a_reason_is_written_in_camel_case(word: str, written: str) -> None:
    assert camel_case(word) == written


def test_no_two_reasons_are_written_alike() -> None:
    words = [*Reason, *ResourceReason]
    assert len({camel_case(word) for word in words}) == len(words)
    assert all(word.meaning for word in words)


def test_kinds_of_incidents_are_the_cores() -> None:
    # the release before knows no word for the other one: no kind is written then
    for kind in set(incidents.IncidentKind) - {incidents.IncidentKind.ANNOUNCED}:
        record = {"kind": camel_case(kind)}
        story = recovery_resource.from_object(
            {"metadata": {"name": "r"}, "spec": recovery_spec(), "status": record}
        )
        assert story.status.kind == camel_case(kind)


def recovery_spec() -> dict[str, Any]:
    return custom_resources.written(RecoverySpec(APPLICATION, 7, "all", "default"))


def test_a_condition_keeps_the_moment_of_its_last_transition_while_its_status_stays() -> None:
    later = CREATED + timedelta(hours=1, milliseconds=250)
    said = [
        ConditionFinding(custom_resources.ACCEPTED, True, ResourceReason.NARROWED, "less"),
        ConditionFinding(custom_resources.PROTECTED, None, ResourceReason.NOTHING_SELECTED, "none"),
    ]
    before = (
        Condition("Accepted", "True", "AsWritten", "all", CREATED, 1),
        Condition("Kept", "False", "Old", "as it was", CREATED, 1),
        Condition("Protected", "True", "SidecarsPresent", "all", CREATED, 1),
    )
    assert custom_resources.updated(before, said, 2, later) == (
        Condition("Accepted", "True", "Narrowed", "less", CREATED, 2),
        Condition("Kept", "False", "Old", "as it was", CREATED, 1),
        Condition(
            "Protected", "Unknown", "NothingSelected", "none", later.replace(microsecond=0), 2
        ),
    )


def test_a_condition_is_the_same_when_the_same_is_said_again() -> None:
    said = [
        ConditionFinding(custom_resources.EXCLUSIVE, True, ResourceReason.NO_OVERLAP, "t" * 5_000)
    ]
    once = custom_resources.updated((), said, 1, CREATED)
    assert custom_resources.updated(once, said, 1, CREATED + timedelta(days=1)) == once
    assert len(once[0].message) == 1_000


def test_the_status_of_a_policy_shows_unprotected_applications_first() -> None:
    applications = tuple(
        SelectedApplication("SparkApplication", f"a{number:03}", protected=number != 299)
        for number in range(300)
    )
    status = recovery_policy.to_status(
        PolicyStatus(observed_generation=4, applications=applications)
    )
    assert (status["applicationsSelected"], status["applicationsProtected"]) == (300, 299)
    assert len(status["applications"]) == 200
    assert [item["name"] for item in status["applications"][:2]] == ["a299", "a000"]


def test_the_status_of_a_class_names_each_provider_once() -> None:
    provisioning = [
        {"name": "pods", "provider": "PendingPods"},
        {"name": "more-pods", "provider": "PendingPods"},
        {"name": "requests", "provider": "ProvisioningRequest"},
    ]
    class_ = make_class(provisioning=provisioning)
    status = recovery_class.to_status(recovery_class.ClassStatus(policies=2), class_.spec)
    assert status["providers"] == "PendingPods,ProvisioningRequest"
    assert "conditions" not in status


def test_the_same_incident_has_the_same_name_and_another_one_another() -> None:
    names = {
        recovery_resource.recovery_name(application, incident)
        for application in (
            APPLICATION,
            ApplicationReference("SparkApplication", "departures", "sparkoperator.k8s.io", "u-2"),
            ApplicationReference("SparkApplication", "departures", "spark.apache.org", "u-1"),
            ApplicationReference("Driver", "departures"),
        )
        for incident in (7, 8)
    }
    assert len(names) == 8
    assert recovery_resource.recovery_name(APPLICATION, 7) == "departures-7-90b22"


def test_the_name_of_a_recovery_has_room_for_the_longest_application() -> None:
    application = ApplicationReference("Driver", "a" * 240 + "." * 13)
    name = recovery_resource.recovery_name(application, 2**53 - 1)
    assert len(name) <= 253
    assert name.startswith("a" * 200)
    assert ".-" not in name


def test_the_object_of_a_recovery_carries_spec_and_no_status() -> None:
    record = recovery_resource.to_object("flights", RecoverySpec(APPLICATION, 7, "all", "default"))
    assert record["metadata"] == {"name": "departures-7-90b22", "namespace": "flights"}
    assert recovery_resource.from_object(record).spec.application == APPLICATION
    assert "status" not in record


def plan(number: int) -> PlanMade:
    return PlanMade(number, CREATED, "NodeBack", f"Plan {number}.", ("q",))


def test_the_newest_plans_are_kept_and_the_rest_is_counted() -> None:
    status = RecoveryStatus()
    for number in range(1, 50):
        status = msgspec.structs.replace(status, plans=(*status.plans, plan(number)))
        record = recovery_resource.to_status(status)
        status = read_back(record)
        assert status.plans_total == number
        assert status.plans_dropped == max(0, number - 20)
        assert status.plans[-1].number == number
    assert [item.number for item in status.plans] == [*range(30, 50)]


def read_back(status: dict[str, Any]) -> RecoveryStatus:
    """After the way through the API, which is JSON."""
    record = {
        "metadata": {"name": "departures-7"},
        "spec": recovery_spec(),
        "status": json.loads(json.dumps(status)),
    }
    return recovery_resource.from_object(record).status


def query(name: str, priority: float, *, lost: bool = True, back: bool = False) -> QueryRecovery:
    return QueryRecovery(
        name, priority, lost_at=CREATED if lost else None, back_at=CREATED if back else None
    )


def test_queries_that_were_never_lost_or_are_back_count_as_back() -> None:
    queries = (query("a", 1), query("b", 5, back=True), query("c", 3, lost=False))
    status = recovery_resource.to_status(RecoveryStatus(queries=queries))
    assert (status["queriesTotal"], status["queriesBack"], status["back"]) == (3, 2, "2/3")
    assert [item["name"] for item in status["queries"]] == ["b", "c", "a"]


def test_of_too_many_queries_those_that_wait_are_kept() -> None:
    queries = [query(f"back-{number}", 10, back=True) for number in range(600)]
    queries += [query(f"waits-{number}", 1) for number in range(100)]
    status = recovery_resource.to_status(RecoveryStatus(queries=tuple(queries)))
    assert status["back"] == "600/700"
    assert len(status["queries"]) == 500
    assert sum("backAt" not in item for item in status["queries"]) == 100


def test_of_too_many_lost_nodes_those_that_are_not_back_and_of_these_the_newest_are_kept() -> None:
    """In the order in which they are given: of whole applications that is by name."""
    rows = [
        LostNode(
            f"n{number:03}",
            confirmed_at=CREATED - timedelta(minutes=number),
            back_at=CREATED if number < 50 else None,
        )
        for number in range(300)
    ]
    for first in (0, 150):
        status = RecoveryStatus(lost_nodes=(*rows[first:],))
        kept = read_back(recovery_resource.to_status(status)).lost_nodes
        wanted = rows[50:250] if first == 0 else rows[150:]
        assert [row.name for row in kept] == [row.name for row in wanted]
    status = RecoveryStatus(lost_nodes=(*rows[:220],))
    kept = read_back(recovery_resource.to_status(status)).lost_nodes
    assert [row.name for row in kept] == [row.name for row in (*rows[:30], *rows[50:220])]


def test_totals_stay_when_a_list_that_was_cut_is_written_again() -> None:
    once = recovery_resource.to_status(longest_story())
    again = recovery_resource.to_status(read_back(once))
    assert again == once
    assert (once["lostNodesTotal"], len(once["lostNodes"])) == (400, 200)
    assert (once["plansTotal"], once["plansDropped"], len(once["plans"])) == (40, 20, 20)
    assert (once["back"], len(once["queries"])) == ("500/1000", 500)
    assert (once["nodesRequested"], len(once["requests"])) == (1_000_000, 100)
    assert once["plans"][0]["queriesTotal"] == 100


def test_the_longest_story_fits_into_an_object() -> None:
    assert len(json.dumps(recovery_resource.to_status(longest_story()))) <= STATUS_BYTES_MAX


def test_an_empty_story_says_so_in_its_columns() -> None:
    status = recovery_resource.to_status(RecoveryStatus())
    assert status == {
        "observedGeneration": 0,
        "dryRun": False,
        "domainsImpaired": "",
        "lostNodesTotal": 0,
        "movedPartitions": 0,
        "savedQueryPartitions": 0,
        "savedPriority": 0.0,
        "nodesRequested": 0,
        "plansTotal": 0,
        "plansDropped": 0,
        "queriesTotal": 0,
        "queriesBack": 0,
        "back": "",
    }


def test_a_class_whose_sidecar_no_driver_could_have_is_not_accepted() -> None:
    spec = make_class(sidecar={"resources": {"requests": {"memory": "256Mi"}}}).spec
    found = policy_conditions.class_accepted(2, spec)
    assert (found.holds, found.reason) == (False, ResourceReason.BAD_RESOURCE)
    assert found.message == (
        "Drivers come up without a sidecar: the sidecar's limits.memory 192Mi is below its "
        "requests.memory 256Mi; raise the one, or lower the other."
    )
    assert policy_conditions.class_accepted(2, make_class().spec).holds
