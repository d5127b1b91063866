"""Files of a store in a folder that all nodes share: on disk, with their names, before they count.

A file is written and flushed under another name, then gets its own, then its folder is flushed. One
that must not be there yet gets its name by a hard link, which only one of two writers can make.
"""

import errno
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rekindle_store.transfers import PIECE_BYTES, Moved, pieces, unwatched

# Puts files and folders on disk for good: what a record names must outlive a crash of the machine.
#
# A written file is not on disk before it is flushed, and its name is not before its folder is. So
# the order is always: the file, its name, the folder; then whatever refers to it. What is written,
# and where, is up to who calls.

UNFINISHED = ".unfinished"


def aside(path: Path) -> Path:
    """A name in the same folder to write a file under until it is whole; nobody else's name."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")


def is_aside(path: Path) -> bool:
    """Whether it is such a name."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)


@contextmanager
def written_aside(
    files: Mapping[Path, bytes], moved: Moved = unwatched
) -> Iterator[dict[Path, Path]]:
    """Files with these contents, on disk under other names; inside they are given their own.

    All are written before the first is flushed: that then takes most of the others along. A large
    one is flushed piece by piece, for a slow disk takes minutes for all of it. What is left under
    the other names, whatever happens, is removed: others need the room.
    """
    unfinished = {path: aside(path) for path in files}
    try:
        for path, data in files.items():
            _write(unfinished[path], data, moved)
        for path, data in files.items():
            flush(unfinished[path])
            moved(len(data) if len(data) <= PIECE_BYTES else 0)
        yield unfinished
    finally:
        for draft in unfinished.values():
            with suppress(OSError):
                draft.unlink()


def read(path: Path, moved: Moved) -> bytes:
    """A file's content."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= PIECE_BYTES:
            data = file.readall()
            moved(len(data))
            return data
        content = bytearray(size)
        view, end = memoryview(content), 0
        while count := file.readinto(view[end : end + PIECE_BYTES]):
            end += count
            moved(count)
        return bytes(view[:end])


def _write(path: Path, data: bytes, moved: Moved) -> None:
    if len(data) <= PIECE_BYTES:
        path.write_bytes(data)
        return
    with path.open("wb") as file:
        for piece in pieces(data, moved):
            file.write(piece)
            file.flush()
            os.fdatasync(file.fileno())


def flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and what lacks above it, each on disk before the next."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


OUTPUTS = "outputs"
CHECKPOINTS = "checkpoints"


class LocalFiles:
    """The files below a folder (`store_files.Files`). Folders must be there: nothing but
    `make_folder` makes any."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()

    @property
    def place(self) -> str:
        """The folder's absolute path."""
        return str(self.directory)

    def make_folder(self, name: str) -> None:
        """The store's own folders are made with what lacks above them; one below them only where
        they are there: otherwise the store is away."""
        path = self.directory / name
        if path.parent == self.directory:
            make_folder(path)
            return
        with suppress(FileExistsError):
            path.mkdir()
        flush(path.parent)

    def create(self, name: str, data: bytes) -> None:
        """See `store_files.Files`."""
        path = self.directory / name
        with written_aside({path: data}) as unfinished:
            try:
                os.link(unfinished[path], path)
            except FileExistsError:
                if path.read_bytes() != data:
                    raise
        flush(path.parent)

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        """A file is on disk before it gets its name: it may take the place of one that counts."""
        paths = {self.directory / name: data for name, data in files.items()}
        with written_aside(paths, moved) as unfinished:
            for path, draft in unfinished.items():
                draft.replace(path)
        for folder in sorted({path.parent for path in paths}):
            flush(folder)

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        """See `store_files.Files`. Where the store's own folder is missing, all of the store is
        away; and where it has just come back, the file may be there after all."""
        path = self.directory / name
        try:
            return read(path, moved)
        except FileNotFoundError as error:
            self._check_there(name, error)
        return read(path, moved)

    def size(self, name: str) -> int:
        """See `store_files.Files`, and `read` for a file that is not there."""
        path = self.directory / name
        try:
            return path.stat().st_size
        except FileNotFoundError as error:
            self._check_there(name, error)
        return path.stat().st_size

    def names(self, folder: str) -> list[str]:
        """See `store_files.Files`."""
        top = self.directory / folder
        return [
            os.path.relpath(os.path.join(found, name), top)
            for found, _, names in os.walk(top, onerror=_pass_on)
            for name in names
        ]

    def stream_names(self, folder: str) -> Iterator[str]:
        """See `store_files.Files`."""
        try:
            with os.scandir(self.directory / folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        below = self.stream_names(f"{folder}/{entry.name}")
                        yield from (f"{entry.name}/{name}" for name in below)
                    else:
                        yield entry.name
        except FileNotFoundError:  # the folder is missing, or went while it was listed
            return

    def _check_there(self, name: str, error: FileNotFoundError) -> None:
        """Raise OSError where not only the file is missing, but the store's folder for it."""
        own, *below = Path(name).parts
        if not (self.directory / own if below else self.directory).is_dir():
            path = str(self.directory / name)
            raise OSError(errno.EIO, "the store is away", path) from error

    def remove(self, names: Iterable[str]) -> None:
        """Folders that are emptied go as well, but for the top ones, and those of output: nobody
        makes these again for hosts that write there."""
        paths = [self.directory / name for name in names]
        for path in paths:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in paths}:
            if folder.parent not in (self.directory, self.directory / OUTPUTS):
                with suppress(OSError):
                    folder.rmdir()

    def remove_leftovers(self, seconds: float) -> None:
        """See `store_files.Files`. They lie in the folders of the files that they were to be."""
        newest = time.time() - seconds
        for folder in [entry.name for entry in os.scandir(self.directory) if entry.is_dir()]:
            for name in self.stream_names(folder):
                path = self.directory / folder / name
                if is_aside(path):
                    with suppress(FileNotFoundError):
                        if path.stat().st_mtime < newest:
                            path.unlink()
        self._remove_empty(newest)

    def _remove_empty(self, newest: float) -> None:
        """Those of checkpoints in which nothing has changed since a moment: a folder with files is
        not removed by this call."""
        with suppress(FileNotFoundError), os.scandir(self.directory / CHECKPOINTS) as entries:
            for entry in entries:
                if entry.name.isdecimal() and entry.stat().st_mtime < newest:
                    with suppress(OSError):
                        os.rmdir(entry.path)


def _pass_on(error: OSError) -> None:
    """Of a folder, all that is not plain absence."""
    if not isinstance(error, FileNotFoundError):
        raise error
