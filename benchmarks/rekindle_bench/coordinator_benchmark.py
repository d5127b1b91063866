"""A coordinator of many applications: what it costs at rest, how soon it plans, how it is replaced.

Real ZooKeeper, real coordinator processes; the drivers' records come from `fleet`. At rest every
driver reports each ten seconds. In each failover the one that leads is killed right after its first
plan of a recovery, and the next plan is due from the other.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle.protocol import PlanOrder, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench import bar_results
from rekindle_bench.application_fleet import REPORT_SECONDS, Fleet, Member, shape
from rekindle_bench.bar_results import Bar
from rekindle_local import process_sets
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_testing.coordinator_process import CoordinatorProcess
from rekindle_zookeeper import connect

MEMORY_MEGABYTES_MAX = 512
CORES_MAX = 0.5
# of the 2 s from a reset connection to the acknowledgement; an epoch of 1 s is the driver's
PLAN_SECONDS_MAX = 1.0
SESSION_SECONDS, FAILOVER_MORE_SECONDS = 10.0, 2.0
REST_SECONDS = 60.0
PLANS_MAX = 200
FAILOVERS = 3
WAIT_SECONDS_MAX = 300.0
HEAP_MEGABYTES = 1_024


def measure(applications: int, queries: int, directory: Path) -> dict[str, Any]:
    """Measure it all; returns what `coordinator.json` holds."""
    console = Console(highlight=False)
    command = f"rekindle bench coordinator --applications {applications} --queries {queries}"
    with _fleet(applications, queries, directory) as (fleet, hosts):
        console.print(f"{applications} applications of {queries} queries, {hosts}")
        fleet.write()
        fleet.start()
        leader = _started(directory, 1, hosts, applications)
        others = [leader]
        try:
            console.print(f"at rest for {REST_SECONDS:.0f} s")
            rest = _rest(leader, fleet)
            console.print("losing nodes")
            plans = _plans(fleet, min(PLANS_MAX, applications - FAILOVERS))
            failovers = []
            for number in range(FAILOVERS):
                console.print(f"failover {number + 1} of {FAILOVERS}")
                others.append(_started(directory, number + 2, hosts, applications))
                member = fleet.members[-1 - number]
                failovers.append(_fail_over(fleet, member, others[-2]))
        finally:
            fleet.close()
            for process in others:
                process.end()
    figures = {
        "applications": applications,
        "queries": queries,
        "partitions": len(fleet.members[0].topology.operators) * 2,
        "record_bytes_per_application": fleet.record_bytes,
        "report_seconds": REPORT_SECONDS,
        "session_seconds": SESSION_SECONDS,
        **rest,
        "plan_seconds": _spread(plans),
        "failover_seconds": failovers,
    }
    return bar_results.write(directory / "coordinator.json", figures, _bars(figures, command))


@contextmanager
def _fleet(applications: int, queries: int, directory: Path) -> Iterator[tuple[Fleet, str]]:
    """Applications in a ZooKeeper of their own, and its servers."""
    topology = shape(queries)
    members = [
        Member(Place("bench", f"application-{index:05d}"), topology)
        for index in range(applications)
    ]
    with LocalZookeeper(
        directory=directory / "zookeeper", heap_megabytes=HEAP_MEGABYTES
    ) as zookeeper:
        connection = connect(zookeeper.connect_string, deadline_seconds=30.0)
        try:
            yield Fleet(connection, members), zookeeper.connect_string
        finally:
            connection.close()


def _started(directory: Path, number: int, hosts: str, applications: int) -> CoordinatorProcess:
    """A coordinator that has read everything."""
    process = CoordinatorProcess(
        directory / "logs", f"coordinator-{number}", hosts, session_seconds=SESSION_SECONDS
    )
    process.start()

    def has_read() -> bool:
        metrics = process.metrics()
        return metrics["applications"] == applications and not metrics["applications_waiting"]

    if not process_sets.await_condition(
        has_read, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=1
    ):
        process.end()
        raise RunError(
            where="coordinator", what="does not come to rest", remedy=f"see {process.log}"
        )
    return process


def _rest(leader: CoordinatorProcess, fleet: Fleet) -> dict[str, Any]:
    """Memory and CPU over a minute in which drivers only report, after a round of reports."""
    time.sleep(REPORT_SECONDS)
    pid, began = leader.process_id, time.monotonic()
    cpu, reports, decisions = process_sets.cpu_seconds([pid]), fleet.reports, _decisions(leader)
    time.sleep(REST_SECONDS)
    seconds = time.monotonic() - began
    return {
        "reports_per_second": (fleet.reports - reports) / seconds,
        "decisions_per_second": (_decisions(leader) - decisions) / seconds,
        "cores_at_rest": (process_sets.cpu_seconds([pid]) - cpu) / seconds,
        "resident_megabytes": process_sets.resident_bytes(pid) / (1 << 20),
    }


def _decisions(leader: CoordinatorProcess) -> float:
    return leader.metrics()["decisions_total"]


def _plans(fleet: Fleet, count: int) -> list[float]:
    """Seconds from a report with a lost node to the plan in the store, one after the other."""
    return [_lose_node(fleet, fleet.members[index], 0) for index in range(count)]


def _lose_node(fleet: Fleet, member: Member, index: int, began: float | None = None) -> float:
    """Let a driver report a loss and take the plan; seconds since then, or since `began`."""
    written = threading.Event()
    fleet.connection.watch(member.place.path(store_paths.DIRECTIVES), written.set)
    member.resting = False
    fleet.obey(member)
    member.lose(f"{member.place.application}-node-{index}")
    began = time.monotonic() if began is None else began
    fleet.report(member)
    end = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < end:
        written.wait(1.0)
        seen = time.monotonic()
        written.clear()
        if any(isinstance(directive.order, PlanOrder) for directive in fleet.obey(member)):
            fleet.report(member)
            return seen - began
    raise RunError(where=str(member.place), what="got no plan", remedy="see the coordinators' logs")


def _fail_over(fleet: Fleet, member: Member, leader: CoordinatorProcess) -> float:
    """Seconds from the death of the one that leads, in a recovery, to the other's plan."""
    _lose_node(fleet, member, 0)
    leader.kill()
    return _lose_node(fleet, member, 1, time.monotonic())


def _spread(seconds: list[float]) -> dict[str, float]:
    return {
        "count": len(seconds),
        "median": median(seconds),
        "p99": quantiles(seconds, n=100, method="inclusive")[98],
        "max": max(seconds),
    }


def _bars(figures: dict[str, Any], command: str) -> list[Bar]:
    memory, cores = figures["resident_megabytes"], figures["cores_at_rest"]
    plan, worst = figures["plan_seconds"], max(figures["failover_seconds"])
    limit = SESSION_SECONDS + FAILOVER_MORE_SECONDS
    many = f"{figures['applications']:,} applications of {figures['queries']} queries"
    return [
        Bar(
            f"{many} at rest: at most {MEMORY_MEGABYTES_MAX} MiB",
            f"{memory:.0f} MiB",
            memory <= MEMORY_MEGABYTES_MAX,
            command,
        ),
        Bar(
            f"the same: at most {CORES_MAX} of a core",
            f"{cores:.2f} with {figures['reports_per_second']:.0f} reports/s",
            cores <= CORES_MAX,
            command,
        ),
        Bar(
            f"from a report with a lost node to the plan: 99 % within {PLAN_SECONDS_MAX:g} s",
            f"median {plan['median']:.3f} s, 99 % {plan['p99']:.3f} s",
            plan["p99"] <= PLAN_SECONDS_MAX,
            command,
        ),
        Bar(
            f"the leader killed in a recovery: next plan within {limit:g} s",
            f"{worst:.1f} s, the worst of {FAILOVERS}",
            worst <= limit,
            command,
        ),
    ]
