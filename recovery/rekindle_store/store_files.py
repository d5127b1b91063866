"""Files of a store, on a disk or in an object store, with the same operations.

    /shared/store, file:///shared/store    local_files: a folder that all nodes share
    s3://BUCKET/PREFIX                     object_files: the environment says where its server is
    hdfs://HOST:PORT/FOLDER                hdfs_files

A file's name is its path below the store: `commits/7.json`. Nobody who has `Files` needs to know
which they are. For users: docs/stores.md.
"""

import errno
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from rekindle.model.errors import InputError
from rekindle_store import store_errors
from rekindle_store.local_files import LocalFiles
from rekindle_store.transfers import Moved, unwatched

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
# A URL with a slash too few, which would be a folder with a colon in its name; Java prints these.
HALF_URL = re.compile(r"(?:file|s3[an]?|hdfs|viewfs|gs|abfss?|wasbs?|https?):(?!//).*", re.I | re.S)
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
REMOTE = ("s3", "s3a", "hdfs")
PLACES = "name a folder, s3://BUCKET/PREFIX or hdfs://HOST:PORT/FOLDER"
# What URLs, or object stores, give a meaning of their own.
MISREAD = re.compile(r"[?#%\\^{}\[\]`\"<>|*~\s\x00-\x1f\x7f]")
PLACES_CACHED_MAX = 16
# What the first records of a run take, and its first checkpoint of small states.
ROOM_BYTES = 1 << 20
# A folder with this one in it is a store. In one that is to become a store there may be what a
# driver or a person has put there before, and what storage systems have anywhere.
GENERATIONS = "generations"
OWN = re.compile(
    r"[.@].*|lost\+found|finish|drain|savepoint|hold-rate|events[^/]*\.jsonl[.0-9]*"
    r"|offsets|commits|branches|listings|checkpoints|outputs|segments"
)
CONDITIONAL = "use a server that knows conditional writes (docs/stores.md)"
# What folders without hard links answer, by system and driver.
UNLINKABLE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EMLINK, errno.ENOTTY, errno.EINVAL)


class Files(Protocol):
    """The files of one store. May be used by several threads at once.

    Each method raises OSError while the store is away, or full; done again, it is as if done once.
    FileNotFoundError and FileExistsError are answers, and say nothing of the store.
    """

    @property
    def place(self) -> str:
        """A folder's absolute path or a URL, for `at` in another process."""

    def make_folder(self, name: str) -> None:
        """Make room for files: only the driver does, so that nobody begins a store anew that is
        away."""

    def create(self, name: str, data: bytes) -> None:
        """Make a file that must not be there yet; it is there for good when this returns.

        That very content counts as made: an earlier try may have come that far. Of any number of
        writers of other contents one succeeds. Raises FileExistsError for the others.
        """

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        """Make files, in the place of what is there; all are there for good when this returns.

        Who reads one meanwhile gets all of the old content, or all of the new. `moved` is told of
        what has gone, again and again.
        """

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        """A file's content. Raises FileNotFoundError when it is not there, though the store is.
        `moved` is told of what has come, again and again."""

    def size(self, name: str) -> int:
        """A file's size in bytes. Raises FileNotFoundError as `read` does."""

    def names(self, folder: str) -> list[str]:
        """The files in a folder and below it, by their paths in it; none of a missing folder."""

    def stream_names(self, folder: str) -> Iterator[str]:
        """The same names one after the other: a long log's are never all in memory."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, as far as they are there."""

    def remove_leftovers(self, seconds: float) -> None:
        """Remove what processes have left that were killed while they made files, and empty folders
        of checkpoints that came to nothing, if it is older than so many seconds. It may look at
        each file of the store."""


def at(place: str | Path) -> Files:
    """The files of a store, which is not looked at. Raises InputError for what is no place."""
    return _at(str(place))


def folder(place: str | Path) -> Path | None:
    """The folder that a place names; None for one that is elsewhere."""
    if not str(place).strip():  # a variable of the shell that is not set
        raise InputError(where="checkpoint store", what="has an empty name", remedy=PLACES)
    url = URL.fullmatch(str(place))
    if url is None:
        if HALF_URL.fullmatch(str(place)):
            raise _unknown(place)
        return Path(place)
    scheme, rest = url[1].lower(), url[2]
    if scheme == "file" and rest.startswith("/"):
        return Path(unquote(rest))
    if scheme not in REMOTE or not rest.strip("/"):
        raise _unknown(place)
    bucket, _, prefix = rest.partition("/")
    if scheme != "hdfs" and not BUCKET.fullmatch(bucket):
        raise InputError(
            where=f"checkpoint store {scheme}://…/{prefix}",  # there may be a password
            what="has no bucket, or a port or a name beside it",
            remedy="name s3://BUCKET/PREFIX; the server and who you are come from the environment "
            "(docs/stores.md)",
        )
    _check_url(str(place), rest)
    return None


def _unknown(place: str | Path) -> InputError:
    return InputError(
        where=f"checkpoint store {place}", what="is no place that is known", remedy=PLACES
    )


def _check_url(place: str, rest: str) -> None:
    """Refuse a URL that says another place than it seems to: what is behind `?` and `#` is none of
    the path, and `//`, `.` and `..` are other keys for some and the same for others."""
    wrong = MISREAD.search(rest)
    path = rest.partition("/")[2].removesuffix("/")
    parts = path.split("/") if path else []
    found = wrong[0] if wrong else next((part for part in parts if part in ("", ".", "..")), None)
    if found is not None:
        raise InputError(
            where=f"checkpoint store {place}",
            what=f"has {found or '//'!r} in its path, which does not mean the same everywhere",
            remedy="use letters, digits and -_.!=+@,() there, and one / between the parts",
        )


def exists(files: Files, name: str) -> bool:
    """Whether a file is there. Raises OSError while the store is away."""
    try:
        files.read(name)
    except FileNotFoundError:
        return False
    return True


def check(place: str | Path) -> None:
    """See that a store can be written, and leave nothing there.

    Raises InputError for a place that will not do, RunError for a server that does not answer.
    """
    local = folder(place)
    try:
        if local is None:
            _check_creation(at(place))
        else:
            _check_owned(local)
            _write_nothing(local)
    except OSError as error:
        raise store_errors.unwritable(place, error, is_local=local is not None) from error


def check_room(place: str | Path) -> None:
    """See that a store that is a folder has room for the first records of a run, and leave nothing
    there. A driver of a cluster waits for room; a run that a user starts ends at once.

    Raises InputError where it has none, or cannot be written.
    """
    local = folder(place)
    if local is None:
        return
    try:
        with tempfile.TemporaryFile(dir=_nearest(local)) as probe:
            probe.write(bytes(ROOM_BYTES))
            probe.flush()
    except OSError as error:
        raise store_errors.unwritable(place, error, is_local=True) from error


@lru_cache(maxsize=PLACES_CACHED_MAX)
def _at(place: str) -> Files:
    # A host asks for each file of each partition, and to resolve a path takes a tenth of all that
    # it does for an epoch without rows.
    local = folder(place)
    return _remote(place) if local is None else LocalFiles(local)


def _remote(place: str) -> Files:
    # Their libraries cost a host time and memory, and most have no use for them.
    try:
        if place.lower().startswith("hdfs"):
            from rekindle_store.hdfs_files import HdfsFiles

            return HdfsFiles(place)
        from rekindle_store.object_files import ObjectFiles

        return ObjectFiles(place)
    except ModuleNotFoundError as error:
        raise InputError(
            where=f"checkpoint store {place}",
            what=f"needs {error.name}, which is not installed",
            remedy="install rekindle[stores]",
        ) from error


def _check_owned(folder: Path) -> None:
    """Refuse a folder of others: who reads or tidies up would take it for a store."""
    if not folder.is_dir() or (folder / GENERATIONS).is_dir():
        return
    foreign = [name for name in sorted(os.listdir(folder)) if not OWN.fullmatch(name)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InputError(
            where=f"checkpoint store {folder}",
            what=f"is a folder of something else: it holds {foreign[0]!r:.120}{more}",
            remedy="name an empty folder, or one that is yet to be made",
        )


def _nearest(folder: Path) -> Path:
    """The folder, or the next one above that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _write_nothing(folder: Path) -> None:
    folder = _nearest(folder)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".rekindle-probe-") as probe:
        link = Path(f"{probe.name}.link")
        try:
            os.link(probe.name, link)
            _check_exclusive(folder, Path(probe.name), link)
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
            raise _unlinkable(folder, f"without hard links ({error.strerror})") from error
        finally:
            link.unlink(missing_ok=True)


def _check_exclusive(folder: Path, file: Path, taken: Path) -> None:
    """See that a link does not take the place of what is there."""
    try:
        os.link(file, taken)
    except FileExistsError:
        return
    raise _unlinkable(folder, "whose hard links take the place of what is there")


def _unlinkable(folder: Path, what: str) -> InputError:
    return InputError(
        where=f"checkpoint store {folder}",
        what=f"is on a file system {what}, by which two drivers are kept apart",
        remedy="use a folder of another file system, NFS for instance, or S3 (docs/stores.md)",
    )


def _check_creation(files: Files) -> None:
    """Two drivers are kept apart by records that only one of them can make; a server that takes no
    notice of the condition would let both."""
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        overwrites = _overwrites(files, probe)
    except BaseException:
        with suppress(OSError):  # as far as it can be: the first error says what is wrong
            files.remove([probe])
        raise
    files.remove([probe])
    if overwrites:
        raise InputError(
            where=f"checkpoint store {files.place}",
            what="overwrites what it was told to create only where nothing is (If-None-Match: *)",
            remedy=CONDITIONAL,
        )


def _overwrites(files: Files, probe: str) -> bool:
    try:
        files.create(probe, b"one")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        raise InputError(
            where=f"checkpoint store {files.place}",
            what="does not know how to create only where nothing is (If-None-Match: *; "
            f"it answers: {store_errors.described(error)})",
            remedy=CONDITIONAL,
        ) from error
    try:
        files.create(probe, b"other")
    except FileExistsError:
        return False
    return True
