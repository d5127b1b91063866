"""What pip installs into the images, as wheels: packages of others, kept by content, and our own.

pip runs here and not in the image, so that it reaches an index as it does on this machine, and
nothing of that gets into an image. So the Python that runs this must be of the base's version.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from images import image_programs
from rekindle.model.errors import InputError
from rekindle_spark.spark import jvm_build
from testbed.program_runs import run

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SOURCES = ("recovery", "operator")
READ_SECONDS_MAX = 60.0
# Read by spark-images/packages.sh.
SUMS = "SHA256SUMS"


def requirements(root: Path, extras: Sequence[str]) -> str:
    """What Rekindle in `root` needs with some of its extras, a line each."""
    script = root / "spark-images" / "requirements.py"
    return run(
        [sys.executable, script, *extras],
        where=str(script),
        remedy="see whether pyproject.toml has these extras",
        seconds_max=READ_SECONDS_MAX,
        cwd=root,
    )


def check_version(version: tuple[int, int]) -> None:
    """Refuse a base whose Python takes other wheels than ours. Raises `InputError`."""
    if version != sys.version_info[:2]:
        wanted = ".".join(map(str, version))
        raise InputError(
            where="Python",
            what=f"is {sys.version.split()[0]}, and the base's is {wanted}: they share no wheels",
            remedy=f"run this with Python {wanted}, or give another --base-image",
        )


def download(lock: Path, tools_lock: Path, folder: Path, *, log: Path) -> None:
    """Put the wheels that a lock names into a new folder, with their sums for who installs them.

    What comes as sources alone is built into a wheel, by tools of a lock too. Raises `RunError`
    when pip fails, as for a file with another SHA-256 than the lock says.
    """
    folder.mkdir()
    locked = ["--no-deps", "--require-hashes", "--requirement"]
    with tempfile.TemporaryDirectory() as tools:
        image_programs.run([*PIP, "install", "--target", tools, *locked, str(tools_lock)], log=log)
        image_programs.run(
            [*PIP, "wheel", "--no-build-isolation", "--wheel-dir", str(folder), *locked, str(lock)],
            log=log,
            environment={"PYTHONPATH": tools},
        )
    (folder / SUMS).write_text("".join(_sums(folder)), encoding="utf-8")


def _sums(folder: Path) -> Iterator[str]:
    """A line for each wheel, as `sha256sum --check` reads it."""
    for wheel in sorted(folder.glob("*.whl")):
        with wheel.open("rb") as file:
            yield f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {wheel.name}\n"


def build_own(root: Path, dist: Path, *, log: Path) -> None:
    """Build Rekindle's wheel, with its jar, into `dist`; the sources stay as they are.

    Raises `InputError` without a JDK to build the jar with, `RunError` when pip fails.
    """
    jvm_build.path()
    copy = dist.with_name(f"{dist.name}-sources")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SOURCES:
        shutil.copytree(root / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(root / name, copy / name)
    image_programs.run([*PIP, "wheel", "--no-deps", "--wheel-dir", str(dist), str(copy)], log=log)
    shutil.rmtree(copy)
