"""What runs in a cluster and what is asked of it, through plain files."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.errors import InputError, RunError
from rekindle.model.reasons import Reason
from rekindle.protocol import Heartbeat
from rekindle.protocol.store_paths import Place
from rekindle_local import local_provisioning, process_sets
from rekindle_local.local_provisioning import LocalProvider, Provisioning, arrivals

PLACE, OTHER = Place("default", "flights"), Place("default", "weather")
NODES = NodeRequestOrder("nodes", Reason.CORRELATED_FAILURE, count=2, outside_domains=("rack-1",))
DRIVER = NodeRequestOrder("driver", Reason.DRIVER_LOST)


class Cluster:
    """Nodes that are up or down; what was started, in order."""

    def __init__(self, directory: Path, down: list[str]) -> None:
        self.down = down
        self.started: list[str] = []
        self.drivers = 0
        self.provider = LocalProvider(directory)
        self.provisioning = Provisioning(
            directory,
            down=lambda: list(self.down),
            start_worker=self.start_worker,
            restart_driver=self.restart_driver,
            first_seconds=10.0,
            every_seconds=6.0,
        )

    def start_worker(self, node: str) -> None:
        self.down.remove(node)
        self.started.append(node)

    def restart_driver(self) -> None:
        self.drivers += 1

    def at(self, moment: float) -> list[str]:
        """What has been started by then."""
        self.provisioning.step(moment)
        self.provisioning.close()
        return self.started


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def test_nodes_come_one_by_one_the_first_some_time_after_its_request(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1", "n2", "n3"])
    cluster.provider.request(PLACE, "1-nodes-2", NODES)
    assert [cluster.at(t)[:] for t in (100.0, 109.9, 110.0, 115.9, 116.0, 200.0)] == [
        [],
        [],
        ["n1"],
        ["n1"],
        ["n1", "n2"],
        ["n1", "n2"],
    ]


def test_later_requests_wait_for_earlier_ones() -> None:
    assert arrivals(0.0, None, 3, 10.0, 6.0) == [10.0, 16.0, 22.0]
    assert arrivals(5.0, 22.0, 2, 10.0, 6.0) == [28.0, 34.0]
    assert arrivals(100.0, 22.0, 1, 10.0, 6.0) == [110.0]
    assert arrivals(0.0, None, 0, 10.0, 6.0) == []


def test_the_same_request_is_fulfilled_once_whoever_makes_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1", "n2", "n3", "n4"])
    for provider in (cluster.provider, LocalProvider(tmp_path)):
        for _ in range(2):
            provider.request(PLACE, "1-nodes-2", NODES)
            cluster.at(0.0)
    assert cluster.at(1_000.0) == ["n1", "n2"]
    LocalProvider(tmp_path).request(OTHER, "1-nodes-2", NODES)
    cluster.at(2_000.0)
    assert cluster.at(3_000.0) == ["n1", "n2", "n3", "n4"]


def test_no_more_nodes_are_started_than_are_down(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1"])
    cluster.provider.request(PLACE, "1-nodes-2", NODES)
    cluster.at(0.0)
    assert cluster.at(1_000.0) == ["n1"]


def test_a_node_that_is_on_its_way_is_not_started_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1", "n2"])
    gate, started = threading.Event(), []

    def start(node: str) -> None:
        started.append(node)
        gate.wait(10)

    cluster.provisioning.start_worker = start
    cluster.provider.request(PLACE, "1-nodes-2", NODES)
    cluster.provisioning.step(0.0)
    cluster.provisioning.step(1_000.0)
    gate.set()
    cluster.provisioning.close()
    assert started == ["n1", "n2"]


def test_a_driver_is_asked_for_at_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [])
    for _ in range(2):
        cluster.provider.request(PLACE, "1-driver-1", DRIVER)
        cluster.at(0.0)
    assert cluster.drivers == 1


def test_a_start_that_fails_is_told_to_the_owner(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1"])

    def start(node: str) -> None:
        raise RunError(where=node, what="does not start", remedy="read its log")

    cluster.provisioning.start_worker = start
    cluster.provider.request(PLACE, "1-nodes-2", NODES)
    cluster.at(0.0)
    cluster.at(1_000.0)
    with pytest.raises(RunError, match="n1: does not start"):
        cluster.provisioning.check()


def test_a_request_that_nobody_can_read_is_told_and_the_next_is_fulfilled(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1", "n2"])
    folder = tmp_path / local_provisioning.REQUESTS
    folder.mkdir()
    (folder / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a\.json"):
        cluster.provisioning.step(0.0)
    cluster.provider.request(PLACE, "1-nodes-2", NODES)
    cluster.at(0.0)
    assert cluster.at(1_000.0) == ["n1", "n2"]


def test_a_request_is_a_file_that_says_all_of_it(tmp_path: Path) -> None:
    LocalProvider(tmp_path).request(PLACE, "1-nodes-2", NODES)
    (path,) = (tmp_path / local_provisioning.REQUESTS).iterdir()
    assert json.loads(path.read_bytes()) == {
        "version": 1,
        "identity": "1-nodes-2",
        "application": "default/flights",
        "what": "nodes",
        "count": 2,
        "outside_domains": ["rack-1"],
        "reason": "correlated-failure",
    }


def test_requests_are_seen_by_the_thread_of_the_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["n1", "n2"])
    cluster.provisioning.first_seconds = cluster.provisioning.every_seconds = 0.0
    cluster.provisioning.start()
    cluster.provider.request(PLACE, "1-nodes-2", NODES)
    assert process_sets.await_condition(lambda: cluster.started == ["n1", "n2"], limit_seconds=60)
    cluster.provisioning.close()


def test_a_node_is_gone_when_its_process_is_whatever_the_file_says(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    cluster = Cluster(tmp_path, [])
    cluster.provisioning.publish({"n1": process.pid, "n2": os.getpid(), "n3": None})
    assert cluster.provider.gone_nodes(PLACE) == frozenset()
    process.kill()
    assert process_sets.await_condition(
        lambda: cluster.provider.gone_nodes(PLACE) == {"n1"}, limit_seconds=10
    )
    cluster.provisioning.publish({"n1": None, "n2": os.getpid(), "n3": None})
    assert cluster.provider.gone_nodes(PLACE) == {"n1"}
    cluster.provisioning.publish({"n1": os.getpid(), "n2": os.getpid(), "n3": None})
    assert cluster.provider.gone_nodes(PLACE) == frozenset()


def test_the_failure_domains_of_nodes_are_told_with_their_processes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [])
    assert cluster.provider.domains(PLACE) == {}
    cluster.provisioning.domains = {"n1": "rack-1", "n2": "rack-2"}
    cluster.provisioning.publish({"n1": os.getpid(), "n2": None})
    assert cluster.provider.domains(PLACE) == {"n1": "rack-1", "n2": "rack-2"}


def test_another_process_with_the_same_number_is_not_the_node(tmp_path: Path) -> None:
    mine = local_provisioning.process(os.getpid())
    assert mine is not None
    earlier = local_provisioning.Process(mine.process_id, mine.start - 1)
    content = local_provisioning.NodesFile(nodes={"n1": earlier, "n2": mine})
    local_provisioning.replace(tmp_path / local_provisioning.NODES, content)
    provider = LocalProvider(tmp_path)
    assert provider.gone_nodes(PLACE) == frozenset()
    assert process_sets.await_condition(
        lambda: provider.gone_nodes(PLACE) == {"n1"}, limit_seconds=10
    )


def test_without_a_folder_of_the_cluster_nothing_is_gone(tmp_path: Path) -> None:
    provider = LocalProvider(tmp_path / "missing")
    assert provider.gone_nodes(PLACE) == frozenset()
    assert not provider.driver_gone(PLACE, None, 1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / local_provisioning.NODES).write_text('{"version": 2, "nodes": {}}')
    with pytest.raises(InputError, match=r"nodes\.json: .*version"):
        LocalProvider(tmp_path).gone_nodes(PLACE)


def test_a_driver_is_gone_when_the_process_that_was_published_is(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    cluster = Cluster(tmp_path, [])
    cluster.provisioning.publish_driver(PLACE, process.pid)
    assert not cluster.provider.driver_gone(PLACE, None, 1)
    process.kill()
    assert process_sets.await_condition(
        lambda: cluster.provider.driver_gone(PLACE, None, 1), limit_seconds=10
    )
    assert not cluster.provider.driver_gone(OTHER, None, 1)
    cluster.provisioning.publish_driver(PLACE, os.getpid())
    assert not cluster.provider.driver_gone(PLACE, None, 1)
    process.wait()
    with pytest.raises(RunError, match=f"process {process.pid} has ended"):
        cluster.provisioning.publish_driver(PLACE, process.pid)


def heartbeat(process_id: int, **fields: object) -> Heartbeat:
    common = {
        "generation": 2,
        "since": time.time(),
        "host": socket.gethostname(),
        "process_id": process_id,
    }
    return Heartbeat(**{**common, **fields})


def test_the_process_of_a_heartbeat_tells_where_nothing_was_published(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    provider = LocalProvider(tmp_path)
    known = heartbeat(process.pid)
    assert not provider.driver_gone(PLACE, known, 2)
    process.kill()
    process.wait()
    assert provider.driver_gone(PLACE, known, 2)


def test_a_heartbeat_of_an_earlier_driver_or_of_another_machine_tells_nothing(
    tmp_path: Path,
) -> None:
    provider, nobody = LocalProvider(tmp_path), 2**22 + 1
    assert provider.driver_gone(PLACE, heartbeat(nobody), 2)
    assert not provider.driver_gone(PLACE, heartbeat(nobody), 3)
    assert not provider.driver_gone(PLACE, heartbeat(nobody, host="elsewhere"), 2)
    assert not provider.driver_gone(PLACE, heartbeat(0), 2)


def test_a_process_that_started_after_its_heartbeat_is_another_one(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    provider = LocalProvider(tmp_path)
    assert provider.driver_gone(PLACE, heartbeat(process.pid, since=time.time() - 60), 2)
