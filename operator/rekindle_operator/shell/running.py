"""The operator put together: threads that watch, one that decides, a few that write.

    watchers, kopf, leases ──► inbox ──► coordinator's loop with overseer ──► errands

`running` starts all of it in the order in which it needs each other, and ends it in the other one.
The decisions are made elsewhere. `main` calls it.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TextIO

from rekindle.errors import RekindleError
from rekindle.protocol import forms, tree
from rekindle.protocol.tree import Place
from rekindle_coordinator import health
from rekindle_coordinator.log import Log
from rekindle_coordinator.shell import Shell
from rekindle_operator.injection.serving import check_port
from rekindle_operator.shell import api, kinds, libraries, tellings
from rekindle_operator.shell.admitting import Admission
from rekindle_operator.shell.api import Api
from rekindle_operator.shell.consequences import Consequences
from rekindle_operator.shell.contacts import Contacts
from rekindle_operator.shell.errands import Errands
from rekindle_operator.shell.handlers import Handlers
from rekindle_operator.shell.inbox import Inbox
from rekindle_operator.shell.judging import Judge
from rekindle_operator.shell.leadership import Leadership
from rekindle_operator.shell.limiting import Limiter
from rekindle_operator.shell.metrics import Meter, OperatorMetrics, Watched
from rekindle_operator.shell.namespace_credentials import NamespaceCredentials
from rekindle_operator.shell.namespace_credentials import Settings as CredentialSettings
from rekindle_operator.shell.options import Options, check
from rekindle_operator.shell.overseer import Overseer
from rekindle_operator.shell.renewals import Renewals
from rekindle_operator.shell.sounding import Soundings
from rekindle_operator.shell.surroundings import Surroundings
from rekindle_operator.shell.watching import Watcher
from rekindle_zookeeper import Connection, Quota, connect, derive, read_secret

__all__ = ["Operator", "running"]

CONNECTIONS = 32
RETRY_SECONDS = 2.0


@dataclass(slots=True)
class Operator:
    """All parts of a running operator."""

    options: Options
    log: Log
    metrics: OperatorMetrics
    watchers: tuple[Watcher, ...]
    handlers: Handlers
    renewals: Renewals
    leadership: Leadership
    errands: Errands
    soundings: Soundings
    admission: Admission
    known: Surroundings
    shell: Shell
    credentials: NamespaceCredentials | None = None
    ending: bool = False
    began_at: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """See everything once, then decide until `stop` is called."""
        self.metrics.awaited = "policies, classes and Recoveries"
        self._await_census()
        if self.ending:
            return
        for watcher in self.watchers:
            watcher.start()
        self.handlers.start()
        self.renewals.start()
        self.errands.start()
        for watcher in self.watchers:
            self.metrics.awaited = watcher.kind.plural
            while not (watcher.listed.wait(RETRY_SECONDS) or self.ending):
                self.metrics.turned_at = time.monotonic()
        self.metrics.watched = Watched(self._unheard_seconds, lambda: self.handlers.alive)
        if not self.ending:
            self.shell.take_stock()
            self.metrics.awaited = "the webhook"
            if self.options.webhook:
                self.admission.start()
            self.metrics.awaited = ""
            self.soundings.start()
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
        self.admission.close()
        if self.credentials is not None:
            self.credentials.close()
        self.errands.stop()
        self.soundings.stop()
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


@contextmanager
def running(options: Options, file: TextIO) -> Iterator[Operator]:
    """An operator that is ready to run; its log goes to `file`. Raises InputError for options that
    cannot be used."""
    check(options)
    forms.work_out()
    log, metrics = Log(file), OperatorMetrics()
    kubeconfig = None if options.kubeconfig is None else str(options.kubeconfig)
    with ExitStack() as stack:
        stack.enter_context(libraries.heard(log))
        client = stack.enter_context(api.connect(kubeconfig, connections=CONNECTIONS))
        connection = connect(
            options.store,
            secret_file=options.store_secret_file,
            isolated=options.namespace_credentials,
            session_seconds=options.store_session_seconds,
        )
        stack.callback(connection.close)
        operator = _assembled(_Base(options, log, metrics, Api(client), connection))
        stack.callback(operator.close)
        port = health.serve(metrics, options.port)
        if options.webhook:
            check_port(options.webhook_port)
        served = _console(operator, stack)
        log.write("operator-started", identity=options.identity, port=port, **served)
        yield operator
        log.write("operator-ended", identity=options.identity)


def _console(operator: Operator, stack: ExitStack) -> dict[str, int]:
    """Serve the console where one is wanted; its port for the log."""
    port = operator.options.console_port
    if port is None:
        return {}
    from rekindle_console import console_server
    from rekindle_console.coordinator_reader import CoordinatorReader
    from rekindle_operator.shell.operator_reader import OperatorReader

    reader = OperatorReader(CoordinatorReader(operator.shell, "operator"), operator.known)
    console = console_server.serve(reader, port, operator.options.console_host)
    stack.callback(console.close)
    return {"console_port": console.port}


@dataclass(frozen=True, slots=True)
class _Base:
    """What all parts are made from."""

    options: Options
    log: Log
    metrics: OperatorMetrics
    reader: Api
    connection: Connection


def _assembled(base: _Base) -> Operator:
    options, log, reader = base.options, base.log, base.reader
    silence = options.watch_silence_seconds
    inbox, known, errands = Inbox(), Surroundings(), Errands(log)
    judge, limiter = Judge(known), Limiter(known)
    renewals = Renewals(reader, log, lambda: judge.rules.lease_seconds)
    leadership = _leadership(base)
    writer = Api(reader.client, may_write=lambda: leadership.holds)
    soundings = _soundings(base)
    stopped: dict[Place, str] = {}
    contacts = Contacts(lambda: soundings.coordination, stopped)
    consequences = _consequences(base, judge, limiter, inbox, errands, writer, leadership, contacts)
    admission = Admission(
        options, writer, known, judge, base.metrics, log, lambda: leadership.holds
    )
    meter = Meter(
        metrics=base.metrics,
        known=known,
        judge=judge,
        errands=errands,
        renewals=renewals,
        acts=lambda: leadership.leads,
        certificate_ends=lambda: admission.ends,
        unacknowledged_since=lambda: contacts.unanswered_since,
        outlook=consequences.outlook,
        log=log,
    )

    credentials = _credentials(base, writer, known, leadership)

    stirred = partial(_stirred, known, credentials, admission, consequences, meter)
    overseer = Overseer(inbox, known, judge, renewals, limiter, consequences.decided, stirred, log)
    return Operator(
        options=options,
        log=log,
        metrics=base.metrics,
        watchers=(
            Watcher(reader, kinds.NODES, tellings.NODES, inbox, log, silence),
            Watcher(reader, kinds.PODS, tellings.PODS, inbox, log, silence),
        ),
        handlers=Handlers(reader, inbox, log, silence),
        renewals=renewals,
        leadership=leadership,
        errands=errands,
        soundings=soundings,
        admission=admission,
        credentials=credentials,
        known=known,
        shell=Shell(
            connection=base.connection,
            log=log,
            metrics=base.metrics,
            identity=options.identity,
            provider=overseer,
            oversight=overseer,
            stand=leadership.stand,
            stopped=stopped,
        ),
    )


def _stirred(
    known: Surroundings,
    credentials: NamespaceCredentials | None,
    admission: Admission,
    consequences: Consequences,
    meter: Meter,
    places: frozenset[Place],
) -> None:
    """Have all who go by what is known take in what is otherwise of these applications."""
    if credentials is not None:
        credentials.note(places, policies=known.stirred)
    admission.refresh(places, stirred=bool(places) or known.stirred)
    consequences.stirred(places)
    meter.read()


def _credentials(
    base: _Base, writer: Api, known: Surroundings, leadership: Leadership
) -> NamespaceCredentials | None:
    """Where they are wanted. Raises InputError for a secret that they cannot be made from."""
    options, namespaces = base.options, base.connection.namespaces
    if namespaces is None or options.store_secret_file is None:
        return None
    quota = Quota(options.namespace_records_max, options.namespace_megabytes_max * 1_000_000)
    secret = read_secret(options.store_secret_file)
    settings = CredentialSettings(
        secret, options.credential_generation, options.lock_store_root, quota
    )
    derive(secret, "", "", settings.generation)
    return NamespaceCredentials(
        settings, base.connection, namespaces, writer, known, base.log, lambda: leadership.holds
    )


def _soundings(base: _Base) -> Soundings:
    options = base.options
    return Soundings(
        base.connection,
        options.store,
        options.identity,
        pause_seconds=options.store_session_seconds,
        figures=base.metrics.sounded,
    )


def _leadership(base: _Base) -> Leadership:
    identity, connection = base.options.identity, base.connection
    return Leadership(
        base.reader,
        base.options.namespace,
        base.options.lease_name,
        identity,
        base.log,
        elect=lambda changed: connection.elect(tree.ELECTION, identity, changed),
        decides=lambda: base.metrics.turning,
        lease_seconds=base.options.lease_seconds,
    )


def _consequences(
    base: _Base,
    judge: Judge,
    limiter: Limiter,
    inbox: Inbox,
    errands: Errands,
    writer: Api,
    leadership: Leadership,
    contacts: Contacts,
) -> Consequences:
    return Consequences(
        known=judge.known,
        judge=judge,
        limiter=limiter,
        inbox=inbox,
        errands=errands,
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
