"""A segment: what is left of commit records, in which form, and how damage of it is found."""

import gzip
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from memory_files import MemoryFiles

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, RunError
from rekindle_store import commit_log, commit_segments

pytestmark = pytest.mark.usefixtures("short_segments")

LENGTH = 4
NAME = "commits/segments/5-8.jsonl.gz"


def commit(epoch: int, **fields: Any) -> dict[str, Any]:
    digest = f"{epoch:016x}"
    return {
        "generation": 2,
        "at": 1_700_000_000.1234567 + epoch,
        "plan_epoch": 3,
        "finished": {name: [epoch, epoch, [digest]] for name in ("hours/0", "rows/0")},
        "outputs": [["hourly/0", epoch, 12, f"0-{epoch:09d}.parquet", digest]],
        "late": [],
        **fields,
    }


COMMITS = [
    commit(100),
    commit(101, late=[["hours/0", 101, 2]], checkpoint=101),
    {**commit(101), "finished": {}, "outputs": [], "generation": 3, "checkpoints": [100]},
    commit(102, outputs=[["hourly/0", 102, 1, "0-000000102-3-7-1.parquet", "d"]]),
]


def stored(records: Sequence[dict[str, Any]] = COMMITS) -> MemoryFiles:
    """A store with the segment of these as its second one."""
    files = MemoryFiles()
    files.content[NAME] = commit_segments.pack(records)
    return files


def read(files: MemoryFiles) -> list[tuple[int, dict[str, Any]]]:
    segment = commit_segments.read(files, 6)
    assert segment is not None
    return list(segment.records())


def test_a_segment_keeps_what_readers_need_in_lines_of_differences() -> None:
    first, *others = gzip.decompress(stored().content[NAME]).splitlines()
    assert [json.loads(line) for line in others] == [
        {
            "at": 1000,
            "checkpoint": 101,
            "epoch": 1,
            "finished": {"hours/0": [0, 0], "rows/0": [0, 0]},
            "generation": 2,
            "late": [["hours/0", 0, 2]],
            "outputs": [["hourly/0", 0, 12]],
            "plan_epoch": 3,
        },
        {
            "at": 0,
            "checkpoints": [100],
            "epoch": 0,
            "finished": {},
            "generation": 3,
            "late": [],
            "outputs": [],
            "plan_epoch": 3,
        },
        {
            "at": 1000,
            "epoch": 1,
            "finished": {"hours/0": [0, 0], "rows/0": [0, 0]},
            "generation": 2,
            "late": [],
            "outputs": [["hourly/0", 0, 1, "-3-7-1.parquet"]],
            "plan_epoch": 3,
        },
    ]
    beside = {"checksum", "kind", "version", "lines"}
    content = {name: value for name, value in json.loads(first).items() if name not in beside}
    assert content == {
        "at": 1_700_000_100_123,
        "epoch": 100,
        "finished": {"hours/0": [0, 0], "rows/0": [0, 0]},
        "generation": 2,
        "late": [],
        "outputs": [["hourly/0", 0, 12]],
        "plan_epoch": 3,
    }


def test_readers_get_records_without_digests_whose_moments_are_milliseconds() -> None:
    found = read(stored())
    assert [number for number, _ in found] == [5, 6, 7, 8]
    assert [record for _, record in found] == [commit_segments.kept(one) for one in COMMITS]
    assert found[1][1] == {
        **commit(101, late=[["hours/0", 101, 2]], checkpoint=101),
        "at": 1_700_000_101.123,
        "finished": {"hours/0": [101, 101, []], "rows/0": [101, 101, []]},
        "outputs": [["hourly/0", 101, 12, "0-000000101.parquet", None]],
    }
    segment = commit_segments.read(stored(), 8)
    assert segment is not None
    assert list(segment.records(7)) == found[2:]


def test_whoever_makes_a_segment_makes_the_same_bytes() -> None:
    other_order = [dict(reversed(record.items())) for record in COMMITS]
    data = stored().content[NAME]
    assert commit_segments.pack(other_order) == data
    assert commit_segments.pack([record for _, record in read(stored())]) == data
    moved = [{**record, "at": record["at"] - 0.0002} for record in COMMITS]
    assert commit_segments.pack(moved) == data, "the clock is read to the millisecond"


NAMES = some.sampled_from(["hourly/0", "hourly/12", "odd.dead-letters/3", "no-number"])
EPOCHS = some.integers(0, 10**10)
MOMENTS = some.floats(0, 4e9)
ODD = ["12-000000007-1-2-3.parquet", "0-000000007/..", "-3.parquet", "/", ""]
FILES = some.one_of(some.sampled_from(["0-000000007.parquet", *ODD]), some.text(max_size=30))


@some.composite
def records(draw: some.DrawFn) -> dict[str, Any]:
    """Any record, also with what no driver writes, and with fields of versions to come."""
    ends = draw(some.dictionaries(NAMES, some.tuples(EPOCHS, EPOCHS)))
    lists = some.lists(some.builds(lambda *one: [*one], NAMES, EPOCHS, some.integers()))
    optional = {
        "late": lists,
        "choices": lists,
        "checkpoint": EPOCHS,
        "left_out": some.dictionaries(NAMES, EPOCHS),
        "of_a_version_to_come": some.lists(some.integers()),
        "lag_goals": some.fixed_dictionaries(
            {"at": MOMENTS, "seconds": some.dictionaries(NAMES, some.floats(0, 1e7))}
        ),
    }
    outputs = some.builds(lambda *one: [*one], NAMES, EPOCHS, some.integers(0), FILES, some.text())
    return {
        "generation": draw(some.integers(1, 9)),
        "at": draw(MOMENTS),
        "plan_epoch": draw(some.integers(0, 9)),
        "finished": {name: [first, last, ["d"]] for name, (first, last) in ends.items()},
        "outputs": draw(some.lists(outputs)),
        **draw(some.fixed_dictionaries({}, optional=optional)),
    }


@given(some.lists(records(), min_size=LENGTH, max_size=LENGTH))
def test_what_is_kept_of_any_record_comes_back(made: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_segments, "LENGTH", LENGTH)
        found = [record for _, record in read(stored(made))]
        assert found == [commit_segments.kept(one) for one in made]
        assert found == [commit_segments.kept(one) for one in found]
        assert commit_segments.pack(found) == commit_segments.pack(made)


def test_of_each_byte_that_is_flipped_the_damage_is_found_or_there_is_none() -> None:
    """What gzip says of time and system, and bits behind the last one that is packed, are no part
    of any record."""
    data, whole, harmless = stored().content[NAME], read(stored()), set()
    for place, bit in itertools.product(range(len(data)), (1, 128)):
        flipped = bytearray(data)
        flipped[place] ^= bit
        files = MemoryFiles()
        files.content[NAME] = bytes(flipped)
        damage = damage_of(files, whole)
        if damage is None:
            harmless.add(place)
        else:
            assert damage.where == f"memory/{NAME}"
            assert "restore it from a copy of the store" in damage.remedy
    assert harmless <= {*range(3, 10), len(data) - 9}


def damage_of(files: MemoryFiles, whole: list[tuple[int, dict[str, Any]]]) -> DamagedError | None:
    """What is wrong with a segment; None where it has what the whole one has."""
    try:
        assert read(files) == whole
    except DamagedError as error:
        return error
    return None


def test_what_gzip_takes_for_sound_has_another_checksum() -> None:
    lines = gzip.decompress(stored().content[NAME]).splitlines(keepends=True)
    swapped = [lines[0], lines[2], lines[1], lines[3]]
    changed = [lines[0].replace(b'"epoch":100', b'"epoch":110'), *lines[1:]]
    files = MemoryFiles()
    for other in (swapped, changed):
        files.content[NAME] = gzip.compress(b"".join(other))
        with pytest.raises(DamagedError, match=r"5-8\.jsonl\.gz: does not match its checksum"):
            read(files)


def test_a_segment_of_the_version_before_has_digests_and_is_read_as_it_is() -> None:
    files = MemoryFiles()
    lines = [record_format.encode("commit", one) for one in COMMITS]
    files.content[NAME] = gzip.compress(b"".join(lines))
    assert read(files) == list(enumerate(COMMITS, 5))
    files.content[NAME] = gzip.compress(b"".join([*lines[:2], b"{}\n", lines[3]]))
    segment = commit_segments.read(files, 5)
    assert segment is not None
    assert [type(found) for _, found in segment.checked()] == [dict, dict, DamagedError, dict]
    assert next(segment.records(8)) == (8, COMMITS[3])
    with pytest.raises(DamagedError, match=r"5-8\.jsonl\.gz: record 7: is a record of kind None"):
        list(segment.records(6))


def test_a_segment_of_a_version_to_come_is_refused_and_not_taken_for_damaged() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_segments, "VERSION", 3)
        files = stored()
    with pytest.raises(RunError, match="has version 3 of commit, known is 2") as refused:
        commit_segments.read(files, 5)
    assert not isinstance(refused.value, DamagedError)


def test_a_record_has_the_same_fingerprint_in_a_segment_and_no_other_record_has_it() -> None:
    own, whole = MemoryFiles(), MemoryFiles()
    for number, one in enumerate(COMMITS, 5):
        own.content[f"commits/{number}.json"] = record_format.encode("commit", one)
    lines = [record_format.encode("commit", one) for one in COMMITS]
    whole.content[NAME] = gzip.compress(b"".join(lines))
    logs = [
        [commit_log.fingerprint(files, number) for number in range(5, 9)]
        for files in (own, whole, stored())
    ]
    assert logs[0] == logs[1] == logs[2]
    assert len({len(one) for one in logs[0]}) == 1
    assert len(set(logs[0])) == len(COMMITS)
    assert commit_log.fingerprint(own, 9) == commit_log.fingerprint(own, 4) == ""
    later = {**COMMITS[0], "at": COMMITS[0]["at"] + 0.001}
    own.content["commits/5.json"] = record_format.encode("commit", later)
    assert commit_log.fingerprint(own, 5) != logs[0][0]


@pytest.mark.parametrize("is_of_before", [False, True])
def test_the_newest_record_gets_a_file_of_its_own_again(is_of_before: bool) -> None:
    files = stored()
    if is_of_before:
        lines = [record_format.encode("commit", one) for one in COMMITS]
        files.content[NAME] = gzip.compress(b"".join(lines))
    log = list(commit_log.commits(files, 4))
    assert commit_log.restore_newest(files) == "commits/8.json"
    assert commit_log.newest(files) == 8
    assert list(commit_log.commits(files, 4)) == log
    del files.content[NAME]
    assert list(commit_log.commits(files, 7)) == log[3:]
    assert commit_log.restore_newest(files) == ""
