"""Commands of make that run at the same time: their lines, their exit codes, and their ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import parallel_steps

ROOT = Path(__file__).parents[3]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_steps_run_at_the_same_time_and_their_lines_bear_their_names(tmp_path: Path) -> None:
    for name in "ab":
        os.mkfifo(tmp_path / name)
    said: list[str] = []
    # Each waits for the other, and neither would end alone.
    first = f"cd {tmp_path}; echo one > a; cat b"
    second = f"cd {tmp_path}; cat a; echo two > b; echo warned >&2"
    assert parallel_steps.run([("left", first), ("right", second)], said.append) == 0
    assert sorted(said) == ["left: two", "right: one", "right: warned"]


def test_the_first_that_fails_gives_the_exit_code_and_ends_the_others(tmp_path: Path) -> None:
    ended, ready = tmp_path / "ended", tmp_path / "ready"
    begin = f"trap 'touch {ended}; exit' TERM; echo ready; touch {ready}"
    waiting = f"{begin}; while :; do sleep 0.05; done"
    failing = f"until [ -e {ready} ]; do sleep 0.05; done; echo why; exit 7"
    said: list[str] = []
    assert parallel_steps.run([("waits", waiting), ("fails", failing)], said.append) == 7
    assert ended.exists()
    assert {"waits: ready", "fails: why"} <= {*said}
    assert re.fullmatch(r"fails: failed with 7 after \d+ s", said[2])


def test_a_step_that_a_signal_ends_has_failed() -> None:
    assert parallel_steps.run([("dies", "kill -9 $$")], lambda _: None) == 137


def test_a_silent_step_is_reported_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(parallel_steps.NESTED, raising=False)
    monkeypatch.setattr(parallel_steps, "SILENT_SECONDS_MAX", 0.1)
    reported, said = tmp_path / "reported", list[str]()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            reported.touch()

    quiet = f"until [ -e {reported} ]; do sleep 0.05; done"
    assert parallel_steps.run([("quiet", quiet)], say) == 0
    assert all(re.fullmatch(r"quiet: \d+ s", line) for line in said)


def test_a_process_that_a_step_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    command = f"sleep 100 & echo $! > {tmp_path / 'left'}; echo done"
    said: list[str] = []
    assert parallel_steps.run([("leaves", command)], said.append) == 0
    assert said == ["leaves: done"]
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_processes_of_all_steps(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = f"sleep 100 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait"
    running = subprocess.Popen(
        [sys.executable, "-m", "testbed.parallel_steps", "waits", command],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'recovery'}:{ROOT / 'e2e'}"},
    )
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    running.send_signal(number)
    assert running.wait(60) == 130
    below = int((tmp_path / "pid").read_text())
    while is_alive(below):
        time.sleep(0.01)


@pytest.mark.parametrize("arguments", [[], ["name"], ["a", "true", "b"]])
def test_a_step_without_a_command_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert parallel_steps.main(arguments) == 2
    assert "give a name and a command for each step" in capsys.readouterr().err
