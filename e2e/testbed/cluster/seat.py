"""One cluster on a machine at a time: who has it, and where it lies.

Its addresses and names are the same each time, so there cannot be two. The one that there is holds
a lock, which its end frees however it ends, and has written down where it lies; a record without a
holder tells of leftovers. cluster.py and `clean` (commands.py) claim it.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rekindle.errors import InputError
from testbed import locks

__all__ = ["FOLDER", "Record", "claimed", "forget", "orders_socket", "owner", "read", "write"]

FOLDER = Path("/var/lib/rekindle-testbed")
_LOCK = "lock"
_RECORD = "record.json"
_ORDERS = "orders"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A cluster's process, the folder that it lies in, and a limit as it was before (limits.py)."""

    owner: int
    directory: Path
    instances: int


def orders_socket() -> Path:
    """Where a cluster that runs takes orders."""
    return FOLDER / _ORDERS


def owner() -> int | None:
    """The process that has a cluster now; None where there is none."""
    try:
        with (FOLDER / _LOCK).open("r") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        record = read()
        return 0 if record is None else record.owner
    return None


@contextmanager
def claimed() -> Iterator[None]:
    """Inside, no other process has a cluster. Raises `InputError` when one has it already."""
    held = _lock()
    if held is None:
        raise InputError(
            where="the cluster of real nodes",
            what=f"process {owner() or 'of somebody'} has one on this machine already",
            remedy="end it with `python -m testbed cluster down`",
        )
    try:
        yield
    finally:
        held.close()


def read() -> Record | None:
    """What the cluster that was last begun here has written down, unless it has ended whole."""
    try:
        record = json.loads((FOLDER / _RECORD).read_text(encoding="utf-8"))
        return Record(record["owner"], Path(record["directory"]), record["instances"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise InputError(
            where=str(FOLDER / _RECORD),
            what="is not a record of a cluster",
            remedy="remove it, and by hand the folder that the cluster had",
        ) from error


def write(record: Record) -> None:
    """Write down, before anything is made, where it will be."""
    fresh = FOLDER / f"{_RECORD}.new"
    text = {
        "version": _VERSION,
        "owner": record.owner,
        "directory": str(record.directory),
        "instances": record.instances,
    }
    fresh.write_text(json.dumps(text), encoding="utf-8")
    fresh.rename(FOLDER / _RECORD)


def forget() -> None:
    """Remove the record, and the folder of all this. The caller has claimed it."""
    for name in (_RECORD, f"{_RECORD}.new", _ORDERS, _LOCK):
        (FOLDER / name).unlink(missing_ok=True)
    FOLDER.rmdir()


def _lock() -> IO[str] | None:
    """The lock, held as long as it is open; None while another process holds it."""
    while True:
        FOLDER.mkdir(mode=0o755, exist_ok=True)
        held = locks.take(FOLDER / _LOCK)
        if held is None:
            return None
        # Whoever had it before may have removed the file in between: then it locks nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.fileno()), (FOLDER / _LOCK).stat()):
                return held
        held.close()
