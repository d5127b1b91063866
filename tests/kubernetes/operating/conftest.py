"""What tests of the running operator share: definitions, a store, nodes, an operator, drivers.

The operator and the nodes go from test to test of a module. Who harms the operator makes others.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.webhook import webhook_configuration
from rekindle_zookeeper import Connection
from testbed.control_plane import ControlPlane
from testbed.simulated_kubelets import SimulatedKubelets

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import foreign_crds
from acting_driver import pod_body
from grounds import Grounds
from node_requests import NodeRequests
from operating_world import World, await_that, connected, new_world
from operator_process import OperatorProcess, WebhookProcess

from testbed.foreign_crds import PROVIDERS, install

DEFINITIONS = Path(__file__).parents[3] / "crds"
HOST = "127.0.0.1"
HOME = "rekindle-home"
# As kubelets renew in these tests.
LEASE_SECONDS = 1.0
# What is asked of a provider is looked at again and again: a test waits for it twice.
REQUEST_LOOK_SECONDS = 1
# Who is killed and started again may act once the store has forgotten the one that was killed.
STORE_SESSION_SECONDS = 5
Make = Callable[..., OperatorProcess]


@pytest.fixture(scope="module")
def administrator(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """A client, in a cluster that has our definitions and is whole."""
    control_plane.restore()
    with control_plane.api_client() as api_client:
        bodies = [yaml.safe_load(path.read_text()) for path in sorted(DEFINITIONS.glob("*.yaml"))]
        install(api_client, bodies)
        yield api_client


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    """One ZooKeeper server."""
    with LocalZookeeper(directory=tmp_path_factory.mktemp("store")) as zookeeper:
        yield zookeeper


@pytest.fixture
def connection(store: LocalZookeeper) -> Iterator[Connection]:
    """The test's own connection; its drivers' heartbeats go with it."""
    with connected(store) as found:
        yield found


@pytest.fixture(scope="module")
def grounds(control_plane: ControlPlane, administrator: client.ApiClient) -> Iterator[Grounds]:
    """No nodes at first; there are no others in the cluster."""
    with SimulatedKubelets(control_plane, lease_seconds=LEASE_SECONDS) as nodes:
        try:
            yield Grounds(nodes, client.CoreV1Api(administrator))
        finally:
            control_plane.restore()


@pytest.fixture(scope="module")
def home(administrator: client.ApiClient) -> str:
    """The namespace of all operators: their Lease, and their notes."""
    core: Any = client.CoreV1Api(administrator)
    if HOME not in {item.metadata.name for item in core.list_namespace().items}:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=HOME)))
    return HOME


@pytest.fixture(scope="module")
def operators(
    control_plane: ControlPlane,
    store: LocalZookeeper,
    home: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Make]:
    """Makes operators, not started yet; ends them after the module. `kubeconfig` is how they reach
    the API server."""
    with ExitStack() as stack:

        def make(
            name: str = "operator-a", *options: str, kubeconfig: Path | None = None
        ) -> OperatorProcess:
            made = OperatorProcess(
                tmp_path_factory.mktemp("operator"),
                name,
                *("--store", store.connect_string, "--namespace", home),
                *("--request-look-seconds", str(REQUEST_LOOK_SECONDS)),
                *("--store-session-seconds", str(STORE_SESSION_SECONDS)),
                *("--kubeconfig", str(kubeconfig or control_plane.kubeconfig), *options),
            )
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture(scope="module")
def operator(operators: Make) -> OperatorProcess:
    """The one that acts for the tests of a module, and tells the webhook what executors avoid."""
    return operators("operator-a", "--webhook", "--no-issue-webhook-certificate")


@pytest.fixture(scope="module")
def webhook(
    control_plane: ControlPlane,
    administrator: client.ApiClient,
    store: LocalZookeeper,
    home: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WebhookProcess]:
    """It runs, and nobody asks it before a test has the API server do so."""
    assert administrator
    made = control_plane.serving_certificate(HOST)
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "tls.crt").write_bytes(Path(made.certificate).read_bytes())
    (folder / "tls.key").write_bytes(Path(made.key).read_bytes())
    found = WebhookProcess(
        tmp_path_factory.mktemp("webhook"),
        "webhook-a",
        *("--store", store.connect_string, "--namespace", home),
        *("--kubeconfig", str(control_plane.kubeconfig), "--certificates-folder", str(folder)),
        *("--sidecar-image", "rekindle/sidecar:1"),
    )
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def world(
    namespace: str, grounds: Grounds, connection: Connection, operator: OperatorProcess
) -> Iterator[World]:
    """Not started yet."""
    with new_world(namespace, grounds, connection, operator) as made:
        yield made


@pytest.fixture
def asking(
    world: World,
    webhook: WebhookProcess,
    control_plane: ControlPlane,
    api_client: client.ApiClient,
) -> Iterator[None]:
    """The API server asks the webhook about the pods of the world's namespace."""
    world.operator.lead()
    if webhook.ended:
        webhook.start()
    where = {"url": f"https://{HOST}:{webhook.webhook_port}{webhook_configuration.PATH}"}
    manifest = webhook_configuration.manifest(
        world.namespace, where, bundle=Path(control_plane.authority).read_bytes(), turns=True
    )
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [world.namespace]}
    for asked in manifest["webhooks"]:
        asked["namespaceSelector"] = {"matchExpressions": [only]}
    admission = client.AdmissionregistrationV1Api(api_client)
    admission.create_mutating_webhook_configuration(manifest)
    try:
        await_that(lambda: is_asked(world), "the API server does not ask")
        yield
    finally:
        admission.delete_mutating_webhook_configuration(world.namespace)


def is_asked(world: World) -> bool:
    """Whether the API server asks by now, which it begins to a while after it has been told: the
    answer is a warning, for no policy selects this driver."""
    body = pod_body("probe", "driver", "probe", **{"rekindle.dev/inject": "true"})
    create: Any = world.core.create_namespaced_pod_with_http_info
    _, _, headers = create(world.namespace, body, dry_run="All")
    return "no RecoveryPolicy selects probe" in headers.get("Warning", "")


@pytest.fixture
def requests(api_client: client.ApiClient, namespace: str, home: str) -> Iterator[NodeRequests]:
    """What was asked for in the test's namespace; the definitions of all providers are served."""
    install(api_client, foreign_crds.stored(*PROVIDERS))
    found = NodeRequests(api_client, namespace, home)
    yield found
    found.clear()
