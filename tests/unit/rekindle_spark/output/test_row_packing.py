"""Rows of many files go into few, and come out exactly as they were."""

import datetime
import decimal
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from memory_files import MemoryFiles

from rekindle.model.errors import DamagedError
from rekindle_spark.output import row_packing
from rekindle_spark.output.row_packing import RowPacker
from rekindle_spark.output.sink_files import SinkFiles
from rekindle_store import output_rows

NOT_A_NUMBER = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000ABC))[0]
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 5)
# Packs a file, and prints its rows and the most bytes that Arrow had allocated. In a process of its
# own: a pool that is swapped in for a test is freed before what was allocated from it.
PACKED = """
import sys
from pathlib import Path
import pyarrow as pa
from memory_files import MemoryFiles
from rekindle_spark.output.row_packing import RowPacker
from rekindle_store import output_rows

packer = RowPacker(MemoryFiles(), lambda number: f"outputs/q/{number}")
packer.add(output_rows.opened("here", Path(sys.argv[1]).read_bytes()).pieces())
(made,) = packer.finish()
print(made.rows, pa.default_memory_pool().max_memory())
"""
COLUMNS: dict[str, pa.Array] = {
    "odd floats": pa.array([math.nan, NOT_A_NUMBER, -0.0, 0.0, math.inf, None]),
    "float32": pa.array([math.nan, -0.0, 1.5, None, 3.25, 0.0], pa.float32()),
    "int8": pa.array([-128, 127, None, 0, 1, 2], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0, None, 1, 2, 3], pa.uint64()),
    "bool": pa.array([True, None, False, True, False, None]),
    "text": pa.array(["", "ä", None, "x" * 1000, "\0", "b"]),
    "large text": pa.array(["", "ä", None, "c", "d", "e"], pa.large_string()),
    "bytes": pa.array([b"", b"\xff", None, b"c", b"d", b"e"]),
    "decimal": pa.array([decimal.Decimal("1.10"), None] * 3, pa.decimal128(38, 2)),
    "date": pa.array([datetime.date(1, 1, 1), None] * 3),
    "time": pa.array([datetime.time(1, 2, 3, 4), None] * 3),
    "moment ns": pa.array([MOMENT, None] * 3, pa.timestamp("ns")),
    "moment us UTC": pa.array([MOMENT, None] * 3, pa.timestamp("us", "UTC")),
    "moment s": pa.array([MOMENT, None] * 3, pa.timestamp("s")),
    "duration": pa.array([datetime.timedelta(1, 2, 3), None] * 3),
    "list": pa.array([[], None, [1, None], [2], [], [3]], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": "x"}] * 2),
    "map": pa.array([[("a", 1)], None, []] * 2, pa.map_(pa.string(), pa.int32())),
    "nothing": pa.nulls(6),
}


def written(table: pa.Table) -> pa.Table:
    """A table as a host writes it and a reader reads it."""
    outputs = SinkFiles(MemoryFiles())
    outputs.write("q", "x", table)
    (data,) = outputs.unfinished.values()
    file = output_rows.opened("here", data)
    whole = file.table()
    together = pa.concat_tables(file.pieces())
    assert together.schema.equals(whole.schema, check_metadata=True)
    assert bits(together) == bits(whole)
    return whole


def packed(files: MemoryFiles, tables: list[pa.Table]) -> list[pa.Table]:
    """The same tables, as they come out of what they were packed into."""
    packer = RowPacker(files, lambda number: f"outputs/q/{number}")
    places = [packer.add([table]) for table in tables]
    made = packer.finish()
    opened = [output_rows.opened(file.name, files.content[file.name]) for file in made]
    assert [(file.rows, file.bytes) for file in made] == [
        (one.rows, len(files.content[file.name])) for one, file in zip(opened, made, strict=True)
    ]
    return [
        opened[number].slice(first, table.num_rows)
        for (number, first), table in zip(places, tables, strict=True)
    ]


def bits(table: pa.Table) -> Any:
    """The rows with floats as they are in memory, for comparison."""
    found = table.to_pydict()
    return {
        name: [struct.pack("<d", one) if isinstance(one, float) else one for one in values]
        for name, values in found.items()
    }


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("groups", [1, 2**20])
def test_all_types_come_out_as_they_were(
    name: str, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_packing, "GROUP_BYTES", groups)
    schema = pa.schema(
        [pa.field(name, COLUMNS[name].type, metadata={"a": "b"})], metadata={"made by": "us"}
    )
    whole = pa.table([COLUMNS[name]], schema=schema)
    tables = [written(whole.slice(begin, 2)) for begin in range(0, 6, 2)]
    tables += [written(whole.slice(0, 0)), written(whole.slice(1, 1)), written(whole.slice(3))]
    found = packed(MemoryFiles(), tables)
    for got, wanted in zip(found, tables, strict=True):
        assert got.schema.equals(wanted.schema, check_metadata=True)
        assert bits(got) == bits(wanted)


def test_names_for_values_that_differ_from_file_to_file_come_out_as_the_values() -> None:
    tables = [
        written(pa.table({"kind": pa.array(values).dictionary_encode()}))
        for values in (["a", "b", None], ["c", "a"], ["b"])
    ]
    found = packed(MemoryFiles(), tables)
    assert [table.to_pydict() for table in found] == [table.to_pydict() for table in tables]
    assert found[0].schema.equals(tables[0].schema, check_metadata=True)


def test_rows_of_no_file_are_a_file_without_rows() -> None:
    empty = written(pa.table({"n": pa.array([], pa.int64())}))
    files = MemoryFiles()
    (found,) = packed(files, [empty])
    assert found.equals(empty)


def test_a_file_ends_once_it_is_large_but_not_amid_tables_that_belong_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_packing, "GROUP_BYTES", 1)
    monkeypatch.setattr(row_packing, "FILE_BYTES_MAX", 100)
    packer = RowPacker(MemoryFiles(), str)
    tables = [pa.table({"n": [number]}) for number in range(4)]
    assert [packer.add(tables), packer.add(tables[:1]), packer.add(tables)] == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]
    assert [file.rows for file in packer.finish()] == [4, 1, 4]


@pytest.mark.parametrize("damage", ["store", "rows", "columns"])
def test_what_does_not_come_out_as_it_was_is_refused(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MemoryFiles()
    packer = RowPacker(files, lambda number: f"outputs/q/{number}")
    packer.add([pa.table({"n": [1, 2]})])
    assert packer.draft is not None
    if damage == "store":
        monkeypatch.setattr(files, "read", lambda _: b"other")
    elif damage == "rows":
        sums = iter("ab")
        monkeypatch.setattr(row_packing, "_sum_of", lambda _: next(sums))
    else:
        packer.draft.schema = pa.schema([("n", pa.int32())])
    with pytest.raises(DamagedError, match="memory/outputs/q/0: is not what was packed into it"):
        packer.finish()


def test_a_small_file_of_many_rows_that_are_alike_takes_little_memory(tmp_path: Path) -> None:
    table = pa.table({"text": ["x" * 10_000] * 100})
    file = tmp_path / "alike.parquet"
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for _ in range(200):
            writer.write_table(table)
    assert file.stat().st_size < 1 << 20
    packed = subprocess.run(
        [sys.executable, "-c", PACKED, str(file)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert packed.returncode == 0, packed.stderr
    rows, most_bytes = map(int, packed.stdout.split())
    assert rows == 20_000
    assert 1 << 20 < most_bytes < 100 << 20, "all rows are 200 MB"
