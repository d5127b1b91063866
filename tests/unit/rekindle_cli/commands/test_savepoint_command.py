"""The command `rekindle savepoint`, where no driver takes the savepoint."""

import time
from pathlib import Path

import pytest

from rekindle.model.errors import RunError
from rekindle_cli.commands import savepoint
from rekindle_spark.store.checkpoint_store import SAVEPOINT_REQUEST, CheckpointStore


def test_a_savepoint_that_nobody_waits_for_any_more_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CheckpointStore(tmp_path).open(1.0)
    asked: list[bool] = []
    monkeypatch.setattr(
        time, "sleep", lambda _: asked.append((tmp_path / SAVEPOINT_REQUEST).exists())
    )
    with pytest.raises(RunError, match="got no savepoint within 1 s"):
        savepoint.savepoint(str(tmp_path), wait_seconds=1.0)
    assert set(asked) == {True}
    assert not (tmp_path / SAVEPOINT_REQUEST).exists()
