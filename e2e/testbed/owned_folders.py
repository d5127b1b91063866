"""Folders that are removed with all that is in them: ours alone, which a mark in them says.

A person names a directory, and may have folders there that bear the names of ours. So what is below
it is checked, made and removed by way of this.
"""

import os
import shutil
from pathlib import Path

from rekindle.model.errors import InputError

MARK = ".rekindle-testbed"
ELSEWHERE = (
    "name another directory, by --directory or REKINDLE_TESTBED, or move away what is in its place"
)


def check(folder: Path) -> None:
    """Raises `InputError` for a folder that cannot be made, or may not be removed: it is elsewhere,
    or holds something, unmarked."""
    if folder.is_symlink():
        raise InputError(where=str(folder), what="is a link, and no folder", remedy=ELSEWHERE)
    check_place(folder)
    if folder.exists() and not is_ours(folder) and not _is_empty(folder):
        raise InputError(
            where=str(folder),
            what="is there already, and no testbed has made it; it would be removed",
            remedy="name another directory, or move it away",
        )


def check_place(folder: Path, *, remedy: str = ELSEWHERE) -> None:
    """Raises `InputError` for a folder that is none, or can be neither made nor written."""
    nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not os.path.isdir(nearest):  # unlike a Path's it says no where this user may not look
        fault = "is no folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        fault = "may not be written"
    else:
        return
    what = fault if nearest == folder else f"cannot be made: {nearest} {fault}"
    raise InputError(where=str(folder), what=what, remedy=remedy)


def make(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and mark it unless it holds something already.

    Raises `InputError` where it cannot be made.
    """
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        if _is_empty(folder):
            (folder / MARK).touch()
    except OSError as error:
        raise InputError(
            where=str(folder), what=f"cannot be made ({error.strerror})", remedy=ELSEWHERE
        ) from error


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
