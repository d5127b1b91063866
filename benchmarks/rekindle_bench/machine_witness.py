"""Who else is on this machine while the demo runs: programs that take CPU, and a witness.

The witness wants a little CPU over and over and notes how long it takes to get it. It knows nothing
of the demo, so it can tell whether what the demo says about its machine is true. Both run as
processes of their own: `python -m rekindle_bench.machine_witness busy SHARE`, or `witness FILE`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PERIOD_SECONDS = 0.1
# What the witness wants in each period.
WANTED_SECONDS = 0.01
# Of the time in which it wanted CPU it waited so much in a second, where the machine was short.
WAITING_SHARE_MIN = 0.25
ENDING_SECONDS = 10.0

# (when by wall clock, share of the time in which it wanted CPU that it waited), one a second.
Testimony = Sequence[tuple[float, float]]


@contextmanager
def busy_programs(share: float) -> Iterator[None]:
    """Inside, other programs use this share of the machine's CPU, where they get it."""
    wanted = share * (os.cpu_count() or 1)
    parts = [1.0] * int(wanted) + ([wanted % 1] if wanted % 1 > 0.01 else [])
    with _processes([["busy", f"{part:g}"] for part in parts]):
        yield


@contextmanager
def witness(path: Path) -> Iterator[None]:
    """Inside, a witness writes a line a second to a file."""
    with _processes([["witness", str(path)]]):
        yield


def short_seconds(testimony: Testimony, begin: float, end: float) -> float:
    """For how many seconds the machine was short of CPU in a stretch of wall-clock time."""
    return float(
        sum(1 for at, share in testimony if begin < at <= end and share >= WAITING_SHARE_MIN)
    )


def read(path: Path) -> Testimony:
    """What a witness has written."""
    return [(line["at"], line["waited"]) for line in map(json.loads, path.open())]


@contextmanager
def _processes(commands: Sequence[Sequence[str]]) -> Iterator[None]:
    started = [
        subprocess.Popen([sys.executable, "-m", "rekindle_bench.machine_witness", *command])
        for command in commands
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait(ENDING_SECONDS)


def _burn(seconds: float) -> float:
    """Use so much CPU; returns how long that took."""
    begin, end = time.monotonic(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return time.monotonic() - begin


def _is_orphan(owner: int) -> bool:
    return os.getppid() != owner


def _be_busy(share: float, owner: int) -> None:
    while not _is_orphan(owner):
        took = _burn(share * PERIOD_SECONDS)
        if share < 1:
            time.sleep(max(0.0, PERIOD_SECONDS - took))


def _be_witness(path: Path, owner: int) -> None:
    with path.open("a") as file:
        while not _is_orphan(owner):
            took = wanted = 0.0
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                took += _burn(WANTED_SECONDS)
                wanted += WANTED_SECONDS
                time.sleep(PERIOD_SECONDS - WANTED_SECONDS)
            waited = max(0.0, took - wanted) / took
            file.write(json.dumps({"at": time.time(), "waited": waited}) + "\n")
            file.flush()


if __name__ == "__main__":
    if sys.argv[1] == "busy":
        _be_busy(float(sys.argv[2]), os.getppid())
    else:
        _be_witness(Path(sys.argv[2]), os.getppid())
