"""Folders of the testbed's cache into which one process at a time builds.

go_builds.py builds programs there, and `images` its archives; foreign_crds.py asks `check` as well.
How locks and unfinished files are handled is in cached_files.py of rekindle_local.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rekindle_local import cached_files
from testbed import owned_folders

REMEDY = "let REKINDLE_TESTBED name a folder that may be made and written"


def check(folder: Path) -> None:
    """Raises `InputError` for a folder that nobody can build into."""
    owned_folders.check_place(folder, remedy=REMEDY)


@contextmanager
def alone(folder: Path, progress: Callable[[str], None]) -> Iterator[bool]:
    """Inside, no other process builds into the folder; yields whether one had to be waited for.

    However a builder ends, its end frees the folder. Raises `InputError` as `check`.
    """
    check(folder)
    with cached_files.locked(folder, progress, remedy=REMEDY) as waited:
        yield waited


def opened(folder: Path) -> AbstractContextManager[Path]:
    """Inside, a new folder for unfinished files, from where they can be renamed into `folder`.

    Unfinished files of builders that were killed are removed first.
    """
    return cached_files.workshop(folder)
