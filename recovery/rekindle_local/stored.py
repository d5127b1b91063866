"""The records of a checkpoint store, as any reader of one sees them; a driver may be running.

Imports nothing of the runtime: what checks it reads with this.
"""

from pathlib import Path
from typing import Any

from rekindle import records

__all__ = ["commits", "newest_cut"]


def commits(store: Path) -> list[dict[str, Any]]:
    """The commit log, in order."""
    return [_read(path, "commit") for path in _paths(store / "commits")]


def newest_cut(store: Path) -> dict[str, Any] | None:
    """The newest record of the offset log; None where there is none yet."""
    paths = _paths(store / "offsets")
    return _read(paths[-1], "offsets") if paths else None


def _paths(folder: Path) -> list[Path]:
    """Files of records, in order: those that are being made have other names."""
    return sorted(folder.glob("[0-9]*.json"), key=lambda path: int(path.stem))


def _read(path: Path, kind: str) -> dict[str, Any]:
    return records.decode(kind, path.read_bytes(), f"{path.parent.name}/{path.name}")
