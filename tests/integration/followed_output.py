"""Output as readers have it while an application runs: followed by the command, or read whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from application import Application, compare

import rekindle
from rekindle_local import process_sets, stored_records

MOMENT = "%Y-%m-%dT%H:%M:%S%.f"
LIMIT_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Followed:
    """What `rekindle output --follow` writes of a query with a column `event_time`: JSON lines."""

    query: str
    file: Path

    @property
    def lines(self) -> int:
        """Rows written so far."""
        return self.file.read_bytes().count(b"\n")

    def assert_all(self, application: Application) -> None:
        """Soon every committed row is there, once, and nothing else."""
        rows = application.outputs()[self.query]
        assert process_sets.await_condition(
            lambda: self.lines >= rows.height, limit_seconds=LIMIT_SECONDS
        )
        moments = pl.col("event_time").str.to_datetime(MOMENT, time_unit="us")
        compare(self.query, pl.read_ndjson(self.file).with_columns(moments), rows)


@contextmanager
def followed(application: Application, query: str, file: Path) -> Iterator[Followed]:
    """A query's rows go to a file, until the command is interrupted, which it takes in silence."""
    command = [sys.executable, "-m", "rekindle_cli", "output", str(application.store), query]
    errors = file.with_suffix(".errors")
    with file.open("wb") as output, errors.open("wb") as trouble:
        running = subprocess.Popen(
            [*command, "--follow", "--format", "json"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=output,
            stderr=trouble,
        )
    try:
        yield Followed(query, file)
        assert running.poll() is None, errors.read_text()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=LIMIT_SECONDS) == 130
        assert errors.read_text() == ""
    finally:
        running.kill()
        running.wait()


def assert_read_as_committed(application: Application) -> None:
    """The functions for readers give all that is committed, and name each file that counts once."""
    for query, rows in application.outputs().items():
        output = rekindle.read(application.store, query)
        compare(query, output.polars(), rows)
        assert sum(file.rows for file in output.files(version=2)) == rows.height
    listed = rekindle.committed_files(application.store, version=2)
    counted = [(Path(file.path), file.first_row) for file in listed]
    records = stored_records.commits(application.store)
    assert len(counted) == len(set(counted)) == sum(len(record["outputs"]) for record in records)
    assert all(path.is_file() for path, _ in counted)
