"""Replay sources: one order of rows that never changes, from any offset, for ever if wanted."""

import math
import os
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle_spark.pipeline.replay import Replay

SECOND = 1_000_000
TIMES = [0, 1, 1, 2, 5, 5, 5, 9, 10, 11]
LAP_SECONDS = 20


def write(directory: Path, times: list[int] = TIMES, group: int = 3) -> str:
    path = directory / "rows.parquet"
    table = pa.table(
        {
            "at": pa.array([time * SECOND for time in times], pa.timestamp("us")),
            "number": pa.array(range(len(times)), pa.int32()),
            "name": pa.array([f"row-{i}" for i in range(len(times))]),
        }
    )
    pq.write_table(table, path, row_group_size=group)
    return str(path)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("replay"))


def numbers(table: pa.Table) -> list[int]:
    values: list[int] = table["number"].to_pylist()
    return values


@given(begin=st.integers(0, 14), size=st.integers(0, 14))
def test_any_stretch_of_offsets_gives_just_those_rows(file: str, begin: int, size: int) -> None:
    rows = Replay(file, "at").read(begin, begin + size)
    assert numbers(rows) == list(range(len(TIMES)))[begin : begin + size]
    assert rows.schema == Replay(file, "at").schema


@given(cuts=st.lists(st.integers(0, 45), max_size=6))
def test_stretches_in_a_row_give_what_one_read_gives(file: str, cuts: list[int]) -> None:
    replay = Replay(file, "at", repeat_every_seconds=LAP_SECONDS)
    ends = [0, *sorted(cuts), 45]
    pieces = [replay.read(low, high) for low, high in pairwise(ends)]
    assert pa.concat_tables(pieces).equals(replay.read(0, 45))


@given(offset=st.integers(0, 45))
def test_a_lap_repeats_the_rows_later(file: str, offset: int) -> None:
    replay = Replay(file, "at", repeat_every_seconds=LAP_SECONDS)
    lap, row = divmod(offset, len(TIMES))
    (found,) = replay.read(offset, offset + 1).to_pylist()
    assert found["number"] == row
    assert replay.event_time_at(offset) == (TIMES[row] + lap * LAP_SECONDS) * SECOND
    assert replay.read(offset, offset + 1)["at"].cast(pa.int64()).to_pylist() == [
        replay.event_time_at(offset)
    ]


@given(seconds=st.integers(-5, 70))
def test_rows_up_to_a_time_are_those_that_are_not_later(file: str, seconds: int) -> None:
    replay = Replay(file, "at", repeat_every_seconds=LAP_SECONDS)
    count = replay.rows_at(seconds * SECOND)
    assert count == 0 or replay.event_time_at(count - 1) <= seconds * SECOND
    assert replay.event_time_at(count) > seconds * SECOND


def test_beyond_the_end_there_are_no_rows_and_the_last_time_stands(file: str) -> None:
    replay = Replay(file, "at")
    assert numbers(replay.read(8, 100)) == [8, 9]
    assert replay.read(50, 60).num_rows == 0
    assert replay.event_time_at(1000) == 11 * SECOND
    assert replay.rows_at(10**15) == len(TIMES)


def test_columns_are_narrowed_and_the_event_time_stays(file: str) -> None:
    replay = Replay(file, "at", columns=("name",))
    assert replay.schema.names == ["name", "at"]
    assert replay.read(0, 2).column_names == ["name", "at"]


def test_a_pickled_replay_reads_the_same_and_carries_no_open_file(file: str) -> None:
    replay = Replay(file, "at", columns=("number",), repeat_every_seconds=LAP_SECONDS)
    replay.read(0, 3)
    copy = pickle.loads(pickle.dumps(replay))
    assert copy.read(7, 23).equals(replay.read(7, 23))
    assert copy.schema == replay.schema


def test_a_column_that_is_not_there_is_named_with_those_that_are(file: str) -> None:
    with pytest.raises(
        InputError, match=r"columns: there is no column 'speed'; name one of: at, n"
    ):
        Replay(file, "at", columns=("speed",))
    with pytest.raises(InputError, match="event_time: there is no column 'when'"):
        Replay(file, "when")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({"path": path}, f"Replay: path: is {path!r}; name") for path in (None, 5, "", math.nan)),
        ({"path": "."}, "source file .: is a folder; name one Parquet file"),
        ({"path": "x" * 5_000}, "is not there; begin the path at Path(__file__).parent"),
        ({"path": "https://a.org/x.parquet"}, "is an address; copy it to where all nodes have it"),
        ({"path": "/" + "x" * 5_000}, "is not there; check the path, or make the file first"),
        ({"event_time": None}, "event_time: there is no column None; name one of: at"),
        ({"columns": 5}, "columns: is 5, not a list; give a list of columns"),
        ({"columns": "name"}, "columns: is 'name', not a list; write ['name']"),
        ({"columns": ["name", "name"]}, "columns: has more than one column 'name'"),
        *(
            ({"repeat_every_seconds": wrong}, f"repeat_every_seconds: is {wrong!r}; give a number")
            for wrong in (-20, 0, math.nan, math.inf, True, "20")
        ),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_read(
    file: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        Replay(**{"path": file, "event_time": "at", **change})
    assert message in str(refused.value)


def test_laps_that_overlap_are_refused_with_the_step_and_the_length_of_the_file(file: str) -> None:
    Replay(file, "at", repeat_every_seconds=11).check("rows")
    with pytest.raises(
        InputError,
        match=r"step rows: source file .*: repeat_every_seconds: is 10.9, less than the 11.0 s of",
    ):
        Replay(file, "at", repeat_every_seconds=10.9).check("rows")


def test_a_file_without_rows_is_refused_as_empty_and_not_as_unsorted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty; write at least one row into it"):
        Replay(write(tmp_path, []), "at").check("rows")


def test_rows_out_of_order_are_refused_with_the_step(tmp_path: Path) -> None:
    replay = Replay(write(tmp_path, [1, 3, 2]), "at")
    with pytest.raises(
        InputError,
        match="not sorted by 'at': row 2 is earlier than the row before; ",
    ):
        replay.check("rows")


def test_a_column_of_dictionary_numbers_is_read_as_its_values(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    times = pa.array([1, 2, 3], pa.timestamp("us"))
    pq.write_table(pa.table({"at": times, "name": names}), path)
    replay = Replay(str(path), "at")
    assert replay.schema.field("name").type == pa.string()
    assert replay.read(1, 3)["name"].to_pylist() == ["b", "a"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("pipe", "is a named pipe; name one"), ("loop", "is a link that leads back to itself; name")],
)
def test_what_is_there_and_is_no_file_is_called_by_its_kind(
    tmp_path: Path, kind: str, said: str
) -> None:
    path = tmp_path / "requests.parquet"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)
    with pytest.raises(InputError, match=said):
        Replay(str(path), "at")
