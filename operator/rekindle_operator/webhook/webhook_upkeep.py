"""What the operator that acts does for the webhook: certificate, domains, pods that wait, a look.

The webhook itself is a process of its own (`webhook_main`) and writes nothing. The certificate is
looked after from a thread of its own. Another one looks whether the webhook's Deployment has a
replica, and whether the API server asks the webhook about pods that may have to wait: the Job
before an uninstall takes that out of the configuration, and stays behind when it fails. The domains
that executors of applications with an incident avoid are worked out by the deciding thread and
written by the work queue (`avoided_domains`).

Why: docs/decisions/0050-the-webhook-is-a-deployment-of-its-own.md.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import NOT_FOUND, Api, ApiRefused, path_of
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.json_access import count, items, text
from rekindle_operator.cluster.work_queue import UpkeepThread, WorkQueue
from rekindle_operator.controller.operator_options import OperatorOptions
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook import avoided_domains, certificate_store
from rekindle_operator.webhook.certificate_store import CertificateStore
from rekindle_operator.webhook.injector import Impairment, avoided
from rekindle_operator.webhook.webhook_configuration import TURNS

TEND_SECONDS, FIRST_SECONDS = 5.0, 1.0
# A Deployment of one replica has none for some seconds when that is replaced.
AWAY_SECONDS = 30.0
REFRESH_SECONDS = 0.5
PAUSE_FACTOR = 10.0


@dataclass(slots=True)
class WebhookUpkeep:
    """`acts` says whether this operator does; `clock` is in seconds; `waiting` gives the buckets
    whose new pods wait for their turn."""

    options: OperatorOptions
    api: Api
    known: ClusterView
    judge: DetectionRunner
    errands: WorkQueue
    log: Log
    acts: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    waiting: Callable[[], frozenset[str]] = frozenset
    _dirty: bool = True
    _due: float = 0.0
    _impairments: dict[Place, Impairment] = field(default_factory=dict)
    # of these impairments; None when they have changed since
    _avoided: dict[str, tuple[Domain, ...]] | None = None
    # what was left to be written last, and when; None before this operator has acted
    _written: tuple[dict[str, tuple[Domain, ...]], frozenset[str]] | None = None
    _written_at: float = 0.0
    # since when no replica of the webhook has been available
    _absent_since: float | None = None
    # since when the configuration has had no entry for pods that wait; whether that is logged
    _gateless_since: float | None = None
    _gateless_logged: bool = False
    _threads: tuple[UpkeepThread, ...] = ()

    def __post_init__(self) -> None:
        if not self.options.webhook:
            return
        look = UpkeepThread(
            "webhook-availability",
            self.look,
            lambda: TEND_SECONDS,
            lambda text: self.log.write("webhook-unseen", text=text),
        )
        issues = self.options.issue_webhook_certificate
        self._threads = (look, self._certificates()) if issues else (look,)

    def start(self) -> None:
        """Look after the certificate, where it is the operator's, and at the Deployment."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End."""
        for thread in self._threads:
            thread.close()

    @property
    def is_away(self) -> bool:
        """Whether the webhook's Deployment has had no available replica for `AWAY_SECONDS`."""
        since = self._absent_since
        return since is not None and self.clock() - since >= AWAY_SECONDS

    def look(self) -> None:
        """Ask whether the Deployment has an available replica. Where there is no Deployment the
        webhook runs otherwise, and nobody knows. Raises what the API server says."""
        found = None
        if self.acts():
            service = self.options.webhook_service
            path = path_of(object_kinds.DEPLOYMENTS, self.options.namespace, service)
            found = self.api.get(path)
        if found is None or count(found, "status", "availableReplicas"):
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = self.clock()
        self._look_for_gates()

    @property
    def gates_are_missing(self) -> bool:
        """Whether pods of whole applications are to wait for their turn, and the API server has had
        no reason to ask the webhook about them for `AWAY_SECONDS`."""
        begin = self._gateless_since
        return begin is not None and self.clock() - begin >= AWAY_SECONDS

    def _look_for_gates(self) -> None:
        """Whoever keeps the certificate, cert-manager for example."""
        name = self.options.webhook_configuration
        if not self.acts() or not self.options.whole_applications:
            self._gateless_since = None
            return
        found = self.api.get(f"{certificate_store.CONFIGURATIONS}/{name}")
        if any(text(item, "name") == TURNS for item in items(found, "webhooks")):
            self._gateless_since = None
        elif self._gateless_since is None:
            self._gateless_since = self.clock()
        if self.gates_are_missing != self._gateless_logged:
            self._gateless_logged = self.gates_are_missing
            if self._gateless_logged:
                self.log.write("gates-missing", configuration=name, webhook=TURNS)
            else:
                self.log.write("gates-back", configuration=name, webhook=TURNS)

    def refresh(self, places: Iterable[Place], *, stirred: bool) -> None:
        """Have the webhook told what executors avoid by what is known now: of the losses of these
        applications at once, as their executors are made anew within moments; of all else soon
        after it has changed."""
        if not self.options.webhook:
            return
        self._note_impairments(places)
        self._dirty |= stirred
        now = self.clock()
        if self._dirty and now >= self._due:
            self._dirty = False
            self._note_impairments(self.judge.sightings)
            # of a thousand applications it takes a while, and whoever decides has more to do
            self._due = now + max(REFRESH_SECONDS, PAUSE_FACTOR * (self.clock() - now))
        self._tell()

    def _tell(self) -> None:
        """Leave it to be written where it is another one than was written, or has to be renewed."""
        if not self.acts():
            self._written = None
            return
        if self._avoided is None:
            self._avoided = avoided(self._impairments.values())
        found, now = (self._avoided, self.waiting()), self.clock()
        is_old = any(found) and now - self._written_at >= avoided_domains.RENEW_SECONDS
        if found == self._written and not is_old:
            return
        self._written, self._written_at = found, now
        self.errands.leave("avoided-domains", lambda: self._write(*found))

    def _write(self, found: dict[str, tuple[Domain, ...]], waiting: frozenset[str]) -> None:
        home = self.options.namespace
        body = avoided_domains.to_config_map(found, home, datetime.now(UTC), waiting)
        path = path_of(object_kinds.CONFIG_MAPS, home)
        try:
            self.api.replace(f"{path}/{avoided_domains.NAME}", body)
        except ApiRefused as refused:
            if refused.status != NOT_FOUND:
                raise
            self.api.create(path, body)

    def _note_impairments(self, places: Iterable[Place]) -> None:
        """Where executors of applications that have lost nodes may not be."""
        for place in places:
            impairment = self._impairment(place)
            if impairment == self._impairments.get(place):
                continue
            self._avoided = None
            if impairment is None:
                self._impairments.pop(place, None)
            else:
                self._impairments[place] = impairment

    def _impairment(self, place: Place) -> Impairment | None:
        """New executors keep out of impaired domains, and off lost nodes, which the scheduler takes
        for sound for a while yet. None for an application that has lost none."""
        application, held = self.known.application(place), self.known.held(place)
        if application is None or held is None or held.dry_run:
            return None
        domains = self.judge.avoided(place, held)
        return Impairment(application, domains, held.executors) if domains else None

    def _certificates(self) -> UpkeepThread:
        hosts = certificate_store.hosts_of(self.options.webhook_service, self.options.namespace)
        keeper = CertificateStore(
            self.api, self.options.namespace, self.options.webhook_configuration, hosts
        )

        def tend() -> None:
            done = keeper.tend(datetime.now(UTC)) if self.acts() else ()
            if done:
                self.log.write("certificate", done=list(done))

        return UpkeepThread(
            "certificates",
            tend,
            lambda: TEND_SECONDS if keeper.pair is not None else FIRST_SECONDS,
            lambda text: self.log.write("certificate-failed", text=text),
        )
