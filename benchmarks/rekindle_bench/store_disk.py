"""What drivers' reports take on the disk of a ZooKeeper server: computed, and measured.

A server writes each report into a log. A log ends, with a snapshot of all records, after half to
all of `LOG_BYTES`; each hour all is removed but the newest snapshots and the logs since the oldest
of them. So the disk holds at most the logs of an hour, the files that are kept whatever the rate,
and a snapshot for each log that has ended (docs/zookeeper.md).

The bench writes the reports of a number of applications at a multiple of their rate to a server
with the chart's settings, and reads off how long its logs get.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle import protocol
from rekindle.protocol import ProgressReport, StatisticsReport, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_bench.bar_results import Bar, write
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection, connect

HOUR_SECONDS = 3_600.0
# As the chart's zoo.cfg has them; a test compares.
LOG_BYTES, PREALLOCATED_BYTES, SNAPSHOTS_KEPT = 131_072 << 10, 16_384 << 10, 3
# How often a driver reports that does nothing new, and its costs where they stay (guidance).
PROGRESS_SECONDS, STATISTICS_SECONDS = 5.0, 30.0
# Of a transaction beside its record: header, path, check of the topology, checksum.
TRANSACTION_BYTES = 400
# JSON of many alike names; measured, 1 : 11.
COMPRESSED_SHARE = 0.1
# Beside its reports an application has a topology, a case, and its newest directives.
OTHER_RECORDS_BYTES = 60_000
CLAIM_SHARE_MAX = 0.5
GIB = float(1 << 30)
HEAP_MEGABYTES = 512


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes that an hour adds to the logs of each server, and of a snapshot of all records."""

    hour_bytes: float
    snapshot_bytes: float


def computed(applications: int, queries: int) -> Rates:
    """What applications at rest write, by the sizes of the reports that they send."""
    member = Member(Place("bench", "application-00000"), shape(queries))
    progress = len(protocol.encode(member.progress()))
    (statistics,) = (
        len(protocol.encode(report))
        for report in member.beginning()
        if isinstance(report, StatisticsReport)
    )
    second = (progress + TRANSACTION_BYTES) / PROGRESS_SECONDS
    second += (statistics + TRANSACTION_BYTES) / STATISTICS_SECONDS
    records = progress + statistics + OTHER_RECORDS_BYTES
    return Rates(
        hour_bytes=applications * second * HOUR_SECONDS,
        snapshot_bytes=applications * records * COMPRESSED_SHARE,
    )


def disk_bytes(rates: Rates) -> float:
    """The most that lies on the disk of a server, just before old files are removed."""
    ended = rates.hour_bytes / (LOG_BYTES / 2)
    kept = (SNAPSHOTS_KEPT + 1) * (LOG_BYTES + PREALLOCATED_BYTES)
    return rates.hour_bytes + kept + (ended + SNAPSHOTS_KEPT + 1) * rates.snapshot_bytes


def claim_bytes(rates: Rates) -> float:
    """The claim of which at most half is used."""
    return disk_bytes(rates) / CLAIM_SHARE_MAX


def measure(
    applications: int, queries: int, times: float, seconds: float, directory: Path
) -> dict[str, Any]:
    """Write reports for some seconds, at a multiple of their rate; what was measured."""
    topology = shape(queries)
    members = [
        Member(Place("bench", f"application-{index:05d}"), topology)
        for index in range(applications)
    ]
    folder = directory / "zookeeper"
    with LocalZookeeper(directory=folder, heap_megabytes=HEAP_MEGABYTES) as zookeeper:
        connection = connect(zookeeper.connect_string, deadline_seconds=30.0)
        try:
            Fleet(connection, members).write()
            before = _log_bytes(folder)
            rounds = _report(connection, members, times, seconds)
            logged = _log_bytes(folder) - before
        finally:
            connection.close()
    return _figures(applications, queries, rounds, logged, directory)


def _report(connection: Connection, members: list[Member], times: float, seconds: float) -> float:
    """Report for all in turn; gives how often each driver has reported."""
    gap = PROGRESS_SECONDS / len(members) / times
    began, count = time.monotonic(), 0
    costs = {
        member.place: protocol.encode(report)
        for member in members
        for report in member.beginning()
        if isinstance(report, StatisticsReport)
    }
    every = round(STATISTICS_SECONDS / PROGRESS_SECONDS)
    while time.monotonic() - began < seconds:
        member = members[count % len(members)]
        report: ProgressReport = member.progress()
        connection.put(member.place.path(store_paths.PROGRESS), protocol.encode(report))
        if count // len(members) % every == count % every:  # each driver at a round of its own
            connection.put(member.place.path(store_paths.STATISTICS), costs[member.place])
        count += 1
        time.sleep(max(0.0, began + count * gap - time.monotonic()))
    return count / len(members)


def _log_bytes(folder: Path) -> int:
    """Of all logs; the end of the newest is preallocated, a megabyte at most on a local server."""
    return sum(file.stat().st_size for file in folder.rglob("log.*") if "version-2" in file.parts)


def _figures(
    applications: int, queries: int, rounds: float, logged: int, directory: Path
) -> dict[str, Any]:
    expected = computed(applications, queries)
    hour = logged / rounds / PROGRESS_SECONDS * HOUR_SECONDS
    found = Rates(hour, expected.snapshot_bytes)
    figures = {
        "applications": applications,
        "queries": queries,
        "reports_of_each": rounds,
        "logged_bytes": logged,
        "hour_gib_measured": hour / GIB,
        "hour_gib_computed": expected.hour_bytes / GIB,
        "disk_gib": disk_bytes(found) / GIB,
        "claim_gib": claim_bytes(found) / GIB,
    }
    command = f"rekindle bench store --applications {applications} --queries {queries}"
    bar = Bar(
        f"{applications:,} applications of {queries} queries: a log no longer than computed",
        f"{hour / GIB:.2f} GiB an hour, computed {expected.hour_bytes / GIB:.2f}; "
        f"a claim of {claim_bytes(found) / GIB:.1f} GiB",
        hour <= expected.hour_bytes,
        command,
    )
    return write(directory / "store.json", figures, [bar])
