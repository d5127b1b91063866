"""Which policy is for which application, and what policies say of themselves."""

from typing import Any

import pytest

from rekindle.model.reasons import Reason
from rekindle_operator.api.custom_resources import ResourceReason
from rekindle_operator.api.recovery_policy import SelectedApplication
from rekindle_operator.policies import effective_policy, policy_conditions, policy_selection
from rekindle_operator.policies.policy_selection import Overlap, SelectableApplication
from rekindle_testing.operator_builders import make_class, make_policy

ALL = {"drivers": {"labelSelector": {"matchLabels": {"spark-role": "driver"}}}}


def held(policy: dict[str, Any] | None = None) -> effective_policy.Effective:
    return effective_policy.effective(make_policy(**policy or {}), make_class("shared"))


def spark(name: str, group: str = "sparkoperator.k8s.io", **labels: str) -> SelectableApplication:
    return SelectableApplication("flights", "SparkApplication", name, labels, group)


def driver(pod: str, **labels: str) -> SelectableApplication:
    return SelectableApplication("flights", "Driver", pod, {"spark-role": "driver", **labels})


def requirement(operator: str, *values: str) -> dict[str, Any]:
    return {
        "sparkApplications": {
            "labelSelector": {
                "matchExpressions": [{"key": "tier", "operator": operator, "values": [*values]}]
            }
        }
    }


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"sparkApplications": {"labelSelector": {}}}, ["gold", "silver", "plain", "asf"]),
        ({"sparkApplications": {"names": ["plain", "nowhere"]}}, ["plain"]),
        (
            {
                "sparkApplications": {
                    "names": ["plain"],
                    "labelSelector": {"matchLabels": {"tier": "gold"}},
                }
            },
            ["gold", "plain"],
        ),
        (
            {"sparkApplications": {"groups": ["spark.apache.org"], "labelSelector": {}}},
            ["asf"],
        ),
        ({"sparkApplications": {}}, []),
        (ALL, ["batch-pod"]),
        ({**ALL, "sparkApplications": {"names": ["gold"]}}, ["gold", "batch-pod"]),
        ({}, []),
        (requirement("In", "gold", "silver"), ["gold", "silver"]),
        (requirement("NotIn", "gold"), ["silver", "plain", "asf"]),
        (requirement("Exists"), ["gold", "silver"]),
        (requirement("DoesNotExist"), ["plain", "asf"]),
    ],
)
def test_a_selector_selects(selector: dict[str, Any], names: list[str]) -> None:
    applications = [
        spark("gold", tier="gold"),
        spark("silver", tier="silver"),
        spark("plain"),
        spark("asf", "spark.apache.org"),
        driver("batch-pod"),
    ]
    wanted = make_policy(selector=selector).spec.selector
    assert [item.name for item in applications if policy_selection.selects(wanted, item)] == names


@pytest.mark.parametrize(
    ("ages", "holder"),
    [
        ({"b": 100, "a": 10, "c": 50}, "b"),
        ({"b": 10, "a": 10, "c": 10}, "a"),
        ({"b": 10, "a": 10, "c": 11}, "c"),
    ],
)
def test_of_overlapping_policies_the_oldest_holds_then_the_first_by_name(
    ages: dict[str, float], holder: str
) -> None:
    policies = [make_policy(name, age_seconds=age) for name, age in ages.items()]
    found = policy_selection.assign(policies, [spark("departures")])
    held_by = {policy: [item.name for item in its] for policy, its in found.holders.items()}
    assert held_by == {f"flights/{name}": ["departures"] if name == holder else [] for name in ages}
    (overlap,) = found.overlaps
    assert overlap.holder == f"flights/{holder}"
    assert {*overlap.others} == {f"flights/{name}" for name in ages if name != holder}


def test_policies_of_other_namespaces_do_not_overlap() -> None:
    policies = [make_policy("a"), make_policy("a", namespace="elsewhere", age_seconds=9)]
    found = policy_selection.assign(policies, [spark("departures")])
    assert [*map(len, found.holders.values())] == [0, 1]
    assert found.overlaps == ()


def test_an_old_and_a_new_pod_of_a_driver_are_one_application() -> None:
    pods = [driver(f"batch-{count}", **{"spark-app-name": "batch"}) for count in range(2)]
    found = policy_selection.assign([make_policy(selector=ALL)], [*pods, driver("nameless")])
    assert [item.name for item in found.holders["flights/departures"]] == ["batch", "nameless"]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({"app": "backfill"}, "backfill"),
        ({"app": "backfill", "rekindle.dev/application": "own"}, "own"),
        ({"app": ""}, "pod-1"),
        ({"spark-app-name": "elsewhere"}, "pod-1"),
    ],
)
def test_a_driver_is_named_by_its_own_label_or_by_the_one_that_its_policy_says(
    labels: dict[str, str], name: str
) -> None:
    selector = {"drivers": {**ALL["drivers"], "nameLabel": "app"}}
    found = policy_selection.assign([make_policy(selector=selector)], [driver("pod-1", **labels)])
    assert [item.name for item in found.holders["flights/departures"]] == [name]


OVERLAPS = (
    Overlap("departures", "flights/a", ("flights/b", "flights/c")),
    Overlap("arrivals", "flights/a", ("flights/b",)),
)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            "flights/a",
            "departures is selected by flights/b, flights/c too; this policy holds. "
            "arrivals is selected by flights/b too; this policy holds. "
            "The oldest policy holds, of equally old ones the first by name.",
        ),
        (
            "flights/c",
            "departures is selected by flights/a too, which holds. "
            "The oldest policy holds, of equally old ones the first by name.",
        ),
    ],
)
def test_policies_that_overlap_say_so_both(policy: str, message: str) -> None:
    found = policy_conditions.exclusive(policy, OVERLAPS)
    assert (found.holds, found.reason) == (False, ResourceReason.POLICIES_OVERLAP)
    assert found.message == message


def test_a_policy_that_shares_nothing_is_exclusive() -> None:
    found = policy_conditions.exclusive("flights/d", OVERLAPS)
    assert (found.holds, found.reason) == (True, ResourceReason.NO_OVERLAP)


def test_many_overlaps_are_counted_not_listed() -> None:
    overlaps = [Overlap(f"app-{number}", "flights/a", ("flights/b",)) for number in range(100)]
    message = policy_conditions.exclusive("flights/b", overlaps).message
    assert "So it is with 95 more." in message
    assert len(message) < 500


def test_a_policy_that_holds_as_it_is_written_says_for_how_many() -> None:
    found = policy_conditions.accepted(held(), 2)
    assert (found.holds, found.reason) == (True, ResourceReason.AS_WRITTEN)
    assert found.message == "It holds for 2 applications, as it is written."


@pytest.mark.parametrize(
    ("policy", "applications", "queries", "reason"),
    [
        ({}, 0, ["q"], ResourceReason.NOTHING_SELECTED),
        ({"planning": {"solverBudgetSeconds": 60}}, 1, ["q"], ResourceReason.NARROWED),
        ({"planning": {"solverBudgetSeconds": 60}}, 1, [], ResourceReason.UNKNOWN_QUERIES),
        ({"planning": {"solverBudgetSeconds": 60}}, 0, ["q"], ResourceReason.NOTHING_SELECTED),
    ],
)
def test_a_policy_holds_and_says_what_is_not_as_its_author_may_think(
    policy: dict[str, Any], applications: int, queries: list[str], reason: ResourceReason
) -> None:
    everything = held({**policy, "priorities": [{"query": "q", "priority": 2}]})
    _, unknown = effective_policy.known(everything, queries)
    found = policy_conditions.accepted(everything, applications, unknown)
    assert (found.holds, found.reason) == (True, reason)
    assert ("which no pipeline has; there are: none." in found.message) == bool(unknown)
    assert ("class shared allows 5" in found.message) == bool(everything.narrowed)


def remarks(names: set[str], **spec: Any) -> dict[ResourceReason, str]:
    made = make_policy(recovers="Applications", **spec).spec
    cycles = policy_conditions.dependency_cycles(made)
    return dict(policy_conditions.application_remarks(made, names, cycles))


def test_names_that_a_policy_of_whole_applications_does_not_select_are_said_with_their_fields() -> (
    None
):
    found = remarks(
        {"ingest", "departures"},
        priorities=[{"query": "departure", "priority": 9}, {"query": "ingest", "priority": 2}],
        applications=[
            {"name": "departures", "dependsOn": ["ingst", "ingest"]},
            {"name": "arrivals", "minimumExecutors": 2},
        ],
    )
    assert found == {
        ResourceReason.UNKNOWN_APPLICATIONS: (
            "priorities names departure, applications names arrivals, "
            "applications[departures].dependsOn names ingst: no application of this policy has "
            "such a name. Correct the name, or start the application: until then the entry has no "
            "effect, and nothing waits for it."
        )
    }


def test_a_policy_whose_names_are_all_there_has_no_remark() -> None:
    needs = [{"name": "b", "dependsOn": ["a"]}, {"name": "c", "dependsOn": ["a", "b"]}]
    assert not remarks({"a", "b", "c"}, applications=needs)


@pytest.mark.parametrize(
    ("depends_on", "said"),
    [
        ({"a": ["a"]}, "applications[a].dependsOn names itself. Leave that name out."),
        ({"a": ["b"], "b": ["a"]}, "dependsOn a, b depend on each other"),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, "dependsOn b, c depend on each other"),
        (
            {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["e", "a"], "e": ["d"]},
            "dependsOn a, b, c depend on each other, so they come back together. Leave one of "
            "these names out where an order is meant. So it is with 1 other group.",
        ),
    ],
)
def test_a_cycle_of_dependencies_is_named_with_the_remedy(
    depends_on: dict[str, list[str]], said: str
) -> None:
    needs = [{"name": name, "dependsOn": others} for name, others in depends_on.items()]
    found = remarks({*"abcde"}, applications=needs)
    assert [*found] == [ResourceReason.DEPENDENCY_CYCLE]
    assert said in found[ResourceReason.DEPENDENCY_CYCLE]


def test_the_longest_chain_of_dependencies_that_a_policy_may_have_has_one_cycle() -> None:
    names = [f"a-{number:03}" for number in range(200)]
    needs = [{"name": name, "dependsOn": [names[at - 1]]} for at, name in enumerate(names)]
    spec = make_policy(recovers="Applications", applications=needs).spec
    assert policy_conditions.dependency_cycles(spec) == [tuple(names)]
    spec = make_policy(recovers="Applications", applications=needs[1:]).spec
    assert policy_conditions.dependency_cycles(spec) == []


def test_of_many_unknown_names_some_are_said_and_the_policy_holds_all_the_same() -> None:
    needs = [{"name": f"a-{number}", "dependsOn": ["x"]} for number in range(200)]
    found = remarks({"there"}, applications=needs)
    said = policy_conditions.accepted(held(), 1, remarks=[*found.items()])
    assert (said.holds, said.reason) == (True, ResourceReason.UNKNOWN_APPLICATIONS)
    assert "and so do 196 other fields" in said.message
    assert len(said.message) < 1000


def test_a_policy_without_its_class_is_not_accepted() -> None:
    found = policy_conditions.class_missing(
        make_policy(className="gold").spec, ["silver", "bronze"]
    )
    assert (found.holds, found.reason) == (False, ResourceReason.CLASS_MISSING)
    assert found.message == "There is no RecoveryClass gold; there are: bronze, silver."


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (["*"], True),
        (["flights"], True),
        (["flight*"], True),
        (["weather", "flights"], True),
        ([], False),
        (["flight"], False),
        (["flights2"], False),
        (["light*"], False),
    ],
)
def test_a_class_is_for_the_namespaces_that_it_names(allowed: list[str], expected: bool) -> None:
    assert make_class(allowedNamespaces=allowed).spec.allows("flights") is expected


def test_a_class_is_for_all_namespaces_unless_it_says_otherwise() -> None:
    assert make_class().spec.allows("flights")


def test_a_policy_whose_class_is_not_for_its_namespace_says_what_to_do() -> None:
    found = policy_conditions.class_not_allowed(make_policy(className="gold", namespace="flights"))
    assert (found.holds, found.reason) == (False, ResourceReason.CLASS_NOT_ALLOWED)
    assert "RecoveryClass gold is not for namespace flights" in found.message
    assert "Name another class, or have that one allow it." in found.message


@pytest.mark.parametrize(
    ("protected", "holds", "reason"),
    [
        ([], None, ResourceReason.NOTHING_SELECTED),
        ([True, True], True, ResourceReason.SIDECARS_PRESENT),
        ([True, False], False, ResourceReason.SIDECAR_MISSING),
    ],
)
def test_protection_is_that_of_every_driver(
    protected: list[bool], holds: bool | None, reason: ResourceReason
) -> None:
    applications = [
        SelectedApplication("Driver", f"app-{number}", protected=its)
        for number, its in enumerate(protected)
    ]
    found = policy_conditions.protected(applications)
    assert (found.holds, found.reason) == (holds, reason)
    assert ("app-1" in found.message) == (holds is False)


def test_coordination_at_risk_carries_the_worst_reason_and_every_sentence() -> None:
    dangers = [
        (Reason.STORE_UNREACHABLE, "The store does not answer."),
        (Reason.NO_COORDINATOR, "Nobody decides."),
    ]
    found = policy_conditions.at_risk(dangers)
    assert (found.holds, found.reason) == (True, Reason.STORE_UNREACHABLE)
    assert found.message == "The store does not answer. Nobody decides."
    assert policy_conditions.at_risk([]).holds is False


def test_a_policy_that_holds_for_nothing_says_which_of_two_reasons_it_is() -> None:
    held = effective_policy.effective(make_policy(), make_class())
    assert policy_conditions.accepted(held, 0).message == (
        "It holds for no application: none that is there is selected."
    )
    assert policy_conditions.accepted(held, 0, elsewhere=3).message == (
        "It holds for no application: it selects 3 applications, and older policies hold all."
    )
