"""Metrics and health on a port: `/metrics` for Prometheus, `/healthz`, `/readyz`.

Alive is a sidecar that answers, ready one that the store answers. Reads the desk, changes nothing.
"""

from collections.abc import Iterator, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rekindle.protocol import SourceSeen
from rekindle_sidecar.sidecar_session import SidecarSession

PREFIX = "rekindle_sidecar"
NEVER = -1.0


class SidecarMetrics(Collector):
    """What the desk knows, as metrics."""

    def __init__(self, desk: SidecarSession) -> None:
        self._desk = desk

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
        desk, figures = self._desk, self._desk.figures
        yield _counts("reports", "Reports of the driver.", "kind", figures.reports)
        yield _counts("acks", "Acknowledgements of the driver.", "outcome", figures.acks)
        yield _counts("refusals", "Requests that were refused.", "cause", figures.refusals)
        late = figures.late_rows
        yield _counts("late_rows", "Rows that came too late, in all epochs.", "step", late)
        yield CounterMetricFamily(
            f"{PREFIX}_reports_repeated", "Reports that were no news.", value=figures.repeated
        )
        yield CounterMetricFamily(
            f"{PREFIX}_directives", "Directives given to the driver.", value=figures.directives
        )
        yield from _of_sources(figures.sources)
        heard = desk.heard_seconds()
        for name, text, value in (
            ("held", "Reports and acknowledgements that wait for the store.", len(desk.held)),
            ("store_reachable", "Whether the store answers.", desk.store_reachable),
            ("heartbeat_up", "Whether the store shows the driver.", desk.heartbeat_up),
            ("led", "Whether a coordinator leads.", desk.led),
            ("generation", "The driver's generation.", desk.generation),
            ("fenced", "Whether a newer driver has taken over.", desk.fenced),
            (
                "driver_heard_seconds",
                "Seconds since the driver was heard of, -1 for never.",
                NEVER if heard is None else heard,
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=float(value))


def application(desk: SidecarSession) -> web.Application:
    """What serves them."""
    registry = CollectorRegistry()
    registry.register(SidecarMetrics(desk))
    ProcessCollector(registry=registry)

    async def metrics(_: web.Request) -> web.Response:
        content = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=generate_latest(registry), headers=content)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if desk.store_reachable:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the store does not answer\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


def _of_sources(sources: Mapping[str, SourceSeen]) -> Iterator[Metric]:
    """Gauges of each source, by the newest report."""
    for name, text, value in (
        ("waiting", "Offsets that have arrived and are in no epoch yet.", lambda one: one.waiting),
        ("lag_seconds", "Since all that had arrived was in an epoch.", lambda one: one.lag_seconds),
        ("away", "Whether the source cannot be reached.", lambda one: bool(one.away)),
    ):
        family = GaugeMetricFamily(f"{PREFIX}_source_{name}", text, labels=["source"])
        for source, seen in sorted(sources.items()):
            family.add_metric([source], float(value(seen)))
        yield family


def _counts(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
