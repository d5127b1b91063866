"""The folders of reports: one for each run, which takes the place of an earlier one of its name.

Nothing is removed but what a scenario has made, and in none of them runs another. `python -m
scenarios` opens them, and `scenario_prerequisites` asks whether they can be made.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rekindle.model.errors import InputError
from testbed import file_lock, owned_folders

RUN_MARK = ".scenario"
ELSEWHERE = "name another folder by --report"


def check(folder: Path) -> None:
    """Raises `InputError` for a folder that can neither be made nor written; makes nothing."""
    owned_folders.check_place(folder.absolute(), remedy=ELSEWHERE)


@contextmanager
def fresh(directory: Path) -> Iterator[Path]:
    """An empty folder in place of what an earlier run has left there, and of nothing else.

    That one comes back where this one cannot begin for want of something. Raises `InputError` for a
    folder that no scenario has made, in which one runs, or that cannot be made.
    """
    directory = directory.absolute()
    before = directory.with_name(f"{directory.name}.before")
    with ExitStack() as held:
        try:
            _make(directory, before, held)
        except OSError as error:
            if before.exists() and not directory.exists():
                before.rename(directory)
            raise InputError(
                where=str(error.filename or directory),
                what=f"cannot be made ({error.strerror})",
                remedy=ELSEWHERE,
            ) from error
        try:
            yield directory
        except InputError:
            if before.exists():
                shutil.rmtree(directory)
                before.rename(directory)
            raise
        shutil.rmtree(before, ignore_errors=True)


def _make(directory: Path, before: Path, held: ExitStack) -> None:
    """The folder, held for this process, with the earlier one beside it."""
    for folder in (directory, before):
        if folder.exists():
            _hold(folder, held)
    if directory.exists():
        shutil.rmtree(before, ignore_errors=True)
        directory.rename(before)
    directory.mkdir(parents=True)
    (directory / RUN_MARK).touch()
    _hold(directory, held)


def _hold(folder: Path, held: ExitStack) -> None:
    """Keep the folder of a run for this process."""
    if not (folder / RUN_MARK).exists():
        raise InputError(
            where=str(folder),
            what="is there already, and no scenario has made it",
            remedy=ELSEWHERE,
        )
    mark = file_lock.take(folder / RUN_MARK)
    if mark is None:
        raise InputError(
            where=str(folder),
            what="is of a scenario that runs",
            remedy=f"wait for its end, or {ELSEWHERE}",
        )
    held.enter_context(mark)
