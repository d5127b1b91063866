"""The comparison between two topics without a broker: right windows, rates, and bars."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rekindle.model.errors import RunError
from rekindle_bench import kafka_measurement, kafka_peers
from rekindle_bench.kafka_peers import OURS, THEIRS, KafkaPeerSample, Progress, SeenWindows


def test_the_windows_that_are_expected_are_those_of_the_rows_that_are_written() -> None:
    rows = pl.from_arrow(kafka_measurement.rows(0, 30_000))
    assert isinstance(rows, pl.DataFrame)
    second = (pl.col("at") // 1_000_000 - kafka_peers.FIRST_SECOND).alias("second")
    window = (second // kafka_peers.WINDOW_SECONDS).alias("window")
    grouped = rows.group_by("carrier", window).agg(rows=pl.len(), total=pl.col("flight").sum())
    found = {(one[0], one[1]): (one[2], one[3]) for one in grouped.iter_rows()}
    assert len(found) == 3 * kafka_peers.CARRIERS
    assert found == {key: kafka_peers.expected(*key) for key in found}


def record(carrier: str, start: str, window: int, more: int = 0) -> bytes:
    rows, total = kafka_peers.expected(carrier, window)
    row = {"carrier": carrier, "window_start": start, "rows": rows + more, "total": total}
    return json.dumps(row).encode()


def test_a_window_counts_once_and_only_where_it_is_right() -> None:
    windows = SeenWindows()
    windows.add(OURS, record("C3", "2020-09-13T12:26:40", 0))
    windows.add(THEIRS, record("C3", "2020-09-13T12:26:50.000Z", 1))
    assert windows.rows == sum(kafka_peers.expected("C3", window)[0] for window in (0, 1))
    for wrong in (
        record("C3", "2020-09-13T12:26:40", 0),
        record("C4", "2020-09-13T12:26:40", 0, more=1),
    ):
        with pytest.raises(RunError, match="a window is wrong, or there twice"):
            windows.add(OURS, wrong)


def test_figures_are_those_of_the_middle_half() -> None:
    points = [
        Progress(0.0, 10, 5.0),
        Progress(50.0, 100, 20.0),
        Progress(60.0, 310, 20.5),
        Progress(90.0, 400, 99.0),
    ]
    assert kafka_peers.middle(points, 400) == KafkaPeerSample(21.0, 0.5e6 / 210)
    with pytest.raises(RunError, match="give more --rows"):
        kafka_peers.middle([Progress(0.0, 400, 1.0)], 400)


def rounds(*ours: tuple[float, float]) -> list[dict[str, KafkaPeerSample]]:
    theirs = KafkaPeerSample(100.0, 30.0)
    return [{OURS: KafkaPeerSample(*one), THEIRS: theirs} for one in ours]


def test_bars_are_about_the_medians_of_three_rounds(tmp_path: Path) -> None:
    met = rounds((150.0, 99.0), (99.0, 20.0), (180.0, 10.0))
    found = kafka_peers.judge(met, 400, "command", tmp_path)
    assert [(one["value"], one["met"]) for one in found["bars"]] == [("1.50", True), ("1.50", True)]
    assert found["cpu_ratios"] == [30 / 99, 1.5, 3.0]
    missed = kafka_peers.judge(rounds(*[(149.0, 20.1)] * 3), 400, "command", tmp_path)
    assert [one["met"] for one in missed["bars"]] == [False, False]
    few = kafka_peers.judge(rounds((900.0, 1.0)), 400, "command", tmp_path)
    assert [one["met"] for one in few["bars"]] == [False, False]


def test_the_pipeline_can_be_built() -> None:
    text = kafka_peers.PIPELINE.format(
        servers="b:9092",
        source="in",
        sink="out",
        partitions=2,
        window_seconds=kafka_peers.WINDOW_SECONDS,
        lateness_seconds=kafka_peers.LATENESS_SECONDS,
    )
    names: dict[str, Any] = {}
    exec(text, names)
    built = names["pipeline"]()
    assert [name for name, one in built.steps.items() if one.kind == "sink"] == ["windows"]
