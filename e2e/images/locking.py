"""The locks of what images install: every package with its version and SHA-256, from an index.

    spark-images/locks/
        run.txt, operator.txt    of the images' extras, at the versions of constraints.txt
        build.txt                what builds the packages that come as sources alone

`make lock` writes them with uv, which reads the digests of all files of a version, so that one lock
holds for every machine. No address is in them: who installs says where from.
"""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from images import image_programs, image_wheels
from rekindle.model.errors import InputError
from testbed import program_runs as testbed_programs

# A lock is named by the extra that it is for. Python 3.11 is the oldest that Rekindle runs on.
EXTRAS = ("run", "operator")
BUILD = "build"
BUILD_REQUIREMENTS = "setuptools\nwheel\n"
PYTHON = "3.11"
COMPILE = (
    "pip",
    "compile",
    "--quiet",
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--universal",
    "--python-version",
    PYTHON,
)
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")


def folder(root: Path) -> Path:
    """Where the locks of the project in `root` are."""
    return root / "spark-images" / "locks"


def write(root: Path, *, log: Path) -> None:
    """Write all locks anew. Raises `InputError` without uv, `RunError` when it fails."""
    uv = testbed_programs.find(
        "uv",
        where="uv",
        what="is not installed, and reads the digests of packages from an index",
        remedy="install it, as with `pip install uv`",
    )
    wanted = {extra: image_wheels.requirements(root, [extra]) for extra in EXTRAS}
    wanted[BUILD] = BUILD_REQUIREMENTS
    with tempfile.TemporaryDirectory() as made:
        for name, requirements in wanted.items():
            source, fresh = Path(made) / f"{name}.in", Path(made) / f"{name}.txt"
            source.write_text(requirements, encoding="utf-8")
            options = ["--constraint", "constraints.txt", "--output-file", str(fresh), str(source)]
            image_programs.run([uv, *COMPILE, *options], log=log, folder=root)
            text = fresh.read_text(encoding="utf-8")
            (folder(root) / fresh.name).write_text(text, encoding="utf-8")


def locked(file: Path) -> Mapping[str, str]:
    """The packages of a lock, names in their normal form, with their versions.

    Raises `InputError` for a package without a SHA-256, and for a file that cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            where=str(file), what=f"cannot be read: {error.strerror}", remedy="run `make lock`"
        ) from None
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        matched = _LINE.match(line)
        if matched is None or "--hash=sha256:" not in line:
            raise InputError(
                where=str(file),
                what=f"{line.split(' ')[0]!r:.60} has no version and SHA-256",
                remedy="run `make lock`",
            )
        found[normal(matched["name"])] = matched["version"]
    return found


def normal(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
