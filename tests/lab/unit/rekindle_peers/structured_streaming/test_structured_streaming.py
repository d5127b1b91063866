"""What a run of Structured Streaming leaves, read: batches, their times, their output files."""

import json
import os
import time
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from rekindle_cli import command_line
from rekindle_local.flights import flight_data, row_arrivals
from rekindle_peers.structured_streaming import committed_batches, streaming_queries
from rekindle_peers.structured_streaming.__main__ import run_flights

QUERY = "late"


def write_batch(store: Path, number: int, offsets: list[tuple[int, bool]], *files: str) -> None:
    """The files that Spark writes for a batch, in its order; a compact log as every tenth is."""
    folder = store / "checkpoints" / QUERY
    sink = store / "outputs" / QUERY / "_spark_metadata"
    for place in (folder / "offsets", folder / "commits", sink):
        place.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"rows": rows, "last": last}) for rows, last in offsets]
    (folder / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))
    entries = [json.dumps({"path": f"file:///elsewhere/{name}"}) for name in files]
    name = f"{number}.compact" if number % 10 == 9 else str(number)
    (sink / name).write_text("\n".join(["v1", *entries]))
    (folder / "commits" / str(number)).write_text("v1\n{}")


def test_a_batch_reflects_what_all_of_its_sources_have_read(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [(10, False), (12, False)])
    write_batch(tmp_path, 1, [(20, True), (20, False)])
    write_batch(tmp_path, 2, [(20, True), (20, True)])
    found = list(committed_batches.committed(tmp_path, QUERY, 0))
    assert [(batch.number, batch.rows, batch.last) for batch in found] == [
        (0, 10, False),
        (1, 20, False),
        (2, 20, True),
    ]


def test_a_batch_that_only_closes_windows_took_no_input(tmp_path: Path) -> None:
    for number, rows in enumerate((10, 10, 20)):
        write_batch(tmp_path, number, [(rows, False)])
    found = committed_batches.committed(tmp_path, QUERY, 0)
    assert [batch.fresh for batch in found] == [True, False, True]


def test_a_batch_that_is_not_committed_is_not_there_yet(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [(10, False)])
    write_batch(tmp_path, 1, [(20, False)])
    (tmp_path / "checkpoints" / QUERY / "commits" / "1").unlink()
    assert [batch.number for batch in committed_batches.committed(tmp_path, QUERY, 0)] == [0]
    assert list(committed_batches.committed(tmp_path, QUERY, 1)) == []


def test_a_batch_counts_from_the_moment_at_which_its_files_were_named(tmp_path: Path) -> None:
    before = time.time() - 0.1
    write_batch(tmp_path, 0, [(10, False)])
    # The moment at which it was written first is not the one at which it was there.
    os.utime(tmp_path / "outputs" / QUERY / "_spark_metadata" / "0", (1.0, 1.0))
    (batch,) = committed_batches.committed(tmp_path, QUERY, 0)
    assert before <= batch.planned_at <= batch.committed_at <= time.time()


def test_each_output_file_belongs_to_the_batch_that_named_it_first(tmp_path: Path) -> None:
    for number in range(9):
        write_batch(tmp_path, number, [(number, False)], f"part-{number}")
    every = [f"part-{number}" for number in range(11)]
    write_batch(tmp_path, 9, [(9, False)], *every)
    folder = tmp_path / "outputs" / QUERY
    (folder / "part-77").touch()  # of an attempt that failed
    expected = [*enumerate(every[:9]), (9, every[9]), (9, every[10])]
    found = [
        (number, path.name) for number, path in committed_batches.output_files(tmp_path, QUERY)
    ]
    assert found == expected
    assert {path.parent for _, path in committed_batches.output_files(tmp_path, QUERY)} == {folder}


def test_a_batch_of_a_shared_stream_counts_for_all_of_its_queries_once_it_is_committed(
    tmp_path: Path,
) -> None:
    shared = committed_batches.stream_name([QUERY, "early"])
    folder = tmp_path / "checkpoints" / shared
    for place in (folder / "offsets", folder / "commits"):
        place.mkdir(parents=True)
    for number in range(2):
        (folder / "offsets" / str(number)).write_text(
            "\n".join(["v1", "{}", json.dumps({"rows": 10 * (number + 1), "last": False})])
        )
        for query in (QUERY, "early"):
            place = committed_batches.batch_folder(tmp_path, query, number)
            place.mkdir(parents=True)
            (place / "part-0.parquet").touch()
    (folder / "commits" / "0").write_text("v1\n{}")
    for query in (QUERY, "early"):
        (batch,) = committed_batches.committed(tmp_path, query, 0)
        assert (batch.query, batch.number, batch.rows) == (query, 0, 10)
        expected = committed_batches.batch_folder(tmp_path, query, 0) / "part-0.parquet"
        assert list(committed_batches.output_files(tmp_path, query)) == [(0, expected)]


def test_a_store_goes_on_with_the_streams_that_it_has_begun_with(tmp_path: Path) -> None:
    committed_batches.check_streams(tmp_path, [QUERY])
    shared = committed_batches.stream_name([QUERY, "early"])
    (tmp_path / "checkpoints" / shared).mkdir(parents=True)
    committed_batches.check_streams(tmp_path, [shared, "other"])
    with pytest.raises(InputError, match=r"late in the stream late\+early, not in late;"):
        committed_batches.check_streams(tmp_path, [QUERY])


def test_a_query_is_in_one_shared_stream_at_most() -> None:
    names = [name for shared in streaming_queries.SHARED for name in shared.queries]
    assert len(names) == len(set(names))
    assert set(names) <= set(streaming_queries.QUERIES)
    assert all(len(shared.queries) > 1 for shared in streaming_queries.SHARED)


def test_rows_arrive_in_order_of_event_time_and_a_run_keeps_its_clock(tmp_path: Path) -> None:
    files = flight_data.prepare(tmp_path / "input", 1 / flight_data.DAYS_OF_YEAR)["files"]
    store = tmp_path / "store"
    began = row_arrivals.open_arrivals(tmp_path / "input", store, 100.0, 1000.0)
    assert row_arrivals.open_arrivals(tmp_path / "input", store, 50.0, 2000.0) == began
    assert (began.rows_at(1002.0), began.rows_at(900.0), began.moment_of(200)) == (200, 0, 1002.0)
    total = sum(file["rows"] for file in files.values())
    (store / "end").write_text(str(2 * total))
    assert row_arrivals.rows_read(store) == {name: 2 * file["rows"] for name, file in files.items()}
    # The year begins at midnight: the first rows are hours of weather, before any flight.
    (store / "end").write_text("3")
    assert row_arrivals.rows_read(store) == dict.fromkeys(flight_data.SOURCES, 0) | {"weather": 3}


def test_a_folder_without_prepared_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"flights_ewr\.parquet: is not there or is not a file"):
        row_arrivals.open_arrivals(tmp_path, tmp_path / "store", 1.0, 0.0)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows-per-second", "0"], "--rows-per-second: is 0.0; give a number from 1 to"),
        (["--rows-per-second", "9", "--queries", "any"], "--queries: is 'any'; choose ewr-"),
        (["--rows-per-second", "9"], "is not there or is not a file of prepared flights"),
        (
            ["--rows-per-second", "9", "--sidecar", "s", "--shared"],
            "--shared: is given beside --sidecar",
        ),
        (
            ["--rows-per-second", "9", "--sidecar", "s", "--priorities", "airport-days"],
            "--priorities: is 'airport-days'; give them as in A=9,B=5",
        ),
    ],
)
def test_the_program_says_in_one_line_what_is_wrong(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(tmp_path / "input"), "--store", str(tmp_path / "store"), *arguments]
    assert command_line.run_alone(run_flights, line) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "store").exists()
