"""Which output files count: what a commit record names, whatever else lies in the store."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fresh_python import run_code
from output_stores import Writer, rows
from whole_stores import Driver, rows_of

import rekindle
from rekindle.model import record_format
from rekindle.model.errors import InputError, RunError
from rekindle_store import (
    commit_log,
    commit_segments,
    committed_files,
    compacted_outputs,
    store_files,
)
from rekindle_store.committed_files import OutputLog
from rekindle_store.local_files import LocalFiles
from rekindle_store.store_files import Files


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A store with five commits, of two queries."""
    made = Writer(tmp_path / "store")
    made.epoch("hourly", 0, 1, 1, 2)
    made.epoch("hourly", 1, 1, 3)
    made.commit()
    made.epoch("busiest", 0, 2, 4)
    made.epoch("hourly", 0, 3, 5)
    return made


def listed(writer: Writer, *arguments: object, **options: int) -> list[tuple[str, int, int, int]]:
    return [
        (file.query, file.partition, file.epoch, file.rows)
        for file in rekindle.committed_files(writer.place, *arguments, **options)
    ]


def test_files_come_in_the_order_in_which_they_came_to_count(writer: Writer) -> None:
    assert listed(writer) == [
        ("hourly", 0, 1, 2),
        ("hourly", 1, 1, 1),
        ("busiest", 0, 2, 1),
        ("hourly", 0, 3, 1),
    ]


def test_a_file_that_no_commit_names_does_not_count(writer: Writer) -> None:
    writer.put("hourly", 1, 3, rows(7, 8, 9))
    assert listed(writer, "hourly") == [
        ("hourly", 0, 1, 2),
        ("hourly", 1, 1, 1),
        ("hourly", 0, 3, 1),
    ]


def test_a_file_has_its_path_size_commit_and_time(writer: Writer) -> None:
    *_, last = rekindle.committed_files(writer.place)
    path = Path(writer.place) / "outputs/hourly/0-000000003.parquet"
    assert (last.path, last.bytes) == (str(path), path.stat().st_size)
    assert (last.commit, last.committed_at) == (5, 1_700_000_004.0)


def test_a_listing_begins_with_an_epoch_or_behind_a_commit(writer: Writer) -> None:
    assert listed(writer, "hourly", since=2) == [("hourly", 0, 3, 1)]
    assert listed(writer, since=2, after=4) == [("hourly", 0, 3, 1)]
    assert listed(writer, after=5) == []


def test_a_listing_cannot_begin_behind_the_newest_commit(writer: Writer) -> None:
    with pytest.raises(InputError, match=r"record 9 of .* not there: the newest one is 5"):
        listed(writer, after=9)


def test_commits_of_later_drivers_count_too(writer: Writer) -> None:
    later = Writer(writer.place)
    later.epoch("busiest", 0, 4, 6)
    assert listed(later, "busiest") == [("busiest", 0, 2, 1), ("busiest", 0, 4, 1)]
    assert commit_log.newest(store_files.at(writer.place)) == 7, (
        "a start seals the log with a record"
    )


def test_an_unknown_query_is_refused_with_near_ones(writer: Writer) -> None:
    with pytest.raises(InputError) as error:
        rekindle.committed_files(writer.place, "hurly")
    assert str(error.value) == (
        f"query 'hurly': is no query of checkpoint store {writer.place}; name one of: hourly"
    )


def test_a_step_is_refused_with_the_name_of_its_dead_letters(writer: Writer) -> None:
    with pytest.raises(InputError, match="it is a step that keeps rows beside: name checked"):
        rekindle.committed_files(writer.place, "checked")


def test_a_query_of_a_driver_that_has_not_recorded_its_queries_is_found(tmp_path: Path) -> None:
    older = Writer(tmp_path / "store", outputs=())
    older.epoch("hourly", 0, 1, 1)
    assert listed(older, "hourly") == [("hourly", 0, 1, 1)]
    with pytest.raises(InputError, match=r"query 'none': is no query of .*; name one of: hourly"):
        listed(older, "none")


def test_a_query_of_an_earlier_pipeline_is_found(writer: Writer) -> None:
    Writer(writer.place, outputs=("changed",))
    assert len(listed(writer, "hourly")) == 3
    assert listed(writer, "changed") == []
    with pytest.raises(InputError, match=r"name one of: busiest, changed, checked\.dead-"):
        listed(writer, "x")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "is not there, or no pipeline has run on it"),
        (".", "is not there, or no pipeline has run on it"),
        ("file", r"cannot be read \(Not a directory\); name the place that `rekindle run --store`"),
        ("x" * 300, r"cannot be read \(File name too long\)"),
    ],
)
def test_what_is_no_store_is_refused(place: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store")
    with pytest.raises(InputError, match=f"checkpoint store {tmp_path}.*: {message}"):
        rekindle.committed_files(tmp_path / place)


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(InputError, match="gs://bucket/x: is no place that is known"):
        rekindle.committed_files("gs://bucket/x")


def test_a_server_that_is_not_there_is_no_mistake_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    with pytest.raises(RunError, match="store s3://nobody/readers: does not answer") as error:
        rekindle.committed_files("s3://nobody/readers")
    assert not isinstance(error.value, InputError)
    assert "\n" not in str(error.value)


def test_a_store_whose_client_is_not_installed_is_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "rekindle_store.object_files", raising=False)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(InputError, match=r"needs obstore.*, which .*; install rekindle\[stores\]"):
        rekindle.committed_files("s3://bucket/without-client")


def test_a_store_that_may_not_be_read_is_refused(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Iterator[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\); have its rights"):
        rekindle.committed_files(writer.place)


def damage(writer: Writer, name: str, data: bytes | None) -> None:
    path = Path(writer.place) / name
    path.unlink() if data is None else path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "commits/3.json",
            None,
            "commits/3.json: is not there, but what came later is; restore it",
        ),
        ("commits/2.json", b"{}", "commits/2.json: is a record of kind None"),
        ("commits/5.json", b"\xff", "commits/5.json: is no JSON"),
        ("generations/1.json", b"", "generations/1.json: is no JSON"),
        ("outputs/hourly/1-000000001.parquet", None, "is not there, but commit record 2 names it"),
    ],
)
def test_damage_is_bad_input_to_a_reader(
    name: str, data: bytes | None, message: str, writer: Writer
) -> None:
    damage(writer, name, data)
    with pytest.raises(InputError, match=message):
        listed(writer)


def test_a_gap_before_many_commits_is_damage_and_no_end(writer: Writer) -> None:
    for epoch in range(4, 60):
        writer.epoch("hourly", 0, epoch, 1)
    for number in range(10, 50):
        damage(writer, f"commits/{number}.json", None)
    with pytest.raises(InputError, match=r"10\.json: is not there, but what came later is"):
        listed(writer)


def test_a_record_of_a_newer_version_is_refused_with_the_remedy(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(record_format, "VERSIONS", {**record_format.VERSIONS, "commit": 2})
        writer.epoch("hourly", 0, 4, 1)
    with pytest.raises(InputError, match="has version 2 of commit, known is 1; run the version of"):
        listed(writer)


@pytest.mark.parametrize(
    ("partition", "file"),
    [("../0", "x.parquet"), ("hourly/0", "../../x.parquet"), ("hourly/\x1b[2J", "x"), ("h", "x")],
)
def test_a_record_leads_no_reader_out_of_the_store(
    partition: str, file: str, writer: Writer
) -> None:
    writer.commit([partition, 4, 1, file, "0" * 16])
    with pytest.raises(InputError, match="which no driver does") as error:
        listed(writer)
    assert str(error.value).isprintable()


def test_a_record_that_comes_while_others_are_read_is_no_gap(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, late = store_files.at(writer.place), ["commits/6.json", "commits/7.json"]
    for epoch in (4, 5, 6):
        writer.epoch("hourly", 0, epoch, 1)
    read = type(store).read

    def slow(self: Files, name: str) -> bytes:
        if name in late:
            late.remove(name)
            raise FileNotFoundError(2, "not yet", name)
        return read(self, name)

    monkeypatch.setattr(type(store), "read", slow)
    assert [number for number, _ in commit_log.commits(store)] == list(range(1, 9))
    assert late == []
    late.append("commits/7.json")
    assert [number for number, _ in commit_log.commits(store, 3)] == [4, 5, 6, 7, 8]


def test_a_long_log_is_read_as_a_stream(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_files, "RECORDS_MAX", 8)
    for epoch in range(4, 44):
        writer.epoch("hourly", 0, epoch, 1)
    store, names = store_files.at(writer.place), []
    read = type(store).read

    def counted(self: Files, name: str) -> bytes:
        names.append(name)
        return read(self, name)

    monkeypatch.setattr(type(store), "read", counted)
    found = rekindle.committed_files(writer.place, "hourly")
    assert next(found).epoch == 1
    assert len([name for name in names if name.startswith("commits/")]) < 32
    assert sum(1 for _ in found) == 42


def test_the_identity_of_a_store_is_its_own_and_lasts(tmp_path: Path) -> None:
    one, other = Writer(tmp_path / "one"), tmp_path / "other"
    (other / "generations").mkdir(parents=True)
    assert commit_log.identity(store_files.at(other)) == ""
    first = commit_log.identity(store_files.at(one.place))
    Writer(one.place).epoch("hourly", 0, 1, 1)
    assert commit_log.identity(store_files.at(one.place)) == first
    second = Writer(other)
    (other / "generations/1.json").unlink()
    second.store.files.create(
        "generations/1.json",
        record_format.encode("generation", {"generation": 1, "started_at": 2.0}),
    )
    assert commit_log.identity(store_files.at(other)) != first


def test_readers_need_nothing_of_the_runtime() -> None:
    code = (
        "import sys, rekindle\n"
        "rekindle.read, rekindle.committed_files, rekindle.Output\n"
        "heavy = {'rekindle_spark', 'pyspark', 'py4j', 'pandas', 'polars', 'obstore', 'kazoo'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    run = run_code(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[]\n"


def test_the_core_loads_readers_only_when_they_are_used() -> None:
    with pytest.raises(AttributeError, match="module 'rekindle' has no attribute 'reed'"):
        rekindle.reed  # noqa: B018
    code = "import sys, rekindle.model.errors; print('rekindle_store' in sys.modules)"
    run = run_code(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "False\n"


def test_who_follows_the_log_asks_for_one_file_where_there_is_no_news(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = OutputLog(store_files.at(writer.place))
    while log.look() is not None:
        pass
    asked: list[str] = []
    read = LocalFiles.read

    def reading(self: LocalFiles, name: str, *rest: Any) -> bytes:
        asked.append(name)
        return read(self, name, *rest)

    monkeypatch.setattr(LocalFiles, "read", reading)
    for _ in range(20):
        assert log.look() is None
    assert asked == ["commits/6.json"] * 20
    writer.epoch("hourly", 0, 4, 6)
    assert [file.epoch for file in log.look() or []] == [4]


def test_who_follows_the_log_and_stood_still_finds_the_next_record_in_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_segments, "LENGTH", 4)
    driver = Driver(tmp_path / "store")
    driver.run(1)
    log = OutputLog(store_files.at(tmp_path / "store"), "hourly")
    while log.look() is not None:
        pass
    driver.run(*range(2, 8))
    driver.checkpoint()
    driver.seal_segments()
    assert not (tmp_path / "store/commits/2.json").exists()
    found: list[int] = []
    for _ in range(2 * committed_files.LOOKS_TO_SEGMENTS):
        found += [file.epoch for file in log.look() or []]
    assert found == [2, 3, 4, 5, 6, 7]


@pytest.fixture(name="compacted")
def _compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Of a store whose output up to epoch 8 was put together, with one query in mind."""
    monkeypatch.setattr(commit_segments, "LENGTH", 4)
    driver = Driver(tmp_path / "compacted")
    driver.run(*range(1, 11))
    driver.checkpoint()
    driver.checkpoint()
    driver.seal_segments()
    driver.store.settled = 10
    driver.compact()
    return driver


def test_parts_of_files_are_listed_to_who_knows_of_them(compacted: Driver) -> None:
    found = list(rekindle.committed_files(compacted.place, "hourly", version=2))
    assert [(file.epoch, file.rows, file.first_row) for file in found] == [
        *((epoch, 3, 3 * ((epoch - 1) % 4)) for epoch in range(1, 9)),
        (9, 3, None),
        (10, 3, None),
    ]
    assert [Path(file.path).name for file in found] == [
        *["commits-1-4-1-1-0.parquet"] * 4,
        *["commits-5-8-1-2-0.parquet"] * 4,
        "0-000000009.parquet",
        "0-000000010.parquet",
    ]
    assert all(file.bytes == Path(file.path).stat().st_size for file in found)
    assert [file.commit for file in found] == list(range(1, 11))
    for file in found:
        table = pq.read_table(file.path).slice(file.first_row or 0, file.rows)
        assert table.equals(rows_of(file.epoch))
    later = rekindle.committed_files(compacted.place, "hourly", after=6, version=2)
    assert list(later) == found[6:]
    since = rekindle.committed_files(compacted.place, "hourly", since=7, version=2)
    assert list(since) == found[6:]


def test_who_knows_whole_files_alone_is_refused_and_gets_no_rows_twice(compacted: Driver) -> None:
    with pytest.raises(
        InputError, match=r"one file has the rows of many epochs; use rekindle\.read"
    ):
        listed(compacted)
    assert [epoch for _, _, epoch, _ in listed(compacted, "hourly", after=8)] == [9, 10]


@pytest.mark.parametrize("version", [0, 3, "2", None])
def test_a_version_that_is_not_known_is_refused(version: object, writer: Writer) -> None:
    with pytest.raises(InputError, match=r"version: is .*; give 1 or 2"):
        rekindle.committed_files(writer.place, version=version)  # type: ignore[arg-type]


def test_a_listing_that_began_before_goes_on_with_what_was_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_segments, "LENGTH", 4)
    monkeypatch.setattr(committed_files, "RECORDS_MAX", 1)
    driver = Driver(tmp_path)
    driver.run(*range(1, 11))
    driver.checkpoint()
    driver.checkpoint()
    found = rekindle.committed_files(tmp_path, "hourly", version=2)
    begun = [next(found), next(found)]
    driver.seal_segments()
    driver.compact()
    rest = list(found)
    assert [file.epoch for file in [*begun, *rest]] == list(range(1, 11))
    assert [file.first_row for file in rest[:6]] == [6, 9, 0, 3, 6, 9]


def test_a_damaged_index_is_bad_input_to_a_reader(compacted: Driver) -> None:
    path = Path(compacted.place) / "commits/segments/1-4.files"
    path.write_bytes(b"{}")
    with pytest.raises(InputError, match=r"1-4\.files: is a record of kind None"):
        list(rekindle.committed_files(compacted.place, version=2))


def test_an_index_leads_no_reader_out_of_the_store(compacted: Driver) -> None:
    store = store_files.at(compacted.place)
    index = compacted_outputs.read(store, 1, 0)
    assert index is not None
    (stretch,) = index.spans[0]["hourly"]
    assert stretch.file is not None
    outside = replace(stretch, file=replace(stretch.file, name="outputs/../../x.parquet"))
    data = compacted_outputs.encoded(replace(index, spans=[{"hourly": [outside]}]))
    store.put({"commits/segments/1-4.files": data})
    with pytest.raises(InputError, match="which no driver does"):
        list(rekindle.committed_files(compacted.place, version=2))
