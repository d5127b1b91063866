"""The pure parts of the operator's benchmark: what stands where, and rows of bars."""

import math
import os
import subprocess
import sys
from collections import Counter

import pytest

from operator_benchmark import cluster_layout, cpu_waits, operator_at_scale, operator_bars
from operator_benchmark.cluster_layout import ClusterSize
from rekindle.model.errors import InputError
from rekindle_local import process_sets
from rekindle_operator.api import recovery_class, recovery_policy
from rekindle_operator.cluster.pods import Occupant, PodSeen, pod_seen

SIZE = ClusterSize(nodes=100, pods=2_000, policies=20)
FIGURES = {
    "resident_megabytes": 300.0,
    "resident_megabytes_max": 400.0,
    "cores_at_rest": 0.1,
    "reports_per_second": 100.0,
    "report_to_plan_seconds": operator_bars.spread([0.1, 0.2]),
    "expiry_to_recovery_seconds": 1.0,
    "expiry_seen_to_recovery_seconds": 1.0,
    "recovery_waited_seconds": 0.5,
    "all_plans_seconds": 20.0,
    "all_plans_waited_seconds": 4.0,
    "applications_planned": 20,
    "applications_hit": 20,
    "nodes_lost": 18,
}


def test_every_pod_that_was_asked_for_stands_on_a_node_that_is_there() -> None:
    sparks = cluster_layout.applications(SIZE)
    nodes = [spark.driver_node for spark in sparks]
    nodes += [executor.node for spark in sparks for executor in spark.executors]
    nodes += [node for _, _, node in cluster_layout.others(SIZE)]
    assert len(nodes) == SIZE.pods
    assert set(nodes) == {cluster_layout.node_name(index) for index in range(SIZE.nodes)}
    assert max(Counter(nodes).values()) < 2 * SIZE.pods / SIZE.nodes


def test_a_zone_is_lost_in_which_every_application_has_executors_and_none_its_driver() -> None:
    assert len(SIZE.lost) == SIZE.nodes // cluster_layout.ZONES
    for spark in cluster_layout.applications(SIZE):
        assert spark.driver_node not in SIZE.lost
        assert 0 < sum(executor.node in SIZE.lost for executor in spark.executors) < 10


def test_no_two_pods_have_the_same_name_or_address() -> None:
    sparks = cluster_layout.applications(SIZE)
    assert len({spark.place for spark in sparks}) == len(sparks)
    addresses = [executor.address for spark in sparks for executor in spark.executors]
    addresses += [spark.driver_address for spark in sparks]
    assert len(set(addresses)) == len(addresses)
    assert len({(space, name) for space, name, _ in cluster_layout.others(SIZE)}) == 2_000 - 220


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (ClusterSize(10, 100, 5), "--nodes: is 10; give at least 25"),
        (ClusterSize(100, 100, 10), "--pods: is 100, with 10 applications; give at least 110"),
        (ClusterSize(100, 100, 0), "--pods: is 100, with 0 applications"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(size: ClusterSize, message: str) -> None:
    with pytest.raises(InputError) as caught:
        size.checked()
    assert str(caught.value).startswith(message)


def test_the_operator_reads_what_is_written() -> None:
    spark = cluster_layout.applications(SIZE)[3]
    driver = cluster_layout.driver_pod(spark)
    driver["metadata"]["uid"] = "a"
    executor = cluster_layout.executor_pod(spark, spark.executors[0], "a")
    executor["metadata"]["uid"] = "b"
    other = cluster_layout.other_pod(*next(cluster_layout.others(SIZE)))
    other["metadata"]["uid"] = "c"
    seen = [pod_seen(body) for body in (driver, executor, other)]
    assert isinstance(seen[0], PodSeen)
    assert isinstance(seen[1], PodSeen)
    assert isinstance(seen[2], Occupant)
    assert (seen[0].role, seen[1].role, seen[1].driver_uid) == ("driver", "executor", "a")
    assert seen[0].sidecar != "absent"
    recovery_policy.from_object(cluster_layout.policy(spark))
    recovery_class.from_object(cluster_layout.recovery_class(10))


def test_a_recovery_counts_only_with_a_plan_of_this_failure() -> None:
    def told(name: str, *plans: str) -> cluster_layout.Body:
        return {
            "metadata": {"namespace": "factory"},
            "spec": {"application": {"name": name}},
            "status": {"plans": [{"at": at} for at in plans]},
        }

    early, late = "1970-01-01T00:01:39.999999Z", "1970-01-01T00:01:40Z"
    found = [told("before", early), told("both", early, late), told("fresh", late), told("none")]
    assert operator_at_scale._told(found, 100.0) == {"factory/both", "factory/fresh"}


def test_a_spread_names_the_middle_and_the_worst() -> None:
    found = operator_bars.spread([float(number) for number in range(1, 201)])
    assert (found["count"], found["median"], found["p99"], found["max"]) == (200, 100.5, 198, 200)
    assert math.isnan(operator_bars.spread([])["max"])


def test_the_thread_that_waited_longest_between_two_moments_counts() -> None:
    second = 10**9
    samples = [
        (1.0, {"a": 0, "b": 5 * second}),
        (2.0, {"a": 1 * second, "b": 5 * second}),
        (3.0, {"a": 1 * second, "b": 7 * second, "c": 1 * second}),
        (4.0, {"a": 9 * second}),
    ]
    assert cpu_waits.longest_wait(samples, 1.5, 3.5) == 2.0
    assert cpu_waits.longest_wait(samples, 0.0, 9.0) == 9.0
    assert cpu_waits.longest_wait(samples, 1.5, 2.5) == 0.0
    assert cpu_waits.longest_wait([], 0.0, 9.0) == 0.0


def test_threads_that_share_a_cpu_wait_for_it() -> None:
    """Two that are busy on one CPU: each waits for half of the time."""
    allowed = os.sched_getaffinity(0)
    command = "while True: pass"
    os.sched_setaffinity(0, {min(allowed)})
    try:
        started = [subprocess.Popen([sys.executable, "-c", command]) for _ in range(2)]
    finally:
        os.sched_setaffinity(0, allowed)
    try:

        def waited() -> bool:
            found = cpu_waits.waited_nanoseconds(started[0].pid)
            return max(found.values(), default=0) > 10**8

        assert process_sets.await_condition(waited, limit_seconds=60.0)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert cpu_waits.waited_nanoseconds(started[0].pid) == {}


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"resident_megabytes_max": 513.0}, [0]),
        ({"cores_at_rest": 0.21}, [1]),
        ({"report_to_plan_seconds": operator_bars.spread([0.1, 2.1])}, [2]),
        ({"expiry_seen_to_recovery_seconds": 3.4}, []),
        ({"expiry_seen_to_recovery_seconds": 3.6}, [3]),
        ({"expiry_seen_to_recovery_seconds": math.nan}, [3]),
        ({"all_plans_seconds": 33.9}, []),
        ({"all_plans_seconds": 34.1}, [4]),
        ({"applications_planned": 19}, [4]),
    ],
)
def test_a_bar_is_met_or_missed_by_its_own_figure(
    changed: dict[str, object], missed: list[int]
) -> None:
    rows = operator_bars.operator_bars({**FIGURES, **changed}, str(SIZE), "command")
    assert [index for index, row in enumerate(rows) if not row.met] == missed
    assert operator_bars.last_line(rows).startswith("bar all 5 value ")
    assert operator_bars.last_line(rows).endswith(f"met {5 - len(missed)} of 5")
