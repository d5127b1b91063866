"""Puts files and folders on disk for good: what a record names must outlive a crash of the machine.

A written file is not on disk before it is flushed, and its name is not before its folder is. So
the order is always: the file, its name, the folder; then whatever refers to it. What is written,
and where, is up to `local_files`, which calls this.
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rekindle_store.transfers import PIECE_BYTES, Moved, pieces, unwatched

__all__ = ["aside", "flush", "is_aside", "make_folder", "read", "written_aside"]

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
