"""Files of a store in a folder that all nodes share: on disk, with their names, before they count.

A file is written and flushed under another name, then gets its own, then its folder is flushed. One
that must not be there yet gets its name by a hard link, which only one of two writers can make.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rekindle_store import disk_sync
from rekindle_store.transfers import Moved, unwatched

__all__ = ["LocalFiles"]


class LocalFiles:
    """The files below a folder (`files.Files`). Folders must be there: nothing but `make_folder`
    makes any."""

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
            disk_sync.make_folder(path)
            return
        with suppress(FileExistsError):
            path.mkdir()
        disk_sync.flush(path.parent)

    def create(self, name: str, data: bytes) -> None:
        """See `files.Files`."""
        path = self.directory / name
        with disk_sync.written_aside({path: data}) as unfinished:
            try:
                os.link(unfinished[path], path)
            except FileExistsError:
                if path.read_bytes() != data:
                    raise
        disk_sync.flush(path.parent)

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        """A file is on disk before it gets its name: it may take the place of one that counts."""
        paths = {self.directory / name: data for name, data in files.items()}
        with disk_sync.written_aside(paths, moved) as unfinished:
            for path, draft in unfinished.items():
                draft.replace(path)
        for folder in sorted({path.parent for path in paths}):
            disk_sync.flush(folder)

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        """See `files.Files`. Where the store's own folder is missing, all of the store is away; and
        where it has just come back, the file may be there after all."""
        path = self.directory / name
        try:
            return disk_sync.read(path, moved)
        except FileNotFoundError as error:
            self._check_there(name, error)
        return disk_sync.read(path, moved)

    def size(self, name: str) -> int:
        """See `files.Files`, and `read` for a file that is not there."""
        path = self.directory / name
        try:
            return path.stat().st_size
        except FileNotFoundError as error:
            self._check_there(name, error)
        return path.stat().st_size

    def names(self, folder: str) -> list[str]:
        """See `files.Files`."""
        top = self.directory / folder
        return [
            os.path.relpath(os.path.join(found, name), top)
            for found, _, names in os.walk(top, onerror=_pass_on)
            for name in names
        ]

    def stream_names(self, folder: str) -> Iterator[str]:
        """See `files.Files`."""
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
        """Folders that are emptied go as well, but for the top ones."""
        paths = [self.directory / name for name in names]
        for path in paths:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in paths}:
            if folder.parent != self.directory:
                with suppress(OSError):
                    folder.rmdir()

    def remove_leftovers(self, seconds: float) -> None:
        """See `files.Files`. They lie in the folders of the files that they were to be."""
        newest = time.time() - seconds
        for folder in [entry.name for entry in os.scandir(self.directory) if entry.is_dir()]:
            for name in self.stream_names(folder):
                path = self.directory / folder / name
                if disk_sync.is_aside(path):
                    with suppress(FileNotFoundError):
                        if path.stat().st_mtime < newest:
                            path.unlink()


def _pass_on(error: OSError) -> None:
    """Of a folder, all that is not plain absence."""
    if not isinstance(error, FileNotFoundError):
        raise error
