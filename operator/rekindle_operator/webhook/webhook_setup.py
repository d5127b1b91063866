"""The webhook in the operator: every replica serves it, whoever acts keeps it trusted.

What the webhook goes by is a value that the deciding thread makes anew when something has changed;
certificates are looked after from a thread of their own. What is added to pods is `webhook`'s.

The webhook's certificate in a folder, where somebody else puts it, and renews it.

cert-manager keeps it in a Secret that is mounted there: `tls.crt` and `tls.key`, both replaced in
one step by a link, so they are read through one opened folder. Says nothing of authorities: whoever
makes the certificate sees to `caBundle` as well. `webhook_server` calls `read` every few seconds.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rekindle.model.errors import InputError, RekindleError
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_class import StoreSpec
from rekindle_operator.cluster.api_client import Api, ObjectConflict
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.controller.operator_metrics import OperatorMetrics
from rekindle_operator.controller.operator_options import OperatorOptions
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.webhook import certificate_store, injector
from rekindle_operator.webhook.certificate_rotation import Pair
from rekindle_operator.webhook.certificate_store import CertificateStore
from rekindle_operator.webhook.injector import Informed
from rekindle_operator.webhook.policy_view import (
    Defaults,
    Impairment,
    PolicyView,
    avoided,
    gathered,
)
from rekindle_operator.webhook.webhook_server import WebhookServer, make_counter

CERTIFICATE, KEY = "tls.crt", "tls.key"
BYTES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a certificate."""

    path: Path

    def read(self) -> Pair:
        """What lies there now; InputError where it cannot be read."""
        try:
            return self._read()
        except OSError as error:
            raise InputError(
                where=f"--certificates-folder {self.path}",
                what=f"{error.filename or 'it'} cannot be read ({error.strerror})",
                remedy=f"mount a folder with {CERTIFICATE} and {KEY} there",
            ) from error

    def _read(self) -> Pair:
        # A mounted Secret is a folder of links into `..data`, itself a link that is replaced.
        inner = self.path / "..data"
        opened = os.open(inner if inner.exists() else self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return Pair(_content(CERTIFICATE, opened), _content(KEY, opened))
        finally:
            os.close(opened)


def _content(name: str, folder: int) -> bytes:
    file = os.open(name, os.O_RDONLY, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        return opened.read(BYTES_MAX)


TEND_SECONDS = 5.0
REFRESH_SECONDS = 0.5
PAUSE_FACTOR = 10.0


@dataclass(slots=True)
class WebhookSetup:
    """`start` it once everything has been seen, so that no driver is told that nothing is known of
    it."""

    options: OperatorOptions
    api: Api
    known: ClusterView
    judge: DetectionRunner
    metrics: OperatorMetrics
    log: Log
    acts: Callable[[], bool]
    outlook: Informed = field(default_factory=lambda: injector.Informed(PolicyView()))
    server: WebhookServer | None = None
    _keeper: CertificateStore | None = None
    _defaults: Defaults = field(default_factory=Defaults)
    _dirty: bool = True
    _due: float = 0.0
    _impairments: dict[Place, Impairment] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _trouble: str = ""

    def __post_init__(self) -> None:
        if self.options.webhook:
            # There is none yet: an alert is due if that stays so.
            self.metrics.certificate_ends.set(0.0)

    def start(self) -> None:
        """Serve. Raises InputError for a port that cannot be listened on."""
        options = self.options
        store = StoreSpec(addresses=tuple(options.store.split(",")))
        self._defaults = Defaults(options.sidecar_image, store)
        self._due = 0.0  # nobody may be told of what was known before the defaults
        self.refresh((), stirred=True)
        source: Callable[[], object]
        if options.certificates_folder is not None:
            source = Folder(options.certificates_folder).read
        else:
            hosts = certificate_store.hosts_of(options.webhook_service, options.namespace)
            self._keeper = keeper = CertificateStore(
                self.api, options.namespace, options.webhook_configuration, hosts
            )
            threading.Thread(target=self._tend, name="certificates", daemon=True).start()
            source = lambda: keeper.pair  # noqa: E731
        counter = make_counter(self.metrics.registry)
        self.server = WebhookServer(
            self.outlook, source, counter, self.log.write, port=options.webhook_port
        )
        self.server.start()
        self.log.write("webhook-serves", port=self.server.port)

    @property
    def ends(self) -> datetime | None:
        """When the certificate that is presented ends; None while there is none."""
        return None if self.server is None else self.server.ends

    def close(self) -> None:
        """End."""
        self._ending.set()
        if self.server is not None:
            self.server.close()

    def refresh(self, places: Iterable[Place], *, stirred: bool) -> None:
        """Let the webhook go by what is known now: by the losses of these applications at once, as
        their executors are made anew within moments; by all else soon after it has changed."""
        if self._note_impairments(places):
            told = avoided(self._impairments.values())
            self.outlook.knowledge = replace(self.outlook.knowledge, avoided=told)
        self._dirty |= stirred
        now = time.monotonic()
        if not self._dirty or now < self._due:
            return
        self._dirty = False
        self._note_impairments(self.judge.sightings)
        self.outlook.knowledge = gathered(
            self.known.policies.values(),
            self.known.classes.values(),
            self.known.registry.resources(),
            self._impairments.values(),
            self._defaults,
        )
        # of a thousand applications it takes a while, and whoever decides has more to do
        took = time.monotonic() - now
        self._due = now + max(REFRESH_SECONDS, PAUSE_FACTOR * took)

    def _note_impairments(self, places: Iterable[Place]) -> bool:
        """Where executors of applications that have lost nodes may not be; whether that is news."""
        changed = False
        for place in places:
            impairment = self._impairment(place)
            changed |= impairment != self._impairments.get(place)
            if impairment is None:
                self._impairments.pop(place, None)
            else:
                self._impairments[place] = impairment
        return changed

    def _impairment(self, place: Place) -> Impairment | None:
        """New executors keep out of impaired domains, and off lost nodes, which the scheduler takes
        for sound for a while yet. None for an application that has lost none."""
        application, held = self.known.application(place), self.known.held(place)
        if application is None or held is None or held.dry_run:
            return None
        domains = self.judge.avoided(place, held)
        return Impairment(application, domains, held.executors) if domains else None

    def _tend(self) -> None:
        assert self._keeper is not None
        while not self._ending.is_set():
            try:
                if self.acts():
                    done = self._keeper.tend(datetime.now(UTC))
                    if done:
                        self.log.write("certificate", done=list(done))
                else:
                    self._keeper.follow()
                self._trouble = ""
            except ObjectConflict:
                pass  # the next turn reads it again
            except RekindleError as trouble:
                if str(trouble) != self._trouble:
                    self.log.write("certificate-failed", text=str(trouble))
                self._trouble = str(trouble)
            self._ending.wait(TEND_SECONDS if self._keeper.pair is not None else 1.0)
