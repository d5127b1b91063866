"""Files of a store on S3, or on what speaks as it does: objects, whole under their names or absent.

A put object is there for good. One that must not be there yet is put on the condition that it is
not (`If-None-Match: *`), so of two writers the server takes one. What the library raises becomes
OSError, which is waited out. The library lets threads run beside it, and takes any number of them.
"""

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

__all__ = ["ObjectFiles"]

# Who waits for a store tries again; so that it can say that it waits, one try must not take long.
RETRIES: "RetryConfig" = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
CLIENT: "ClientConfig" = {
    "allow_http": True,  # only where the endpoint says so
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=100),
}
# Files that are sent at the same time.
SENDERS = 16
TOLD = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")


class ObjectFiles:
    """The files below s3://BUCKET/PREFIX (`files.Files`). There are no folders but in the names."""

    def __init__(self, place: str) -> None:
        self.place = place
        with self._answers():
            self.store = S3Store.from_url(place, client_options=CLIENT, retry_config=RETRIES)

    def make_folder(self, name: str) -> None:
        """Nothing to do."""

    def create(self, name: str, data: bytes) -> None:
        """See `files.Files`."""
        try:
            with self._answers():
                self.store.put(name, data, mode="create")
        except FileExistsError:
            if self.read(name) != data:
                raise

    def put(self, files: Mapping[str, bytes]) -> None:
        """See `files.Files`. They are sent at the same time; none is on its way any more when this
        fails."""
        with self._answers(), ThreadPoolExecutor(SENDERS) as pool:
            for sent in [pool.submit(self.store.put, *file) for file in files.items()]:
                sent.result()

    def read(self, name: str) -> bytes:
        """See `files.Files`."""
        with self._answers():
            return bytes(self.store.get(name).bytes())

    def names(self, folder: str) -> list[str]:
        """See `files.Files`."""
        with self._answers():
            found = [meta["path"] for page in self.store.list(folder) for meta in page]
        return [path.removeprefix(f"{folder}/") for path in found]

    def remove(self, names: Iterable[str]) -> None:
        """See `files.Files`."""
        wanted = list(names)
        if wanted:
            with self._answers():
                self.store.delete(wanted)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """What the library raises, as OSError: only the absence of an object is that of a file."""
        try:
            yield
        except AlreadyExistsError as error:
            raise FileExistsError(errno.EEXIST, "is there already", self.place) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, _told(error)[1], self.place) from error
        except (FileNotFoundError, BaseError) as error:
            code, text = _told(error)
            if code == "NoSuchKey":
                raise FileNotFoundError(errno.ENOENT, text, self.place) from error
            absent = code == "NoSuchBucket" or isinstance(error, FileNotFoundError)
            number = errno.ENXIO if absent else errno.EIO
            raise OSError(number, text, self.place) from error


def _told(error: Exception) -> tuple[str, str]:
    """What S3 calls an error, and what it says of it; else the library's first line."""
    found = TOLD.search(str(error))
    if found is None:
        return "", str(error).partition("\n")[0]
    return found[1], found[2] or found[1]
