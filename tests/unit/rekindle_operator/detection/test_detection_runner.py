"""What the shell's judge answers about an application that has lost a node."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
import spark_objects
from operator_world import FLIGHTS, KUBEFLOW, tell, untell
from running_judge import ADDRESSES, LOST, SPARK, judge_of_a_running_application

from operator_benchmark import cluster_layout
from rekindle.coordination import session
from rekindle.coordination.session import ApplicationReading, Case
from rekindle.model.reasons import Reason
from rekindle.protocol import Heartbeat, ProgressReport
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.nodes import node_seen
from rekindle_operator.cluster.pods import pod_seen
from rekindle_operator.detection import node_detector
from rekindle_operator.detection.detection_events import DetectionEvent, DetectionKind
from rekindle_operator.detection.detection_input import Leases, WatchedNode
from rekindle_operator.detection.detection_runner import (
    SILENT_NODES_MAX,
    DetectionRunner,
)
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.detection.lease_timers import Timers
from rekindle_operator.detection.node_inventory import NodeInventory
from rekindle_operator.policies import effective_policy
from rekindle_testing.operator_builders import make_class, make_policy
from testbed.node_objects import ZONE


def test_a_lost_node_stays_gone_when_the_pod_on_it_was_deleted_before_the_driver_dropped_it() -> (
    None
):
    judge, _ = judge_of_a_running_application()
    assert judge.gone_nodes(SPARK.place) == {LOST.address}
    judge.known.registry.forget_pod(f"uid-{LOST.number}")
    assert judge.gone_nodes(SPARK.place) == {LOST.address}
    assert judge.hosts(SPARK.place)[LOST.address] == LOST.node


def test_another_executor_with_the_address_of_a_deleted_one_is_not_gone() -> None:
    judge, reading = judge_of_a_running_application()
    judge.known.registry.forget_pod(f"uid-{LOST.number}")
    progress = reading.progress
    assert progress is not None
    another = msgspec.structs.replace(progress.nodes[LOST.address], incarnation="99.0")
    nodes = {**progress.nodes, LOST.address: another}
    later = replace(reading, progress=msgspec.structs.replace(progress, nodes=nodes))
    judge.hear(SPARK.place, later, now=1.0)
    judge._heard.clear()
    assert judge.gone_nodes(SPARK.place) == frozenset()


def test_a_new_machine_that_has_the_name_of_a_lost_one_is_not_lost() -> None:
    judge, _ = judge_of_a_running_application()
    suspected = DetectionEvent(
        DetectionKind.SUSPECTED, Reason.SUSPECTED_FAILURE, 5.0, "", LOST.node, uid="the-lost-one"
    )
    judge._sight((suspected,), 5.0)
    assert judge.lost_nodes(SPARK.place) == {LOST.node}
    body = spark_objects.node(LOST.node)
    for uid, lost in (("the-lost-one", {LOST.node}), ("another", set())):
        body["metadata"]["uid"] = uid
        judge.known.registry.see_node(node_seen(body))
        assert judge.lost_nodes(SPARK.place) == lost


def case_of_a_loss(reading: ApplicationReading, *, named: bool) -> tuple[Case, ApplicationReading]:
    """What the store has of an application whose driver has dropped a lost executor by itself:
    record and reports. A record of an earlier release has no names of Nodes."""
    progress = reading.progress
    assert progress is not None
    if not named:
        seen = {
            name: msgspec.structs.replace(node, cluster_node=None)
            for name, node in progress.nodes.items()
        }
        progress = msgspec.structs.replace(progress, nodes=seen)
        reading = replace(reading, progress=progress)
    case = session.decide(Case(), reading, 10.0, clock=float, plan=False).case
    assert case.state is not None
    left = {name: node for name, node in progress.nodes.items() if name != LOST.address}
    dropped = msgspec.structs.replace(progress, nodes=left, sequence=progress.sequence + 1)
    later = replace(reading, progress=dropped)
    case = replace(case, state=replace(case.state, starting=False))
    return session.decide(case, later, 20.0, clock=float, plan=False).case, later


def judge_that_comes_later(*, named: bool, pod_left: bool) -> DetectionRunner:
    """One whose operator has started after a loss that the driver has planned for alone."""
    before, reading = judge_of_a_running_application()
    case, later = case_of_a_loss(reading, named=named)
    assert case.incident is not None
    assert case.incident.lost == (LOST.address,)
    if not pod_left:
        before.known.registry.forget_pod(f"uid-{LOST.number}")
    judge = DetectionRunner(before.known)
    judge.hear(SPARK.place, later, now=0.0)
    judge.note_decision(SPARK.place, case)
    assert LOST.address not in judge.hosts(SPARK.place)
    return judge


@pytest.mark.parametrize(
    ("named", "pod_left", "known"),
    [(True, False, LOST.node), (False, True, LOST.node), (False, False, None)],
    ids=["by the record", "by the pod", "by nothing"],
)
def test_a_judge_that_comes_later_knows_where_a_lost_executor_was(
    named: bool, pod_left: bool, known: str | None
) -> None:
    judge = judge_that_comes_later(named=named, pod_left=pod_left)
    assert judge.hosts_ever(SPARK.place).get(LOST.address) == known


def test_a_node_that_was_lost_before_is_lost_while_it_looks_lost_and_avoided() -> None:
    judge = judge_that_comes_later(named=True, pod_left=False)
    held = effective_policy.effective(make_policy(), make_class("shared"))
    assert judge.lost_nodes(SPARK.place) == frozenset(), "it may be back since"
    judge.state = replace(judge.state, nodes={LOST.node: WatchedNode("the-lost-one", "Unknown")})
    silent_for(judge, 60.0, LOST.node)
    assert judge.lost_nodes(SPARK.place) == {LOST.node} == judge.nodes_lost
    assert Domain("kubernetes.io/hostname", LOST.node) in judge.avoided(SPARK.place, held)
    judge.state = replace(judge.state, suspects={})
    assert judge.lost_nodes(SPARK.place) == frozenset(), "it is heard of"
    silent_for(judge, 60.0, LOST.node)
    judge.forget_decisions()
    assert judge.lost_nodes(SPARK.place) == frozenset(), "another one decides"


@pytest.mark.parametrize(
    ("left", "gone"),
    [
        ("executors", True),
        ("resource", True),
        ("resource that waits for its first driver", False),
        ("nothing of this cluster", False),
    ],
    ids=lambda value: str(value),
)
def test_a_judge_that_comes_later_knows_by_what_is_left_that_a_driver_is_gone(
    left: str, gone: bool
) -> None:
    resource, driver, executor = KUBEFLOW[0], KUBEFLOW[1], KUBEFLOW[2]
    known = ClusterView()
    tell(known.registry, driver)
    if left == "executors":
        tell(known.registry, executor)
    if left == "resource":
        tell(known.registry, resource)
    if left == "resource that waits for its first driver":
        tell(known.registry, spark_objects.kubeflow_application(state="SUBMITTED"))
    assert not DetectionRunner(known).driver_gone(FLIGHTS, None)
    untell(known.registry, driver)
    assert DetectionRunner(known).driver_gone(FLIGHTS, None) == gone


def test_the_next_lease_to_expire_is_one_that_is_not_suspected_yet() -> None:
    judge = DetectionRunner(ClusterView())
    timers = Timers(since={"a": 100.0, "b": 90.0, "c": 95.0}, intervals={"c": 40.0})
    judge.state = replace(judge.state, timers=timers, suspects={"b": 110.0})
    assert judge.expires_at() == 120.0
    judge.state = replace(judge.state, suspects={"a": 120.0, "b": 110.0})
    assert judge.expires_at() == 175.0
    judge.state = replace(judge.state, suspects={"a": 120.0, "b": 110.0, "c": 175.0})
    assert judge.expires_at() == float("inf")


def test_the_last_word_of_a_driver_that_is_gone_keeps_no_lost_node() -> None:
    judge, reading = judge_of_a_running_application()
    progress = reading.progress
    assert progress is not None
    seen = msgspec.structs.replace(progress.nodes[LOST.address], silent_seconds=0.0)
    nodes = {**progress.nodes, LOST.address: seen}
    word = msgspec.structs.replace(progress, nodes=nodes)
    alive = Heartbeat(generation=progress.generation, since=0.0)
    now = time.monotonic()
    judge.hear(SPARK.place, replace(reading, progress=word, heartbeat=alive), now)
    assert judge.gone_nodes(SPARK.place) == frozenset()
    judge.hear(SPARK.place, replace(reading, progress=word), now)
    assert judge.gone_nodes(SPARK.place) == {LOST.address}


def test_a_verdict_is_kept_for_the_applications_on_its_node_and_for_no_other() -> None:
    judge, _ = judge_of_a_running_application()
    elsewhere = DetectionEvent(
        DetectionKind.SUSPECTED, Reason.SUSPECTED_FAILURE, 5.0, "", "far-away"
    )
    assert judge._sight((elsewhere,), 5.0) == frozenset()
    here = replace(elsewhere, node=LOST.node, uid="1")
    assert judge._sight((elsewhere, here), 5.0) == {SPARK.place}
    assert judge.sightings[SPARK.place].keys() == {LOST.node}
    on_driver = replace(elsewhere, node=SPARK.driver_node)
    judge._sight((on_driver,), 5.0)
    sighted = judge.sightings[SPARK.place]
    assert {name: item.driver for name, item in sighted.items()} == {
        LOST.node: False,
        SPARK.driver_node: True,
    }
    judge.known.registry.forget_pod(f"uid-{LOST.number}")
    judge._sight((replace(here, kind=DetectionKind.RETURNED, at=9.0),), 9.0)
    assert judge.sightings[SPARK.place][LOST.node].heard_at is not None, "it was sighted before"


def test_lost_nodes_are_avoided_by_name_until_most_of_their_domain_is_lost() -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    assert judge.avoided(SPARK.place, held) == (Domain("kubernetes.io/hostname", LOST.node),)
    judge.state = replace(judge.state, told={})
    assert judge.avoided(SPARK.place, held) == ()


def test_domains_are_by_the_labels_of_the_policy_and_outlive_their_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, _ = judge_of_a_running_application()
    assert judge.domains(SPARK.place) == {}, "no policy says which labels"
    held = effective_policy.effective(make_policy(), make_class("shared"))
    monkeypatch.setattr(ClusterView, "held", lambda *_: held)
    for item, zone in zip(SPARK.executors, "ab", strict=False):
        body = spark_objects.node(item.node)
        body["metadata"]["labels"] = {ZONE: zone}
        judge.known.registry.see_node(node_seen(body))
    judge.avoidance.labels[LOST.node] = {ZONE: "c"}
    assert judge.domains(SPARK.place) == {
        ADDRESSES[0]: "a",
        ADDRESSES[1]: "b",
        LOST.address: "c",
    }


def silent_for(judge: DetectionRunner, seconds: float, *nodes: str) -> DetectionRunner:
    """A judge to whom these nodes have been silent for so long, while others renewed."""
    now = time.monotonic()
    timers = Timers(
        since=dict.fromkeys(nodes, now - seconds), asked_at=now, answered_at=now, renewed_after=now
    )
    suspects = dict.fromkeys(nodes, now - seconds)
    judge.state = replace(judge.state, timers=timers, suspects=suspects)
    judge.avoidance.note(judge.state, now, judge.rules)
    return judge


def test_silent_nodes_are_avoided_by_who_has_lost_others_until_they_are_heard_of() -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    names = {LOST.node, "nobodys"}
    silent_for(judge, 60.0, "nobodys")
    assert {domain.value for domain in judge.avoided(SPARK.place, held)} == names
    told, judge.state = judge.state.told, replace(judge.state, told={})
    assert judge.avoided(SPARK.place, held) == (), "it has lost nothing"
    judge.state = replace(judge.state, told=told, timers=Timers())  # after a gap nothing is silent
    judge.avoidance.note(judge.state, time.monotonic(), judge.rules)
    assert {domain.value for domain in judge.avoided(SPARK.place, held)} == names
    judge.state = replace(judge.state, suspects={})
    judge.avoidance.note(judge.state, time.monotonic(), judge.rules)
    assert {domain.value for domain in judge.avoided(SPARK.place, held)} == {LOST.node}


def test_of_very_many_silent_nodes_those_are_named_that_have_been_so_longest() -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    first = {f"silent-{number}" for number in range(SILENT_NODES_MAX)}
    silent_for(judge, 60.0, *first)
    silent_for(judge, 20.0, *first, "another")
    named = {domain.value for domain in judge.avoided(SPARK.place, held)}
    assert named == first | {LOST.node}, "one more pushes nobody out"


def test_what_fell_silent_before_we_looked_counts_from_when_it_was_said_not_to_be_ready() -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    see_nodes(judge, {LOST.node: "a", "dead": "a", "fresh": "a", "elsewhere": "b"}, -60)
    judge.avoidance._since[LOST.node] = 0.0
    body = spark_objects.node("dead")
    body["metadata"]["labels"] = {ZONE: "a"}
    said = datetime.fromtimestamp(time.time() - 300, UTC).isoformat()
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": said}
    body["status"]["conditions"] = [condition]
    judge.known.registry.see_node(node_seen(body))
    silent_for(judge, 20.0, "dead")
    assert Domain(ZONE, "a") not in judge.avoided(SPARK.place, held), "`fresh` came after that"


def test_who_has_lost_nodes_is_looked_at_again_when_others_fall_silent_or_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, _ = judge_of_a_running_application()
    told, silent = judge.state.told, frozenset({"nobodys"})

    def round_of_detection(at: float) -> frozenset[Place]:
        found = judge.judge((), Leases(tokens={}, asked_at=at, answered_at=at), at)
        judge.state = replace(judge.state, told=told)
        return found

    def detect(
        before: NodeInventory, *_: object
    ) -> tuple[NodeInventory, tuple[DetectionEvent, ...]]:
        return before, ()

    monkeypatch.setattr(node_detector, "detect", detect)
    monkeypatch.setattr(node_detector, "silent_nodes", lambda *_: silent)
    assert round_of_detection(10.0) == {SPARK.place}
    assert round_of_detection(20.0) == frozenset()
    silent = frozenset()
    assert round_of_detection(30.0) == {SPARK.place}


def test_who_has_lost_nodes_is_looked_at_again_when_their_domain_gives_nodes() -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    see_nodes(judge, {LOST.node: "a", "also-lost": "a", "elsewhere": "b"}, 0.0)
    told = dict.fromkeys((LOST.node, "also-lost"), frozenset({str(SPARK.place)}))

    judge.state = replace(judge.state, told=told)
    avoided, otherwise = [], []
    for came in (False, False, True, False):
        if came:
            see_nodes(judge, {"fresh": "a"}, 60.0)
        otherwise.append(judge.avoidance.note(judge.state, 10.0, judge.rules))
        avoided.append(Domain(ZONE, "a") in judge.avoided(SPARK.place, held))
    assert avoided == [True, True, False, False]
    assert otherwise == [False, False, True, False], "also where nothing else has changed"


@pytest.mark.parametrize(
    ("since_seconds", "is_impaired"), [(-60, False), (-120, True)], ids=["after", "before"]
)
def test_a_node_counts_as_missing_from_when_its_lease_was_due(
    since_seconds: float, is_impaired: bool
) -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    see_nodes(judge, {LOST.node: "a", "late": "a", "fresh": "a", "elsewhere": "b"}, since_seconds)
    judge.avoidance._since[LOST.node] = 0.0
    silent_for(judge, 90.0, "late")
    assert (Domain(ZONE, "a") in judge.avoided(SPARK.place, held)) == is_impaired


@pytest.mark.parametrize(
    ("since_seconds", "ready", "is_impaired"),
    [(-60, "True", True), (60, "True", False), (60, "False", True)],
)
def test_a_domain_is_let_alone_once_a_node_is_up_in_it_that_came_after_its_last_loss(
    since_seconds: float, ready: str, is_impaired: bool
) -> None:
    judge, _ = judge_of_a_running_application()
    held = effective_policy.effective(make_policy(), make_class("shared"))
    zones = {LOST.node: "a", "also-lost": "a", "third": "a", "fresh": "a", "elsewhere": "b"}
    see_nodes(judge, zones, since_seconds, ready)
    told = dict.fromkeys((LOST.node, "also-lost", "third"), frozenset({str(SPARK.place)}))
    judge.state = replace(judge.state, told=told)
    judge.avoidance.note(judge.state, 0.0, judge.rules)
    assert (Domain(ZONE, "a") in judge.avoided(SPARK.place, held)) == is_impaired


def see_nodes(
    judge: DetectionRunner, zones: Mapping[str, str], since_seconds: float, ready: str = "True"
) -> None:
    """Nodes by their zones; that named `fresh` was made so many seconds from now."""
    for name, zone in zones.items():
        body = spark_objects.node(name)
        body["metadata"] |= {"labels": {ZONE: zone}, "creationTimestamp": "2020-01-01T00:00:00Z"}
        if name == "fresh":
            made = datetime.fromtimestamp(time.time() + since_seconds, UTC)
            body["metadata"]["creationTimestamp"] = made.isoformat()
            body["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        judge.known.registry.see_node(node_seen(body))


def test_an_executor_without_an_address_yet_is_not_the_one_that_had_its_number_before() -> None:
    judge, _ = judge_of_a_running_application()
    judge.known.registry.forget_pod(f"uid-{LOST.number}")
    body = cluster_layout.executor_pod(SPARK, replace(LOST, node="of-the-next-driver"), "uid-0")
    body["metadata"]["uid"], body["status"] = "uid-of-the-next", {"phase": "Pending"}
    seen = pod_seen(body)
    assert seen is not None
    judge.known.registry.see_pod(seen)
    assert "of-the-next-driver" not in judge.hosts(SPARK.place).values()


def test_nodes_are_found_again_when_the_report_or_the_pods_have_changed() -> None:
    judge, reading = judge_of_a_running_application()
    before = judge.hosts(SPARK.place)
    assert judge.hosts(SPARK.place) == before
    judge.known.registry.forget_pod(f"uid-{LOST.number}")
    body = cluster_layout.executor_pod(SPARK, replace(LOST, node="another-node"), "uid-0")
    body["metadata"]["uid"] = "uid-of-another"
    body["status"] = {"phase": "Running", "podIP": LOST.address}
    seen = pod_seen(body)
    assert seen is not None
    judge.known.registry.see_pod(seen)
    assert judge.hosts(SPARK.place) == {**before, LOST.address: "another-node"}
    progress = reading.progress
    assert progress is not None
    nodes = {name: item for name, item in progress.nodes.items() if name != LOST.address}
    later = replace(reading, progress=msgspec.structs.replace(progress, nodes=nodes))
    judge.hear(SPARK.place, later, now=1.0)
    assert LOST.address not in judge.hosts(SPARK.place)


def test_an_application_whose_driver_still_hears_a_lost_node_is_looked_at_until_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, reading = judge_of_a_running_application()
    now = 1_000.0
    monkeypatch.setattr("rekindle_operator.detection.detection_runner.time.monotonic", lambda: now)
    alive = Heartbeat(generation=reading.topology.generation, since=0.0)
    judge.hear(SPARK.place, replace(reading, progress=said_again(reading), heartbeat=alive), now)
    assert judge.lost_nodes(SPARK.place) == frozenset()

    def round_of_detection() -> frozenset[Place]:
        told = judge.state.told
        found = judge.judge((), Leases(tokens={}, asked_at=now, answered_at=now), now)
        judge.state = replace(judge.state, told=told)
        return found

    now += 5.0
    assert round_of_detection() == {SPARK.place}
    assert judge.lost_nodes(SPARK.place) == frozenset()
    now += 10.0  # the driver's word is too old by now
    assert round_of_detection() == {SPARK.place}
    assert judge.lost_nodes(SPARK.place) == {LOST.node}
    now += 5.0
    assert round_of_detection() == frozenset()


def said_again(reading: ApplicationReading) -> ProgressReport:
    """A later report that says the same."""
    progress = reading.progress
    assert progress is not None
    return msgspec.structs.replace(progress, sequence=progress.sequence + 1)


def test_nothing_is_kept_of_a_driver_that_is_heard_of_without_objects_until_they_are_there() -> (
    None
):
    before, reading = judge_of_a_running_application()
    judge = DetectionRunner(ClusterView())
    judge.hear(SPARK.place, reading, now=0.0)
    assert (judge._readings, judge._heard) == ({}, {})
    judge.known.registry = before.known.registry
    judge.hear(SPARK.place, reading, now=1.0)
    assert judge.hosts(SPARK.place)[LOST.address] == LOST.node
    assert judge._heard.keys() == {SPARK.place}


def test_a_recovery_of_an_application_that_is_gone_leaves_no_sightings_behind() -> None:
    judge = DetectionRunner(ClusterView())
    judge.settle(SPARK.place)
    assert judge.sightings == {}
