"""What the plugin changes on a real API server: priorities, a pause, an approval, a gate."""

import copy
import json
import threading
import time
from typing import Any

import plugin_world as world
import pytest
from plugin_runs import Plugin, make, make_policy, make_recovery
from resource_requests import Api, Object

from rekindle_operator.cluster.pods import AWAITED, GATE
from rekindle_operator.kubectl import api_connection
from rekindle_operator.kubectl.server_side_apply import LAST_APPLIED, managers_of
from rekindle_operator.kubectl.subcommands.kubectl_pause import MANAGER as PAUSE_MANAGER
from rekindle_operator.kubectl.subcommands.kubectl_priority import MANAGER
from rekindle_testing.operator_builders import policy_object

GITOPS = [{"query": "worst-delays", "priority": 7}]


def priorities(record: Object) -> dict[str, int]:
    return {item["query"]: item["priority"] for item in record["spec"].get("priorities", [])}


def spec_of_gitops(record: Object) -> Any:
    """The fields that GitOps has."""
    (entry,) = [item for item in record["metadata"]["managedFields"] if item["manager"] == "gitops"]
    return entry["fieldsV1"]


def test_a_priority_is_added_beside_those_of_gitops_which_stay_theirs(
    api: Api, plugin: Plugin
) -> None:
    before = make_policy(api, plugin.namespace, priorities=GITOPS)
    run = plugin("priority", "rare=9", "--policy", "departures", "--for", "30m").done()
    assert MANAGER in run.out
    after = api.get(before)
    assert priorities(after) == {"worst-delays": 7, "rare": 9}
    assert spec_of_gitops(after) == spec_of_gitops(before)
    (entry,) = [item for item in after["spec"]["priorities"] if item["query"] == "rare"]
    assert entry["until"].endswith("Z")


def test_several_uses_add_up_and_the_newest_word_about_a_query_holds(
    api: Api, plugin: Plugin
) -> None:
    policy = make_policy(api, plugin.namespace)
    plugin("priority", "rare=9", "common=2", "--for", "30m").done()
    plugin("priority", "rare=3", "--permanent").done()
    after = api.get(policy)
    assert priorities(after) == {"rare": 3, "common": 2}
    endings = {item["query"]: "until" in item for item in after["spec"]["priorities"]}
    assert endings == {"rare": False, "common": True}


def test_what_has_expired_goes_with_the_next_use(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace)
    plugin("priority", "rare=9", "--for", "1s").done()
    time.sleep(1.5)
    run = plugin("priority", "common=8", "--for", "1h").done()
    assert "rare: expired, removed." in run.out
    assert priorities(api.get(policy)) == {"common": 8}


def test_a_query_of_gitops_is_not_taken_without_force(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace, priorities=GITOPS)
    arguments = ("priority", "worst-delays=10", "--policy", "departures", "--for", "1h")
    plugin(*arguments).refused("belongs to gitops", "--force", "departures")
    assert priorities(api.get(policy)) == {"worst-delays": 7}
    plugin(*arguments, "--force").done()
    assert priorities(api.get(policy)) == {"worst-delays": 10}


def test_clear_takes_back_what_was_set_here_and_nothing_else(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace, priorities=GITOPS)
    plugin("priority", "rare=9", "common=2", "--permanent").done()
    plugin("priority", "--clear", "rare").done()
    assert priorities(api.get(policy)) == {"worst-delays": 7, "common": 2}
    run = plugin("priority", "--clear", "worst-delays").done()
    assert "was not set here" in run.out
    plugin("priority", "--clear").done()
    after = api.get(policy)
    assert priorities(after) == {"worst-delays": 7}
    assert MANAGER not in {item["manager"] for item in after["metadata"]["managedFields"]}


def test_people_who_set_priorities_at_the_same_time_lose_none(
    api: Api, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's entry, under the same manager, comes between reading and applying."""
    policy = make_policy(api, plugin.namespace)
    applied = api_connection.ApiConnection.apply
    others: list[threading.Thread] = []

    def interrupted(cluster: Any, kind: Any, record: Object, manager: str, **how: Any) -> Object:
        if not others:
            other = {
                **copy.deepcopy(record),
                "spec": {"priorities": [{"query": "q", "priority": 1}]},
            }
            del other["metadata"]["resourceVersion"]
            thread = threading.Thread(target=applied, args=(cluster, kind, other, manager))
            others.append(thread)
            thread.start()
            thread.join()
        return applied(cluster, kind, record, manager, **how)

    monkeypatch.setattr(api_connection.ApiConnection, "apply", interrupted)
    plugin("priority", "rare=9", "--for", "1h").done()
    assert priorities(api.get(policy)) == {"q": 1, "rare": 9}


def test_priorities_are_shown_with_who_has_set_them(api: Api, plugin: Plugin) -> None:
    make_policy(api, plugin.namespace, priorities=GITOPS)
    plugin("priority", "rare=9", "--for", "1h").done()
    record = plugin("priority", "--output", "json").done().record
    assert [(item["query"], item["managers"]) for item in record["priorities"]] == [
        ("rare", [MANAGER]),
        ("worst-delays", ["gitops"]),
    ]


MEANINGLESS: list[tuple[tuple[str, ...], str]] = [
    (("rare=9",), "has no end"),
    (("rare=9", "--for", "1h", "--permanent"), "--for and --permanent at once"),
    (("rare=11", "--for", "1h"), "11 is no priority"),
    (("rare", "--for", "1h"), "is not QUERY=PRIORITY"),
    (("rare=9", "--for", "soon"), "--for"),
    (("rare=9", "--until", "2020-01-01T00:00:00Z"), "is over"),
    (("rare=9", "rare=8", "--for", "1h"), "is given twice"),
    (("--for", "1h"), "names no query"),
]


def test_a_priority_that_means_nothing_changes_nothing(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace)
    for arguments, word in MEANINGLESS:
        plugin("priority", *arguments).refused(word)
        assert priorities(api.get(policy)) == {}


def test_a_pause_is_set_and_given_up_under_a_manager_of_its_own(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace)
    plugin("pause").done()
    after = api.get(policy)
    assert after["spec"]["paused"] is True
    assert PAUSE_MANAGER in managers_of(after, "spec", "paused")
    assert "was paused already" in plugin("pause").done().out
    assert "goes on" in plugin("resume").done().out
    after = api.get(policy)
    assert after["spec"]["paused"] is False
    assert PAUSE_MANAGER not in {item["manager"] for item in after["metadata"]["managedFields"]}
    assert "was not paused" in plugin("resume").done().out


def test_a_pause_that_gitops_forbids_needs_force_and_ends_all_the_same(
    api: Api, plugin: Plugin
) -> None:
    policy = make_policy(api, plugin.namespace, paused=False)
    plugin("pause").refused("paused belongs to gitops", "--force")
    assert api.get(policy)["spec"]["paused"] is False
    plugin("pause", "--force").done()
    assert api.get(policy)["spec"]["paused"] is True
    plugin("resume").done()
    assert api.get(policy)["spec"]["paused"] is False


@pytest.mark.parametrize("said", [None, {}, {"paused": False}])
def test_a_policy_that_was_made_without_saying_paused_is_paused_without_force(
    api: Api, plugin: Plugin, said: Any
) -> None:
    """Whoever creates an object has its defaults too; what `kubectl apply` was given is noted."""
    policy = make(api, policy_object("departures", namespace=plugin.namespace))
    if said is not None:
        note = {"metadata": {"annotations": {LAST_APPLIED: json.dumps({"spec": said})}}}
        assert api.patch(policy, note)[0] == 200
    run = plugin("pause")
    assert run.code == (2 if said else 0), run.err
    assert api.get(policy)["spec"]["paused"] is not bool(said)


def test_a_pause_of_gitops_is_not_ended_here(api: Api, plugin: Plugin) -> None:
    policy = make_policy(api, plugin.namespace, paused=True)
    plugin("pause").done()
    plugin("resume").refused("is still paused, by gitops", code=1)
    assert api.get(policy)["spec"]["paused"] is True


def test_a_recovery_is_approved_after_it_was_said_what_that_does(api: Api, plugin: Plugin) -> None:
    make_policy(api, plugin.namespace)
    status = world.recovery(phase="AwaitingApproval", plans=(), driver=None).status
    record = make_recovery(api, plugin.namespace, status=status)
    name = record["metadata"]["name"]
    run = plugin("approve", name, "--dry-run").done()
    assert "would be approved" in run.out
    assert "plans are made and carried out" in run.out
    assert api.get(record)["spec"]["approved"] is False
    run = plugin("approve", name).done()
    assert "cannot be taken back" in run.out
    assert api.get(record)["spec"]["approved"] is True
    assert "was approved already" in plugin("approve", name).done().out


def test_a_recovery_that_is_over_is_not_approved(api: Api, plugin: Plugin) -> None:
    status = world.recovery(phase="Recovered", ended_at=world.at(200)).status
    record = make_recovery(api, plugin.namespace, status=status)
    plugin("approve", record["metadata"]["name"]).refused("is over (Recovered)")
    assert api.get(record)["spec"]["approved"] is False


def test_pods_that_wait_for_their_turn_are_released_and_gates_of_others_stay(
    api: Api, plugin: Plugin
) -> None:
    pods = f"/api/v1/namespaces/{plugin.namespace}/pods"
    quota = {"name": "example.com/quota"}
    labels = {"spark-role": "driver", "spark-app-name": "nightly", GATE: AWAITED}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "nightly-driver", "labels": labels},
        "spec": {
            "containers": [{"name": "spark-kubernetes-driver", "image": "spark"}],
            "schedulingGates": [quota, {"name": GATE}],
        },
    }
    status, made = api.send("POST", pods, pod)
    assert status == 201, made
    assert plugin("release", "--all", "--dry-run", "-o", "json").done().record["pods"]
    assert len(api.send("GET", f"{pods}/nightly-driver")[1]["spec"]["schedulingGates"]) == 2
    run = plugin("release", "--all").done()
    assert "the gate of 1 pod is lifted" in run.out
    after = api.send("GET", f"{pods}/nightly-driver")[1]
    assert after["spec"]["schedulingGates"] == [quota]
    assert GATE not in after["metadata"]["labels"]
    assert "no pod waits" in plugin("release", "--all").done().out
