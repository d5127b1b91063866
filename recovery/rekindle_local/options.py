"""Checks of command-line options that several commands share.

Each raises InputError that names the option and the remedy, before anything is started.
"""

from pathlib import Path

from rekindle.errors import InputError

__all__ = ["check_kill", "new_directory"]


def check_kill(kill: int, nodes: int) -> None:
    """Some nodes must survive."""
    if kill >= nodes:
        raise InputError(
            where="--kill", what=f"is {kill} of {nodes} nodes", remedy="leave some alive"
        )


def new_directory(directory: Path) -> Path:
    """Make an empty directory for a report; one with files in it is left alone."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            where=f"--report {directory}",
            what=f"cannot be made ({error.strerror})",
            remedy="name a new directory",
        ) from error
    if any(directory.iterdir()):
        raise InputError(
            where=f"--report {directory}",
            what="is not empty",
            remedy="name a new directory, or empty this one",
        )
    return directory.resolve()
