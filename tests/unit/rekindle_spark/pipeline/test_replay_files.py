"""A source reads the very file that the run began with, or says which one is not it."""

import os
import pickle
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError
from rekindle_spark.operators import column_types
from rekindle_spark.pipeline.replay import Replay

ROWS = 1000


def times(unit: str = "us", zone: str | None = None, count: int = ROWS) -> pa.Array:
    begin = datetime(2024, 1, 1)
    moments = [begin + timedelta(seconds=second) for second in range(count)]
    return pa.array(moments, pa.timestamp("us")).cast(pa.timestamp(unit, zone))


def table(values: list[int] | None = None) -> pa.Table:
    found = list(range(ROWS)) if values is None else values
    return pa.table({"t": times(count=len(found)), "v": pa.array(found, pa.int64())})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "rows.parquet"
    pq.write_table(table(), file, row_group_size=100)
    return file


def replace(path: Path, other: pa.Table) -> None:
    pq.write_table(other, path.with_suffix(".new"), row_group_size=100)
    os.replace(path.with_suffix(".new"), path)


def reread(shipped: bytes) -> list[int]:
    values: list[int] = pickle.loads(shipped).read(3, 5)["v"].to_pylist()
    return values


OTHERS: dict[str, Callable[[Path], None]] = {
    "other rows": lambda path: replace(path, table(list(range(1000, 1000 + ROWS)))),
    "rows in another order": lambda path: replace(path, table([1, 0, *range(2, ROWS)])),
    "fewer rows": lambda path: replace(path, table(list(range(ROWS // 2)))),
    "text for numbers": lambda path: replace(
        path, table().set_column(1, "v", pa.array(map(str, range(ROWS))))
    ),
    "no Parquet": lambda path: path.write_bytes(b"PAR1"),
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one byte": lambda path: path.write_bytes(
        path.read_bytes().replace(b"parquet-cpp", b"Parquet-cpp")
    ),
}


@pytest.mark.parametrize("change", OTHERS)
def test_a_host_that_starts_later_refuses_another_file(path: Path, change: str) -> None:
    replay = Replay(path, "t")
    replay.check("rows")
    shipped = pickle.dumps(replay)
    assert reread(shipped) == [3, 4]
    OTHERS[change](path)
    with pytest.raises(InputError, match=f"source file {path}"):
        reread(shipped)


def test_a_file_that_is_changed_in_its_place_is_noticed_by_who_reads_it(path: Path) -> None:
    replay = pickle.loads(pickle.dumps(Replay(path, "t")))
    assert replay.read(0, 2)["v"].to_pylist() == [0, 1]
    content = bytearray(path.read_bytes())
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="is not the one that the run began with"):
        replay.read(500, 502)


def test_a_copy_of_the_file_will_do(path: Path) -> None:
    replay = pickle.loads(pickle.dumps(Replay(path, "t")))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    assert replay.read(3, 5)["v"].to_pylist() == [3, 4]


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_event_times_are_given_as_microseconds(tmp_path: Path, unit: str, zone: str | None) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"t": times(unit, zone)}), file)
    replay = Replay(file, "t", repeat_every_seconds=ROWS)
    replay.check("rows")
    assert replay.schema == pa.schema([("t", pa.timestamp("us"))])
    assert replay.read(0, ROWS)["t"].combine_chunks().equals(times())
    assert replay.event_time_at(ROWS) == replay.event_time_at(0) + ROWS * 1_000_000


def test_old_times_of_96_bits_have_all_years(tmp_path: Path) -> None:
    file = tmp_path / "old.parquet"
    moments = [datetime(1, 1, 1), datetime(1500, 2, 3, 4, 5, 6, 7), datetime(9999, 12, 31)]
    column = pa.array(moments, pa.timestamp("us"))
    pq.write_table(
        pa.table({"t": column, "other": column}), file, use_deprecated_int96_timestamps=True
    )
    replay = Replay(file, "t")
    replay.check("rows")
    assert replay.read(0, 3).to_pydict() == {"t": moments, "other": moments}


@pytest.mark.parametrize("old", [False, True])
def test_event_times_that_are_no_whole_microseconds_are_refused(tmp_path: Path, old: bool) -> None:
    file = tmp_path / "fine.parquet"
    column = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    pq.write_table(pa.table({"t": column}), file, use_deprecated_int96_timestamps=old)
    with pytest.raises(InputError, match=r"(?s)fine\.parquet.*'t'"):
        Replay(file, "t").check("rows")


def test_nanoseconds_of_96_bits_inside_of_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.parquet"
    fine = pa.array([[{"at": None}, {"at": 1_001}]], pa.list_(pa.struct([("at", pa.int64())])))
    deep = fine.cast(pa.list_(pa.struct([("at", pa.timestamp("ns"))])))
    table = pa.table({"t": times()[:1], "visits": deep})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    with pytest.raises(InputError, match="has times with nanoseconds in 'visits', as INT96"):
        Replay(file, "t").check("rows")


def test_a_flipped_bit_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    file = tmp_path / "flipped.parquet"
    table = pa.table({"t": times(), "n": range(ROWS)})
    pq.write_table(table, file, compression="none", use_dictionary=["t"], write_page_checksum=True)
    content = bytearray(file.read_bytes())
    content[content.index((ROWS - 2).to_bytes(8, "little"))] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"row group 0: cannot be read \(.*checksum"):
        Replay(file, "t").read(0, ROWS)


def test_damage_in_times_of_96_bits_is_told_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "flipped.parquet"
    table = pa.table({"t": times(), "sent": times()})
    pq.write_table(
        table,
        file,
        compression="none",
        use_dictionary=False,
        use_deprecated_int96_timestamps=True,
        write_page_checksum=True,
    )
    column = pq.ParquetFile(file).metadata.row_group(0).column(1)
    content = bytearray(file.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    file.write_bytes(content)
    replay = Replay(file, "t")
    with pytest.raises(InputError, match=r"row group 0: cannot be read \(.*checksum"):
        replay.check("rows")
    with pytest.raises(InputError, match=r"first rows: cannot be read \(.*checksum"):
        replay.first(2)


def test_a_column_with_a_point_in_its_name_is_looked_at_as_any_other(tmp_path: Path) -> None:
    file = tmp_path / "points.parquet"
    fine = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    table = pa.table({"t": times()[:1], "sent.at": fine})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    replay = Replay(file, "t")
    assert replay.row_group_bytes()[0] > Replay(file, "t", columns=("t",)).row_group_bytes()[0]
    with pytest.raises(InputError, match=r"has times with nanoseconds in 'sent\.at'"):
        replay.check("rows")


def test_which_leaves_a_replay_reads_is_found_once_for_all_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "groups.parquet"
    pairs = pa.array([{"a": number, "b": [number] * number} for number in range(20)])
    columns = {"t": times(count=20), "left out": pa.array(range(20)), "pair": pairs}
    pq.write_table(pa.table(columns), file, row_group_size=1, use_dictionary=False)
    asked: list[str] = []

    def counted(name: str, path: str) -> bool:
        asked.append(path)
        return is_of(name, path)

    is_of = column_types.is_of
    monkeypatch.setattr(column_types, "is_of", counted)
    replay = Replay(file, "t", columns=("pair",))
    found = replay.row_group_bytes()
    groups = [pq.ParquetFile(file).metadata.row_group(group) for group in range(20)]
    assert found == [
        sum(group.column(leaf).total_uncompressed_size for leaf in (0, 2, 3)) for group in groups
    ]
    assert len(set(found)) > 1, "row groups have the same size, so that places are not looked at"
    assert replay.row_group_bytes() == pickle.loads(pickle.dumps(replay)).row_group_bytes()
    assert len(asked) <= 2 * 4 * 2, "each of four leaves for both columns, in both processes"


@pytest.mark.parametrize("moment", [-(2**63) + 1, -(2**61), 2**62 + 1, 2**63 - 1])
def test_event_times_that_windows_cannot_reckon_with_are_refused(
    tmp_path: Path, moment: int
) -> None:
    file = tmp_path / "far.parquet"
    pq.write_table(pa.table({"t": pa.array([moment], pa.timestamp("us"))}), file)
    with pytest.raises(InputError, match=r"far\.parquet: has event times in 't'"):
        Replay(file, "t").check("rows")
