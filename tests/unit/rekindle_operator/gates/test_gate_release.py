"""`rekindle-release-gates`: all gates of ours lifted, none of others, and none added later."""

import io
import json
from typing import Any

import pytest

from rekindle.model.errors import RunError
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator.cluster.api_client import (
    STRATEGIC_MERGE,
    ApiRefused,
    ApiUnreachable,
    ObjectConflict,
)
from rekindle_operator.cluster.pods import GATE
from rekindle_operator.gates.gate_release import SETTLED_SECONDS, GateRelease
from rekindle_operator.webhook.webhook_configuration import TURNS

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/rekindle"
KUEUE = "kueue.x-k8s.io/admission"


class Cluster:
    """An API server with pods (namespace/name -> gates) and a clock that waiting moves. `later` are
    pods that come so many seconds after the begin; `refused` and `conflicts` are pods whose change
    fails so many times, `lists_failing` is how many lists are not answered. Before `rights_after`
    the configuration may not be changed, before `stale_until` it is another one than was read, and
    where it is not `there` it cannot be. `ending` are pods that are being deleted."""

    def __init__(self, pods: dict[str, list[str]]) -> None:
        self.pods = pods
        self.now = 0.0
        self.asks, self.there = True, True
        self.later: dict[float, dict[str, list[str]]] = {}
        self.refused: dict[str, int] = {}
        self.conflicts: dict[str, int] = {}
        self.lists_failing = 0
        self.rights_after = self.stale_until = 0.0
        self.annotations: dict[str, str] | None = None
        self.ending: set[str] = set()
        self.did: list[str] = []

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.later if at <= self.now]:
            self.pods.update(self.later.pop(at))

    def get(self, path: str) -> dict[str, Any] | None:
        assert path == CONFIGURATION
        metadata = {} if self.annotations is None else {"annotations": self.annotations}
        return {"metadata": metadata} if self.there else None

    def patch(self, path: str, body: dict[str, Any], kind: str) -> None:
        assert kind == STRATEGIC_MERGE
        if path == CONFIGURATION:
            self.change_configuration(path, body)
            return
        _, _, _, _, namespace, _, name = path.split("/")
        pod = f"{namespace}/{name}"
        for failing, error in (
            (self.refused, ApiRefused(path, 403, "no change is let in here")),
            (self.conflicts, ObjectConflict(where=path, what="it changed", remedy="again")),
        ):
            if failing.get(pod, 0):
                failing[pod] -= 1
                raise error
        if pod not in self.pods:
            raise ApiRefused(path, 404, "not found")
        assert body["metadata"]["uid"] == f"uid-of-{pod}"
        (gone,) = body["spec"]["schedulingGates"]
        self.pods[pod].remove(gone["name"])
        self.did.append(pod)

    def change_configuration(self, path: str, body: dict[str, Any]) -> None:
        if self.now < self.rights_after:
            raise ApiRefused(path, 403, "you may not patch it")
        if self.now < self.stale_until:
            raise ObjectConflict(where=path, what="the object has been modified", remedy="again")
        if not self.there:
            raise ApiRefused(path, 404, "not found")
        assert body == {"webhooks": [{"name": TURNS, "$patch": "delete"}]}
        self.asks = False
        self.did.append("configuration")

    def pages(self, path: str, **query: str) -> Any:
        assert (path, query) == ("/api/v1/pods", {"fieldSelector": "status.phase=Pending"})
        if self.lists_failing:
            self.lists_failing -= 1
            raise ApiUnreachable(where=path, what="no answer", remedy="it is tried again")
        items = [self.body(name) for name in self.pods]
        half = len(items) // 2
        yield {"items": items[:half]}, "1"
        yield {"items": items[half:]}, "1"

    def body(self, pod: str) -> dict[str, Any]:
        namespace, name = pod.split("/")
        gates = [{"name": gate} for gate in self.pods[pod]]
        ending = {"deletionTimestamp": "2026-11-30T12:00:00Z"} if pod in self.ending else {}
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-of-{pod}"}
        return {
            "metadata": metadata | ending,
            "spec": {"schedulingGates": gates} if gates else {},
        }


def release(
    cluster: Any, timeout_seconds: float = 60.0, *, helm_only: bool = False
) -> list[dict[str, Any]]:
    """What it logs."""
    file = io.StringIO()
    command = GateRelease(cluster, "rekindle", JsonLineLog(file), helm_only)
    command.clock, command.pause = lambda: cluster.now, cluster.pause
    command.run(timeout_seconds)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_gates_of_all_namespaces_are_lifted_and_those_of_others_stay() -> None:
    cluster = Cluster({"a/one": [GATE], "b/two": [KUEUE, GATE], "b/three": [KUEUE], "c/four": []})
    lines = release(cluster)
    assert cluster.pods == {"a/one": [], "b/two": [KUEUE], "b/three": [KUEUE], "c/four": []}
    assert lines[-1]["kind"] == "released"
    assert lines[-1]["pods"] == 2


def test_first_no_pod_gets_a_gate_any_more_and_then_gates_are_lifted() -> None:
    cluster = Cluster({"a/one": [GATE]})
    release(cluster)
    assert cluster.did == ["configuration", "a/one"]
    assert not cluster.asks


def test_a_pod_that_was_on_its_way_is_released_too_and_the_wait_starts_over() -> None:
    cluster = Cluster({})
    cluster.later = {SETTLED_SECONDS - 1: {"a/late": [GATE]}}
    release(cluster)
    assert cluster.pods == {"a/late": []}
    assert cluster.now >= 2 * SETTLED_SECONDS - 1


def test_without_a_webhook_gates_are_lifted_all_the_same() -> None:
    cluster = Cluster({"a/one": [GATE]})
    cluster.there = False
    release(cluster)
    assert cluster.pods == {"a/one": []}


def test_rights_that_are_known_a_moment_later_and_an_api_server_that_is_away_are_awaited() -> None:
    cluster = Cluster({"a/one": [GATE]})
    cluster.rights_after, cluster.lists_failing = 3.0, 2
    lines = release(cluster)
    assert [line["kind"] for line in lines].count("tried-again") == 2
    assert (cluster.pods, cluster.asks) == ({"a/one": []}, False)


def test_a_configuration_that_has_changed_meanwhile_is_tried_again_and_keeps_no_gate() -> None:
    cluster = Cluster({"a/one": [GATE]})
    cluster.stale_until = 10.0
    release(cluster)
    assert cluster.did == ["a/one", "configuration"]
    assert not cluster.asks


def test_where_the_configuration_may_not_be_changed_gates_are_lifted_and_the_command_fails() -> (
    None
):
    cluster = Cluster({"a/one": [GATE]})
    cluster.rights_after = 1000.0
    with pytest.raises(RunError, match="you may not patch it; nothing is uninstalled"):
        release(cluster, 30.0)
    assert cluster.pods == {"a/one": []}


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    cluster = Cluster({"a/one": [GATE], "a/ending": [GATE]})
    cluster.ending = {"a/ending"}
    cluster.refused = {"a/ending": 1000}
    release(cluster)
    assert cluster.pods == {"a/one": [], "a/ending": [GATE]}


@pytest.mark.parametrize(
    ("annotations", "is_there", "did"),
    [
        (None, True, []),
        ({"made-by": "kustomize"}, True, []),
        ({"meta.helm.sh/release-name": "rekindle"}, True, ["configuration", "a/one"]),
        (None, False, ["a/one"]),
    ],
    ids=["kubectl apply", "kustomize", "helm", "no configuration"],
)
def test_a_job_of_the_chart_does_nothing_where_helm_has_not_installed_it(
    annotations: dict[str, str] | None, is_there: bool, did: list[str]
) -> None:
    """It runs at the installation then, and not before an uninstall."""
    cluster = Cluster({"a/one": [GATE]})
    cluster.annotations, cluster.there = annotations, is_there
    lines = release(cluster, helm_only=True)
    assert cluster.did == did
    assert lines[-1]["kind"] == ("released" if did else "left-alone")


def test_a_pod_that_changed_meanwhile_is_looked_at_again_and_one_that_is_gone_passed_over() -> None:
    cluster = Cluster({"a/busy": [GATE], "a/gone": [GATE]})
    cluster.conflicts = {"a/busy": 3}
    taken = cluster.pages

    def pages(path: str, **query: str) -> Any:
        yield from taken(path, **query)
        cluster.pods.pop("a/gone", None)

    cluster.pages = pages  # type: ignore[method-assign]
    release(cluster)
    assert cluster.pods == {"a/busy": []}


def test_a_pod_whose_change_is_refused_keeps_no_other_waiting_and_is_named_with_the_remedy() -> (
    None
):
    cluster = Cluster({"a/kept": [GATE], "b/free": [GATE], "b/kept": [GATE]})
    cluster.refused = {"a/kept": 1000, "b/kept": 1000}
    with pytest.raises(RunError) as caught:
        release(cluster, 5.0)
    assert cluster.pods["b/free"] == []
    assert str(caught.value) == (
        "pod a/kept and 1 more: our scheduling gate cannot be lifted (no change is let in here); "
        "nothing is uninstalled: run `helm uninstall` again with --no-hooks, and then "
        "`kubectl rekindle release --all --all-namespaces`"
    )


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"rights_after": 1000.0}, f"{CONFIGURATION}: you may not patch it; nothing is uninst"),
        ({"lists_failing": 1000}, "/api/v1/pods: no answer; nothing is uninstalled"),
    ],
)
def test_what_stays_so_ends_it_in_bounded_time_with_one_sentence(
    fault: dict[str, Any], sentence: str
) -> None:
    cluster = Cluster({"a/one": [GATE]})
    for name, value in fault.items():
        setattr(cluster, name, value)
    with pytest.raises(RunError) as caught:
        release(cluster, 30.0)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert cluster.now <= 31


def test_pods_that_never_cease_to_come_are_no_success() -> None:
    cluster = Cluster({})
    cluster.later = {float(second): {f"a/{second}": [GATE]} for second in range(1, 60, 5)}
    with pytest.raises(RunError, match="have come until the last moment; nothing is uninstalled"):
        release(cluster, 30.0)
