"""The operator makes the certificate of the store's servers, before it reaches any of them.

Servers begin with a certificate that nobody trusts. The operator runs with the arguments that the
chart gives it; what the kubelet would mount into the servers' pods is written to their file.
"""

import base64
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chart_audit import arguments_here
from chart_commands import CHART, NAMESPACE, RELEASE, Helm
from kubernetes import client
from tls_servers import make_certificate, tls_files

sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from operator_process import OperatorProcess

from rekindle.protocol import store_paths
from rekindle_local import process_sets
from rekindle_local.local_zookeeper import LocalZookeeper
from rekindle_operator.api.recovery_class import AUTHORITY_KEY, CREDENTIAL_KEY, CREDENTIAL_SECRET
from rekindle_operator.controller.store_certificate import BUNDLE, SECRET
from rekindle_testing.operator_builders import policy_object
from rekindle_zookeeper import Encryption, connect
from testbed.control_plane import ControlPlane

WAIT_SECONDS_MAX = 180.0
TEAM = "team-tls"
STORE_SECRET = "the operators own secret, long"


def await_that(condition: Callable[[], bool]) -> None:
    assert process_sets.await_condition(condition, limit_seconds=WAIT_SECONDS_MAX)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def test_servers_operator_and_namespaces_come_to_trust_each_other_by_themselves(
    installer: Helm,
    renderer: Helm,
    cluster: client.ApiClient,
    control_plane: ControlPlane,
    held: ExitStack,
    tmp_path: Path,
) -> None:
    installer.do("install", RELEASE, CHART)
    held.callback(installer.run, "uninstall", RELEASE)
    core: Any = client.CoreV1Api(cluster)
    core.create_namespace({"metadata": {"name": TEAM}})
    held.callback(core.delete_namespace, TEAM)
    custom = client.CustomObjectsApi(cluster)
    policy = policy_object("all", namespace=TEAM)
    policy["metadata"] = {"name": "all", "namespace": TEAM}
    custom.create_namespaced_custom_object(
        "rekindle.dev", "v1alpha1", TEAM, "recoverypolicies", policy
    )
    files = tls_files(tmp_path / "tls", make_certificate("127.0.1.1"))
    servers = LocalZookeeper(directory=tmp_path / "zookeeper", certificate=files.server)
    store = held.enter_context(servers)
    operator = OperatorProcess(
        tmp_path / "operator", "operator-a", *options(renderer, control_plane, store, tmp_path)
    )
    held.callback(operator.close)
    operator.start()

    def secret(name: str, namespace: str) -> dict[str, bytes]:
        found = core.list_namespaced_secret(namespace, field_selector=f"metadata.name={name}")
        return {
            key: base64.b64decode(value)
            for item in found.items
            for key, value in (item.data or {}).items()
        }

    await_that(lambda: bool(secret(SECRET, NAMESPACE)))
    await_that(lambda: "is of no authority in Secret" in operator.log.read_text())
    made = secret(SECRET, NAMESPACE)
    files.server.write_bytes(made["tls.key"] + made["tls.crt"])
    operator.lead()
    await_that(lambda: bool(secret(CREDENTIAL_SECRET, TEAM)))
    given = secret(CREDENTIAL_SECRET, TEAM)
    assert given[AUTHORITY_KEY] == made[BUNDLE] == made["ca.crt"]

    mine = Encryption(lambda: given[AUTHORITY_KEY].decode(), "rekindle-credential")
    credential = given[CREDENTIAL_KEY].decode()
    connection = connect(store.connect_string, secret=credential, encryption=mine)
    held.callback(connection.close)
    await_that(lambda: connection.reachable)
    assert connection.children(store_paths.ELECTION)
    assert not [line for line in operator.log.read_text().splitlines() if "tls.key" in line]


def options(
    renderer: Helm, control_plane: ControlPlane, store: LocalZookeeper, folder: Path
) -> list[str]:
    """The chart's arguments, with this machine's store."""
    secret = folder / "secret"
    secret.write_text(STORE_SECRET)
    arguments = arguments_here(renderer.objects())
    assert "--issue-store-certificate" in arguments
    here = {"--store": store.connect_string, "--store-secret-file": str(secret)}
    given = [word for word in arguments if word.partition("=")[0] not in here]
    token = control_plane.service_account_kubeconfig(NAMESPACE, "rekindle-operator")
    return [*given, *(f"{name}={value}" for name, value in here.items()), f"--kubeconfig={token}"]
