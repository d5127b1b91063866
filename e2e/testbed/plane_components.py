"""The command line of each component of the control plane, and whether it serves.

Where it departs from a cluster's usual settings it says so: tests want a fast start and no waiting
for limits that a client sets itself. It starts nothing; control_plane.py does, its caller.
"""

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.test_authority import TestCertificate
from testbed.test_programs import API_SERVER, CONTROL_PLANE, CONTROLLER_MANAGER, ETCD, SCHEDULER

HOST = "127.0.0.1"
SERVICE_ADDRESSES = "10.96.0.0/16"
ANSWER_SECONDS_MAX = 2.0
# The controller manager's own limit is 20 requests a second: to see a thousand nodes Ready, and to
# mark them lost, would take it minutes.
_CLIENT_LIMITS = ("--kube-api-qps=300", "--kube-api-burst=600")
_STORE_BYTES_MAX = 8 << 30


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """What the command lines are made of.

    `ports` are by component, with `peers` for etcd's second; `kubeconfigs` are those of controller
    manager and scheduler; `tokens` the private and the public key of service accounts; `arguments`
    are added at the end, by component, so they have the last word. The API server listens at
    `address`; with a certificate to show `kubelets`, it serves a cluster of real nodes.
    """

    store: Path
    programs: Mapping[str, Path]
    ports: Mapping[str, int]
    authority: Path
    server: TestCertificate
    tokens: tuple[Path, Path]
    kubeconfigs: Mapping[str, Path]
    node_grace_seconds: float
    node_monitor_seconds: float
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    address: str = HOST
    kubelets: TestCertificate | None = None


def build_command(name: str, plan: ComponentPlan) -> list[str]:
    """The command line of a component; its log goes to standard error."""
    builders = {
        ETCD: _etcd,
        API_SERVER: _api_server,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
    }
    assert tuple(builders) == CONTROL_PLANE
    return [str(plan.programs[name]), *builders[name](plan), *plan.arguments.get(name, ())]


def is_serving(name: str, port: int, address: str = HOST) -> bool:
    """Whether the component answers that it is well; a question takes 2 s at most.

    `address` is the API server's; the others are at 127.0.0.1.
    """
    host = address if name == API_SERVER else HOST
    scheme = "http" if name == ETCD else "https"
    page = {ETCD: "health", API_SERVER: "readyz"}.get(name, "healthz")
    # The other two sign their certificates themselves, and this asks nothing but how they are.
    context = ssl._create_unverified_context()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(f"{scheme}://{host}:{port}/{page}", timeout=ANSWER_SECONDS_MAX) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _etcd(plan: ComponentPlan) -> list[str]:
    clients = f"http://{HOST}:{plan.ports[ETCD]}"
    peers = f"http://{HOST}:{plan.ports['peers']}"
    return [
        "--name=testbed",
        f"--data-dir={plan.store}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=testbed={peers}",
        # What the kernel has been given outlives a killed etcd; only a machine's crash needs more.
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={_STORE_BYTES_MAX}",
    ]


def _api_server(plan: ComponentPlan) -> list[str]:
    private, public = plan.tokens
    return [
        f"--etcd-servers=http://{HOST}:{plan.ports[ETCD]}",
        f"--bind-address={plan.address}",
        f"--secure-port={plan.ports[API_SERVER]}",
        f"--advertise-address={plan.address}",
        *(_without_nodes() if plan.kubelets is None else _with_nodes(plan.kubelets)),
        f"--tls-cert-file={plan.server.certificate}",
        f"--tls-private-key-file={plan.server.key}",
        f"--client-ca-file={plan.authority}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={private}",
        f"--service-account-key-file={public}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
        "--allow-privileged=true",
        # One at a time would take longer for thousands of nodes than a request may.
        "--delete-collection-workers=16",
        "--profiling=false",
    ]


def _without_nodes() -> list[str]:
    # A loopback address may not be an endpoint, so the service `kubernetes` has none.
    return ["--endpoint-reconciler-type=none"]


def _with_nodes(shown: TestCertificate) -> list[str]:
    return [
        f"--kubelet-client-certificate={shown.certificate}",
        f"--kubelet-client-key={shown.key}",
        "--kubelet-preferred-address-types=InternalIP",
        # Where the API server runs no service has an address: it calls webhooks at their pods.
        "--enable-aggregator-routing=true",
    ]


def _controller_manager(plan: ComponentPlan) -> list[str]:
    return [
        f"--kubeconfig={plan.kubeconfigs[CONTROLLER_MANAGER]}",
        f"--bind-address={HOST}",
        f"--secure-port={plan.ports[CONTROLLER_MANAGER]}",
        "--leader-elect=false",
        f"--service-account-private-key-file={plan.tokens[0]}",
        f"--root-ca-file={plan.authority}",
        "--use-service-account-credentials=true",
        f"--node-monitor-period={plan.node_monitor_seconds:g}s",
        f"--node-monitor-grace-period={plan.node_grace_seconds:g}s",
        "--profiling=false",
        *_CLIENT_LIMITS,
    ]


def _scheduler(plan: ComponentPlan) -> list[str]:
    return [
        f"--kubeconfig={plan.kubeconfigs[SCHEDULER]}",
        f"--bind-address={HOST}",
        f"--secure-port={plan.ports[SCHEDULER]}",
        "--leader-elect=false",
        "--profiling=false",
        *_CLIENT_LIMITS,
    ]
