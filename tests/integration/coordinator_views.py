"""What tests of coordinators look at: what commands print, and what coordinators log."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from store_driver import StoreDriver
from waiting import wait_until

from rekindle_testing.coordinator_process import CoordinatorProcess

Coordinate = Callable[..., CoordinatorProcess]
Drive = Callable[..., StoreDriver]
COMMAND_SECONDS_MAX = 180.0


def rekindle(hosts: str, *arguments: str, code: int = 0) -> str:
    """What a command prints; one that fails has said why in a line, and no traceback."""
    ended = subprocess.run(
        [sys.executable, "-m", "rekindle_cli", *arguments, "--zookeeper", hosts],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def standing(hosts: str, name: str = "test/flights") -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = json.loads(rekindle(hosts, "status", name, "--json"))["applications"]
    return found


def reasons(hosts: str, name: str = "test/flights") -> list[str]:
    return [notice["reason"] for notice in standing(hosts, name)["notices"]]


def kinds(coordinator: CoordinatorProcess) -> list[str]:
    """What a coordinator has told of, in order."""
    return [line["kind"] for line in coordinator.lines()]


def roles(coordinator: CoordinatorProcess) -> list[str]:
    """Whether a coordinator has led or followed, in order: `leading` or `following`."""
    return [kind for kind in kinds(coordinator) if kind in ("leading", "following")]


def await_looks(coordinator: CoordinatorProcess) -> None:
    """Wait until a coordinator has begun and ended a look at an application whose driver reports
    again and again."""
    before = coordinator.metrics()["decisions_total"]
    wait_until(lambda: coordinator.metrics()["decisions_total"] >= before + 2)
