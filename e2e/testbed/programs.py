"""Finds programs, and runs them to their end, which has a limit; errors tell what they said last.

Who wants a program's output in a log, as `images` does, takes `finish` and `failure`.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rekindle.errors import InputError, RunError

__all__ = ["failure", "find", "finish", "run"]

SAID_MAX = 300


def find(program: str, *, where: str, what: str, remedy: str) -> str:
    """The path of a program. Raises `InputError` of these words where it is missing."""
    found = shutil.which(program)
    if found is None:
        raise InputError(where=where, what=what, remedy=remedy)
    return found


def run(
    command: Sequence[str | Path], *, where: str, remedy: str, seconds_max: float, **how: Any
) -> str:
    """What a program prints. Raises `RunError` when it fails, or takes longer than the limit, and
    `InputError` where there is none.

    `how` are arguments of `subprocess.run`, such as `cwd`, `env`, `stdin` or `input`.
    """
    try:
        done = finish(command, where=where, remedy=remedy, seconds_max=seconds_max, **how)
    except FileNotFoundError as error:
        raise InputError(
            where=where,
            what=f"there is no {error.filename}",
            remedy="install it, and see whether it is on the PATH",
        ) from error
    if done.returncode != 0:
        raise failure(done, f"{done.stdout}\n{done.stderr}", where=where, remedy=remedy)
    return done.stdout


def finish(
    command: Sequence[str | Path], *, where: str, remedy: str, seconds_max: float, **how: Any
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, well or not.

    At the limit it is killed, though not what it has started, and `RunError` is raised.
    """
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    if "input" not in given:
        given.setdefault("stdin", subprocess.DEVNULL)
    try:
        return subprocess.run(
            command, text=True, errors="replace", timeout=seconds_max, check=False, **given
        )
    except subprocess.TimeoutExpired as error:
        what = f"has not ended within {seconds_max:.0f} s"
        raise RunError(where=where, what=what, remedy=remedy) from error


def failure(
    done: subprocess.CompletedProcess[str], said: str, *, where: str, remedy: str
) -> RunError:
    """The error of a program that has said this and failed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    what = lines[-1][:SAID_MAX] if lines else f"ended with code {done.returncode}"
    return RunError(where=where, what=what, remedy=remedy)
