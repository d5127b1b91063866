"""The shared part of readers of a checkpoint store: opening it, and reading ahead.

To a reader the store is input. So a record that is damaged or of a newer version is an InputError
here, where it ends a driver with a RunError.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from rekindle.model.errors import InputError, RunError
from rekindle_store import commit_log, store_errors, store_files
from rekindle_store.store_files import Files

# Files that are read at the same time, and in memory together.
READERS_MAX = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def opened(place: str | Path) -> Files:
    """The files of a store on which a pipeline has run.

    Raises InputError where none has, where the place cannot be read, and where another version has
    written it; RunError where its server does not answer.
    """
    found = store_files.at(place)
    with reading(place):
        starts = commit_log.generations(found)
        if starts:
            commit_log.generation(found, starts[-1])
            return found
    raise InputError(
        where=f"checkpoint store {place}",
        what="is not there, or no pipeline has run on it",
        remedy=store_errors.FOLDER_REMEDY,
    )


@contextmanager
def reading(place: str | Path) -> Iterator[None]:
    """Turn what goes wrong in reading the store at a place into an error that says what to do."""
    try:
        yield
    except RunError as error:  # of a record: it is damaged, or of another version
        raise InputError(where=error.where, what=error.what, remedy=error.remedy) from error
    except OSError as error:
        is_local = store_files.folder(place) is not None
        raise store_errors.unreadable(place, error, is_local=is_local) from error


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
