"""A run that has to end by some moment begins no file that would end later, and names it."""

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import file_order
import pytest
import run_deadline
import turns
from run_deadline import LEFT_OUT, MARGIN_SECONDS, RunDeadline, SoFar

ALWAYS = "tests/kubernetes/operating/test_requests.py"
KNOWN = {"tests/a.py": 100.0, "tests/b.py": 60.0, "tests/c.py": 10.0, ALWAYS: 80.0}

# A run whose clock stands still a second before its end.
HURRIED = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(file_order.ROOT / "tests")!r})
import file_order
import run_deadline
import turns

file_order.ROOT = Path(__file__).parent
turns.ALWAYS = {{"test_hanging.py"}}
until = 1_000.0 - run_deadline.MARGIN_SECONDS

def pytest_configure(config):
    before = run_deadline.SoFar(until)
    config.pluginmanager.register(run_deadline.RunDeadline(before, {{}}, now=lambda: 999.0))
"""
HANGING = """
import threading

import pytest

def hangs():
    threading.Event().wait()

@pytest.mark.timeout(600)
def test_that_hangs():
    hangs()

def test_that_does_not():
    pass
"""


def deadline(
    until: float, now: list[float], before: SoFar | None = None, then: str | None = None
) -> RunDeadline:
    return RunDeadline(before or SoFar(until), KNOWN, then, now=lambda: now[0])


def item_of(file: str) -> Any:
    return SimpleNamespace(path=file_order.ROOT / file)


def pytest_of(*options: str, folder: Path = file_order.ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def begins(made: RunDeadline, file: str) -> bool:
    with suppress(pytest.skip.Exception):
        made.pytest_runtest_setup(item_of(file))
        return True
    assert made.reasons[file].startswith(f"{LEFT_OUT}: {file} takes about ")
    reported(made, file, 0.0, skipped=("file.py", 1, f"Skipped: {made.reasons[file]}"))
    return False


def reported(made: RunDeadline, file: str, seconds: float, skipped: object = None) -> None:
    report: Any = SimpleNamespace(
        nodeid=f"{file}::test",
        duration=seconds,
        passed=skipped is None,
        skipped=skipped is not None,
        longrepr=skipped,
    )
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
    reported(made, "tests/a.py", 150.0)
    reported(made, "tests/a.py", 50.0)
    assert made.slowness() == 2.0
    now[0] = 890.0
    assert not begins(made, "tests/b.py")
    assert made.slowness() == 2.0, "what was left out says nothing"
    assert begins(made, "tests/c.py")


def test_a_machine_that_is_faster_is_given_no_more() -> None:
    made = deadline(1_000.0, [950.0])
    assert begins(made, "tests/c.py")
    reported(made, "tests/c.py", 1.0)
    assert not begins(made, "tests/b.py")


def test_a_file_that_has_skipped_something_does_not_count_as_fast() -> None:
    made = deadline(1_000.0, [0.0])
    reported(made, "tests/c.py", 30.0)
    reported(made, "tests/a.py", 1.0)
    reported(made, "tests/a.py", 0.0, skipped=("file.py", 1, "Skipped: NO NODES: no root"))
    assert made.slowness() == 3.0
    assert made.so_far().left_out == []


def test_files_that_always_run_are_never_left_out_and_fail_where_the_time_is_over() -> None:
    made = deadline(1_000.0, now := [999.0])
    assert not begins(made, "tests/c.py")
    assert begins(made, ALWAYS)
    now[0] = 1_000.0 + MARGIN_SECONDS
    with pytest.raises(pytest.fail.Exception, match=f"{LEFT_OUT}: {ALWAYS} has begun"):
        made.pytest_runtest_setup(item_of(ALWAYS))
    assert not begins(made, "tests/c.py"), "it is left out, and no failure"


def test_the_next_session_has_time_for_the_files_that_always_run() -> None:
    now = [855.0]
    assert begins(deadline(1_000.0, now), "tests/a.py")
    alone = deadline(1_000.0, now, then="tests/kubernetes")
    assert not begins(alone, "tests/a.py")
    assert begins(alone, "tests/b.py")
    slow = deadline(1_000.0, now, SoFar(1_000.0, taken=20.0, recorded=10.0), "tests/kubernetes")
    assert not begins(slow, "tests/c.py"), "they take 160 s here"


def test_a_session_goes_on_from_those_before_it(tmp_path: Path) -> None:
    first, path = deadline(1_000.0, [930.0]), tmp_path / "folder" / "so-far.json"
    assert not begins(first, "tests/a.py")
    reported(first, "tests/c.py", 30.0)
    first.write(path)
    second = deadline(1_000.0, [930.0], SoFar.read(path, 1_000.0))
    assert second.slowness() == 3.0
    assert not begins(second, "tests/b.py")
    second.write(path)
    found = SoFar.read(path, 1_000.0)
    assert found == SoFar(1_000.0, 30.0, 10.0, 2, ["tests/a.py", "tests/b.py"])
    assert SoFar.read(path, 2_000.0) == SoFar(2_000.0), "that is another run"
    assert SoFar.read(None, 1_000.0) == SoFar(1_000.0)


def test_the_last_line_says_for_how_many_files_no_time_was_left() -> None:
    assert SoFar(1.0).last_line() == "make test: everything holds"
    words = "make test: what ran holds, but NO TIME WAS LEFT for"
    assert SoFar(1.0, left_out=["a"]).last_line() == f"{words} 1 file of tests"
    assert SoFar(1.0, left_out=["a", "b"]).last_line() == f"{words} 2 files of tests"


def test_there_is_no_last_line_of_a_run_that_nobody_has_told_of(tmp_path: Path) -> None:
    path = tmp_path / "so-far.json"
    with pytest.raises(SystemExit, match="nothing of this run"):
        run_deadline.main(str(path), "1000")
    deadline(1_000.0, [0.0]).write(path)
    run_deadline.main(str(path), "1000")
    with pytest.raises(SystemExit, match="nothing of this run"):
        run_deadline.main(str(path), "2000")


def test_what_was_left_out_is_reported_and_passed_on_and_is_no_failure(tmp_path: Path) -> None:
    file, path = "tests/unit/suite/test_loud_skips.py", tmp_path / "so-far.json"
    ended = pytest_of(file, "-n", "1", "--until", "1.0", "--so-far", str(path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "passed" not in ended.stdout
    assert f"\n{LEFT_OUT}: {file} takes about 0 s here, and 0 s are left (" in ended.stdout
    assert SoFar.read(path, 1.0).left_out == [file]


def test_what_hangs_fails_at_the_end_with_its_stack_whatever_limit_it_has(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HURRIED)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    ended = pytest_of("test_hanging.py", folder=tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Failed: Timeout (>1.0s) from pytest-timeout" in ended.stdout
    assert "test_hanging.py:7: " in ended.stdout, "where it hangs"
    assert "1 failed, 1 passed" in ended.stdout


def test_files_that_always_run_come_first() -> None:
    names, other = sorted(turns.ALWAYS)[:2], "tests/integration/test_slow_store.py"
    ended = pytest_of(other, *names, "--collect-only", "--until", "1.0")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = list(dict.fromkeys(re.findall(r"^(tests/\S+\.py)::", ended.stdout, re.MULTILINE)))
    assert found[-1] == other
    assert set(found) == {other, *names}
