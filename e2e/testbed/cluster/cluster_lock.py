"""One cluster on a machine at a time: who has it, and where it lies.

Its addresses and names are the same each time, so there cannot be two. The one that there is holds
a lock, which its end frees however it ends, and has written down where it lies; a record without a
holder tells of leftovers. node_cluster.py and `clean` (cluster_commands.py) claim it.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rekindle.model.errors import InputError
from rekindle_local import process_sets
from testbed import file_lock, process_owners

FOLDER = Path("/var/lib/rekindle-testbed")
WHERE = "the cluster of real nodes"
_LOCK = "lock"
_RECORD = "record.json"
_ORDERS = "orders"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster's process, the folder that it lies in, and a limit as it was before
    (kernel_limits.py).

    `owner_ticks` is when the process was started, as `processes.start_ticks` has it.
    """

    owner: int
    directory: Path
    instances: int
    owner_ticks: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether its process is there still, and no other that has been given its number since."""
        ticks = process_sets.start_ticks(self.owner)
        return ticks is not None and self.owner_ticks in (None, ticks)


def orders_socket() -> Path:
    """Where a cluster that runs takes orders."""
    return FOLDER / _ORDERS


def owner() -> int | None:
    """The process that has a cluster now, 0 for one that is not known; None where there is none.

    Until a process has written down its own record, there may be that of one that was killed.
    Raises `InputError` where it is another user's, and for a record that is none.
    """
    try:
        with (FOLDER / _LOCK).open("r") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        record = read()
        return record.owner if record is not None and record.is_current else 0
    except PermissionError as error:
        raise not_yours() from error
    return None


@contextmanager
def claimed() -> Iterator[None]:
    """Inside, no other process has a cluster. Raises `InputError` when one has it already."""
    held = _lock()
    if held is None:
        raise _taken(owner() or 0)
    try:
        yield
    finally:
        held.close()


def check_free() -> None:
    """Raises `InputError` where a process has a cluster now; claims nothing."""
    there = owner()
    if there is not None:
        raise _taken(there)


def read() -> ClusterRecord | None:
    """What the cluster that was last begun here has written down, unless it has ended whole.

    Raises `InputError` for a record that is none, or another user's.
    """
    try:
        record = json.loads((FOLDER / _RECORD).read_text(encoding="utf-8"))
        found = ClusterRecord(
            record["owner"],
            Path(record["directory"]),
            int(record["instances"]),
            record.get("owner_ticks"),
        )
        if not isinstance(found.owner, int) or found.owner < 1:
            raise ValueError(f"no process has the number {found.owner}")  # a signal goes there
        return found
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise not_yours() from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            where=str(FOLDER / _RECORD),
            what="is not a record of a cluster",
            remedy="remove it, and by hand the folder that the cluster had",
        ) from error


def write(record: ClusterRecord) -> None:
    """Write down, before anything is made, where it will be."""
    fresh = FOLDER / f"{_RECORD}.new"
    text = {
        "version": _VERSION,
        "owner": record.owner,
        "owner_ticks": record.owner_ticks,
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


def not_yours() -> InputError:
    """For who may not speak to the cluster that there is."""
    return InputError(where=WHERE, what="is another user's", remedy="run this as root")


def _taken(there: int) -> InputError:
    """What this process has may be somebody's run, which nobody else should end."""
    record = read()
    place = f", in {record.directory}" if record is not None and record.owner == there else ""
    return InputError(
        where=WHERE,
        what=f"{process_owners.described(there)} has one on this machine already{place}",
        remedy="wait for its end; if nobody needs that run, end it with "
        "`python -m testbed cluster down`",
    )


def _lock() -> IO[str] | None:
    """The lock, held as long as it is open; None while another process holds it."""
    while True:
        FOLDER.mkdir(mode=0o755, exist_ok=True)
        held = file_lock.take(FOLDER / _LOCK)
        if held is None:
            return None
        # Whoever had it before may have removed the file in between: then it locks nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.fileno()), (FOLDER / _LOCK).stat()):
                return held
        held.close()
