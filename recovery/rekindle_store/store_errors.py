"""Errors of a whole store as sentences: place, fault and remedy.

`store_files` asks before a store is written, `store_readers` while one is read. A disk, S3 and HDFS
number their errors alike: object_files.py says what each number means.
"""

import errno
from pathlib import Path

from rekindle.model.errors import InputError, RunError, first_line

FOLDER_REMEDY = "name the place that `rekindle run --store` was given"
# There was an answer of the server, and it was an error.
ANSWERED = (errno.EREMOTEIO, errno.EBUSY, errno.EOPNOTSUPP)
# There is no room for more.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors that waiting does not mend.
LASTING = (errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def described(error: OSError) -> str:
    """What an error says, in a line and without its number."""
    return (error.strerror or "").partition("\n")[0] or first_line(error)


def unwritable(place: str | Path, error: OSError, *, is_local: bool) -> InputError | RunError:
    """What to raise where a store cannot be written."""
    where = _where(place)
    if is_local:
        what = f"cannot be written ({error.strerror})"
        remedy = "name a place in a folder that is there and may be written"
        if error.errno in FULL:
            remedy = "make room there, or name another place"
        return InputError(where=where, what=what, remedy=remedy)
    said = described(error)
    if error.errno == errno.EILSEQ:
        return _misnamed(where, said)
    if isinstance(error, PermissionError) or error.errno in (errno.ENXIO, errno.EINVAL):
        remedy = "see that the bucket is there, and AWS_ACCESS_KEY_ID and the like (docs/stores.md)"
        if _is_hdfs(place):
            remedy = "see who may write there, and HADOOP_USER_NAME and the like (docs/stores.md)"
        return InputError(where=where, what=f"cannot be written ({said})", remedy=remedy)
    if error.errno == errno.EPROTO:
        return _distrusted(where, said)
    if error.errno in ANSWERED:
        remedy = "see what its server's log says, and start again (docs/stores.md)"
        return RunError(where=where, what=f"answers with an error ({said})", remedy=remedy)
    needs = "HADOOP_CONF_DIR" if _is_hdfs(place) else "AWS_ENDPOINT_URL"
    remedy = f"see that its server runs, and {needs} and the like (docs/stores.md)"
    return RunError(where=where, what=f"does not answer ({said})", remedy=remedy)


def unreadable(place: str | Path, error: OSError, *, is_local: bool) -> InputError | RunError:
    """What to raise where a store cannot be read."""
    where, said = _where(place), described(error)
    if error.errno == errno.EILSEQ:
        return _misnamed(where, said)
    if error.errno == errno.EPROTO:
        return _distrusted(where, said)
    if error.errno in LASTING:
        remedy = "have its rights changed"
        if not isinstance(error, PermissionError):
            remedy = FOLDER_REMEDY
        if not is_local:
            name = "HADOOP_USER_NAME" if _is_hdfs(place) else "AWS_ACCESS_KEY_ID"
            remedy = f"see that it is there, and {name} and the like (docs/stores.md)"
        return InputError(where=where, what=f"cannot be read ({said})", remedy=remedy)
    answers = error.errno in ANSWERED and not is_local
    return RunError(
        where=where,
        what=f"{'answers with an error' if answers else 'does not answer'} ({said})",
        remedy="see that it is there and its server runs (docs/stores.md), and try again",
    )


def _where(place: str | Path) -> str:
    return f"checkpoint store {place}"


def _is_hdfs(place: str | Path) -> bool:
    return str(place).lower().startswith("hdfs")


def _misnamed(where: str, said: str) -> InputError:
    return InputError(
        where=where,
        what=f"has an object with a name that cannot be read ({said})",
        remedy="rename or remove it: it is none of a store's",
    )


def _distrusted(where: str, said: str) -> InputError:
    return InputError(
        where=where,
        what=f"has a certificate that is not trusted ({said})",
        remedy="name a file with its authority in AWS_CA_BUNDLE (docs/stores.md)",
    )
