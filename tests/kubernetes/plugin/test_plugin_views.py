"""What the plugin shows of a real API server: status, a story, and what waits."""

import os
import subprocess
import sys
from pathlib import Path

import plugin_world as world
import pytest
from kubernetes import client
from plugin_runs import Plugin, make_policy, make_recovery
from resource_requests import Api

from rekindle_operator.kubectl import api_connection
from rekindle_testing.operator_builders import policy_object
from testbed.control_plane import ControlPlane


def test_status_shows_who_is_protected_and_what_recovers(api: Api, plugin: Plugin) -> None:
    make_policy(api, plugin.namespace)
    made = make_recovery(api, plugin.namespace)
    run = plugin("status").done()
    lines = run.out.splitlines()
    assert lines[0].split() == [
        *("APPLICATION", "POLICY", "PROTECTED", "RECOVERY"),
        *("PHASE", "BACK", "AT", "RISK"),
    ]
    assert lines[1].split() == ["backfill", "departures", "no", "(SidecarMissing)", *"---", "no"]
    assert lines[2].split() == [
        *("departures", "departures", "yes", made["metadata"]["name"], "Recovering"),
        *("1/4", "no"),
    ]


def test_status_of_all_namespaces_names_each(api: Api, plugin: Plugin) -> None:
    make_policy(api, plugin.namespace)
    rows = plugin("status", "-A", "-o", "json").done().record["applications"]
    mine = [row["application"] for row in rows if row["namespace"] == plugin.namespace]
    assert mine == ["backfill", "departures"]
    assert "NAMESPACE" in plugin("status", "-A").done().out


def test_status_of_one_application_says_why(api: Api, plugin: Plugin) -> None:
    make_policy(api, plugin.namespace)
    assert "Driver backfill-0 runs without its sidecar." in plugin("status", "backfill").done().out
    plugin("status", "arrivals").refused("arrivals", "preflight")


def test_status_says_when_no_operator_has_looked_at_a_policy(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace)
    api.patch(policy, {"spec": {"nodeCpuCapPercent": 70}})
    assert "NotObserved" in plugin("status").done().out


def test_a_long_list_is_read_in_pages(
    api: Api, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_connection, "PAGE_ITEMS", 2)
    for incident in range(1, 6):
        make_recovery(api, plugin.namespace, incident)
    found = plugin("explain", "departures", "-o", "json").done().record
    assert found["spec"]["incident"] == 5


def test_kubectl_finds_the_plugin_by_its_name(
    api: Api, plugin: Plugin, kubectl: Path, tmp_path: Path
) -> None:
    make_policy(api, plugin.namespace)
    script = tmp_path / "kubectl-rekindle"
    script.write_text(
        f"#!{sys.executable}\n"
        f"import sys\nsys.path[:0] = {[path for path in sys.path if path]!r}\n"
        "from rekindle_operator.kubectl.plugin_main import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    done = subprocess.run(
        [kubectl, "rekindle", "status", "-n", plugin.namespace],
        env={**os.environ, "PATH": str(tmp_path), "KUBECONFIG": str(plugin.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "backfill" in done.stdout


def test_nothing_at_all_is_said_in_a_sentence(plugin: Plugin) -> None:
    assert "There is no RecoveryPolicy in" in plugin("status").done().out


def test_of_a_recovery_that_waits_executors_without_a_node_are_told(
    api: Api, plugin: Plugin, control_plane: ControlPlane
) -> None:
    make_recovery(api, plugin.namespace)
    assert "executor pod" not in plugin("explain", "departures").done().out
    labels = {"spark-role": "executor", "sparkoperator.k8s.io/app-name": "departures"}
    body = {
        "metadata": {"name": "departures-exec-9", "labels": labels},
        "spec": {
            "nodeSelector": {"nowhere": "at-all"},
            "containers": [{"name": "spark-kubernetes-executor", "image": "spark:4.3"}],
        },
    }
    with control_plane.api_client() as api_client:
        client.CoreV1Api(api_client).create_namespaced_pod(plugin.namespace, body)
    out = plugin("explain", "departures").done().out
    assert "1 executor pod waits for a node, the oldest for" in out


def test_a_recovery_is_explained_by_its_name_and_by_its_application(
    api: Api, plugin: Plugin
) -> None:
    older = world.recovery(phase="Recovered", ended_at=world.at(90)).status
    make_recovery(api, plugin.namespace, 6, status=older)
    made = make_recovery(api, plugin.namespace)
    by_name = plugin("explain", made["metadata"]["name"], "-o", "json").done().record
    by_application = plugin("explain", "departures", "-o", "json").done().record
    assert by_application["recovery"] == by_name["recovery"] == made["metadata"]["name"]
    out = plugin("explain", "departures").done().out
    for words in (
        "incident 7 of SparkApplication",
        "3 nodes were lost or suspected. Impaired: zone-a.",
        "worker-1 in zone-a, with the driver, suspected at",
        "confirmed 5.4 s later",
        "The driver was lost at",
        "2 nodes were requested.",
        "1 of spare outside of zone-a (CorrelatedFailure), arrived after 1 min 27 s: Provisioned",
        "Carried out 0.6 s later.",
        "The driver has not answered yet.",
        "1/4 queries are back.",
        "NoCapacity: No room: 2 of 4 nodes are up.",
    ):
        assert words in out


def test_one_query_is_explained_with_its_times_and_what_it_waits_for(
    api: Api, plugin: Plugin
) -> None:
    make_recovery(api, plugin.namespace)
    out = plugin("explain", "departures", "worst-delays").done().out
    assert "out for 15 s." in out
    assert "Plan 8 of incident 7" in out
    out = plugin("explain", "departures", "rarest").done().out
    assert "waits (NoCapacity): No room: 2 of 4 nodes are up." in out
    assert "one other query of higher priority" in out
    plugin("explain", "departures", "rares").refused("did you mean", "rarest")


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_a_name_that_is_nobodys_is_answered_with_those_near_it(
    api: Api, plugin: Plugin, command: str
) -> None:
    make_recovery(api, plugin.namespace)
    plugin(command, "departure").refused("did you mean departures")
    plugin(command, "xyz").refused("kubectl rekindle status")


def test_an_approval_of_a_name_that_is_nobodys_is_refused(api: Api, plugin: Plugin) -> None:
    made = make_recovery(api, plugin.namespace)
    name = made["metadata"]["name"]
    plugin("approve", name[:-1]).refused(f"did you mean {name}")


def test_plan_says_what_waits_and_does_not_pretend_to_know_the_rest(
    api: Api, plugin: Plugin
) -> None:
    make_recovery(api, plugin.namespace)
    out = plugin("plan", "departures").done().out
    for words in (
        "2 of 4 queries wait for a plan.",
        "1 is placed and catches up.",
        "The next plan comes after plan 9, which is on its way.",
        "NoCapacity: No room: 2 of 4 nodes are up.",
        "400 m CPU were free for it.",
        "1 node is on the way (spare)",
        "the API does not have",
    ):
        assert words in out
    record = plugin("plan", "departures", "-o", "json").done().record
    assert [query["name"] for query in record["waiting"]] == ["rare", "rarest"]
    assert (record["awaited"], record["nodesComing"], record["whatIf"]) == (9, 1, None)


def test_after_a_recovery_no_plan_is_awaited(api: Api, plugin: Plugin) -> None:
    status = world.recovery(phase="Recovered", ended_at=world.at(200)).status
    make_recovery(api, plugin.namespace, status=status)
    assert "is over, so nothing waits" in plugin("plan", "departures").done().out


def test_of_several_policies_one_must_be_named(api: Api, plugin: Plugin) -> None:
    make_policy(api, plugin.namespace)
    record = policy_object("other", namespace=plugin.namespace)
    record["metadata"] = {"name": "other", "namespace": plugin.namespace}
    assert api.create(record)[0] == 201
    plugin("pause").refused("has 2 policies", "departures, other")
    plugin("pause", "--policy", "departure").refused("did you mean departures")
    plugin("pause", "--policy", "other").done()


def test_a_namespace_without_a_policy_says_so(plugin: Plugin) -> None:
    plugin("priority").refused("has no RecoveryPolicy")
