"""The process that owns a control plane or a cluster: named for a person, and ended from elsewhere.

It ends by SIGTERM what it has started. `down` of both kinds calls it, and cluster_lock.py to say
who is in the way.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets

COMMAND_MAX = 100


def described(owner: int) -> str:
    """A process with what it runs, as far as it can be known; 0 is one that is not known."""
    if not owner:
        return "another process"
    try:
        command = Path(f"/proc/{owner}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        command = ""
    told = " ".join(command.replace("\0", " ").split())[:COMMAND_MAX]
    return f"process {owner} ({told})" if told else f"process {owner}"


def end(owner: int, has_ended: Callable[[], bool], *, seconds_max: float, remedy: str) -> None:
    """Ends a process, and waits until it has: what `has_ended` says.

    Raises `InputError` for one that is another user's or no longer there, and `RunError`, with this
    remedy, for one that goes on.
    """
    where = f"process {owner}"
    try:
        os.kill(owner, signal.SIGTERM)
    except PermissionError as error:
        raise InputError(
            where=where, what="is another user's", remedy="run this as that user, or as root"
        ) from error
    except ProcessLookupError as error:
        if has_ended():
            return
        raise InputError(
            where=where, what="has ended, and another has its place", remedy="look again"
        ) from error
    if not process_sets.await_condition(has_ended, limit_seconds=seconds_max, interval_seconds=0.1):
        raise RunError(where=where, what=f"has not ended within {seconds_max:.0f} s", remedy=remedy)
