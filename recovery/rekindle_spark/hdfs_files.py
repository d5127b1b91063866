"""Files of a store on HDFS, through pyarrow and Hadoop's own library, which must be installed.

HDFS gives no file a name that is taken. So a file is written under another name and renamed: of two
writers one can, and nobody sees a part of it.
"""

import errno
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress

from pyarrow import fs

__all__ = ["HdfsFiles"]


class HdfsFiles:
    """The files below hdfs://HOST:PORT/FOLDER (`files.Files`)."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.filesystem, self.root = fs.FileSystem.from_uri(place)

    def make_folder(self, name: str) -> None:
        """See `files.Files`."""
        self.filesystem.create_dir(self._path(name))

    def create(self, name: str, data: bytes) -> None:
        """See `files.Files`."""
        path = self._path(name)
        unfinished = f"{path}.{uuid.uuid4().hex}.unfinished"
        try:
            with self.filesystem.open_output_stream(unfinished, compression=None) as stream:
                stream.write(data)
            self.filesystem.move(unfinished, path)
        except OSError:
            with suppress(OSError):
                self.filesystem.delete_file(unfinished)
            try:
                found = self.read(name)
            except FileNotFoundError:
                found = None
            if found is None:
                raise
            if found != data:
                raise FileExistsError(errno.EEXIST, "is there already", path) from None

    def put(self, files: Mapping[str, bytes]) -> None:
        """See `files.Files`; a file that is there is away for a moment."""
        for name, data in files.items():
            self.remove([name])
            self.create(name, data)

    def read(self, name: str) -> bytes:
        """See `files.Files`."""
        with self.filesystem.open_input_stream(self._path(name), compression=None) as stream:
            return bytes(stream.read())

    def names(self, folder: str) -> list[str]:
        """See `files.Files`."""
        top = self._path(folder)
        selector = fs.FileSelector(top, recursive=True, allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return [info.path.removeprefix(f"{top}/") for info in found if info.is_file]

    def remove(self, names: Iterable[str]) -> None:
        """See `files.Files`."""
        for name in names:
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"
