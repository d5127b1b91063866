"""Files that a source reads in tests: how they are written, and what the source makes of them."""

import gzip
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle_spark.connectors.file_source import FileSource
from rekindle_spark.pipeline.unbounded_source import RowsAndRejects
from rekindle_store import store_files

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
PATH_ROW_WHY = ("file_path", "file_row", "error")


def source(inputs: Path, form: str = "json", **given: Any) -> FileSource:
    """A source that lists the folder whenever it is asked."""
    arguments = {"schema": SCHEMA, "event_time": "at", "list_seconds": 0.05, **given}
    if form != "parquet":
        arguments.setdefault("units", {"at": "ms"})
    found = FileSource(inputs, form, **arguments)
    found.keep_in(store_files.at(inputs.parent / "store"), "orders")
    return found


def lines(*values: int) -> str:
    return "".join(
        json.dumps({"at": value * 1_000, "key": "k", "value": value}) + "\n" for value in values
    )


def ends(found: FileSource, at: float | None = None) -> dict[str, tuple[int, int]]:
    """What there is, with the folder listed now, or at a time in seconds."""
    if found._asking is not None:
        found._asking.listed_at = None
        if at is not None:
            found._asking.clock = lambda: at
    return {name: (one.oldest, one.latest) for name, one in found.latest_offsets().items()}


def on_a_node(found: FileSource) -> FileSource:
    """The source as another process has it."""
    copy: FileSource = pickle.loads(pickle.dumps(found))
    return copy


def everything(found: FileSource) -> RowsAndRejects:
    """All rows of the only partition."""
    return on_a_node(found).read("0", *ends(found)["0"])


def values(read: RowsAndRejects) -> list[int]:
    numbers: list[int] = read.rows["value"].to_pylist()
    return numbers


def whys(read: RowsAndRejects, inputs: Path) -> list[tuple[str, int | None, str]]:
    """Of what was rejected the file, the number of the row, and why."""
    rows = zip(*(read.rejects[name].to_pylist() for name in PATH_ROW_WHY), strict=True)
    return [(path.removeprefix(f"{inputs}/"), row, why) for path, row, why in rows]


def write(form: str, path: Path, numbers: Sequence[int]) -> None:
    """Write rows to a file of a form."""
    if form == "parquet":
        times = pa.array([number * 1_000_000 for number in numbers], pa.timestamp("us"))
        columns = [times, ["k"] * len(numbers), pa.array(numbers, pa.int64())]
        pq.write_table(pa.table(columns, SCHEMA), path, row_group_size=7)
    elif form == "csv":
        rows = "".join(f'{number * 1_000},"k",{number}\n' for number in numbers)
        path.write_text(f"at,key,value\n{rows}")
    elif form == "json.gz":
        path.write_bytes(gzip.compress(lines(*numbers).encode()))
    else:
        path.write_text(lines(*numbers))


def form_of(suffix: str) -> str:
    return suffix.removesuffix(".gz")
