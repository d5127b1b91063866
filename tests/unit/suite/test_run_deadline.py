"""A run that has to end by some moment begins no file that would end later, and names it."""

import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import file_order
import pytest
from run_deadline import LEFT_OUT, RunDeadline

KNOWN = {"tests/a.py": 100.0, "tests/b.py": 60.0, "tests/c.py": 10.0}


def deadline(until: float, now: list[float]) -> RunDeadline:
    return RunDeadline(until, KNOWN, now=lambda: now[0])


def begins(made: RunDeadline, file: str) -> bool:
    item: Any = SimpleNamespace(path=file_order.ROOT / file)
    with suppress(pytest.skip.Exception):
        made.pytest_runtest_setup(item)
        return True
    assert made.reasons[file].startswith(f"{LEFT_OUT}: {file} takes about ")
    return False


def ran(made: RunDeadline, file: str, seconds: float) -> None:
    report: Any = SimpleNamespace(nodeid=f"{file}::test", duration=seconds)
    made.pytest_runtest_logreport(report)


def test_a_file_begins_where_it_can_be_expected_to_end_in_time() -> None:
    made = deadline(1_000.0, now := [935.0])
    assert not begins(made, "tests/a.py")
    assert begins(made, "tests/b.py")
    now[0] = 995.0
    assert begins(made, "tests/b.py"), "it has begun already"
    assert not begins(made, "tests/c.py")
    assert begins(made, "tests/new.py"), "nobody knows how long it takes"
    now[0] = 1_000.0
    assert not begins(made, "tests/newer.py")


def test_what_is_expected_grows_with_what_files_before_have_taken() -> None:
    made = deadline(1_000.0, now := [0.0])
    assert begins(made, "tests/a.py")
    ran(made, "tests/a.py", 150.0)
    ran(made, "tests/a.py", 50.0)
    assert made.slowness() == 2.0
    now[0] = 890.0
    assert not begins(made, "tests/b.py")
    assert made.slowness() == 2.0, "what was left out says nothing"
    assert begins(made, "tests/c.py")


def test_a_machine_that_is_faster_is_given_no_more() -> None:
    made = deadline(1_000.0, [950.0])
    assert begins(made, "tests/c.py")
    ran(made, "tests/c.py", 1.0)
    assert not begins(made, "tests/b.py")


def test_what_was_left_out_is_reported_and_is_no_failure() -> None:
    file = "tests/unit/suite/test_loud_skips.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-n", "1"]
    ended = subprocess.run(
        [*command, "--until", "1.0"], cwd=file_order.ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "passed" not in ended.stdout
    assert f"\n{LEFT_OUT}: {file} takes about 0 s here, and 0 s are left (" in ended.stdout
