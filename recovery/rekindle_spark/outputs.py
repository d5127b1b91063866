"""Output files of sinks: written aside, put on disk, and only then under their names.

    outputs/QUERY/INDEX-EPOCH.parquet

A repeat puts the same rows in the same place, and readers take only what a commit record names, so
nothing here asks whether a file is there already. The driver makes the folders; hosts write the
files and report them when they are on disk.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle_spark import disk

__all__ = ["Outputs"]


@dataclass(slots=True)
class Outputs:
    """The files of one request, below the folder `outputs` of the store."""

    folder: Path
    unfinished: list[tuple[Path, Path]] = field(default_factory=list)

    def write(self, query: str, name: str, table: pa.Table) -> None:
        """Write one file aside."""
        path = self.folder / query / name
        aside = disk.aside(path)
        self.unfinished.append((aside, path))
        pq.write_table(table, aside, compression="zstd")

    def put_in_place(self) -> None:
        """Give all files their names; when this returns, files and names are on disk.

        A file is on disk before it gets its name: it may take the place of one that counts.
        """
        for aside, _ in self.unfinished:
            disk.flush(aside)
        for aside, path in self.unfinished:
            aside.replace(path)
        for folder in sorted({path.parent for _, path in self.unfinished}):
            disk.flush(folder)
        self.unfinished.clear()

    def drop(self) -> None:
        """Remove what was written aside and is not wanted any more."""
        for aside, _ in self.unfinished:
            with suppress(OSError):
                aside.unlink()
        self.unfinished.clear()
