"""What is asked of the API server to be rid of the executors of lost nodes."""

import io
from collections.abc import Callable
from typing import Any, cast

import pytest
import spark_objects as objects

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.pods import KEPT_OFF_ANNOTATION, PodSeen, pod_seen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.detection import failure_domains
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain
from rekindle_operator.provisioning import ExecutorShape
from rekindle_operator.remediation.pod_eviction import PodEviction, kept_off_needlessly

PLACE = Place("flights", "flights")
ZONE_A, ZONE_B = (Domain("topology.kubernetes.io/zone", name) for name in "ab")
NODE_1 = Domain(HOSTNAME, "n1")


class Pods:
    """An API server with pods; `asked` are its requests."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.there = {body["metadata"]["name"]: body for body in bodies}
        self.asked: list[str] = []

    def get(self, path: str) -> dict[str, Any] | None:
        name = path.rpartition("/")[2]
        self.asked.append(f"get {name}")
        return self.there.get(name)

    def delete(self, path: str, options: dict[str, Any]) -> bool:
        name = path.rpartition("/")[2]
        how = "force" if options.get("gracePeriodSeconds") == 0 else "delete"
        self.asked.append(f"{how} {name}")
        assert options["preconditions"]["uid"] == self.there[name]["metadata"]["uid"]
        return self.there.pop(name, None) is not None


class AtOnce:
    """Does errands as they are left."""

    def leave(self, key: str, errand: Callable[[], object], *, delay_seconds: float = 0.0) -> None:
        del key, delay_seconds
        errand()


def executors(*numbers: int) -> tuple[Pods, tuple[PodSeen, ...]]:
    bodies = [objects.kubeflow_executor(number) for number in numbers]
    seen = [pod_seen(body) for body in bodies]
    return Pods(*bodies), tuple(pod for pod in seen if isinstance(pod, PodSeen))


def test_one_executor_of_an_application_is_read_and_each_is_deleted_by_its_uid() -> None:
    api, pods = executors(1, 2, 3)
    measured: list[tuple[Place, PodSeen, ExecutorShape]] = []
    evictor = PodEviction(
        cast(Api, api),
        cast(WorkQueue, AtOnce()),
        Log(io.StringIO()),
        OperatorMetrics(),
        measured=lambda *news: measured.append(news),
    )
    evictor.evict(PLACE, pods[:2])
    names = [pod.name for pod in pods]
    assert api.asked == [f"get {names[0]}", f"force {names[0]}", f"force {names[1]}"]
    assert [place for place, *_ in measured] == [PLACE]
    evictor.forget(PLACE)
    api.asked.clear()
    evictor.evict(PLACE, (), pods[2:])
    assert api.asked == [f"get {names[2]}", f"delete {names[2]}"], "of another incident, an orphan"


@pytest.mark.parametrize(
    ("kept_off", "avoided", "nodes", "needlessly"),
    [
        ((), (), (), False),
        ((ZONE_A,), (ZONE_A,), (), False),
        ((ZONE_A,), (ZONE_A, ZONE_B), (), False),
        ((ZONE_A,), (), (), True),
        ((ZONE_A, ZONE_B), (ZONE_A,), (), True),
        ((NODE_1,), (NODE_1,), ("n1",), False),
        ((NODE_1,), (), (), False),
        ((NODE_1,), (), ("n1",), True),
    ],
)
def test_executors_are_kept_off_needlessly_where_nothing_is_avoided_any_more(
    kept_off: tuple[Domain, ...],
    avoided: tuple[Domain, ...],
    nodes: tuple[str, ...],
    needlessly: bool,
) -> None:
    waiting, placed = (objects.kubeflow_executor(number, node="") for number in (1, 2))
    for body in (waiting, placed):
        body["metadata"]["annotations"] = {KEPT_OFF_ANNOTATION: failure_domains.listed(kept_off)}
    placed["spec"]["nodeName"] = "n2"
    pods = [pod for pod in map(pod_seen, (waiting, placed)) if isinstance(pod, PodSeen)]
    found = kept_off_needlessly(pods, avoided, nodes)
    assert [pod.name for pod in found] == ([pods[0].name] if needlessly else [])
