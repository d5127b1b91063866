"""Folders that the testbed removes: those that it has made, and nobody else's."""

import os
from pathlib import Path

import pytest

from rekindle.errors import InputError
from testbed import folders
from testbed.__main__ import _owned, main
from testbed.cluster import commands, leftovers, limits, seat
from testbed.cluster.cluster import Cluster
from testbed.cluster.places import Layout
from testbed.control_plane import ControlPlane

REFUSED = "is there already, and no testbed has made it; it would be removed; name another"


@pytest.fixture
def free_seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine on which nobody has a cluster, with a cache of its own."""
    monkeypatch.setattr(seat, "FOLDER", tmp_path / "seat")
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))


def fill(folder: Path) -> Path:
    """Somebody's folder, with something in it."""
    folder.mkdir(parents=True)
    (folder / "theirs").touch()
    return folder


def test_what_was_made_is_ours_and_goes_with_all_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        folders.make(folder)
        (folder / "below").mkdir()
        (folder / "below" / "file").touch()
        (folder / "link").symlink_to(tmp_path)
        folders.check(folder)
        folders.remove(folder)
        assert not folder.exists()
    folders.remove(folder)
    assert tmp_path.exists()


def test_what_holds_something_of_somebody_does_not_become_ours(tmp_path: Path) -> None:
    theirs = fill(tmp_path / "theirs")
    folders.make(theirs)
    assert not folders.is_ours(theirs)
    with pytest.raises(InputError, match=REFUSED):
        folders.check(theirs)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="link: is a link, and no folder; name another"):
        folders.check(tmp_path / "link")
    with pytest.raises(InputError, match=r"link: cannot be made \(File exists\); name another"):
        folders.make(tmp_path / "link")
    (tmp_path / "empty").mkdir()
    folders.check(tmp_path / "empty")
    folders.check(tmp_path / "none")


def test_a_removal_that_was_broken_off_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "machines"
    folders.make(folder)
    for name in "abcdefgh":
        (folder / name).mkdir()

    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folders.shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            folders.remove(folder)
    folders.check(folder)
    folders.remove(folder)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["machines", "control-plane/state"])
def test_a_cluster_refuses_a_directory_with_somebodys_folder(tmp_path: Path, name: str) -> None:
    theirs = fill(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: {REFUSED}"):
        Cluster(directory=tmp_path).start()
    assert (theirs / "theirs").exists()


def test_a_control_plane_refuses_a_directory_with_somebodys_folder(tmp_path: Path) -> None:
    theirs = fill(tmp_path / "state")
    with pytest.raises(InputError, match=REFUSED):
        ControlPlane(directory=tmp_path).start()
    assert (theirs / "theirs").exists()


def test_leftovers_are_marked_folders_of_a_layout(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for folder in (layout.machines, layout.plane, layout.logs, tmp_path / "mine"):
        folders.make(folder)
    fill(layout.shared)
    found = leftovers.find([layout, layout], logs=False)
    assert found.folders == (layout.machines,)
    assert str(layout.machines) in str(found)
    kept = tmp_path / "kept"
    folders.make(kept)
    theirs = fill(tmp_path / "theirs")
    found = leftovers.find([layout], kept, theirs, tmp_path / "none", logs=True)
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
    nothing = leftovers.Leftovers(processes=(), groups=(), link=False, folders=())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    # What this machine has is not to be found, for a cluster may run on it.
    monkeypatch.setattr(leftovers, "find", lambda *_, **__: nothing)
    monkeypatch.setattr(leftovers, "remove", lambda _: None)
    monkeypatch.setattr(limits, "put_back", lambda _: None)
    named, ours = tmp_path / "named", commands.default_directory()
    for folder in (seat.FOLDER, named, ours):
        folder.mkdir(parents=True)
    seat.write(seat.Record(1, named, 128))
    assert main(["cluster", "clean"]) == 0
    assert "nothing, there was nothing left" in capsys.readouterr().out
    assert named.exists()
    assert not ours.exists()
    assert not seat.FOLDER.exists()
