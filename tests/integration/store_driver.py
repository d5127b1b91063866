"""A driver and its sidecar in one, as far as the coordination store can tell.

Speaks through the real records: reports, heartbeat, acknowledgements. It follows directives by the
same rules as the real driver (rekindle.coordination.directive_acceptance) and asserts what no order
may bring about: a partition that is placed twice, a plan that is older than one before. Partitions
are live some time after they were placed.
"""

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from waiting import wait_until

from rekindle import protocol
from rekindle.coordination import directive_acceptance
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.model import topology as graph
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import (
    Acknowledgement,
    CheckpointReport,
    Directive,
    DropOrder,
    Heartbeat,
    NodeSeen,
    PauseOrder,
    PlanOrder,
    ProgressReport,
    Report,
    ResumeOrder,
    StatisticsReport,
    TopologyReport,
    store_paths,
)
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper import Connection, StoreUnreachable, connect

TOPOLOGY = Topology(
    operators=(
        TopologyOperator("source", 1),
        TopologyOperator("counts", 2),
        TopologyOperator("tops", 1),
    ),
    edges=(("source", "counts"), ("source", "tops")),
    queries=(Query("busiest", "counts", 4), Query("ranking", "tops", 9)),
)
COSTS = {"source/0": 10.0, "counts/0": 60.0, "counts/1": 60.0, "tops/0": 60.0}
NODES = ("n1", "n2", "n3", "n4")
STEP_SECONDS, CHECKPOINT_SECONDS = 0.05, 0.5
WAIT_SECONDS_MAX = 180.0
NAMES: dict[type[Report], str] = {
    TopologyReport: store_paths.TOPOLOGY,
    StatisticsReport: store_paths.STATISTICS,
    ProgressReport: store_paths.PROGRESS,
    CheckpointReport: store_paths.CHECKPOINT,
}


@dataclass
class StoreDriver:
    """One application; `process_id` is whose end would be the driver's."""

    hosts: str
    place: Place
    policy: Policy = field(default_factory=Policy)
    generation: int = 1
    resumed: bool = False
    catch_up_seconds: float = 0.3
    process_id: int = field(default_factory=os.getpid)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    resident: dict[str, str] = field(default_factory=dict)
    taken: list[Directive] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    paused: bool = False
    obeys: bool = True
    checkpoints: int = 0

    def __post_init__(self) -> None:
        self.following = AcceptedDirectives(self.generation, contact_at=0.0)
        self.ready_at: dict[str, float] = {}
        self.sequence = 0
        self.checkpoint_at = 0.0
        self.told: object = None
        self.lock = threading.RLock()
        self.broken: BaseException | None = None
        self.ending = threading.Event()
        for node in NODES:
            self._add(node)
        # its heartbeat outlives a leader that falls silent, and an outage of the store
        self.connection: Connection = connect(self.hosts, session_seconds=40.0)
        self.thread = threading.Thread(target=self._run, name=f"driver-{self.place}", daemon=True)
        self.thread.start()

    def __enter__(self) -> "StoreDriver":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self.broken is not None:
            raise self.broken

    def end(self) -> None:
        """Be gone, heartbeat and all."""
        self.ending.set()
        self.thread.join()
        self.connection.close()

    @property
    def live(self) -> frozenset[str]:
        """Partitions that run."""
        with self.lock:
            now = time.monotonic()
            ready = {name: n for name, n in self.placement.items() if self.ready_at[name] <= now}
            return frozenset(graph.runnable(TOPOLOGY, ready))

    @property
    def is_whole(self) -> bool:
        """Whether everything runs."""
        return self.live == set(COSTS)

    @property
    def plans(self) -> list[Directive]:
        """The plans that were carried out."""
        return [item for item in self.taken if isinstance(item.order, PlanOrder)]

    def lose(self, *names: str) -> None:
        """Executors are gone."""
        with self.lock:
            for name in names:
                del self.nodes[name]
            kept = {part: node for part, node in self.placement.items() if node not in names}
            runs = graph.runnable(TOPOLOGY, kept)
            self.placement = {part: node for part, node in kept.items() if part in runs}
            stopped = {part: node for part, node in kept.items() if part not in runs}
            resident = {**self.resident, **stopped}
            self.resident = {part: n for part, n in resident.items() if n not in names}

    def come(self, *names: str) -> None:
        """Executors are there, empty."""
        with self.lock:
            for name in names:
                self._add(name)

    def _checkpoint(self) -> None:
        """While everything runs, a global checkpoint completes now and then."""
        if not self.is_whole or time.monotonic() - self.checkpoint_at < CHECKPOINT_SECONDS:
            return
        self.checkpoint_at = time.monotonic()
        self.checkpoints += 1
        self._put(
            CheckpointReport(
                generation=self.generation,
                sequence=self.checkpoints,
                epoch=self.checkpoints,
                at=time.time(),
            )
        )

    def _add(self, name: str) -> None:
        incarnation = f"{time.monotonic_ns()}.0"
        self.nodes[name] = NodeSeen(incarnation=incarnation, capacity_percent=100.0)

    def _run(self) -> None:
        try:
            while not self.ending.wait(STEP_SECONDS):
                try:
                    self._step()
                except StoreUnreachable:
                    self.told = None
        except BaseException as error:
            self.broken = error
            raise

    def _step(self) -> None:
        if not self.connection.reachable:
            return
        path = self.place.path(store_paths.HEARTBEAT)
        if self.connection.get(path) is None:
            self._introduce(path)
        if self.obeys:
            self._follow()
        report = self._progress()
        gist = msgspec.structs.replace(report, sequence=0)
        if gist != self.told:
            self._put(report)
            self.told = gist
        self._checkpoint()

    def _introduce(self, path: str) -> None:
        self._put(
            TopologyReport(
                generation=self.generation,
                sequence=0,
                program="test",
                topology=TOPOLOGY,
                policy=self.policy,
                nodes_expected=len(NODES),
                resumed=self.resumed,
            )
        )
        self._put(StatisticsReport(generation=self.generation, sequence=0, costs=COSTS))
        heartbeat = Heartbeat(
            generation=self.generation,
            since=time.time(),
            host=socket.gethostname(),
            process_id=self.process_id,
        )
        self.connection.put(path, protocol.encode(heartbeat), ephemeral=True)

    def _follow(self) -> None:
        folder = self.place.path(store_paths.DIRECTIVES)
        for name in self.connection.children(folder):
            found = self.connection.get(f"{folder}/{name}")
            if store_paths.number(name) > self.following.directive and found is not None:
                self._take(protocol.decode(found[0], Directive, name))

    def _take(self, directive: Directive) -> None:
        if directive_acceptance.is_early(self.following, directive):
            return
        with self.lock:
            before = self.following.plan_epoch
            self.following, why = directive_acceptance.take(self.following, directive)
            if why:
                self.refused.append(f"{directive.sequence}: {why}")
            else:
                self._obey(directive, before)
                self.taken.append(directive)
        acknowledgement = Acknowledgement(
            sequence=directive.sequence,
            generation=self.generation,
            outcome="refused" if why else "done",
            epoch=0,
            plan_epoch=self.following.plan_epoch,
            text=why,
        )
        path = self.place.path(store_paths.ACKS, store_paths.numbered(directive.sequence))
        self.connection.put(path, protocol.encode(acknowledgement))

    def _obey(self, directive: Directive, before: int) -> None:
        match directive.order:
            case PlanOrder(placement=placement):
                assert directive.plan_epoch > before, "an older plan"
                twice = placement.keys() & self.placement.keys()
                assert not twice, f"placed twice: {twice}"
                self._place(placement)
            case DropOrder(nodes=nodes):
                known = {name: seen.incarnation for name, seen in self.nodes.items()}
                self.lose(*[name for name, meant in nodes.items() if known.get(name) == meant])
            case PauseOrder() | ResumeOrder() as order:
                self.paused = isinstance(order, PauseOrder)

    def _place(self, placement: Mapping[str, str]) -> None:
        for name, node in placement.items():
            if node in self.nodes:
                self.placement[name] = node
                self.resident.pop(name, None)
                self.ready_at[name] = time.monotonic() + self.catch_up_seconds
        runs = graph.runnable(TOPOLOGY, self.placement)
        for name in [name for name in self.placement if name not in runs]:
            self.resident[name] = self.placement.pop(name)

    def _progress(self) -> ProgressReport:
        with self.lock:
            self.sequence += 1
            return ProgressReport(
                generation=self.generation,
                sequence=self.sequence,
                nodes=dict(self.nodes),
                placement=dict(self.placement),
                live=tuple(sorted(self.live)),
                resident=dict(self.resident),
                plan_epoch=self.following.plan_epoch,
                directive=self.following.directive,
                paused=self.paused,
                lags={"busiest": 1.0, "ranking": 1.0},
                at=time.time(),
            )

    def _put(self, report: Any) -> None:
        self.connection.put(self.place.path(NAMES[type(report)]), protocol.encode(report))


def plan_epochs(driver: StoreDriver) -> list[int]:
    """Of the plans that it carried out."""
    return [directive.plan_epoch for directive in driver.plans]


def lose_three(driver: StoreDriver) -> str:
    """Leave one node, so that one query comes back and the other one waits; its name."""
    (kept, *_) = (node for part, node in driver.placement.items() if part == "source/0")
    driver.lose(*[node for node in NODES if node != kept])
    return kept


def come_back(driver: StoreDriver) -> None:
    """All nodes come, and everything runs."""
    driver.come(*[node for node in NODES if node not in driver.nodes])
    wait_until(lambda: driver.is_whole, "the rest is not back")
