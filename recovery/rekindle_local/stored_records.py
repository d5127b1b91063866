"""The records of a checkpoint store in a folder, for checks; a driver may be running.

Imports nothing of the runtime: what checks it reads with this. Commit records are listed by
`rekindle_store.commit_log`, as for all readers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rekindle.model import record_format
from rekindle_store import commit_log, output_rows, store_files
from rekindle_store.compacted_outputs import Places
from rekindle_store.output_rows import CommittedOutput, OutputRows


def commits(store: Path) -> list[dict[str, Any]]:
    """The commit log, in order; empty where no driver has started."""
    if not (store / "commits").is_dir():
        return []
    return [record for _, record in commit_log.commits(store_files.at(store))]


def outputs(store: Path) -> Iterator[CommittedOutput]:
    """All output that counts, as often as a record names it, and where it is now."""
    if (store / "commits").is_dir():
        yield from output_rows.outputs(store_files.at(store))


def tables(store: Path) -> Iterator[tuple[CommittedOutput, pa.Table]]:
    """The same, with its rows."""
    place = store_files.at(store)
    rows = OutputRows(place, Places(place))
    for output in outputs(store):
        yield output, rows.table(output.commit, output.named, output.rows)


def newest_cut(store: Path) -> dict[str, Any] | None:
    """The newest record of the offset log; None where there is none yet."""
    paths = sorted((store / "offsets").glob("[0-9]*.json"), key=lambda path: int(path.stem))
    if not paths:
        return None
    return record_format.decode("offsets", paths[-1].read_bytes(), f"offsets/{paths[-1].name}")
