"""A pipeline over files that a test adds to while it runs, and the same queries by polars.

What was added is also written to a ledger, a text for each source, from which the batch half reads:
it shares no code with the runtime, and files may be removed once they were read.
"""

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa

from rekindle_spark.connectors.file_source import FileSource
from rekindle_spark.pipeline.steps import Pipeline, count, total
from rekindle_spark.pipeline.unbounded_source import SourceTerms

# In the folder of inputs: where the files are, by a path or URL.
PLACE = "place"
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
SECOND = 1_000_000
ROWS_PER_SECOND = 10
# By source: the ends of its files' names, taken in turn. Names are as people give them.
FORMS = {"orders": ("é 100%.json", "x y.json.gz"), "clicks": (".csv",), "visits": (".parquet",)}

Put = Callable[[str, bytes], None]
Row = tuple[int, str, int]


def pipeline() -> Pipeline:
    """The rows of each source, windows over two of them, and lines that are no JSON."""
    place = (Path(os.environ["REKINDLE_TEST_INPUT"]) / PLACE).read_text()
    terms = SourceTerms(idle_seconds=3_600, patience_seconds=120)
    built = Pipeline("added")
    for source, ends in FORMS.items():
        form = ends[0].rpartition(".")[2]
        files = FileSource(
            f"{place}/{source}",
            form,
            SCHEMA,
            "at",
            partitions=2 if source == "clicks" else 1,
            pattern="data-*",
            list_seconds=0.3,
            units={} if form == "parquet" else {"at": "us"},
            columns=("file_path", "file_row") if source == "orders" else (),
            terms=terms,
        )
        rows = built.source(source, files, parallelism=2, dead_letters=source == "orders")
        rows.sink(f"{source}-rows", priority=6)
        if source != "clicks":
            rows.window(
                f"{source}-by-minute",
                keys=["key"],
                size_seconds=60,
                aggregates={"rows": count(), "sum": total("value")},
                parallelism=2,
            ).sink(f"{source}-windows", priority=8)
    return built


def put_in(folder: Path) -> Put:
    """Writes files as a source wants them: whole, under another name, then renamed."""

    def put(name: str, data: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        draft.write_bytes(data)
        draft.rename(path)

    return put


def add(inputs: Path, put: Put, seconds: range) -> None:
    """Add a file for each five of these seconds of event time to each source."""
    place = (inputs / PLACE).read_text()
    for source, ends in FORMS.items():
        for number, begin in enumerate(range(seconds.start, seconds.stop, 5)):
            name = f"{source}/day {begin // 60}/data-{begin:06}{ends[number % len(ends)]}"
            rows = [
                (at * SECOND + n * 100_000, f"key-{(at + n) % 7}", n)
                for at in range(begin, min(begin + 5, seconds.stop))
                for n in range(ROWS_PER_SECOND)
            ]
            put(name, content(name, rows))
            with (inputs / f"{source}.ledger").open("a") as ledger:
                ledger.writelines(f"{at}\t{key}\t{n}\t{place}/{name}\n" for at, key, n in rows)


def content(name: str, rows: list[Row]) -> bytes:
    """A file's bytes; one of JSON has a line behind its rows that is none."""
    if name.endswith(".csv"):
        return "".join(["at,key,value\n", *(f"{at},{key},{n}\n" for at, key, n in rows)]).encode()
    if name.endswith(".parquet"):
        buffer = io.BytesIO()
        frame = pl.DataFrame(rows, schema=["at", "key", "value"], orient="row")
        frame.with_columns(pl.col("at").cast(pl.Datetime("us"))).write_parquet(buffer)
        return buffer.getvalue()
    lines = [json.dumps({"at": at, "key": key, "value": n}) for at, key, n in rows]
    text = "\n".join([*lines, "no JSON"]).encode()
    return gzip.compress(text) if name.endswith(".gz") else text


def ledger(inputs: Path, source: str) -> pl.DataFrame:
    """All rows that were added to a source."""
    return pl.read_csv(
        inputs / f"{source}.ledger",
        separator="\t",
        has_header=False,
        new_columns=["at", "key", "value", "file_path"],
    ).with_columns(pl.col("at").cast(pl.Datetime("us")))


def expected(inputs: Path) -> dict[str, pl.DataFrame]:
    """The same queries over all that was added."""
    found = {}
    for source in FORMS:
        rows = ledger(inputs, source).with_columns(
            file_row=pl.int_range(1, pl.len() + 1).over("file_path")
        )
        if source == "orders":
            bad = rows.group_by("file_path").agg(file_row=pl.len().cast(pl.Int64) + 1)
            found["orders.dead-letters"] = bad.with_columns(file_line=pl.lit(b"no JSON"))
        else:
            rows = rows.drop("file_path", "file_row")
        found[f"{source}-rows"] = rows
        if source != "clicks":
            found[f"{source}-windows"] = (
                rows.with_columns(window_start=pl.col("at").dt.truncate("1m"))
                .group_by("key", "window_start")
                .agg(rows=pl.len(), sum=pl.col("value").sum())
                .with_columns(window_end=pl.col("window_start").dt.offset_by("1m"))
            )
    return found
