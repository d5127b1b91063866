"""Metrics of the operator, on the coordinator's page of metrics.

Most of it is read when somebody asks, from what the deciding thread has set last; names and
meanings are in docs/metrics.md. Healthy is an operator whose loop turns and whose watches have been
heard of: one that sees nothing any more has to be started anew.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge, Histogram

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_health import Metrics
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller.coordination_risks import ServerFigures
from rekindle_operator.detection.detection_events import DetectionEvent, DetectionKind
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.detection.lease_poller import LeasePoller
from rekindle_operator.policies.policy_conditions import DomainLossForecast
from rekindle_operator.policies.policy_selection import ProtectionReason

PREFIX = "rekindle_operator"
UNHEARD_SECONDS_MAX = 300.0
READ_SECONDS = 1.0
DELAYS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """Seconds since something was last heard, and whether kopf runs."""

    unheard_seconds: Callable[[], float]
    kopf_alive: Callable[[], bool]


class OperatorMetrics(Metrics):
    """`watched` is set when there is something to hear of."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = "the API server"
        self.watched: WatchedSource | None = None
        self.acts = self._own("leader", "1 while this operator holds the Lease and acts")
        self._add_nodes()
        self.held = self._own(
            "detection_paused", "1 while every node looks lost and nothing is confirmed"
        )
        self.policies = self._own("policies", "RecoveryPolicies")
        self.unprotected = self._own("applications_unprotected", "Selected, without a sidecar")
        self.recoveries = self._own("recoveries", "Recoveries that are not over", "phase")
        self.stopped_by_loss = self._own(
            "domain_loss_stops_ratio",
            "Share of all priority that the loss of a failure domain would stop",
            "namespace",
            "application",
            "domain",
        )
        self.errands = self._own("api_writes", "What is left to be done with the API server")
        self.failing = self._own("api_writes_failing", "API writes that failed and are tried again")
        self.leases_age = self._own("leases_age_seconds", "Since leases were last listed")
        self.leases_heard_at: Callable[[], float | None] = lambda: None
        self._began = time.monotonic()
        self.leases_age.set_function(self._leases_age_seconds)
        self.verdicts = self._counted(
            "detection_events", "What detection has found", "kind", "reason"
        )
        self.unacknowledged = self._own(
            "plan_unacknowledged_seconds", "Since the oldest plan that a driver has not answered"
        )
        self.unwritten = self._own(
            "status_unwritten_seconds", "Since the oldest decision that no Recovery tells yet"
        )
        self._add_servers()
        self.requests = self._counted(
            "node_requests", "Requests for nodes that have come to an end", "provider", "outcome"
        )
        self.refused = self._counted("requests_refused", "What the API server has refused for good")
        self.executors_deleted = self._counted(
            "executors_deleted", "Executor pods of lost nodes that were deleted"
        )
        self.confirmation = Histogram(
            f"{PREFIX}_confirmation_seconds",
            "From a node's suspicion to its confirmed loss",
            buckets=(1, 5, 10, 15, 20, 30, 45, 60, 120, 300),
            registry=self.registry,
        )
        self.telling = Histogram(
            f"{PREFIX}_status_write_seconds",
            "From a decision to the Recovery that tells of it",
            buckets=DELAYS,
            registry=self.registry,
        )

    def _add_nodes(self) -> None:
        self.nodes = self._own("nodes", "Nodes of the cluster")
        self.suspected = self._own("nodes_suspected", "Nodes whose lease has stopped")
        self.lost = self._own("nodes_lost", "Nodes that are lost to some application")
        self.announced = self._own("nodes_announced", "Nodes that are announced to go")

    def _add_servers(self) -> None:
        self.server_disk = self._own(
            "store_server_disk_bytes", "Snapshots and logs of a server of the store", "server"
        )
        self.server_data = self._own(
            "store_server_data_bytes", "Records of the store, as a server has them", "server"
        )
        self.server_waiting = self._own(
            "store_server_requests_waiting", "Requests that wait at a server of the store", "server"
        )
        self.server_certificate_ends = self._own(
            "store_server_certificate_ends_timestamp_seconds",
            "When the certificate of a server of the store ends",
            "server",
        )

    @property
    def trouble(self) -> str:
        """The loop does not turn, kopf has ended, or the cluster has not been heard of."""
        watched = self.watched
        if not self.turning or watched is None:
            return super().trouble
        if not watched.kopf_alive():
            return "the watch of policies, classes and Recoveries has ended"
        unheard = watched.unheard_seconds()
        if unheard >= UNHEARD_SECONDS_MAX:
            return f"pods, nodes or leases have not been heard of for {unheard:.0f} s"
        return ""

    def found(self, verdict: DetectionEvent, suspected_at: float | None) -> None:
        """A verdict of detection; `suspected_at` is of the same clock."""
        self.verdicts.labels(str(verdict.kind), str(verdict.reason)).inc()
        if verdict.kind is DetectionKind.CONFIRMED and suspected_at is not None:
            self.confirmation.observe(max(0.0, verdict.at - suspected_at))

    def sounded(self, servers: Mapping[str, ServerFigures]) -> None:
        """What servers of the store say of themselves; one that says nothing any more has none."""
        for gauge, name in (
            (self.server_disk, "disk_bytes"),
            (self.server_data, "data_bytes"),
            (self.server_waiting, "requests_waiting"),
            (self.server_certificate_ends, "certificate_ends"),
        ):
            gauge.clear()
            for server, figures in servers.items():
                value = getattr(figures, name)
                if value is not None:
                    gauge.labels(server).set(value)

    def told(self, decided_at: float) -> None:
        """A Recovery was written that tells of a decision (seconds since 1970)."""
        self.telling.observe(max(0.0, time.time() - decided_at))

    def _leases_age_seconds(self) -> float:
        """Read when somebody asks: the loop that sets all else does not turn before the API server
        has answered."""
        heard_at = self.leases_heard_at()
        return time.monotonic() - (self._began if heard_at is None else heard_at)

    def _counted(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _own(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)


class ShownOutlooks:
    """What the loss of each domain would stop, in a gauge by namespace, application and domain.

    Of thousands of applications hardly one has another outlook than a second ago: only such are
    written.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: Mapping[Place, DomainLossForecast | None] = {}

    def show(self, outlooks: Mapping[Place, DomainLossForecast | None]) -> None:
        """These and no others; the mapping is kept."""
        for place in self._shown.keys() | outlooks.keys():
            before, after = self._shown.get(place), outlooks.get(place)
            if before is not after:
                self._write(place, _shares(before), _shares(after))
        self._shown = outlooks

    def _write(self, place: Place, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        for domain in before.keys() - after.keys():
            self._gauge.remove(place.namespace, place.application, domain)
        for domain, share in after.items():
            self._gauge.labels(place.namespace, place.application, domain).set(share)


def _shares(outlook: DomainLossForecast | None) -> Mapping[str, float]:
    return {} if outlook is None else outlook.stopped_shares


@dataclass(slots=True)
class MetricsReader:
    """Reads the figures off the parts, about once a second."""

    metrics: OperatorMetrics
    known: ClusterView
    judge: DetectionRunner
    errands: WorkQueue
    renewals: LeasePoller
    acts: Callable[[], bool]
    unacknowledged_since: Callable[[], float | None]
    outlook: Callable[[Place], DomainLossForecast | None]
    log: Log
    _at: float = 0.0
    _outlooks: ShownOutlooks = field(init=False)

    def __post_init__(self) -> None:
        self._outlooks = ShownOutlooks(self.metrics.stopped_by_loss)
        self.metrics.leases_heard_at = self._heard_at

    def read(self) -> None:
        """Set what is set, count what has come."""
        for verdict, suspected_at in self.judge.take_verdicts():
            self.metrics.found(verdict, suspected_at)
            whom = {"node": verdict.node, "application": verdict.application}
            known = {key: value for key, value in whom.items() if value is not None}
            reason = str(verdict.reason)
            self.log.write(
                "verdict", verdict=verdict.kind, reason=reason, text=verdict.text, **known
            )
        now = time.monotonic()
        if now - self._at < READ_SECONDS:
            return
        self._at = now
        metrics, state = self.metrics, self.judge.state
        metrics.acts.set(self.acts())
        metrics.nodes.set(len(self.known.registry.nodes))
        metrics.suspected.set(len(state.suspects))
        metrics.lost.set(len(self.judge.nodes_lost))
        metrics.announced.set(len(self.judge.announced.noticed))
        metrics.held.set(state.held_at is not None)
        metrics.policies.set(len(self.known.policies))
        there = tuple(self.known.applications())
        metrics.unprotected.set(
            sum(
                item.footing is ProtectionReason.SIDECAR_MISSING and self._wants_sidecar(item)
                for item in there
            )
        )
        metrics.recoveries.clear()
        for _, item in self.known.open_recoveries():
            metrics.recoveries.labels(item.status.phase or "").inc()
        self._outlooks.show({item.place: self.outlook(item.place) for item in there if item.policy})
        metrics.errands.set(self.errands.waiting)
        metrics.failing.set(self.errands.failing)
        since = self.unacknowledged_since()
        metrics.unacknowledged.set(0.0 if since is None else max(0.0, time.time() - since))

    def _wants_sidecar(self, application: MatchedApplication) -> bool:
        """Whether a policy selects it, and not as a whole application, which needs none."""
        policy = self.known.policies.get(application.policy)
        return policy is not None and policy.spec.recovers == "Queries"

    def _heard_at(self) -> float | None:
        newest = self.renewals.newest
        return None if newest is None else newest.answered_at
