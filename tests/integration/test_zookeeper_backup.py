"""Backup, restore and total loss of the store: the commands of docs/zookeeper.md, on a real server.

`kubectl` is a script that does to a local server what the real one does to the chart's: it runs
what is to be run in a pod, ends and starts the server, and removes claims.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import repeated

from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.controller.coordination_risks import figures_of
from rekindle_zookeeper import Connection, connect

PAGE = Path(__file__).parents[2] / "docs" / "zookeeper.md"
ORDERS, PROGRESS = "/rekindle/v1/team/flights/orders", "/rekindle/v1/team/flights/progress"
KUBECTL = """#!/bin/bash
set -euo pipefail
shift 2  # -n rekindle
case $1 in
  exec)
    while [ "$1" != -- ]; do shift; done
    shift
    exec "${@//\\/data/$DATA}" ;;
  scale) echo "${!#}" > "$STATE/wanted.new"; mv "$STATE/wanted.new" "$STATE/wanted"
    for _ in {1..2000}; do [ ! -e "$STATE/done" ] || break; sleep 0.05; done; rm "$STATE/done" ;;
  delete) rm -rf "$DATA"/version-2 ;;
  wait|rollout) ;;
  *) echo "no such command: $*" >&2; exit 1 ;;
esac
"""


def blocks(heading: str) -> list[str]:
    """The commands of a section."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index(f"\n## {heading}\n") :]
    end = section.find("\n## ", 1)
    return re.findall(r"```sh\n(.*?)```", section[: end if end > 0 else None], re.DOTALL)


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[LocalZookeeper]:
    with LocalZookeeper(directory=tmp_path / "zookeeper") as found:
        yield found


@contextmanager
def scaled(zookeeper: LocalZookeeper, state: Path) -> Iterator[None]:
    """Ends and starts the server as it is asked to."""

    def follow() -> None:
        wanted = state / "wanted"
        if wanted.exists():
            if wanted.read_text().strip() == "--replicas=0":
                zookeeper.kill(1)
            else:
                zookeeper.start_server(1)
            wanted.unlink()
            (state / "done").touch()

    with repeated(follow, every_seconds=0.05):
        yield


def run(commands: list[str], zookeeper: LocalZookeeper, folder: Path) -> None:
    """All blocks of a section, as a person would type them."""
    bin_, state = folder / "bin", folder / "state"
    for made in (bin_, state):
        made.mkdir(exist_ok=True)
    (bin_ / "kubectl").write_text(KUBECTL)
    (bin_ / "kubectl").chmod(0o755)
    (data,) = (folder / "zookeeper").rglob("version-2")
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "DATA": str(data.parent),
        "STATE": str(state),
    }
    with scaled(zookeeper, state):
        script = "set -euo pipefail\n" + "\n".join(commands)
        subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=True, timeout=600)


@contextmanager
def connected(zookeeper: LocalZookeeper) -> Iterator[Connection]:
    connection = connect(zookeeper.connect_string, deadline_seconds=60.0)
    try:
        yield connection
    finally:
        connection.close()


def test_what_people_have_ordered_comes_back_from_a_copy_and_all_goes_on_from_nothing(
    zookeeper: LocalZookeeper, tmp_path: Path
) -> None:
    with connected(zookeeper) as connection:
        connection.put(ORDERS, b"of monday")
        connection.put(PROGRESS, b"1")
    run(blocks("Backup"), zookeeper, tmp_path)
    with connected(zookeeper) as connection:
        connection.put(ORDERS, b"of tuesday")
    run(blocks("Restore"), zookeeper, tmp_path)
    with connected(zookeeper) as connection:
        found = connection.get(ORDERS)
        assert found is not None
        assert found[0] == b"of monday"
        connection.put(ORDERS, b"of wednesday")
    run(blocks("All is lost"), zookeeper, tmp_path)
    with connected(zookeeper) as connection:
        assert connection.get(ORDERS) is None
        connection.put(PROGRESS, b"2")  # as a sidecar does
        found = connection.get(PROGRESS)
        assert found is not None
        assert found[0] == b"2"


def test_a_real_server_says_how_much_lies_on_its_disk(
    zookeeper: LocalZookeeper, tmp_path: Path
) -> None:
    with connected(zookeeper) as connection:
        connection.put(ORDERS, b"x" * 100_000)
        figures = figures_of(zookeeper.connect_string)
        on_disk = sum(file.stat().st_size for file in tmp_path.rglob("version-2/*"))
    assert figures.disk_bytes == on_disk
    assert figures.data_bytes is not None
    assert figures.data_bytes > 100_000
    assert figures.requests_waiting == 0
