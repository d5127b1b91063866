"""Folders that the testbed removes: those that it has made, and nobody else's."""

from pathlib import Path

import pytest

from rekindle.errors import InputError
from testbed import folders
from testbed.__main__ import main
from testbed.cluster import leftovers
from testbed.cluster.cluster import Cluster
from testbed.cluster.places import Layout
from testbed.control_plane import ControlPlane

REFUSED = "is there already, and no testbed has made it; it would be removed; name another"


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


def test_up_refuses_a_directory_that_holds_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "lost")
    assert main(["up", "--directory", str(tmp_path)]) == 2
    assert "is not empty, and no control plane has been there" in capsys.readouterr().err
    assert (tmp_path / "lost" / "theirs").exists()
