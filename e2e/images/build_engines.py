"""Who builds: buildah, else podman, else a docker that answers. `REKINDLE_IMAGE_ENGINE` names one.

Buildah and podman keep what they build in a folder of ours, never in the user's storage; docker has
one storage only. Where a machine lacks user namespaces or overlays, buildah as root still builds
with chroot and plain copies: overlays are tried, and once they work that is written down beside the
storage.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from images import image_programs
from rekindle.model.errors import InputError

# The engines by their preference, and the Debian packages that have them.
PACKAGES = {"buildah": "buildah", "podman": "podman", "docker": "docker.io"}
NAMES = tuple(PACKAGES)
VARIABLE = "REKINDLE_IMAGE_ENGINE"
ANSWER_SECONDS_MAX = 60
OVERLAY, COPIES = "overlay", "vfs"
# Podman's own removal does not see the containers of builds.
CLEAR = {"buildah": ("rm", "--all")}
# By force: a container that podman's builds have left would hold its image.
PRUNE = {"buildah": ("rmi", "--prune", "--force"), "podman": ("image", "prune", "--force")}


@dataclass(frozen=True, slots=True)
class BuildEngine:
    """A program that builds images; `options` go before its commands."""

    name: str
    options: tuple[str, ...] = ()

    def build(
        self,
        reference: str,
        *,
        file: Path,
        context: Path,
        arguments: Mapping[str, str],
        log: Path,
    ) -> None:
        """Build the image of a Dockerfile under a name. Raises `RunError` when it fails."""
        said = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        flags = ["--file", str(file), "--tag", reference, *said]
        if self.name == "docker":
            command = ["docker", "build", *flags, str(context)]
        else:
            # No process gets a network of its own: packages are in the context.
            how = ["--isolation", "chroot", "--layers", "--format", "docker", "--network", "host"]
            command = [self.name, *self.options, "build", *how, *flags, str(context)]
        image_programs.run(command, log=log, environment={"DOCKER_BUILDKIT": "1"})

    def save(self, reference: str, archive: Path, *, log: Path) -> None:
        """Write an image to a new file, as an archive that `docker load` and `ctr` read."""
        if self.name == "buildah":
            target = f"docker-archive:{archive}:{reference}"
            command = ["buildah", *self.options, "push", "--quiet", reference, target]
        else:
            command = [self.name, *self.options, "save", "--output", str(archive), reference]
        image_programs.run(command, log=log)

    def clear(self, *, log: Path) -> None:
        """Remove the containers, and their mounts, of builds that were killed in our own storage.

        Nothing else builds there meanwhile. Raises `RunError` when one cannot be removed.
        """
        if self.name in CLEAR:
            image_programs.run([self.name, *self.options, *CLEAR[self.name]], log=log)

    def prune(self, *, log: Path) -> None:
        """Remove layers that no named image has; docker's storage is the user's and stays as it is.

        The next build makes them anew. Raises `RunError` when something cannot be removed.
        """
        if self.name in PRUNE:
            image_programs.run([self.name, *self.options, *PRUNE[self.name]], log=log)


def find(storage: Path) -> BuildEngine:
    """The engine to use, and its storage made ready. Raises `InputError` as `find_name`."""
    name = find_name()
    return BuildEngine(name, () if name == "docker" else _options(name, storage))


def find_name() -> str:
    """The name of the engine to use. Raises `InputError` where there is none that could build."""
    wanted = os.environ.get(VARIABLE)
    if wanted and wanted not in NAMES:
        raise InputError(
            where=VARIABLE, what=f"is {wanted!r:.40}", remedy=f"give one of {', '.join(NAMES)}"
        )
    installed = [name for name in ((wanted,) if wanted else NAMES) if shutil.which(name)]
    for name in installed:
        # Without its daemon docker builds nothing.
        if name != "docker" or _succeeds("docker", "info"):
            return name
    if installed:
        raise InputError(
            where="docker",
            what="is installed, but its daemon does not answer",
            remedy="see what `docker info` says, or `apt-get install buildah`, which needs none",
        )
    name = wanted or "buildah"
    raise InputError(
        where=name,
        what="is not installed" if wanted else "is not installed, nor podman or docker",
        remedy=f"install it, on Debian `apt-get install {PACKAGES[name]}`",
    )


def _succeeds(*command: str) -> bool:
    """Whether a question is answered in time."""
    try:
        asked = subprocess.run(
            command, capture_output=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


def _options(name: str, storage: Path) -> tuple[str, ...]:
    """Those for the storage driver: overlays where the engine lists its images with them.

    That they fail is not written down: what was in their way may be gone the next time.
    """
    storage.mkdir(parents=True, exist_ok=True)
    noted, overlay = storage / "driver", _with_driver(storage, OVERLAY)
    if noted.exists() and noted.read_text() == OVERLAY:
        return overlay
    if _succeeds(name, *overlay, "images"):
        noted.write_text(OVERLAY)
        shutil.rmtree(storage / COPIES, ignore_errors=True)
        return overlay
    shutil.rmtree(storage / OVERLAY, ignore_errors=True)
    return _with_driver(storage, COPIES)


def _with_driver(storage: Path, driver: str) -> tuple[str, ...]:
    root = storage / driver
    return ("--root", str(root), "--runroot", str(root / "run"), "--storage-driver", driver)
