"""Files as a source: each row once and in order, whatever files are like and is added between."""

import gzip
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_inputs import (
    SCHEMA,
    ends,
    everything,
    form_of,
    lines,
    on_a_node,
    source,
    values,
    whys,
    write,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.model import record_format
from rekindle.model.errors import DataLossError, InputError, RunError, SourceAwayError
from rekindle_spark.connectors import file_folders, file_listing, file_source
from rekindle_spark.connectors.file_listing import Listing
from rekindle_spark.connectors.file_source import BY_TIME, FileSource
from rekindle_spark.pipeline import unbounded_source
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_store import store_files


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def test_it_keeps_the_contract(inputs: Path) -> None:
    found = source(inputs)
    assert unbounded_source.is_unbounded(found)
    assert isinstance(found, unbounded_source.RecordKeeping)
    step = Pipeline("p").source("orders", found, dead_letters=True)
    assert step.schema == SCHEMA


@pytest.mark.parametrize("suffix", ["parquet", "json", "json.gz", "csv"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_a_repeat_reads_the_same_rows_whatever_is_added_between(
    suffix: str, tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int
) -> None:
    inputs, rng = tmp_path_factory.mktemp("files") / "in", random.Random(seed)
    inputs.mkdir()
    found, count, first = source(inputs, form_of(suffix)), 0, dict[tuple[int, int], list[int]]()
    for number, size in enumerate(sizes):
        # each name is before all that are there
        write(suffix, inputs / f"{99 - number}.{suffix}", range(count, count + size))
        count += size
        low, high = ends(found).get("0", (0, 0))
        assert (low, high) == (0, count)
        begin = rng.randint(0, count)
        span = (begin, rng.randint(begin, count))
        first[span] = values(on_a_node(found).read("0", *span))
    restarted = source(inputs, form_of(suffix))
    assert ends(restarted).get("0", (0, 0)) == (0, count)
    for span, before in first.items():
        assert before == [*range(*span)] == values(restarted.read("0", *span))


@pytest.mark.parametrize("suffix", ["parquet", "json", "json.gz", "csv"])
def test_ranges_of_large_files_are_read_from_their_middle(
    suffix: str, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle_spark.connectors.file_rows.MARK_BYTES", 100)
    write(suffix, inputs / f"a.{suffix}", range(300))
    found = source(inputs, form_of(suffix))
    assert ends(found) == {"0": (0, 300)}
    node = on_a_node(found)
    for begin, end in [(0, 300), (7, 8), (250, 299), (3, 100), (299, 300), (14, 21)]:
        assert values(node.read("0", begin, end)) == [*range(begin, end)]


def test_files_are_read_in_the_order_of_names_or_of_changes(inputs: Path) -> None:
    for name, value, at in (("b", 1, 30), ("a", 2, 20), ("c", 3, 10)):
        (inputs / name).write_text(lines(value))
        os.utime(inputs / name, (at, at))
    assert values(everything(source(inputs))) == [2, 1, 3]
    other = FileSource(inputs, "json", SCHEMA, "at", order=BY_TIME, units={"at": "ms"})
    other.keep_in(store_files.at(inputs.parent / "store"), "other")
    assert values(everything(other)) == [3, 2, 1]


def test_files_are_dealt_out_to_partitions_by_their_rows(inputs: Path) -> None:
    for name, count in (("a", 5), ("b", 1), ("c", 1), ("d", 1)):
        (inputs / name).write_text(lines(*range(count)))
    found = source(inputs, partitions=2)
    assert ends(found) == {"0": (0, 5), "1": (0, 3)}
    fewer = source(inputs, partitions=1)
    (inputs / "e").write_text(lines(7))
    assert ends(fewer) == {"0": (0, 6), "1": (0, 3)}


@pytest.mark.parametrize(
    "name", ["a b.json", "ünï ☃.json", "100%25.json", "x#?&=+.json", "sub/deep er/a.json", "a'\".x"]
)
def test_names_of_any_kind_are_read(name: str, inputs: Path) -> None:
    (inputs / name).parent.mkdir(parents=True, exist_ok=True)
    (inputs / name).write_text(lines(1))
    read = everything(source(inputs, columns=("file_path", "file_row")))
    assert read.rows.select(["file_path", "file_row"]).to_pylist() == [
        {"file_path": f"{inputs}/{name}", "file_row": 1}
    ]


def test_what_is_hidden_empty_or_of_another_pattern_is_no_file(inputs: Path) -> None:
    for folder in (".git", "_temporary", "sub"):
        (inputs / folder).mkdir()
        (inputs / folder / "a.json").write_text(lines(1))
    for name in (".a.json", "_SUCCESS.json", "a.json.tmp"):
        (inputs / name).write_text(lines(2))
    (inputs / "empty.json").touch()
    found = source(inputs, pattern="*.json")
    assert values(everything(found)) == [1]
    # what is still to be written is not there yet
    (inputs / "empty.json").write_text(lines(3))
    assert values(everything(found)) == [1, 3]
    assert ends(source(inputs.parent / "in", pattern="*.json")) == {"0": (0, 2)}


def test_folders_below_count_only_where_they_are_to(inputs: Path) -> None:
    (inputs / "sub").mkdir()
    (inputs / "sub" / "a").write_text(lines(1))
    (inputs / "b").write_text(lines(2))
    assert values(everything(source(inputs, recursive=False))) == [2]


def test_files_that_were_there_before_are_left_out_where_that_is_wanted(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    found = source(inputs, include_existing_files=False)
    assert ends(found) == {}
    (inputs / "b").write_text(lines(2))
    assert values(everything(found)) == [2]
    assert values(everything(source(inputs, include_existing_files=False))) == [2]


def test_a_file_has_to_settle(inputs: Path) -> None:
    found = source(inputs, settle_seconds=5.0)
    assert ends(found) == {}
    (inputs / "a").write_text(lines(1))
    assert ends(found, at=0.0) == {}
    (inputs / "a").write_text(lines(1, 2))
    assert ends(found, at=4.0) == {}
    assert ends(found, at=8.0) == {}
    assert ends(found, at=9.0) == {"0": (0, 2)}


def test_a_folder_that_takes_long_to_list_is_left_alone_for_twice_as_long(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    found = source(inputs)
    found.latest_offsets()
    asking, times = found._asking, [10.0, 10.0, 14.0, 21.9, 22.0, 22.0, 22.0]
    assert asking is not None
    asking.listed_at, asking.clock = None, lambda: times.pop(0)
    asking.offsets()  # from 10 to 14
    (inputs / "b").write_text(lines(2, 3))
    assert asking.offsets()["0"].latest == 1
    assert asking.offsets()["0"].latest == 3
    assert not times


BAD_LINES = [
    ("json", "nonsense", "is no JSON object"),
    ("json", '{"at": 1, "value": "text"}', "Column(/value) changed from number to string"),
    ("json", '{"value": 1}', "has no event time"),
    ("csv", "1000,k", "Expected 3 columns, got 2"),
    ("csv", '1000,"k,1', "has a quote that is not closed in its line"),
    ("csv", "1000,k,1.5", "column 'value': CSV conversion error to int64: invalid value '1.5'"),
    ("csv", ",k,1", "has no event time"),
]


@pytest.mark.parametrize(("form", "line", "why"), BAD_LINES)
def test_a_bad_line_is_rejected_by_its_number_and_all_others_are_rows(
    form: str, line: str, why: str, inputs: Path
) -> None:
    good = ["1000,k,1", "2000,k,2"] if form == "csv" else lines(1, 2).splitlines()
    header = ["at,key,value"] if form == "csv" else []
    (inputs / "a").write_text("\n".join([*header, good[0], "", line, good[1]]))
    read = everything(source(inputs, form))
    assert values(read) == [1, 2]
    [(path, row, told)] = whys(read, inputs)
    assert (path, row) == ("a", 3)
    assert why in told
    with_line = read.rejects["file_line"].to_pylist()
    assert with_line == [None if "event time" in why else line.encode()]


def unreadable() -> dict[str, Callable[[Path], object]]:
    """What makes files that cannot be read as Parquet with the columns that are declared."""
    good = pa.table({"at": pa.array([1], pa.timestamp("us")), "key": ["k"], "value": [1]})

    def parquet(table: pa.Table) -> Callable[[Path], object]:
        return lambda path: pq.write_table(table, path)

    def cut(path: Path) -> None:
        pq.write_table(good, path)
        path.write_bytes(path.read_bytes()[:-20])

    texts = good.set_column(2, "value", pa.array(["1"]))
    return {
        "has no column 'value'": parquet(good.drop_columns(["value"])),
        "has string in column 'value', and int64 is declared": parquet(texts),
        "cannot be read as Parquet": lambda path: path.write_text("no Parquet"),
        "cannot be read as Parquet (": cut,
    }


@pytest.mark.parametrize(
    "content", [b"at,key,value\r1000,k,1\r", b"at,key," + b"v" * 200_000 + b"\n1000,k,1\n"]
)
def test_a_csv_whose_first_line_is_none_is_rejected_as_a_whole(
    content: bytes, inputs: Path
) -> None:
    (inputs / "a").write_bytes(content)
    (inputs / "b").write_text("at,key,value\n2000,k,2\n")
    read = everything(source(inputs, "csv"))
    assert values(read) == [2]
    [(path, _, why)] = whys(read, inputs)
    assert path == "a"
    assert why.startswith("cannot be read as CSV (")


@pytest.mark.parametrize("number", range(4))
def test_a_file_that_is_no_such_parquet_is_rejected_as_a_whole(number: int, inputs: Path) -> None:
    why, make = [*unreadable().items()][number]
    write("parquet", inputs / "a", [1])
    make(inputs / "b")
    write("parquet", inputs / "c", [2])
    read = everything(source(inputs, "parquet"))
    assert values(read) == [1, 2]
    [(path, row, told)] = whys(read, inputs)
    assert (path, row) == ("b", None)
    assert told.startswith(why)


UNREADABLE_TEXTS = [
    ("csv", "a.csv", b"at,key\n1,k\n", "has no column 'value' in its first line"),
    ("csv", "a.csv", b"at,key,value,key\n", "has two columns 'key' in its first line"),
    ("csv", "a.csv", b"\xff\xfe,a\n", "cannot be read as CSV"),
    ("json", "a.gz", gzip.compress(b"{}\n" * 1_000, mtime=0)[:-9], "cannot be read as JSON lines"),
    ("json", "a.gz", b"no gzip", "cannot be read as JSON lines (Not a gzipped file"),
    ("json", "a.json.zst", b"x", "is packed in a way that is not read; of packed files those of"),
]


@pytest.mark.parametrize(
    ("form", "name", "content", "why"), UNREADABLE_TEXTS, ids=range(len(UNREADABLE_TEXTS))
)
def test_a_text_that_cannot_be_read_is_rejected_as_a_whole(
    form: str, name: str, content: bytes, why: str, inputs: Path
) -> None:
    (inputs / name).write_bytes(content)
    read = everything(source(inputs, form))
    [(path, row, told)] = whys(read, inputs)
    assert (path, row, read.rows.num_rows) == (name, None, 0)
    assert told.startswith(why)


def test_a_line_that_has_no_end_is_refused_before_it_is_in_memory(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekindle_spark.connectors.file_rows.LINE_BYTES_MAX", 1 << 20)
    (inputs / "a").write_bytes(lines(1).encode() + b"x" * (3 << 20))
    [(_, _, why)] = whys(everything(source(inputs)), inputs)
    assert why == "row 2 has more than 1,048,576 bytes"


@pytest.mark.parametrize("old", [False, True])
def test_columns_of_parquet_are_taken_where_no_value_is_lost(inputs: Path, old: bool) -> None:
    nanoseconds = pa.array([1_000, 1_001, 3_000], pa.timestamp("ns"))
    columns = {
        "more": [1.5, 2.5, 3.5],
        "value": pa.array([1, 2, 3], pa.int32()),
        "key": pa.array(["a", None, "a"]).dictionary_encode(),
        "at": nanoseconds,
    }
    pq.write_table(
        pa.table(columns), inputs / "a", version="2.6", use_deprecated_int96_timestamps=old
    )
    read = everything(source(inputs, "parquet"))
    assert read.rows.drop_columns(["at"]).to_pylist() == [
        {"key": "a", "value": 1},
        {"key": "a", "value": 3},
    ]
    [(path, row, why)] = whys(read, inputs)
    assert (path, row) == ("a", 2)
    assert ("column 'at' has nanoseconds, as INT96" if old else "would lose data") in why


def test_nanoseconds_of_96_bits_inside_of_others_reject_their_rows(inputs: Path) -> None:
    nanoseconds = pa.array([1_000, 1_001, 3_000], pa.timestamp("ns"))
    columns = {
        "at": nanoseconds.cast(pa.timestamp("us"), safe=False),
        "pair": pa.StructArray.from_arrays([nanoseconds], ["seen.first"]),
    }
    pq.write_table(pa.table(columns), inputs / "a", use_deprecated_int96_timestamps=True)
    pair = pa.struct([("seen.first", pa.timestamp("us"))])
    schema = pa.schema([("at", pa.timestamp("us")), ("pair", pair)])
    read = everything(source(inputs, "parquet", schema=schema))
    assert read.rows["at"].cast(pa.int64()).to_pylist() == [1, 3]
    assert whys(read, inputs) == [("a", 2, "column 'pair' has nanoseconds, as INT96")]


def test_the_columns_of_parquet_are_those_of_its_first_file(inputs: Path) -> None:
    with pytest.raises(InputError, match="have none that says which columns there are; give the"):
        FileSource(inputs, "parquet", event_time="at")
    times = pa.array([1], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"at": times, "n": pa.array([1], pa.int8())}), inputs / "a")
    found = FileSource(inputs, "parquet", event_time="at")
    assert found.schema == pa.schema([("at", pa.timestamp("us")), ("n", pa.int8())])
    (inputs / "a").write_text("no")
    with pytest.raises(InputError, match="in/a: cannot be read as Parquet"):
        FileSource(inputs, "parquet", event_time="at")


def test_a_file_that_is_gone_or_changed_is_no_more_read(inputs: Path) -> None:
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        (inputs / name).write_text(lines(value))
    found = source(inputs)
    assert ends(found) == {"0": (0, 3)}
    (inputs / "a").unlink()
    (inputs / "b").write_text(lines(22))
    with pytest.raises(DataLossError, match="in/a: is not there any more, and its rows are logged"):
        on_a_node(found).read("0", 0, 1)
    with pytest.raises(DataLossError, match="in/b: is not what was listed any more"):
        on_a_node(found).read("0", 1, 2)
    assert values(on_a_node(found).read("0", 2, 3)) == [3]


def test_what_is_gone_before_it_is_read_is_told_once_all_before_it_was_read(inputs: Path) -> None:
    for name, value in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        (inputs / name).write_text(lines(value))
    found = source(inputs)
    assert ends(found) == {"0": (0, 4)}
    (inputs / "b").unlink()
    (inputs / "d").write_text(lines(44))
    assert ends(found, at=0.0) == {"0": (0, 1)}
    assert ends(found, at=20.0) == {"0": (0, 1)}
    found.commit({"0": 1})
    assert ends(found, at=21.0) == {"0": (2, 3)}
    assert found.latest_offsets()["0"].why == "file b is not there any more"
    found.commit({"0": 3})
    assert ends(found, at=21.0) == {"0": (0, 3)}
    found.commit({"0": 3})
    assert ends(found, at=37.0) == {"0": (4, 4)}
    assert found.latest_offsets()["0"].why == "file d was changed"
    # who has read files may remove them
    found.commit({"0": 4})
    (inputs / "c").unlink()
    assert ends(found, at=60.0) == {"0": (0, 4)}


def test_a_file_that_is_missing_for_a_while_is_not_gone(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    (inputs / "b").write_text(lines(2))
    found = source(inputs)
    assert ends(found, at=0.0) == {"0": (0, 2)}
    (inputs / "a").rename(inputs.parent / "a")
    assert ends(found, at=1.0) == {"0": (0, 0)}
    (inputs.parent / "a").rename(inputs / "a")
    assert ends(found, at=10.0) == {"0": (0, 2)}
    (inputs / "a").unlink()
    assert ends(found, at=20.0) == {"0": (0, 0)}
    assert ends(found, at=36.0) == {"0": (1, 2)}


def test_a_folder_that_is_missing_or_empty_is_away(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    found = source(inputs)
    assert ends(found) == {"0": (0, 1)}
    inputs.rename(inputs.parent / "elsewhere")
    with pytest.raises(SourceAwayError, match="is not there"):
        ends(found)
    with pytest.raises(SourceAwayError, match="has nothing in it"):
        on_a_node(found).read("0", 0, 1)
    inputs.mkdir()  # as where something is mounted
    assert ends(found, at=0.0) == ends(found, at=14.0) == {"0": (0, 0)}
    with pytest.raises(SourceAwayError, match="is empty, and listed files are still to be read"):
        ends(found, at=15.0)
    with pytest.raises(SourceAwayError, match="has nothing in it"):
        on_a_node(found).read("0", 0, 1)
    inputs.rmdir()
    (inputs.parent / "elsewhere").rename(inputs)
    assert values(everything(found)) == [1]


def test_a_folder_that_was_emptied_once_its_files_were_read_is_not_away_for_long(
    inputs: Path,
) -> None:
    (inputs / "a").write_text(lines(1))
    assert ends(source(inputs)) == {"0": (0, 1)}
    restarted = source(inputs)
    assert ends(restarted) == {"0": (0, 1)}
    (inputs / "a").unlink()
    assert ends(restarted, at=0.0) == {"0": (0, 0)}
    with pytest.raises(SourceAwayError):
        ends(restarted, at=15.0)
    restarted.commit({"0": 1})
    assert ends(restarted, at=16.0) == {"0": (0, 1)}
    (inputs / "b").write_text(lines(2))
    assert ends(restarted, at=17.0) == {"0": (0, 2)}


def test_files_that_come_back_late_after_an_absence_are_not_gone(inputs: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        (inputs / name).write_text(lines(value))
    found = source(inputs)
    assert ends(found, at=0.0) == {"0": (0, 2)}
    (inputs / "a").rename(inputs.parent / "a")
    assert ends(found, at=1.0) == {"0": (0, 0)}
    inputs.rename(inputs.parent / "elsewhere")
    with pytest.raises(SourceAwayError):
        ends(found, at=2.0)
    (inputs.parent / "elsewhere").rename(inputs)
    assert ends(found, at=30.0) == {"0": (0, 0)}
    (inputs.parent / "a").rename(inputs / "a")
    assert ends(found, at=31.0) == {"0": (0, 2)}


def test_two_drivers_go_by_one_list(inputs: Path) -> None:
    one, other = source(inputs), source(inputs)
    assert ends(one) == ends(other) == {}
    (inputs / "b").write_text(lines(2))
    assert ends(one) == {"0": (0, 1)}
    (inputs / "a").write_text(lines(1))
    assert ends(other) == {"0": (0, 2)}
    assert values(everything(one)) == values(everything(other)) == [2, 1]


def test_a_driver_that_was_slower_takes_what_stands_there(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = source(inputs), source(inputs)
    assert ends(one) == ends(other) == {}
    (inputs / "a").write_text(lines(1))
    real = file_source._Asking._counted

    def overtaken(asking: Any, files: Any) -> Any:
        found = real(asking, files)
        monkeypatch.setattr(file_source._Asking, "_counted", real)
        (inputs / "0").write_text(lines(0))
        assert ends(other) == {"0": (0, 2)}
        return found

    monkeypatch.setattr(file_source._Asking, "_counted", overtaken)
    assert ends(one) == {"0": (0, 2)}
    assert values(everything(one)) == values(everything(other)) == [0, 1]


def test_the_list_does_not_grow_with_what_was_read(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 5)
    found, node = source(inputs), None
    for number in range(40):
        (inputs / f"{number:03}").write_text(lines(number))
        end = ends(found)["0"][1]
        assert end == number + 1
        node = node or on_a_node(found)
        found.commit({"0": end - 3})
        if number > 3:
            (inputs / f"{number - 4:03}").unlink()
    records = [*(inputs.parent / "store" / "listings" / "orders").iterdir()]
    assert len(records) < 20
    restarted = source(inputs)
    low, high = ends(restarted)["0"]
    assert 20 < low < 39
    assert high == 40
    assert node is not None
    assert values(node.read("0", 37, 40)) == values(restarted.read("0", 37, 40)) == [37, 38, 39]
    with pytest.raises(RunError, match="does not say which files have offsets 0 to 1 of 0"):
        restarted.read("0", 0, 1)


def test_a_name_that_was_read_is_not_read_again_while_it_is_there(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    (inputs / "stays").write_text(lines(1))
    found = source(inputs)
    for number in range(6):
        (inputs / f"{number}").write_text(lines(number))
        found.commit(dict.fromkeys("0", ends(found)["0"][1]))
    (inputs / "stays").write_text(lines(1, 2, 3))
    assert ends(source(inputs))["0"][1] == 7


def look_on(found: FileSource, numbers: Sequence[int], at: float) -> None:
    """List the folder once for each new file, with all read and committed, a minute apart."""
    for number in numbers:
        (Path(found.path) / f"new-{number}").write_text(lines(number))
        found.commit(dict.fromkeys("0", ends(found, 1e6 + at + 60.0 * number)["0"][1]))


def test_names_stay_known_while_what_is_mounted_below_the_folder_is_away(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    (inputs / "below").mkdir()
    (inputs / "below" / "old").write_text(lines(100))
    found = source(inputs)
    assert ends(found, at=0.0) == {"0": (0, 1)}
    (inputs / "below").rename(inputs.parent / "away")
    look_on(found, range(6), at=1.0)
    restarted = source(inputs)
    look_on(restarted, range(6, 11), at=1.0)
    assert restarted._asking is not None
    restarted._asking.log.whole_bytes = 0
    look_on(restarted, [11], at=1.0)
    (inputs.parent / "away").rename(inputs / "below")
    assert ends(restarted, at=10_000.0)["0"][1] == 13
    assert ends(source(inputs))["0"][1] == 13


def test_a_name_is_forgotten_once_its_file_was_gone_for_days(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    monkeypatch.setattr(file_source, "ABSENT_SECONDS_MAX", 600.0)
    (inputs / "old").write_text(lines(100))
    found = source(inputs)
    ends(found, at=0.0)
    (inputs / "old").unlink()
    look_on(found, range(8), at=1.0)
    assert found._asking is not None
    found._asking.log.whole_bytes = 0
    look_on(found, [8], at=1.0)
    assert source(inputs)._records().catch_up().absent == {"old": 480.0}
    restarted = source(inputs)  # goes on with the seconds that were logged
    look_on(restarted, range(9, 13), at=1.0)
    assert restarted._asking is not None
    restarted._asking.log.whole_bytes = 0
    look_on(restarted, [13], at=1.0)
    assert "old" not in source(inputs)._records().catch_up().seen


def test_time_does_not_count_while_nothing_is_in_the_folder(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "RECORDS_MIN", 1)
    monkeypatch.setattr(file_source, "ABSENT_SECONDS_MAX", 600.0)
    found = source(inputs)
    look_on(found, range(4), at=0.0)
    inputs.rename(inputs.parent / "elsewhere")
    inputs.mkdir()  # as where something is mounted
    for at in range(1_000, 3_000, 60):
        found.commit({"0": ends(found, at=1e6 + at)["0"][1]})
    look_on(found, range(4, 10), at=3_000.0)  # files that are below the mounted folder
    for one in (inputs.parent / "elsewhere").iterdir():
        one.rename(inputs / one.name)
    assert ends(found, at=4_000.0)["0"][1] == 10
    assert ends(source(inputs))["0"][1] == 10


def test_a_record_that_lacks_is_noticed(inputs: Path) -> None:
    found = source(inputs)
    for number in range(3):
        (inputs / f"{number}").write_text(lines(number))
        ends(found)
    (inputs.parent / "store" / "listings" / "orders" / "2.json").unlink()
    with pytest.raises(RunError, match=r"2\.json: is not there, but what came later is"):
        ends(source(inputs))


def test_many_files_are_listed_in_steps(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "COUNTING_SECONDS", 0.0)
    for number in range(100):
        (inputs / f"{number:03}").write_text(lines(number))
    found = source(inputs, list_seconds=3_600)
    assert found.latest_offsets()["0"].latest == 32
    assert found.latest_offsets()["0"].latest == 64
    for _ in range(2):
        found.latest_offsets()
    assert values(on_a_node(found).read("0", 0, 100)) == [*range(100)]


def test_the_first_rows_are_read_without_a_store(inputs: Path) -> None:
    found = FileSource(inputs, "json", SCHEMA, "at", units={"at": "ms"})
    assert found.first(5).rows.num_rows == 0
    assert found.latest_offsets() == {}
    (inputs / "a").write_text(lines(*range(9)))
    assert values(found.first(5)) == [0, 1, 2, 3, 4]
    (inputs / "a").write_text("nonsense\n" + lines(1, 2))
    assert values(found.first(2)) == [1]
    assert whys(found.first(2), inputs) == [("a", 1, "is no JSON object")]


BAD_ARGUMENTS = [
    ({"format": "orc"}, "format: is 'orc'; choose one of: parquet, json, csv"),
    ({"order": "size"}, "order: is 'size'; choose one of: name, modified"),
    ({"schema": None}, "are json, which has no types; give the source a schema"),
    ({"event_time": "when"}, "event_time: is 'when'; name one of: at, key, value"),
    ({"partitions": 0}, "partitions"),
    ({"pattern": "a/*.json"}, "pattern: is 'a/.*.json'; give one of names alone"),
    ({"settle_seconds": -1}, "settle_seconds"),
    ({"columns": ("nothing",)}, "columns: name 'nothing'; choose of: file_path, file_row"),
    ({"delimiter": ";"}, "delimiter: is for csv alone; leave it out"),
    ({"format": "csv", "delimiter": ";;"}, "delimiter: is ';;'; give one character"),
    ({"path": "hdfs://name:1/x"}, "is on HDFS, of which files are not read as a source"),
    ({"path": "ftp://x/y"}, "is no place that is known; name a folder that all nodes share"),
    ({"path": ""}, "path: is ''; name a folder"),
    ({"units": {"key": "ms"}}, "units of 'key': is of a column that is no timestamp"),
    ({"schema": SCHEMA.append(pa.field("file_row", pa.int64()))}, "is 'file_row', as a column"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ARGUMENTS)
def test_arguments_that_do_not_fit_are_refused(
    change: dict[str, Any], message: str, inputs: Path
) -> None:
    good = {"path": inputs, "format": "json", "schema": SCHEMA, "event_time": "at"}
    with pytest.raises(InputError, match=message):
        FileSource(**{**good, **change})


def test_a_folder_that_is_not_there_is_refused_when_a_pipeline_is_built(inputs: Path) -> None:
    for path, what in ((inputs / "nowhere", "is not there"), (inputs / "file", "is no folder")):
        (inputs / "file").touch()
        found = FileSource(path, "json", SCHEMA, "at", units={"at": "ms"})
        with pytest.raises(InputError, match=f"step orders: files at .*: {what}"):
            Pipeline("p").source("orders", found)


def test_a_record_of_this_version_is_read_as_it_was_meant() -> None:
    golden = Path(__file__).parents[3] / "golden" / "listing.json"
    record = record_format.decode("listing", golden.read_bytes(), "golden")
    found = Listing()
    found.take_in(7, record)
    written = [one.record() for one in found.files["0"]]
    assert json.loads(json.dumps(written)) == record["files"]
    assert found.seen == {"days/1.csv", "days/übermorgen 2.csv", "days/3.csv"}
    assert (found.number, found.begins, found.end("0")) == (7, {"0": 40}, 101)
    assert found.covering("0", 39, 50) is None
    assert [one.name for one in found.covering("0", 99, 101) or ()] == [
        "days/übermorgen 2.csv",
        "days/3.csv",
    ]
    assert found.files["0"][0].marks == ((0, 13), (60, 4711))


def test_rows_of_a_damaged_row_group_are_rejected_and_others_are_rows(inputs: Path) -> None:
    write("parquet", inputs / "a", range(14))
    first = pq.ParquetFile(inputs / "a").metadata.row_group(0).column(2)
    data = bytearray((inputs / "a").read_bytes())
    begin = first.dictionary_page_offset or first.data_page_offset
    data[begin : begin + first.total_compressed_size] = b"\xff" * first.total_compressed_size
    (inputs / "a").write_bytes(data)
    read = everything(source(inputs, "parquet"))
    assert values(read) == [*range(7, 14)]
    rejected = whys(read, inputs)
    assert [(path, row) for path, row, _ in rejected] == [("a", row) for row in range(1, 8)]
    assert {why[:27] for *_, why in rejected} == {"row group 0 cannot be read "}
    assert read.offsets == [*range(7)]


def test_an_absence_in_the_middle_of_parquet_is_no_damage(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_folders, "BUFFER_BYTES", 16)
    write("parquet", inputs / "a", range(14))
    found = source(inputs, "parquet")
    assert ends(found) == {"0": (0, 14)}
    node = on_a_node(found)
    assert values(node.read("0", 0, 7)) == [*range(7)]

    def away(_: object) -> None:
        raise SourceAwayError(where="file a", what="cannot be read now", remedy="wait")

    with monkeypatch.context() as patch:
        patch.setattr(file_folders._LocalFile, "_check", away)
        with pytest.raises(SourceAwayError):
            node.read("0", 7, 14)
    assert values(node.read("0", 7, 14)) == [*range(7, 14)]
