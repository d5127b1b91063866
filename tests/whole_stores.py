"""Stores as a driver leaves them after a while: with segments, checkpoints, states and input.

For tests of what looks at a whole store. Segments are of `segments.LENGTH` records, which tests
make fewer.
"""

import gzip
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from output_stores import Writer, rows

from rekindle.model import record_format
from rekindle_spark.output.output_compaction import Compaction
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.segment_writer import SegmentWriter
from rekindle_store import checkpoint_records, checksummed_file, commit_segments, store_files

OUTPUTS = ("hourly", "busiest")
CUT = {"cut_at": 1.0, "watermark": 3, "rows_per_second": 1.0, "final": False}


class Driver(Writer):
    """One that runs two partitions; of `behind` it has an older state in later checkpoints."""

    def __init__(self, place: Path | str) -> None:
        super().__init__(place, OUTPUTS)
        self.store.write_program(b"program of generation %d" % self.store.generation)
        self.newest = 0

    def run(self, *epochs: int) -> None:
        """Commit epochs, each with rows of both queries."""
        for epoch in epochs:
            self.store.log_offsets(epoch, {**CUT, "offsets": {"rows": [epoch - 1, epoch]}})
            outputs = [self.put(query, 0, epoch, rows_of(epoch)) for query in OUTPUTS]
            self.store.commit(
                {
                    "at": 1_700_000_000.0 + epoch,
                    "plan_epoch": 1,
                    "finished": {
                        "rows/0": [epoch, epoch, ["d"]],
                        "counts/0": [epoch, epoch, ["d"]],
                    },
                    "outputs": outputs,
                }
            )
            self.newest = epoch

    def checkpoint(self, epoch: int = 0, *, behind: int = 0) -> None:
        """Complete one of an epoch, or of the newest; of `counts/0` with the state after epoch
        `behind` and its input since."""
        epoch = epoch or self.newest
        self.store.begin_checkpoint(epoch)
        content: dict[str, Any] = {"program": "abc", "at": 1.0, "published": None}
        content["bytes"] = {"rows/0": 5, **({} if behind else {"counts/0": 5})}
        for name in content["bytes"]:
            self._state(epoch, name, "state")
        if behind:
            self._state(epoch, "counts/0", "input")
            frames = {"rows/0": [behind + 1, epoch + 1]}
            stored = {"checkpoint": epoch, "partitions": ["counts/0"], "frames": frames}
            content |= {"older": {"counts/0": behind}, "inputs": [stored]}
        self.store.complete_checkpoint(epoch, content)

    def _state(self, epoch: int, name: str, kind: checkpoint_records.Kind) -> None:
        body = f"{kind} of {name} after epoch {epoch}".encode()
        data = checksummed_file.seal(1, {"watermark": epoch, "sizes": [len(body)]}, body)
        self.store.files.put({checkpoint_records.file_name(epoch, name, kind): data})

    def seal_segments(self, covered: int = 0) -> None:
        """Put what all checkpoints cover into segments, or up to a commit."""
        sealing = SegmentWriter(self.store.files, lambda: covered or self.store.covered)
        while sealing.advance():
            pass

    def compact(self) -> None:
        """Put output together that is in segments, and remove what that has made needless."""
        clock = itertools.count(0, 1_000)
        store = self.store
        compaction = Compaction(
            store.files,
            store.generation,
            lambda: store.settled,
            store.check_generation,
            now=lambda: float(next(clock)),
        )
        while compaction.advance():
            pass


def seal_as_before(place: Path, number: int) -> list[bytes]:
    """Make the segment that has a record as the version before did, with digests of everything;
    its lines."""
    files = store_files.at(place)
    segment = commit_segments.read(files, number)
    assert segment is not None
    lines = [record_format.encode("commit", _with_digests(one)) for _, one in segment.records()]
    (place / commit_segments.name_of(number)).write_bytes(gzip.compress(b"".join(lines), mtime=0))
    return lines


def _with_digests(record: dict[str, Any]) -> dict[str, Any]:
    return {
        **record,
        "finished": {name: [a, b, ["d"]] for name, (a, b, _) in record["finished"].items()},
        "outputs": [[*output, "e"] for *output, _ in record["outputs"]],
    }


def rows_of(epoch: int) -> pa.Table:
    """The rows of an epoch of any query."""
    return rows(*range(epoch, epoch + 3))


def whole(place: Path | str) -> Driver:
    """A store of two drivers, with two segments of four records, and a partition that is behind."""
    Driver(place).run(1, 2, 3)
    driver = Driver(place)
    driver.run(*range(4, 9))
    driver.checkpoint(7)  # of an epoch behind which others have been committed meanwhile
    driver.run(9, 10)
    driver.checkpoint(behind=7)
    driver.seal_segments()
    driver.run(11, 12)
    return driver


def all_files(place: Path) -> dict[str, bytes]:
    """What is in a store that is a folder."""
    files = (path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}


def started(place: Path | str) -> CheckpointStore:
    """The store once another driver has started on it."""
    store = CheckpointStore(place)
    store.open(5.0)
    return store


def flip_value(path: Path) -> None:
    """Change one bit of the last value of an output file's first column."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
