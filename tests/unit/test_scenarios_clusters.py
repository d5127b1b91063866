"""What a cluster that a kube context names has to say of itself, and what is refused."""

import stat
from pathlib import Path

import pytest
from kubernetes import config

from rekindle.errors import InputError, RunError
from scenarios.clusters import SHARED, GivenCluster
from scenarios.means import KIND, MEANS


def given(tmp_path: Path, means: str | None = None) -> GivenCluster:
    environment = {SHARED: str(tmp_path)}
    if means is not None:
        (tmp_path / "means.yaml").write_text(means)
        environment[MEANS] = str(tmp_path / "means.yaml")
    return GivenCluster("kind-kind", tmp_path / "cluster", environment, tmp_path / "kubectl")


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: kind, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: secret}}]
contexts: [{name: kind-kind, context: {cluster: kind, user: me}}]
current-context: kind-kind
"""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig with a context, and the kubectl that prints it."""
    contexts = [{"name": "kind-kind"}]
    monkeypatch.setattr(config, "list_kube_config_contexts", lambda: (contexts, contexts[0]))
    (tmp_path / "printed.yaml").write_text(KUBECONFIG)
    program(tmp_path, f"cat {tmp_path}/printed.yaml").rename(tmp_path / "kubectl")


def commands(**changed: str) -> str:
    return "\n".join(f"{name}: {command!r}" for name, command in {**KIND, **changed}.items())


def program(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("means", "message"),
    [
        ("kill: docker kill {node}", "does not say cut, heal"),
        ("- kill", "does not say everything"),
        ("a: b: c", "mapping values are not allowed"),
    ],
)
def test_means_that_lack_a_command_are_refused(tmp_path: Path, means: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        given(tmp_path, means)


def test_a_shared_folder_has_to_be_there() -> None:
    with pytest.raises(InputError, match="is no folder; name one that all nodes have"):
        GivenCluster("kind-kind", Path("cluster"), {}, Path("kubectl"))


@pytest.mark.usefixtures("context")
def test_the_keys_of_a_cluster_are_its_owners_and_go_with_the_run(tmp_path: Path) -> None:
    with given(tmp_path) as cluster:
        assert "token: secret" in cluster.kubeconfig.read_text()
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
        assert cluster.shared.is_dir()
    assert not cluster.kubeconfig.exists()
    assert not cluster.shared.exists()


@pytest.mark.usefixtures("context")
def test_the_keys_of_a_cluster_go_where_it_cannot_be_entered_too(tmp_path: Path) -> None:
    (tmp_path / "printed.yaml").write_text("")
    cluster = given(tmp_path)
    with pytest.raises(config.ConfigException):
        cluster.__enter__()
    assert not cluster.kubeconfig.exists()


def test_nodes_are_lost_by_the_command_of_the_cluster(tmp_path: Path) -> None:
    told = tmp_path / "told"
    cluster = given(tmp_path, commands(cut=f"{program(tmp_path, f'echo $1 >> {told}')} {{node}}"))
    cluster.cut("a", "b")
    assert sorted(told.read_text().split()) == ["a", "b"]


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    script = program(tmp_path, "echo no such node >&2; exit 3")
    cluster = given(tmp_path, commands(heal=f"{script} {{node}}", is_alive=f"{script} {{node}}"))
    with pytest.raises(RunError, match="no such node"):
        cluster.heal("a")
    assert not cluster.is_alive("a")


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-program: is not installed"):
        given(tmp_path, commands(cut="no-such-program {node}")).cut("a")


def test_a_command_that_names_no_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="heal: is 'restart it', and names no node"):
        given(tmp_path, commands(heal="restart it"))
