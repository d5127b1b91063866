"""What is looked at before anything is built, and that all that is amiss is said at once."""

import os
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from scenarios import __main__ as command
from scenarios import scenario_prerequisites
from scenarios.kube_contexts import CONTEXT, KUBECONFIG
from scenarios.node_commands import MEANS
from scenarios.scenario_clusters import SHARED
from testbed.cluster import cluster_prerequisites as machine


def test_of_a_given_cluster_everything_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CONTEXT, "kind-kind")
    monkeypatch.setenv(KUBECONFIG, str(tmp_path / "kubeconfig"))
    monkeypatch.setenv(SHARED, "shared")
    monkeypatch.setenv(MEANS, "no-such-file")
    assert command.main(["wave", "--report", str(tmp_path / "file")]) == 2
    said = capsys.readouterr().err
    for fault in (
        f"{tmp_path / 'file'}: is no folder; name another folder by --report",
        f"KUBECONFIG={tmp_path / 'kubeconfig'}: names no file",
        "REKINDLE_E2E_SHARED=shared: is not absolute",
        "REKINDLE_E2E_MEANS=no-such-file: ",
        "Go is not installed",
        "buildah: is not installed",
    ):
        assert fault in said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_root_a_cluster_of_our_own_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))
    monkeypatch.delenv(CONTEXT, raising=False)
    monkeypatch.setenv(SHARED, "/srv")
    monkeypatch.setenv(MEANS, "means.yaml")
    with pytest.raises(InputError) as caught:
        scenario_prerequisites.check(["wave"], tmp_path)
    said = str(caught.value)
    assert "the cluster of real nodes: needs root; run it as root" in said
    assert f"{SHARED}, {MEANS}: is for a cluster that {CONTEXT} names, and that is not set" in said


def test_a_folder_that_nodes_do_not_see_is_refused_by_the_option_that_names_it() -> None:
    with pytest.raises(InputError, match=r"is below /run, .*; name another folder by --report$"):
        machine.check_folder(Path("/run/here"), "--report")
