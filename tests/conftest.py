"""What all tests share: their order, the limit of unit tests, and the report of skipped ones."""

import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

import file_order
import loud_skips
import turns
from run_deadline import Passing, RunDeadline, SoFar

UNIT = [Path(__file__).parent / "unit", Path(__file__).parent / "lab" / "unit"]
# A unit test takes under 2 s; the limit is for one that hangs, on a machine that is busy.
UNIT_SECONDS_MAX = 120

settings.register_profile("rekindle", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("rekindle")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records how long files take."""
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write how long each file took into tests/durations.json",
    )
    parser.addoption(
        "--turn",
        type=turns.day,
        metavar="DAY",
        help="leave out long files whose turn is another day: today, or a number from 0"
        " (tests/turns.py)",
    )
    parser.addoption(
        "--until",
        type=float,
        metavar="MOMENT",
        help="leave out files that cannot be expected to end by then: seconds since 1970"
        " (tests/run_deadline.py)",
    )
    parser.addoption(
        "--then",
        metavar="FOLDER",
        help="with --until: leave time for the files there that always run",
    )
    parser.addoption(
        "--so-far",
        type=Path,
        metavar="FILE",
        help="with --until: where sessions of one run pass on how slow the machine is, and what was"
        " left out",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record durations where that is asked for: workers report to the process that started them.
    Where a run has to end by some moment, each process leaves out what does not.

    A shell's background has SIGINT ignored, and so would all that tests start and interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(file_order.Recorder())
    until, path = config.getoption("--until"), config.getoption("--so-far")
    if until is not None:
        then = config.getoption("--then")
        deadline = RunDeadline(SoFar.read(path, until), file_order.read(), then)
        config.pluginmanager.register(deadline)
        if path is not None and not hasattr(config, "workerinput"):
            config.pluginmanager.register(Passing(deadline, path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, without those of other days where they take turns, and give
    every unit test its limit, unless it or the command line has one. Where a run has to end by some
    moment, the files that always run come before all others."""
    items[:] = file_order.in_order(items)
    if config.getoption("--until") is not None:
        items.sort(
            key=lambda item: item.path.relative_to(turns.ROOT).as_posix() not in turns.ALWAYS
        )
    has_limit = config.getoption("--timeout") is not None
    day = config.getoption("--turn")
    if day is not None:
        _leave_out(turns.files_of_others(day), config, items)
    for item in items:
        is_unit = not set(UNIT).isdisjoint(item.path.parents)
        if is_unit and not has_limit and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(UNIT_SECONDS_MAX))


def _leave_out(files: set[str], config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if item.path.relative_to(turns.ROOT).as_posix() in files}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Say last of all, where it is seen, which tests were left out and why."""
    yield
    loud_skips.report(terminalreporter)
    day = terminalreporter.config.getoption("--turn")
    if day is not None:
        terminalreporter.write_line(
            f"{len(turns.files_of_others(day))} long files of integration and Kubernetes tests have"
            " other days; `make integration kubernetes` runs all"
        )
