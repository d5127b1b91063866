"""Runs a program to its end, within an hour; what it prints is added to a log.

Everything in `images` that takes its time and is not Python goes through here.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import program_runs

# Pulling a base, or all packages, over a slow network takes many minutes.
SECONDS_MAX = 3_600.0


def where_is(program: str, package: str) -> str:
    """The path of a program. Raises `InputError` with its Debian package where it is missing."""
    return program_runs.find(
        program,
        where=program,
        what="is not installed",
        remedy=f"install it, on Debian `apt-get install {package}`",
    )


def run(
    command: Sequence[str],
    *,
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command. Raises `RunError` with its last line when it fails, or takes too long."""
    where, remedy = " ".join(command[:2]), f"see {log}"
    with log.open("ab") as file:
        begin = file.tell()
        done = program_runs.finish(
            command,
            where=where,
            remedy=remedy,
            seconds_max=SECONDS_MAX,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    if done.returncode != 0:
        said = log.read_bytes()[begin:].decode(errors="replace")
        raise program_runs.failure(done, said, where=where, remedy=remedy)
