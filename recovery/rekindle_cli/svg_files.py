"""Pictures that commands draw beside their output, as SVG files.

What takes minutes is checked before it begins. `simulate` and `study_figures` call it.
"""

import os
from pathlib import Path
from typing import NoReturn

from rekindle.model.errors import InputError

# What an SVG file begins with.
BEGINNINGS = (b"<svg", b"<?xml")


def check(path: Path) -> None:
    """Refuse where no file of that name could be made, or one that is no picture would be lost."""
    if not path.parent.is_dir():
        _refuse(path, "No such directory")
    if path.is_dir():
        _refuse(path, "Is a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        _refuse(path, "Permission denied")
    if path.is_file() and path.stat().st_size and not _is_picture(path):
        raise InputError(
            where=f"--picture {path}",
            what="is there already, and is no SVG file",
            remedy="name another file, or remove this one",
        )


def write(path: Path, text: str) -> None:
    """Write a picture, in place of what was there."""
    try:
        path.write_text(text)
    except OSError as error:
        _refuse(path, str(error.strerror))


def _is_picture(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(max(map(len, BEGINNINGS))).startswith(BEGINNINGS)


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(
        where=f"--picture {path}",
        what=f"cannot be written ({what})",
        remedy="name a file in a directory that is there",
    )
