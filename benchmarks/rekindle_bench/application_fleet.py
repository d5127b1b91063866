"""Many applications at rest, as far as a coordinator can tell: their records, and their reports.

Every application has the same shape and records of its own. A driver at rest reports when something
changes, and otherwise every ten seconds; here nothing changes but epoch and lags, until the
benchmark has an application lose a node. `bench.coordinator` uses it.
"""

import threading
import time
from dataclasses import dataclass, field

from rekindle import protocol
from rekindle.model import topology as graph
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_zookeeper import Connection

REPORT_SECONDS = 10.0
NODES, NODE_PERCENT = 4, 400.0
PARTITION_PERCENT = 2.0
SOURCES, SHARED = 2, 10
NAMES: dict[type[protocol.Report], str] = {
    protocol.TopologyReport: store_paths.TOPOLOGY,
    protocol.StatisticsReport: store_paths.STATISTICS,
    protocol.ProgressReport: store_paths.PROGRESS,
    protocol.CheckpointReport: store_paths.CHECKPOINT,
}


def shape(queries: int) -> Topology:
    """Two sources, ten shared operators behind them, and behind each of those its part of the
    queries; two partitions of everything."""
    sources = [f"source-{index}" for index in range(SOURCES)]
    shared = [f"shared-{index}" for index in range(min(SHARED, queries))]
    ends = [f"query-{index:02d}" for index in range(queries)]
    edges = [(sources[index % SOURCES], name) for index, name in enumerate(shared)]
    edges += [(shared[index % len(shared)], name) for index, name in enumerate(ends)]
    used = {producer for producer, _ in edges}
    operators = [name for name in sources if name in used] + shared + ends
    return Topology(
        operators=tuple(TopologyOperator(name, 2) for name in operators),
        edges=tuple(edges),
        queries=tuple(
            Query(f"{name}-out", name, 1 + index % 10) for index, name in enumerate(ends)
        ),
    ).checked()


@dataclass(slots=True)
class Member:
    """One application and its driver. One that does not rest is in the hands of the benchmark."""

    place: Place
    topology: Topology
    nodes: dict[str, protocol.NodeSeen] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    resident: dict[str, str] = field(default_factory=dict)
    sequence: int = 0
    epoch: int = 0
    directive: int = 0
    plan_epoch: int = 0
    paused: bool = False
    resting: bool = True
    policy: Policy = field(default_factory=Policy)
    partition_percent: float = PARTITION_PERCENT

    def __post_init__(self) -> None:
        names = [f"{self.place.application}-node-{index}" for index in range(NODES)]
        for name in names:
            self.nodes[name] = protocol.NodeSeen(incarnation="1.0", capacity_percent=NODE_PERCENT)
        for index, partition in enumerate(graph.partitions(self.topology)):
            self.placement[partition] = names[index % NODES]

    def lose(self, node: str) -> None:
        """A node is gone, and what cannot run without it stops."""
        del self.nodes[node]
        kept = {name: held for name, held in self.placement.items() if held != node}
        runs = graph.runnable(self.topology, kept)
        self.placement = {name: held for name, held in kept.items() if name in runs}
        self.resident |= {name: held for name, held in kept.items() if name not in runs}
        self.resident = {name: held for name, held in self.resident.items() if held != node}

    def take(self, directive: protocol.Directive) -> None:
        """Carry out a directive, as far as a report shows it."""
        self.directive = directive.sequence
        match directive.order:
            case protocol.PlanOrder(placement=placement):
                self.plan_epoch = directive.plan_epoch
                self.placement |= placement
                for partition in placement:
                    self.resident.pop(partition, None)
            case protocol.PauseOrder() | protocol.ResumeOrder() as order:
                self.paused = isinstance(order, protocol.PauseOrder)

    def beginning(self) -> list[protocol.Report]:
        """What a driver reports once."""
        costs = dict.fromkeys(graph.partitions(self.topology), self.partition_percent)
        topology = protocol.TopologyReport(
            generation=1,
            sequence=0,
            program=f"program-of-{self.place.application}",
            topology=self.topology,
            policy=self.policy,
            nodes_expected=NODES,
        )
        statistics = protocol.StatisticsReport(
            generation=1, sequence=1, costs=costs, state_bytes=dict.fromkeys(costs, 1 << 20)
        )
        checkpoint = protocol.CheckpointReport(generation=1, sequence=1, epoch=1, at=time.time())
        return [topology, statistics, checkpoint]

    def progress(self) -> protocol.ProgressReport:
        """How it is now; each call another report."""
        self.sequence += 1
        self.epoch += 1
        return protocol.ProgressReport(
            generation=1,
            sequence=self.sequence,
            nodes=dict(self.nodes),
            placement=dict(self.placement),
            live=tuple(self.placement),
            resident=dict(self.resident),
            plan_epoch=self.plan_epoch,
            directive=self.directive,
            epoch=self.epoch,
            paused=self.paused,
            lags={query.name: 1.5 for query in self.topology.queries},
        )


@dataclass(slots=True)
class Fleet:
    """All applications, over one connection."""

    connection: Connection
    members: list[Member]
    reports: int = 0
    record_bytes: int = 0
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _error: BaseException | None = None

    def write(self) -> None:
        """The records of applications that have been running for a while."""
        for member in self.members:
            heartbeat = protocol.Heartbeat(generation=1, since=time.time(), host="elsewhere")
            path = member.place.path(store_paths.HEARTBEAT)
            self.connection.put(path, protocol.encode(heartbeat), ephemeral=True)
            reports = [*member.beginning(), member.progress()]
            self.record_bytes = sum(self._put(member, report) for report in reports)

    def report(self, member: Member) -> None:
        """Let a driver say how things are."""
        self._put(member, member.progress())

    def obey(self, member: Member) -> list[protocol.Directive]:
        """Let a driver take the directives that it has not taken yet; returns them."""
        folder = member.place.path(store_paths.DIRECTIVES)
        taken = []
        for name in self.connection.children(folder):
            fresh = store_paths.number(name) > member.directive
            found = self.connection.get(f"{folder}/{name}") if fresh else None
            if found is not None:
                taken.append(protocol.decode(found[0], protocol.Directive, f"{folder}/{name}"))
                member.take(taken[-1])
        return taken

    def start(self) -> None:
        """Report for all that rest from now on, evenly spread."""
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Report no more; raises what went wrong behind the caller's back."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._rest()
        except BaseException as error:
            self._error = error

    def _rest(self) -> None:
        began, count = time.monotonic(), 0
        while not self._ending.is_set():
            member = self.members[count % len(self.members)]
            if member.resting:
                self.obey(member)
                self.report(member)
                self.reports += 1
            count += 1
            due = began + count * REPORT_SECONDS / len(self.members)
            self._ending.wait(max(0.0, due - time.monotonic()))

    def _put(self, member: Member, report: protocol.Report) -> int:
        data = protocol.encode(report)
        self.connection.put(member.place.path(NAMES[type(report)]), data)
        return len(data)
