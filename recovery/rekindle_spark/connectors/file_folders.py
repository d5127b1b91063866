"""Folders and buckets to which others add files: what is in them, and the bytes of a file.

A file is known by its version: its size with the time of its last change, or what S3 calls its
ETag. Who opens one names the version, and gets the bytes of that one or an error. In a folder
another file may have the same size and time, so a version may have a digest of both ends behind it
(`marked`), which is looked at whenever the file is opened. All of them are the same for copies that
lie on several nodes. Called by `file_source` and `file_rows`, in the driver and on nodes.
"""

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rekindle.model.errors import DataLossError, InputError, RunError, SourceAwayError
from rekindle_store import store_errors, store_files

if TYPE_CHECKING:
    from rekindle_store.object_files import ObjectFiles

# Names that programs give to files which are not for readers: half written, or about others.
HIDDEN = (".", "_")
BUFFER_BYTES = 1 << 20
# At either end of a file, of what a digest is made: the footer of Parquet, with the places and the
# extremes of all columns, is at its end.
DIGEST_BYTES = 1 << 16
# What no waiting mends, of a bucket: no rights, no bucket, a certificate that is not trusted.
REFUSALS = (errno.EACCES, errno.EPERM, errno.ENXIO, errno.EPROTO)
# Of an entry of a folder: it was removed, or is a link to nothing or to itself.
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
S3A = re.compile(r"\As3a://")
GONE = "is not there any more, and its rows are logged"
CHANGED = "is not what was listed any more: it was replaced or changed, and its rows are logged"
REMEDY = "bring it back as it was, with its time of change; or begin again with an empty store"


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a listing: its path below the folder, its size in bytes, its version, and when it
    was changed (microseconds)."""

    name: str
    bytes: int
    version: str
    modified: int


class FileFolder(Protocol):
    """A place with files. Methods raise SourceAwayError while it cannot be reached."""

    place: str

    def found(self, *, recursive: bool) -> Iterator[Found]:
        """The files in it that are not hidden, in no order, and with `recursive` those of folders
        below. Raises RunError where it may not be read."""

    def digest_of_ends(self, file: io.BufferedIOBase) -> str:
        """Compute a digest of both ends of a file that `open` has opened; it is empty where each
        content has a version of its own. Raises as reading does."""

    def open(self, name: str, version: str) -> io.BufferedIOBase:
        """A file's content. Raises DataLossError where it is gone or is another version, then or
        while it is read."""


def at(place: str) -> FileFolder:
    """The folder at a path or URL, which is not looked at. Raises InputError for another place."""
    try:
        local = store_files.folder(place)
    except InputError as error:
        raise InputError(
            where=error.where.replace("checkpoint store", "files at"),
            what=error.what,
            remedy="name a folder that all nodes share, or s3://BUCKET/PREFIX",
        ) from error
    if local is not None:
        return LocalFolder(str(local.absolute()))
    if place.lower().startswith("hdfs"):
        raise InputError(
            where=f"files at {place}",
            what="is on HDFS, of which files are not read as a source",
            remedy="name a folder that all nodes share, or s3://BUCKET/PREFIX",
        )
    scheme, _, rest = place.partition("://")
    return BucketFolder(f"{scheme.lower()}://{rest.rstrip('/')}")


def marked(version: str, digest: str) -> str:
    """A version by which a file is opened where a digest of it is known, "" where none is."""
    return f"{version} {digest}" if digest else version


def are_same(place: str, other: str) -> bool:
    """Whether two places of folders are one: s3a is another word for s3."""
    return S3A.sub("s3://", place) == S3A.sub("s3://", other)


def is_hidden(name: str) -> bool:
    """Whether a path has a part that is not for readers."""
    return any(part.startswith(HIDDEN) for part in name.split("/"))


@dataclass(slots=True)
class LocalFolder:
    """A folder that driver and nodes have under the same path."""

    place: str

    def found(self, *, recursive: bool) -> Iterator[Found]:
        """See `FileFolder`."""
        yield from self._below("", recursive)

    def digest_of_ends(self, file: io.BufferedIOBase) -> str:
        """See `FileFolder`."""
        try:
            return _digest(file.fileno())
        except OSError as error:
            raise _of_a_file(f"files at {self.place}", error) from error

    def open(self, name: str, version: str) -> io.BufferedIOBase:
        """See `FileFolder`."""
        path = os.path.join(self.place, name)
        try:
            return io.BufferedReader(_LocalFile(path, version), BUFFER_BYTES)
        except FileNotFoundError as error:
            if self._is_unmounted():
                raise self._away("has nothing in it") from error
            raise DataLossError(where=f"file {path}", what=GONE, remedy=REMEDY) from error
        except OSError as error:
            raise _of_a_file(f"file {path}", error) from error

    def _below(self, folder: str, recursive: bool) -> Iterator[Found]:
        try:
            entries = list(os.scandir(os.path.join(self.place, folder)))
        except FileNotFoundError as error:
            if folder:  # it was removed meanwhile
                return
            raise self._away("is not there") from error
        except OSError as error:
            where = f"files at {os.path.join(self.place, folder)}"
            if error.errno in (*REFUSALS, errno.ENOTDIR):
                self._refuse(where, error)
            raise self._away(f"cannot be listed ({error.strerror})") from error
        for entry in entries:
            name = f"{folder}{entry.name}"
            if is_hidden(entry.name):
                continue
            if self._is_folder(entry):
                if recursive:
                    yield from self._below(f"{name}/", recursive)
            else:
                yield from self._one(name)

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir(follow_symlinks=False)
        except OSError as error:  # of a disk that names entries without their kind
            raise _of_a_file(f"file {entry.path}", error) from error

    def _one(self, name: str) -> Iterator[Found]:
        path = os.path.join(self.place, name)
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise RunError(
                where=f"files at {self.place}",
                what=f"have one with a name that is no UTF-8, {os.fsencode(name)!r}",
                remedy="rename it",
            ) from error
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno in NO_FILE:
                return
            raise _of_a_file(f"file {path}", error) from error
        if stat.S_ISREG(status.st_mode):
            modified = status.st_mtime_ns // 1_000
            yield Found(name, status.st_size, _version(status), modified)

    def _is_unmounted(self) -> bool:
        """Whether there is nothing at all: what is mounted there may be away."""
        try:
            with os.scandir(self.place) as entries:
                return next(entries, None) is None
        except OSError:
            return True

    def _away(self, what: str) -> SourceAwayError:
        remedy = "see that the folder is there, on the driver and on all nodes"
        return SourceAwayError(where=f"files at {self.place}", what=what, remedy=remedy)

    def _refuse(self, where: str, error: OSError) -> NoReturn:
        what = f"cannot be listed ({error.strerror})"
        remedy = "name a folder, and see who may read it"
        raise RunError(where=where, what=what, remedy=remedy) from error


@dataclass(slots=True)
class BucketFolder:
    """What is below s3://BUCKET/PREFIX; the environment says where the server is."""

    place: str
    _files: "ObjectFiles | None" = None

    def found(self, *, recursive: bool) -> Iterator[Found]:
        """See `FileFolder`."""
        try:
            for one in self._client().objects():
                name = str(one["path"])
                if is_hidden(name) or ("/" in name and not recursive):
                    continue
                modified = one["last_modified"]
                version = str(one["e_tag"] or "")
                size, at = int(one["size"]), round(modified.timestamp() * 1_000_000)
                yield Found(name, size, version, at)
        except OSError as error:
            raise _of_a_bucket(f"files at {self.place}", error) from error

    def digest_of_ends(self, file: io.BufferedIOBase) -> str:
        """See `FileFolder`."""
        del file
        return ""

    def open(self, name: str, version: str) -> io.BufferedIOBase:
        """See `FileFolder`."""
        where = f"file {self.place}/{name}"
        raw = _BucketFile(self._client(), name, version, where)
        try:
            raw.size = self._client().size(name)
        except FileNotFoundError as error:
            raise DataLossError(where=where, what=GONE, remedy=REMEDY) from error
        except OSError as error:
            raise _of_a_bucket(where, error) from error
        return io.BufferedReader(raw, BUFFER_BYTES)

    def __reduce__(self) -> tuple[type["BucketFolder"], tuple[str]]:
        return BucketFolder, (self.place,)  # a client has what is secret

    def _client(self) -> "ObjectFiles":
        if self._files is None:
            try:
                from rekindle_store.object_files import ObjectFiles
            except ModuleNotFoundError as error:
                raise InputError(
                    where=f"files at {self.place}",
                    what=f"needs {error.name}, which is not installed",
                    remedy="install rekindle[stores] for the driver and on all nodes",
                ) from error
            self._files = ObjectFiles(self.place)
        return self._files


class _LocalFile(io.RawIOBase):
    """A file of which each read checks the version, and the digest whenever its inode has changed
    since the last check."""

    def __init__(self, path: str, version: str) -> None:
        super().__init__()
        self.path = path
        self.version, _, self.digest = version.partition(" ")
        self.checked_ns = -1
        self.file = io.FileIO(path)
        try:
            self._check()
        except BaseException:
            self.file.close()
            raise

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def seekable(self) -> bool:
        """Any part can be read."""
        return True

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self.file.fileno()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        return self.file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        try:
            count = self.file.readinto(buffer)
        except OSError as error:
            raise _of_a_file(f"file {self.path}", error) from error
        self._check()
        return count or 0

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        super().close()

    def _check(self) -> None:
        status = os.fstat(self.file.fileno())
        is_same = _version(status) == self.version
        if is_same and self.digest and status.st_ctime_ns != self.checked_ns:
            try:
                is_same = _digest(self.file.fileno()) == self.digest
            except OSError as error:
                raise _of_a_file(f"file {self.path}", error) from error
            self.checked_ns = status.st_ctime_ns
        if not is_same:
            raise DataLossError(where=f"file {self.path}", what=CHANGED, remedy=REMEDY)


class _BucketFile(io.RawIOBase):
    """An object, read by ranges of one version."""

    def __init__(self, files: "ObjectFiles", name: str, version: str, where: str) -> None:
        super().__init__()
        self.files, self.name, self.version, self.where = files, name, version, where
        self.size = self.position = 0

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def seekable(self) -> bool:
        """Any part can be read."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        self.position = max(0, base + offset)
        return self.position

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        end = min(self.size, self.position + len(buffer))
        if end <= self.position:
            return 0
        try:
            data = self.files.read_range(self.name, self.position, end, self.version)
        except FileNotFoundError as error:
            raise DataLossError(where=self.where, what=GONE, remedy=REMEDY) from error
        except OSError as error:
            if error.errno == errno.ESTALE:
                raise DataLossError(where=self.where, what=CHANGED, remedy=REMEDY) from error
            raise _of_a_bucket(self.where, error) from error
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def _digest(descriptor: int) -> str:
    """Compute the digest of the first and the last bytes of an open file, wherever it is read."""
    found = hashlib.blake2b(digest_size=16)
    for begin in (0, max(0, os.fstat(descriptor).st_size - DIGEST_BYTES)):
        end = begin + DIGEST_BYTES
        # a read may give less than was asked for, as on a mounted file system
        while begin < end and (part := os.pread(descriptor, end - begin, begin)):
            found.update(part)
            begin += len(part)
    return found.hexdigest()


def _of_a_file(where: str, error: OSError) -> RunError:
    """What an error of a disk or a mounted folder means."""
    if error.errno in REFUSALS:
        what = f"cannot be read ({error.strerror})"
        return RunError(where=where, what=what, remedy="see who may read it, on all nodes")
    what = f"cannot be read now ({error.strerror})"
    return SourceAwayError(where=where, what=what, remedy="see that its folder is there")


def _of_a_bucket(where: str, error: OSError) -> RunError:
    """What an error of S3 means (see `object_files`)."""
    said = store_errors.described(error)
    if error.errno in REFUSALS:
        remedy = "see that the bucket is there, and AWS_ACCESS_KEY_ID and the like (docs/stores.md)"
        return RunError(where=where, what=f"cannot be read ({said})", remedy=remedy)
    if error.errno == errno.EILSEQ:
        remedy = "rename or remove it, or name a prefix that it is not below"
        return RunError(where=where, what=f"have one with such a name ({said})", remedy=remedy)
    remedy = "see that its server is there, and can be reached from the driver and all nodes"
    return SourceAwayError(where=where, what=f"cannot be reached ({said})", remedy=remedy)
