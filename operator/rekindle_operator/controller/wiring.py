"""The operator put together: threads that watch, one that decides, a few that write.

    watchers, kopf, leases ──► inbox ──► coordinator's loop with overseer ──► errands

`running` starts all of it in the order in which it needs each other, and ends it in the other one.
The decisions are made elsewhere. `operator_main` calls it.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TextIO

from rekindle.model.errors import RekindleError
from rekindle.protocol import msgspec_warmup, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator import health_server
from rekindle_coordinator.application_retention import ApplicationRetention
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_loop import CoordinatorLoop
from rekindle_operator.applications import progress_reader
from rekindle_operator.cluster import api_client, object_kinds, watch_events
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.object_watcher import EventInbox, ObjectWatcher
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.controller import log_capture, operator_metrics
from rekindle_operator.controller.coordination_adapter import CoordinationAdapter
from rekindle_operator.controller.coordination_risks import DriverContacts, ZookeeperProbe
from rekindle_operator.controller.effects import Effects
from rekindle_operator.controller.kopf_watchers import KopfWatchers
from rekindle_operator.controller.leader_election import LeaderElection
from rekindle_operator.controller.namespace_credentials import (
    CredentialSettings,
    NamespaceCredentials,
)
from rekindle_operator.controller.operator_options import OperatorOptions, check
from rekindle_operator.controller.store_certificate import SECRET, StoreCertificate, hosts_of
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.detection.lease_poller import LeasePoller
from rekindle_operator.policies.concurrency_limiter import Limiter
from rekindle_operator.webhook.webhook_upkeep import WebhookUpkeep
from rekindle_zookeeper import Connection, Encryption, NamespaceQuota, connect, derive, read_secret

CONNECTIONS = 32
# Objects between collections, then collections of each generation between those of the next: what
# a large loss makes by the thousand is in no cycles. With far more, garbage takes 60 MiB meanwhile.
COLLECTED_AFTER = (2_000, 10, 10)
RETRY_SECONDS = 2.0


@dataclass(slots=True)
class RunningOperator:
    """All parts of a running operator."""

    options: OperatorOptions
    log: Log
    metrics: operator_metrics.OperatorMetrics
    watchers: tuple[ObjectWatcher[ClusterView], ...]
    handlers: KopfWatchers
    renewals: LeasePoller
    leadership: LeaderElection
    errands: WorkQueue
    reads: WorkQueue
    probe: ZookeeperProbe
    webhook: WebhookUpkeep
    known: ClusterView
    shell: CoordinatorLoop
    credentials: NamespaceCredentials | None = None
    certificate: StoreCertificate | None = None
    ending: bool = False
    began_at: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """See everything once, then decide until `stop` is called."""
        if self.certificate is not None:
            self.certificate.upkeep.start()
        self.metrics.awaited = "policies, classes and Recoveries"
        self._await_census()
        if self.ending:
            return
        for watcher in self.watchers:
            watcher.start()
        self.handlers.start()
        self.renewals.start()
        self.errands.start()
        self.reads.start()
        for watcher in self.watchers:
            self.metrics.awaited = watcher.kind.plural
            while not (watcher.listed.wait(RETRY_SECONDS) or self.ending):
                self.metrics.turned_at = time.monotonic()
        self.metrics.watched = operator_metrics.WatchedSource(
            self._unheard_seconds, lambda: self.handlers.alive
        )
        if not self.ending:
            self.shell.take_stock()
            _freeze_known_objects()
            self.webhook.start()
            self.metrics.awaited = ""
            self.probe.start()
            self.metrics.turned_at = time.monotonic()
            self.leadership.start()
            if self.credentials is not None:
                self.credentials.start()
            self.log.write("ready", identity=self.options.identity)
            self.shell.run()

    def stop(self) -> None:
        """End within seconds. A signal handler may call it, also while it runs: it takes no lock,
        which the thread that it interrupts might hold."""
        self.ending = True
        self.shell.stop()

    def close(self) -> None:
        """Give everything back."""
        self.webhook.close()
        if self.certificate is not None:
            self.certificate.upkeep.close()
        if self.credentials is not None:
            self.credentials.close()
        self.errands.stop()
        self.reads.stop()
        self.probe.stop()
        self.leadership.close()
        self.handlers.stop()
        self.renewals.stop()
        for watcher in self.watchers:
            watcher.stop()

    def _await_census(self) -> None:
        """Until the API server has told of all our objects once; it may be away as we start."""
        said = ""
        while not self.ending:
            try:
                self.handlers.take_census()
                return
            except RekindleError as trouble:
                if str(trouble) != said:
                    self.log.write("census-failed", text=str(trouble))
                said = str(trouble)
            self.metrics.turned_at = time.monotonic()
            time.sleep(RETRY_SECONDS)

    def _unheard_seconds(self) -> float:
        heard = [watcher.heard_at for watcher in self.watchers]
        newest = self.renewals.newest
        heard.append(self.began_at if newest is None else newest.answered_at)
        return time.monotonic() - min(heard)


def _freeze_known_objects() -> None:
    """Have the garbage collector leave out what is known of the cluster by now: to look through
    hundreds of thousands of objects takes a fifth of a second, in which nothing is decided."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


@contextmanager
def running(options: OperatorOptions, file: TextIO) -> Iterator[RunningOperator]:
    """An operator that is ready to run; its log goes to `file`. Raises InputError for options that
    cannot be used."""
    check(options)
    msgspec_warmup.work_out()
    log, metrics = Log(file), operator_metrics.OperatorMetrics()
    by_file = Encryption.of(options.store_ca_file)
    kubeconfig = None if options.kubeconfig is None else str(options.kubeconfig)
    with ExitStack() as stack:
        stack.enter_context(log_capture.heard(log))
        client = stack.enter_context(api_client.connect(kubeconfig, connections=CONNECTIONS))
        reader = Api(client)
        certificate = _store_certificate(options, reader, log)
        connection = connect(
            options.store,
            secret_file=options.store_secret_file,
            encryption=by_file if certificate is None else _encryption(certificate),
            isolated=options.namespace_credentials,
            session_seconds=options.store_session_seconds,
        )
        stack.callback(connection.close)
        operator = _assembled(_Base(options, log, metrics, reader, connection, certificate))
        stack.callback(operator.close)
        port = health_server.serve(metrics, options.port)
        served = _console(operator, stack)
        log.write("operator-started", identity=options.identity, port=port, **served)
        yield operator
        log.write("operator-ended", identity=options.identity)


def _console(operator: RunningOperator, stack: ExitStack) -> dict[str, int]:
    """Serve the console where one is wanted; its port for the log."""
    port = operator.options.console_port
    if port is None:
        return {}
    from rekindle_console import console_server
    from rekindle_console.coordinator_reader import CoordinatorReader
    from rekindle_operator.controller.operator_reader import OperatorReader

    reader = OperatorReader(CoordinatorReader(operator.shell, "operator"), operator.known)
    console = console_server.serve(reader, port, operator.options.console_host)
    stack.callback(console.close)
    return {"console_port": console.port}


@dataclass(frozen=True, slots=True)
class _Base:
    """What all parts are made from."""

    options: OperatorOptions
    log: Log
    metrics: operator_metrics.OperatorMetrics
    reader: Api
    connection: Connection
    certificate: StoreCertificate | None


def _assembled(base: _Base) -> RunningOperator:
    options, log, reader = base.options, base.log, base.reader
    silence = options.watch_silence_seconds
    inbox: EventInbox[ClusterView] = EventInbox()
    known, errands = ClusterView(), WorkQueue(log)
    judge, limiter = DetectionRunner(known), Limiter(known)
    renewals = LeasePoller(reader, log, lambda: judge.rules.lease_seconds)
    leadership = _leadership(base)
    writer = _writer(base, leadership)
    probe = _probe(base)
    stopped: dict[Place, str] = {}
    webhook = WebhookUpkeep(options, writer, known, judge, errands, log, writer.may_write)
    contacts = _contacts(probe, webhook, stopped)
    consequences = _consequences(base, judge, limiter, inbox, errands, writer, leadership, contacts)
    webhook.waiting = lambda: consequences.whole.buckets
    meter = operator_metrics.MetricsReader(
        metrics=base.metrics,
        known=known,
        judge=judge,
        errands=errands,
        renewals=renewals,
        acts=lambda: leadership.leads,
        unacknowledged_since=lambda: contacts.unanswered_since,
        outlook=consequences.outlook,
        log=log,
    )
    credentials = _credentials(base, writer, known, leadership)

    stirred = partial(_stirred, known, credentials, webhook, consequences, meter)
    overseer = _overseer(consequences, renewals, stirred)
    return RunningOperator(
        options=options,
        log=log,
        metrics=base.metrics,
        watchers=(
            ObjectWatcher(reader, object_kinds.NODES, watch_events.NODES, inbox, log, silence),
            ObjectWatcher(reader, object_kinds.PODS, watch_events.PODS, inbox, log, silence),
        ),
        handlers=KopfWatchers(reader, inbox, log, silence),
        renewals=renewals,
        leadership=leadership,
        errands=errands,
        reads=consequences.reads,
        probe=probe,
        webhook=webhook,
        credentials=credentials,
        certificate=base.certificate,
        known=known,
        shell=_loop(base, overseer, leadership, stopped),
    )


def _overseer(
    consequences: Effects, renewals: LeasePoller, stirred: Callable[[frozenset[Place]], None]
) -> CoordinationAdapter:
    return CoordinationAdapter(
        inbox=consequences.inbox,
        known=consequences.known,
        judge=consequences.judge,
        renewals=renewals,
        limiter=consequences.limiter,
        decided_on=consequences.decided,
        stirred=stirred,
        forgotten=consequences.forget,
        retired=consequences.storyteller.retire,
        log=consequences.log,
    )


def _loop(
    base: _Base,
    overseer: CoordinationAdapter,
    leadership: LeaderElection,
    stopped: dict[Place, str],
) -> CoordinatorLoop:
    return CoordinatorLoop(
        connection=base.connection,
        log=base.log,
        metrics=base.metrics,
        identity=base.options.identity,
        provider=overseer,
        oversight=overseer,
        stand=leadership.stand,
        stopped=stopped,
        retention=ApplicationRetention(base.connection, base.log, base.options.retention_days),
    )


def _contacts(
    probe: ZookeeperProbe, webhook: WebhookUpkeep, stopped: dict[Place, str]
) -> DriverContacts:
    """Which of the parts that coordination needs answer."""
    return DriverContacts(
        lambda: replace(
            probe.coordination,
            webhook_away=webhook.is_away,
            gates_missing=webhook.gates_are_missing,
        ),
        stopped,
    )


def _writer(base: _Base, leadership: LeaderElection) -> Api:
    """Writes to the API server while the Lease is ours; the store's certificate uses it too."""
    writer = Api(base.reader.client, may_write=lambda: leadership.holds)
    if base.certificate is not None:
        base.certificate.api, base.certificate.acts = writer, lambda: leadership.holds
    return writer


def _stirred(
    known: ClusterView,
    credentials: NamespaceCredentials | None,
    webhook: WebhookUpkeep,
    consequences: Effects,
    meter: operator_metrics.MetricsReader,
    places: frozenset[Place],
) -> None:
    """Have all who go by what is known take in what is otherwise of these applications."""
    if credentials is not None:
        credentials.note(places, policies=known.stirred)
    webhook.refresh(places, stirred=bool(places) or known.stirred)
    consequences.stirred(places)
    meter.read()


def _credentials(
    base: _Base, writer: Api, known: ClusterView, leadership: LeaderElection
) -> NamespaceCredentials | None:
    """Where they are wanted. Raises InputError for a secret that they cannot be made from."""
    options, namespaces = base.options, base.connection.namespaces
    if namespaces is None or options.store_secret_file is None:
        return None
    quota = NamespaceQuota(
        options.namespace_records_max, options.namespace_megabytes_max * 1_000_000
    )
    secret = read_secret(options.store_secret_file)
    settings = CredentialSettings(
        secret, options.credential_generation, options.lock_store_root, quota
    )
    derive(secret, "", "", settings.generation)
    encryption = base.connection.encryption
    return NamespaceCredentials(
        settings,
        base.connection,
        namespaces,
        writer,
        known,
        base.log,
        acts=lambda: leadership.holds,
        authorities=None if encryption is None else encryption.authorities,
    )


def _store_certificate(options: OperatorOptions, api: Api, log: Log) -> StoreCertificate | None:
    """Where the operator makes it; whoever acts is told later."""
    if not options.issue_store_certificate:
        return None
    return StoreCertificate(api, options.namespace, hosts_of(options.store), log)


def _encryption(certificate: StoreCertificate) -> Encryption:
    return Encryption(certificate.authorities, f"Secret {certificate.namespace}/{SECRET}")


def _probe(base: _Base) -> ZookeeperProbe:
    options = base.options
    return ZookeeperProbe(
        base.connection,
        options.store,
        options.identity,
        pause_seconds=options.store_session_seconds,
        encryption=base.connection.encryption,
        figures=base.metrics.sounded,
        report=lambda text: base.log.write("store-probe-failed", text=text),
    )


def _leadership(base: _Base) -> LeaderElection:
    identity, connection = base.options.identity, base.connection
    return LeaderElection(
        base.reader,
        base.options.namespace,
        base.options.lease_name,
        identity,
        base.log,
        elect=lambda changed: connection.elect(store_paths.ELECTION, identity, changed),
        decides=lambda: base.metrics.turning,
        lease_seconds=base.options.lease_seconds,
    )


def _consequences(
    base: _Base,
    judge: DetectionRunner,
    limiter: Limiter,
    inbox: EventInbox[ClusterView],
    errands: WorkQueue,
    writer: Api,
    leadership: LeaderElection,
    contacts: DriverContacts,
) -> Effects:
    return Effects(
        known=judge.known,
        judge=judge,
        limiter=limiter,
        inbox=inbox,
        errands=errands,
        reads=WorkQueue(base.log, progress_reader.READS_MAX),
        api=writer,
        connection=base.connection,
        log=base.log,
        home=base.options.namespace,
        identity=base.options.identity,
        look_seconds=base.options.request_look_seconds,
        metrics=base.metrics,
        acts=lambda: leadership.holds,
        contacts=contacts,
        fencing_approvals=base.options.fencing_approvals,
    )
