"""Metrics and health of a coordinator, for whoever watches it.

Healthy is one whose loop turns. A store that does not answer is no reason to start a coordinator
anew, so it is healthy all the same; the metrics tell. `health_server` shows them on a port.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from rekindle.coordination.session import ApplicationReading
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.driver_metrics import DriverFigures

PREFIX = "rekindle_coordinator"
SILENT_SECONDS_MAX = 60.0


class Metrics:
    """What is counted; `turned_at` (time.monotonic()) is when the loop last turned, `awaited` what
    has to be seen before it does, "" for nothing more; `readings` are of drivers' reports."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turned_at = time.monotonic()
        self.awaited = ""
        self.readings: Callable[[], Iterable[tuple[Place, ApplicationReading]]] = tuple
        self.drivers = DriverFigures(lambda: self.readings(), time.time)
        self.registry.register(self.drivers)
        self.leads = self._gauge("leads", "1 while this coordinator decides")
        self.reachable = self._gauge("store_reachable", "1 while the store answers")
        self.applications = self._gauge("applications", "Applications in the store")
        self.stopped = self._gauge("applications_stopped", "Those that cannot be decided about")
        self.queries_stopped = self._gauge("queries_stopped", "Those whose function raises")
        self.slow = self._gauge("nodes_slow", "Those that hold the epochs of an application up")
        self.waiting = self._gauge("applications_waiting", "Those that have to be looked at")
        self.decisions = self._counter("decisions", "Looks at an application")
        self.directives = self._counter("directives", "Directives written")
        self.plans = self._counter("plans", "Plans among them")
        self.conflicts = self._counter("conflicts", "Writes that another one was faster with")

    @property
    def turning(self) -> bool:
        """Whether the loop turns."""
        return time.monotonic() - self.turned_at < SILENT_SECONDS_MAX

    @property
    def trouble(self) -> str:
        """Why the process should be started anew; "" while all is well with it."""
        silent = time.monotonic() - self.turned_at
        return "" if self.turning else f"the loop has not turned for {silent:.0f} s"

    def summary(self) -> dict[str, Any]:
        """What /health and /ready say."""
        gauges = ("leads", "store_reachable", "applications", "applications_stopped")
        values = {name: self.registry.get_sample_value(f"{PREFIX}_{name}") for name in gauges}
        trouble = self.trouble
        awaited = f"waits for {self.awaited}" if self.awaited else ""
        return {
            "version": 1,
            "healthy": not trouble,
            "ready": not (trouble or awaited),
            "reason": trouble or awaited,
            **{name: int(value or 0) for name, value in values.items()},
        }

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, registry=self.registry)
