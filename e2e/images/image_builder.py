"""What an image is made of, its digest, and the archive that is kept under it.

    ~/.cache/rekindle/testbed/images/
        bases/         roots of Debian's packages
        wheels/        what pip installs, by lock
        archives/      the images, NAME-DIGEST.tar, each with NAME-DIGEST.cdx.json: what is in it
        storage/       the engine's, so that layers are made once
        log            what programs have printed in the last build

An archive appears whole or not at all, a second builder waits for the first, and what is there is
not built again; of each image, its bases and wheels the last two are kept, and of the storage what
has a name, once it is large. The digest is of all files that go in, and of the base.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import rekindle
from images import base_images, build_engines, image_archives, image_wheels, locking
from images.base_images import Base
from images.build_engines import BuildEngine
from rekindle.model.errors import InputError, RunError
from rekindle_local import cached_files
from testbed import environment_faults, test_programs, workshops
from testbed.program_runs import run

ROOT = Path(__file__).parents[2]
NO_INDEX = {"PIP_NO_INDEX": "1"}
KEPT = 2
# Made in the image by spark-images/sbom.py.
SBOM = "opt/rekindle/sbom.cdx.json"
# On overlays, named images take 2.5 GB of it, and twenty builds as much again.
STORAGE_BYTES_MAX = 20 * 10**9
SIZE_SECONDS_MAX = 600.0
Progress = Callable[[str], None]
_PINNED = re.compile(r"@sha256:[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class Image:
    """An image of ours: its Dockerfile, the lock of its packages, its base where none is pulled."""

    name: str
    file: str
    lock: str
    base: Base

    @property
    def reference(self) -> str:
        """Its name for a container engine and for pods. No registry has `localhost`."""
        return f"localhost/{self.name}:{rekindle.__version__}"


@dataclass(frozen=True, slots=True)
class Built:
    """An image in a file, as `ctr images import` and `docker load` take it, and what is in it."""

    reference: str
    archive: Path
    document: Path


IMAGES = {
    "spark": Image("rekindle-spark", "spark-images/Dockerfile", "run", base_images.SPARK),
    "operator": Image("rekindle", "Dockerfile", "operator", base_images.OPERATOR),
}


def build(
    name: str, *, base_image: str | None = None, progress: Progress = test_programs.say
) -> Built:
    """The image of a name of `IMAGES`, built first where it is not there.

    With a `base_image` that is pulled, and packages come from an index. Raises `InputError` for
    programs that are missing, `RunError` when a program fails.
    """
    image, cache = IMAGES[name], _cache()
    archive = _archive(image, base_image)
    if not _is_there(archive):
        with workshops.alone(cache, progress):
            if not _is_there(archive):
                _Building(image, cache, progress).make(archive, base_image)
    return Built(image.reference, archive, _document(archive))


def check_pinned(base_image: str) -> None:
    """Refuse a base that is not named by its digest, as the images do. Raises `InputError`."""
    if not _PINNED.search(base_image):
        raise InputError(
            where="--base-image",
            what=f"{base_image!r:.80} is not named by its digest: what a tag names changes",
            remedy="give NAME@sha256:DIGEST, as `docker buildx imagetools inspect` shows it",
        )


def lacking(names: Iterable[str] = IMAGES, *, base_image: str | None = None) -> list[InputError]:
    """Why these images can neither be found nor built; nothing where they can."""
    cache = _cache()
    missing = [
        image
        for image in map(IMAGES.__getitem__, names)
        if not _is_there(_archive(image, base_image))
    ]
    if not missing:
        return []
    found = environment_faults.raised(lambda: workshops.check(cache))
    found.extend(environment_faults.raised(build_engines.find_name))
    if not base_image and not all(_is_there(_base_tar(cache, image.base)) for image in missing):
        found.extend(base_images.lacking())
    return found


def _is_there(path: Path) -> bool:
    """Whether this user may read it, if it exists."""
    return os.access(path, os.R_OK)


@dataclass(frozen=True, slots=True)
class _Building:
    image: Image
    cache: Path
    progress: Progress

    @property
    def log(self) -> Path:
        return self.cache / "log"

    @property
    def storage(self) -> Path:
        return self.cache / "storage"

    def make(self, archive: Path, base_image: str | None) -> None:
        engine = build_engines.find(self.storage)
        archive.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        engine.clear(log=self.log)
        with workshops.opened(self.cache) as workshop:
            context = workshop / "context"
            if base_image:
                arguments = {"BASE_IMAGE": base_image}
            else:
                arguments = self._own_base(engine, workshop)
            self._fill(context, None if base_image else self._wheels(workshop))
            self.progress(f"building {self.image.reference} with {engine.name}: minutes, once")
            engine.build(
                self.image.reference,
                file=ROOT / self.image.file,
                context=context,
                arguments=arguments,
                log=self.log,
            )
            fresh = workshop / archive.name
            engine.save(self.image.reference, fresh, log=self.log)
            document = _document(archive)
            document.write_bytes(image_archives.file(fresh, SBOM))
            fresh.rename(archive)
        _forget(archive.parent.glob(f"{self.image.name}-????????????????.cdx.json"), KEPT)
        _forget(archive.parent.glob(f"{self.image.name}-????????????????.tar"), KEPT)
        _forget((self.cache / "bases").glob(f"{self.image.base.name}-*"), KEPT)
        _forget((self.cache / "wheels").glob("*"), KEPT * len(IMAGES))
        self._prune(engine)

    def _prune(self, engine: BuildEngine) -> None:
        try:
            if _size_bytes(self.storage) > STORAGE_BYTES_MAX:
                self.progress(f"removing what earlier builds have left in {self.storage}")
                engine.prune(log=self.log)
        except RunError as error:  # what was built is there all the same
            self.progress(str(error))

    def _own_base(self, engine: BuildEngine, workshop: Path) -> dict[str, str]:
        """The base of Debian's packages, as an image; and that packages of Python are at hand."""
        base = self.image.base
        tar = _base_tar(self.cache, base)
        if not tar.exists():
            self.progress(
                f"making a base of Debian's packages for {self.image.name}: a minute, once"
            )
            tar.parent.mkdir(parents=True, exist_ok=True)
            fresh = workshop / tar.name
            base_images.make(base, fresh, log=self.log)
            fresh.rename(tar)
        image_wheels.check_version(base_images.python_version(tar))
        # Always the same, so that an older base loses its name and can be removed.
        reference = f"localhost/rekindle-base-{base.name}:1"
        context = workshop / "base"
        context.mkdir()
        cached_files.link_or_copy(tar, context / "root.tar")
        file = context / "Dockerfile"
        file.write_text("FROM scratch\nADD root.tar /\n", encoding="utf-8")
        engine.build(reference, file=file, context=context, arguments={}, log=self.log)
        return {"BASE_IMAGE": reference, **NO_INDEX}

    def _wheels(self, workshop: Path) -> Path:
        lock, tools = (
            locking.folder(ROOT) / f"{name}.txt" for name in (self.image.lock, locking.BUILD)
        )
        texts = (file.read_text(encoding="utf-8") for file in (lock, tools))
        about = (*texts, sys.version, platform.machine())
        folder = self.cache / "wheels" / _short("\n".join(about))
        if not folder.exists():
            self.progress(f"fetching the packages of {self.image.name}: minutes, once")
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = workshop / "wheels"
            image_wheels.download(lock, tools, fresh, log=self.log)
            fresh.rename(folder)
        folder.touch()  # those that are in use are the newest
        return folder

    def _fill(self, context: Path, packages: Path | None) -> None:
        """What the Dockerfiles take, in the places where they take it from."""
        shutil.copytree(ROOT / "spark-images", context / "spark-images")
        image_wheels.build_own(ROOT, context / "dist", log=self.log)
        if packages is not None:
            shutil.copytree(
                packages,
                context / "spark-images" / "wheels",
                copy_function=cached_files.link_or_copy,
                dirs_exist_ok=True,
            )


def digest(image: Image, base_image: str | None) -> str:
    """Of all that goes into an image: files in the order of their paths, and its base."""
    found = hashlib.sha256(f"{image}\0{base_image}\0{image.base.description()}\0".encode())
    for path in _sources(image):
        found.update(f"{path.relative_to(ROOT)}\0{path.stat().st_mode & 0o111}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _cache() -> Path:
    return test_programs.cache_folder(os.environ) / "images"


def _archive(image: Image, base_image: str | None) -> Path:
    return _cache() / "archives" / f"{image.name}-{digest(image, base_image)}.tar"


def _document(archive: Path) -> Path:
    """Beside an archive, the CycloneDX document of what is in it."""
    return archive.with_suffix(".cdx.json")


def _base_tar(cache: Path, base: Base) -> Path:
    return cache / "bases" / f"{base.name}-{_short(base.description())}.tar"


def _sources(image: Image) -> Iterator[Path]:
    yield ROOT / image.file
    yield from (ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE"))
    for folder in ("operator", "recovery", "spark-images"):
        for path in sorted((ROOT / folder).rglob("*")):
            generated = path.suffix in (".pyc", ".jar", ".tmp") or ".egg-info" in str(path)
            if path.is_file() and not generated:
                yield path


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _forget(paths: Iterable[Path], kept: int) -> None:
    """Remove all but the newest: archives of gigabytes come with every change."""
    ordered = sorted(paths, key=lambda path: path.stat().st_mtime)
    for old in ordered[:-kept]:
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()


def _size_bytes(folder: Path) -> int:
    """Of all files below a folder, as they lie on the disk."""
    told = run(
        ["du", "--summarize", "--block-size=1", str(folder)],
        where=f"du {folder}",
        remedy="see whether its disk is well",
        seconds_max=SIZE_SECONDS_MAX,
    )
    return int(told.split()[0])
