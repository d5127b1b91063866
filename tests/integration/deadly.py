"""Queries whose functions end or hang their process, beside an important one that must not notice.

Each harm has a source and a query of its own. A test sets a trap, a file with the harm's name in
the folder of traps; with `MENDED` no function finds one. With `RECORDS`, before the first start,
single records are at fault, and their steps have dead letters.
"""

import ctypes
import os
import re
import signal
import threading
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, count

SOURCES = 8
INPUT_ROWS, RECORDS_ROWS = SOURCES * 60_000, 2 * 60_000
MENDED, RECORDS = "mended", "records"
BAD_VALUE, BAD_SENSOR = 77, "sensor-7"
WORST_VALUE, WORST_SENSOR = -33, "sensor-11"
COUNTED = pa.schema(
    [("sensor", pa.string()), ("event_time", pa.timestamp("us")), ("number", pa.int64())]
)


def segfault() -> None:
    ctypes.string_at(0)


def exit_at_once() -> None:
    os._exit(0)


def be_killed() -> None:
    """Die as by the kernel's killer of who uses too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def hoard() -> None:
    hoarded = []
    while True:
        hoarded.append(b"x" * 20_000_000)


def loop() -> None:
    while True:
        pass


def match_for_ever() -> None:
    """Loop without an end in C, with the interpreter's lock held."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def wait_for_itself() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


HARMS = {
    "segfault": segfault,
    "exit": exit_at_once,
    "kill": be_killed,
    "memory": hoard,
    "loop": loop,
    "regex": match_for_ever,
    "deadlock": wait_for_itself,
}


def deadly(traps: Path, name: str):
    """A function that does harm while the trap is set."""

    def function(table: pa.Table) -> pa.Table:
        if (traps / name).exists() and not (traps / MENDED).exists():
            HARMS[name]()
        return table

    return function


def checked(table: pa.Table) -> pa.Table:
    """The readings as they are, unless there is a bad one: then the process ends."""
    bad = pc.and_(pc.equal(table["value"], BAD_VALUE), pc.equal(table["sensor"], BAD_SENSOR))
    if pc.any(bad).as_py():
        segfault()
    return table


class Counted(StatefulOperator):
    """Numbers the readings of a sensor."""

    value_schema = pa.schema([("readings", pa.int64())])

    def handle(self, key, rows, value):
        (number,) = value.get() if value.exists() else (0,)
        for row in rows:
            if (key[0], row["value"]) == (WORST_SENSOR, WORST_VALUE):
                os._exit(3)
            number += 1
            yield (key[0], row["event_time"], number)
        value.update((number,))


def pipeline() -> Pipeline:
    """A query for each harm, and the important one; with `RECORDS` one of records alone."""
    directory = Path(os.environ["REKINDLE_TEST_INPUT"])
    traps = Path(os.environ["REKINDLE_TEST_TRAPS"])
    built = Pipeline("deadly")

    def source(name: str, parallelism: int = 1):
        replay = Replay(str(directory / "readings.parquet"), "event_time")
        return built.source(name, replay, parallelism=parallelism)

    source("readings", 2).window(
        "by-day",
        keys=["sensor"],
        size_seconds=86_400,
        aggregates={"readings": count()},
        parallelism=3,
    ).sink("daily", priority=10)
    if (traps / RECORDS).exists():
        found = source("others", 2)
        found.map("checked", checked, schema=found.schema, dead_letters=True).sink("good")
        found.stateful(
            "counted",
            Counted(),
            keys=["sensor"],
            schema=COUNTED,
            parallelism=2,
            dead_letters=True,
        ).sink("numbers", priority=3)
        return built
    for name in HARMS:
        found = source(f"source-{name}")
        found.map(name, deadly(traps, name), schema=found.schema).sink(f"query-{name}")
    return built


def is_bad() -> pl.Expr:
    """Readings on which the map ends its process."""
    return (pl.col("value") == BAD_VALUE) & (pl.col("sensor") == BAD_SENSOR)


def is_worst() -> pl.Expr:
    """Readings on which the operator ends its process."""
    return (pl.col("value") == WORST_VALUE) & (pl.col("sensor") == WORST_SENSOR)


def expected(directory: Path) -> dict[str, pl.DataFrame]:
    """The queries over the whole files, by polars, where no function does harm."""
    found = pl.read_parquet(directory / "readings.parquet")
    return {"daily": _daily(found), **{f"query-{name}": found for name in HARMS}}


def expected_beside_letters(directory: Path) -> dict[str, pl.DataFrame]:
    """With `RECORDS`: without the bad records, and those as they are among the dead letters."""
    found = pl.read_parquet(directory / "readings.parquet")
    numbered = found.filter(~is_worst()).sort("event_time")
    return {
        "daily": _daily(found),
        "good": found.filter(~is_bad()),
        "checked.dead-letters": found.filter(is_bad()),
        "numbers": numbered.with_columns(number=pl.int_range(pl.len()).over("sensor") + 1).drop(
            "value"
        ),
        "counted.dead-letters": found.filter(is_worst()),
    }


def _daily(found: pl.DataFrame) -> pl.DataFrame:
    return (
        found.with_columns(window_start=pl.col("event_time").dt.truncate("1d"))
        .group_by("sensor", "window_start")
        .agg(readings=pl.len())
        .with_columns(window_end=pl.col("window_start").dt.offset_by("1d"))
    )
