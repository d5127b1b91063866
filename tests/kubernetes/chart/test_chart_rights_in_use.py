"""The operator through incidents with no rights but the chart's: it uses each and misses none.

What it asks of the API server is read in the audit log of that.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import foreign_crds
import pytest
from chart_audit import arguments_here, asked, audited, refused
from chart_commands import CHART, NAMESPACE, RELEASE, Helm
from chart_rights import rights
from kubernetes import client

from testbed.definitions import PROVIDERS, install

sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from acting_driver import ActingDriver
from node_requests import NodeRequests
from operating_world import World, await_that
from operator_process import OperatorProcess

from rekindle_local.zookeeper import LocalZookeeper
from rekindle_operator.injection.keeping import SECRET
from rekindle_zookeeper import connect
from testbed.control_plane import ControlPlane
from testbed.nodes import Nodes

STREAMING = "streaming"
VALUES = Path(__file__).parent / "rights_in_use.yaml"
SHUT_DOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A line for every request."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def control_plane(
    programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, audit: Path
) -> Iterator[ControlPlane]:
    with audited(tmp_path_factory.mktemp("control-plane"), programs, audit) as plane:
        yield plane


@pytest.fixture
def installed(
    installer: Helm, renderer: Helm, control_plane: ControlPlane, tmp_path: Path
) -> Iterator[tuple[LocalZookeeper, list[dict[str, Any]]]]:
    """A store, and the chart's objects that name it, in a cluster with all foreign kinds."""
    with LocalZookeeper(directory=tmp_path / "zookeeper") as store:
        values = (
            *("-f", VALUES, "--set", "zookeeper.enabled=false"),
            *("--set", f"store.addresses={{{store.connect_string}}}"),
        )
        installer.do("install", RELEASE, CHART, *values)
        with control_plane.api_client() as api_client:
            install_foreign(api_client)
            named = client.V1ObjectMeta(name=STREAMING)
            core = client.CoreV1Api(api_client)
            core.create_namespace(client.V1Namespace(metadata=named))
            accounts = core.list_namespaced_service_account
            await_that(lambda: accounts(STREAMING).items)
            ask_about_nothing(client.AdmissionregistrationV1Api(api_client))
        yield store, renderer.objects(*values)


@pytest.fixture
def world(
    installed: tuple[LocalZookeeper, list[dict[str, Any]]],
    control_plane: ControlPlane,
    nodes: Nodes,
    tmp_path: Path,
) -> Iterator[World]:
    """Its operator has the chart's arguments and the account's token."""
    store, objects = installed
    with ExitStack() as stack:
        api_client = stack.enter_context(control_plane.api_client())
        core, connection = client.CoreV1Api(api_client), connect(store.connect_string)
        stack.callback(connection.close)

        def make_operator() -> OperatorProcess:
            token = control_plane.service_account_kubeconfig(NAMESPACE, "rekindle-operator")
            options = (*arguments_here(objects), f"--kubeconfig={token}")
            webhook = ("--webhook", "--webhook-port", "0")
            made = OperatorProcess(tmp_path / "operators", "operator-a", *options, *webhook)
            stack.callback(made.close)
            return made

        def make_driver(**fields: Any) -> ActingDriver:
            made = ActingDriver(connection, core, STREAMING, **fields)
            stack.callback(made.close)
            made.start()
            await_that(lambda: made.is_whole, "the executors do not run")
            await_that(lambda: made.is_placed, "there was no first plan")
            made.directives.clear()
            return made

        custom = client.CustomObjectsApi(api_client)
        yield World(STREAMING, nodes, custom, make_operator, make_driver)


def test_through_incidents_it_uses_each_right_that_it_is_given_and_misses_none(
    world: World,
    installed: tuple[LocalZookeeper, list[dict[str, Any]]],
    control_plane: ControlPlane,
    audit: Path,
) -> None:
    with control_plane.api_client() as api_client:
        requests = NodeRequests(api_client, STREAMING)
        requests.deploy_machines()
        world.operator = world.make_operator()
        world.operator.start()
        world.make_policy()
        spoil_certificate(client.CoreV1Api(api_client), audit)
        world.start(nodes=4, zones=("a", "b"), running=True)
        lose_and_replace(world, requests)
        lose_one_more(world)
        lose_the_driver(world)
        objects = installed[1]
        given = {(right.resource, right.verb) for right in rights(objects)}
    assert not refused(audit)
    assert used(audit) <= given
    assert not given - used(audit), "given and never used"


def used(audit: Path) -> set[tuple[str, str]]:
    return {(right.resource, right.verb) for right, _ in asked(audit)}


def ask_about_nothing(admission: client.AdmissionregistrationV1Api) -> None:
    """There is no way from this API server to the webhook: each pod would wait for its answer."""
    (found,) = admission.list_mutating_webhook_configuration().items
    nowhere = {"matchLabels": {"example.com/there": "is-no-such"}}
    webhooks = [{"name": item.name, "namespaceSelector": nowhere} for item in found.webhooks]
    admission.patch_mutating_webhook_configuration(found.metadata.name, {"webhooks": webhooks})


def spoil_certificate(core: client.CoreV1Api, audit: Path) -> None:
    """So that it is not only made but replaced."""
    await_that(lambda: ("secrets", "create") in used(audit))
    core.patch_namespaced_secret(SECRET, NAMESPACE, {"stringData": {"tls.crt": "spoilt"}})
    await_that(lambda: ("secrets", "update") in used(audit), "it is not replaced")


def lose_and_replace(world: World, requests: NodeRequests) -> None:
    """Three nodes, each asked of another provider; none arrives, others come by themselves."""
    lost = world.executors_nodes()[:3]
    pods = world.lose(*lost)
    one_each = {"Karpenter": 1, "ProvisioningRequest": 1, "ClusterAPI": 1}
    await_that(lambda: requests.counts() == one_each, "not all providers are asked")
    await_that(lambda: pods.isdisjoint(world.executors()))
    await_that(lambda: world.operator.lines("node-deleted"))
    world.nodes.add(3, zone="b")
    await_that(lambda: world.driver.is_whole)
    world.end()
    await_that(lambda: requests.act_as_cluster_api() and requests.is_clear(), "something is left")


def lose_one_more(world: World) -> None:
    """A second story that ends, so that there is one to put away at the next incident; an operator
    that begins in its middle reads it."""
    world.lose(world.executors_nodes()[0])
    world.nodes.add(1, zone="b")
    await_that(lambda: world.phase(2) != "")
    await_that(lambda: world.driver.is_whole)
    await_that(lambda: world.phase(2) == "AwaitingCheckpoint")
    world.operator.kill()
    world.operator.start()
    world.end(2)


def lose_the_driver(world: World) -> None:
    """Fenced once it is certain that its node is off."""
    node = world.drivers_node()
    world.lose(node)
    world.driver.die()
    await_that(lambda: world.phase(3) == "AwaitingDriver")
    taints = world.core.read_node(node).spec.taints or []
    kept = [world.core.api_client.sanitize_for_serialization(item) for item in taints]
    world.core.patch_node(node, {"spec": {"taints": [*kept, SHUT_DOWN]}})
    await_that(lambda: "fencedAt" in world.status(3).get("driver", {}))
    await_that(lambda: world.phase(1) == "", "the oldest story is not put away")


def install_foreign(api_client: client.ApiClient) -> None:
    """The kinds of all that the operator may ask for or look at."""
    others = foreign_crds.stored(*PROVIDERS)
    install(api_client, [*others, *foreign_crds.spark_applications()])
