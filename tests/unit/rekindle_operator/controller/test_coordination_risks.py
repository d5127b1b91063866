"""Dangers of the coordination, and the condition that says them."""

from datetime import UTC, datetime, timedelta

import pytest

from rekindle.coordination.session import Driver
from rekindle.model.reasons import Reason
from rekindle_operator.api import custom_resources
from rekindle_operator.api.custom_resources import ConditionFinding, camel_case
from rekindle_operator.controller.coordination_risks import Coordination, DriverContact, dangers
from rekindle_operator.detection.detection_events import DetectionReason
from rekindle_operator.policies import policy_conditions
from rekindle_operator.recovery.recovery_reasons import RecoveryReason
from rekindle_testing.operator_builders import make_class

NOW = datetime(2026, 11, 21, 17, 14, 51, 123_000, tzinfo=UTC)
SOUND = Coordination(store_reachable=True, servers=3, servers_up=3, coordinators=2)

TABLE = [
    (SOUND, (), []),
    (SOUND, (DriverContact("a", Driver.THERE),), []),
    (Coordination(True, 3, None, 2), (), []),
    (Coordination(False, 3, 0, 2), (), ["store-unreachable"]),
    (Coordination(True, 3, 3, 1), (), ["no-standby"]),
    (Coordination(True, 1, 1, 2), (), ["store-single"]),
    (Coordination(True, 3, 2, 2), (), ["store-degraded"]),
    (Coordination(True, 3, 3, 2, webhook_away=True), (), ["webhook-away"]),
    (SOUND, (DriverContact("a", Driver.SILENT),), ["driver-silent"]),
    (SOUND, (DriverContact("a", Driver.GONE),), []),
    (SOUND, (DriverContact("a", Driver.FINISHED, alone=True),), []),
    (SOUND, (DriverContact("a", Driver.THERE, alone=True),), ["driver-alone"]),
    (SOUND, (DriverContact("a", Driver.THERE, trouble="line 1"),), ["bad-record"]),
    (
        Coordination(True, 1, 1, 1),
        (DriverContact("a", Driver.THERE, alone=True), DriverContact("b", Driver.SILENT)),
        ["driver-silent", "driver-alone", "store-single", "no-standby"],
    ),
]


@pytest.mark.parametrize(("coordination", "contacts", "words"), TABLE)
def test_each_danger_has_its_word_the_worst_first(
    coordination: Coordination, contacts: tuple[DriverContact, ...], words: list[str]
) -> None:
    found = dangers(coordination, contacts)
    assert [str(word) for word, _ in found] == words
    finding = policy_conditions.at_risk(found)
    assert finding.holds is bool(words)
    assert all(text.endswith((".", "line 1")) for _, text in found)


def test_a_class_with_machines_of_another_cluster_says_that_none_comes_of_them() -> None:
    secret = {"namespace": "rekindle", "name": "management"}
    deployments = [{"namespace": "capi", "name": "streaming", "replicasMax": 3}]
    machines = {"machineDeployments": deployments, "kubeconfigSecretRef": secret}
    entry = {"name": "machines", "provider": "ClusterAPI", "clusterAPI": machines}
    found = policy_conditions.class_accepted(2, make_class(provisioning=[entry]).spec)
    assert (found.holds, found.reason) == (True, "cluster-not-reached")
    assert found.message.startswith("No node comes of machines: ")
    sound = policy_conditions.class_accepted(1, make_class().spec)
    assert (sound.reason, sound.message) == ("as-written", "1 policy names it.")


SENTENCES = [
    (Coordination(True, 3, 2, 2), "2 of 3 servers of the store answer: it ends with one more."),
    (Coordination(True, 5, 4, 2), "4 of 5 servers of the store answer: 1 more may go."),
    (Coordination(True, 5, 3, 2), "3 of 5 servers of the store answer: it ends with one more."),
]


@pytest.mark.parametrize(("coordination", "sentence"), SENTENCES)
def test_how_near_the_store_is_to_its_end_is_said(
    coordination: Coordination, sentence: str
) -> None:
    assert [text for _, text in dangers(coordination)] == [sentence]


def test_queries_that_have_stopped_are_said_with_the_record() -> None:
    nobody = policy_conditions.queries_running({})
    assert (nobody.holds, nobody.reason) == (None, "nothing-selected")
    well = policy_conditions.queries_running({"flights": {}, "ships": {}})
    assert (well.holds, well.message) == (True, "No query of 2 applications has stopped.")
    unheard = policy_conditions.queries_running({"flights": {}, "ships": None})
    assert (unheard.holds, unheard.reason) == (None, "not-heard-of")
    why = f"step tops: raised ValueError: {'x' * 400}"
    found = policy_conditions.queries_running(
        {"ships": None, "flights": {f"q{n}": (why,) for n in range(7)}, "trains": {"late": ("no",)}}
    )
    assert (found.holds, found.reason) == (False, "query-stopped")
    names = "Stopped: q0, q1, q2, q3, q4, q5, q6 of flights; late of trains. "
    assert found.message.startswith(f"{names}q0: step tops: raised ValueError: xxx")
    assert found.message.count("raised") == 1
    assert found.message.endswith(" late: no")
    assert len(found.message) < custom_resources.MESSAGE_LENGTH_MAX


def test_a_condition_keeps_its_moment_until_its_status_changes() -> None:
    first = custom_resources.updated(
        (), [ConditionFinding("Protected", True, Reason.STARTED, "All well.")], 1, NOW
    )
    later = custom_resources.updated(
        first,
        [ConditionFinding("Protected", True, Reason.RESUMED, "Still.")],
        2,
        NOW + timedelta(seconds=9),
    )
    (kept,) = later
    assert kept.last_transition_time == NOW.replace(microsecond=0)
    assert (kept.reason, kept.message, kept.observed_generation) == ("Resumed", "Still.", 2)
    (turned,) = custom_resources.updated(
        later,
        [ConditionFinding("Protected", None, Reason.RESUMED, "?")],
        2,
        NOW + timedelta(seconds=9),
    )
    assert turned.status == "Unknown"
    assert turned.last_transition_time == NOW.replace(microsecond=0) + timedelta(seconds=9)


def test_a_word_is_in_one_list_only() -> None:
    lists = [Reason, RecoveryReason, DetectionReason, custom_resources.ResourceReason]
    words = [str(word) for words in lists for word in words]
    assert len(words) == len(set(words))


def test_every_word_can_be_a_reason_of_a_condition_or_an_event() -> None:
    for word in RecoveryReason:
        assert camel_case(word).isalpha()
        assert len(camel_case(word)) <= 64
        assert word.meaning


def test_a_class_says_whether_its_drivers_need_a_secret_for_the_store() -> None:
    store = {"addresses": ["zookeeper:2181"]}
    for sidecar in ({}, {"store": store}):
        found = policy_conditions.store_secured(make_class(sidecar=sidecar).spec)
        assert (found.type, found.holds, found.reason) == ("StoreSecured", False, "store-open")
    sidecar = {"store": {**store, "secretRef": {"name": "rekindle-store"}}}
    found = policy_conditions.store_secured(make_class(sidecar=sidecar).spec)
    assert (found.holds, found.reason) == (True, "store-has-secret")


def test_a_class_says_whether_its_drivers_reach_the_store_by_tls() -> None:
    store = {"addresses": ["zookeeper:2181"]}
    for sidecar in ({}, {"store": store}):
        found = policy_conditions.store_encrypted(make_class(sidecar=sidecar).spec)
        assert (found.type, found.holds) == ("StoreEncrypted", False)
        assert found.reason == "store-plaintext"
    sidecar = {"store": {**store, "caSecretRef": {"name": "rekindle-credential"}}}
    found = policy_conditions.store_encrypted(make_class(sidecar=sidecar).spec)
    assert (found.holds, found.reason) == (True, "store-tls")
