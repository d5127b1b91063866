"""Folders that the testbed removes: those that it has made, and nobody else's."""

import os
import shutil
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from testbed import owned_folders
from testbed.__main__ import _owned, main
from testbed.cluster import cluster_cleanup, cluster_commands, cluster_lock, kernel_limits
from testbed.cluster.machine_names import ClusterFolders
from testbed.cluster.node_cluster import NodeCluster
from testbed.control_plane import ControlPlane

REFUSED = "is there already, and no testbed has made it; it would be removed; name another"


@pytest.fixture
def free_seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine on which nobody has a cluster, with a cache of its own."""
    monkeypatch.setattr(cluster_lock, "FOLDER", tmp_path / "seat")
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))


def fill(folder: Path) -> Path:
    """Somebody's folder, with something in it."""
    folder.mkdir(parents=True)
    (folder / "theirs").touch()
    return folder


def test_what_was_made_is_ours_and_goes_with_all_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        owned_folders.make(folder)
        (folder / "below").mkdir()
        (folder / "below" / "file").touch()
        (folder / "link").symlink_to(tmp_path)
        owned_folders.check(folder)
        owned_folders.remove(folder)
        assert not folder.exists()
    owned_folders.remove(folder)
    assert tmp_path.exists()


def test_what_holds_something_of_somebody_does_not_become_ours(tmp_path: Path) -> None:
    theirs = fill(tmp_path / "theirs")
    owned_folders.make(theirs)
    assert not owned_folders.is_ours(theirs)
    with pytest.raises(InputError, match=REFUSED):
        owned_folders.check(theirs)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="link: is a link, and no folder; name another"):
        owned_folders.check(tmp_path / "link")
    with pytest.raises(InputError, match=r"link: cannot be made \(File exists\); name another"):
        owned_folders.make(tmp_path / "link")
    (tmp_path / "empty").mkdir()
    owned_folders.check(tmp_path / "empty")
    owned_folders.check(tmp_path / "none")


def test_a_removal_that_was_broken_off_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "machines"
    owned_folders.make(folder)
    for name in "abcdefgh":
        (folder / name).mkdir()

    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            owned_folders.remove(folder)
    owned_folders.check(folder)
    owned_folders.remove(folder)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["machines", "control-plane/state"])
def test_a_cluster_refuses_a_directory_with_somebodys_folder(tmp_path: Path, name: str) -> None:
    theirs = fill(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: {REFUSED}"):
        NodeCluster(directory=tmp_path).start()
    assert (theirs / "theirs").exists()


def test_a_control_plane_refuses_a_directory_with_somebodys_folder(tmp_path: Path) -> None:
    theirs = fill(tmp_path / "state")
    with pytest.raises(InputError, match=REFUSED):
        ControlPlane(directory=tmp_path).start()
    assert (theirs / "theirs").exists()


def test_leftovers_are_marked_folders_of_a_layout(tmp_path: Path) -> None:
    layout = ClusterFolders(tmp_path)
    for folder in (layout.machines, layout.plane, layout.logs, tmp_path / "mine"):
        owned_folders.make(folder)
    fill(layout.shared)
    found = cluster_cleanup.find([layout, layout], logs=False)
    assert found.folders == (layout.machines,)
    assert str(layout.machines) in str(found)
    kept = tmp_path / "kept"
    owned_folders.make(kept)
    theirs = fill(tmp_path / "theirs")
    found = cluster_cleanup.find([layout], kept, theirs, tmp_path / "none", logs=True)
    assert found.folders == (layout.machines, layout.plane, layout.logs, kept)


@pytest.mark.parametrize("owner", ["", "17\n"])
def test_up_refuses_a_directory_that_holds_something_else(owner: str, tmp_path: Path) -> None:
    fill(tmp_path / "lost")
    if owner:
        (tmp_path / "owner").write_text(owner)
    refused = "is not empty, and no control plane has been there"
    with pytest.raises(InputError, match=refused), _owned(tmp_path):
        pass
    assert (tmp_path / "lost" / "theirs").exists()


@pytest.mark.usefixtures("free_seat")
def test_clean_leaves_an_empty_directory_that_somebody_has_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = cluster_cleanup.Leftovers(processes=(), groups=(), link=False, folders=())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    # What this machine has is not to be found, for a cluster may run on it.
    monkeypatch.setattr(cluster_cleanup, "find", lambda *_, **__: nothing)
    monkeypatch.setattr(cluster_cleanup, "remove", lambda _: None)
    monkeypatch.setattr(kernel_limits, "put_back", lambda _: None)
    named, ours = tmp_path / "named", cluster_commands.default_directory()
    for folder in (cluster_lock.FOLDER, named, ours):
        folder.mkdir(parents=True)
    cluster_lock.write(cluster_lock.ClusterRecord(1, named, 128))
    assert main(["cluster", "clean"]) == 0
    assert "nothing, there was nothing left" in capsys.readouterr().out
    assert named.exists()
    assert not ours.exists()
    assert not cluster_lock.FOLDER.exists()
