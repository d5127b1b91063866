"""A pipeline over logs that a test appends to while it runs, and the same queries by polars.

Each source is a folder of text files, a source partition each; an offset is a line. It knows
nothing of what comes. What a test wants to go wrong it asks for by files in the folder.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa

from rekindle.model.errors import SourceAwayError
from rekindle_spark.pipeline.steps import Pipeline, count, total
from rekindle_spark.pipeline.unbounded_source import PartitionOffsets, SourceTerms

# Names of files in a source's folder: nobody can reach it; hosts cannot, while the driver can.
AWAY, AWAY_FROM_HOSTS = "away", "away-from-hosts"
COMMITTED = "committed"
SECOND = 1_000_000
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
SOURCES = {"orders": 3, "clicks": 1}


class Lines:
    """The lines "MICROSECONDS,KEY,VALUE" of all files *.log of a folder, as they are appended."""

    schema = SCHEMA
    event_time = "at"

    def __init__(self, folder: str, terms: SourceTerms) -> None:
        self.folder = folder
        self.terms = terms

    def check(self, step: str) -> None:
        """Nothing can be wrong with it."""

    def initial_offsets(self) -> Mapping[str, int]:
        self._reach(AWAY)
        return dict.fromkeys(self._lines(), 0)

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        self._reach(AWAY)
        return {name: PartitionOffsets(0, len(lines)) for name, lines in self._lines().items()}

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        self._reach(AWAY, AWAY_FROM_HOSTS)
        rows = [line.split(",") for line in self._lines()[partition][start:end]]
        columns = [[int(row[0]) for row in rows], [row[1] for row in rows]]
        arrays = [
            pa.array(columns[0], pa.int64()).cast(pa.timestamp("us")),
            pa.array(columns[1], pa.string()),
            pa.array([int(row[2]) for row in rows], pa.int64()),
        ]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

    def commit(self, offsets: Mapping[str, int]) -> None:
        (Path(self.folder) / COMMITTED).write_text(repr(dict(offsets)))

    def _lines(self) -> dict[str, list[str]]:
        """Whole lines: one that is being written is not there yet."""
        paths = sorted(Path(self.folder).glob("*.log"))
        return {path.name: path.read_text().split("\n")[:-1] for path in paths}

    def _reach(self, *traps: str) -> None:
        for trap in traps:
            if (Path(self.folder) / trap).exists():
                raise SourceAwayError(
                    where=self.folder, what=f"a trap says {trap}", remedy="take it away"
                )


def pipeline() -> Pipeline:
    """A window over each source, its rows, and a join of both."""
    inputs = Path(os.environ["REKINDLE_TEST_INPUT"])
    built = Pipeline("appended")
    terms = SourceTerms(idle_seconds=3_600, patience_seconds=60)
    orders = built.source("orders", Lines(str(inputs / "orders"), terms), parallelism=2)
    clicks = built.source("clicks", Lines(str(inputs / "clicks"), terms), parallelism=2)
    for name, rows in (("orders", orders), ("clicks", clicks)):
        by_minute = rows.window(
            f"{name}-by-minute",
            keys=["key"],
            size_seconds=60,
            aggregates={"rows": count(), "sum": total("value")},
            parallelism=2,
        )
        by_minute.sink(f"{name}-windows", priority=8 if name == "orders" else 4)
        rows.sink(f"{name}-rows", priority=6)
    joined = orders.join("near", clicks, keys=["key"], within_seconds=2, parallelism=2)
    joined.sink("pairs", priority=2)
    return built


def prepare(inputs: Path) -> None:
    """Make the folders, with the first rows of each source partition."""
    for source, partitions in SOURCES.items():
        (inputs / source).mkdir(parents=True)
        for number in range(partitions):
            (inputs / source / f"{number}.log").touch()
    append(inputs, range(60))


def append(inputs: Path, seconds: range) -> None:
    """Append ten rows for each of these seconds of event time to each source partition."""
    for source, partitions in SOURCES.items():
        for number in range(partitions):
            rows = (
                f"{second * SECOND + tenth * 100_000},key-{(second + number) % 7},{tenth}\n"
                for second in seconds
                for tenth in range(10)
            )
            with (inputs / source / f"{number}.log").open("a") as file:
                file.write("".join(rows))


def _rows(inputs: Path, source: str) -> pl.DataFrame:
    paths = sorted((inputs / source).glob("*.log"))
    tables = [
        pl.read_csv(path, has_header=False, new_columns=["at", "key", "value"]) for path in paths
    ]
    return pl.concat(tables).with_columns(pl.col("at").cast(pl.Datetime("us")))


def _windows(rows: pl.DataFrame) -> pl.DataFrame:
    return (
        rows.with_columns(window_start=pl.col("at").dt.truncate("1m"))
        .group_by("key", "window_start")
        .agg(rows=pl.len(), sum=pl.col("value").sum())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1m"))
    )


def expected(inputs: Path) -> dict[str, pl.DataFrame]:
    """The same queries over all that was appended."""
    orders, clicks = _rows(inputs, "orders"), _rows(inputs, "clicks")
    near = (
        orders.join(clicks, on="key", suffix="_right")
        .filter((pl.col("at") - pl.col("at_right")).abs() <= pl.duration(seconds=2))
        .with_columns(event_time=pl.max_horizontal("at", "at_right"))
    )
    return {
        "orders-windows": _windows(orders),
        "clicks-windows": _windows(clicks),
        "orders-rows": orders,
        "clicks-rows": clicks,
        "pairs": near,
    }
