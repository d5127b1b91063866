"""Output files of sinks: kept until a request has done all else, then put in place together.

    outputs/QUERY/INDEX-EPOCH.parquet

A repeat puts the same rows in the same place, and readers take only what a commit record names, so
nothing here asks whether a file is there already. The driver makes the folders; hosts write the
files and report them when they are in the store.
"""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle_spark.files import Files

__all__ = ["Outputs"]


@dataclass(slots=True)
class Outputs:
    """The files of one request, for the folder `outputs` of the store."""

    files: Files
    unfinished: dict[str, bytes] = field(default_factory=dict)

    def write(self, query: str, name: str, table: pa.Table) -> None:
        """Make one file, not in the store yet."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.unfinished[f"outputs/{query}/{name}"] = sink.getvalue().to_pybytes()

    def put_in_place(self) -> None:
        """Put all files into the store; when this returns, they are there for good."""
        if self.unfinished:
            self.files.put(self.unfinished)
