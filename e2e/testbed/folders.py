"""Folders that are removed with all that is in them: ours alone, which a mark in them says.

A person names a directory, and may have folders there that bear the names of ours. So what is below
it is checked, made and removed by way of this.
"""

import shutil
from pathlib import Path

from rekindle.errors import InputError

__all__ = ["check", "is_ours", "make", "remove"]

MARK = ".rekindle-testbed"


def check(folder: Path) -> None:
    """Raises `InputError` for a folder that may not be removed: it holds something, unmarked."""
    if folder.exists() and not is_ours(folder) and not _is_empty(folder):
        raise InputError(
            where=str(folder),
            what="is there already, and no testbed has made it; it would be removed",
            remedy="name another directory, or move it away",
        )


def make(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and mark it unless it holds something already."""
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    if _is_empty(folder):
        (folder / MARK).touch()


def is_ours(folder: Path) -> bool:
    """Whether it is there and `make` has made it."""
    return (folder / MARK).is_file()


def remove(folder: Path) -> None:
    """Remove a folder if it is there, its mark last: when this is broken off it is still ours."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
    shutil.rmtree(folder)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())
