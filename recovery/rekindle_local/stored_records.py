"""The records of a checkpoint store in a folder, for checks; a driver may be running.

Imports nothing of the runtime: what checks it reads with this. Commit records are listed by
`rekindle_store.commit_log`, as for all readers.
"""

from pathlib import Path
from typing import Any

from rekindle.model import record_format
from rekindle_store import commit_log, store_files


def commits(store: Path) -> list[dict[str, Any]]:
    """The commit log, in order; empty where no driver has started."""
    if not (store / "commits").is_dir():
        return []
    return [record for _, record in commit_log.commits(store_files.at(store))]


def newest_cut(store: Path) -> dict[str, Any] | None:
    """The newest record of the offset log; None where there is none yet."""
    paths = sorted((store / "offsets").glob("[0-9]*.json"), key=lambda path: int(path.stem))
    if not paths:
        return None
    return record_format.decode("offsets", paths[-1].read_bytes(), f"offsets/{paths[-1].name}")
