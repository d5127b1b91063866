"""Leaves out files of tests for which no time is left, and has each of them reported.

With `--until MOMENT` a file begins only where it can be expected to end by that moment, in seconds
since 1970. What is expected are its seconds in `durations.json`, times how much longer than that
the files before have taken in this process. CI ends a run after a while, whatever the machine.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import file_order
import pytest

LEFT_OUT = "NO TIME IS LEFT"


class RunDeadline:
    """A plugin of each process that runs tests. `known` are seconds by file; `now` is a clock."""

    def __init__(
        self,
        until: float,
        known: Mapping[str, float],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.until, self.known, self.now = until, known, now
        self.taken: dict[str, float] = defaultdict(float)
        self.reasons: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test where its file was left out: decided once, as its first test begins."""
        file = item.path.relative_to(file_order.ROOT).as_posix()
        if file not in self.reasons:
            self.reasons[file] = self.reason_to_leave_out(file)
        if self.reasons[file]:
            pytest.skip(self.reasons[file])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to what its file has taken."""
        self.taken[report.nodeid.partition("::")[0]] += report.duration

    def reason_to_leave_out(self, file: str) -> str:
        """Say why a file does not begin any more; nothing where it does."""
        left = max(0.0, self.until - self.now())
        seconds = self.known.get(file, 0.0) * self.slowness()
        if left > 0.0 and seconds <= left:
            return ""
        return f"{LEFT_OUT}: {file} takes about {seconds:.0f} s here, and {left:.0f} s are left"

    def slowness(self) -> float:
        """Return how many times as long as recorded the files so far took, at least 1."""
        ran = [file for file, reason in self.reasons.items() if not reason and file in self.known]
        recorded = sum(self.known[file] for file in ran)
        return max(1.0, sum(self.taken[file] for file in ran) / recorded) if recorded else 1.0
