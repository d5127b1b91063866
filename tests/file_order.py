"""Runs the longest files of tests first, so that two workers end at about the same time.

With `--dist loadfile` a file is what a worker takes. `durations.json` has the seconds of each file;
`pytest --record-durations` writes what it has measured there. Files without a record come first:
they are new, and may be long.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DURATIONS = Path(__file__).with_name("durations.json")


def read() -> dict[str, float]:
    """Return the seconds of each file, by its path below the root."""
    known: dict[str, float] = json.loads(DURATIONS.read_text())
    return known


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the longest files first; within a file their order stays."""
    known = read()

    def key(item: pytest.Item) -> float:
        return -known.get(item.path.relative_to(ROOT).as_posix(), float("inf"))

    return sorted(items, key=key)


class Recorder:
    """A plugin that adds up how long the tests of each file take, and writes it at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to the sum of its file."""
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the sums; files that are no longer there lose their records."""
        merged = {**read(), **self.seconds}
        kept = {
            path: round(seconds, 1)
            for path, seconds in sorted(merged.items())
            if (ROOT / path).exists()
        }
        DURATIONS.write_text(json.dumps(kept, indent=1) + "\n")
