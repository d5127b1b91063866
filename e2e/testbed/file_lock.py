"""A file that one process holds at a time, for as long as it is open: however its holder ends."""

import fcntl
from pathlib import Path
from typing import IO


def take(file: Path) -> IO[str] | None:
    """The file, made where it is missing, and held until it is closed; None while another process
    has it, or this one by another opening."""
    held = file.open("a")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        return None
    return held


def is_taken(file: Path) -> bool:
    """Whether another process has it, or this one. The file is made where it is missing."""
    held = take(file)
    if held is None:
        return True
    held.close()
    return False
