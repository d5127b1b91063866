"""The command `rekindle-webhook`: the admission webhook as a process of its own.

    watches ──► WatchedPolicies ──► WebhookServer      POST /inject, HTTPS
    Secret or folder ──► certificate ──┘               /health, /ready and /metrics on another port

It decides nothing and writes nothing, so as many run beside each other as one likes, and it goes on
whether or not an operator does. Exit codes: 0 ended in order, 1 the run failed, 2 wrong usage.

Why: docs/decisions/0050-the-webhook-is-a-deployment-of-its-own.md.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Annotated, Any, TextIO

import typer
from prometheus_client import CollectorRegistry

from rekindle.model.errors import InputError, refuse
from rekindle_coordinator import health_server
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator import process_command
from rekindle_operator.api.recovery_class import StoreSpec
from rekindle_operator.cluster import api_client
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.object_watcher import ObjectWatcher
from rekindle_operator.process_command import (
    PREFIX,
    HealthPort,
    Kubeconfig,
    LogFile,
    WatchSilenceSeconds,
)
from rekindle_operator.webhook import policy_watch, webhook_server
from rekindle_operator.webhook.certificate_rotation import Pair
from rekindle_operator.webhook.certificate_store import CertificateStore
from rekindle_operator.webhook.injector import Defaults
from rekindle_operator.webhook.policy_watch import WatchedPolicies

PROGRAM = "rekindle-webhook"
CERTIFICATE, KEY = "tls.crt", "tls.key"
CERTIFICATE_BYTES_MAX = 1_000_000
# How often a certificate in a Secret is read: before there is any, and from then on.
FIRST_SECONDS, READ_SECONDS = 1.0, 5.0
# One for each watch, and one for the Secret.
CONNECTIONS = 8
LOOK_SECONDS = 0.2
# The API server is led to a pod for a moment after the pod has begun to end.
DRAIN_SECONDS = 5.0
SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")
IMAGE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.:/@]*)?")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """`store` and `sidecar_image` are for classes that do not say them. Without a
    `certificates_folder` the certificate is that in the Secret of the operator, in `namespace`. A
    port of 0 is any that is free; `health_port` is for /health, /ready and /metrics."""

    store: str
    namespace: str
    sidecar_image: str = ""
    port: int = 9443
    health_port: int = 8080
    certificates_folder: Path | None = None
    kubeconfig: Path | None = None
    watch_silence_seconds: float = 90.0


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a certificate that somebody else puts there and renews.

    cert-manager keeps it in a Secret that is mounted there: `tls.crt` and `tls.key`, both replaced
    in one step by a link, so they are read through one opened folder. Whoever makes the certificate
    sees to `caBundle` as well.
    """

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
        return opened.read(CERTIFICATE_BYTES_MAX)


@dataclass(slots=True)
class SecretCertificate:
    """The certificate that the operator keeps in a Secret."""

    store: CertificateStore
    clock: Callable[[], float] = time.monotonic
    _due: float = 0.0

    def read(self) -> Pair | None:
        """What it holds, as it was last read; None while there is none. Raises what the API server
        says."""
        now = self.clock()
        if now >= self._due:
            self.store.follow()
            self._due = now + (FIRST_SECONDS if self.store.pair is None else READ_SECONDS)
        return self.store.pair


@dataclass(slots=True)
class RunningWebhook:
    """All parts of a running webhook; a process that `health_server` shows."""

    log: JsonLineLog
    registry: CollectorRegistry
    watchers: tuple[ObjectWatcher[WatchedPolicies], ...]
    server: webhook_server.WebhookServer
    # its `put` may interrupt its `get`, which an Event does not allow
    _ending: "SimpleQueue[None]" = field(default_factory=SimpleQueue)
    _is_draining: bool = False

    def __post_init__(self) -> None:
        webhook_server.make_gauge(self.registry).set_function(self._ends)

    def run(self) -> None:
        """Serve until `stop` is called, and for `DRAIN_SECONDS` more if it was ready, unless `stop`
        is called again. Raises InputError for a port that is taken."""
        for watcher in self.watchers:
            watcher.start()
        self.server.start()
        self.log.write("webhook-serves", port=self.server.port)
        waited = ""
        while not self._is_ending(LOOK_SECONDS):
            reason = str(self.summary()["reason"])
            if not reason:
                self.log.write("ready")
                self._is_ending(None)
                self._is_draining = True
                self._is_ending(DRAIN_SECONDS)
                return
            if reason != waited:
                self.log.write("waits", text=reason)
            waited = reason

    def stop(self) -> None:
        """End within seconds. A signal handler may call it, also while it runs."""
        self._ending.put(None)

    def close(self) -> None:
        """Give everything back."""
        self.server.close()
        for watcher in self.watchers:
            watcher.stop()

    def summary(self) -> dict[str, Any]:
        """What /health and /ready say. An API server that is away is no reason to start anew: who
        asks is the API server."""
        trouble = "" if self.server.is_serving else "the webhook does not listen"
        awaited = [watcher.kind.plural for watcher in self.watchers if not watcher.listed.is_set()]
        if not self.server.is_presenting:
            awaited.append("a certificate")
        waits = f"waits for {', '.join(awaited)}" if awaited else ""
        waits = "ends" if self._is_draining else waits
        return {
            "version": 1,
            "healthy": not trouble,
            "ready": not (trouble or waits),
            "reason": trouble or waits,
        }

    def _is_ending(self, within_seconds: float | None) -> bool:
        """Wait for `stop` for so long at most, without a limit for None; whether it was called."""
        with suppress(Empty):
            self._ending.get(timeout=within_seconds)
            return True
        return False

    def _ends(self) -> float:
        """0 while there is none: an alert is due if that stays so."""
        ends = self.server.ends
        return 0.0 if ends is None else ends.timestamp()


def check(options: WebhookOptions) -> None:
    """InputError for the first option that cannot be right, whatever is in the cluster."""
    for server in options.store.split(","):
        if SERVER.fullmatch(server) is None:
            remedy = "write HOST:PORT of each server, commas between"
            refuse(f"--store {server!r:.{SHOWN_MAX}}", "is no address of a server", remedy)
    if IMAGE.fullmatch(options.sidecar_image) is None:
        image = f"--sidecar-image {options.sidecar_image!r:.{SHOWN_MAX}}"
        refuse(image, "is no image", "write it like registry.example.com/rekindle:0.1.0")
    if LABEL.fullmatch(options.namespace) is None:
        name = f"--namespace {options.namespace!r:.{SHOWN_MAX}}"
        refuse(name, "is no name of Kubernetes", "use small letters, digits and - inside")
    folder = options.certificates_folder
    if folder is not None and not folder.is_dir():
        remedy = f"name the folder that has {CERTIFICATE} and {KEY}"
        refuse(f"--certificates-folder {folder}", "is no folder", remedy)
    if options.port == options.health_port != 0:
        remedy = f"give --health-port another one than {options.port}"
        refuse(f"--port {options.port}", "is that of --health-port too", remedy)


@contextmanager
def running(options: WebhookOptions, file: TextIO) -> Iterator[RunningWebhook]:
    """A webhook that is ready to run; its log goes to `file`. Raises InputError for options that
    cannot be used."""
    check(options)
    folder = options.certificates_folder
    log, registry = JsonLineLog(file), CollectorRegistry()
    kubeconfig = None if options.kubeconfig is None else str(options.kubeconfig)
    with ExitStack() as stack:
        client = stack.enter_context(api_client.connect(kubeconfig, connections=CONNECTIONS))
        api = Api(client, may_write=lambda: False)
        store = StoreSpec(addresses=tuple(options.store.split(",")))
        known = WatchedPolicies(Defaults(options.sidecar_image, store))
        source = (
            SecretCertificate(CertificateStore(api, options.namespace, "", ())).read
            if folder is None
            else Folder(folder).read
        )
        webhook_server.check_port(options.port)
        webhook = RunningWebhook(
            log,
            registry,
            tuple(
                policy_watch.watchers(
                    api, known, options.namespace, log, options.watch_silence_seconds
                )
            ),
            webhook_server.WebhookServer(
                known, source, webhook_server.make_counter(registry), log.write, port=options.port
            ),
        )
        stack.callback(webhook.close)
        port = health_server.serve(webhook, options.health_port)
        log.write("webhook-started", port=port)
        yield webhook
        log.write("webhook-ended")


Store = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}STORE",
        metavar="HOSTS",
        help="HOST:PORT of each ZooKeeper server, for sidecars; commas between.",
    ),
]
SidecarImage = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}SIDECAR_IMAGE", help="For classes that do not name a sidecar's image."
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}NAMESPACE", help="Where the operator keeps certificate and notes."
    ),
]
WebhookPort = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}WEBHOOK_PORT", min=0, max=65_535, help="For the webhook; 0: any."
    ),
]
CertificatesFolder = Annotated[
    Path | None,
    typer.Option(
        envvar=f"{PREFIX}CERTIFICATES_FOLDER",
        help="tls.crt and tls.key of somebody else, cert-manager for example.",
        show_default="none: read from the operator's Secret",
    ),
]


def serve(
    store: Store,
    sidecar_image: SidecarImage = "",
    namespace: Namespace = "rekindle",
    port: WebhookPort = 9443,
    health_port: HealthPort = 8080,
    certificates_folder: CertificatesFolder = None,
    kubeconfig: Kubeconfig = None,
    watch_silence_seconds: WatchSilenceSeconds = 90.0,
    log: LogFile = None,
) -> None:
    """Add sidecars to drivers that ask for one, and keep executors off impaired domains.

    Runs until SIGTERM. It reads policies and classes, and writes nothing; as many as one likes run
    beside each other.

    Example: rekindle-webhook --store zookeeper-0.zookeeper:2281 --kubeconfig ~/.kube/config
    """
    options = WebhookOptions(
        store=store,
        namespace=namespace,
        sidecar_image=sidecar_image,
        port=port,
        health_port=health_port,
        certificates_folder=certificates_folder,
        kubeconfig=kubeconfig,
        watch_silence_seconds=watch_silence_seconds,
    )
    with ExitStack() as stack:
        webhook = stack.enter_context(running(options, process_command.opened(log, stack)))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: webhook.stop())
        webhook.run()


def main() -> None:
    """Runs the command; exits."""
    process_command.run(PROGRAM, serve)
