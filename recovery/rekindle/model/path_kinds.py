"""Names the kind of a path that cannot be read like an ordinary file.

A pipe whose writer never comes would be waited for without an end, and a link in a loop is not the
same mistake as a file that was never made. Called by who takes paths of people.
"""

import errno
import os
import stat
from pathlib import Path

KINDS = (
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISFIFO, "is a named pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def other_than_file(path: str | Path) -> str:
    """Say what a path leads to, as "is a folder"; nothing where it is a file."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return _unreachable(path, error)
    except ValueError:  # a null character
        return "is no path of a file"
    return next((text for is_of, text in KINDS if is_of(mode)), "")


def _unreachable(path: str | Path, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "is a link that leads back to itself"
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"is a link to {os.readlink(path)}, which is not there"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return "is not there"
    return f"cannot be read ({error.strerror})"
