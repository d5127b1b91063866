"""The Unix socket on which the driver speaks to its sidecar, and who is at its other end.

Only the user that the sidecar runs as may connect. A socket file that a killed sidecar has left is
replaced; one that somebody listens on is not.
"""

import os
import socket
import stat
import struct
from pathlib import Path
from typing import NoReturn

from rekindle.model.errors import InputError

# of a path in `sockaddr_un`, with the zero at its end
PATH_BYTES_MAX = 107
BACKLOG = 64
PROBE_SECONDS = 1.0
CREDENTIALS = struct.Struct("3i")  # process, user, group


def listen(path: Path) -> socket.socket:
    """A socket that listens at `path`, mode 0600. Raises InputError where that cannot be."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        _refuse(path, f"is longer than {PATH_BYTES_MAX} bytes", "name a shorter path")
    try:
        _clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError as error:
        _refuse(path, f"cannot be made ({error.strerror})", "name a path in a folder of your own")
    listener.setblocking(False)
    return listener


def remove(path: Path, inode: int) -> None:
    """Remove the socket file, unless another one has taken its place."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return


def process_at(other: socket.socket) -> int:
    """The process at the other end; 0 when it is in another process namespace."""
    data = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process: int = CREDENTIALS.unpack(data)[0]
    return process


def _clear(path: Path) -> None:
    """Remove what a killed sidecar has left."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        _refuse(path, "is there and no socket", "name a path that is free")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # somebody is there, but does not answer
    _refuse(path, "is in use by another process", "give each sidecar a path of its own")


def _refuse(path: Path, what: str, remedy: str) -> NoReturn:
    raise InputError(where=f"socket {path}", what=what, remedy=remedy)
