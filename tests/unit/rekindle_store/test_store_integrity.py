"""A store is checked: each kind of damage is found at its place, and a sound store has none."""

import gzip
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from output_stores import rows
from whole_stores import Driver, all_files, flip_value, rows_of, seal_as_before, whole

from rekindle.model import record_format
from rekindle.model.errors import InputError, RunError
from rekindle_store import (
    commit_log,
    commit_segments,
    compacted_outputs,
    store_files,
    store_integrity,
)
from rekindle_store.local_files import LocalFiles
from rekindle_store.store_integrity import Damage, Findings

pytestmark = pytest.mark.usefixtures("short_segments")


def findings(store: Path) -> Findings:
    return store_integrity.check(store_files.at(store))


def damages(store: Path) -> list[tuple[str, str]]:
    return [(damage.place, damage.what) for damage in findings(store).damages]


def test_a_sound_store_has_no_damage_and_all_of_it_is_looked_at(store: Path) -> None:
    found = findings(store)
    assert found.damages == []
    assert (found.generation, found.commits, found.checkpoint) == (2, 13, 10)
    assert found.identity == commit_log.identity(store_files.at(store))
    assert found.files == {
        "generations": 2,
        "programs": 2,
        "commits": 6,  # five behind the segments, and the seal of the second driver
        "segments": 2,
        "outputs": 24,
        "checkpoints": 2,
        "states": 3,
        "inputs": 1,
        "offsets": 5,  # behind the state of what is behind
    }
    outputs = sum(path.stat().st_size for path in (store / "outputs").rglob("*.parquet"))
    assert found.bytes["outputs"] == outputs


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit at a byte, else in a number of a record, or in the middle of a file."""
    data = bytearray(path.read_bytes())
    if at is None and path.suffix == ".json":
        at = data.index(b'"generation":') + len('"generation":')
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


FLIPPED = [
    ("generations/1.json", "does not match its checksum"),
    ("generations/program-2.pickle", "does not match its checksum"),
    ("commits/12.json", "does not match its checksum"),
    ("commits/segments/5-8.jsonl.gz", "cannot be unpacked"),
    ("outputs/hourly/0-000000003.parquet", "cannot be read"),
    ("checkpoints/10.json", "does not match its checksum"),
    ("checkpoints/10/rows-0.state", "does not match its checksum"),
    ("checkpoints/7/counts-0.state", "does not match its checksum"),
    ("checkpoints/10/counts-0.input", "does not match its checksum"),
    ("offsets/11.json", "does not match its checksum"),
]


@pytest.mark.parametrize(("name", "what"), FLIPPED, ids=[name for name, _ in FLIPPED])
def test_one_flipped_bit_is_found_in_each_kind_of_file(store: Path, name: str, what: str) -> None:
    (flip_value if name.endswith(".parquet") else flip)(store / name)
    (damage,) = findings(store).damages
    assert damage.place == name
    assert what in damage.what
    assert damage.meaning
    assert "restore it from a copy" in damage.remedy or "start the driver again" in damage.remedy


@pytest.mark.parametrize(
    "name",
    [
        *(name for name, _ in FLIPPED if name != "generations/program-2.pickle"),
        "checkpoints/7.json",
        "generations/program-2.pickle.sha256",
    ],
)
def test_an_emptied_file_of_each_kind_is_found(store: Path, name: str) -> None:
    (store / name).write_bytes(b"")
    (damage,) = findings(store).damages
    assert damage.place == name.removesuffix(".sha256")


@pytest.mark.parametrize("folder", ["branches", "listings/rows"])
def test_an_emptied_record_of_a_source_or_branch_is_found(store: Path, folder: str) -> None:
    (store / folder).mkdir(parents=True, exist_ok=True)
    (store / folder / "1.json").write_bytes(b"")
    assert damages(store) == [(f"{folder}/1.json", "is no JSON")]


@pytest.mark.parametrize(
    ("to", "what"),
    [
        (b"hgy", "has columns ['hgy', 'n'], and was written with ['key', 'n']"),
        (b"\xebey", "cannot be read ('utf-8' codec can't decode byte 0xeb"),
    ],
    ids=["another-name", "no-text"],
)
def test_a_column_with_another_name_than_it_was_written_with_is_found(
    store: Path, to: bytes, what: str
) -> None:
    """Parquet has checksums of pages and none of its footer."""
    path = store / "outputs/hourly/0-000000003.parquet"
    pq.write_table(pa.table({"key": ["a"], "n": [1]}), path, write_page_checksum=True)
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"\x03key", b"\x03" + to))
    assert path.read_bytes() != sound
    ((place, found),) = damages(store)
    assert place == "outputs/hourly/0-000000003.parquet"
    assert found.startswith(what)


def test_the_newest_start_is_missed_by_what_its_driver_has_written(store: Path) -> None:
    (store / "generations/2.json").unlink()
    what = "is not there, but that driver has written commit record 13"
    assert damages(store) == [("generations/2.json", what)]


def test_a_flipped_bit_anywhere_in_a_record_is_damage_and_no_bad_input(store: Path) -> None:
    """In its version, too."""
    path = store / "commits/12.json"
    sound = path.read_bytes()
    for at in (sound.index(b'"version":') + len('"version":'), *range(0, len(sound) - 1, 11)):
        flip(path, at=at)
        found = store_integrity.check(store_files.at(store), of_output="sizes").damages
        assert "commits/12.json" in [damage.place for damage in found], at
        path.write_bytes(sound)


def test_a_flipped_bit_in_what_a_state_says_of_itself_is_found(store: Path) -> None:
    path = store / "checkpoints/10/rows-0.state"
    flip(path, at=path.read_bytes().index(b'"watermark": 10') + len('"watermark": 1'))
    assert damages(store) == [("checkpoints/10/rows-0.state", "does not match its checksum")]


REMOVED: list[tuple[str, list[tuple[str, str]]]] = [
    ("commits/11.json", [("commits/11.json", "is not there, but what came later is")]),
    ("commits/segments/1-4.jsonl.gz", [("commits/1.json", "to 3.json are not there, but")]),
    ("generations/1.json", [("generations/1.json", "is not there, but what came later is")]),
    ("outputs/busiest/0-000000005.parquet", [("outputs/busiest/0-000000005.parquet", "is not")]),
    ("checkpoints/7/counts-0.state", [("checkpoints/7/counts-0.state", "is not there")]),
    ("checkpoints/10/counts-0.input", [("checkpoints/10/counts-0.input", "is not there")]),
    ("offsets/9.json", [("offsets/9.json", "is not there")]),
    ("offsets/12.json", [("offsets/12.json", "is not there")]),
]


@pytest.mark.parametrize(("name", "expected"), REMOVED, ids=[name for name, _ in REMOVED])
def test_a_missing_file_is_found(store: Path, name: str, expected: list[tuple[str, str]]) -> None:
    (store / name).unlink()
    found = damages(store)
    assert [place for place, _ in found] == [place for place, _ in expected]
    for (_, what), (_, begin) in zip(found, expected, strict=True):
        assert what.startswith(begin)


def test_a_segment_that_is_not_what_was_written_is_one_damage(store: Path) -> None:
    path = store / "commits/segments/5-8.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    for number in range(4):
        other = [*lines]
        other[number] = lines[number].replace(b'"plan_epoch":1', b'"plan_epoch":2')
        path.write_bytes(gzip.compress(b"".join(other)))
        place = "commits/segments/5-8.jsonl.gz"
        assert damages(store) == [(place, "does not match its checksum")]


def test_of_a_segment_of_the_version_before_each_damaged_record_is_found(store: Path) -> None:
    path = store / "commits/segments/5-8.jsonl.gz"
    with_lines = seal_as_before(store, 5)
    assert damages(store) == []
    changed = [line.replace(b'"plan_epoch":1', b'"plan_epoch":2') for line in with_lines[1:3]]
    path.write_bytes(gzip.compress(b"".join([with_lines[0], *changed, with_lines[3]])))
    assert damages(store) == [
        (f"commits/segments/5-8.jsonl.gz: record {number}", "does not match its checksum")
        for number in (6, 7)
    ]


def test_records_whose_segment_keeps_less_of_them_are_the_same(store: Path) -> None:
    """A driver was killed once it had made a segment, before it removed the records' files."""
    lines = seal_as_before(store, 5)
    (store / "commits/segments/5-8.jsonl.gz").write_bytes(
        commit_segments.pack([record_format.decode("commit", line, "here") for line in lines])
    )
    for number, line in enumerate(lines, 5):
        (store / f"commits/{number}.json").write_bytes(line)
    found = findings(store)
    assert (found.damages, found.files["commits"]) == ([], 10)
    other = record_format.decode("commit", lines[1], "here")
    data = record_format.encode("commit", {**other, "plan_epoch": 7})
    (store / "commits/6.json").write_bytes(data)
    ((place, what),) = damages(store)
    assert (place, what[:17]) == ("commits/6.json", "is another record")


def test_a_segment_of_a_newer_version_is_no_damage(store: Path) -> None:
    lines = seal_as_before(store, 5)
    records = [record_format.decode("commit", line, "here") for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_segments, "VERSION", 3)
        (store / "commits/segments/5-8.jsonl.gz").write_bytes(commit_segments.pack(records))
    with pytest.raises(InputError, match=r"5-8\.jsonl\.gz: has version 3 of commit, known is 2"):
        findings(store)


def test_a_truncated_segment_is_one_damage(store: Path) -> None:
    path = store / "commits/segments/5-8.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    ((place, what),) = damages(store)
    assert place == "commits/segments/5-8.jsonl.gz"
    assert what.startswith("cannot be unpacked")


def test_a_segment_of_too_few_records_is_one_damage(store: Path) -> None:
    path = store / "commits/segments/5-8.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:3])))
    assert damages(store) == [("commits/segments/5-8.jsonl.gz", "has 3 records, not 4")]


def test_segments_that_overlap_are_found(store: Path) -> None:
    path = store / "commits/segments/5-8.jsonl.gz"
    (store / "commits/segments/3-6.jsonl.gz").write_bytes(path.read_bytes())
    place, what = "commits/segments/3-6.jsonl.gz", "overlaps commits/segments/1-4.jsonl.gz"
    assert damages(store) == [(place, what)]


def test_output_that_is_named_twice_is_found(store: Path) -> None:
    driver = Driver(store)
    driver.commit(driver.put("hourly", 0, 12, rows_of(12)))
    ((place, what),) = damages(store)
    assert (place, what) == (
        "commits/15.json",
        "names epoch 12 of hourly/0, which an earlier record has named",
    )


def test_two_records_of_one_number_are_found(store: Path) -> None:
    data = (store / "commits/12.json").read_bytes()
    (store / "commits/6.json").write_bytes(data)
    place, what = (
        "commits/6.json",
        "is another record than the one in commits/segments/5-8.jsonl.gz",
    )
    assert damages(store) == [(place, what)]


def test_a_late_record_of_a_driver_that_was_replaced_is_harmless(store: Path) -> None:
    """It took the number of a record that has a segment; that one counts."""
    late = {"generation": 1, "at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": []}
    (store / "commits/6.json").write_bytes(record_format.encode("commit", late))
    assert damages(store) == []


def test_a_newest_record_without_a_file_of_its_own_is_found(store: Path) -> None:
    for number in range(9, 14):
        (store / f"commits/{number}.json").unlink()
    found = damages(store)
    assert found[0] == (
        "commits/8.json",
        "is not there, though it is the newest record of the log",
    )
    assert ("checkpoints/10.json", "covers commit 11, and the newest one is 8") in found


def test_output_that_another_file_has_taken_the_place_of_is_found(store: Path) -> None:
    Driver(store).put("hourly", 0, 5, rows(1))
    what = "has 1 rows, where commit record 6 says 3"
    assert damages(store) == [("outputs/hourly/0-000000005.parquet", what)]


def test_a_quick_check_reads_no_output_file_and_misses_none(store: Path) -> None:
    path = store / "outputs/hourly/0-000000005.parquet"
    flip(path, at=30)
    assert store_integrity.check(store_files.at(store), of_output="sizes").damages == []
    path.unlink()
    (damage,) = store_integrity.check(store_files.at(store), of_output="sizes").damages
    assert damage.place == "outputs/hourly/0-000000005.parquet"


@pytest.fixture(name="compacted")
def _compacted(tmp_path: Path) -> Path:
    """A store whose output up to epoch 7 was put together, of two queries and two segments."""
    whole(tmp_path / "compacted").compact()
    return tmp_path / "compacted"


DATA = "outputs/hourly/commits-5-8-2-2-0.parquet"
INDEX = "commits/segments/5-8.files"


def test_output_that_was_put_together_is_looked_at_once(compacted: Path) -> None:
    found = findings(compacted)
    assert found.damages == []
    # of seven epochs of two queries there are two files each, and five epochs have their own
    assert (found.files["outputs"], found.files["indices"]) == (4 + 10, 2)
    outputs = sum(path.stat().st_size for path in (compacted / "outputs").rglob("*.parquet"))
    assert found.bytes["outputs"] == outputs


@pytest.mark.parametrize(
    ("name", "what"),
    [(DATA, "cannot be read"), (INDEX, "does not match its checksum")],
)
def test_a_flipped_bit_in_what_was_put_together_is_found(
    compacted: Path, name: str, what: str
) -> None:
    at = 30 if name == DATA else (compacted / name).read_bytes().index(b'"first":') + 8
    flip(compacted / name, at=at)
    (damage,) = findings(compacted).damages
    assert damage.place == name
    assert what in damage.what


def test_missing_files_of_what_was_put_together_are_found(compacted: Path) -> None:
    (compacted / DATA).unlink()
    assert damages(compacted) == [(DATA, "is not there, but its index names it")]
    quick = store_integrity.check(store_files.at(compacted), of_output="sizes").damages
    assert [damage.place for damage in quick] == [DATA]
    (compacted / INDEX).unlink()
    names = [
        f"outputs/{query}/0-00000000{epoch}.parquet"
        for epoch in (4, 5, 6, 7)
        for query in ("busiest", "hourly")
    ]
    assert [place for place, _ in damages(compacted)] == names


def test_a_data_file_that_is_not_what_its_index_says_is_found(compacted: Path) -> None:
    other = compacted / DATA.replace("5-8-2-2", "1-4-2-1")
    (compacted / DATA).write_bytes(other.read_bytes())
    assert damages(compacted) == [(DATA, "has 9 rows, where its index says 12")]
    quick = store_integrity.check(store_files.at(compacted), of_output="sizes").damages
    assert "bytes, where its index says" in quick[0].what


def test_an_index_of_other_commits_is_found(compacted: Path) -> None:
    (compacted / INDEX).write_bytes((compacted / "commits/segments/1-4.files").read_bytes())
    assert damages(compacted) == [(INDEX, "is for commits 1 to 4")]
    (compacted / INDEX).rename(compacted / "commits/segments/3-6.files")
    assert ("commits/segments/3-6.files", "is for other commits than an index is") in damages(
        compacted
    )


def test_an_index_that_does_not_fit_its_commits_is_found(compacted: Path) -> None:
    index = compacted_outputs.read(store_files.at(compacted), 5, 0)
    assert index is not None
    spans = [{"hourly": index.spans[0]["hourly"]}]
    (compacted / INDEX).write_bytes(compacted_outputs.encoded(replace(index, spans=spans)))
    what = "knows other files of query busiest than the commit records"
    assert damages(compacted) == [(INDEX, what)]


def test_output_that_is_put_together_meanwhile_is_no_damage(store: Path) -> None:
    driver = Driver(store)
    driver.store.settled = 7
    with pytest.MonkeyPatch.context() as patch:
        size, names = LocalFiles.size, list[str]()

        def slow(self: LocalFiles, name: str) -> int:
            if name.startswith("outputs/") and not names:
                names.append(name)
                driver.compact()
            return size(self, name)

        patch.setattr(LocalFiles, "size", slow)
        assert store_integrity.check(store_files.at(store), of_output="sizes").damages == []
    assert names


def test_many_damages_are_counted_and_the_first_ones_told(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_integrity, "DAMAGES_MAX", 3)
    for path in (store / "outputs").rglob("*.parquet"):
        path.unlink()
    found = findings(store)
    assert (len(found.damages), found.more_damages) == (3, 21)


def test_what_is_no_store_is_bad_input(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="is not there, or no pipeline has run on it"):
            findings(place)


def test_a_record_of_a_newer_version_is_no_damage(store: Path) -> None:
    newer = {**record_format.VERSIONS, "branch": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_format, "VERSIONS", newer)
        (store / "branches/1.json").write_bytes(record_format.encode("branch", {"generation": 1}))
    with pytest.raises(InputError, match="run the version of Rekindle that wrote it"):
        findings(store)


def test_an_error_of_the_store_is_no_damage_of_its_files(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LocalFiles.read

    def refusing(self: LocalFiles, name: str, *arguments: Any) -> bytes:
        if name.endswith(".state"):
            raise RunError(where="the store", what="does not answer", remedy="try again")
        return read(self, name, *arguments)

    monkeypatch.setattr(LocalFiles, "read", refusing)
    with pytest.raises(InputError, match="the store: does not answer"):
        findings(store)


def test_a_check_changes_nothing(store: Path) -> None:
    before = all_files(store)
    findings(store)
    assert all_files(store) == before


def test_a_store_on_which_a_driver_runs_has_no_damage(store: Path) -> None:
    """It commits, completes checkpoints, removes older ones and makes segments meanwhile."""
    driver = Driver(store)
    ended = threading.Event()

    def work() -> None:
        for epoch in range(13, 40):
            driver.run(epoch)
            if epoch % 3 == 0:
                driver.checkpoint()
                driver.seal_segments()
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    found: list[Damage] = []
    while not ended.is_set():
        found += findings(store).damages
    thread.join()
    assert found == []
    assert findings(store).checkpoint == 39


def test_a_segment_that_was_made_while_records_were_listed_is_no_damage(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(store)
    names = LocalFiles.names

    def grown(self: LocalFiles, folder: str) -> list[str]:
        if folder == commit_segments.FOLDER:
            monkeypatch.undo()
            monkeypatch.setattr(commit_segments, "LENGTH", 4)
            driver.run(*range(13, 21))
            driver.checkpoint(19)
            driver.checkpoint()
            driver.seal_segments()
        return names(self, folder)

    monkeypatch.setattr(LocalFiles, "names", grown)
    found = findings(store)
    assert found.damages == []
    assert found.commits == 20, "the last record that was listed is of a segment"


def test_a_list_of_files_that_lacks_a_record_or_has_a_damaged_one_is_found(store: Path) -> None:
    folder = store / "listings" / "orders"
    folder.mkdir(parents=True)
    for number in (2, 4, 5, 7):
        whole_record = {"whole": True, "begins": {}} if number == 4 else {}
        content = {"files": [], **whole_record}
        (folder / f"{number}.json").write_bytes(record_format.encode("listing", content))
    assert damages(store) == [("listings/orders/6.json", "is not there, but what came later is")]
    (folder / "6.json").write_bytes(record_format.encode("listing", {"files": []}))
    assert damages(store) == []
    flip(folder / "5.json", at=20)
    [(place, _)] = damages(store)
    assert place == "listings/orders/5.json"
