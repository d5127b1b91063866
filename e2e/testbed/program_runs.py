"""Finds programs, and runs them to their end, which has a limit; errors contain their last line.

`images` writes the output of programs to a log and calls `finish` and `failure`. go_builds.py reads
the output of Go while it runs, and calls `follow`.
"""

import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.model.errors import InputError, RunError

SAID_MAX = 300
LINES_KEPT = 20
# A program that is asked to end removes its temporary files first.
END_SECONDS_MAX = 10.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramWatch:
    """What happens while a program runs: `on_line` gets its lines, `on_tick` is called regularly.

    `on_line` returns whether the line is mere progress, which no error repeats. Once `stopped` is
    set the program is ended.
    """

    on_line: Callable[[str], bool]
    on_tick: Callable[[], None]
    tick_seconds: float
    stopped: threading.Event


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


def follow(
    command: Sequence[str | Path],
    following: ProgramWatch,
    *,
    where: str,
    remedy: str,
    seconds_max: float,
    cwd: Path,
    env: Mapping[str, str],
) -> None:
    """Runs a program and reads its output, both streams, line by line.

    Raises `RunError` when it fails, takes longer than the limit, or is stopped.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=cwd,
        env=env,
    ) as process:
        lines: deque[str] = deque(maxlen=LINES_KEPT)
        reader = threading.Thread(target=_read, args=(process, lines, following.on_line))
        reader.start()
        try:
            end = _await_end(process, following, seconds_max)
        finally:
            _interrupt(process)
            reader.join()
    if end:
        raise RunError(where=where, what=end, remedy=remedy)
    if process.returncode != 0:
        raise _failed(process.returncode, [*lines], where=where, remedy=remedy)


def failure(
    done: subprocess.CompletedProcess[str], said: str, *, where: str, remedy: str
) -> RunError:
    """The error of a program that has printed `said` and failed."""
    return _failed(done.returncode, said.splitlines(), where=where, remedy=remedy)


def _failed(code: int, lines: Sequence[str], *, where: str, remedy: str) -> RunError:
    printed = [line.strip() for line in lines if line.strip()]
    what = printed[-1][:SAID_MAX] if printed else f"ended with code {code}"
    return RunError(where=where, what=what, remedy=remedy)


def _read(
    process: subprocess.Popen[str], lines: deque[str], on_line: Callable[[str], bool]
) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if not on_line(line):
            lines.append(line)


def _await_end(process: subprocess.Popen[str], following: ProgramWatch, seconds_max: float) -> str:
    """Waits for a program; returns why it has to be interrupted, or nothing when it has ended."""
    begun = ticked = time.monotonic()
    while process.poll() is None:
        if following.stopped.wait(_LOOK_SECONDS):
            return "was interrupted"
        now = time.monotonic()
        if now - begun > seconds_max:
            return f"has not ended within {seconds_max:.0f} s"
        if now - ticked >= following.tick_seconds:
            ticked = now
            following.on_tick()
    return ""


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Ends a program that still runs, by SIGTERM at first."""
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS_MAX)
        return
    process.kill()
