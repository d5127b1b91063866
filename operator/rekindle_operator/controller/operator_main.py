"""The command `rekindle-operator`: options from arguments or the environment, signals, exit codes.

Exit codes: 0 ended in order, 1 the run failed, 2 wrong usage. It does nothing itself.
"""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rekindle_operator import process_command
from rekindle_operator.controller import log_capture
from rekindle_operator.controller.operator_options import OperatorOptions, own_namespace
from rekindle_operator.controller.wiring import running
from rekindle_operator.process_command import (
    PREFIX,
    HealthPort,
    Kubeconfig,
    LogFile,
    WatchSilenceSeconds,
)

PROGRAM = "rekindle-operator"
# Whoever decides waits for the store several times for each plan, and each time has to get the
# interpreter back from threads that do errands: with Python's 5 ms that takes longer than the plan.
SWITCH_SECONDS = 0.000_5


Store = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}STORE",
        metavar="HOSTS",
        help="HOST:PORT of each ZooKeeper server, commas between.",
    ),
]
StoreSecretFile = Annotated[
    Path | None,
    typer.Option(
        envvar=f"{PREFIX}STORE_SECRET_FILE",
        help="File with the store's secret.",
        show_default="none: the store is open",
    ),
]
StoreCaFile = Annotated[
    Path | None,
    typer.Option(
        envvar=f"{PREFIX}STORE_CA_FILE",
        help="File with the authorities of the servers' certificates, in PEM: speak TLS.",
        show_default="none: plain text",
    ),
]
IssueStoreCertificate = Annotated[
    bool,
    typer.Option(
        "--issue-store-certificate/--no-issue-store-certificate",
        envvar=f"{PREFIX}ISSUE_STORE_CERTIFICATE",
        help="Whether the operator makes and renews the servers' certificate: speak TLS.",
    ),
]
NamespaceCredentials = Annotated[
    bool,
    typer.Option(
        "--namespace-credentials/--no-namespace-credentials",
        envvar=f"{PREFIX}NAMESPACE_CREDENTIALS",
        help="Whether each namespace gets a credential for its own records.",
    ),
]
CredentialGeneration = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}CREDENTIAL_GENERATION",
        min=1,
        max=1_000_000,
        help="Another one makes all credentials of namespaces anew.",
    ),
]
LockStoreRoot = Annotated[
    bool,
    typer.Option(
        "--lock-store-root/--no-lock-store-root",
        envvar=f"{PREFIX}LOCK_STORE_ROOT",
        help="Whether nobody else may make anything in the store.",
    ),
]
NamespaceRecordsMax = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}NAMESPACE_RECORDS_MAX",
        min=100,
        max=10_000_000,
        help="How many records a namespace may have in the store.",
    ),
]
NamespaceMegabytesMax = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}NAMESPACE_MEGABYTES_MAX",
        min=1,
        max=1_000_000,
        help="How large all of them may be.",
    ),
]
RetentionDays = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}RETENTION_DAYS",
        min=0,
        max=36_500,
        help="Remove records of an application after so many days without a driver; 0: never.",
    ),
]
FencingApprovals = Annotated[
    bool,
    typer.Option(
        "--fencing-approvals/--no-fencing-approvals",
        envvar=f"{PREFIX}FENCING_APPROVALS",
        help="Whether an approval of fencing counts: the API server has to see to who gives it.",
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}NAMESPACE",
        help="Where the operator runs: its Lease and its notes.",
        show_default="the service account's, else rekindle",
    ),
]
Identity = Annotated[
    str | None,
    typer.Option(
        envvar=f"{PREFIX}IDENTITY",
        help="Its name in the Lease.",
        show_default="the host's, in a pod the pod's",
    ),
]
LeaseName = Annotated[
    str, typer.Option(envvar=f"{PREFIX}LEASE_NAME", help="The Lease that decides who acts.")
]
LeaseSeconds = Annotated[
    int,
    typer.Option(
        envvar=f"{PREFIX}LEASE_SECONDS",
        min=3,
        max=600,
        help="A Lease that has not changed for so long may be taken by another operator.",
    ),
]
StoreSessionSeconds = Annotated[
    float,
    typer.Option(
        envvar=f"{PREFIX}STORE_SESSION_SECONDS",
        min=4,
        max=40,
        help="After so long without a word the store takes this operator for dead.",
    ),
]
RequestLookSeconds = Annotated[
    float,
    typer.Option(
        envvar=f"{PREFIX}REQUEST_LOOK_SECONDS",
        min=1,
        max=600,
        help="How often requests for nodes are looked at while any is under way.",
    ),
]
Webhook = Annotated[
    bool,
    typer.Option(
        "--webhook/--no-webhook",
        envvar=f"{PREFIX}WEBHOOK",
        help="Whether there is a webhook, which is told what executors avoid.",
    ),
]
IssueWebhookCertificate = Annotated[
    bool,
    typer.Option(
        "--issue-webhook-certificate/--no-issue-webhook-certificate",
        envvar=f"{PREFIX}ISSUE_WEBHOOK_CERTIFICATE",
        help="Whether the operator makes and renews the webhook's certificate.",
    ),
]
WebhookService = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}WEBHOOK_SERVICE", help="Service for which certificates are made."
    ),
]
WebhookConfiguration = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}WEBHOOK_CONFIGURATION",
        help="MutatingWebhookConfiguration whose caBundle is kept.",
    ),
]
WholeApplications = Annotated[
    bool,
    typer.Option(
        "--whole-applications",
        envvar=f"{PREFIX}WHOLE_APPLICATIONS",
        help="Report it where that configuration lets no pod wait for its turn.",
    ),
]
ConsolePort = Annotated[
    int | None,
    typer.Option(
        envvar=f"{PREFIX}CONSOLE_PORT",
        min=0,
        max=65_535,
        help="For the web console; it asks nobody who they are.",
        show_default="none",
    ),
]
ConsoleHost = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}CONSOLE_HOST",
        help="Where the console listens; empty: every address of the pod.",
    ),
]


def operate(
    store: Store,
    store_secret_file: StoreSecretFile = None,
    store_ca_file: StoreCaFile = None,
    issue_store_certificate: IssueStoreCertificate = False,
    namespace_credentials: NamespaceCredentials = False,
    credential_generation: CredentialGeneration = 1,
    lock_store_root: LockStoreRoot = False,
    namespace_records_max: NamespaceRecordsMax = 20_000,
    namespace_megabytes_max: NamespaceMegabytesMax = 256,
    retention_days: RetentionDays = 30,
    fencing_approvals: FencingApprovals = False,
    namespace: Namespace = "",
    identity: Identity = None,
    lease_name: LeaseName = "rekindle-operator",
    lease_seconds: LeaseSeconds = 15,
    store_session_seconds: StoreSessionSeconds = 10.0,
    request_look_seconds: RequestLookSeconds = 10.0,
    port: HealthPort = 8080,
    webhook: Webhook = True,
    issue_webhook_certificate: IssueWebhookCertificate = True,
    webhook_service: WebhookService = "rekindle-webhook",
    webhook_configuration: WebhookConfiguration = "rekindle",
    whole_applications: WholeApplications = False,
    kubeconfig: Kubeconfig = None,
    watch_silence_seconds: WatchSilenceSeconds = 90.0,
    log: LogFile = None,
    console_port: ConsolePort = None,
    console_host: ConsoleHost = "127.0.0.1",
) -> None:
    """Bring streaming applications of a cluster back after correlated failures.

    Runs until SIGTERM. Of several the one that holds the Lease acts, the others follow.

    Example: rekindle-operator --store zookeeper-0.zookeeper:2281 --store-secret-file secret
    --store-ca-file ca.crt --kubeconfig ~/.kube/config
    """
    # The parameters are the fields of Options, by name.
    given = {**locals(), "namespace": namespace or own_namespace()}
    if identity is None:
        del given["identity"]
    log_capture.hush()
    options = OperatorOptions(**given)
    sys.setswitchinterval(SWITCH_SECONDS)
    with ExitStack() as stack:
        operator = stack.enter_context(running(options, process_command.opened(log, stack)))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: operator.stop())
        operator.run()


def main() -> None:
    """Runs the command; exits."""
    process_command.run(PROGRAM, operate)
