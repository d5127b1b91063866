"""Stores for tests: with offsets and checkpoints that name few partitions."""

from pathlib import Path
from typing import Any

from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import commit_log

CUT = {"cut_at": 1.0, "offsets": {"rows": [0, 5]}, "watermark": 3, "rows_per_second": 1.0}
FINISHED: dict[str, Any] = {"at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": []}


def cut(end: int) -> dict[str, Any]:
    return {**CUT, "offsets": {"rows": [0, end]}, "final": False}


def states(*names: str) -> dict[str, Any]:
    """A checkpoint's record with the states of some partitions."""
    return {"program": "abc", "bytes": dict.fromkeys(names, 5)}


def opened(directory: Path) -> CheckpointStore:
    store = CheckpointStore(directory)
    store.open(10.0)
    return store


def with_states(directory: Path, *epochs: int) -> CheckpointStore:
    """A store with offsets of these epochs, and with folders of two states each."""
    store = opened(directory)
    for epoch in epochs:
        store.log_offsets(epoch, cut(epoch))
        store.begin_checkpoint(epoch)
        for name in ("rows-0.state", "counts-0.state"):
            (directory / "checkpoints" / str(epoch) / name).write_text("state")
    return store


def logged(store: CheckpointStore) -> list[dict[str, Any]]:
    """The commit log."""
    return [record for _, record in commit_log.commits(store.files)]


def kept(directory: Path) -> list[str]:
    """The files below the folder of checkpoints."""
    folder = directory / "checkpoints"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
