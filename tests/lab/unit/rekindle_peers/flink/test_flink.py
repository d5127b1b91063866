"""The job of Flink as Python sees it: converted input, checkpoints, lines, and what is missing."""

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rekindle_cli import command_line
from rekindle_local.flights import flight_data, flight_pipeline
from rekindle_peers.flink import (
    flink_checkpoints,
    flink_conversion,
    flink_driver,
    flink_installation,
    flink_outputs,
)
from rekindle_peers.flink.flink_checkpoints import FollowedStore

QUERY = "destination-weeks"
NOW = 2_000.0


def told(store: Path, source: str, number: int, complete_at: float, rows: int) -> None:
    path = store / "told" / f"{source}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"version": 1, "checkpoint": number, "at": complete_at - 0.5}
    record |= {"complete_at": complete_at, "rows": rows, "last": False}
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def named(store: Path, name: str) -> float:
    """When an output file got its name."""
    path = store / "outputs" / QUERY / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path.stat().st_ctime


def test_a_checkpoint_is_told_once_both_sources_completed_it_and_its_files_are_public(
    tmp_path: Path,
) -> None:
    now = time.time() - 0.1
    followed = FollowedStore(tmp_path, [QUERY], ["flights", "weather"])
    assert list(followed.fresh(now)) == []
    told(tmp_path, "flights", 4, now - 0.1, 120)
    assert list(followed.fresh(now + 10)) == []
    told(tmp_path, "weather", 4, now, 100)
    named(tmp_path, ".part-5.inprogress")
    public_at = named(tmp_path, "part-4")
    assert list(followed.fresh(now + 0.4)) == []
    (found,) = followed.fresh(now + 0.2 + flink_checkpoints.PUBLIC_SECONDS_MAX)
    assert (found.number, found.rows, found.at) == (4, 100, pytest.approx(now - 0.6))
    assert found.public_at == {QUERY: public_at}
    assert list(followed.fresh(now + 5)) == []


def test_a_query_without_rows_is_public_when_the_checkpoint_is_complete(tmp_path: Path) -> None:
    followed = FollowedStore(tmp_path, [QUERY], ["flights"])
    told(tmp_path, "flights", 1, NOW, 10)
    told(tmp_path, "flights", 3, NOW + 1, 20)
    (first,) = followed.fresh(NOW + 1.1)  # the next one is complete, so nothing more can come of it
    assert (first.number, first.public_at) == (1, {QUERY: NOW})
    (second,) = followed.fresh(NOW + 3)
    assert (second.number, second.rows) == (3, 20)


def test_converted_rows_are_those_of_the_files_in_their_order_of_arrival(tmp_path: Path) -> None:
    files = flight_data.prepare(tmp_path, 3 / flight_data.DAYS_OF_YEAR)["files"]
    folder = flink_conversion.convert(tmp_path)
    assert flink_conversion.convert(tmp_path) == folder  # once for a folder
    texts = (folder / "texts").read_text().splitlines()
    flights = _rows(folder / "flights.rows", len(flink_conversion.FLIGHT_COLUMNS))
    weather = _rows(folder / "weather.rows", len(flink_conversion.WEATHER_COLUMNS))
    total = sum(file["rows"] for file in files.values())
    assert sorted([*flights[:, 0], *weather[:, 0]]) == list(range(total))
    assert (np.diff(flights[:, 0]) > 0).all()
    assert (np.diff(flights[:, 2]) >= 0).all()
    # An aircraft is in one split, whatever their number; one that is not known anywhere.
    assert len({(row[1], row[5]) for row in flights if texts[row[5]] != "unknown"}) == len(
        {row[5] for row in flights if texts[row[5]] != "unknown"}
    )
    jfk = pq.read_table(tmp_path / "flights_jfk.parquet").to_pylist()
    mine = [row for row in flights if texts[row[6]] == "JFK"]
    for row, expected in zip(mine, jfk, strict=True):
        assert texts[row[3]] == expected["carrier"]
        assert row[2] == round(
            (expected["event_time"] - datetime(1970, 1, 1)).total_seconds() * 1e3
        )
        delay = expected["dep_delay"]
        assert row[8] == (flink_conversion.NONE if delay is None else delay)


def _rows(path: Path, columns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return (
        np.fromfile(path, dtype=flink_conversion.NUMBERS).astype(np.int64).reshape(-1, 2 + columns)
    )


def test_a_line_is_a_row_with_the_columns_of_its_query(tmp_path: Path) -> None:
    file = tmp_path / "part"
    file.write_text(
        "BOS\t604800000000\t1209600000000\t3\t3\t\\N\nATL\t0\t604800000000\t4\t1\t2.5\n"
    )
    first, second = flink_outputs.read(QUERY, file).to_pylist()
    assert first["dest"] == "BOS"
    assert first["window_start"] == datetime(1970, 1, 8)
    assert (first["flights"], first["mean_delay"]) == (3, None)
    assert second["mean_delay"] == 2.5


def test_lines_are_there_for_every_query_with_its_keys() -> None:
    assert set(flink_outputs.COLUMNS) == set(flight_pipeline.QUERY_KEYS)
    for query, keys in flight_pipeline.QUERY_KEYS.items():
        names = [part.partition(":")[0] for part in flink_outputs.COLUMNS[query].split()]
        assert set(keys) <= set(names), query


def test_a_job_has_the_sources_that_its_queries_need() -> None:
    assert flink_driver.sources(("windy-hours",)) == ("weather",)
    assert flink_driver.sources(("destination-weeks",)) == ("flights",)
    assert flink_driver.sources(("delays-by-weather",)) == ("flights", "weather")


def test_without_flink_the_benchmark_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flink_installation, "find_spec", lambda _: None)
    report = tmp_path / "steady"
    line = ["bench", "steady", "--systems", "rekindle,flink", "--report", os.fspath(report)]
    assert command_line.run(command_line.application, line) == 2
    said = capsys.readouterr().err
    assert "apache-flink-libraries: is not installed; install it with `make flink`" in said
    assert said.count("\n") == 1
    assert not report.exists()
