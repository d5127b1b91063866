"""What goes wrong: no rights, no definitions, no API server; always one line, never a traceback."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from plugin_runs import Plugin, define, make_policy, make_recovery
from resource_requests import DEFINITIONS, Api, place

from rekindle_local import process_sets
from rekindle_operator.kubectl import api_connection
from testbed.control_plane import ControlPlane

ROOT = Path(__file__).parents[3]
WAIT_SECONDS_MAX = 180.0
# More than a command gives an API server to answer, on a machine with much else to do.
SECONDS_MAX = 60.0
EVERY = [
    ("status",),
    ("explain", "departures"),
    ("plan", "departures"),
    ("priority", "rare=9", "--policy", "departures", "--for", "1h"),
    ("pause", "--policy", "departures"),
    ("resume", "--policy", "departures"),
    ("approve", "departures-7"),
    ("preflight",),
]


def rule(*verbs: str, resources: list[str]) -> client.V1PolicyRule:
    return client.V1PolicyRule(
        api_groups=["rekindle.dev", "", "sparkoperator.k8s.io", "spark.apache.org"],
        resources=resources,
        verbs=[*verbs],
    )


@pytest.fixture
def tenant(control_plane: ControlPlane, api_client: client.ApiClient, plugin: Plugin) -> Plugin:
    """A service account of the namespace that may do nothing yet."""
    core = client.CoreV1Api(api_client)
    account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="tenant"))
    core.create_namespaced_service_account(plugin.namespace, account)
    kubeconfig = control_plane.service_account_kubeconfig(plugin.namespace, "tenant")
    return Plugin(kubeconfig, plugin.namespace, plugin.capsys)


def allow(api_client: client.ApiClient, namespace: str, *rules: client.V1PolicyRule) -> None:
    """What a role of the namespace lets the tenant do."""
    rbac = client.RbacAuthorizationV1Api(api_client)
    role = client.V1Role(metadata=client.V1ObjectMeta(name="tenant"), rules=[*rules])
    rbac.create_namespaced_role(namespace, role)
    subject = client.RbacV1Subject(kind="ServiceAccount", name="tenant", namespace=namespace)
    reference = client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="tenant")
    binding = client.V1RoleBinding(
        metadata=client.V1ObjectMeta(name="tenant"), role_ref=reference, subjects=[subject]
    )
    rbac.create_namespaced_role_binding(namespace, binding)


def test_who_may_not_is_told_which_right_is_missing(tenant: Plugin) -> None:
    for words in EVERY:
        tenant(*words).refused("you may not", "kubectl auth can-i")


def test_who_may_look_may_not_change(
    api: Api, api_client: client.ApiClient, tenant: Plugin
) -> None:
    make_policy(api, tenant.namespace)
    made = make_recovery(api, tenant.namespace)
    ours = ["recoverypolicies", "recoveries"]
    allow(api_client, tenant.namespace, rule("get", "list", resources=ours))

    def sees() -> bool:
        return tenant("status").code == 0

    assert process_sets.await_condition(sees, limit_seconds=WAIT_SECONDS_MAX)
    tenant("status").done()
    tenant("status", "-A").refused("you may not list recoverypolicies")
    tenant("explain", "departures").done()
    tenant("plan", "departures").done()
    tenant("priority").done()
    for words in (("priority", "rare=9", "--for", "1h"), ("pause",)):
        tenant(*words).refused("you may not patch recoverypolicies", "rekindle-edit")
    tenant("approve", made["metadata"]["name"]).refused("you may not patch recoveries")


def test_a_tenant_approves_without_seeing_the_class(
    api: Api, api_client: client.ApiClient, tenant: Plugin
) -> None:
    made = make_recovery(api, tenant.namespace)
    allow(api_client, tenant.namespace, rule("get", "patch", resources=["recoveries"]))
    name = made["metadata"]["name"]

    def approves() -> bool:
        return tenant("approve", name).code == 0

    assert process_sets.await_condition(approves, limit_seconds=WAIT_SECONDS_MAX)
    assert api.get(made)["spec"]["approved"] is True


def test_preflight_says_what_a_tenant_may_not_see(
    api: Api, api_client: client.ApiClient, tenant: Plugin
) -> None:
    assert api
    resources = ["pods", "sparkapplications", "recoverypolicies"]
    allow(api_client, tenant.namespace, rule("get", "list", resources=resources))

    def looks() -> bool:
        return tenant("preflight").code == 0

    assert process_sets.await_condition(looks, limit_seconds=WAIT_SECONDS_MAX)
    assert "Nodes could not be read" in tenant("preflight").done().out


def test_credentials_that_are_refused_say_so(plugin: Plugin, tmp_path: Path) -> None:
    record = yaml.safe_load(plugin.kubeconfig.read_text())
    record["users"][0]["user"] = {"token": "nobody"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(record))
    nobody = Plugin(kubeconfig, plugin.namespace, plugin.capsys)
    nobody("status").refused("your credentials are refused", "kubectl auth whoami")
    assert "nobody" not in nobody("status").err


def test_an_api_server_that_is_not_there_is_named(plugin: Plugin, tmp_path: Path) -> None:
    record = yaml.safe_load(plugin.kubeconfig.read_text())
    record["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(record))
    away = Plugin(kubeconfig, plugin.namespace, plugin.capsys)
    for words in EVERY:
        away(*words).refused("API server https://127.0.0.1:9", "does not answer", "refused")


def test_an_api_server_that_says_nothing_is_given_up_after_seconds(
    control_plane: ControlPlane, plugin: Plugin
) -> None:
    control_plane.stop("kube-apiserver")
    try:
        began = time.monotonic()
        plugin("status").refused("does not answer", "timed out")
        # It is the limit of connecting, not that of an answer.
        assert time.monotonic() - began < api_connection.ANSWER_SECONDS_MAX
    finally:
        control_plane.restore()


def test_an_interrupted_command_is_quiet(control_plane: ControlPlane, plugin: Plugin) -> None:
    control_plane.stop("kube-apiserver")
    try:
        words = ["status", "-n", plugin.namespace, "--kubeconfig", str(plugin.kubeconfig)]
        paths = os.pathsep.join(str(ROOT / name) for name in ("recovery", "operator"))
        running = subprocess.Popen(
            [sys.executable, "-m", "rekindle_operator.kubectl", *words],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process_sets.await_condition(
            lambda: running.poll() is not None or waits(running.pid), limit_seconds=WAIT_SECONDS_MAX
        )
        assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=SECONDS_MAX)
    finally:
        control_plane.restore()
    assert (running.returncode, out, err) == (130, b"", b"")


def waits(pid: int) -> bool:
    """Whether a process has begun to ask somebody: it has a socket."""
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if os.readlink(file).startswith("socket:"):
                return True
    return False


def test_a_cluster_without_our_definitions_says_how_to_install_them(
    api: Api, plugin: Plugin
) -> None:
    """They are deleted, and made again at once: other tests need them."""
    for record in DEFINITIONS:
        api.delete(record)
    try:
        gone = process_sets.await_condition(
            lambda: all(api.send("GET", place(item))[0] == 404 for item in DEFINITIONS),
            limit_seconds=WAIT_SECONDS_MAX,
        )
        assert gone

        def unknown() -> bool:
            return "does not know" in plugin("status").err

        assert process_sets.await_condition(unknown, limit_seconds=WAIT_SECONDS_MAX)
        for words in EVERY[:-1]:
            plugin(*words).refused("does not know", "kubectl apply --server-side -f crds/")
        assert plugin("preflight").code == 0
    finally:
        define(api)


def test_options_that_mean_nothing_are_refused(plugin: Plugin) -> None:
    for words, expected in (
        (("--context", "elsewhere"), "kubectl config get-contexts"),
        (("-A", "-n", plugin.namespace), "--all-namespaces"),
        (("--output", "yaml"), "yaml"),
    ):
        plugin("status", *words).refused(expected)


def test_a_kubeconfig_that_is_none_is_named(plugin: Plugin, tmp_path: Path) -> None:
    for name, text in (("missing", None), ("broken", "{"), ("empty", ""), ("list", "[1]")):
        kubeconfig = tmp_path / name
        if text is not None:
            kubeconfig.write_text(text)
        Plugin(kubeconfig, plugin.namespace, plugin.capsys)("status").refused(str(kubeconfig))
