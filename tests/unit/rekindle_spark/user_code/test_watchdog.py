"""Notes of what a process works on, and the time that a call may take."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle_spark.user_code import watchdog
from rekindle_spark.user_code.watchdog import Clock, EndedProcess, Noted, Watchdog

CALL = Noted(7, 12, 1, "checked", 99, 5, limit_seconds=10.0, limit_bytes=3 << 20)


def noted(dog: Watchdog) -> Noted | None:
    return watchdog.read(bytes(dog.memory))


def over(clock: Clock, seconds: int, *, cpu_share: float, runs: bool, call: Noted = CALL) -> bool:
    """Whether the call is found too long within so many seconds, looked at four times in each."""
    begin, cpu = clock.looked_at, clock.cpu_seconds
    looks = [
        clock.look(call, begin + n / 4, cpu + cpu_share * n / 4, runs)
        for n in range(1, 4 * seconds + 1)
    ]
    return any(looks)


def test_a_note_outlives_its_process_and_says_what_it_worked_on(tmp_path: Path) -> None:
    note = watchdog.mapped(tmp_path / "note")
    dog = Watchdog(note, seconds_max=3.0, memory_bytes_max=1_000)
    assert watchdog.read((tmp_path / "note").read_bytes()) is None
    dog.begin(7, 12, "orders")
    dog.calling("checked")
    found = watchdog.read((tmp_path / "note").read_bytes())
    assert found is not None
    assert (found.partition, found.epoch, found.call, found.step) == (7, 12, 1, "checked")
    assert (found.limit_seconds, found.limit_bytes) == (3.0, 1_000)
    dog.end()
    assert watchdog.read((tmp_path / "note").read_bytes()) is None


def test_the_lanes_of_a_host_have_a_note_each_in_one_file(tmp_path: Path) -> None:
    note = watchdog.mapped(tmp_path / "note")
    first, second = Watchdog(note), Watchdog(note, place=watchdog.SIZE)
    assert watchdog.read_all((tmp_path / "note").read_bytes()) == ()
    second.begin(8, 11, "others")
    first.begin(7, 12, "orders")
    found = watchdog.read_all((tmp_path / "note").read_bytes())
    assert [(one.partition, one.epoch) for one in found] == [(7, 12), (8, 11)]
    second.end()
    assert len(watchdog.read_all((tmp_path / "note").read_bytes())) == 1


def test_of_two_lanes_the_one_that_has_called_a_function_is_suspected() -> None:
    calling, reading = CALL, replace(CALL, partition=8, call=0)
    assert watchdog.suspected([reading, calling]) == (calling,)
    assert watchdog.suspected([reading]) == (reading,)
    assert watchdog.suspected([calling, replace(CALL, partition=8)])[1].partition == 8


def test_a_torn_note_says_nothing() -> None:
    dog = Watchdog()
    dog.begin(7, 12, "orders")
    assert watchdog.read(bytes(dog.memory)[:-1]) is None
    dog.memory[-100:] = b"\xff" * 100
    assert noted(dog) is None


def test_each_call_is_a_sign_of_progress_and_has_all_of_its_time() -> None:
    dog = Watchdog(seconds_max=3.0)
    dog.begin(7, 12, "orders")
    dog.calling("checked")
    before = noted(dog)
    dog.calling("checked")
    after = noted(dog)
    assert before is not None
    assert after is not None
    assert after.progress > before.progress
    clock = Clock(0)
    assert not over(clock, 8, cpu_share=1.0, runs=True)
    assert not over(clock, 8, cpu_share=1.0, runs=True, call=replace(CALL, progress=6))


def test_a_call_that_is_known_to_end_the_process_is_not_made_and_parts_get_less_time() -> None:
    dog = Watchdog(seconds_max=60.0, ended={2: "took long"}, searched={"checked": 6.0})
    dog.begin(7, 12, "orders")
    assert dog.calling("checked") is None
    before = noted(dog)
    assert before is not None
    assert before.limit_seconds == 60.0
    ended = dog.calling("checked")
    assert isinstance(ended, EndedProcess)
    assert str(ended) == "took long"
    dog.calling("checked")
    after = noted(dog)
    assert after is not None
    assert after.limit_seconds == 6.0
    dog.calling("another")
    other = noted(dog)
    assert other is not None
    assert other.limit_seconds == 60.0


@pytest.mark.parametrize(("cpu_share", "runs"), [(1.0, True), (0.0, False)])
def test_a_call_is_too_long_when_it_has_run_or_waited_for_as_long_as_it_may(
    cpu_share: float, runs: bool
) -> None:
    clock = Clock(0)
    assert not over(clock, 9, cpu_share=cpu_share, runs=runs)
    assert over(clock, 3, cpu_share=cpu_share, runs=runs)


def test_time_for_which_a_call_could_have_run_and_got_no_cpu_does_not_count() -> None:
    clock = Clock(0)
    assert not over(clock, 90, cpu_share=0.1, runs=True)
    assert over(clock, 30, cpu_share=0.1, runs=True)


def test_a_pause_of_the_watcher_itself_is_no_time_of_the_call() -> None:
    clock = Clock(0)
    clock.look(CALL, 0.0, 0.0, runs=False)
    assert not clock.look(CALL, 500.0, 0.0, runs=False)


def test_a_call_without_a_limit_is_never_too_long() -> None:
    unlimited = replace(CALL, limit_seconds=0.0)
    assert not over(Clock(0), 500, cpu_share=1.0, runs=True, call=unlimited)


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (0, "ended its process with exit code 0"),
        (128 + signal.SIGSEGV, "ended its process with SIGSEGV"),
        (128 + signal.SIGKILL, "ended its process with SIGKILL"),
        (watchdog.TOOK_TOO_LONG, "took longer than 10 s"),
        (watchdog.USED_TOO_MUCH, "used more than 3 MiB of memory"),
        (255, "ended its process with exit code 255"),
    ],
)
def test_an_exit_code_is_described_as_how_a_function_ended_its_process(
    exit_code: int, text: str
) -> None:
    assert watchdog.described(exit_code, CALL) == text


def test_the_cpu_time_of_a_process_has_that_of_threads_that_have_ended() -> None:
    def work() -> None:
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass

    before = watchdog.cpu_seconds(os.getpid())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert watchdog.cpu_seconds(os.getpid()) - before > 0.15
    assert watchdog.cpu_seconds(2**22 + 1) == 0.0, "no process has such a number"
