"""Images, imported once into a template, from which nodes are made by hard links.

Importing takes 27 s for 1.7 GB; linking what came of it takes half a second. Containers never write
to these files: an overlay copies a file before it is changed. Databases are copied. The newest
template is kept for the next cluster of the same images, where the cache is on the same disk.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from rekindle.model.errors import InputError
from testbed import owned_folders, program_runs, test_programs
from testbed.cluster import containerd_images, node_configuration
from testbed.cluster.containerd_images import BUSYBOX, PAUSE
from testbed.cluster.machine_namespaces import NamespacedMachine, end_machines

CONTAINERD = "containerd"
COPY_SECONDS_MAX = 600.0
BOOTED = re.compile("containerd successfully booted")


def kept_folder() -> Path:
    """Where the newest template stays beyond its cluster."""
    return test_programs.cache_folder(os.environ) / "templates"


class NodeTemplate:
    """What a node's containerd starts from: a folder of its kind with images in it.

    `images` are archives, beside which there is one of `busybox` that every pod needs.
    `folder` takes the template where it cannot be kept.
    """

    def __init__(self, images: Sequence[Path], busybox: Path, plugins: Path, folder: Path) -> None:
        self._images = (busybox, *images)
        self._plugins = plugins
        self._kept = kept_folder() / self._digest()
        self._folder = self._kept if self._kept.is_dir() else folder

    @property
    def is_made(self) -> bool:
        """Whether nothing has to be imported any more."""
        return self._folder.is_dir()

    def make(self, machine: NamespacedMachine) -> None:
        """Import the images, on a machine for that alone.

        Raises `InputError` for an archive that is none, `RunError` when containerd does not start.
        """
        busybox, *images = self._images
        machine.start()
        basic = machine.settings / "busybox.tar"
        containerd_images.write_archive(
            basic, containerd_images.read_busybox(busybox), PAUSE, BUSYBOX
        )
        settings = machine.settings / "containerd.toml"
        settings.write_text(node_configuration.containerd(self._plugins, machine.settings))
        machine.start_program(CONTAINERD, CONTAINERD, "--config", settings).await_line(BOOTED)
        for image in (basic, *images):
            with image.open("rb") as content:
                machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", content=content)
        machine.stop_program(CONTAINERD)
        source = machine.folder / "lib" / CONTAINERD
        source.rename(self._folder)
        end_machines([machine])
        if images:
            self._keep()

    def _keep(self) -> None:
        """For the next cluster, in place of what was kept before, and of nothing else."""
        if owned_folders.is_ours(self._kept.parent):
            owned_folders.remove(self._kept.parent)
        owned_folders.make(self._kept.parent)
        if not owned_folders.is_ours(self._kept.parent):
            return
        try:
            self._folder.rename(self._kept)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            self._folder = self._kept

    def _digest(self) -> str:
        """Of the archives, as far as their names, sizes and times tell."""
        stats = [(path, path.stat()) for path in self._images]
        about = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats)
        return hashlib.sha256(about.encode()).hexdigest()[:16]

    def copy(self, machine_folder: Path) -> None:
        """Give a machine that is not up yet what its containerd starts from."""
        target = machine_folder / "lib" / CONTAINERD
        target.parent.mkdir(parents=True, exist_ok=True)
        program_runs.run(
            ["cp", "--archive", "--link", self._folder, target],
            where=str(target),
            remedy="see whether its disk is full",
            seconds_max=COPY_SECONDS_MAX,
        )
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
