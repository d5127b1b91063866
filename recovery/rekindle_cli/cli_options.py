"""Checks of options, and the directories that they name, which several commands share.

Each check raises InputError that names the option and the remedy, before anything is started.
spark_cluster.py checks its own options with it, too, and the testbed where nothing is installed.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rekindle import interrupts
from rekindle.model.errors import InputError

SEED_MAX = 2**31
STRATEGIES = ("incremental", "blocking")


def check_absent(where: str, value: object | None, beside: str) -> None:
    """An option may not be given beside another one; `beside` says which, and why."""
    if value is not None:
        raise InputError(where=where, what=f"is given beside {beside}", remedy="leave it out")


def check_choice(where: str, value: str, choices: Sequence[str]) -> None:
    """A word must be one of those that are known."""
    if value not in choices:
        raise InputError(
            where=where, what=f"is {value!r:.60}", remedy=f"choose {' or '.join(choices)}"
        )


def choices(where: str, text: str, known: Sequence[str]) -> list[str]:
    """The words of "A,B", each once; each must be one of those that are known."""
    words = list(dict.fromkeys(text.split(",")))
    for word in words:
        check_choice(where, word, known)
    return words


def check_kill(kill: int, nodes: int) -> None:
    """Some nodes must survive."""
    if kill >= nodes:
        raise InputError(
            where="--kill", what=f"is {kill} of {nodes} nodes", remedy="leave some alive"
        )


def check_range(where: str, value: float, least: float, most: float) -> None:
    """A number must lie between two others."""
    if not least <= value <= most:
        raise InputError(
            where=where, what=f"is {value}", remedy=f"give a number from {least:,} to {most:,}"
        )


def seeds(text: str, most: int) -> list[int]:
    """The seeds of "3" or "1..5", `most` at once."""
    form = re.fullmatch(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?", text)
    first, last = (int(form[1]), int(form[2] or form[1])) if form else (1, 0)
    if not first <= last <= min(SEED_MAX, first + most - 1):
        raise InputError(
            where="--seeds",
            what=f"is {text!r:.60}",
            remedy=f"write 3 or 1..5: up to {most:,} seeds from 0 to {SEED_MAX:,}",
        )
    return list(range(first, last + 1))


def made_directory(option: str, directory: Path, remedy: str) -> None:
    """Make the directory that an option names, unless it is there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            where=f"{option} {directory}",
            what=f"cannot be made ({error.strerror})",
            remedy=remedy,
        ) from error


def new_directory(directory: Path) -> Path:
    """Make an empty directory for a report; one with files in it is left alone."""
    made_directory("--report", directory, "name a new directory")
    resolved = writable(directory)
    if any(resolved.iterdir()):
        raise InputError(
            where=f"--report {directory}",
            what="is not empty",
            remedy="name a new directory, or empty this one",
        )
    return resolved


def writable(directory: Path) -> Path:
    """A directory that is there, for a report to be written to."""
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        raise InputError(
            where=f"--report {directory}",
            what="cannot be written" if os.path.exists(directory) else "is not there",
            remedy="name another directory, or have this one's rights changed",
        )
    return directory.resolve()


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, the first SIGTERM or SIGHUP does what Ctrl-C does, so that all that was started ends
    and temporary files go. Further ones do not disturb that. Has to be entered in the main thread.
    """
    signals = (signal.SIGTERM, signal.SIGHUP)
    end = interrupts.raising(KeyboardInterrupt)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        end(number, frame)

    before = [signal.signal(number, interrupt) for number in signals]
    try:
        # SIGINT may be ignored, as in the background of a script
        with interrupts.never_lost():
            yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def report_directory(report: Path | None) -> Iterator[Path]:
    """The new directory `report`; without it a temporary one, kept only when the run fails."""
    if report is not None:
        yield new_directory(report)
        return
    temporary = Path(tempfile.mkdtemp(prefix="rekindle-demo-"))
    failed = False
    try:
        with interruptible():
            yield temporary
    except Exception as error:
        failed = not isinstance(error, InputError)  # before anything was started
        raise
    finally:
        if failed:
            print(f"what the run left is kept in {temporary}", file=sys.stderr)
        else:
            shutil.rmtree(temporary, ignore_errors=True)
