"""`kubectl rekindle release`: gates lifted by hand, of one policy's pods or of a namespace's."""

import copy
import json
from contextlib import nullcontext
from typing import Any

import pytest
import spark_objects as objects
from spark_objects import Body

from rekindle_operator.cluster.pods import AWAITED, GATE
from rekindle_operator.kubectl import plugin_main
from rekindle_operator.kubectl.api_connection import STRATEGIC, ApiRefusal
from rekindle_operator.kubectl.plugin_options import Target
from rekindle_operator.kubectl.subcommands import kubectl_release

QUOTA = "example.com/quota"


def policy(name: str, application: str) -> Body:
    metadata = {"name": name, "namespace": "flights", "uid": name}
    selector = {"sparkApplications": {"names": [application]}}
    return {
        "metadata": metadata | {"creationTimestamp": objects.at(0)},
        "spec": {"selector": selector, "recovers": "Applications"},
    }


def waiting(pod: Body, *others: str) -> Body:
    pod["metadata"]["labels"][GATE] = AWAITED
    pod["spec"]["schedulingGates"] = [{"name": name} for name in (*others, GATE)]
    return pod


class Cluster:
    """An API server with two policies; of each an application, of which a pod waits. `gone` pods
    are deleted meanwhile, `remade` ones have been made again since, and changes of `refused` ones
    are refused. So many further changes as `conflicts` says of a pod come at a bad moment."""

    default_namespace = "flights"
    namespace: str | None = "flights"

    def __init__(self) -> None:
        self.policies = [policy("nightly", "high"), policy("hourly", "low")]
        self.pods = [
            objects.kubeflow_driver("high", uid="driver-high"),
            waiting(objects.kubeflow_driver("low", uid="driver-low", node="", phase="Pending")),
            waiting(self.executor("high", 1), QUOTA),
            objects.kubeflow_executor(2, "high", driver_uid="driver-high"),
        ]
        self.others: list[Body] = []
        self.gone: set[str] = set()
        self.remade: set[str] = set()
        self.refused: set[str] = set()
        self.conflicts: dict[str, int] = {}
        self.patched: list[str] = []

    def executor(self, name: str, number: int) -> Body:
        return objects.kubeflow_executor(
            number, name, driver_uid=f"driver-{name}", node="", phase="Pending"
        )

    def get(self, kind: Any, name: str) -> Body:
        for item in self.policies:
            if kind.name == "RecoveryPolicy" and item["metadata"]["name"] == name:
                return item
        raise ApiRefusal(where=name, what="is not there", remedy="see", status=404)

    def list(self, kind: Any, namespace: str | None = None, **query: str) -> list[Body]:
        if kind.name == "Pod" and query == {"fieldSelector": "status.phase=Pending"}:
            shown = [*self.pods, *self.others] if namespace is None else self.pods
            return [pod for pod in shown if pod["status"]["phase"] == "Pending"]
        assert namespace == "flights"
        if kind.name == "RecoveryPolicy":
            return self.policies
        if kind.name == "Pod" and "fieldSelector" in query:
            return [*self.named(query["fieldSelector"].removeprefix("metadata.name="))]
        if kind.name == "Pod":
            return self.pods if query["labelSelector"].startswith("spark-role in") else []
        raise ApiRefusal(where="", what="", remedy="", status=404, missing_kind=True)

    def named(self, name: str) -> tuple[Body, ...]:
        found = tuple(copy.deepcopy(pod) for pod in self.pods if pod["metadata"]["name"] == name)
        for pod in found:
            pod["metadata"]["uid"] += "-again" if name in self.remade else ""
        return found

    def merge(
        self, kind: Any, place: tuple[str, str], change: Body, manager: str, content: str
    ) -> Body:
        assert (kind.name, content) == ("Pod", STRATEGIC)
        assert manager.startswith("kubectl-rekindle")
        (pod,) = [
            item
            for item in (*self.pods, *self.others)
            if (item["metadata"]["namespace"], item["metadata"]["name"]) == place
        ]
        if place[1] in self.refused:
            what = "you may not patch pods here"
            raise ApiRefusal(where=f"Pod {place}", what=what, remedy="ask", status=403)
        if place[1] in self.gone:
            raise ApiRefusal(where=place[1], what="is not there", remedy="see", status=404)
        if place[1] in self.remade:
            raise ApiRefusal(where=place[1], what="is another one", remedy="see", status=409)
        if self.conflicts.get(place[1], 0):
            self.conflicts[place[1]] -= 1
            raise ApiRefusal(where=f"Pod {place}", what="changed", remedy="again", status=409)
        assert change["metadata"] == {"uid": pod["metadata"]["uid"], "labels": {GATE: None}}
        assert change["spec"] == {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
        self.patched.append(place[1])
        return pod


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    def connect(target: Target) -> Any:
        made.namespace = None if target.everywhere else "flights"
        return nullcontext(made)

    monkeypatch.setattr(kubectl_release, "connected", connect)
    return made


def released(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert plugin_main.run(["release", *words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_only_pods_of_the_policy_that_wait_are_released(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    told = released(capsys, "--policy", "nightly")
    (executor,) = cluster.patched
    assert executor == cluster.pods[2]["metadata"]["name"]
    assert told == {
        "version": 1,
        "policy": "nightly",
        "namespace": "flights",
        "released": True,
        "pods": [executor],
    }


def test_a_dry_run_changes_nothing_and_names_the_same_pods(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    told = released(capsys, "--policy", "hourly", "--dry-run")
    assert (told["released"], told["pods"], cluster.patched) == (False, ["low-driver"], [])
    assert plugin_main.run(["release", "--policy", "hourly", "--dry-run"]) == 0
    assert "the gate of 1 pod would be lifted" in capsys.readouterr().out
    assert cluster.patched == []


def test_all_releases_pods_of_policies_that_are_gone_too(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.policies = []
    assert len(released(capsys, "--all")["pods"]) == len(cluster.patched) == 2


def test_pods_of_all_namespaces_are_released_with_their_namespaces_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    other = waiting(cluster.executor("night", 1))
    other["metadata"]["namespace"] = "reports"
    cluster.others = [other]
    told = released(capsys, "--all", "--all-namespaces")
    names = {pod["metadata"]["name"] for pod in (cluster.pods[1], cluster.pods[2])}
    name = other["metadata"]["name"]
    assert (told["policy"], told["namespace"]) == (None, None)
    assert {*told["pods"]} == {f"reports/{name}", *(f"flights/{item}" for item in names)}
    assert {*cluster.patched} == {name, *names}
    assert plugin_main.run(["release", "--all", "-A"]) == 0
    assert "all namespaces: the gates of 3 pods are lifted." in capsys.readouterr().out


@pytest.mark.parametrize("why", ["gone", "remade"])
def test_a_pod_that_is_gone_meanwhile_is_passed_over(
    cluster: Cluster, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setattr(cluster, why, {"low-driver"})
    assert plugin_main.run(["release", "--all"]) == 0
    out = capsys.readouterr().out
    assert "namespace flights: the gate of 1 pod is lifted." in out
    assert "low-driver" not in out


def test_a_conflict_is_tried_once_more(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.conflicts = {"low-driver": 1}
    assert len(released(capsys, "--all")["pods"]) == len(cluster.patched) == 2


def test_a_pod_that_stays_in_conflict_is_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.conflicts = {"low-driver": 2}
    assert plugin_main.run(["release", "--all"]) == 2
    told = capsys.readouterr()
    assert "the gate of 1 pod is lifted" in told.out
    assert "low-driver" in told.err


def test_a_look_after_a_conflict_that_is_refused_keeps_no_other_pod_waiting(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: str) -> tuple[Body, ...]:
        raise ApiRefusal(where="pods", what="too many requests", remedy="wait", status=429)

    cluster.conflicts = {"low-driver": 1}
    monkeypatch.setattr(cluster, "named", busy)
    assert plugin_main.run(["release", "--all"]) == 2
    told = capsys.readouterr()
    assert "the gate of 1 pod is lifted" in told.out
    assert "too many requests" in told.err


def test_a_pod_whose_gate_another_has_lifted_meanwhile_is_passed_over(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.conflicts = {"low-driver": 2}
    (ungated,) = cluster.named("low-driver")
    ungated["spec"]["schedulingGates"] = []
    monkeypatch.setattr(cluster, "named", lambda _: (ungated,))
    assert len(released(capsys, "--all")["pods"]) == 1


def test_where_no_pod_waits_it_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    del cluster.pods[2]
    assert plugin_main.run(["release", "--policy", "nightly"]) == 0
    assert capsys.readouterr().out == "policy flights/nightly: no pod waits for its turn.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--all", "--policy", "nightly"], "leave one of them out"),
        (["--policy", "nightli"], "did you mean nightly?"),
        (["-A"], "add --all, or name a namespace with -n"),
        (["--all", "-A", "-n", "flights"], "leave one of them out"),
        ([], "choose with --policy: hourly, nightly"),
    ],
)
def test_what_is_meant_has_to_be_clear(
    cluster: Cluster, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin_main.run(["release", *words]) == 2
    assert said in capsys.readouterr().err
    assert cluster.patched == []


def test_who_may_not_patch_pods_is_told_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refused = {pod["metadata"]["name"] for pod in cluster.pods}
    assert plugin_main.run(["release", "--all"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "you may not patch pods here; 1 more keeps its gate" in told.err


def test_a_pod_of_which_a_change_is_refused_keeps_no_other_waiting(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """An admission policy may refuse whatever is changed of a pod."""
    cluster.refused = {"low-driver"}
    assert plugin_main.run(["release", "--all"]) == 2
    told = capsys.readouterr()
    assert "the gate of 1 pod is lifted" in told.out
    assert cluster.patched == [cluster.pods[2]["metadata"]["name"]]
    assert "low-driver" in told.err
