"""Leaves out files of tests for which no time is left, and has each of them reported.

With `--until MOMENT` a file begins only where it can be expected to end by that moment, in seconds
since 1970. What is expected are its seconds in `durations.json`, times how much longer than that
the files before have taken in this process, and in the sessions before it. CI ends a run after a
while, whatever the machine. What runs `MARGIN_SECONDS` after the moment fails then, with stacks.

Files that `turns.ALWAYS` names come first and are never left out; other files leave them time in
the folder of `--then`, whose session comes next. `--so-far FILE` passes on from session to session
of one run what was taken and left out; `run_deadline.py FILE MOMENT` says at the end what holds.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import file_order
import pytest
import pytest_timeout
import turns

LEFT_OUT = "NO TIME IS LEFT"
# For files that take longer than expected; .ci/run ends all of `make test` 80 s later.
MARGIN_SECONDS = 120.0


@dataclass
class SoFar:
    """What the sessions of a run that ends at `until` have taken for files whose seconds are
    `recorded`, and the files that they left out."""

    until: float
    taken: float = 0.0
    recorded: float = 0.0
    sessions: int = 0
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path | None, until: float) -> "SoFar":
        """Return what was written there; nothing where that was another run."""
        if path is None or not path.exists():
            return cls(until)
        found = cls(**json.loads(path.read_text()))
        return found if found.until == until else cls(until)

    def last_line(self) -> str:
        """Say what holds now that no session has failed."""
        if not self.left_out:
            return "make test: everything holds"
        count = len(self.left_out)
        files = "1 file" if count == 1 else f"{count} files"
        return f"make test: what ran holds, but NO TIME WAS LEFT for {files} of tests"


class RunDeadline:
    """A plugin of each process that runs tests, and of the one that starts them. `known` are
    seconds by file, `then` is the folder of the next session; `now` is a clock."""

    def __init__(
        self,
        before: SoFar,
        known: Mapping[str, float],
        then: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.before, self.known, self.now = before, known, now
        self.ends_at = before.until + MARGIN_SECONDS
        self.reserved = sum(
            known.get(file, 0.0) for file in turns.ALWAYS if then and file.startswith(then)
        )
        self.taken: dict[str, float] = defaultdict(float)
        self.reasons: dict[str, str] = {}
        # Files of which something was skipped or failed: what these take says nothing.
        self.partly: set[str] = set()
        self.left_out: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> object:
        """Give a test no more than what is left until the end, in place of pytest-timeout."""
        seconds = max(1.0, min(settings.timeout, self.ends_at - self.now()))
        capped = settings._replace(timeout=seconds)
        return pytest_timeout.pytest_timeout_set_timer(item, capped)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test where its file was left out: decided once, as its first test begins. After
        the end a test fails whose file had begun, or is never left out."""
        file = item.path.relative_to(file_order.ROOT).as_posix()
        if file not in self.reasons:
            self.reasons[file] = self.reason_to_leave_out(file)
        if self.reasons[file]:
            pytest.skip(self.reasons[file])
        if self.now() >= self.ends_at:
            pytest.fail(f"{LEFT_OUT}: {file} has begun, and the time is over", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to what its file has taken."""
        file = report.nodeid.partition("::")[0]
        self.taken[file] += report.duration
        if not report.passed:
            self.partly.add(file)
        if report.skipped and LEFT_OUT in str(report.longrepr):
            self.left_out.add(file)

    def reason_to_leave_out(self, file: str) -> str:
        """Say why a file does not begin any more; nothing where it does."""
        if file in turns.ALWAYS:
            return ""
        slowness = self.slowness()
        left = max(0.0, self.before.until - self.reserved * slowness - self.now())
        seconds = self.known.get(file, 0.0) * slowness
        if left > 0.0 and seconds <= left:
            return ""
        return f"{LEFT_OUT}: {file} takes about {seconds:.0f} s here, and {left:.0f} s are left"

    def slowness(self) -> float:
        """Return how many times as long as recorded the files so far took, at least 1."""
        so_far = self.so_far()
        return max(1.0, so_far.taken / so_far.recorded) if so_far.recorded else 1.0

    def so_far(self) -> SoFar:
        """Add this session to those before it."""
        ran = [file for file in self.taken if file in self.known and file not in self.partly]
        return SoFar(
            self.before.until,
            self.before.taken + sum(self.taken[file] for file in ran),
            self.before.recorded + sum(self.known[file] for file in ran),
            self.before.sessions + 1,
            sorted({*self.before.left_out, *self.left_out}),
        )

    def write(self, path: Path) -> None:
        """Pass on to the next session what is so far."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self.so_far())))


class Passing:
    """A plugin that passes on at the end, of the process that has the reports of all others."""

    def __init__(self, deadline: RunDeadline, path: Path) -> None:
        self.deadline, self.path = deadline, path

    def pytest_sessionfinish(self) -> None:
        """Write what is so far."""
        self.deadline.write(self.path)


def main(path: str, until: str) -> None:
    """Print the last line of a run. Exits with 1 where its sessions have not written the file."""
    found = SoFar.read(Path(path), float(until))
    if not found.sessions:
        sys.exit(f"make test: {path} has nothing of this run")
    print(found.last_line())


if __name__ == "__main__":
    main(*sys.argv[1:])
