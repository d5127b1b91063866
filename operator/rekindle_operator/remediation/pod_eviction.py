"""Executor pods that are of no use: of lost nodes, of a driver that has gone, or kept off in vain.

Those of lost nodes are deleted by force: they stay Running for ever otherwise. Spark counts them as
its own until they are gone, so nothing becomes Pending, and no autoscaler acts. One of each
application is read first, for replacements have to fit what it asked for; deleted is only the very
pod that was meant. Drivers are never among them. Runs in errands.

The scheduler takes a lost node for sound until it is NotReady. Where the webhook does not keep new
executors from there, they are deleted too, later each time, so that they find another node without
being made and deleted many times a second.

Why: docs/decisions/0036-executors-of-a-dead-driver-are-deleted.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, ObjectConflict, path_of
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.detection import failure_domains
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain
from rekindle_operator.provisioning import ExecutorShape, executor_of

DELAY_SECONDS_MAX = 15.0


@dataclass(slots=True)
class PodEviction:
    """`measured` gets an executor, and what its pod asks for, on any thread."""

    api: Api
    errands: WorkQueue
    log: Log
    metrics: OperatorMetrics
    measured: Callable[[Place, PodSeen, ExecutorShape], None]
    _deleted: dict[Place, dict[str, int]] = field(default_factory=dict)
    _wanted: dict[Place, frozenset[str]] = field(default_factory=dict)
    _read: set[Place] = field(default_factory=set)

    def evict(
        self, place: Place, lost: tuple[PodSeen, ...], others: tuple[PodSeen, ...] = ()
    ) -> None:
        """Delete these executors of an application, soon, and no others any more: `lost` by force,
        `others` in order. Those without a node are delayed together."""
        forced = frozenset(pod.uid for pod in lost)
        left = tuple(pod for pod in others if pod.uid not in forced and not pod.deleting_at)
        self._wanted[place] = forced | {pod.uid for pod in left}
        for pod in (*lost, *left):
            assert pod.role == "executor"
            times = self._deleted.get(place, {}).get(pod.node, 0)
            delay = min(2.0 ** (times - 1), DELAY_SECONDS_MAX) if times else 0.0
            grace = {"gracePeriodSeconds": 0} if pod.uid in forced else {}
            errand = partial(self._evict, place, pod, grace)
            self.errands.leave(f"evict {pod.uid}", errand, delay_seconds=delay)

    def forget(self, place: Place) -> None:
        """An application has lost no nodes any more."""
        self._wanted.pop(place, None)
        self._deleted.pop(place, None)
        self._read.discard(place)

    def measure(self, place: Place, pod: PodSeen) -> None:
        """Look at an executor, soon, without touching it."""
        self.errands.leave(f"measure {place}", partial(self._measure, place, pod))

    def _measure(self, place: Place, pod: PodSeen) -> None:
        body = self.api.get(path_of(object_kinds.PODS, pod.namespace, pod.name))
        if body is not None:
            self.measured(place, pod, executor_of(body))

    def _evict(self, place: Place, pod: PodSeen, grace: Mapping[str, int]) -> None:
        path = path_of(object_kinds.PODS, pod.namespace, pod.name)
        if place not in self._read:
            body = self.api.get(path)
            if body is None or body["metadata"]["uid"] != pod.uid:
                return
            self.measured(place, pod, executor_of(body))
            self._read.add(place)
        if pod.uid not in self._wanted.get(place, ()):
            return  # its node was heard of again, or it is not kept off in vain any more
        try:
            there = self.api.delete(path, {**grace, "preconditions": {"uid": pod.uid}})
        except ObjectConflict:
            return  # another pod has its name by now
        if there:
            self.metrics.executors_deleted.inc()
            times = self._deleted.setdefault(place, {})
            times[pod.node] = times.get(pod.node, 0) + 1
            self.log.write("executor-deleted", application=str(place), pod=pod.name, node=pod.node)


# Kept off in vain are those that wait for a node while they may not run in a domain that is not
# avoided any more.


def kept_off_needlessly(
    executors: Iterable[PodSeen], avoided: Collection[Domain], nodes: Collection[str]
) -> tuple[PodSeen, ...]:
    """Executors that wait for a node, and may not run in a domain, or on one of these `nodes`, that
    is not avoided any more: an affinity is for the life of a pod, and that life may be long."""
    return tuple(
        pod
        for pod in executors
        if pod.kept_off
        and any(
            domain not in avoided and (domain.key != HOSTNAME or domain.value in nodes)
            for domain in failure_domains.parse(pod.kept_off)
        )
    )
