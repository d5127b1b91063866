"""What a kubelet does about pods: by events, and about those that went while nobody watched."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from testbed import node_objects, pod_runner
from testbed.bulk_connection import BulkAnswer
from testbed.kubelet_state import Kubelet

NOW = datetime(2030, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)


def make_event(kind: str, *, phase: str = "Pending", deleted: bool = False) -> bytes:
    metadata = {"namespace": "default", "name": "one", "uid": "1", "labels": {"not": "needed"}}
    if deleted:
        metadata["deletionTimestamp"] = "2030-01-02T03:04:05Z"
    sidecar = {"name": "side", "image": "s", "restartPolicy": "Always"}
    spec = {
        "nodeName": "n",
        "initContainers": [sidecar, {"name": "first", "image": "f"}],
        "containers": [{"name": "main", "image": "m", "env": []}],
    }
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
    return json.dumps({"type": kind, "object": pod}).encode()


@pytest.mark.parametrize(
    ("phase", "deleted", "duty"),
    [
        ("Pending", False, pod_runner.RUN),
        ("Running", False, None),
        ("Succeeded", False, None),
        ("Pending", True, pod_runner.DELETE),
        ("Running", True, pod_runner.DELETE),
        ("Failed", True, pod_runner.DELETE),
    ],
)
def test_a_kubelet_starts_what_is_pending_and_ends_what_is_to_be_deleted(
    phase: str, deleted: bool, duty: str | None
) -> None:
    event = pod_runner.read_event(make_event("MODIFIED", phase=phase, deleted=deleted))
    assert event is not None
    assert pod_runner.decide(event[1]) == duty


def test_a_running_pod_says_so_of_every_container() -> None:
    event = pod_runner.read_event(make_event("ADDED"))
    assert event is not None
    status = node_objects.running_status(
        event[1].containers(), node_address="10.64.0.1", address="10.128.0.1", now=NOW
    )["status"]
    assert [one["name"] for one in status["containerStatuses"]] == ["main"]
    assert [[*one["state"]] for one in status["initContainerStatuses"]] == [
        ["running"],
        ["terminated"],
    ]
    assert status["podIP"] == "10.128.0.1"


def test_an_event_that_tells_of_no_pod_ends_the_watch() -> None:
    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    assert pod_runner.read_event(json.dumps(expired).encode()) is None


class ApiServer:
    """Answers with these lists in turn, each when it is let; every watch ends at once."""

    def __init__(self, *lists: Sequence[str]) -> None:
        self.lists = [*lists]
        self.let = asyncio.Semaphore(0)
        self.asked = asyncio.Semaphore(0)

    async def send(self, *_: str, **__: Any) -> BulkAnswer:
        self.asked.release()
        await self.let.acquire()
        items = [pod(uid) for uid in self.lists.pop(0)]
        listed = {"metadata": {"resourceVersion": "7"}, "items": items}
        return BulkAnswer(200, json.dumps(listed).encode())

    async def watch(self, path: str) -> AsyncIterator[bytes]:
        assert path.endswith("&resourceVersion=7")
        for nothing in list[bytes]():
            yield nothing


class Running:
    """Machines on which pods run until they are ended."""

    def __init__(self, *uids: str) -> None:
        self.uids = {*uids}

    def running(self, *_: str) -> set[str]:
        return self.uids.copy()

    def ended(self) -> dict[str, dict[str, int]]:
        return {}

    def end(self, *uids: str) -> None:
        self.uids.difference_update(uids)


def pod(uid: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": uid, "uid": uid},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }


def test_pods_run_on_while_nobody_watches_and_those_deleted_meanwhile_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_runner, "AGAIN_SECONDS", 0.0)

    async def story() -> None:
        server, machines = ApiServer(["kept", "deleted"], ["kept"]), Running("kept", "deleted")
        kubelet = Kubelet("n", "", "10.64.0.1", real=True)
        runner = pod_runner.PodRunner(server, {"n": kubelet}, machines)
        following = asyncio.create_task(runner.run())
        server.let.release()
        for _ in range(2):
            await server.asked.acquire()
        runner.look_again(["n"])  # its node is back, and the second list is not there yet
        assert machines.uids == {"kept", "deleted"}
        server.let.release()
        await server.asked.acquire()
        assert machines.uids == {"kept"}
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(story())
