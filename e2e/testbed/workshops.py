"""Folders into which one process at a time builds; what killed builders have left there goes.

building.py builds programs so, and `images` its archives; definitions.py asks `check` as well.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import folders

__all__ = ["alone", "check", "opened"]

WORKSHOP = "building-"


def check(folder: Path) -> None:
    """Raises `InputError` for a folder that nobody can build into."""
    remedy = "let REKINDLE_TESTBED name a folder that may be made and written"
    folders.check_place(folder, remedy=remedy)


@contextmanager
def alone(folder: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Inside, no other process builds into the folder; one that does is waited for.

    However a builder ends, its end frees the folder. Raises `InputError` as `check`.
    """
    check(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process builds into {folder}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        for abandoned in folder.glob(f"{WORKSHOP}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        yield


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """Inside, a folder for what is not finished, from where it can be renamed into the folder."""
    with tempfile.TemporaryDirectory(prefix=WORKSHOP, dir=folder) as workshop:
        yield Path(workshop)
