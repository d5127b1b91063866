"""What scenarios leave on a cluster that stays, and in the folder of their run."""

import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from images.image_builder import Built
from rekindle.model.errors import InputError
from scenarios import cluster_setup, footprint, helm_chart
from scenarios.cluster_setup import Ground
from scenarios.footprint import Footprint
from scenarios.scenario_clusters import SHARED, GivenCluster
from testbed import foreign_crds
from testbed.test_programs import HELM

KINDS = {
    "namespace": "Namespace",
    "persistent_volume": "PersistentVolume",
    "cluster_role": "ClusterRole",
    "cluster_role_binding": "ClusterRoleBinding",
    "namespaced_service_account": "ServiceAccount",
}
OTHERS = ["Namespace default", "PersistentVolume claim-of-others", "ClusterRole cluster-admin"]


class Api:
    """An API server by all its clients; `there` has kinds with names, `done` what was asked."""

    def __init__(self, *there: str, refused: str = "", **resources: int) -> None:
        self.there = [*OTHERS, *there]
        self.refused, self.resources = refused, resources
        self.done: list[str] = []

    def __getattr__(self, called: str) -> Callable[..., Any]:
        verb, _, rest = called.partition("_")
        kind = KINDS[rest]
        return {"list": self._list, "create": self._create, "delete": self._delete}[verb](kind)

    def _list(self, kind: str) -> Callable[..., Any]:
        names = [one.split()[1] for one in self.there if one.split()[0] == kind]
        items = [SimpleNamespace(metadata=SimpleNamespace(name=name)) for name in names]
        return lambda *_: SimpleNamespace(items=items)

    def _create(self, kind: str) -> Callable[..., None]:
        def create(*given: Any) -> None:
            name = f"{kind} {given[-1]['metadata']['name']}"
            if name in self.there:
                raise ApiException(status=409)
            self.there.append(name)

        return create

    def _delete(self, kind: str) -> Callable[..., None]:
        def delete(name: str, *_: str) -> None:
            self.done.append(f"{kind} {name}")
            if f"{kind} {name}" == self.refused:
                raise ApiException(status=403)
            if f"{kind} {name}" not in self.there:
                raise ApiException(status=404)
            self.there.remove(f"{kind} {name}")

        return delete

    def list_cluster_custom_object(self, _: str, __: str, plural: str) -> Any:
        if plural not in self.resources:
            raise ApiException(status=404)
        return {"items": [{}] * self.resources[plural]}

    def create_namespaced_service_account_token(self, *_: Any) -> Any:
        return SimpleNamespace(status=SimpleNamespace(token="secret"))


def grounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Any) -> Ground:
    """A ground on a cluster that stays, before anything was made there."""
    monkeypatch.setattr(footprint, "REMOVED_SECONDS_MAX", 0.0)
    monkeypatch.setattr(footprint, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(foreign_crds, "install", lambda *_: None)
    monkeypatch.setattr(cluster_setup, "SparkOperators", lambda *_: nullcontext())
    found: Any = Ground(tmp_path / "site")
    found.cluster = GivenCluster(
        "kind", tmp_path / "cluster", {SHARED: str(tmp_path)}, kubectl=Path("kubectl"), images={}
    )
    found.cluster.shared.mkdir()
    found.core = found.rights = found.custom = api
    found.api_client = SimpleNamespace(configuration=SimpleNamespace(host="h", ssl_ca_cert="a"))
    monkeypatch.setattr(helm_chart, "uninstall", lambda *_: api.done.append("chart"))
    monkeypatch.setattr(found.cluster, "revive", lambda: api.done.append("nodes"))
    found.programs = {HELM: Path("helm")}
    return found


def test_what_is_made_on_a_cluster_goes_from_it_once_its_nodes_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(recoveries=0)
    made = grounded(tmp_path, monkeypatch, api)
    made._furnish([])
    assert len(api.there) == len(OTHERS) + 6
    api.there.append("Namespace rekindle")  # the chart's
    made.held.close()
    assert sorted(api.there) == sorted(OTHERS)
    work = [one for one in api.done if "PersistentVolume" not in one]
    assert work[2:] == ["nodes", "chart", "Namespace rekindle", "Namespace factory"]
    assert "could not" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "message"),
    [
        (["Namespace rekindle"], "the cluster: has Namespace rekindle, which scenarios make"),
        (["Namespace factory", "PersistentVolume claim"], "factory, PersistentVolume claim,"),
        (["PersistentVolume zookeeper-1"], "has PersistentVolume zookeeper-1,"),
        (["ServiceAccount spark-operators"], "has ServiceAccount spark-operators,"),
        (["ClusterRoleBinding spark-operators"], "has ClusterRoleBinding spark-operators,"),
        (["ClusterRole rekindle-operator"], "has ClusterRole rekindle-operator,"),
        ([], "has 3 recoverypolicies.rekindle.dev, 1 recoveries.rekindle.dev,"),
    ],
)
def test_what_is_there_before_is_refused_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], message: str
) -> None:
    resources = {} if there else {"recoveryclasses": 0, "recoverypolicies": 3, "recoveries": 1}
    api = Api(*there, **resources)
    made = grounded(tmp_path, monkeypatch, api)
    with pytest.raises(InputError, match=message):
        made._furnish([])
    made.held.close()
    assert api.there == [*OTHERS, *there]
    assert api.done == []


def test_who_comes_second_to_a_cluster_removes_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api: Any = Api()
    made = grounded(tmp_path, monkeypatch, api)
    monkeypatch.setattr(Footprint, "check_absent", lambda _: None)
    first = ["Namespace rekindle", "PersistentVolume zookeeper-0"]
    api.there += first
    with pytest.raises(ApiException):
        made._furnish([])
    made.held.close()
    assert api.done == []
    assert api.there == [*OTHERS, *first]


def test_what_cannot_be_removed_is_said_and_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(refused="ClusterRoleBinding spark-operators")
    made = grounded(tmp_path, monkeypatch, api)
    made._furnish([])
    made.held.close()
    said = capsys.readouterr().err
    assert "could not remove ClusterRoleBinding spark-operators: (403)" in said
    assert "the cluster: still has ClusterRoleBinding spark-operators; see what keeps them" in said
    assert api.there == [*OTHERS, "ClusterRoleBinding spark-operators"]


def test_the_second_name_of_an_image_has_the_digest_of_its_archive() -> None:
    built = Built(
        "localhost/rekindle-spark:0.1.0",
        Path("rekindle-spark-0123456789abcdef.tar"),
        Path("rekindle-spark-0123456789abcdef.cdx.json"),
    )
    assert cluster_setup._mark(built) == "localhost/rekindle-spark:0123456789abcdef"


def test_the_token_of_the_acted_operators_goes_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grounded(tmp_path, monkeypatch, Api())
    path = made._token_kubeconfig()
    assert "token: secret" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made.held.close()
    assert not path.exists()
