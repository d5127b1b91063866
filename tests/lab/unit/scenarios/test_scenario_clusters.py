"""What a cluster that a kube context names has to say of itself, and what is refused."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from rekindle.model.errors import InputError, RunError
from scenarios import scenario_clusters
from scenarios.deployment import EXECUTOR
from scenarios.flights_application import ROLE
from scenarios.kube_contexts import KUBECONFIG, Context
from scenarios.node_commands import KIND, MEANS
from scenarios.scenario_clusters import SHARED, GivenCluster
from testbed.node_objects import ZONE


def given(tmp_path: Path, means: str | None = None, **images: str) -> GivenCluster:
    environment = {SHARED: str(tmp_path), KUBECONFIG: str(tmp_path / "printed.yaml")}
    if means is not None:
        (tmp_path / "means.yaml").write_text(means)
        environment[MEANS] = str(tmp_path / "means.yaml")
    kubectl = tmp_path / "kubectl"
    return GivenCluster(
        "kind-kind", tmp_path / "cluster", environment, kubectl=kubectl, images=images
    )


CONFIGURATION = """
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
    monkeypatch.setattr(scenario_clusters, "LOOK_SECONDS", 0.0)
    (tmp_path / "printed.yaml").write_text(CONFIGURATION)
    program(tmp_path, f"cat {tmp_path}/printed.yaml").rename(tmp_path / "kubectl")


class Nodes:
    """An API server's nodes. Those that are deleted come again, with a kubelet's labels alone."""

    def __init__(self, **labels: dict[str, str]) -> None:
        self.there = {name: self.node(name, found) for name, found in labels.items()}
        self.deleted: list[str] = []

    @staticmethod
    def node(name: str, labels: dict[str, str]) -> Any:
        ready = client.V1NodeCondition(type="Ready", status="True")
        return client.V1Node(
            metadata=client.V1ObjectMeta(name=name, labels=labels),
            spec=client.V1NodeSpec(),
            status=client.V1NodeStatus(conditions=[ready]),
        )

    def list_node(self) -> Any:
        found = list(self.there.values())
        self.there |= {name: self.node(name, {"os": "linux"}) for name in self.deleted}
        self.deleted.clear()
        return SimpleNamespace(items=found)

    def read_node(self, name: str) -> Any:
        if name not in self.there:
            raise ApiException(status=404)
        return self.there[name]

    def patch_node(self, name: str, body: Any) -> None:
        node = self.read_node(name)
        labels = {**node.metadata.labels, **body["metadata"]["labels"]}
        node.metadata.labels = {key: value for key, value in labels.items() if value is not None}
        for field, value in body.get("spec", {}).items():
            setattr(node.spec, field, value)

    def delete_node(self, name: str) -> None:
        del self.there[name]
        self.deleted.append(name)

    def labels(self) -> dict[str, dict[str, str]]:
        return {name: node.metadata.labels for name, node in self.there.items()}


@contextmanager
def entered(tmp_path: Path, nodes: Nodes) -> Iterator[GivenCluster]:
    """A cluster of these nodes whose commands write down what is done."""
    script = program(tmp_path, f'echo "$*" >> {tmp_path}/done')
    means = {name: f"{script} {name} {{node}}" for name in KIND}
    with given(tmp_path, commands(**means)) as cluster:
        cluster._core = nodes
        yield cluster


def done(tmp_path: Path) -> list[str]:
    return (tmp_path / "done").read_text().splitlines()


def commands(**changed: str) -> str:
    return "\n".join(f"{name}: {command!r}" for name, command in {**KIND, **changed}.items())


CONTEXT = Context("kind-kind", "https://127.0.0.1:1", "kubeconfig")


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


def test_a_node_has_the_image_that_was_built_or_is_refused(tmp_path: Path) -> None:
    nodes: Any = Nodes(a={}, b={}, c={ROLE: "executor"})
    images = {"a": ["digest", "spark", "spark:new"], "b": ["spark:new"], "c": []}
    for name, names in images.items():
        found = [client.V1ContainerImage(names=None), client.V1ContainerImage(names=names)]
        nodes.there[name].status.images = found
    cluster = given(tmp_path, spark="spark:new")
    cluster._core = nodes
    with pytest.raises(
        InputError, match="another image than spark:new as spark, or none, on b; lo"
    ):
        cluster._check_images(CONTEXT)
    del nodes.there["b"]
    cluster._check_images(CONTEXT)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("", "SHARED=: is not set, and has to name a folder; name one that all nodes have"),
        ("shared", "SHARED=shared: is not absolute; give the whole path"),
        ("/dev/null", "SHARED=/dev/null: is no folder; name one that all nodes have"),
    ],
)
def test_a_shared_folder_has_to_be_there(named: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenario_clusters.shared_folder({SHARED: named})


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
    program(tmp_path, "true").rename(tmp_path / "kubectl")
    cluster = given(tmp_path)
    with pytest.raises(config.ConfigException):
        cluster.__enter__()
    assert not cluster.kubeconfig.exists()


@pytest.mark.usefixtures("context")
def test_what_is_lost_when_a_scenario_ends_is_brought_back(tmp_path: Path) -> None:
    with entered(tmp_path, Nodes(a={}, b={}, c={}, d={})) as cluster:
        a, b, c, d = cluster.add(4, EXECUTOR)
        cluster.cut(a, b)
        cluster.heal(a)
        cluster.stop_kubelet(c)
        cluster.kill(d, c)
        (tmp_path / "done").write_text("")
    assert done(tmp_path) == ["revive c", "revive d", "heal b", "start_kubelet c"]


@pytest.mark.usefixtures("context")
def test_a_node_that_cannot_be_brought_back_keeps_no_other_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes(a={}, b={})
    with entered(tmp_path, nodes) as cluster:
        cluster.kill(*cluster.add(2, EXECUTOR))
        body = (
            f'echo "$*" >> {tmp_path}/done; test "$2" != a || {{ echo no such node >&2; exit 1; }}'
        )
        program(tmp_path, body)
    assert done(tmp_path)[-2:] == ["revive a", "revive b"]
    assert "could not bring a back" in capsys.readouterr().err
    assert nodes.labels() == {"a": {}, "b": {}}


@pytest.mark.usefixtures("context")
def test_nodes_have_their_labels_again_even_when_they_were_deleted(tmp_path: Path) -> None:
    before = {"os": "linux", "disk": "fast", ZONE: "home"}
    nodes = Nodes(a=dict(before), b=dict(before), c={})
    with entered(tmp_path, nodes) as cluster:
        assert cluster.add(2, EXECUTOR, zones=("zone-a",)) == ("a", "b")
        assert nodes.labels()["a"] == {**before, **EXECUTOR.labels, ZONE: "zone-a"}
        cluster.kill("a")
        nodes.delete_node("a")
        nodes.there["b"].metadata.labels["disk"] = "slow"
    assert nodes.labels() == {"a": before, "b": {**before, "disk": "slow"}, "c": {}}


@pytest.mark.usefixtures("context")
def test_a_node_that_is_cordoned_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario_clusters, "READY_SECONDS_MAX", 0.0)
    nodes = Nodes(a={}, b={ROLE: "executor"}, c={})
    nodes.there["a"].spec.unschedulable = True
    with entered(tmp_path, nodes) as cluster:
        with pytest.raises(InputError, match="has 1 free nodes where 2 are wanted"):
            cluster.add(2, EXECUTOR)
        assert cluster.add(1, EXECUTOR) == ("c",)
        nodes.there["c"].spec.unschedulable = True
    assert nodes.there["a"].spec.unschedulable
    assert not nodes.there["c"].spec.unschedulable


@pytest.mark.usefixtures("context")
def test_nodes_that_a_killed_run_has_left_are_named_with_what_frees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario_clusters, "READY_SECONDS_MAX", 0.0)
    nodes = Nodes(a={}, b={ROLE: "executor"}, c={ROLE: "driver"})
    command = f"`kubectl --context kind-kind label nodes b c {ROLE}-`"
    with entered(tmp_path, nodes) as cluster:
        cluster.add(1, EXECUTOR)
        with pytest.raises(InputError, match=f"if no scenario runs there, .* by {command}"):
            cluster.add(1, EXECUTOR)


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


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program {node}", "cut: begins with no-such-program, which is no program here"),
        ("echo '{node}", "cut: No closing quotation"),
        (["echo", "{node}"], "cut: is .*, and names no node"),
    ],
)
def test_commands_that_could_not_be_run_are_refused_at_once(
    tmp_path: Path, command: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        given(tmp_path, commands(cut=command))


def test_braces_in_a_command_are_its_own(tmp_path: Path) -> None:
    script = program(tmp_path, '[ "$1" = "{x}-a" ]')
    assert given(tmp_path, commands(is_alive=f"{script} {{x}}-{{node}}")).is_alive("a")


def test_a_command_that_nobody_asks_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="says killl, which nobody asks for"):
        given(tmp_path, commands(killl="echo {node}"))


def test_a_command_that_names_no_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="heal: is 'restart it', and names no node"):
        given(tmp_path, commands(heal="restart it"))
