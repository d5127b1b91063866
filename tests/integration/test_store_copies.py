"""A real driver's store: checked and copied while it runs, and gone on from elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from application import LASTING, Application
from object_server import BUCKET

from rekindle_cli import command_line
from rekindle_store import store_files

Prepare = Callable[..., Application]


@pytest.mark.usefixtures("server")
def test_a_copy_on_s3_made_beside_a_driver_is_restored_and_gone_on_from_and_no_row_changes(
    prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = f"s3://{BUCKET}/backup"
    application = prepare(runtime=LASTING)
    application.start_and_recover()
    first = said(capsys, "copy", application.store, backup)
    assert first["copied"]["equal"] == 0
    begin = application.seen
    application.await_event("checkpoint", after=begin)
    second = said(capsys, "copy", application.store, backup)
    assert second["copied"]["equal"] > 0, "what was there was copied again"
    assert second["checkpoint"] > first["checkpoint"]
    said(capsys, "check", application.store)
    application.driver.kill()
    committed = len(application.commits())

    restored = prepare(runtime=LASTING)
    back = said(capsys, "copy", backup, restored.store)
    assert (back["commits"], back["checkpoint"]) == (second["commits"], second["checkpoint"])
    assert back["commits"] <= committed
    assert len({one["identity"] for one in (first, back, said(capsys, "check", backup))}) == 2
    restored.start_and_recover()
    assert (
        command_line.run(command_line.application, ["store", "copy", backup, str(restored.store)])
        == 2
    )
    assert "has a driver's start of its own" in capsys.readouterr().err
    restored.finish()
    assert said(capsys, "check", restored.store)["damages"] == []
    damaged(capsys, restored.store)


def damaged(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """Each kind of file of a real store, with one bit flipped."""
    for pattern in (
        "generations/1.json",
        "generations/program-*.pickle",
        "commits/*.json",
        "outputs/*/*.parquet",
        "checkpoints/*/*.state",
        "checkpoints/*.json",
        "offsets/*.json",
    ):
        path = max(store.glob(pattern), key=lambda path: (len(str(path)), str(path)))
        sound = path.read_bytes()
        data = bytearray(sound)
        data[len(data) // 3] ^= 1
        store_files.at(store).put({path.relative_to(store).as_posix(): bytes(data)})
        found = said(capsys, "check", store, code=1)
        assert path.relative_to(store).as_posix() in [one["place"] for one in found["damages"]]
        path.write_bytes(sound)


def said(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0
) -> dict[str, Any]:
    """What `rekindle store` prints."""
    assert (
        command_line.run(command_line.application, ["store", *map(str, arguments), "--json"])
        == code
    )
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found
