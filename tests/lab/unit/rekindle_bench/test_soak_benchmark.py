"""The soak without a cluster: its lives, the size of a store, and whether rows are right."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from rekindle_bench import soak_benchmark, soak_rows
from rekindle_bench.soak_benchmark import Life
from rekindle_spark.store.checkpoint_store import CheckpointStore

BEGIN = datetime(2023, 1, 1, tzinfo=UTC).replace(tzinfo=None)
LAP_SECONDS = 2 * 86_400
RIGHT = {"missing": 0, "duplicated": 0, "wrong": 0}
READ = 10  # rows: a lap of seven, and three of the next


def input_of(tmp_path: Path) -> tuple[Path, pl.DataFrame]:
    """A file of seven flights, and all late ones of the first ten in days and carriers."""
    hours, delays = [1, 2, 3, 5, 26, 27, 30], [20, 30, 5, 60, 16, 100, 15]
    flights = pl.DataFrame(
        {
            "event_time": [BEGIN + timedelta(hours=hour) for hour in hours],
            "carrier": list("ABAABAB"),
            "dep_delay": delays,
        }
    ).with_columns(pl.col("event_time").cast(pl.Datetime("us")))
    flights.write_parquet(tmp_path / "flights.parquet")
    day = timedelta(days=1)
    found = [
        ("A", 0, 2, 80),
        ("B", 0, 1, 30),
        ("B", 1, 1, 16),
        ("A", 1, 1, 100),
        ("A", 2, 1, 20),
        ("B", 2, 1, 30),
    ]
    days = pl.DataFrame(
        {
            "carrier": [one[0] for one in found],
            "window_start": [BEGIN + one[1] * day for one in found],
            "window_end": [BEGIN + (one[1] + 1) * day for one in found],
            "flights": [one[2] for one in found],
            "minutes": [one[3] for one in found],
        }
    )
    return tmp_path / "flights.parquet", days


def ranked(days: pl.DataFrame) -> pl.DataFrame:
    rank = pl.col("minutes").rank("ordinal", descending=True).over("window_end").cast(pl.Int64)
    return days.with_columns(rank=rank)


def committed(tmp_path: Path, outputs: dict[str, pl.DataFrame]) -> Path:
    """A store that has read ten rows, with these outputs."""
    store = CheckpointStore(tmp_path / "store")
    store.open(1.0)
    store.make_outputs(outputs)
    store.log_offsets(1, {"offsets": {"flights": [0, READ]}})
    named = []
    for name, table in outputs.items():
        table.write_parquet(tmp_path / "store" / "outputs" / name / "0-1.parquet")
        named.append([f"{name}/0", 1, table.height, "0-1.parquet", "ab"])
    store.commit({"at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": named})
    return tmp_path / "store"


def test_epochs_are_shared_out_among_ten_drivers_at_most() -> None:
    assert [(life.begin, life.end) for life in soak_benchmark.lives(500)] == [(0, 500)]
    assert [(life.begin, life.end) for life in soak_benchmark.lives(1_999)] == [
        (0, 666),
        (666, 1_332),
        (1_332, 1_999),
    ]
    assert [life.end for life in soak_benchmark.lives(20_000)] == list(range(2_000, 20_001, 2_000))


def epochs_of(samples: list[dict[str, float]]) -> tuple[float, float, int]:
    """The first, the last and the number of samples."""
    epochs = [sample["epoch"] for sample in samples]
    return epochs[0], epochs[-1], len(epochs)


def test_early_and_late_samples_are_of_three_tenths_of_a_life() -> None:
    life = Life(1_000, 3_000, samples=[{"epoch": epoch} for epoch in range(1_000, 3_001, 50)])
    assert epochs_of(life.early()) == (1_100, 1_700, 13)
    assert epochs_of(life.late()) == (2_400, 3_000, 13)
    life.settled = 1_290
    assert epochs_of(life.early()) == (1_300, 1_850, 12)


def test_no_sample_is_early_and_late() -> None:
    life = Life(0, 500, settled=250, samples=[{"epoch": epoch} for epoch in range(0, 501, 25)])
    assert epochs_of(life.early()) == (250, 375, 6)
    assert epochs_of(life.late()) == (375, 500, 6)


def test_early_and_late_samples_of_a_short_life_are_of_two_hundred_epochs() -> None:
    life = Life(0, 500, samples=[{"epoch": epoch} for epoch in range(0, 501, 50)])
    assert epochs_of(life.early()) == (100, 300, 5)
    assert epochs_of(life.late()) == (300, 500, 5)


def starts_judged(starts: list[float], tmp_path: Path) -> dict[str, float]:
    """The ratios of a soak whose drivers took so many seconds to start, all else being flat."""
    found = soak_benchmark.lives(500 * len(starts))
    for life, seconds in zip(found, starts, strict=True):
        life.start_seconds, life.store = seconds, {"commits": [1, 1]}
        life.samples = [
            {"epoch": epoch, **dict.fromkeys(soak_benchmark.MEASURES, 1.0)}
            for epoch in range(life.begin, life.end + 1, 50)
        ]
    soak_benchmark._judge(found, {"expected": 1, **RIGHT}, found[-1].end, tmp_path)
    ratios: dict[str, float] = json.loads((tmp_path / "soak.json").read_text())["ratios"]
    return ratios


def test_one_slow_start_of_ten_is_no_growth(tmp_path: Path) -> None:
    ratios = starts_judged([17, 20, 19, 21, 20, 20, 20, 20, 19, 60], tmp_path)
    assert ratios["the last starts"] == 1.0


@pytest.mark.parametrize(
    "starts", [[17, 20, 20, 20, 20, 20, 20, 40, 40, 40], [17, 20, 30, 40], [17, 20, 40]]
)
def test_later_starts_that_are_slower_are_growth(tmp_path: Path, starts: list[float]) -> None:
    assert starts_judged(starts, tmp_path)["the last starts"] == 2.0


def test_a_single_start_is_compared_with_none(tmp_path: Path) -> None:
    assert "the last starts" not in starts_judged([17, 20], tmp_path)


def test_the_memory_of_a_drivers_python_is_judged() -> None:
    own = os.getpid()
    assert soak_benchmark.python_bytes([own]) > 10 * 2**20
    assert "driver_python_bytes" in soak_benchmark.MEASURES


def test_the_size_of_a_store_is_told_by_folder(tmp_path: Path) -> None:
    for name, size in (("commits/1.json", 10), ("commits/segments/1", 20), ("outputs/q/a", 5)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    assert soak_benchmark.store_size(tmp_path) == {"commits": [2, 30], "outputs": [1, 5]}


def test_right_rows_of_several_laps_are_right(tmp_path: Path) -> None:
    source, days = input_of(tmp_path)
    store = committed(tmp_path, {"late-by-day": days, "latest-carriers": ranked(days)})
    bad = soak_rows.count_bad(store, source, LAP_SECONDS)
    assert bad == {"expected": 12, **RIGHT}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda days: days.slice(1), {"missing": 1}),
        (lambda days: pl.concat([days, days.slice(0, 1)]), {"duplicated": 1}),
        (lambda days: days.with_columns(minutes=pl.col("minutes").replace(80, 81)), {"wrong": 1}),
    ],
    ids=["missing", "twice", "other"],
)
def test_a_row_that_is_not_right_is_found(
    tmp_path: Path, change: object, kinds: dict[str, int]
) -> None:
    source, days = input_of(tmp_path)
    assert callable(change)
    store = committed(tmp_path, {"late-by-day": change(days), "latest-carriers": ranked(days)})
    bad = soak_rows.count_bad(store, source, LAP_SECONDS)
    assert {kind: number for kind, number in bad.items() if kind in kinds} == kinds
