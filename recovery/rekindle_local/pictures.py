"""Pictures that commands draw beside what they print, as SVG files.

What takes minutes is checked before it begins. `simulate` and `study_figures` call it.
"""

import os
from pathlib import Path
from typing import NoReturn

from rekindle.errors import InputError

__all__ = ["check", "write"]


def check(path: Path) -> None:
    """Refuse where no file of that name could be made."""
    if not path.parent.is_dir():
        _refuse(path, "No such directory")
    if path.is_dir():
        _refuse(path, "Is a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        _refuse(path, "Permission denied")


def write(path: Path, text: str) -> None:
    """Write a picture, in place of what was there."""
    try:
        path.write_text(text)
    except OSError as error:
        _refuse(path, str(error.strerror))


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(
        where=f"--picture {path}",
        what=f"cannot be written ({what})",
        remedy="name a file in a directory that is there",
    )
