"""How programs are run: to their end, within a limit, and with what they have said in the error."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.model.errors import InputError, RunError
from testbed import program_runs

HOW = {"where": "the program", "remedy": "look", "seconds_max": 60.0}


def test_what_a_program_prints_comes_back_and_what_it_warns_of_does_not() -> None:
    assert program_runs.run(["sh", "-c", "echo warned >&2; cat"], **HOW, input="given") == "given"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo printed; echo first >&2; echo ' last' >&2; exit 1", "last"),
        ("echo printed; exit 1", "printed"),
        ("exit 3", "ended with code 3"),
    ],
)
def test_a_program_that_fails_says_its_last_line(script: str, what: str) -> None:
    with pytest.raises(RunError, match=f"^the program: {what}; look$"):
        program_runs.run(["sh", "-c", script], **HOW)


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match=r"^the program: there is no nobody-has-this; install it"):
        program_runs.run(["nobody-has-this"], **HOW)


def test_a_program_that_does_not_end_is_killed_at_its_limit() -> None:
    with pytest.raises(RunError, match="the program: has not ended within 0 s; look"):
        program_runs.run(["sleep", "1000"], **{**HOW, "seconds_max": 0.1})


def follow(
    script: str,
    *,
    on_line: Callable[[str], bool] = lambda _: False,
    on_tick: Callable[[], None] = lambda: None,
    stopped: threading.Event | None = None,
    seconds_max: float = 60.0,
) -> None:
    following = program_runs.ProgramWatch(
        on_line=on_line, on_tick=on_tick, tick_seconds=0.1, stopped=stopped or threading.Event()
    )
    program_runs.follow(
        ["sh", "-c", script],
        following,
        **{**HOW, "seconds_max": seconds_max},
        cwd=Path("/"),
        env=os.environ,
    )


def test_a_program_that_is_followed_gives_its_lines_and_time_to_report_between_them(
    tmp_path: Path,
) -> None:
    ticked, lines = tmp_path / "ticked", list[str]()

    def keep(line: str) -> bool:
        lines.append(line)
        return False

    def tick() -> None:
        if len(lines) == 1:
            ticked.touch()

    until = f"until [ -e {ticked} ]; do sleep 0.05; done"
    follow(f"echo one; {until}; echo two >&2", on_line=keep, on_tick=tick)
    assert lines == ["one\n", "two\n"]


def test_a_followed_program_that_fails_says_its_last_line_that_is_not_progress() -> None:
    with pytest.raises(RunError, match=r"^the program: broken; look$"):
        follow("echo broken; echo a package; exit 1", on_line=lambda line: "package" in line)


def test_a_followed_program_ends_with_who_follows_it_and_may_tidy_up(tmp_path: Path) -> None:
    stopped = threading.Event()

    def stop(_: str) -> bool:
        stopped.set()
        return True

    tidy = f"trap 'touch {tmp_path / 'tidied'}; exit 1' TERM; echo ready; "
    with pytest.raises(RunError, match="the program: was interrupted"):
        follow(f"{tidy} while :; do sleep 0.05; done", on_line=stop, stopped=stopped)
    assert (tmp_path / "tidied").exists()


def test_a_followed_program_that_does_not_end_is_ended_at_its_limit() -> None:
    with pytest.raises(RunError, match="the program: has not ended within 0 s; look"):
        follow("exec sleep 1000", seconds_max=0.2)
