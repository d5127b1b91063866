"""Stores with output for tests of readers: as a driver and its hosts write them."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from rekindle_spark.output.sink_files import SinkFiles
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import store_files

QUERIES = ("hourly", "busiest", "checked.dead-letters")


class Writer:
    """A driver of a store that commits one epoch after the other."""

    def __init__(self, place: Path | str, outputs: tuple[str, ...] = QUERIES) -> None:
        self.place = place
        self.store = CheckpointStore(place)
        self.store.open(1_700_000_000.0, outputs)
        self.store.make_outputs(outputs or QUERIES)

    def put(self, query: str, partition: int, epoch: int, table: pa.Table) -> list[Any]:
        """Write an output file; what a commit record says of it."""
        name = f"{partition}-{epoch:09d}.parquet"
        outputs = SinkFiles(store_files.at(self.place))
        outputs.write(query, name, table)
        outputs.put_in_place()
        return [f"{query}/{partition}", epoch, table.num_rows, name, "0" * 16]

    def commit(self, *outputs: list[Any]) -> None:
        """Make output files count."""
        at = 1_700_000_000.0 + self.store.commits
        self.store.commit({"at": at, "plan_epoch": 1, "finished": {}, "outputs": list(outputs)})

    def epoch(self, query: str, partition: int, epoch: int, *numbers: int) -> None:
        """Write and commit an epoch of a query partition, with a row for each number."""
        self.commit(self.put(query, partition, epoch, rows(*numbers)))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "name": [f"row {n}" for n in numbers]})
