"""Forwards prints and log lines of users' functions from hosts to the driver's log.

    host     stands in for standard output and error: a line that is written inside `at` is kept
             with its step, partition and epoch; all of it still goes to the executor's own log
    report   `printed`: [step, partition, epoch, text] for each line
    driver   writes these lines to its standard error

Standard input is empty. What threads of the user's own print is in the executor's log alone.
`partition` says where the code is, `host` takes the lines, `job_runner` shows them.
"""

import io
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

# Of a request, and of what the driver shows of one job; a function may print for each row.
LINES_MAX = 100
CHARACTERS_MAX = 500
PREFIX = "printed by step "

Line = list[Any]


class _Here(threading.local):
    """What a thread runs, and what has been printed there since `taken`."""

    def __init__(self) -> None:
        self.place: tuple[str, str, int] | None = None
        self.lines: list[Line] = []
        self.begun = ""
        self.left_out = 0


_here = _Here()


def install() -> None:
    """Stand in for standard output and error, and have what is logged written, from INFO on."""
    sys.stdout, sys.stderr = _Recorder(sys.stdout), _Recorder(sys.stderr)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )


def close_input() -> None:
    """Let functions read an empty standard input, which raises EOFError in `input()`. Nobody
    answers them: at a pipe that stays open they would wait until they count as hung."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


@contextmanager
def at(step: str, partition: str, epoch: int) -> Iterator[None]:
    """Inside, what this thread prints is that step's."""
    _here.place = (step, partition, epoch)
    try:
        yield
    finally:
        if _here.begun:
            _keep("\n")
        _here.place = None


def taken() -> list[Line]:
    """Return what this thread has printed since the last call."""
    lines, left_out = _here.lines, _here.left_out
    _here.lines, _here.left_out = [], 0
    if left_out:
        lines.append([*lines[-1][:3], f"... and {left_out:,} more lines, in the executor's log"])
    return lines


def add(lines: Iterable[Line]) -> None:
    """Keep lines that another process has taken for this thread."""
    for line in lines:
        _keep_line(line)


def show(reports: Iterable[Mapping[str, Any]]) -> None:
    """Write the lines of a job's reports to standard error, each with its place."""
    lines = [line for report in reports for line in report.get("printed", ())]
    to = sys.__stderr__  # not what stands in its place on a terminal: that is no log
    if to is None:
        return
    for step, partition, epoch, text in lines[:LINES_MAX]:
        print(f"{PREFIX}{step}, {partition}, epoch {epoch}: {text}", file=to)
    if len(lines) > LINES_MAX:
        print(f"... and {len(lines) - LINES_MAX:,} more lines, in executors' logs", file=to)
    if lines:
        to.flush()


def _keep(text: str) -> None:
    """Add text that this thread prints; a line is kept once it is whole."""
    assert _here.place is not None
    *whole, rest = (_here.begun + text).split("\n")
    _here.begun = rest[:CHARACTERS_MAX]
    for line in whole:
        shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in line)
        _keep_line([*_here.place, shown[:CHARACTERS_MAX]])


def _keep_line(line: Line) -> None:
    if len(_here.lines) < LINES_MAX:
        _here.lines.append(line)
    else:
        _here.left_out += 1


class ForwardingFile(io.TextIOBase):
    """A text file that stands in for another one; who derives from it says what `write` does."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the file behind it."""
        return self._to.encoding

    def writable(self) -> bool:
        """It can be written."""
        return True

    def fileno(self) -> int:
        """Return the number of the file behind it."""
        return self._to.fileno()

    def flush(self) -> None:
        """Flush the file behind it."""
        self._to.flush()


class _Recorder(ForwardingFile):
    """Passes text on, and keeps what is printed inside `at`."""

    def write(self, text: str) -> int:
        """Write text, and keep it where a step runs."""
        self._to.write(text)
        if "\n" in text:
            self._to.flush()
        if _here.place is not None:
            _keep(text)
        return len(text)
