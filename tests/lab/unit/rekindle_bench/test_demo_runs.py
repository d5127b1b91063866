"""Whether the demo is right, and true about its machine: bars over runs, and their witness."""

import json
import time
from pathlib import Path

import pytest

from rekindle_bench import demo_runs, machine_witness
from rekindle_bench.demo_runs import DemoRun

GOOD = DemoRun(1, 110.0, 0, of_seconds=60.0, said_seconds=2.0, witnessed_seconds=4.0)
LIMITED = DemoRun(2, 180.0, 0, of_seconds=90.0, said_seconds=80.0, witnessed_seconds=70.0)


def met(*found: DemoRun, busy_share: float = 0.0) -> list[bool]:
    return [bar.met for bar in demo_runs.bars(found, busy_share, "command")]


def test_runs_that_are_right_true_and_short_meet_all_bars() -> None:
    assert met(GOOD, GOOD) == [True, True, True]


def test_a_busy_machine_may_take_longer_where_the_demo_says_why() -> None:
    assert met(GOOD, LIMITED, busy_share=0.5) == [True, True]
    assert met(LIMITED) == [True, True, False]


@pytest.mark.parametrize(
    "untrue",
    [
        DemoRun(1, 110.0, 0, of_seconds=60.0, said_seconds=0.0, witnessed_seconds=40.0),
        DemoRun(1, 110.0, 0, of_seconds=60.0, said_seconds=40.0, witnessed_seconds=0.0),
        DemoRun(1, 110.0, 0),
    ],
)
def test_what_the_witness_did_not_see_is_not_true(untrue: DemoRun) -> None:
    assert met(GOOD, untrue) == [True, False, True]


def test_a_wrong_row_and_a_run_that_failed_are_not_exact() -> None:
    assert met(DemoRun(1, 110.0, 1, 60.0, 2.0, 4.0))[0] is False
    assert met(DemoRun(1, 110.0, None, failure="the driver: ended"))[0] is False


def test_only_seconds_of_the_run_in_which_the_witness_waited_count() -> None:
    testimony = [(9.0, 0.9), (10.5, 0.9), (11.5, 0.3), (12.5, 0.1), (13.5, 0.8)]
    assert machine_witness.short_seconds(testimony, 10.0, 13.0) == 2.0


def test_a_witness_writes_a_line_a_second_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "witness.jsonl"
    with machine_witness.witness(path):
        end = time.monotonic() + 30
        while not (path.exists() and path.read_text().count("\n")) and time.monotonic() < end:
            time.sleep(0.05)
    (line, *_) = path.read_text().splitlines()
    assert 0.0 <= json.loads(line)["waited"] <= 1.0
    assert machine_witness.read(path)[0][0] == pytest.approx(time.time(), abs=60)
