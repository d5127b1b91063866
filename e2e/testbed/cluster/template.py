"""Images, imported once into a template, from which nodes are made by hard links.

Importing takes 27 s for 1.7 GB; linking what came of it takes half a second. Containers never write
to these files: an overlay copies a file before it is changed. Databases are copied.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rekindle.errors import InputError
from testbed.cluster import archives, configuration
from testbed.cluster.archives import BUSYBOX, PAUSE
from testbed.cluster.machine import Machine, end_machines

__all__ = ["BOOTED", "CONTAINERD", "Template", "check_images"]

CONTAINERD = "containerd"
BOOTED = re.compile("containerd successfully booted")


class Template:
    """What a node's containerd starts from: a folder of its kind with images in it."""

    def __init__(self, folder: Path, plugins: Path) -> None:
        self._folder = folder
        self._plugins = plugins

    def make(self, machine: Machine, images: Sequence[Path], busybox: Path) -> None:
        """Import the images, and one of busybox that every pod needs, on a machine for that alone.

        Raises `InputError` for an archive that is none, `RunError` when containerd does not start.
        """
        machine.start()
        basic = machine.settings / "busybox.tar"
        archives.write_archive(basic, archives.read_busybox(busybox), PAUSE, BUSYBOX)
        settings = machine.settings / "containerd.toml"
        settings.write_text(configuration.containerd(self._plugins, machine.settings))
        machine.start_program(CONTAINERD, CONTAINERD, "--config", settings).await_line(BOOTED)
        for image in (basic, *images):
            with image.open("rb") as content:
                machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", content=content)
        machine.stop_program(CONTAINERD)
        source = machine.folder / "lib" / CONTAINERD
        source.rename(self._folder)
        end_machines([machine])

    def copy(self, machine_folder: Path) -> None:
        """Give a machine that is not up yet what its containerd starts from."""
        target = machine_folder / "lib" / CONTAINERD
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--archive", "--link", self._folder, target], check=True)
        for database in target.glob("*/*.db"):
            database.unlink()
            shutil.copy2(self._folder / database.relative_to(target), database)


def check_images(images: Sequence[Path]) -> None:
    """Raises `InputError` for what cannot be an archive of images."""
    for image in images:
        if not image.is_file():
            raise InputError(
                where=f"image {image}",
                what="is not a file",
                remedy="name an archive as `docker save` makes it, or buildah as docker-archive",
            )
