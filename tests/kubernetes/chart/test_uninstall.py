"""`helm uninstall` while pods wait for their turn: our gate goes, gates of others stay.

No kubelet is there to run the Job of the chart. So the test runs its command with its arguments and
with the rights of its account, and then reports the end of its pod, as a kubelet would.
"""

import importlib
import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chart_audit import arguments_here
from chart_commands import CHART, NAMESPACE, RELEASE, ROOT, Helm
from chart_rights import WEBHOOK
from chart_users import Asked, each, permitted
from kubernetes import client
from kubernetes.client import ApiException
from namespaces import new_namespace

sys.path.insert(0, str(Path(__file__).parents[1] / "operating"))

from acting_driver import pod_body
from operating_world import await_that
from operator_process import WebhookProcess

from rekindle_operator.cluster import application_matching
from rekindle_operator.cluster.pods import GATE, pod_seen, without_gate
from rekindle_operator.gates.gate_release import PROGRAM
from rekindle_operator.webhook import avoided_domains, webhook_configuration
from rekindle_operator.webhook.webhook_configuration import TURNS
from testbed.control_plane import ControlPlane

HOST = "127.0.0.1"
KUEUE = "kueue.x-k8s.io/admission"
VALUES = (
    *("--set", "zookeeper.enabled=false", "--set", "store.addresses={zookeeper.data:2181}"),
    *("--set", "store.plaintext=true", "--set", "wholeApplications=true"),
    *("--set", "uninstall.timeoutSeconds=110"),
)
STRATEGIC = "application/strategic-merge-patch+json"
RUN = {"spark-app-selector": "spark-1"}
COMMAND_SECONDS_MAX = 100
FORBIDDEN, INVALID = 403, 422
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{PROGRAM}"
NEVER = [
    *each(("create", "delete", "update"), ("pods",)),
    *each(("get", "list", "create"), ("secrets", "configmaps"), NAMESPACE),
    *each(("patch", "delete"), ("nodes", "namespaces")),
    *each(("delete", "create"), ("mutatingwebhookconfigurations.admissionregistration.k8s.io",)),
    Asked("patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", name="another"),
]

Gates = Callable[[str, str], list[str]]


@dataclass(frozen=True, slots=True)
class Uninstall:
    """`helm uninstall` that waits for its Job."""

    api: client.ApiClient
    control_plane: ControlPlane
    helm: "Future[tuple[int, str, str]]"

    @staticmethod
    def begin(
        stack: ExitStack, helm: Helm, api: client.ApiClient, control_plane: ControlPlane
    ) -> "Uninstall":
        """Returns once the Job is there."""
        threads = stack.enter_context(ThreadPoolExecutor(1))
        running = threads.submit(helm.run, "uninstall", RELEASE, "--timeout", "115s")
        found = Uninstall(api, control_plane, running)
        await_that(lambda: found.jobs() or running.done(), "the Job does not come")
        assert not running.done(), running.result()
        return found

    def jobs(self) -> list[Any]:
        jobs: list[Any] = client.BatchV1Api(self.api).list_namespaced_job(NAMESPACE).items
        return [job for job in jobs if job.metadata.name == PROGRAM]

    def run(self, kubeconfig: Path, *more: str) -> "subprocess.CompletedProcess[str]":
        """The command of the Job, as its image has it; `more` arguments hold instead of its own."""
        (job,) = self.jobs()
        (container,) = job.spec.template.spec.containers
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        (command,) = container.command
        module, function = scripts[command].split(":")
        assert callable(getattr(importlib.import_module(module), function))
        program = f"from {module} import {function}; {function}()"
        return subprocess.run(
            [sys.executable, "-c", program, *container.args, *more, f"--kubeconfig={kubeconfig}"],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )

    def end(self, code: int) -> tuple[int, str]:
        """Report the end of the Job's pod; returns the exit code of helm, and its output."""
        core: Any = client.CoreV1Api(self.api)

        def pods() -> list[Any]:
            found: list[Any] = core.list_namespaced_pod(
                NAMESPACE, label_selector=f"job-name={PROGRAM}"
            ).items
            return found

        await_that(pods, "the Job makes no pod")
        (pod,) = pods()
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        status = {
            "name": pod.spec.containers[0].name,
            "state": state,
            "ready": False,
            "restartCount": 0,
            "image": "rekindle",
            "imageID": "rekindle",
        }
        phase = "Failed" if code else "Succeeded"
        body = {"status": {"phase": phase, "containerStatuses": [status]}}
        core.patch_namespaced_pod_status(pod.metadata.name, NAMESPACE, body)
        exit_code, printed, errors = self.helm.result(COMMAND_SECONDS_MAX)
        return exit_code, printed + errors


@pytest.fixture
def elsewhere(control_plane: ControlPlane) -> Iterator[str]:
    """Another namespace."""
    with new_namespace(control_plane) as name:
        yield name


@pytest.fixture
def installed(installer: Helm) -> Iterator[Helm]:
    installer.do("install", RELEASE, CHART, *VALUES)
    yield installer
    installer.run("uninstall", RELEASE, "--no-hooks", "--wait", "--ignore-not-found")


@pytest.fixture
def gates(cluster: client.ApiClient) -> Gates:
    core: Any = client.CoreV1Api(cluster)

    def of_pod(namespace: str, name: str) -> list[str]:
        return names(core.read_namespaced_pod(name, namespace))

    return of_pod


def names(pod: Any) -> list[str]:
    return [gate.name for gate in pod.spec.scheduling_gates or ()]


def plain_pod(name: str, *gated: str) -> Any:
    """A pod of anybody, without Spark's labels: the webhook is not asked about it."""
    container = {"name": "main", "image": "main"}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "schedulingGates": [{"name": item} for item in gated]},
    }


def serve_webhook(
    stack: ExitStack,
    cluster: client.ApiClient,
    control_plane: ControlPlane,
    arguments: list[str],
    folder: Path,
) -> None:
    """The chart's webhook with the rights of its account, asked by the API server at this machine
    instead of at its Service."""
    made = control_plane.serving_certificate(HOST)
    folder.mkdir()
    (folder / "tls.crt").write_bytes(Path(made.certificate).read_bytes())
    (folder / "tls.key").write_bytes(Path(made.key).read_bytes())
    token = control_plane.service_account_kubeconfig(NAMESPACE, WEBHOOK)
    webhook = WebhookProcess(
        folder / "log",
        "webhook-a",
        *(*arguments, f"--kubeconfig={token}", f"--certificates-folder={folder}"),
    )
    stack.callback(webhook.close)
    webhook.start()
    url = f"https://{HOST}:{webhook.webhook_port}{webhook_configuration.PATH}"
    admission: Any = client.AdmissionregistrationV1Api(cluster)
    found = cluster.sanitize_for_serialization(
        admission.read_mutating_webhook_configuration(RELEASE)
    )
    for item in found["webhooks"]:
        item["clientConfig"] = {"url": url}
    admission.replace_mutating_webhook_configuration(RELEASE, found)
    patch = webhook_configuration.bundle_patch(
        cluster.sanitize_for_serialization(admission.read_mutating_webhook_configuration(RELEASE)),
        Path(control_plane.authority).read_bytes(),
    )
    admission.patch_mutating_webhook_configuration(RELEASE, patch, _content_type=STRATEGIC)


def write_record(cluster: client.ApiClient, namespace: str) -> None:
    """As the operator does it in an incident: pods of the application `reports` wait."""
    body = pod_body("any", "executor", "reports", **RUN)
    body["metadata"] |= {"namespace": namespace, "uid": "any"}
    executor = pod_seen(body)
    assert executor is not None
    bucket = application_matching.bucket(executor)
    record = avoided_domains.to_config_map({}, NAMESPACE, datetime.now(UTC), [bucket])
    core: Any = client.CoreV1Api(cluster)
    if avoided_domains.NAME in {
        item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE).items
    }:
        core.replace_namespaced_config_map(avoided_domains.NAME, NAMESPACE, record)
    else:
        core.create_namespaced_config_map(NAMESPACE, record)


def test_an_uninstall_lifts_our_gate_in_all_namespaces_and_no_other_before_anything_goes(
    installed: Helm,
    renderer: Helm,
    cluster: client.ApiClient,
    control_plane: ControlPlane,
    namespace: str,
    elsewhere: str,
    gates: Gates,
    tmp_path: Path,
) -> None:
    """The webhook runs on, and the operator renews its record: no pod gets a gate all the same."""
    core: Any = client.CoreV1Api(cluster)

    def made(name: str, *gated: str, dry_run: bool = False) -> list[str]:
        """The gates that a new executor comes up with."""
        body = pod_body(name, "executor", "reports", **RUN)
        body["spec"]["schedulingGates"] = [{"name": gate} for gate in gated]
        options = {"dry_run": "All"} if dry_run else {}
        return names(core.create_namespaced_pod(namespace, body, **options))

    with ExitStack() as stack:
        arguments = arguments_here(renderer.objects(*VALUES), WEBHOOK)
        serve_webhook(stack, cluster, control_plane, arguments, tmp_path / "webhook")
        write_record(cluster, namespace)
        await_that(lambda: GATE in made("probe", dry_run=True), "no pod gets a gate")
        assert (made("ours"), made("both", KUEUE)) == ([GATE], [KUEUE, GATE])
        core.create_namespaced_pod(namespace, plain_pod("theirs", KUEUE))
        core.create_namespaced_pod(elsewhere, plain_pod("forgotten", GATE))

        uninstall = Uninstall.begin(stack, installed, cluster, control_plane)
        await_that(lambda: permitted(cluster, ACCOUNT, [Asked("patch", "pods")]))
        assert not permitted(cluster, ACCOUNT, NEVER)
        account = control_plane.service_account_kubeconfig(NAMESPACE, PROGRAM)
        with control_plane.api_client(account) as limited:
            assert_touches_nothing_else(client.CoreV1Api(limited), namespace)
        done = uninstall.run(account)
        assert done.returncode == 0, done.stderr
        assert gates(namespace, "ours") == gates(elsewhere, "forgotten") == []
        assert gates(namespace, "both") == gates(namespace, "theirs") == [KUEUE]
        write_record(cluster, namespace)
        assert made("later") == [], "nobody would lift it"
        assert client.AppsV1Api(cluster).list_namespaced_deployment(NAMESPACE).items

        code, printed = uninstall.end(0)
        assert code == 0, printed
    assert not client.AppsV1Api(cluster).list_namespaced_deployment(NAMESPACE).items
    assert PROGRAM not in left_over(cluster)
    assert gates(namespace, "both") == [KUEUE]


def assert_touches_nothing_else(core: Any, namespace: str) -> None:
    """What rights cannot say, the admission policy does."""
    uid = core.list_namespaced_pod(namespace, field_selector="metadata.name=both").items[0]
    theirs = without_gate(uid.metadata.uid)
    theirs["spec"]["schedulingGates"] = [{"name": KUEUE, "$patch": "delete"}]
    image = {"spec": {"containers": [{"name": "spark-kubernetes-executor", "image": "mine"}]}}
    for change in (theirs, image):
        with pytest.raises(ApiException) as caught:
            core.patch_namespaced_pod("both", namespace, change)
        assert caught.value.status in (FORBIDDEN, INVALID)
        assert "rekindle-operator-gates" in str(caught.value.body)


def left_over(cluster: client.ApiClient) -> set[str]:
    """Names of all that is there while the Job runs alone."""
    rights = client.RbacAuthorizationV1Api(cluster)
    found: list[Any] = [
        *rights.list_cluster_role().items,
        *rights.list_cluster_role_binding().items,
        *client.CoreV1Api(cluster).list_namespaced_service_account(NAMESPACE).items,
        *client.NetworkingV1Api(cluster).list_namespaced_network_policy(NAMESPACE).items,
        *client.BatchV1Api(cluster).list_namespaced_job(NAMESPACE).items,
    ]
    return {item.metadata.name for item in found}


def asks_about_turns(cluster: client.ApiClient) -> bool:
    """Whether the API server asks the webhook about pods that may have to wait."""
    admission: Any = client.AdmissionregistrationV1Api(cluster)
    found = admission.read_mutating_webhook_configuration(RELEASE)
    return TURNS in {item.name for item in found.webhooks}


def lift_as_the_page_says(kubectl: Path, control_plane: ControlPlane, folder: Path) -> None:
    """The commands of docs/install.md for who has no plugin. A pod of which every change is refused
    keeps no other waiting."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("kubectl alone finds the pods and lifts the gate of each:\n\n")
    commands = textwrap.dedent(rest.partition("\n\n")[0])
    assert commands.startswith("kubectl get pods -A"), commands
    (folder / "kubectl").symlink_to(kubectl)
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", commands],
        # kubectl keeps what it has read of the API server at home, or else where it is started
        env={"PATH": path, "HOME": str(folder), "KUBECONFIG": str(control_plane.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    assert "pod/later patched" in done.stdout, done.stdout + done.stderr
    assert "it stays as it is" in done.stderr


def assert_rollback_restores(installed: Helm, cluster: client.ApiClient) -> None:
    """The release is kept: an upgrade is refused at first, and goes after a rollback."""
    assert not asks_about_turns(cluster), "the Job has taken it away"
    upgrade = ("upgrade", RELEASE, CHART, *VALUES)
    code, _, errors = installed.run(*upgrade)
    assert code != 0
    assert "uninstalling" in errors or "has no deployed releases" in errors, errors
    assert not asks_about_turns(cluster)
    installed.do("rollback", RELEASE, "1")
    assert asks_about_turns(cluster)
    installed.do(*upgrade)
    assert asks_about_turns(cluster)


@pytest.fixture
def stubborn(cluster: client.ApiClient, namespace: str) -> Iterator[str]:
    """A pod of which an admission policy of the cluster refuses every change."""
    core: Any = client.CoreV1Api(cluster)
    core.create_namespaced_pod(namespace, plain_pod("stubborn", GATE))
    admission: Any = client.AdmissionregistrationV1Api(cluster)
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["UPDATE"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [
            {"expression": "object.metadata.name != 'stubborn'", "message": "it stays as it is"}
        ],
    }
    admission.create_validating_admission_policy({"metadata": {"name": "stubborn"}, "spec": spec})
    binding = {"policyName": "stubborn", "validationActions": ["Deny"]}
    admission.create_validating_admission_policy_binding(
        {"metadata": {"name": "stubborn"}, "spec": binding}
    )

    def is_refused() -> bool:
        label = {"metadata": {"labels": {"a": "b"}}}
        try:
            core.patch_namespaced_pod("stubborn", namespace, label, dry_run="All")
        except ApiException as error:
            return "it stays as it is" in str(error.body)
        return False

    try:
        await_that(is_refused, "the policy does not count")
        yield "stubborn"
    finally:
        admission.delete_validating_admission_policy_binding("stubborn")
        admission.delete_validating_admission_policy("stubborn")


def test_an_uninstall_that_cannot_lift_a_gate_removes_nothing_and_a_rollback_mends_the_release(
    installed: Helm,
    cluster: client.ApiClient,
    control_plane: ControlPlane,
    namespace: str,
    stubborn: str,
    gates: Gates,
    kubectl: Path,
    tmp_path: Path,
) -> None:
    core: Any = client.CoreV1Api(cluster)
    core.create_namespaced_pod(namespace, plain_pod("other", GATE))
    with ExitStack() as stack:
        uninstall = Uninstall.begin(stack, installed, cluster, control_plane)
        account = control_plane.service_account_kubeconfig(NAMESPACE, PROGRAM)
        done = uninstall.run(account, "--timeout-seconds=15")
        assert done.returncode == 1, done.stdout
        (sentence,) = done.stderr.splitlines()
        assert sentence.startswith(f"pod {namespace}/{stubborn}: our scheduling gate cannot be l")
        assert "it stays as it is" in sentence
        assert "run `helm uninstall` again with --no-hooks, and then" in sentence
        assert (gates(namespace, "other"), gates(namespace, stubborn)) == ([], [GATE])
        code, printed = uninstall.end(done.returncode)
        assert code != 0
        assert PROGRAM in printed, "helm names the Job"
    assert client.AppsV1Api(cluster).list_namespaced_deployment(NAMESPACE).items
    assert_rollback_restores(installed, cluster)
    core.create_namespaced_pod(namespace, plain_pod("later", KUEUE, GATE))
    installed.do("uninstall", RELEASE, "--no-hooks", "--wait")
    lift_as_the_page_says(kubectl, control_plane, tmp_path)
    assert (gates(namespace, "later"), gates(namespace, stubborn)) == ([KUEUE], [GATE])
    assert not client.AppsV1Api(cluster).list_namespaced_deployment(NAMESPACE).items
    batch: Any = client.BatchV1Api(cluster)
    batch.delete_namespaced_job(PROGRAM, NAMESPACE, propagation_policy="Background")
    await_that(lambda: PROGRAM not in left_over(cluster), "something is left")
