"""What readers of a checkpoint store share: opening it, its errors as sentences, reading ahead.

To a reader the store is input. So a record that is damaged or of a newer version is an InputError
here, where it ends a driver with a RunError.
"""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from rekindle.errors import InputError, RunError
from rekindle_store import commit_log, files
from rekindle_store.files import Files

__all__ = ["opened", "read_ahead", "reading"]

# Files that are read at the same time, and in memory together.
READERS_MAX = 8
FOLDER_REMEDY = "name the place that `rekindle run --store` was given"
# Errors that waiting does not mend.
LASTING = (errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)

Item = TypeVar("Item")
Result = TypeVar("Result")


def opened(place: str | Path) -> Files:
    """The files of a store on which a pipeline has run.

    Raises InputError where none has, where the place cannot be read, and where another version has
    written it; RunError where its server does not answer.
    """
    found = files.at(place)
    with reading(place):
        starts = commit_log.generations(found)
        if starts:
            commit_log.generation(found, starts[-1])
            return found
    raise InputError(
        where=f"checkpoint store {place}",
        what="is not there, or no pipeline has run on it",
        remedy=FOLDER_REMEDY,
    )


@contextmanager
def reading(place: str | Path) -> Iterator[None]:
    """Turn what goes wrong in reading the store at a place into an error that says what to do."""
    try:
        yield
    except RunError as error:  # of a record: it is damaged, or of another version
        raise InputError(where=error.where, what=error.what, remedy=error.remedy) from error
    except OSError as error:
        raise _told(place, error) from error


def _told(place: str | Path, error: OSError) -> InputError | RunError:
    where, said = f"checkpoint store {place}", (error.strerror or str(error)).partition("\n")[0]
    is_local = files.folder(place) is not None
    if error.errno == errno.EPROTO:
        remedy = "name a file with its authority in AWS_CA_BUNDLE (docs/stores.md)"
        what = f"has a certificate that is not trusted ({said})"
        return InputError(where=where, what=what, remedy=remedy)
    if error.errno in LASTING:
        remedy = FOLDER_REMEDY if error.errno == errno.ENOTDIR else "have its rights changed"
        if not is_local:
            name = (
                "HADOOP_USER_NAME" if str(place).lower().startswith("hdfs") else "AWS_ACCESS_KEY_ID"
            )
            remedy = f"see that it is there, and {name} and the like (docs/stores.md)"
        return InputError(where=where, what=f"cannot be read ({said})", remedy=remedy)
    answers = error.errno in files.ANSWERED and not is_local
    return RunError(
        where=where,
        what=f"{'answers with an error' if answers else 'does not answer'} ({said})",
        remedy="see that it is there and its server runs (docs/stores.md), and try again",
    )


def read_ahead(items: Iterable[Item], read: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield what reading the items gives, in order, some of them read ahead of who takes them."""
    rest = iter(items)
    with ThreadPoolExecutor(READERS_MAX) as pool:
        begun: deque[Future[Result]] = deque(
            pool.submit(read, item) for item in islice(rest, READERS_MAX)
        )
        try:
            while begun:
                yield begun.popleft().result()
                begun.extend(pool.submit(read, item) for item in islice(rest, 1))
        finally:
            for future in begun:
                future.cancel()
