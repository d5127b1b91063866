"""Files of a store on S3 or a compatible server: objects, complete under their names or absent.

A put object is there for good. One that must not be there yet is put on the condition that it is
not (`If-None-Match: *`), so of two writers the server takes one. What the library raises becomes
OSError, which is waited out. The library lets threads run beside it, and takes any number of them.

The number of an OSError says whether there was an answer: EIO none, EREMOTEIO an error of the
server's own, EINVAL a request that it does not take, EOPNOTSUPP one that it does not know,
EACCES and ENXIO no rights and no bucket, EBUSY another writer each time it was asked, EPROTO a
certificate that is not trusted, ESTALE an object of another version than was asked for, EILSEQ one
with a name that the library does not take.

Why: docs/decisions/0037-s3-by-obstore-hdfs-by-hdfs-native.md.
"""

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from rekindle.model.errors import InputError, first_line
from rekindle_store.transfers import PIECE_BYTES, Moved, pieces, unwatched

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Config

# Settings of an S3 server from the environment, as options of the client, or refused by name.
#
# Variables that come out of files and Secrets often end with a line break, which no header may
# have: blanks around a value are left out. What cannot be meant is refused here, before anything
# is sent; the client itself would panic at some of it.

SECRET = "AWS_SECRET_ACCESS_KEY"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", *ENDPOINTS)
# The first that is set counts, as it does for Amazon's own programs.
AUTHORITIES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")
ENDPOINT = re.compile(r"https?://[^/\s?#]+[^\s?#]*", re.IGNORECASE)
PEM = b"-----BEGIN CERTIFICATE-----"
BYTES_MAX = 16 * 2**20


def options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the client is to take instead of what it finds in the environment itself.

    Raises InputError for a value that no server can be meant by; a secret's value is not shown.
    """
    found = {}
    for name in (*NAMES, SECRET):
        if name not in environment:
            continue
        value = environment[name].strip()
        _check(name, value)
        if value != environment[name]:
            found[name.lower()] = value
    return found


def authorities(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """Certificates of authorities to trust beside those of the system, in PEM; None for no more.

    Raises InputError for a file that cannot be read, or that has no certificate.
    """
    name = next((name for name in AUTHORITIES if environment.get(name, "").strip()), None)
    if name is None:
        return None
    path = Path(environment[name].strip())
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX)
    except OSError as error:
        _refuse(name, f"names {path}, which cannot be read ({error.strerror})", "a file of PEM")
    if PEM not in content:
        _refuse(name, f"names {path}, which has no certificate", "a file of PEM")
    return content


def _check(name: str, value: str) -> None:
    if not value:
        raise InputError(where=name, what="is set and empty", remedy="give it a value or unset it")
    if name in ENDPOINTS and not ENDPOINT.fullmatch(value):
        _refuse(name, f"is no address of a server ({value!r})", "https://HOST:PORT with its scheme")
    if name == SECRET:
        if any(character < " " for character in value):
            _refuse(name, "has a line break or another control character in it", "the secret alone")
    elif not value.isascii() or not value.isprintable() or " " in value:
        _refuse(name, "has a blank or a character that no header may have", "one word of ASCII")


def _refuse(name: str, what: str, wanted: str) -> NoReturn:
    raise InputError(where=name, what=what, remedy=f"name {wanted} (docs/stores.md)")


# Who waits for a store tries again; so that it can say that it waits, one try must not take long.
RETRIES: "RetryConfig" = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
CLIENT: "ClientConfig" = {
    "allow_http": True,  # only where the endpoint says so
    "connect_timeout": timedelta(seconds=5),
    # for a request, which has a piece of a file at most; a host that does nothing for longer than
    # a minute is given up, and a store that does not answer is to be waited for
    "timeout": timedelta(seconds=50),
}
# Files that are sent at the same time, and pieces of a large one: each request has its own limit,
# and all share what the network gives.
SENDERS, PIECES_AT_ONCE = 16, 4
# How much of a piece is told of.
CHUNK_BYTES = 1 << 18
# A conditional request that meets another one on the same key is to be sent again (409).
CONFLICTS_MAX = 6
CONFLICT_SECONDS = 0.05
CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")
TOLD = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
# Of one object among many that are deleted by one request.
OF_ONE = re.compile(r": ([^:\n]*) \(code: (\w+)\)")
STATUS = re.compile(r"status code: (\d{3})")
# The library says it in the last of several lines, over which it spreads the name of the reason.
UNTRUSTED = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")
# Statuses of who may not, and of what a server does not know.
REFUSED, UNKNOWN_TO_IT = (401, 403), (405, 501)
PANICS = "pyo3_runtime"


class ObjectFiles:
    """The files below s3://BUCKET/PREFIX (`store_files.Files`). There are no folders but in the
    names."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.deletes_in_bulk = True
        self.store = self._opened()

    def make_folder(self, name: str) -> None:
        """Nothing to do."""

    def create(self, name: str, data: bytes) -> None:
        """See `store_files.Files`."""
        for attempt in range(CONFLICTS_MAX):
            try:
                with self._answers():
                    self.store.put(name, data, mode="create")
                return
            except FileExistsError:
                if self.read(name) != data:
                    raise
                return
            except BlockingIOError:
                if attempt == CONFLICTS_MAX - 1:
                    raise
                time.sleep(CONFLICT_SECONDS * 2**attempt)

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        """See `store_files.Files`. They are sent at the same time, but large ones one after the
        other in pieces; none is on its way any more when this fails."""
        large = {name for name, data in files.items() if len(data) > PIECE_BYTES}
        with self._answers(), ThreadPoolExecutor(SENDERS) as pool:
            sent = {
                pool.submit(self.store.put, name, data): len(data)
                for name, data in files.items()
                if name not in large
            }
            for one in as_completed(sent):
                one.result()
                moved(sent[one])
        for name in sorted(large):
            self._put_large(name, files[name], moved)

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        """See `store_files.Files`. A large one comes in pieces, all of the same version."""
        with self._answers():
            found = self.store.get(name)
            size, version = int(found.meta["size"]), found.meta["e_tag"]
            if size <= PIECE_BYTES:
                data = bytes(found.bytes())
                moved(len(data))
                return data
            del found
            return self._read_large(name, size, version, moved)

    def size(self, name: str) -> int:
        """See `store_files.Files`."""
        try:
            with self._answers():
                return int(self.store.head(name)["size"])
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        # The answer to HEAD has no body that tells a missing object from a missing bucket.
        return len(self.read(name))

    def names(self, folder: str) -> list[str]:
        """See `store_files.Files`."""
        return list(self.stream_names(folder))

    def stream_names(self, folder: str) -> Iterator[str]:
        """See `store_files.Files`. The server lists a thousand at a time."""
        with self._answers():
            for page in self.store.list(folder):
                for meta in page:
                    yield meta["path"].removeprefix(f"{folder}/")

    def objects(self) -> Iterator["ObjectMeta"]:
        """All objects below the place: path below it, size, last_modified and e_tag of each."""
        with self._answers():
            for page in self.store.list():
                yield from page

    def read_range(self, name: str, begin: int, end: int, version: str) -> bytes:
        """The bytes [begin, end) of an object, which has this e_tag: else OSError, ESTALE."""
        options: GetOptions = {"range": (begin, end), "if_match": version}
        with self._answers():
            return bytes(self.store.get(name, options=options).bytes())

    def remove(self, names: Iterable[str]) -> None:
        """See `store_files.Files`."""
        wanted = list(names)
        if not wanted:
            return
        try:
            self._delete(wanted)
        except PermissionError:
            raise
        except OSError as error:
            if not self.deletes_in_bulk or error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # Several servers know no request that deletes many objects, or want it otherwise.
            self.deletes_in_bulk = False
            self.store = self._opened()
            self._delete(wanted)

    def remove_leftovers(self, seconds: float) -> None:
        """Nothing to do: an object is whole or not there."""

    def _put_large(self, name: str, data: bytes, moved: Moved) -> None:
        with self._answers():
            self.store.put(
                name,
                pieces(data, moved),
                chunk_size=PIECE_BYTES,
                max_concurrency=PIECES_AT_ONCE,
            )

    def _read_large(self, name: str, size: int, version: str | None, moved: Moved) -> bytes:
        content = bytearray(size)

        def fetch(begin: int) -> None:
            options: GetOptions = {"range": (begin, min(begin + PIECE_BYTES, size))}
            if version is not None:
                options["if_match"] = version
            for part in self.store.get(name, options=options).stream(CHUNK_BYTES):
                content[begin : begin + len(part)] = bytes(part)
                begin += len(part)
                moved(len(part))

        with ThreadPoolExecutor(PIECES_AT_ONCE) as pool:
            coming = [pool.submit(fetch, begin) for begin in range(0, size, PIECE_BYTES)]
            try:
                for one in as_completed(coming):
                    one.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return bytes(content)

    def _delete(self, names: list[str]) -> None:
        """Servers that say when an object was not there leave the others of the request, so each
        gets one of its own then."""
        try:
            with self._answers():
                self.store.delete(names)
        except FileNotFoundError:
            for name in names:
                with suppress(FileNotFoundError), self._answers():
                    self.store.delete(name)

    def _opened(self) -> S3Store:
        """A client as the environment says. Raises InputError for what cannot be meant there."""
        config: S3Config = {**options()}  # type: ignore[typeddict-item]
        if not self.deletes_in_bulk:
            config["disable_bulk_delete"] = True
        client = dict(CLIENT)
        trusted = authorities()
        if trusted is not None:
            client["root_certificate"] = trusted
        with self._answers():
            return S3Store.from_url(
                self.place,
                config=config,
                client_options=client,  # type: ignore[arg-type]
                retry_config=RETRIES,
            )

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """What the library raises, as OSError: only the absence of an object is that of a file."""
        try:
            yield
        except (FileNotFoundError, BaseError) as error:
            raise self._answer(error) from error
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # What the library does not expect, it raises outside of Exception.
            if type(error).__module__ != PANICS:
                raise
            raise OSError(errno.EIO, f"the client panicked: {error}", self.place) from error

    def _answer(self, error: Exception) -> OSError:
        code, text = _told(error)
        if code in CONFLICTS:
            return BlockingIOError(errno.EBUSY, text, self.place)
        if isinstance(error, InvalidPathError):
            return OSError(errno.EILSEQ, text, self.place)
        if isinstance(error, PreconditionError):
            return OSError(errno.ESTALE, text, self.place)
        if isinstance(error, AlreadyExistsError):
            return FileExistsError(errno.EEXIST, "is there already", self.place)
        # of a listing that is refused the library says no more than the status
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if refused or _status(error) in REFUSED:
            return PermissionError(errno.EACCES, text, self.place)
        if code == "NoSuchKey":
            return FileNotFoundError(errno.ENOENT, text, self.place)
        if code == "NoSuchBucket" or isinstance(error, FileNotFoundError):
            return OSError(errno.ENXIO, text, self.place)
        untrusted = UNTRUSTED.search(str(error))
        if untrusted is not None:
            return OSError(errno.EPROTO, untrusted[1], self.place)
        return OSError(_number(error), text, self.place)


def _number(error: Exception) -> int:
    """Of an answer that means nothing special, by its status."""
    status = _status(error)
    if status is None:
        return errno.EIO
    if status in UNKNOWN_TO_IT:
        return errno.EOPNOTSUPP
    return errno.EINVAL if status in (400, 411) else errno.EREMOTEIO


def _status(error: Exception) -> int | None:
    """The HTTP status of the answer; None without one."""
    found = STATUS.search(str(error))
    return None if found is None else int(found[1])


def _told(error: Exception) -> tuple[str, str]:
    """What S3 calls an error, and what it says of it; else the library's first line."""
    found = TOLD.search(str(error))
    if found is not None:
        return found[1], found[2] or found[1]
    of_one = OF_ONE.search(str(error))
    return ("", first_line(error)) if of_one is None else (of_one[2], of_one[1])
