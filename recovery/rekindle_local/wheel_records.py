"""What a wheel recorded about its files when pip installed it: path, digest and size.

class_archives.py takes the identity of Spark's jars from it, instead of reading 400 MB each time a
cluster starts.
"""

import base64
import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Recorded", "has_recorded_digest", "read_record"]

ALGORITHM = "sha256="


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file of a package: `path` below the package's folder, `digest` as the wheel writes it."""

    path: str
    digest: str
    size_bytes: int


def read_record(package: Path) -> tuple[Recorded, ...]:
    """Returns the files of an installed package, in the order of their paths.

    `package` is its folder. Nothing where no record of it lies beside that folder, as with an
    installation that pip did not make.
    """
    records = [*package.parent.glob(f"{package.name}-*.dist-info/RECORD")]
    if len(records) != 1:
        return ()
    with records[0].open(encoding="utf-8", newline="") as lines:
        return tuple(sorted(_parse(lines, f"{package.name}/"), key=lambda file: file.path))


def has_recorded_digest(file: Path, recorded: Recorded) -> bool:
    """Whether a file has the content that the wheel had."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").digest()
    text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return recorded.digest == f"{ALGORITHM}{text}"


def _parse(lines: Iterator[str], prefix: str) -> Iterator[Recorded]:
    for row in csv.reader(lines):
        match row:
            case [path, digest, size] if (
                path.startswith(prefix) and digest.startswith(ALGORITHM) and size.isdecimal()
            ):
                yield Recorded(path.removeprefix(prefix), digest, int(size))
