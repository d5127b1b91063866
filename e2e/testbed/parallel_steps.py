"""Runs commands at the same time, for `make`: their output line by line, their exit codes kept.

    python3 -m testbed.parallel_steps NAME COMMAND [NAME COMMAND]...

Each line begins with the name of its step. A step that has printed nothing for a while gets a line
with its time, so that nobody takes it for dead. The first step that fails ends the others, as it
would end `make`; the exit code is its. So does an interrupt (130).

Commands are for `sh`, and each runs in a session of its own, so that all of its processes can be
ended. Nothing has to be installed: it runs before there is a virtual environment.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rekindle.model.errors import InputError
from rekindle_cli.cli_options import interruptible
from testbed.exit_codes import exit_code

SILENT_SECONDS_MAX = 15.0
# Within another such process: its lines come before that one's would.
NESTED_SILENT_SECONDS_MAX = 10.0
NESTED = "REKINDLE_PARALLEL_STEPS"
END_SECONDS_MAX = 15.0
_LOOK_SECONDS = 0.05

Say = Callable[[str], None]


class RunningStep:
    """A command that runs, and the thread that reads its output."""

    def __init__(self, name: str, command: str, say: Say) -> None:
        self.name = name
        self._say = say
        self._begun = self._heard = time.monotonic()
        self._process = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, NESTED: "yes"},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs. A signal counts as for a shell: 128 and its number."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._begun

    def report_silence(self, seconds_max: float) -> None:
        """Prints a line once the step has printed nothing for so long."""
        if time.monotonic() - self._heard > seconds_max:
            self._heard = time.monotonic()
            self._say(f"{self.name}: {self.seconds:.0f} s")

    def read_rest(self) -> None:
        """Waits for the last lines of a step that has ended.

        A process that it has left behind may hold its output open: nobody waits for that.
        """
        self._reader.join(timeout=1.0)

    def end(self) -> None:
        """Ends all processes of the step, at first by SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS_MAX)
                return

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard = time.monotonic()
            self._say(f"{self.name}: {line.rstrip()}")


def run(commands: Sequence[tuple[str, str]], say: Say) -> int:
    """Runs commands by their names at the same time; returns the first code that is not 0."""
    silent_seconds = NESTED_SILENT_SECONDS_MAX if NESTED in os.environ else SILENT_SECONDS_MAX
    steps = [RunningStep(name, command, say) for name, command in commands]
    running = [*steps]
    try:
        while running:
            for step in running:
                step.report_silence(silent_seconds)
                if step.code is not None:
                    running.remove(step)
                    step.read_rest()
                    if step.code:
                        say(f"{step.name}: failed with {step.code} after {step.seconds:.0f} s")
                        return step.code
                    break
            else:
                time.sleep(_LOOK_SECONDS)
    finally:
        for step in running:
            step.end()
    return 0


def main(arguments: Sequence[str]) -> int:
    """Runs the commands of a command line; returns the exit code."""
    with interruptible():
        return exit_code(lambda: run(_pairs(arguments), _print))


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    if not arguments or len(arguments) % 2:
        raise InputError(
            where="parallel_steps",
            what=f"{len(arguments)} arguments",
            remedy="give a name and a command for each step",
        )
    return [*zip(arguments[::2], arguments[1::2], strict=True)]


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # in one piece, as threads call this
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
