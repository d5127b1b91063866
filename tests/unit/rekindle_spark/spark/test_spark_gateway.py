"""What Spark says of jobs that failed, and of executors."""

from types import SimpleNamespace

import pytest

from rekindle_spark.spark.spark_gateway import (
    ExecutorSeen,
    Job,
    LinkBacklog,
    SparkGateway,
    _configuration,
    without_room,
)

LOST = (
    "Job aborted due to stage failure: Task 1 in stage 7.0 failed 1 times, most recent failure: "
    "Lost task 1.0 in stage 7.0 (TID 31) (127.0.0.3 executor 4): "
)
TRACE = "\n\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"


@pytest.mark.parametrize(
    "cause",
    [
        "java.io.IOException: No space left on device",
        "java.io.IOException: Disk quota exceeded",
        "org.apache.spark.SparkException: Failed\nCaused by: java.io.IOException: "
        "No space left on device",
    ],
)
def test_an_executor_without_room_is_found_by_what_spark_says(cause: str) -> None:
    assert without_room(LOST + cause + TRACE) == "4"


@pytest.mark.parametrize(
    "failure",
    [
        "",
        LOST + "java.io.IOException: Connection reset by peer" + TRACE,
        "Job 7 cancelled: No space left on device",
    ],
)
def test_any_other_failure_is_nobodys_disk(failure: str) -> None:
    assert without_room(failure) == ""


@pytest.mark.parametrize(
    ("master", "options", "authenticates"),
    [
        ("k8s://https://10.0.0.1:6443", {}, "true"),
        ("k8s://https://10.0.0.1:6443", {"spark.authenticate": "false"}, "false"),
        ("spark://127.0.0.1:7077", {}, None),
    ],
)
def test_on_kubernetes_nobody_without_the_secret_is_an_executor(
    master: str, options: dict[str, str], authenticates: str | None
) -> None:
    """A standalone cluster has one secret for all of its applications, or none."""
    conf = _configuration("flights", master, "exchange.jar", options, ship_jar=False)
    assert conf.get("spark.authenticate") == authenticates


@pytest.mark.parametrize(("given", "wanted"), [(None, "2s"), ("45s", "45s")])
def test_pods_are_listed_every_two_seconds_unless_the_user_says_otherwise(
    given: str | None, wanted: str
) -> None:
    """Only then are new ones requested for those that were deleted: Spark alone waits 30 s."""
    name = "spark.kubernetes.executor.apiPollingInterval"
    told = {} if given is None else {name: given}
    conf = _configuration("flights", "k8s://https://m:6443", "exchange.jar", told, ship_jar=False)
    assert conf.get(name) == wanted


@pytest.mark.parametrize("service", [None, "false", "true"])
def test_indexes_are_checked_unless_sparks_own_service_serves_blocks(service: str | None) -> None:
    options = {} if service is None else {"spark.shuffle.service.enabled": service}
    conf = _configuration("flights", "spark://m:7077", "exchange.jar", options, ship_jar=True)
    wanted = None if service == "true" else "rekindle.CheckedShuffleManager"
    assert conf.get("spark.shuffle.manager") == wanted


def test_the_milliseconds_since_an_executor_was_heard_are_told_in_seconds() -> None:
    gateway = SparkGateway.__new__(SparkGateway)  # a driver that has begun needs a cluster
    lines = "1 10.0.0.7 1500 true false node-7\n2 10.0.0.8 0 false true \n"
    gateway.handle = SimpleNamespace(executors=lambda: lines)
    assert gateway.executors() == [
        ExecutorSeen("1", "10.0.0.7", 1.5, "node-7", True, False),
        ExecutorSeen("2", "10.0.0.8", 0.0, "", False, True),
    ]


@pytest.mark.parametrize(
    ("lines", "held_bytes"),
    [("", {}), ("1 500\n2 0\ndriver 900", {"1": 500, "2": 0, "driver": 900})],
)
def test_what_processes_hold_of_a_job_is_told_by_process(
    lines: str, held_bytes: dict[str, int]
) -> None:
    job = Job(SimpleNamespace(isLinked=lambda: True, held=lambda: lines))
    assert job.held_bytes() == held_bytes


def test_what_both_ends_of_a_link_say_of_it_is_one_backlog() -> None:
    gateway = SparkGateway.__new__(SparkGateway)
    lines = "1 2 300 0 4\n1 3 0 0 21\n1 2 0 5000 0\n"
    gateway.handle = SimpleNamespace(waiting=lambda: lines)
    assert gateway.link_backlogs() == [
        LinkBacklog("1", "2", 5_300, 4),
        LinkBacklog("1", "3", 0, 21),
    ]
    gateway.handle = SimpleNamespace(waiting=lambda: "")
    assert gateway.link_backlogs() == []
