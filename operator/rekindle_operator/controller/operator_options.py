"""The options of the operator.

`operator_main` fills it in from the command line and the environment; everything else gets values
from it. What cannot be right is found by `check`, before anything is started.
"""

import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.model.errors import refuse
from rekindle_zookeeper import check_hosts

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
SHOWN_MAX = 100
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """`store` is HOST:PORT of each ZooKeeper server, with commas between; `namespace` is where the
    operator runs. A port of 0 is any that is free. Another operator takes over when the Lease has
    not changed for `lease_seconds`, and when the store has heard nothing for
    `store_session_seconds`. Requests for nodes that are under way are looked at every
    `request_look_seconds`. A watch that says nothing for `watch_silence_seconds` is begun anew.
    Without a `console_port` there is no console.

    With `namespace_credentials` each namespace gets a credential of the store, and a quota there;
    another `credential_generation` makes all anew. With `lock_store_root` the store is ours alone.
    TLS to the store is by the authorities of `store_ca_file`, or by those of a certificate for its
    servers that the operator makes itself (`issue_store_certificate`); with neither there is none.
    Records of an application go after `retention_days` without a driver, pod or SparkApplication; 0
    keeps them. Recoveries that have ended go in the same way.
    With `webhook` the webhook, a process of its own, is told which domains executors avoid;
    `issue_webhook_certificate` makes and renews its certificate. With `whole_applications` the
    operator reports it when the API server does not ask the webhook which pods wait for their turn.
    With `fencing_approvals` the API server lets only those approve of fencing who may.
    """

    store: str
    namespace: str
    store_secret_file: Path | None = None
    store_ca_file: Path | None = None
    issue_store_certificate: bool = False
    namespace_credentials: bool = False
    credential_generation: int = 1
    lock_store_root: bool = False
    namespace_records_max: int = 20_000
    namespace_megabytes_max: int = 256
    retention_days: int = 30
    fencing_approvals: bool = False
    identity: str = field(default_factory=socket.gethostname)
    lease_name: str = "rekindle-operator"
    lease_seconds: int = 15
    store_session_seconds: float = 10.0
    request_look_seconds: float = 10.0
    port: int = 8080
    webhook: bool = True
    issue_webhook_certificate: bool = True
    webhook_service: str = "rekindle-webhook"
    webhook_configuration: str = "rekindle"
    whole_applications: bool = False
    kubeconfig: Path | None = None
    watch_silence_seconds: float = 90.0
    log: Path | None = None
    console_port: int | None = None
    console_host: str = "127.0.0.1"


def check(options: OperatorOptions) -> None:
    """InputError for the first option that cannot be right, whatever is in the cluster."""
    check_hosts(options.store)
    if options.namespace_credentials and options.store_secret_file is None:
        remedy = "give the --store-secret-file from which they are made, or leave it out"
        refuse("--namespace-credentials", "needs the store's secret", remedy)
    if options.issue_store_certificate and options.store_ca_file is not None:
        remedy = "leave one of them out"
        refuse(
            "--store-ca-file",
            "is of somebody else's, and --issue-store-certificate makes its own",
            remedy,
        )
    names = (
        ("--namespace", options.namespace, LABEL, "small letters, digits and - inside"),
        ("--lease-name", options.lease_name, NAME, "small letters, digits, - and . inside"),
        ("--webhook-service", options.webhook_service, LABEL, "small letters, digits and - inside"),
        (
            "--webhook-configuration",
            options.webhook_configuration,
            NAME,
            "small letters, digits, - and . inside",
        ),
    )
    for option, name, form, remedy in names:
        if form.fullmatch(name) is None:
            refuse(f"{option} {name!r:.{SHOWN_MAX}}", "is no name of Kubernetes", f"use {remedy}")
    if not options.identity.strip():
        refuse("--identity", "is empty", "give each operator a name of its own")
    if options.console_port and options.console_port == options.port:
        remedy = "give it a port of its own"
        refuse(f"--console-port {options.console_port}", "is that of --port too", remedy)


def own_namespace() -> str:
    """The namespace of the pod that this runs in; `rekindle` outside of a cluster."""
    try:
        return SERVICE_ACCOUNT.read_text().strip()
    except OSError:
        return "rekindle"
