"""Files of a store on HDFS, by a client that needs neither Java nor Hadoop where it runs.

HDFS gives no file a name that is taken unless it is told to. So a file is written under another
name, put on disk and renamed: of two writers of a new file one can, and who takes the place of
another does so at once; nobody sees a part of it. What the library raises becomes OSError with a
number and one line of text, which is waited out; only the absence of a file or folder of a store
that is there counts as that.

Why: docs/decisions/0037-s3-by-obstore-hdfs-by-hdfs-native.md.
"""

import errno
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from hdfs_native import Client, WriteOptions

from rekindle.model.errors import first_line
from rekindle_store.local_files import CHECKPOINTS, OUTPUTS
from rekindle_store.transfers import PIECE_BYTES, Moved, pieces, unwatched

# Who waits for a store tries again, and says so: of itself the client would for many minutes.
CONFIGURATION = {"dfs.client.failover.max.attempts": "2"}
# In the store, for files without their names yet; what killed processes have left lies there.
UNFINISHED = "unfinished"


class HdfsFiles:
    """The files below hdfs://HOST:PORT/FOLDER (`store_files.Files`). `HADOOP_CONF_DIR` may name a
    folder with core-site.xml and hdfs-site.xml, for a service of several name nodes."""

    def __init__(self, place: str) -> None:
        self.place = place
        parts = urlsplit(place)
        self.root = parts.path.rstrip("/")
        with self._answers():
            self.client = Client(f"{parts.scheme}://{parts.netloc}", CONFIGURATION)

    def make_folder(self, name: str) -> None:
        """See `store_files.Files`."""
        with self._answers():
            self.client.mkdirs(self._path(name), create_parent=True)

    def create(self, name: str, data: bytes) -> None:
        """See `store_files.Files`."""
        try:
            self._write(name, data, instead=False)
        except FileExistsError:
            if self.read(name) != data:
                raise

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        """See `store_files.Files`."""
        for name, data in files.items():
            self._write(name, data, instead=True, moved=moved)

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        """See `store_files.Files`."""
        with self._answers(), self.client.read(self._path(name)) as reader:
            parts = []
            while part := bytes(reader.read(PIECE_BYTES)):
                parts.append(part)
                moved(len(part))
            return b"".join(parts)

    def size(self, name: str) -> int:
        """See `store_files.Files`."""
        with self._answers():
            return int(self.client.get_file_info(self._path(name)).length)

    def names(self, folder: str) -> list[str]:
        """See `store_files.Files`."""
        return list(self.stream_names(folder))

    def stream_names(self, folder: str) -> Iterator[str]:
        """See `store_files.Files`. The server lists some at a time."""
        top = self._path(folder)
        try:
            with self._answers():
                for status in self.client.list_status(top, recursive=True):
                    if not status.isdir:
                        yield status.path.removeprefix(f"{top}/")
        except FileNotFoundError:
            return

    def remove(self, names: Iterable[str]) -> None:
        """Folders that are emptied go as well, as in `LocalFiles.remove`: a name node takes about a
        million in one, and each checkpoint has one."""
        folders = set()
        for name in names:
            with self._answers(), suppress(FileNotFoundError):
                self.client.delete(self._path(name))
            folders.add(name.rpartition("/")[0])
        for folder in sorted(folders):
            if folder.rpartition("/")[0] not in ("", OUTPUTS):
                with suppress(OSError), self._answers():  # it is not empty
                    self.client.delete(self._path(folder), recursive=False)

    def remove_leftovers(self, seconds: float) -> None:
        """See `store_files.Files`. Files are in one folder."""
        newest = (time.time() - seconds) * 1000
        with suppress(FileNotFoundError), self._answers():
            for status in self.client.list_status(self._path(UNFINISHED)):
                if not status.isdir and status.modification_time < newest:
                    self.client.delete(status.path)
        with suppress(FileNotFoundError), self._answers():
            for status in self.client.list_status(self._path(CHECKPOINTS)):
                name = status.path.rpartition("/")[2]
                if status.isdir and name.isdecimal() and status.modification_time < newest:
                    with suppress(OSError), self._answers():  # it is not empty
                        self.client.delete(status.path, recursive=False)

    def _write(self, name: str, data: bytes, *, instead: bool, moved: Moved = unwatched) -> None:
        """A file whole under its name; `instead` of one that may be there."""
        unfinished = self._path(f"{UNFINISHED}/{uuid.uuid4().hex}")
        with self._answers():
            try:
                with self.client.create(unfinished, WriteOptions(create_parent=True)) as writer:
                    for piece in pieces(data, moved):
                        writer.write(bytes(piece))
                    if data:
                        writer.hsync()
                self.client.rename(unfinished, self._path(name), overwrite=instead)
            except OSError:
                with suppress(OSError):
                    self.client.delete(unfinished)
                raise

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """What the library raises, with a number, and without the server's stack."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, first_line(error), self.place) from error
        except FileExistsError as error:
            raise FileExistsError(errno.EEXIST, first_line(error), self.place) from error
        except PermissionError as error:
            raise PermissionError(errno.EACCES, first_line(error), self.place) from error
        except OSError as error:
            raise OSError(errno.EIO, first_line(error), self.place) from error
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise OSError(errno.EIO, first_line(error), self.place) from error
