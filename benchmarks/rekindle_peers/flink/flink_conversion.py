"""The prepared flights and weather once more, in a form that the job maps into memory.

Flink reads Parquet with Hadoop's classes alone, which its distribution does not have. So rows are
written out before a run as whole numbers of 8 bytes, those of flights in their order of arrival;
`Table.java` says what stands where. It is done once for a folder of input.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rekindle_local.flights import flight_data, row_arrivals

# As `Flight.Rows` and `Hour.Rows` read them.
FLIGHT_COLUMNS = (
    *("event_time", "carrier", "flight", "tailnum", "origin", "dest"),
    *("dep_delay", "arr_delay", "distance"),
)
WEATHER_COLUMNS = (
    *("event_time", "origin", "temperature_tenths", "wind_speed_tenths"),
    *("precipitation_hundredths", "visibility_hundredths"),
)
NONE = np.iinfo(np.int64).min
NUMBERS = ">i8"

Numbers = npt.NDArray[np.int64]


def convert(directory: Path) -> Path:
    """The folder with the converted rows of the files in `directory`; written unless it is there.

    Raises InputError when an input file is missing or was not prepared.
    """
    folder = directory / "flink"
    if folder.exists():
        return folder
    order = row_arrivals.order(directory)
    tables = [
        pq.read_table(directory / flight_data.file_name(name)) for name in flight_data.SOURCES
    ]
    weather = flight_data.SOURCES.index("weather")
    flights = pa.concat_tables(tables[:weather])
    places = np.concatenate([np.nonzero(order == number)[0] for number in range(weather)])
    merged = np.argsort(places)
    texts: dict[str, int] = {}
    fresh = directory / f"flink.{os.getpid()}.tmp"
    fresh.mkdir()
    rows = _numbers(flights.take(merged), FLIGHT_COLUMNS, texts)
    _write(fresh / "flights.rows", places[merged], _spread(rows, texts), rows)
    hours = _numbers(tables[weather], WEATHER_COLUMNS, texts)
    _write(fresh / "weather.rows", np.nonzero(order == weather)[0], np.arange(len(hours)), hours)
    (fresh / "texts").write_text("".join(f"{text}\n" for text in texts))
    fresh.replace(folder)
    return folder


def _numbers(table: pa.Table, columns: Sequence[str], texts: dict[str, int]) -> Numbers:
    """A row of whole numbers for each of the table; times in milliseconds."""
    return np.stack([_column(table[name], texts) for name in columns], axis=1)


def _column(column: pa.ChunkedArray, texts: dict[str, int]) -> Numbers:
    if pa.types.is_timestamp(column.type):
        times: Numbers = column.cast(pa.timestamp("ms")).to_numpy().astype(np.int64)
        return times
    if pa.types.is_string(column.type):
        encoded = column.combine_chunks().dictionary_encode()
        known = [texts.setdefault(text, len(texts)) for text in encoded.dictionary.to_pylist()]
        codes: Numbers = np.array(known)[encoded.indices.to_numpy()]
        return codes
    filled: Numbers = pc.fill_null(column, int(NONE)).to_numpy()
    return filled


def _spread(rows: Numbers, texts: dict[str, int]) -> Numbers:
    """What decides about the split of a flight: its aircraft, where that is known."""
    aircraft = rows[:, FLIGHT_COLUMNS.index("tailnum")]
    unknown = texts.get(flight_data.UNKNOWN_AIRCRAFT, -1)
    return np.where(aircraft == unknown, np.arange(len(rows)), aircraft)


def _write(path: Path, order: Numbers, spread: Numbers, rows: Numbers) -> None:
    np.column_stack([order, spread, rows]).astype(NUMBERS).tofile(path)
