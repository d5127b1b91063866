"""The engines that build images: how they store layers, and what they remove of earlier builds."""

import os
from pathlib import Path

import pytest

from images import base_images, build_engines, image_builder
from images.__main__ import main
from images.build_engines import BuildEngine
from rekindle.model.errors import InputError

# Writes down how it was called, and fails where a file says so.
BUILDAH = """#!/bin/sh
echo "$@" >> "$FOLDER/calls"
mkdir -p "$2/layers"
[ ! -e "$FOLDER/broken" ]
"""


DOCKER = """#!/bin/sh
exit 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a `buildah` that is found first of all."""
    (tmp_path / "buildah").write_text(BUILDAH)
    (tmp_path / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.delenv(build_engines.VARIABLE, raising=False)
    return tmp_path


def test_layers_are_copied_only_as_long_as_overlays_fail(folder: Path) -> None:
    storage = folder / "storage"
    (folder / "broken").touch()
    for _ in range(2):
        assert build_engines.find(storage).options[-1] == "vfs"
        assert not (storage / "overlay").exists()
    (storage / "vfs").mkdir()
    (folder / "broken").unlink()
    assert build_engines.find(storage).options[-1] == "overlay"
    assert not (storage / "vfs").exists()
    (folder / "broken").touch()
    assert build_engines.find(storage).options[-1] == "overlay", "its layers are there"
    assert (storage / "overlay" / "layers").exists()


def test_layers_without_a_name_are_removed_from_our_own_storage_alone(folder: Path) -> None:
    build_engines.find(folder / "storage").prune(log=folder / "log")
    called = (folder / "calls").read_text().splitlines()[-1]
    assert called.startswith(f"--root {folder}/storage/overlay ")
    assert called.endswith(" rmi --prune --force")
    BuildEngine("docker").prune(log=folder / "log")
    assert not (folder / "log").read_text()


def test_containers_of_builds_that_were_killed_are_removed_from_our_own_storage(
    folder: Path,
) -> None:
    build_engines.find(folder / "storage").clear(log=folder / "log")
    called = (folder / "calls").read_text().splitlines()[-1]
    assert called.startswith(f"--root {folder}/storage/overlay ")
    assert called.endswith(" rm --all")
    BuildEngine("docker").clear(log=folder / "log")


def test_all_but_the_newest_of_what_was_built_is_removed(tmp_path: Path) -> None:
    for age, name in enumerate(("used.tar", "new", "old", "oldest.tar")):
        path = tmp_path / name
        if path.suffix:
            path.touch()
        else:
            path.mkdir()
            (path / "file").touch()
        os.utime(path, (1_000 - age, 1_000 - age))
    image_builder._forget(tmp_path.glob("*"), 2)
    assert {path.name for path in tmp_path.iterdir()} == {"used.tar", "new"}
    image_builder._forget(tmp_path.glob("*"), 2)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("wanted", ["", "docker"])
def test_a_docker_whose_daemon_is_down_is_not_called_missing(
    wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build_engines.VARIABLE, wanted)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="is not installed"):
        build_engines.find_name()
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(InputError, match=r"^docker: is installed, but its daemon does not answer"):
        build_engines.find_name()


def test_all_that_images_lack_is_said_before_one_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv(build_engines.VARIABLE, raising=False)
    monkeypatch.setattr(base_images, "SOURCES", ())
    assert main(["build", "operator"]) == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "prerequisites: 4 are missing or wrong; see to each:"
    engine, program, sources, root = lines
    assert "buildah: is not installed, nor podman or docker" in engine
    assert "mmdebstrap: is not installed" in program
    assert "names no source of Debian" in sources
    assert "needs root to be made; run this as root, or give `images build` a --base-image" in root
    assert not (tmp_path / "cache").exists()
    assert len(image_builder.lacking(base_image="debian")) == 1, "what is pulled is not made"
