"""Files in the user's cache, which clones share and use only while they are intact.

    put                 the digest is renamed into place first, then the file
    is_intact           the file has the digest that lies beside it, as FILE.sha256
    locked              one process at a time changes a folder; a killed process frees it
    in_use              nobody removes a folder from which something runs
    recording_failures  the folder keeps the error, so that others need not try for a while

A file without a matching digest was damaged after it was put there, or was put there by something
else; its owner removes it and makes it again. `sha256sum --check` reads the same digests.

test_programs.py of the testbed keeps programs here, class_archives.py class-data archives. Nothing
in this module knows how these are made.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

from rekindle.model.errors import InputError, RunError

Progress = Callable[[str], None]

LOCK = "lock"
WORKSHOP = "building-"
FAILURE = "failed"
# A version that nobody has tested with for so long has been replaced by a newer one.
DAYS_UNUSED_MAX = 60
DAY_SECONDS = 86_400.0
REMEDY = (
    "let XDG_CACHE_HOME name a folder that may be made and written, and see whether its disk is "
    "full"
)


def say(line: str) -> None:
    """Prints a line of progress on standard error."""
    sys.stderr.write(f"{line}\n")  # in one piece, as threads call this
    sys.stderr.flush()


def find_folder(environment: Mapping[str, str]) -> Path:
    """Rekindle's folder in the user's cache. Raises `InputError` for a user without a home."""
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "rekindle"
    try:
        return Path.home().absolute() / ".cache" / "rekindle"
    except RuntimeError as error:
        raise InputError(
            where="HOME",
            what="is not set, and this user has no home",
            remedy="set it, or let XDG_CACHE_HOME name a folder for caches",
        ) from error


def is_intact(file: Path) -> bool:
    """Whether the file is there and has the digest that was recorded when it was put there."""
    try:
        recorded = _record(file).read_text(encoding="utf-8").split()
        found = file.stat()
        status = (found.st_ino, found.st_size, found.st_mtime_ns)
        return recorded[:1] == [_known_digest(file, status)]
    except (OSError, ValueError):
        return False


def put(made: Path, place: Path) -> None:
    """Moves a finished file into its place, with its digest.

    `made` lies on the same disk, in a workshop of the folder that the caller has locked.
    """
    fresh = _record(made)
    fresh.write_text(f"{_digest(made)}  {place.name}\n", encoding="utf-8")
    remove(place)  # or the new digest would condemn the old file
    fresh.replace(_record(place))
    made.replace(place)


def remove(file: Path) -> None:
    """Removes a file that was put, or what has come to its place; programs that run from it are not
    disturbed."""
    for path in (file, _record(file)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, progress: Progress, *, remedy: str = REMEDY) -> Iterator[bool]:
    """Inside, no other process changes the folder; yields whether one had to be waited for.

    The folder is made where it is missing. Raises `InputError`, with this remedy, where it can be
    neither made nor written.
    """
    waited = False
    while True:
        with _open_lock(folder, remedy) as file:
            waited = _take(file, folder, progress) or waited
            if _is_the_lock_of(file, folder):  # or its last holder has removed the folder
                yield waited
                return


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """Inside, a new folder in a locked one for what is not finished yet.

    Workshops that killed processes have left there are removed first.
    """
    for abandoned in folder.glob(f"{WORKSHOP}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=WORKSHOP, dir=folder) as opened:
        yield Path(opened)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Inside, nobody removes the folder, though a process may change what is in it. One that is not
    there may come and go."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(_held(folder, fcntl.LOCK_SH))
        yield


def newest_failure(folder: Path, since: float) -> str:
    """What making something in the folder has failed with, as `recording_failures` has it; empty
    where it has not since then, a time as in the status of files."""
    record = failure_record(folder)
    try:
        if record.stat().st_mtime < since:
            return ""
        return record.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@contextmanager
def recording_failures(
    folder: Path, is_wanted: Callable[[RunError], bool] = lambda _: True
) -> Iterator[None]:
    """Inside, a RunError is recorded in the folder for those who come next, if `is_wanted` says so
    of it; without one no record is left."""
    try:
        yield
    except RunError as error:
        if is_wanted(error):
            with suppress(OSError):
                failure_record(folder).write_text(f"{error}\n", encoding="utf-8")
        raise
    failure_record(folder).unlink(missing_ok=True)


def failure_record(folder: Path) -> Path:
    """Where the failure of a folder is recorded; without it making is tried again."""
    return folder / FAILURE


def mark_used(folder: Path) -> None:
    """Keeps `remove_unused` from removing the folder for a while."""
    with suppress(OSError):  # a cache that may only be read is still of use
        os.utime(folder)


def remove_unused(parent: Path, *, now: float, progress: Progress) -> None:
    """Removes the folders in `parent` that were once locked and have not been used for long.

    `now` is a time as in the status of files. A folder that cannot be removed stays.
    """
    for folder in locked_once(parent):
        if now - folder.stat().st_mtime > DAYS_UNUSED_MAX * DAY_SECONDS:
            progress(f"removing {folder}, unused for {DAYS_UNUSED_MAX} days")
            discard(folder)


def discard(folder: Path) -> bool:
    """Removes a folder with all that is in it, unless a process has locked it or uses it."""
    try:
        with (folder / LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_the_lock_of(file, folder):  # or it would be somebody's new folder
                return False
            with _held(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(folder)
    except OSError:
        return False
    return True


def locked_once(parent: Path) -> list[Path]:
    """Returns the folders in `parent` that `locked` has had."""
    return sorted(lock.parent for lock in parent.glob(f"*/{LOCK}") if lock.is_file())


def _record(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@lru_cache(maxsize=256)
def _known_digest(file: Path, _status: tuple[int, int, int]) -> str:
    """Reads a file once in this process, as long as its inode, size and time stay the same."""
    return _digest(file)


def _open_lock(folder: Path, remedy: str) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOCK).open("a")
    except OSError as error:
        raise InputError(
            where=str(folder), what=f"cannot be written ({error.strerror})", remedy=remedy
        ) from error


def _take(file: IO[str], folder: Path, progress: Progress) -> bool:
    """Whether another process had the lock first."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress(f"another process builds into {folder}: waiting for it")
        fcntl.flock(file, fcntl.LOCK_EX)
        return True
    return False


@contextmanager
def _held(folder: Path, operation: int) -> Iterator[None]:
    """Inside, this process has a lock on the folder itself, which a killed process frees."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


def _is_the_lock_of(file: IO[str], folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat())
    except OSError:
        return False


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Links, so that the files take no room and one copy of them lies in memory."""
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)
