"""Commands of people, on a real store beside real coordinators: orders, status, explanations."""

import json
import signal
import subprocess
import sys
import time

import pytest
from coordinator_views import (
    COMMAND_SECONDS_MAX,
    Coordinate,
    Drive,
    await_looks,
    kinds,
    reasons,
    rekindle,
    standing,
)
from store_driver import lose_three
from waiting import wait_until

from rekindle.protocol import PlanOrder
from rekindle_cli import coordination_access
from rekindle_coordinator.status_reader import StatusReader
from rekindle_local.local_zookeeper import LocalZookeeper

pytest_plugins = ("coordinator_fixtures",)


def test_a_priority_for_a_while_decides_what_comes_back_and_then_ends(
    zookeeper: LocalZookeeper, coordinate: Coordinate, drive: Drive
) -> None:
    hosts = zookeeper.connect_string
    driver, coordinator = drive(), coordinate()
    wait_until(lambda: driver.is_whole)
    holds_at = time.time() + 3.0
    told = rekindle(hosts, "priority", "set", "test/flights", "ranking", "1", "--for", "4s")
    assert "ranking has priority 1 until" in told

    def priority(at: float) -> float:
        """At a moment: it may be over before it is asked for, and a command takes longer."""
        with coordination_access.opened(hosts, None) as store:
            return StatusReader(store).standing(driver.place, at).queries[1].priority

    wait_until(lambda: priority(holds_at) == 1)
    wait_until(lambda: priority(time.time()) == 9)
    rekindle(hosts, "priority", "set", "test/flights", "ranking", "1")
    told = rekindle(hosts, "priority", "set", "test/flights", "busiest", "10")
    assert told == "test/flights: busiest has priority 10\n"
    await_looks(coordinator)
    lose_three(driver)
    wait_until(lambda: len(driver.plans) == 2)
    order = driver.plans[1].order
    assert isinstance(order, PlanOrder)
    assert {name.partition("/")[0] for name in order.query_partitions} == {"busiest"}
    told = rekindle(hosts, "priority", "reset", "test/flights", "ranking")
    assert "own priority; it was set to 1" in told
    assert "name one of: ranking" in rekindle(
        hosts, "priority", "set", "test/flights", "rankin", "3", code=2
    )
    assert "name one of: test/flights" in rekindle(hosts, "pause", "test/flight", code=2)


def test_a_paused_application_rests_until_it_is_resumed(
    zookeeper: LocalZookeeper, coordinate: Coordinate, drive: Drive
) -> None:
    hosts = zookeeper.connect_string
    driver, _ = drive(), coordinate()
    wait_until(lambda: driver.is_whole)
    assert "to be paused" in rekindle(hosts, "pause", "test/flights")
    wait_until(lambda: driver.paused)
    wait_until(lambda: reasons(hosts) == ["paused"])
    lose_three(driver)
    wait_until(lambda: standing(hosts)["incident"] is not None)
    assert len(driver.plans) == 1
    assert "was so already" in rekindle(hosts, "pause", "test/flights")
    assert "to be resumed" in rekindle(hosts, "resume", "test/flights")
    wait_until(lambda: not driver.paused and len(driver.plans) == 2)


def test_status_and_explain_say_what_is_wrong_and_what_would_help(
    zookeeper: LocalZookeeper, coordinate: Coordinate, drive: Drive
) -> None:
    hosts = zookeeper.connect_string
    driver, coordinator = drive(), coordinate()
    wait_until(lambda: driver.is_whole)
    wait_until(lambda: reasons(hosts) == [])
    assert rekindle(hosts, "explain", "test/flights", "busiest").startswith("busiest is live")
    lose_three(driver)
    wait_until(lambda: "no-capacity" in reasons(hosts))
    shown = rekindle(hosts, "status")
    assert "driver 1 is there since" in shown
    assert "incident 1: correlated since" in shown
    assert "Plan 2 of incident 1 (correlated-failure)" in shown
    text = rekindle(hosts, "explain", "test/flights", "busiest")
    assert "with 2 partitions not running that it needs" in text
    assert "With 2 more nodes of 100 % CPU busiest would be in the next plan." in text
    facts = json.loads(rekindle(hosts, "explain", "test/flights", "busiest", "--json"))
    assert (facts["version"], facts["more_nodes"]) == (1, 2)
    coordinator.kill()
    wait_until(lambda: "no-coordinator" in reasons(hosts))
    driver.end()
    wait_until(lambda: "driver-silent" in reasons(hosts))
    wait_until(lambda: standing(hosts)["queries"][0]["lag_seconds"] > 3.0)


def test_an_application_that_is_reset_begins_anew_beside_a_coordinator_that_knew_it(
    zookeeper: LocalZookeeper, coordinate: Coordinate, drive: Drive
) -> None:
    hosts = zookeeper.connect_string
    driver, coordinator = drive(generation=3), coordinate()
    wait_until(lambda: driver.is_whole)
    rekindle(hosts, "priority", "set", "test/flights", "ranking", "1")
    assert "has a driver that is there" in rekindle(hosts, "reset", "test/flights", "--yes", code=2)
    driver.end()
    wait_until(lambda: standing(hosts)["driver"] != "there")
    shown = rekindle(hosts, "reset", "test/flights", "--yes")
    assert "coordination  incident, losses and plans" in shown
    assert "name one of" not in rekindle(hosts, "reset", "test/flights", "--yes", code=2)
    fresh = drive(generation=1)
    wait_until(lambda: fresh.is_whole)
    wait_until(lambda: reasons(hosts) == [])
    found = standing(hosts)
    assert found["generation"] == 1
    assert [query["priority"] for query in found["queries"]] == [4, 9]
    assert "application-stopped" not in kinds(coordinator)


def test_status_goes_on_showing_while_the_store_comes_and_goes(
    zookeeper: LocalZookeeper, drive: Drive
) -> None:
    drive()
    watching = subprocess.Popen(
        [
            *(sys.executable, "-m", "rekindle_cli", "status", "--watch", "--json"),
            *("--zookeeper", zookeeper.connect_string),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    try:
        shown = (json.loads(line) for line in watching.stdout)
        assert next(record for record in shown if record["applications"])["store_reachable"]
        zookeeper.kill(1)
        assert next(record for record in shown if not record["store_reachable"])
        zookeeper.start_server(1)
        assert next(record for record in shown if record["applications"])["store_reachable"]
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=COMMAND_SECONDS_MAX)
    finally:
        watching.kill()
        watching.wait()
    assert (watching.returncode, errors) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("coordinator", "--cluster", "/nowhere"), "--cluster /nowhere: is no folder"),
        (("coordinator", "--secret-file", "/nowhere"), "secret file /nowhere: cannot be read"),
        (("coordinator", "--log", "/nowhere/log"), "--log /nowhere/log: cannot be written"),
        (("coordinator", "--port", "70000"), "--port"),
        (("priority", "set", "a/b", "q", "11"), "N"),
        (("priority", "set", "a/b", "q", "9", "--for", "x"), "--for: is 'x'"),
    ],
)
def test_wrong_usage_is_a_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    assert message in rekindle("127.0.0.1:1", *arguments, code=2)


def test_servers_may_be_named_by_the_environment_and_must_be_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = [sys.executable, "-m", "rekindle_cli", "status"]
    for hosts, code, message in (
        ("no server", 2, "is no server"),
        ("127.0.0.1:1", 2, "cannot be reached"),
    ):
        monkeypatch.setenv("REKINDLE_ZOOKEEPER", hosts)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
        assert (ended.returncode, message in ended.stderr) == (code, True)
    monkeypatch.delenv("REKINDLE_ZOOKEEPER")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
    assert (ended.returncode, "--zookeeper" in ended.stderr) == (2, True)
