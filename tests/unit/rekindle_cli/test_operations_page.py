"""The page for operations: its commands work as they stand, and its formulas hold."""

import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from memory_files import MemoryFiles
from s3_server import serving
from whole_stores import Driver, started

import rekindle
from rekindle.model import record_format
from rekindle_cli import command_line
from rekindle_spark.output.row_packing import RowPacker
from rekindle_spark.output.sink_files import SinkFiles
from rekindle_store import commit_segments, store_files, store_integrity

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
COMMAND = re.compile(r"^    ((?:rekindle|python) [^\n]+)$", re.MULTILINE)
# What needs a driver that runs, or a coordinator.
ELSEWHERE = ("rekindle savepoint", "rekindle reset", "rekindle run")


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's bucket."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "SSL_CERT"))]:
        monkeypatch.delenv(name)
    store_files._at.cache_clear()  # the page's names are relative, and each test has its own folder
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        yield


def commands() -> list[str]:
    return COMMAND.findall(PAGE.read_text(encoding="utf-8"))


def test_the_commands_for_stores_work_as_they_stand_and_a_driver_goes_on_from_what_they_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = Driver(tmp_path / "store")
    driver.run(1, 2)
    driver.checkpoint()
    ran = [words.split()[1:] for words in commands() if words.startswith("rekindle store")]
    assert [words[1] for words in ran] == ["check", "check", *["copy"] * 4, "check"]
    for words in ran:
        assert command_line.run(command_line.application, words) == 0, words
    assert "no damage" in capsys.readouterr().out
    for place in ("restored", "s3://checkpoints/flights"):
        started(place)
        assert rekindle.read(place, "hourly").arrow()["n"].to_pylist() == [1, 2, 3, 2, 3, 4]


def test_all_other_commands_of_the_page_need_what_is_not_here() -> None:
    others = [words for words in commands() if not words.startswith(("rekindle store", "python"))]
    assert all(words.startswith(ELSEWHERE) for words in others)


def test_the_newest_record_is_taken_from_its_segment_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = Driver(tmp_path / "store")
    records = [commit(number, 0, 0) for number in range(1, commit_segments.LENGTH + 1)]
    driver.store.files.put({commit_segments.name_of(1): commit_segments.pack(records)})
    # this store has no record of the start that its commits name, either
    damage, start = store_integrity.check(store_files.at(tmp_path / "store")).damages
    assert damage.place == f"commits/{commit_segments.LENGTH}.json"
    assert "make it again from its segment (docs/operations.md)" in damage.remedy
    (command,) = [words for words in commands() if words.startswith("python")]
    _, *words = shlex.split(command)
    subprocess.run([sys.executable, *words], check=True)
    assert store_integrity.check(store_files.at(tmp_path / "store")).damages == [start]


def commit(epoch: int, partitions: int, outputs: int) -> dict[str, Any]:
    """A commit record with one epoch of so many partitions, and so many output files, of 8 to 16
    rows each."""
    digest, by_chance = f"{epoch * 0x9E3779B97F4A7C15 % 2**64:016x}", random.Random(epoch)
    names = [f"{part}-{epoch:09d}.parquet" for part in range(outputs)]
    return {
        "generation": 3,
        "at": 1_700_000_000.123456 + epoch + by_chance.random() / 5,
        "plan_epoch": 7,
        "finished": {f"hourly-count/{n}": [epoch, epoch, [digest]] for n in range(partitions)},
        "outputs": [
            [f"busiest-hour/{number}", epoch, by_chance.randint(8, 16), name, digest]
            for number, name in enumerate(names)
        ],
    }


@pytest.mark.parametrize(("partitions", "outputs"), [(6, 4), (60, 30), (200, 10)])
def test_a_commit_record_has_the_bytes_that_the_formula_says(partitions: int, outputs: int) -> None:
    match = re.search(r"(\d+) \+ (\d+) \*P\* \+ (\d+) \*Q\* for each \|", PAGE.read_text())
    assert match is not None
    formula = int(match[1]) + int(match[2]) * partitions + int(match[3]) * outputs
    record = record_format.encode("commit", commit(100_000, partitions, outputs))
    assert len(record) == pytest.approx(formula, rel=0.05)


@pytest.mark.parametrize(("partitions", "outputs"), [(60, 30), (200, 10), (60, 60)])
def test_a_record_in_a_segment_has_the_bytes_that_the_formula_says(
    partitions: int, outputs: int
) -> None:
    match = re.search(r"(\d+) \+ ([\d.]+) \*P\* \+ ([\d.]+) \*Q\* for each epoch", PAGE.read_text())
    assert match is not None
    formula = int(match[1]) + float(match[2]) * partitions + float(match[3]) * outputs
    epochs = range(100_000, 100_000 + commit_segments.LENGTH)
    packed = commit_segments.pack([commit(epoch, partitions, outputs) for epoch in epochs])
    assert len(packed) / commit_segments.LENGTH == pytest.approx(formula, rel=0.15)


def output(epoch: int) -> pa.Table:
    """Twelve rows of four columns, others in each epoch."""
    numbers = [epoch * 12 + number for number in range(12)]
    return pa.table(
        {
            "carrier": [f"c{number % 12}" for number in numbers],
            "hour": pa.array([3_600_000_000 * number for number in numbers], pa.timestamp("us")),
            "n": pa.array([number * 0x9E3779B1 % 10_007 for number in numbers], pa.int64()),
            "mean": [number * 0x9E3779B1 % 1_009 / 7 for number in numbers],
        }
    )


def test_output_has_the_bytes_that_the_page_says_single_and_put_together() -> None:
    text = PAGE.read_text()
    told = re.search(r"([\d,]+)\s+bytes\s+a\s+file,\s+and\s+([\d,]+)\s+put\s+together", text)
    assert told is not None
    single, together = (int(number.replace(",", "")) for number in told.groups())
    store = MemoryFiles()
    outputs = SinkFiles(store)
    outputs.write("hourly", "0-000000001.parquet", output(1))
    (content,) = outputs.unfinished.values()
    assert len(content) == pytest.approx(single, rel=0.15)
    packer = RowPacker(store, str)
    for epoch in range(commit_segments.LENGTH):
        packer.add([output(epoch)])
    (packed,) = packer.finish()
    assert packed.bytes / commit_segments.LENGTH == pytest.approx(together, rel=0.15)
    per_day = 86_400 * 30 * together
    assert f"| {per_day / 1e9:.2f} GB | {30 * per_day / 1e9:.1f} GB |" in text
    assert f"| {1_000 * 30 * single / 1e6:.0f} MB, 30,000 files |" in text


def test_the_commit_log_has_the_bytes_that_the_table_says() -> None:
    log, text = 86_400 * (3 + 0.17 * 60 + 1.7 * 30), PAGE.read_text()
    assert f"| {log / 1e6:.1f} MB | {30 * log / 1e9:.2f} GB |" in text
    single = 1_000 * (195 + 55 * 60 + 71 * 30)
    assert f"| {single / 1e6:.1f} MB, 1,000 files |" in text
