"""What users' functions print: kept with its place in a host, shown in the driver's log."""

import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rekindle_spark.user_code import print_forwarding

PLACE = ("checked", "orders/2", 12)


@contextmanager
def host() -> Iterator[io.StringIO]:
    """Have printing installed, as in a host; the value is the executor's own log."""
    log, before = io.StringIO(), (sys.stdout, sys.stderr)
    logging.getLogger().handlers.clear()
    sys.stdout = sys.stderr = log
    print_forwarding.install()
    try:
        yield log
    finally:
        sys.stdout, sys.stderr = before


def test_what_a_step_prints_and_logs_is_kept_with_its_place() -> None:
    with host() as log:
        with print_forwarding.at(*PLACE):
            print("one", 1, end="")
            print("and more\ntwo\twords")
            logging.getLogger("shop").info("three")
            print("no end", end="")
        print(" of nobody")
    assert print_forwarding.taken() == [
        [*PLACE, "one 1and more"],
        [*PLACE, "two\ufffdwords"],
        [*PLACE, "INFO shop: three"],
        [*PLACE, "no end"],
    ]
    assert print_forwarding.taken() == []
    assert log.getvalue() == "one 1and more\ntwo\twords\nINFO shop: three\nno end of nobody\n"


def test_a_function_that_prints_for_each_row_fills_no_report() -> None:
    with host() as log, print_forwarding.at(*PLACE):
        for number in range(10_000):
            print(number, "x" * 1_000 if number == 3 else "")
    lines = print_forwarding.taken()
    assert len(lines) == print_forwarding.LINES_MAX + 1
    assert len(lines[3][3]) == print_forwarding.CHARACTERS_MAX
    assert lines[-1] == [*PLACE, "... and 9,900 more lines, in the executor's log"]
    assert log.getvalue().count("\n") == 10_000


def test_a_function_that_reads_standard_input_does_not_wait_for_it() -> None:
    """In a process whose standard input is a pipe that nobody writes or closes, as a host's is."""
    reads = "from rekindle_spark.user_code import print_forwarding as f; f.close_input(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", reads],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stderr is not None
        assert b"EOFError" in process.stderr.read()


def test_threads_keep_what_they_print_apart() -> None:
    kept = {}
    both = threading.Barrier(2, timeout=60)

    def work(step: str) -> None:
        with print_forwarding.at(step, "orders/0", 1):
            both.wait()
            print(step)
            both.wait()
        kept[step] = print_forwarding.taken()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
    with host():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert kept == {name: [[name, "orders/0", 1, name]] for name in ("first", "second")}


def test_a_step_that_raises_loses_nothing_that_it_printed() -> None:
    with host(), suppress(KeyError), print_forwarding.at(*PLACE):
        print("before", end="")
        raise KeyError
    assert print_forwarding.taken() == [[*PLACE, "before"]]


def test_the_driver_shows_the_lines_of_a_job_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", shown)
    reports = [{"printed": [[*PLACE, f"row {number}"]] * 60} for number in range(2)]
    print_forwarding.show([{}, *reports])
    lines = shown.getvalue().splitlines()
    assert lines[0] == "printed by step checked, orders/2, epoch 12: row 0"
    assert lines[-1] == "... and 20 more lines, in executors' logs"
    assert len(lines) == print_forwarding.LINES_MAX + 1
