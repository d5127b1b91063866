"""The host's part in checkpoints: states and input that it writes, and what it restores."""

import io
from pathlib import Path
from typing import Any

import pytest
from host_world import COUNTS, ROWS, Desk, await_acknowledgements, digests

from rekindle_spark.checkpoint import state_files
from rekindle_spark.executor import host, host_answers, job_activity
from rekindle_store import checksummed_file


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "store")


def checkpointed(desk: Desk) -> Path:
    """The file of the counting partition's state after epoch 3."""
    desk.store.begin_checkpoint(3)
    desk.count_rows(1, 3, checkpoint=3)
    await_acknowledgements(desk)
    return desk.directory / "checkpoints" / "3" / "counts-0.state"


def test_a_checkpoint_is_written_aside_and_acknowledged_with_a_later_answer(desk: Desk) -> None:
    desk.count_rows(1, 2)
    desk.store.begin_checkpoint(3)
    desk.count_rows(3, 3, checkpoint=3)
    acknowledged = await_acknowledgements(desk)
    assert [(a["partition"], a["epoch"]) for a in acknowledged] == [(COUNTS, 3)]
    chain = desk.program.owner[COUNTS]
    kept = desk.host.versions[COUNTS].by_epoch[3]
    files = desk.store.files
    loaded = state_files.load(files, "checkpoints/3/counts-0.state", chain, 3)
    assert loaded.watermark == kept.watermark


def test_a_restored_state_gives_the_digests_that_the_lost_one_gave(desk: Desk) -> None:
    checkpointed(desk)
    first = digests(desk.count_rows(4, 8))
    fresh = Desk(desk.directory)
    assert digests(fresh.count_rows(4, 8, restore_point=3)) == first


def test_a_checkpoint_that_is_gone_is_an_error_with_a_remedy(desk: Desk) -> None:
    outcome = desk.count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "damaged"
    assert outcome["where"] == "checkpoints/3/counts-0.state"
    assert "restore it from a copy of the store" in outcome["remedy"]


def test_a_damaged_checkpoint_is_noticed(desk: Desk) -> None:
    path = checkpointed(desk)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    outcome = Desk(desk.directory).count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "damaged"
    assert "checksum" in outcome["what"]


def test_a_state_of_a_newer_version_is_refused_and_not_called_damaged(desk: Desk) -> None:
    path = checkpointed(desk)
    head, body = checksummed_file.check(path.name, path.read_bytes())
    newer = {name: value for name, value in head.items() if name not in ("version", "sha256")}
    path.write_bytes(checksummed_file.seal(9, newer, bytes(body)))
    outcome = Desk(desk.directory).count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "error"
    assert outcome["remedy"] == "run the version of Rekindle that wrote it"


def test_a_state_whose_version_has_changed_on_the_disk_is_damaged(desk: Desk) -> None:
    path = checkpointed(desk)
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9', 1))
    outcome = Desk(desk.directory).count_rows(4, 4, restore_point=3)
    assert outcome["status"] == "damaged"


def preserve(desk: Desk, received: bytes, **wanted: Any) -> dict[str, Any]:
    """The outcome of writing the counting partition's input with checkpoint 5."""
    item = {"partition": COUNTS, "checkpoint": 5, "frames": {str(ROWS): wanted["epochs"]}}
    report, blocks = desk.ask(ROWS, 1, 1, received, work=[], preserve=[item])
    assert blocks == []
    outcome: dict[str, Any] = report["partitions"][str(COUNTS)]
    return outcome


def test_durable_input_gives_the_digests_that_the_frames_gave(desk: Desk) -> None:
    first = digests(desk.count_rows(1, 6))
    desk.store.begin_checkpoint(5)
    outcome = preserve(desk, desk.read_rows(1, 6), epochs=[2, 6])
    path = desk.directory / "checkpoints" / "5" / "counts-0.input"
    assert outcome == {"status": "ok", "bytes": len(path.read_bytes().partition(b"\n")[2])}
    fresh = Desk(desk.directory)
    report, _ = fresh.ask(COUNTS, 1, 6, desk.read_rows(1, 1) + desk.read_rows(6, 6), inputs=[5])
    assert digests(report["partitions"][str(COUNTS)]) == first


def test_input_is_preserved_whole_or_not_at_all(desk: Desk) -> None:
    desk.store.begin_checkpoint(5)
    outcome = preserve(desk, desk.read_rows(1, 3), epochs=[2, 6])
    assert outcome["status"] == "incomplete"
    assert outcome["text"] == "no frame of rows/0 in epoch 4 to be preserved"
    assert list((desk.directory / "checkpoints" / "5").iterdir()) == []


def test_durable_input_that_is_damaged_is_noticed(desk: Desk) -> None:
    desk.store.begin_checkpoint(5)
    preserve(desk, desk.read_rows(1, 5), epochs=[1, 6])
    path = desk.directory / "checkpoints" / "5" / "counts-0.input"
    path.write_bytes(path.read_bytes()[:-1])
    report, _ = desk.ask(COUNTS, 1, 5, inputs=[5])
    outcome = report["partitions"][str(COUNTS)]
    assert (outcome["status"], outcome["where"]) == ("damaged", "checkpoints/5/counts-0.input")


def test_durable_input_is_on_disk_with_its_name_before_it_is_reported(
    desk: Desk, flushed: list[Path]
) -> None:
    desk.store.begin_checkpoint(5)
    received = desk.read_rows(1, 5)
    flushed.clear()
    preserve(desk, received, epochs=[1, 6])
    folder = desk.directory / "checkpoints" / "5"
    assert [path.parent for path in flushed] == [folder, folder.parent]


def test_a_checkpoint_that_cannot_be_written_is_reported(desk: Desk) -> None:
    desk.count_rows(1, 1, checkpoint=1)  # nobody has made its folder
    (acknowledged,) = await_acknowledgements(desk)
    assert acknowledged["failed"]


def test_a_state_is_acknowledged_when_it_and_its_name_are_on_disk(
    desk: Desk, flushed: list[Path]
) -> None:
    desk.store.begin_checkpoint(1)
    folder = desk.directory / "checkpoints" / "1"
    flushed.clear()
    desk.count_rows(1, 1, checkpoint=1)
    await_acknowledgements(desk)
    found = [path.parent for path in flushed if path.parent in (folder, folder.parent)]
    assert found == [folder, folder.parent]
    assert [path.name for path in folder.iterdir()] == ["counts-0.state"]


def test_states_written_as_changes_give_the_digests_that_the_lost_one_gave(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "SMALL_BYTES", 0)
    monkeypatch.setattr(state_files, "CHANGES_SHARE_MAX", 1e9)
    for epoch in (3, 5, 8):
        desk.store.begin_checkpoint(epoch)
    desk.count_rows(1, 3, checkpoint=3)
    await_acknowledgements(desk)
    desk.count_rows(4, 5, checkpoint=5, restore_point=3)
    desk.count_rows(6, 8, checkpoint=8, restore_point=5)
    while len(desk.acknowledged) < 3:
        await_acknowledgements(desk)
        desk.ask(ROWS, 1, 1)
    assert [done.get("base") for done in desk.acknowledged] == [None, 3, 5]
    first = digests(desk.count_rows(9, 12))
    assert digests(Desk(desk.directory).count_rows(9, 12, restore_point=8)) == first
    (desk.directory / "checkpoints" / "3" / "counts-0.state").unlink()
    outcome = Desk(desk.directory).count_rows(9, 12, restore_point=8)
    assert (outcome["status"], outcome["where"]) == ("damaged", "checkpoints/3/counts-0.state")


def test_changes_on_changes_come_to_an_end_with_a_whole_state(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "SMALL_BYTES", 0)
    monkeypatch.setattr(state_files, "CHANGES_SHARE_MAX", 1e9)
    files = state_files.FILES_MAX + 2
    for epoch in range(1, files + 1):
        desk.store.begin_checkpoint(epoch)
        desk.count_rows(epoch, epoch, checkpoint=epoch, restore_point=epoch - 1)
        while len(desk.acknowledged) < epoch:
            desk.ask(ROWS, 1, 1)
    bases = [done.get("base") for done in desk.acknowledged]
    assert bases == [None, *range(1, state_files.FILES_MAX), None, state_files.FILES_MAX + 1]


def test_a_file_builds_on_none_that_never_became_a_restore_point(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "SMALL_BYTES", 0)
    monkeypatch.setattr(state_files, "CHANGES_SHARE_MAX", 1e9)
    for epoch in (1, 2, 3):
        desk.store.begin_checkpoint(epoch)
        desk.count_rows(epoch, epoch, checkpoint=epoch, restore_point=min(epoch - 1, 1))
        while len(desk.acknowledged) < epoch:
            desk.ask(ROWS, 1, 1)
    assert [done.get("base") for done in desk.acknowledged] == [None, 1, 1]


def test_acknowledgements_of_a_report_that_cannot_be_made_are_in_the_next_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledgement = {"partition": COUNTS, "epoch": 3, "attempt": 1, "bytes": 7}
    desk.host.checkpoints.written.put(acknowledgement)
    request = {"executor": "7", "store": str(desk.directory), "program": desk.named_program}
    request |= {"generation": 1, "plan_epoch": 1, "held": [], "attempt": 1, "work": []}
    with monkeypatch.context() as patch:
        patch.setattr(host_answers, "BLOCK_BYTES_MAX", -1)
        patch.setattr(host.Host, "_run", lambda *given: given[4].blocks.update({0: [b""]}))
        assert b'"failed"' in host._answered(desk.host, request, io.BytesIO(), 0)
    report, _ = desk.host.answer(request, memoryview(b""))
    assert report["acks"] == [acknowledgement]


def test_the_thread_of_checkpoints_outlives_a_panic_in_its_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Panic(BaseException):
        pass

    def fails(*_: object) -> None:
        raise Panic("no entry")

    monkeypatch.setattr(job_activity.Activity, "entry", fails)
    writing = state_files.Writing(None, None, None, 4, 3, 1, 0, None)  # type: ignore[arg-type]
    checkpoints = state_files.Checkpoints()
    checkpoints.start()
    for _ in range(2):
        checkpoints.submit(writing)
        assert checkpoints.written.get(timeout=60)["failed"] == "raised Panic: no entry"
