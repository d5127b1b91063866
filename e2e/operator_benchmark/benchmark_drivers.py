"""The drivers of all applications: what they report of their executors, what they do with plans.

A driver at rest reports every ten seconds, one with silent executors at each multiple of five
seconds of their silence; directives are carried out at once. As `rekindle_bench.application_fleet`,
from whose members they are made, but with executors that have pods. `operator_at_scale` uses it.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue

import msgspec

from operator_benchmark.cluster_layout import Spark
from rekindle import protocol
from rekindle.model import topology as graph
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import NAMES, REPORT_SECONDS, Member, shape
from rekindle_zookeeper import Connection

SILENCE_STEP_SECONDS = 5.0
NODE_PERCENT = 100.0
WAIT_SECONDS = 0.2


@dataclass(slots=True)
class BenchmarkDriver:
    """One driver; `silent` (address -> moment) are executors that say nothing since then, `due` is
    when it reports next."""

    spark: Spark
    member: Member
    silent: dict[str, float] = field(default_factory=dict)
    due: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def place(self) -> Place:
        return self.spark.place


def driver(spark: Spark, queries: int) -> BenchmarkDriver:
    """Of an application whose partitions are all placed."""
    member = Member(spark.place, shape(queries), partition_percent=1.0)
    member.nodes = {
        executor.address: protocol.NodeSeen(
            incarnation=f"{executor.number}.0",
            capacity_percent=NODE_PERCENT,
            silent_seconds=0.0,
            cluster_node=executor.node,
        )
        for executor in spark.executors
    }
    names = [*member.nodes]
    member.placement = {
        partition: names[index % len(names)]
        for index, partition in enumerate(graph.partitions(member.topology))
    }
    return BenchmarkDriver(spark, member)


class BenchmarkDrivers:
    """`start` it once `write` has written the first records; `close` raises what went wrong."""

    def __init__(self, connection: Connection, sparks: Iterable[Spark], queries: int) -> None:
        self.all = [driver(spark, queries) for spark in sparks]
        self.reports = 0
        self._connection = connection
        self._due: list[tuple[float, int, BenchmarkDriver]] = []
        self._order = itertools.count()
        self._orders: SimpleQueue[BenchmarkDriver] = SimpleQueue()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guard, args=(what,), daemon=True)
            for what in (self._report_all, self._obey_all)
        ]

    def write(self) -> None:
        """What drivers report that have been running for a while."""
        for item in self.all:
            host = f"{item.place.application}-driver"
            heartbeat = protocol.Heartbeat(generation=1, since=time.time(), host=host)
            path = item.place.path(store_paths.HEARTBEAT)
            self._connection.put(path, protocol.encode(heartbeat), ephemeral=True)
            for report in [*item.member.beginning(), item.member.progress()]:
                self._put(item, NAMES[type(report)], report)

    def start(self) -> None:
        """Report from now on, evenly spread, and listen."""
        now = time.monotonic()
        for index, item in enumerate(self.all):
            self._plan(now + REPORT_SECONDS * index / len(self.all), item)
            path = item.place.path(store_paths.DIRECTIVES)
            self._connection.watch(path, partial(self._orders.put, item))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self.check()

    def check(self) -> None:
        """Raises the error that ended a thread: without it nobody reports or obeys."""
        if self._error is not None:
            raise self._error

    def fall_silent(self, nodes: Collection[str]) -> list[Place]:
        """Nothing comes from executors on these nodes any more; the applications that have some."""
        now, hit = time.monotonic(), []
        for item in self.all:
            there = [one.address for one in item.spark.executors if one.node in nodes]
            fresh = [address for address in there if address not in item.silent]
            if fresh:
                with item.lock:
                    item.silent |= dict.fromkeys(fresh, now)
                hit.append(item.place)
                self._plan(now + SILENCE_STEP_SECONDS, item)
        return hit

    def lose_executor(self, item: BenchmarkDriver) -> float:
        """A driver finds one of its executors gone and says so; the moment, since 1970."""
        with item.lock:
            item.member.lose(next(iter(item.member.nodes)))
            began = time.time()
            self._report(item)
        return began

    def _guard(self, what: object) -> None:
        assert callable(what)
        try:
            what()
        except BaseException as error:
            self._error = error

    def _plan(self, at: float, item: BenchmarkDriver) -> None:
        with self._lock:
            item.due = at
            heapq.heappush(self._due, (at, next(self._order), item))

    def _report_all(self) -> None:
        while not self._ending.is_set():
            now = time.monotonic()
            with self._lock:
                due = heapq.heappop(self._due) if self._due and self._due[0][0] <= now else None
            if due is None:
                self._ending.wait(0.01)
                continue
            at, _, item = due
            if at != item.due:
                continue  # it was told to report at another moment
            with item.lock:
                self._report(item)
                step = SILENCE_STEP_SECONDS if item.silent else REPORT_SECONDS
            self._plan(at + step, item)

    def _obey_all(self) -> None:
        while not self._ending.is_set():
            try:
                item = self._orders.get(timeout=WAIT_SECONDS)
            except Empty:
                continue
            with item.lock:
                if self._obey(item):
                    self._report(item)

    def _obey(self, item: BenchmarkDriver) -> bool:
        """Whether there was anything to do."""
        folder, done = item.place.path(store_paths.DIRECTIVES), False
        for number in store_paths.numbers(self._connection.children(folder)):
            if number <= item.member.directive:
                continue
            path = f"{folder}/{store_paths.numbered(number)}"
            found = self._connection.get(path)
            if found is not None:
                self._carry_out(item, protocol.decode(found[0], protocol.Directive, path))
                done = True
        return done

    def _carry_out(self, item: BenchmarkDriver, directive: protocol.Directive) -> None:
        member, order = item.member, directive.order
        if isinstance(order, protocol.DropOrder):
            for address in order.nodes:
                item.silent.pop(address, None)
                if address in member.nodes:
                    member.lose(address)
        member.take(directive)
        answer = protocol.Acknowledgement(
            sequence=directive.sequence,
            generation=1,
            outcome="done",
            epoch=member.epoch,
            plan_epoch=member.plan_epoch,
        )
        self._put(item, f"{store_paths.ACKS}/{store_paths.numbered(directive.sequence)}", answer)

    def _report(self, item: BenchmarkDriver) -> None:
        now, nodes = time.monotonic(), item.member.nodes
        for address, since in item.silent.items():
            if address in nodes:
                nodes[address] = msgspec.structs.replace(nodes[address], silent_seconds=now - since)
        self._put(item, store_paths.PROGRESS, item.member.progress())
        self.reports += 1

    def _put(self, item: BenchmarkDriver, name: str, message: object) -> None:
        self._connection.put(item.place.path(name), protocol.encode(message))
