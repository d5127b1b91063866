"""What pip installs into the images, as wheels: packages of others, kept by content, and our own.

pip runs here and not in the image, so that it reaches an index as it does on this machine, and
nothing of that gets into an image. So the Python that runs this must be of the base's version.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from images import programs
from rekindle.errors import InputError
from rekindle_spark import jar
from testbed.programs import run

__all__ = ["build_own", "check_version", "download", "link_or_copy", "requirements"]

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SOURCES = ("recovery", "operator")
READ_SECONDS_MAX = 60.0


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


def download(wanted: str, constraints: Path, folder: Path, *, log: Path) -> None:
    """Put the wheels of requirements into a new folder.

    What has no wheel is built into one. Raises `RunError` when pip fails.
    """
    folder.mkdir()
    file = folder / "requirements.txt"
    file.write_text(wanted, encoding="utf-8")
    options = ["--constraint", str(constraints), "--requirement", str(file)]
    programs.run([*PIP, "wheel", "--wheel-dir", str(folder), *options], log=log)
    file.unlink()


def build_own(root: Path, dist: Path, *, log: Path) -> None:
    """Build Rekindle's wheel, with its jar, into `dist`; the sources stay as they are.

    Raises `InputError` without a JDK to build the jar with, `RunError` when pip fails.
    """
    jar.path()
    copy = dist.with_name(f"{dist.name}-sources")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SOURCES:
        shutil.copytree(root / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(root / name, copy / name)
    programs.run([*PIP, "wheel", "--no-deps", "--wheel-dir", str(dist), str(copy)], log=log)
    shutil.rmtree(copy)


def link_or_copy(source: str, target: str) -> None:
    """For copies of large trees: a second name where the file system allows it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
