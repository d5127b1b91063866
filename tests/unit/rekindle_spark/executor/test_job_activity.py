"""Signs of what a host does for jobs: written by the host, read by the driver."""

import struct
from pathlib import Path

import pytest

from rekindle_spark.executor import job_activity
from rekindle_spark.executor.job_activity import CHECKPOINTS, ENTRIES, FILE_BYTES, Activity, Signs
from rekindle_spark.user_code import watchdog
from rekindle_spark.user_code.watchdog import Watchdog

COUNTS = frozenset({3})


def sent(host: Activity, blocks: int = 0, cpu: int = 0, second_cpu: int = 0) -> Signs:
    """What the driver gets of it, without the zeros at its end, as the JVM sends it."""
    head = struct.pack(">qqq", blocks, cpu, second_cpu)
    return job_activity.read(head + bytes(host.memory).rstrip(b"\0"))


def test_a_request_is_seen_for_as_long_as_it_is_served_with_what_it_began_last() -> None:
    host = Activity()
    with host.entry(7) as entry:
        entry.begin("loading checkpoints/3/counts-0.state")
        assert sent(host).what(7) == "loading checkpoints/3/counts-0.state"
        before = sent(host).of(7, COUNTS)
        assert sent(host).of(7, COUNTS) == before
        entry.sign(4096)
        assert sent(host).of(7, COUNTS) != before
    assert sent(host).what(7) == "its task has not begun"


def test_what_is_done_for_another_job_is_no_sign_for_one_that_is_being_served() -> None:
    host = Activity()
    with host.entry(7), host.entry(8) as other:
        before = sent(host).of(7, COUNTS)
        other.sign()
        assert sent(host, blocks=5, cpu=9).of(7, COUNTS) == before


def test_all_that_is_done_is_a_sign_for_a_job_that_waits_for_its_turn_to_begin() -> None:
    host = Activity()
    with host.entry(8) as other:
        before = sent(host).of(7, COUNTS)
        other.sign()
        assert sent(host).of(7, COUNTS) != before
    before = sent(host).of(7, COUNTS)
    assert sent(host, blocks=1).of(7, COUNTS) != before


def test_a_partition_that_uses_cpu_goes_on_though_no_function_is_called() -> None:
    memory = bytearray(FILE_BYTES)
    host, dog = Activity(memory), Watchdog(memory)
    with host.entry(7):
        dog.begin(3, 12, "counts")
        assert sent(host, cpu=1).of(7, COUNTS) != sent(host, cpu=2).of(7, COUNTS)
        other = frozenset({4})
        assert sent(host, cpu=1).of(7, other) == sent(host, cpu=2).of(7, other)


def test_a_partition_in_the_second_lane_goes_on_by_what_its_own_thread_uses() -> None:
    memory = bytearray(FILE_BYTES)
    host, first, second = Activity(memory), Watchdog(memory), Watchdog(memory, place=watchdog.SIZE)
    with host.entry(7):
        first.begin(4, 12, "others")
        second.begin(3, 12, "counts")
        assert sent(host, cpu=1).of(7, COUNTS) == sent(host, cpu=2).of(7, COUNTS)
        assert sent(host, second_cpu=1).of(7, COUNTS) != sent(host, second_cpu=2).of(7, COUNTS)


def test_states_that_nobody_writes_give_no_sign_whatever_else_is_done() -> None:
    host = Activity()
    with host.entry(7) as entry:
        before = sent(host).of(CHECKPOINTS, COUNTS)
        entry.sign()
        assert sent(host, blocks=1, cpu=1).of(CHECKPOINTS, COUNTS) == before
        with host.entry(CHECKPOINTS) as writing:
            writing.begin("writing checkpoints/3/counts-0.state")
            assert sent(host).of(CHECKPOINTS, COUNTS) != before


def test_more_requests_than_there_is_room_for_are_served_without_an_entry() -> None:
    host = Activity()
    entries = [host.entry(number) for number in range(1, ENTRIES + 1)]
    for each in entries:
        each.__enter__()
    with host.entry(99) as entry:
        entry.begin("loading")
        assert 99 not in sent(host).entries
    assert len(sent(host).entries) == ENTRIES


def test_the_note_of_a_host_and_its_entries_lie_in_one_file(tmp_path: Path) -> None:
    notes = watchdog.mapped(tmp_path / "note", FILE_BYTES)
    host, dog = Activity(notes), Watchdog(notes)
    with host.entry(7) as entry:
        entry.begin("running epoch 12 of counts/0")
        dog.begin(3, 12, "counts")
        dog.end()
        file = (tmp_path / "note").read_bytes()
    assert len(file) == FILE_BYTES
    found = job_activity.read(struct.pack(">qqq", 0, 0, 0) + file)
    assert found.what(7) == "running epoch 12 of counts/0"
    assert found.lanes == ((None, 0), (None, 0))


def test_an_executor_without_a_host_gives_no_sign() -> None:
    assert job_activity.read(b"") == Signs()
    assert job_activity.read_all({}, ["1"])["1"].of(7, COUNTS) == Signs().of(7, COUNTS)


def test_a_place_is_free_again_whatever_is_raised_while_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Panic(BaseException):
        pass

    def fails(*_: object) -> None:
        raise Panic

    host = Activity()
    monkeypatch.setattr(Activity, "write", fails)
    with pytest.raises(Panic), host.entry(7):
        pass
    assert host.taken == set()
