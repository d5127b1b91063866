"""Preflight: what it finds, and that it finds nothing where nothing is wrong."""

from collections.abc import Callable
from typing import Any

import msgspec
import preflight_world as world
import pytest
from spark_objects import Body

from rekindle_operator.api.recovery_policy import PolicyStatus
from rekindle_operator.preflight import preflight_checks, preflight_findings
from rekindle_operator.preflight.preflight_findings import Concern, PreflightSeverity
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment
from rekindle_testing.operator_builders import make_class, make_policy

KINDS = pytest.mark.parametrize("kind", world.KINDS)


def put(path: str, value: Any) -> Callable[[Body], None]:
    """A change of one field; dots in the names of settings are written as they are, after `:`."""
    folder, _, last = path.rpartition("/")

    def spoil(body: Body) -> None:
        for part in filter(None, folder.split("/")):
            body = body.setdefault(part, {})
        if value is None:
            body.pop(last, None)
        else:
            body[last] = value

    return spoil


@KINDS
def test_an_application_in_order_has_no_findings(kind: str) -> None:
    assert world.words(world.KINDS[kind]()) == []


CONF = {"kubeflow": "spec/sparkConf", "apache": "spec/sparkConf"}
SPOILT: list[tuple[str, str, Any, Concern, PreflightSeverity]] = [
    ("kubeflow", "spec/restartPolicy", None, Concern.DRIVER_NOT_RESTARTED, PreflightSeverity.ERROR),
    (
        "kubeflow",
        "spec/restartPolicy",
        {"type": "OnFailure"},
        Concern.DRIVER_NOT_RESTARTED,
        PreflightSeverity.ERROR,
    ),
    (
        "kubeflow",
        "spec/restartPolicy",
        {"type": "OnFailure", "onFailureRetries": 3},
        Concern.RESTARTS_LIMITED,
        PreflightSeverity.WARNING,
    ),
    (
        "apache",
        "spec/applicationTolerations",
        None,
        Concern.DRIVER_NOT_RESTARTED,
        PreflightSeverity.ERROR,
    ),
    (
        "apache",
        "spec/applicationTolerations/restartConfig",
        {"restartPolicy": "OnInfrastructureFailure"},
        Concern.RESTARTS_LIMITED,
        PreflightSeverity.WARNING,
    ),
    (
        "apache",
        "spec/applicationTolerations/restartConfig",
        {"restartPolicy": "Always", "maxRestartAttempts": 0},
        Concern.DRIVER_NOT_RESTARTED,
        PreflightSeverity.ERROR,
    ),
    (
        "plain",
        "metadata/ownerReferences",
        [],
        Concern.DRIVER_NOT_RESTARTED,
        PreflightSeverity.ERROR,
    ),
    (
        "plain",
        "metadata/ownerReferences",
        [{"kind": "Job", "controller": True}],
        Concern.NOT_CHECKED,
        PreflightSeverity.NOTE,
    ),
    ("kubeflow", "spec/driver/labels", None, Concern.INJECT_LABEL_MISSING, PreflightSeverity.ERROR),
    ("apache", "spec/driverSpec", None, Concern.INJECT_LABEL_MISSING, PreflightSeverity.ERROR),
    ("plain", "spec/initContainers", [], Concern.SIDECAR_MISSING, PreflightSeverity.ERROR),
    (
        "kubeflow",
        "spec/executor/affinity",
        None,
        Concern.EXECUTORS_TOGETHER,
        PreflightSeverity.WARNING,
    ),
    ("apache", "spec/executorSpec", None, Concern.EXECUTORS_TOGETHER, PreflightSeverity.WARNING),
    ("kubeflow", "spec/sparkConf", None, Concern.FAILURES_LIMITED, PreflightSeverity.WARNING),
    (
        "kubeflow",
        "spec/sparkConf/spark.kubernetes.executor.podNamePrefix",
        "departures",
        Concern.EXECUTOR_NAMES_FIXED,
        PreflightSeverity.WARNING,
    ),
    (
        "apache",
        "spec/sparkConf/spark.kubernetes.executor.podNamePrefix",
        "departures",
        Concern.EXECUTOR_NAMES_FIXED,
        PreflightSeverity.WARNING,
    ),
    (
        "apache",
        "spec/sparkConf/spark.excludeOnFailure.enabled",
        "true",
        Concern.FAILURES_LIMITED,
        PreflightSeverity.NOTE,
    ),
]


@pytest.mark.parametrize(
    ("kind", "path", "value", "word", "severity"),
    SPOILT,
    ids=[f"{row[0]}-{row[1].rpartition('/')[2]}-{row[3]}" for row in SPOILT],
)
def test_one_thing_that_is_spoilt_is_the_one_thing_that_is_found(
    kind: str, path: str, value: Any, word: Concern, severity: PreflightSeverity
) -> None:
    found = world.found(world.KINDS[kind](put(path, value)))
    assert [(item.word, item.severity) for item in found.values()] == [(word, severity)]
    assert found[word].sentence.endswith(".")
    assert found[word].remedy


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ({"spark.executor.maxNumFailures": "40"}, False),
        ({"spark.executor.failuresValidityInterval": "30m"}, False),
        ({"spark.executor.maxNumFailures": ""}, True),
        ({}, True),
    ],
)
def test_spark_may_give_up_unless_one_of_its_two_settings_says_otherwise(
    setting: dict[str, str], found: bool
) -> None:
    words = world.words(world.kubeflow_workload(put("spec/sparkConf", setting)))
    assert words == (["failures-limited"] if found else [])


def test_the_default_limit_of_failures_is_told_with_its_number() -> None:
    found = world.found(world.kubeflow_workload(put("spec/sparkConf", {})))
    assert "after 8 failed executors" in found[Concern.FAILURES_LIMITED].sentence


def test_settings_that_nobody_knows_are_a_note_and_not_a_guess() -> None:
    def bare(body: Body) -> None:
        body["spec"]["containers"][0]["args"] = []

    found = world.found(world.plain_workload(bare))
    assert [(item.word, item.severity) for item in found.values()] == [
        (Concern.NOT_CHECKED, PreflightSeverity.NOTE)
    ]


@KINDS
def test_nobody_looks_after_an_application_that_no_policy_selects(kind: str) -> None:
    other = make_policy("other", selector={"sparkApplications": {"names": ["arrivals"]}})
    found = world.found(world.KINDS[kind](), world.around(policies=(other,)))
    assert found[Concern.NO_POLICY].severity is PreflightSeverity.ERROR


def test_a_policy_of_another_namespace_looks_after_nobody_here() -> None:
    other = make_policy("all", namespace="elsewhere")
    assert Concern.NO_POLICY in world.found(
        world.kubeflow_workload(), world.around(policies=(other,))
    )


def test_of_two_policies_the_older_one_is_named_as_the_one_that_holds() -> None:
    policies = (make_policy("new"), make_policy("old", age_seconds=60))
    found = world.found(world.kubeflow_workload(), world.around(policies=policies))
    finding = found[Concern.POLICIES_OVERLAP]
    assert finding.severity is PreflightSeverity.WARNING
    assert finding.sentence.startswith("Policy old holds; it is selected by new too")


def test_a_class_that_is_not_there_is_an_error() -> None:
    found = world.found(world.kubeflow_workload(), world.around(classes={}))
    assert found[Concern.CLASS_MISSING].severity is PreflightSeverity.ERROR


def test_a_class_that_is_for_others_is_an_error() -> None:
    classes = {"default": make_class("default", allowedNamespaces=["elsewhere"])}
    found = world.found(world.kubeflow_workload(), world.around(classes=classes))
    assert found[Concern.CLASS_NOT_ALLOWED].severity is PreflightSeverity.ERROR
    assert Concern.CLASS_MISSING not in found


@pytest.mark.parametrize(
    ("fencing", "guards", "severity"),
    [
        (world.FENCING, {}, None),
        ({}, {}, PreflightSeverity.WARNING),
        (world.FENCING, {"fencing": "Never"}, PreflightSeverity.WARNING),
    ],
)
def test_the_fixed_name_of_kubeflows_driver_blocks_the_next_one_without_fencing(
    fencing: Any, guards: Any, severity: PreflightSeverity | None
) -> None:
    cluster = world.around(
        policies=(make_policy(guards=guards),), classes={"default": make_class(fencing=fencing)}
    )
    found = world.found(world.kubeflow_workload(), cluster)
    said = found.get(Concern.DRIVER_NAME_FIXED)
    assert (said and said.severity) == severity
    # Drivers of apache's operator have a name each.
    assert Concern.DRIVER_NAME_FIXED not in world.found(world.apache_workload(), cluster)


def test_a_fixed_drivers_name_is_a_note_where_the_class_cannot_be_read() -> None:
    found = world.found(world.kubeflow_workload(), world.around(classes=None))
    assert found[Concern.DRIVER_NAME_FIXED].severity is PreflightSeverity.NOTE


def test_a_stateful_sets_driver_has_a_fixed_name() -> None:
    def owned(body: Body) -> None:
        body["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "controller": True}]

    cluster = world.around(classes={"default": make_class()})
    found = world.found(world.plain_workload(owned), cluster)
    assert found[Concern.DRIVER_NAME_FIXED].severity is PreflightSeverity.WARNING


@pytest.mark.parametrize(
    ("zones", "word"),
    [
        (("a", "b", "c"), None),
        (("a", "b", "b"), Concern.DOMAINS_TOO_FEW),
        (("a",), Concern.DOMAINS_TOO_FEW),
        (("", ""), Concern.DOMAINS_UNLABELLED),
    ],
)
def test_three_servers_of_the_store_need_three_failure_domains(
    zones: tuple[str, ...], word: Concern | None
) -> None:
    nodes = tuple({"topology.kubernetes.io/zone": zone} for zone in zones)
    found = preflight_checks.cluster(world.around(nodes=nodes), ())
    assert [item.word for item in found] == ([] if word is None else [word])


def test_failure_domains_are_counted_by_the_first_key_of_each_policy() -> None:
    nodes = tuple({"example.com/rack": rack, "topology.kubernetes.io/zone": rack} for rack in "abc")
    policies = (
        make_policy("racks", failureDomainKeys=["example.com/rack"]),
        make_policy("rows", failureDomainKeys=["example.com/row"]),
    )
    found = preflight_checks.cluster(world.around(nodes=nodes), policies)
    assert [item.word for item in found] == [Concern.DOMAINS_UNLABELLED]
    assert "example.com/row" in found[0].sentence


@pytest.mark.parametrize("part", ["quotas", "policies", "classes"])
def test_what_cannot_be_read_is_a_note(part: str) -> None:
    found = preflight_checks.application(world.apache_workload(), world.around(**{part: None}))
    assert [(item.word, item.severity) for item in found] == [
        (Concern.NOT_CHECKED, PreflightSeverity.NOTE)
    ]


def test_nodes_that_cannot_be_read_are_a_note() -> None:
    (found,) = preflight_checks.cluster(
        world.around(nodes=None), (make_policy(), make_policy("other"))
    )
    assert (found.word, found.severity) == (Concern.NOT_CHECKED, PreflightSeverity.NOTE)


def test_the_worst_comes_first_and_a_level_counts_what_is_as_bad_or_worse() -> None:
    def spoil(body: Body) -> None:
        body["spec"] |= {"restartPolicy": {}, "sparkConf": {}}

    found = preflight_checks.application(world.kubeflow_workload(spoil), world.around(quotas=None))
    assert [str(item.severity) for item in found] == ["error", "warning", "note"]
    assert [preflight_findings.at_least(found, level) for level in PreflightSeverity] == [1, 2, 3]


def test_without_a_cluster_the_remedy_is_to_ask_one() -> None:
    subject = world.KINDS["kubeflow"]()
    for asked in (True, False):
        around = PreflightEnvironment(asked=asked)
        notes = preflight_checks.application(subject, around) + preflight_checks.cluster(around, ())
        remedies = " ".join(item.remedy for item in notes if item.word is Concern.NOT_CHECKED)
        assert ("ask for the right" in remedies) is asked
        assert ("leave --offline out" in remedies) is not asked


def test_of_a_store_that_is_not_there_it_is_said_what_would_happen() -> None:
    around = PreflightEnvironment(nodes=({"topology.kubernetes.io/zone": "a"},))
    (found,) = preflight_checks.cluster(around, ())
    assert "would share the one failure domain (a)" in found.sentence


@pytest.mark.parametrize(
    ("webhooks", "away"),
    [(None, ()), ({}, ()), ({"r/w": 1}, ()), ({"r/w": 0, "s/w": 1}, ("r/w",))],
)
def test_a_webhook_without_a_replica_that_answers_is_named(
    webhooks: dict[str, int] | None, away: tuple[str, ...]
) -> None:
    found = preflight_checks.cluster(world.around(webhooks=webhooks), ())
    told = [item for item in found if item.word is Concern.WEBHOOK_AWAY]
    assert [item.severity for item in told] == [PreflightSeverity.ERROR] * len(away)
    for name, item in zip(away, told, strict=True):
        assert f"(Deployment {name})" in item.sentence


@pytest.mark.parametrize(
    ("away", "webhooks", "said"),
    [
        (True, None, ["webhookAway of policy all"]),
        (False, None, []),
        (True, {"r/w": 1}, []),
    ],
)
def test_who_may_list_no_deployments_learns_of_the_webhook_by_a_policy(
    away: bool, webhooks: dict[str, int] | None, said: list[str]
) -> None:
    (policy,) = world.around().policies or ()
    marked = msgspec.structs.replace(policy, status=PolicyStatus(webhook_away=away))
    found = preflight_checks.cluster(world.around(policies=(marked,), webhooks=webhooks), ())
    told = [item.sentence for item in found if item.word is Concern.WEBHOOK_AWAY]
    assert len(told) == len(said)
    assert all(text in sentence for text, sentence in zip(said, told, strict=True))


def test_classes_whose_drivers_reach_an_open_store_are_named() -> None:
    secured = world.around().classes or {}
    assert not [
        item for item in preflight_checks.cluster(world.around(), ()) if "store" in item.word
    ]
    bare = {"store": {"addresses": ["zookeeper:2181"]}}
    classes = {**secured, "plain": make_class("plain"), "bare": make_class("bare", sidecar=bare)}
    found = preflight_checks.cluster(world.around(classes=classes), ())
    (finding,) = [item for item in found if item.word is Concern.STORE_OPEN]
    assert finding.severity is PreflightSeverity.WARNING
    assert "RecoveryClass bare, plain reach" in finding.sentence


def test_classes_whose_drivers_reach_the_store_in_plain_text_are_named() -> None:
    secret = {"addresses": ["zookeeper:2181"], "secretRef": {"name": "rekindle-credential"}}
    classes = {
        **(world.around().classes or {}),
        "plain": make_class("plain", sidecar={"store": secret}),
    }
    found = preflight_checks.cluster(world.around(classes=classes), ())
    (finding,) = [item for item in found if "store" in item.word]
    assert (finding.word, finding.severity) == (Concern.STORE_PLAINTEXT, PreflightSeverity.WARNING)
    assert "RecoveryClass plain reach" in finding.sentence
    assert "sidecar.store.caSecretRef" in finding.remedy
