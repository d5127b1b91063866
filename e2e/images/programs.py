"""Runs a program to its end; an error tells the last line that it has printed.

Everything in `images` that is not Python goes through here.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rekindle.errors import InputError, RunError

__all__ = ["run", "where_is"]


def where_is(program: str, package: str) -> str:
    """The path of a program. Raises `InputError` with its Debian package where it is missing."""
    found = shutil.which(program)
    if found is None:
        raise InputError(
            where=program,
            what="is not installed",
            remedy=f"install it, on Debian `apt-get install {package}`",
        )
    return found


def run(
    command: Sequence[str],
    *,
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command; what it prints is added to `log`. Raises `RunError` when it fails."""
    with log.open("ab") as file:
        begin = file.tell()
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode == 0:
        return
    said = log.read_bytes()[begin:].decode(errors="replace")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    raise RunError(
        where=" ".join(command[:2]),
        what=lines[-1][:300] if lines else f"ended with code {done.returncode}",
        remedy=f"see {log}",
    )
