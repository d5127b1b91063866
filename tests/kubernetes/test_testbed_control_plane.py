"""The test control plane: it serves, each part can be harmed, and nothing of it is left."""

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes import client
from waiting import wait_until

import testbed
from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets
from testbed.control_plane import ControlPlane
from testbed.test_programs import API_SERVER, CONTROL_PLANE, CONTROLLER_MANAGER, ETCD, SCHEDULER

SOURCES = [Path(process_sets.__file__).parents[1], Path(testbed.__file__).parents[1]]
# Bodies are plain dicts here, and answers are read without asking whether a field is there: the
# types of the client allow neither.
Api = Any
WAIT_SECONDS_MAX = 180.0

OWNER = """
import json, sys
from pathlib import Path
from testbed.control_plane import ControlPlane

programs = {name: Path(path) for name, path in json.loads(sys.argv[2]).items()}
with ControlPlane(directory=Path(sys.argv[1]), programs=programs) as plane:
    print(*[pid for name in programs for pid in plane.processes(name)], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def whole(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with all components serving, before and after."""
    control_plane.restore()
    yield control_plane
    control_plane.restore()


def test_all_components_serve_and_the_kubeconfig_is_an_administrators(whole: ControlPlane) -> None:
    await_serving(whole, *CONTROL_PLANE)
    with whole.api_client() as api_client:
        assert "system:masters" in who_am_i(api_client).groups
        client.VersionApi(api_client).get_code()


def test_an_api_server_that_was_stopped_serves_again_when_it_proceeds(
    whole: ControlPlane, namespace: str
) -> None:
    with whole.api_client() as api_client:
        core: Api = client.CoreV1Api(api_client)
        whole.stop(API_SERVER)
        with pytest.raises(urllib3.exceptions.HTTPError):
            core.list_namespaced_pod(namespace, _request_timeout=0.5)
        assert not whole.is_serving(API_SERVER)
        whole.proceed(API_SERVER)
        assert core.list_namespaced_pod(namespace, _request_timeout=30).items == []
        await_serving(whole, API_SERVER)


@pytest.mark.parametrize("victims", [[API_SERVER], [ETCD], [*CONTROL_PLANE]])
def test_what_was_killed_comes_back_at_the_same_place_with_all_objects(
    victims: list[str], whole: ControlPlane, namespace: str
) -> None:
    with whole.api_client() as api_client:
        core: Api = client.CoreV1Api(api_client)
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "kept"}})
        whole.kill(*victims)
        assert not any(whole.processes(name) for name in victims)
        whole.restore()
        await_serving(whole, *CONTROL_PLANE)
        assert core.read_namespaced_config_map("kept", namespace).metadata.name == "kept"


def test_without_its_scheduler_a_pod_waits_until_it_is_back(
    whole: ControlPlane, namespace: str, api_client: client.ApiClient
) -> None:
    whole.kill(SCHEDULER)
    core: Api = client.CoreV1Api(api_client)
    spec = {"containers": [{"name": "main", "image": "nobody/pulls-this"}]}
    core.create_namespaced_pod(namespace, {"metadata": {"name": "one"}, "spec": spec})
    whole.start_component(SCHEDULER)

    def reasons() -> set[str]:
        conditions = core.read_namespaced_pod("one", namespace).status.conditions or ()
        return {condition.reason for condition in conditions}

    wait_until(lambda: reasons() == {"Unschedulable"})


def test_a_running_component_is_not_started_twice(whole: ControlPlane) -> None:
    with pytest.raises(RunError, match="kill it first"):
        whole.start_component(CONTROLLER_MANAGER)


def test_an_unknown_component_is_refused(whole: ControlPlane) -> None:
    with pytest.raises(InputError, match="choose etcd or kube-apiserver"):
        whole.stop("kubelet")


def test_a_foreign_user_may_do_what_rbac_lets_him_and_no_more(
    whole: ControlPlane, namespace: str, api_client: client.ApiClient
) -> None:
    with whole.api_client(whole.user_kubeconfig("mallory", groups=["strangers"])) as stranger:
        core: Api = client.CoreV1Api(stranger)
        assert status_of(lambda: core.list_namespaced_pod(namespace)) == 403
        assert status_of(core.list_node) == 403
        let_list_pods(api_client, namespace, {"kind": "Group", "name": "strangers"})
        wait_until(lambda: status_of(lambda: core.list_namespaced_pod(namespace)) == 200)
        assert status_of(lambda: core.list_namespaced_pod("default")) == 403
        assert status_of(core.list_node) == 403


def test_a_service_account_is_known_by_its_token(
    whole: ControlPlane, namespace: str, api_client: client.ApiClient
) -> None:
    administrator: Api = client.CoreV1Api(api_client)
    administrator.create_namespaced_service_account(namespace, {"metadata": {"name": "reader"}})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    let_list_pods(api_client, namespace, subject)
    kubeconfig = whole.service_account_kubeconfig(namespace, "reader")
    with whole.api_client(kubeconfig) as account:
        core: Api = client.CoreV1Api(account)
        assert who_am_i(account).username == f"system:serviceaccount:{namespace}:reader"
        wait_until(lambda: status_of(lambda: core.list_namespaced_pod(namespace)) == 200)
        assert status_of(lambda: core.list_namespaced_secret(namespace)) == 403


@pytest.mark.parametrize("way", ["url", "service"])
def test_a_webhook_on_this_machine_changes_pods(
    way: str, whole: ControlPlane, namespace: str, api_client: client.ApiClient
) -> None:
    core: Api = client.CoreV1Api(api_client)
    admission: Api = client.AdmissionregistrationV1Api(api_client)
    with serve_webhook(whole, "127.0.0.1", f"hook.{namespace}.svc") as port:
        where: dict[str, Any] = {"url": f"https://127.0.0.1:{port}/"}
        if way == "service":
            # A service that is only a name is resolved to it, so the API server needs no proxy.
            named = {"type": "ExternalName", "externalName": "localhost"}
            core.create_namespaced_service(namespace, {"metadata": {"name": "hook"}, "spec": named})
            where = {"service": {"namespace": namespace, "name": "hook", "port": port}}
        bundle = base64.b64encode(whole.authority.read_bytes()).decode()
        register_webhook(admission, namespace, {**where, "caBundle": bundle})
        try:
            wait_until(lambda: "seen" in labels_of_new_pod(core, namespace))
        finally:
            admission.delete_mutating_webhook_configuration(namespace)


def test_arguments_of_a_component_can_be_added(programs: dict[str, Path], tmp_path: Path) -> None:
    plane = ControlPlane(
        directory=tmp_path, programs=programs, arguments={API_SERVER: ["--no-such-option"]}
    )
    with pytest.raises(RunError, match=r"kube-apiserver-1\.log: .* it has ended; read this log"):
        plane.start()
    assert "no-such-option" in (plane.logs / "kube-apiserver-1.log").read_text()
    assert children_that_name(tmp_path) == []


@pytest.mark.parametrize("end", ["close", "SIGKILL"])
def test_nothing_is_left_when_it_is_closed_or_its_owner_is_killed(
    end: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    paths = json.dumps({name: str(programs[name]) for name in CONTROL_PLANE})
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), paths],
        env={**os.environ, "PYTHONPATH": ":".join(map(str, SOURCES))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    try:
        components = [int(word) for word in owner.stdout.readline().split()]
        assert len(components) == len(CONTROL_PLANE)
        started = find_children(owner.pid)
        assert set(components) < set(started)  # the watcher is one more
    finally:
        if end == "close":
            owner.stdin.close()
        else:
            owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_until(lambda: not any(map(is_alive, started)))
    if end == "close":
        assert [entry.name for entry in tmp_path.iterdir()] == ["logs"]


def await_serving(plane: ControlPlane, *names: str) -> None:
    """All of them serve: a question has two seconds, which one that is busy may not answer in."""
    wait_until(lambda: all(map(plane.is_serving, names)))


def who_am_i(api_client: client.ApiClient) -> Api:
    """The user for whom the API server takes this client."""
    authentication: Api = client.AuthenticationV1Api(api_client)
    return authentication.create_self_subject_review({}).status.user_info


def let_list_pods(api_client: client.ApiClient, namespace: str, subject: dict[str, str]) -> None:
    rights: Api = client.RbacAuthorizationV1Api(api_client)
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    rights.create_namespaced_role(namespace, role)
    if subject["kind"] == "Group":
        subject = {**subject, "apiGroup": group}
    reference = {"apiGroup": group, "kind": "Role", "name": "reader"}
    binding = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}
    rights.create_namespaced_role_binding(namespace, binding)


def status_of(request: Callable[[], object]) -> int:
    """The status code of an answer."""
    try:
        request()
    except client.ApiException as error:
        return int(error.status)
    return 200


class Marking(BaseHTTPRequestHandler):
    """A webhook that gives each pod the label `seen`."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        review = json.loads(content)
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]
        review["response"] = {
            "uid": review.pop("request")["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        answer = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextmanager
def serve_webhook(plane: ControlPlane, *hosts: str) -> Iterator[int]:
    """A webhook on loopback, with a certificate for these hosts; its port."""
    files = plane.serving_certificate(*hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Marking) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def register_webhook(admission: Api, namespace: str, where: dict[str, Any]) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    webhook = {
        "name": "marking.rekindle.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "clientConfig": where,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{**rule, "operations": ["CREATE"]}],
    }
    body = {"metadata": {"name": namespace}, "webhooks": [webhook]}
    admission.create_mutating_webhook_configuration(body)


def labels_of_new_pod(core: Api, namespace: str) -> dict[str, str]:
    spec = {"containers": [{"name": "main", "image": "nobody/pulls-this"}]}
    body = {"metadata": {"generateName": "pod-"}, "spec": spec}
    return dict(core.create_namespaced_pod(namespace, body).metadata.labels or {})


def is_alive(pid: int) -> bool:
    return process_sets.start_ticks(pid) is not None


def find_children(pid: int) -> list[int]:
    """Of an owner: watcher and components."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]


def children_that_name(directory: Path) -> list[int]:
    """Children of this process in whose command line the directory stands."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in find_children(os.getpid())}
    return [pid for pid, command in commands.items() if str(directory) in command]
