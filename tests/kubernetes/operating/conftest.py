"""What tests of the running operator share: definitions, a store, operators, drivers."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, utils

from rekindle_local import processes
from rekindle_local.zookeeper import LocalZookeeper
from rekindle_zookeeper import Connection, connect
from testbed.control_plane import ControlPlane
from testbed.nodes import Nodes

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import foreign_crds
from acting_driver import ActingDriver
from api_proxy import ApiProxy
from node_requests import NodeRequests
from operating_world import World
from operator_process import OperatorProcess

from testbed.definitions import PROVIDERS, install

DEFINITIONS = Path(__file__).parents[3] / "crds"
GROUP, VERSION = "rekindle.dev", "v1alpha1"
WATCH_SILENCE_SECONDS = 4
WAIT_SECONDS_MAX = 180.0

Custom = client.CustomObjectsApi


@pytest.fixture(scope="session")
def definitions(control_plane: ControlPlane) -> None:
    """Our kinds, served."""
    with control_plane.api_client() as api_client:
        extensions = client.ApiextensionsV1Api(api_client)
        for path in sorted(DEFINITIONS.glob("*.yaml")):
            body = yaml.safe_load(path.read_text())
            name = body["metadata"]["name"]
            known = {
                item.metadata.name for item in extensions.list_custom_resource_definition().items
            }
            if name not in known:
                utils.create_from_dict(api_client, body)
        assert processes.await_condition(
            lambda: all(
                any(
                    condition.type == "Established" and condition.status == "True"
                    for condition in item.status.conditions or ()
                )
                for item in extensions.list_custom_resource_definition().items
                if item.spec.group == GROUP
            ),
            limit_seconds=WAIT_SECONDS_MAX,
        )


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    """One ZooKeeper server."""
    with LocalZookeeper(directory=tmp_path_factory.mktemp("store")) as zookeeper:
        yield zookeeper


@pytest.fixture
def connection(store: LocalZookeeper) -> Iterator[Connection]:
    """The test's own connection, to a store that serves; its drivers' heartbeats go with it."""
    store.proceed(*store.servers)
    found = connect(store.connect_string)
    yield found
    found.close()


@pytest.fixture
def custom(control_plane: ControlPlane, definitions: Any) -> Iterator[Custom]:
    """For our own objects; classes go after the test."""
    del definitions
    with control_plane.api_client() as api_client:
        api = Custom(api_client)
        yield api
        for item in api.list_cluster_custom_object(GROUP, VERSION, "recoveryclasses")["items"]:
            api.delete_cluster_custom_object(
                GROUP, VERSION, "recoveryclasses", item["metadata"]["name"]
            )


@pytest.fixture
def operators(
    control_plane: ControlPlane, store: LocalZookeeper, namespace: str, tmp_path: Path
) -> Iterator[Callable[..., OperatorProcess]]:
    """Makes operators whose home is the test's namespace, not started yet; ends them."""
    with ExitStack() as stack:

        def make(name: str = "operator-a", *options: str) -> OperatorProcess:
            made = OperatorProcess(
                tmp_path / "operators",
                name,
                *("--store", store.connect_string, "--namespace", namespace),
                *("--kubeconfig", str(control_plane.kubeconfig), *options),
            )
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def drivers(
    control_plane: ControlPlane, connection: Connection, namespace: str
) -> Iterator[Callable[..., ActingDriver]]:
    """Makes drivers in the test's namespace, placed by an operator; ends them."""
    with ExitStack() as stack:
        core = client.CoreV1Api(stack.enter_context(control_plane.api_client()))

        def make(**fields: Any) -> ActingDriver:
            made = ActingDriver(connection, core, namespace, **fields)
            stack.callback(made.close)
            made.start()
            there = processes.await_condition(
                lambda: made.is_whole,
                limit_seconds=WAIT_SECONDS_MAX,
            )
            assert there, "the executors do not run"
            assert processes.await_condition(
                lambda: made.is_placed, limit_seconds=WAIT_SECONDS_MAX
            ), "there was no first plan"
            made.directives.clear()
            return made

        yield make


@pytest.fixture
def world(
    nodes: Nodes,
    namespace: str,
    custom: Custom,
    operators: Callable[..., OperatorProcess],
    drivers: Callable[..., ActingDriver],
) -> World:
    """Not started yet."""
    return World(namespace, nodes, custom, operators, drivers)


@pytest.fixture
def requests(api_client: client.ApiClient, namespace: str) -> Iterator[NodeRequests]:
    """What was asked for in the test's namespace; the definitions of all providers are served."""
    install(api_client, foreign_crds.stored(*PROVIDERS))
    found = NodeRequests(api_client, namespace)
    yield found
    found.clear()


@pytest.fixture
def proxy(control_plane: ControlPlane, world: World, tmp_path: Path) -> Iterator[ApiProxy]:
    """What the world's operators take for the API server."""
    with ApiProxy(control_plane, tmp_path) as proxy:
        options = (
            *("--kubeconfig", str(proxy.kubeconfig)),
            *("--watch-silence-seconds", str(WATCH_SILENCE_SECONDS)),
        )
        make = world.make_operator
        world.make_operator = lambda name="operator-a": make(name, *options)
        yield proxy
        world.operator.close()
