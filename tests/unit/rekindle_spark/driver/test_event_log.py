"""The event log: one line per event, and a torn line stays alone."""

import json
import os
from pathlib import Path

import pytest

from rekindle_cli.jsonl_tail import EventFile
from rekindle_spark.driver.event_log import WAITING_BYTES_MAX, EventLog, open_events


def write(path: Path, generation: int, kind: str) -> None:
    with open_events(path) as file:
        EventLog(file, generation).write(kind, epoch=3)


def test_since_when_the_store_is_away_counts_from_the_first_who_met_it(tmp_path: Path) -> None:
    with open_events(tmp_path / "events.jsonl") as file:
        events = EventLog(file, 1)
        events.store_away("no route")
        first = events.away_at
        events.store_away("no route")
        assert first is not None
        assert events.away_at == first
        events.store_away(None)
        assert events.away_at is None


def test_events_of_one_driver_after_another_stand_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 1, "cut")
    write(path, 2, "commit")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(e["generation"], e["kind"], e["epoch"]) for e in events] == [
        (1, "cut", 3),
        (2, "commit", 3),
    ]


@pytest.mark.parametrize("torn", ['{"version": 1, "at": 17', "{", '{"version": 1}'])
def test_a_line_that_a_killed_driver_left_torn_is_ended_by_the_next_one(
    tmp_path: Path, torn: str
) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 1, "cut")
    with path.open("a") as file:
        file.write(torn)
    write(path, 2, "commit")
    first, second, third = path.read_text().splitlines()
    assert json.loads(first)["kind"] == "cut"
    assert second == torn
    assert json.loads(third)["kind"] == "commit"


def test_events_wait_for_room_on_the_disk_and_none_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room, write_all = tmp_path / "events.jsonl", [0, 30, 0], os.write

    def write_some(descriptor: int, data: bytes) -> int:
        allowed = room.pop(0) if room else len(data)
        if not allowed:
            raise OSError(28, "No space left on device")
        return write_all(descriptor, data[:allowed])

    monkeypatch.setattr("os.write", write_some)
    with open_events(path) as file:
        log = EventLog(file, 1)
        for epoch in range(4):
            log.write("cut", epoch=epoch)
    assert [json.loads(line)["epoch"] for line in path.read_text().splitlines()] == [0, 1, 2, 3]


def test_many_events_at_once_are_all_written_though_they_are_more_than_may_wait(
    tmp_path: Path,
) -> None:
    path, count = tmp_path / "events.jsonl", 2 * WAITING_BYTES_MAX // 100
    with open_events(path) as file:
        EventLog(file, 1).write_each("commit", ({"epoch": number} for number in range(count)))
    lines = path.read_text().splitlines()
    assert sum(map(len, lines)) > WAITING_BYTES_MAX
    assert [json.loads(line)["epoch"] for line in lines] == list(range(count))


def test_what_gets_too_long_is_set_aside_and_goes_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with open_events(path) as file:
        log = EventLog(file, 1, bytes_max=4_000)
        for epoch in range(200):
            log.write("cut", epoch=epoch)
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["events.jsonl", "events.jsonl.1", "events.jsonl.2", "events.jsonl.3"]
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 4_500
    text = "".join((tmp_path / name).read_text() for name in reversed(names))
    epochs = [json.loads(line)["epoch"] for line in text.splitlines()]
    assert epochs == list(range(epochs[0], 200))


def test_a_follower_gets_each_event_once_though_files_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 1, "cut")
    followed, epochs = EventFile.at_end(path), list[int]()
    with open_events(path) as file:
        log = EventLog(file, 2, bytes_max=4_000)
        for epoch in range(300):
            log.write("cut", epoch=epoch)
            if epoch % 23 == 0:  # two files have been set aside since, at times
                epochs += [event["epoch"] for event in followed.fresh()]
    epochs += [event["epoch"] for event in followed.fresh()]
    assert epochs == list(range(300))


def test_without_a_limit_there_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with open_events(path) as file:
        log = EventLog(file, 1)
        for epoch in range(100):
            log.write("cut", epoch=epoch)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_of_its_own_is_not_set_aside(tmp_path: Path) -> None:
    path, target = tmp_path / "stdout", tmp_path / "file"
    path.symlink_to(target)
    with open_events(path) as file:
        log = EventLog(file, 1, bytes_max=400)
        for epoch in range(20):
            log.write("cut", epoch=epoch)
    assert path.is_symlink()
    assert len(target.read_text().splitlines()) == 20
