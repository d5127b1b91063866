"""Long files of tests take turns: each has its day, and some always run."""

import argparse
import subprocess
import sys

import file_order
import pytest
import turns


def test_each_long_file_has_one_day_and_days_are_about_as_long() -> None:
    days = [turns.files_of(day) for day in range(turns.DAYS)]
    of_all_days = [path for day in days for path in day]
    assert len(set(of_all_days)) == len(of_all_days)
    assert turns.ALWAYS.isdisjoint(of_all_days)
    seconds = file_order.read()
    long = {
        path
        for path, length in seconds.items()
        if path.startswith(turns.ROOTS) and length > turns.LONG_SECONDS
    }
    assert long == {*of_all_days} | turns.ALWAYS & long | turns.NEVER & long
    totals = [sum(seconds[path] for path in day) for day in days]
    assert max(totals) < 1.25 * min(totals)


def test_files_that_are_named_are_there() -> None:
    assert all((turns.ROOT / path).is_file() for path in turns.ALWAYS | turns.NEVER)


def test_a_run_has_the_files_of_its_day_and_those_that_always_run() -> None:
    (_, other, *_), mine = turns.files_of(1), turns.files_of(0)[0]
    always = min(turns.ALWAYS)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--turn", "0"]
    ended = subprocess.run(
        [*command, mine, other, always], cwd=turns.ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{mine}::" in ended.stdout
    assert f"{always}::" in ended.stdout
    assert f"{other}::" not in ended.stdout


def test_a_day_is_today_or_a_number() -> None:
    assert turns.day("2") == 2
    assert turns.day("today") in range(turns.DAYS)
    for wrong in (str(turns.DAYS), "-1", "monday", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="neither today nor a number below"):
            turns.day(wrong)
