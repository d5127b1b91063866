"""What a driver has said of the executors on each node, and how long it has heard nothing there.

A driver reports the executors that it knows, each with how long it has been silent. One that it has
dropped, or has never heard of, is in no report, though its pod may stand there as Running for ever.
A node is as silent as the least silent executor that was ever reported there; where none was, since
the first report that lacked the one that is there. So one that is put on a lost node, in place of
another that was deleted, is no sign of life. Pure; the shell calls it with each report and keeps
the outcome.

Why: docs/decisions/0035-a-node-is-as-silent-as-its-executors.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rekindle.protocol import ProgressReport
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.detection import node_lookup

__all__ = ["DriverSilence", "hear"]

# What was heard on a node where no executor is any more is of no use after that.
KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DriverSilence:
    """What the newest report of a driver says. `said_at` (seconds, our clock) is when it was news;
    `heard_at` (node -> moment) since when a node has been silent; `silent_seconds` (node ->
    seconds) is that of nodes with executors, as of `said_at`, `reported_seconds` the same of the
    executors in the report alone."""

    generation: int
    said_at: float
    heard_at: Mapping[str, float] = field(default_factory=dict)
    silent_seconds: Mapping[str, float] = field(default_factory=dict)
    reported_seconds: Mapping[str, float] = field(default_factory=dict)

    def hears(self, node: str, seconds: float) -> bool:
        """Whether the driver had heard of an executor on a node within so many seconds."""
        return self.reported_seconds.get(node, seconds) < seconds


def hear(
    before: DriverSilence | None, progress: ProgressReport, executors: Iterable[PodSeen], now: float
) -> DriverSilence:
    """After a report that came at `now`; `executors` are the pods of the driver that reports.

    A driver that was started anew has never heard of anybody: all its patience begins again.
    """
    there = [pod for pod in executors if pod.node and not pod.ended]
    located = node_lookup.locate(progress.nodes, there)
    reported = {pod.uid: progress.nodes[name] for name, pod in located.pods.items()}
    same = before is not None and before.generation == progress.generation
    known = before.heard_at if before is not None and same else {}
    heard_at = {node: at for node, at in known.items() if now - at < KEPT_SECONDS}
    reporting: dict[str, float] = {}
    for pod in there:
        seen = reported.get(pod.uid)
        if seen is None:
            continue
        last = now - (seen.silent_seconds or 0.0)
        heard_at[pod.node] = max(heard_at.get(pod.node, last), last)
        if seen.silent_seconds is not None:
            seconds = seen.silent_seconds
            reporting[pod.node] = min(reporting.get(pod.node, seconds), seconds)
    for pod in there:
        heard_at.setdefault(pod.node, now)  # where none was ever reported
    silent = {pod.node: now - heard_at[pod.node] for pod in there}
    return DriverSilence(progress.generation, now, heard_at, silent, reporting)
