"""Announced nodes from round to round: deadlines, drains, and when such a node counts as lost."""

import time
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
import spark_objects
from running_judge import LOST, SPARK, judge_of_a_running_application

from rekindle.coordination.coordination_events import LossNotice
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.nodes import node_seen
from rekindle_operator.detection.detection_input import Leases
from rekindle_operator.detection.detection_runner import (
    DetectionRunner,
    DriverSilence,
)
from rekindle_operator.detection.lease_timers import Timers
from rekindle_operator.detection.node_inventory import NodeInventory
from rekindle_operator.detection.noticed_nodes import KEPT_SECONDS

SPOT = "aws-node-termination-handler/spot-itn"


def with_node(judge: DetectionRunner, ready: str = "True", **fields: object) -> frozenset[Place]:
    """The Node of the lost executor is seen so; the applications with news."""
    body = spark_objects.node(LOST.node)
    body["spec"].update(fields)
    body["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    judge.known.registry.see_node(node_seen(body))
    return judge.judge((), None, time.monotonic())


def a_calm_judge() -> DetectionRunner:
    judge, _ = judge_of_a_running_application()
    judge.state = NodeInventory()
    return judge


def test_a_tainted_node_is_announced_until_the_taint_goes() -> None:
    judge, began = a_calm_judge(), time.time()
    assert with_node(judge, taints=[{"key": SPOT}]) == {SPARK.place}
    ((name, notice),) = told(judge).items()
    assert (name, notice.source) == (LOST.address, f"taint {SPOT}")
    assert began + 120.0 <= notice.until <= time.time() + 120.0
    assert with_node(judge, taints=[{"key": SPOT}]) == frozenset()
    assert judge.notices(SPARK.place) == {LOST.address: notice}, "it counts from the first look"
    assert with_node(judge) == {SPARK.place}
    assert judge.notices(SPARK.place) == {}


def test_before_an_applications_report_nothing_is_known_of_its_notices() -> None:
    """None, unlike an empty answer, withdraws no notice that was recorded."""
    judge, reading = judge_of_a_running_application()
    known = judge.known
    fresh = DetectionRunner(known)
    with_node(fresh, taints=[{"key": SPOT}])
    assert fresh.notices(SPARK.place) is None
    fresh.hear(SPARK.place, replace(reading, progress=None), now=0.0)
    assert fresh.notices(SPARK.place) is None
    fresh.hear(SPARK.place, reading, now=0.0)
    assert set(told(fresh)) == {LOST.address}
    known.registry.forget_pods_but(())
    assert known.application(SPARK.place) is None
    assert fresh.notices(SPARK.place) is None


def test_a_cordoned_node_is_announced_once_one_of_its_executors_is_evicted() -> None:
    judge = a_calm_judge()
    assert with_node(judge, unschedulable=True) == frozenset()
    (pod,) = (pod for pod in application_of(judge).executors if pod.node == LOST.node)
    evicted = msgspec.structs.replace(pod, deleting_at=5, evicted=True)
    judge.known.registry.see_pod(evicted)
    assert judge.judge([SPARK.place], None, time.monotonic()) == frozenset()
    assert judge.notices(SPARK.place) == {}, "there is nothing left to save"
    other = msgspec.structs.replace(pod, uid="another", name="another", executor_id="99")
    judge.known.registry.see_pod(other)
    judge.known.registry.see_pod(msgspec.structs.replace(pod, deleting_at=5))
    assert judge.judge([SPARK.place], None, time.monotonic()) == frozenset()
    assert judge.notices(SPARK.place) == {}, "an executor that ends is no drain"
    judge.known.registry.see_pod(evicted)
    assert judge.judge([SPARK.place], None, time.monotonic()) == {SPARK.place}
    assert told(judge)[LOST.address].source == "drain"
    judge.known.registry.see_pod(pod)
    judge.judge([SPARK.place], None, time.monotonic())
    assert judge.notices(SPARK.place), "the drain goes on until the cordon is taken away"
    with_node(judge)
    assert judge.notices(SPARK.place) == {}


def test_a_recorded_drain_goes_on_after_a_restart_until_the_cordon_is_taken_away() -> None:
    """The evicted executor, which showed that it is one, has gone meanwhile."""
    restarted, until = a_calm_judge(), time.time() + 20.0
    recorded = {LOST.address: LossNotice("drain", until, held=("a/0",), requested=True)}
    with_node(restarted, unschedulable=True)
    assert restarted.notices(SPARK.place) == {}, "a cordon alone is no notice"
    assert restarted.notices(SPARK.place, recorded) == {LOST.address: LossNotice("drain", until)}
    spot = {LOST.address: LossNotice(f"taint {SPOT}", until)}
    assert restarted.notices(SPARK.place, spot) == {}, "a taint can be seen, and is gone"
    with_node(restarted)
    assert restarted.notices(SPARK.place, recorded) == {}


def test_a_node_that_is_not_ready_when_its_time_has_come_is_lost_at_once() -> None:
    judge = a_calm_judge()
    past = "ToBeDeletedByClusterAutoscaler", str(int(time.time()) - 700)
    with_node(judge, taints=[{"key": past[0], "value": past[1]}])
    assert judge.lost_nodes(SPARK.place) == frozenset(), "it is there, whatever was said"
    assert with_node(judge, ready="Unknown", taints=[{"key": past[0], "value": past[1]}])
    assert judge.lost_nodes(SPARK.place) == {LOST.node}
    judge.state = replace(judge.state, held_at=1.0)
    assert judge.lost_nodes(SPARK.place) == frozenset(), "everything is held"


def test_an_old_notice_or_a_drain_makes_no_unready_node_a_lost_one() -> None:
    judge = a_calm_judge()
    old = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1000"}
    with_node(judge, ready="False", taints=[old])
    assert judge.notices(SPARK.place)
    assert judge.lost_nodes(SPARK.place) == frozenset()
    drained = judge_of_a_drain()
    with_node(drained, ready="False", unschedulable=True)
    drained.announced.refresh(time.time() + 60.0, drained.rules)
    assert told(drained)[LOST.address].source == "drain"
    assert drained.lost_nodes(SPARK.place) == frozenset()


def judge_of_a_drain() -> DetectionRunner:
    """One of two executors on a cordoned node is being evicted."""
    judge = a_calm_judge()
    (pod,) = (pod for pod in application_of(judge).executors if pod.node == LOST.node)
    other = msgspec.structs.replace(pod, uid="another", name="another", executor_id="99")
    evicted = msgspec.structs.replace(pod, deleting_at=5, evicted=True)
    for seen in (evicted, other):
        judge.known.registry.see_pod(seen)
    with_node(judge, unschedulable=True)
    judge.judge([SPARK.place], None, time.monotonic())
    return judge


def judge_of_a_late_node(seconds: float, *, due: bool = True) -> DetectionRunner:
    """The node's lease was renewed last so many seconds before the newest look, others just then;
    by its notice it is gone since ten seconds."""
    judge, now = a_calm_judge(), time.monotonic()
    since = str(int(time.time()) - (610 if due else 10))
    with_node(judge, taints=[{"key": "ToBeDeletedByClusterAutoscaler", "value": since}])
    others = {item.node for item in SPARK.executors} - {LOST.node}
    for name in others:
        judge.known.registry.see_node(node_seen(spark_objects.node(name)))
    timers = Timers(
        tokens=dict.fromkeys((LOST.node, *others), "1"),
        since={**dict.fromkeys(others, now), LOST.node: now - seconds},
        asked_at=now,
        answered_at=now,
        restarted_at=now - 100.0,
        renewed_after=now,
    )
    nodes = {name: node.judged for name, node in judge.known.registry.nodes.items()}
    suspects = {LOST.node: now} if seconds >= 20.0 else {}
    judge.state = NodeInventory(timers=timers, nodes=nodes, suspects=suspects)
    return judge


def said_of(judge: DetectionRunner, silent_seconds: float) -> None:
    """What the driver says of the node's executor, just now."""
    judge._heard[SPARK.place] = DriverSilence(
        1, time.monotonic(), silent_seconds={LOST.node: silent_seconds}
    )


def test_after_its_deadline_a_node_is_lost_once_lease_and_driver_miss_it() -> None:
    judge = judge_of_a_late_node(12.0)
    assert judge.lost_nodes(SPARK.place) == frozenset(), "one renewal says nothing by itself"
    said_of(judge, 14.0)
    assert judge.lost_nodes(SPARK.place) == frozenset()
    said_of(judge, 15.0)
    assert judge.lost_nodes(SPARK.place) == {LOST.node}
    assert judge.overdue_nodes == frozenset(), "without a driver's word it takes a silent node"
    early = judge_of_a_late_node(12.0, due=False)
    said_of(early, 15.0)
    assert early.lost_nodes(SPARK.place) == frozenset(), "its moment has not come"
    renewed = judge_of_a_late_node(10.0)
    said_of(renewed, 15.0)
    assert renewed.lost_nodes(SPARK.place) == frozenset(), "no renewal is due"


def test_after_its_deadline_a_silent_node_is_lost_though_it_is_said_to_be_ready() -> None:
    judge = judge_of_a_late_node(21.0)
    assert judge.overdue_nodes == {LOST.node}
    assert judge.lost_nodes(SPARK.place) == {LOST.node}
    assert judge_of_a_late_node(21.0, due=False).overdue_nodes == frozenset()
    judge.state = replace(judge.state, held_at=1.0)
    assert judge.overdue_nodes == frozenset(), "everything is held"


@pytest.mark.parametrize("due", [True, False])
def test_an_application_is_looked_at_again_while_a_node_is_late_after_its_deadline(
    *, due: bool
) -> None:
    judge = judge_of_a_late_node(12.0, due=due)
    tokens, now = judge.state.timers.tokens, time.monotonic()
    found = judge.judge((), Leases(tokens=tokens, asked_at=now, answered_at=now), now)
    assert found == ({SPARK.place} if due else frozenset())


def test_a_deadline_that_another_operator_has_counted_is_made_no_later() -> None:
    judge = a_calm_judge()
    with_node(judge, taints=[{"key": SPOT}])
    until = time.time() + 40.0
    recorded = {LOST.address: LossNotice(f"taint {SPOT}", until, held=("a/0",))}
    assert judge.notices(SPARK.place, recorded) == {
        LOST.address: LossNotice(f"taint {SPOT}", until)
    }
    with_node(judge, taints=[{"key": SPOT}])
    assert told(judge)[LOST.address].until == until, "it stays"
    later = {LOST.address: LossNotice(f"taint {SPOT}", until + 500.0)}
    assert judge.notices(SPARK.place, later) == judge.notices(SPARK.place)
    other = {LOST.address: LossNotice("drain", until - 20.0)}
    assert judge.notices(SPARK.place, other) == judge.notices(SPARK.place)
    judge.announced.recall("nobody", LossNotice("drain", 1.0))
    judge.announced.refresh(until + 1.0, judge.rules)
    assert judge.announced.noticed[LOST.node].due


def test_a_moment_that_a_notice_says_counts_whatever_was_recorded() -> None:
    judge = a_calm_judge()
    body = spark_objects.node(LOST.node)
    text = "Preempt Scheduled: Mon, 12 Jan 2099 13:47:00 GMT"
    event = {"type": "PreemptScheduled", "status": "True", "message": text}
    body["status"]["conditions"] = [{"type": "Ready", "status": "True"}, event]
    judge.known.registry.see_node(node_seen(body))
    judge.judge((), None, time.monotonic())
    (said,) = told(judge).values()
    recorded = {LOST.address: replace(said, until=5.0)}
    assert judge.notices(SPARK.place, recorded) == {LOST.address: said}


def test_an_announced_node_whose_object_goes_stays_announced_until_it_is_lost() -> None:
    judge = a_calm_judge()
    with_node(judge, taints=[{"key": SPOT}])
    judge.known.registry.forget_node(LOST.node)
    judge.judge((), None, time.monotonic())
    assert judge.notices(SPARK.place)
    assert judge.lost_nodes(SPARK.place) == frozenset(), "its time has not come"


def test_a_node_out_of_service_is_lost_at_once() -> None:
    judge = a_calm_judge()
    with_node(judge, taints=[{"key": "node.kubernetes.io/out-of-service"}])
    assert judge.lost_nodes(SPARK.place) == {LOST.node}
    judge.state = replace(judge.state, held_at=1.0)
    assert judge.lost_nodes(SPARK.place) == {LOST.node}, "somebody has said so for certain"


def told(judge: DetectionRunner) -> Mapping[str, LossNotice]:
    """The notices, of an application that is known."""
    notices = judge.notices(SPARK.place)
    assert notices is not None
    return notices


def application_of(judge: DetectionRunner) -> MatchedApplication:
    found = judge.known.application(SPARK.place)
    assert found is not None
    return found


def test_a_node_that_stays_long_after_its_moment_opens_no_incident_of_whole_applications() -> None:
    judge = a_calm_judge()
    with_node(judge, taints=[{"key": SPOT}])
    until = judge.announced.noticed[LOST.node].notice.until
    for moment, is_announced in ((until + 1.0, True), (until + 2 * KEPT_SECONDS, False)):
        judge.announced.refresh(moment, judge.rules)
        assert (LOST.node in judge.announced_nodes) == is_announced
