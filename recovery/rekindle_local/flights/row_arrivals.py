"""When rows come in for the systems that Rekindle is compared with: one clock, one order, one rate.

All streams of a run share them, and they lie in the run's store. So what came in while nobody read
is waiting afterwards, and a number of rows of all files together says when the newest of them came
in. Called by `structured_streaming` and `flink`, whose sources are Java.

    start.json arrivals   the clock and the rate; the number of the file of each row of a lap
    end                   after how many rows of all files the input ends
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from rekindle.model.errors import InputError
from rekindle_local.flights import flight_data

VERSION = 1


@dataclass(frozen=True, slots=True)
class RowClock:
    """When rows come in: the first at `started_at` (seconds since 1970), then at this rate."""

    started_at: float
    rows_per_second: float

    def rows_at(self, moment: float) -> int:
        """How many rows have come in."""
        return max(0, int((moment - self.started_at) * self.rows_per_second))

    def moment_of(self, rows: int) -> float:
        """When so many rows had come in."""
        return self.started_at + rows / self.rows_per_second


def open_arrivals(directory: Path, store: Path, rows_per_second: float, now: float) -> RowClock:
    """The arrivals of a run, which begin now unless the store has them already.

    Raises InputError when an input file is missing or was not prepared.
    """
    path = store / "start.json"
    if not path.exists():
        files = order(directory).tobytes()
        record = {"version": VERSION, "started_at": now, "rows_per_second": rows_per_second}
        try:
            store.mkdir(parents=True, exist_ok=True)
            write(store / "arrivals", files)
            write(path, json.dumps(record).encode())
        except OSError as error:
            raise InputError(
                where=f"--store {store}",
                what=f"cannot be written ({error.strerror})",
                remedy="name a folder that may be written",
            ) from error
    return arrivals(store)


def arrivals(store: Path) -> RowClock:
    """The arrivals of a run that has begun."""
    record = json.loads((store / "start.json").read_text())
    return RowClock(record["started_at"], record["rows_per_second"])


def end_input(store: Path, begun: RowClock, moment: float) -> None:
    """The input ends with what has come in at a moment; only the first time counts."""
    path = store / "end"
    if not path.exists():
        write(path, str(begun.rows_at(moment)).encode())


def rows_read(store: Path) -> dict[str, int]:
    """The rows of each source before the end of the input, which has been reached."""
    files = np.frombuffer((store / "arrivals").read_bytes(), dtype=np.uint8)
    laps, rest = divmod(int((store / "end").read_text()), len(files))
    sizes, counts = (
        np.bincount(part, minlength=len(flight_data.SOURCES)) for part in (files, files[:rest])
    )
    return {
        name: int(laps * size + count)
        for name, size, count in zip(flight_data.SOURCES, sizes, counts, strict=True)
    }


def order(directory: Path) -> npt.NDArray[np.uint8]:
    """For each row of a lap, in order of event time, the number of its file.

    Raises InputError when an input file is missing or was not prepared.
    """
    times = []
    for name in flight_data.SOURCES:
        path = directory / flight_data.file_name(name)
        flight_data.repeat_every_seconds(path)
        times.append(pq.read_table(path, columns=["event_time"])["event_time"].to_numpy())
    files = np.repeat(np.arange(len(times), dtype=np.uint8), [len(part) for part in times])
    return files[np.argsort(np.concatenate(times), kind="stable")]


def write(path: Path, content: bytes) -> None:
    """In one step: who finds the file finds all of it."""
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_bytes(content)
    fresh.replace(path)
