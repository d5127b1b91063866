"""Long files of tests take turns: with `--turn today` a run has those whose day it is.

All files of more than `LONG_SECONDS` would make `make test` an hour longer. So each of them
runs on every fifth day, but for those that lose nodes, drivers and coordinators: they are the
product, and always run. `make integration` has no turns, and the laboratory has a stage for each
day's files.
"""

import argparse
import datetime as dt
from pathlib import Path

import file_order

ROOT = Path(__file__).parents[1]
DAYS = 5
LONG_SECONDS = 25.0
ALWAYS = {
    "tests/integration/test_control_plane.py",
    "tests/integration/test_faults_drivers.py",
    "tests/integration/test_faults_recoveries.py",
    "tests/integration/test_faults_workers.py",
    "tests/kubernetes/operating/test_requests.py",
    "tests/kubernetes/spark/test_operator_with_spark.py",
}
# A stage of the laboratory has it, with a limit of its own.
NEVER = {"tests/integration/test_slow_store.py"}
ROOTS = ("tests/integration/", "tests/kubernetes/")


def files_of(day: int) -> list[str]:
    """Return the long files whose turn is `day` (a number from 0), the longest first, by their path
    below the root. The days have about the same seconds."""
    seconds = {
        path: length
        for path, length in file_order.read().items()
        if path.startswith(ROOTS) and length > LONG_SECONDS and path not in ALWAYS | NEVER
    }
    days: list[list[str]] = [[] for _ in range(DAYS)]
    totals = [0.0] * DAYS
    for path in sorted(seconds, key=lambda path: (-seconds[path], path)):
        least = totals.index(min(totals))
        days[least].append(path)
        totals[least] += seconds[path]
    return days[day]


def files_of_others(day: int) -> set[str]:
    """Return the long files that have another day's turn."""
    return {path for other in range(DAYS) if other != day for path in files_of(other)}


def day(text: str) -> int:
    """Return the number of a day from `today` or a number.

    Raises ArgumentTypeError for other text.
    """
    if text == "today":
        return dt.date.today().toordinal() % DAYS
    if text.isdecimal() and int(text) < DAYS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither today nor a number below {DAYS}")
