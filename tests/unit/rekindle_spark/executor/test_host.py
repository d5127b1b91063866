"""The host, without Spark: it answers every request, keeps versions, and never raises."""

import json
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from host_world import COUNTS, ROWS, SCHEMA, Desk, Numbers, digests
from pyspark import cloudpickle

from rekindle.model.errors import RunError
from rekindle_spark.executor import frames, host, host_scheduler, partition
from rekindle_spark.executor.host import Host
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline

# the process beside a host does not know this module
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "store")


def refuse_ninth(table: pa.Table) -> pa.Table:
    if any(at.second == 9 for at in table["at"].to_pylist()):
        raise ValueError("the ninth second")
    return table


def ask_for_each(table: pa.Table) -> pa.Table:
    return refuse_ninth(table) if "SERVICE_AWAY" in os.environ else table


def divide(begin: int, end: int) -> float:
    return begin / (end - end)


def test_an_answer_says_who_gave_it_and_what_every_partition_did(desk: Desk) -> None:
    report, blocks = desk.ask(ROWS, 1, 2)
    assert (report["status"], report["executor"], report["host"]) == ("ok", "7", os.getpid())
    epochs = report["partitions"]["0"]["epochs"]
    assert [(epoch, rows, late) for epoch, rows, *_, late in epochs] == [(1, 10, 0), (2, 10, 0)]
    assert [(target, len(parts)) for target, parts in blocks] == [(COUNTS, 2)]
    assert set(report["cpu"]) == {"work", "processes"}


def test_epochs_one_by_one_or_in_one_piece_give_the_same_digests(tmp_path: Path) -> None:
    single, whole = Desk(tmp_path / "single"), Desk(tmp_path / "whole")
    one_by_one = [single.count_rows(epoch, epoch) for epoch in range(1, 6)]
    assert [sum_ for outcome in one_by_one for sum_ in digests(outcome)] == digests(
        whole.count_rows(1, 5)
    )


def test_an_epoch_that_is_run_again_starts_from_the_version_before_it(desk: Desk) -> None:
    desk.count_rows(1, 3)
    first = digests(desk.count_rows(4, 4, finished=3))
    assert digests(desk.count_rows(4, 4, finished=3)) == first
    assert digests(desk.count_rows(4, 5, finished=3))[0] == first[0]


def test_versions_before_the_finished_one_are_forgotten(desk: Desk) -> None:
    for epoch in range(1, 9):
        desk.count_rows(epoch, epoch)
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [7, 8]


def test_what_another_executor_holds_by_a_newer_plan_is_forgotten(desk: Desk) -> None:
    desk.count_rows(1, 3)
    desk.ask(ROWS, 4, 4, plan_epoch=2, held=[ROWS])
    assert COUNTS not in desk.host.versions
    assert desk.count_rows(4, 4, plan_epoch=3)["status"] == "missing"


def test_a_request_of_an_older_plan_that_comes_late_makes_nothing_forgotten(desk: Desk) -> None:
    desk.count_rows(1, 3, plan_epoch=2)
    desk.ask(ROWS, 1, 1, plan_epoch=1, held=[ROWS])
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [0, 3]


def test_a_request_of_before_a_move_that_comes_late_makes_nothing_forgotten(desk: Desk) -> None:
    desk.count_rows(1, 3, moved_at=3)
    desk.ask(ROWS, 1, 1, held=[ROWS])
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [0, 3]
    desk.ask(ROWS, 1, 1, held=[ROWS], moved_at=4)
    assert COUNTS not in desk.host.versions


def test_what_an_older_job_comes_to_too_late_is_refused(desk: Desk) -> None:
    desk.count_rows(1, 3, attempt=2)
    outcome = desk.count_rows(1, 4, attempt=1)
    assert (outcome["status"], outcome["text"]) == (
        "refused",
        "plan and job (1, 1) came after (1, 2)",
    )
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [0, 3]


def test_a_partition_that_a_newer_plan_takes_away_while_it_runs_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.count_rows(1, 1)
    copy = desk.host.programs[desk.named_program[2]]
    process = copy.chains[COUNTS].root.function.process

    def overtaken(_: Any, *arguments: Any) -> Any:
        desk.host.versions.clear()  # what a request of a newer plan does on another thread
        return process(*arguments)

    received = desk.read_rows(2, 2)
    monkeypatch.setattr(type(copy.chains[COUNTS].root.function), "process", overtaken)
    report, blocks = desk.ask(COUNTS, 2, 2, received)
    outcome = report["partitions"][str(COUNTS)]
    assert outcome == {"status": "refused", "text": "plan 1 or its job was replaced while it ran"}
    assert blocks == []


def test_what_a_newer_job_repeats_while_it_runs_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.count_rows(1, 1)
    copy = desk.host.programs[desk.named_program[2]]
    function = copy.chains[COUNTS].root.function
    process, received = function.process, desk.read_rows(2, 2)

    def overtaken(_: Any, *arguments: Any) -> Any:
        desk.host.versions[COUNTS].newest = (1, 2)  # the repeat begins on another thread
        return process(*arguments)

    monkeypatch.setattr(type(function), "process", overtaken)
    report, _ = desk.ask(COUNTS, 2, 2, received)
    assert report["partitions"][str(COUNTS)]["status"] == "refused"
    assert 2 not in desk.host.versions[COUNTS].by_epoch


def test_a_version_that_is_not_here_is_answered_as_missing(desk: Desk) -> None:
    outcome = desk.count_rows(5, 5)
    assert outcome == {"status": "missing", "text": "no version 4 of counts/0"}
    assert desk.count_rows(1, 1)["status"] == "ok"


def test_an_incomplete_input_leaves_the_state_as_it_was(desk: Desk) -> None:
    desk.count_rows(1, 2)
    report, blocks = desk.ask(COUNTS, 3, 3)
    assert report["partitions"]["1"]["status"] == "incomplete"
    assert "no frame of rows/0 in epoch 3" in report["partitions"]["1"]["text"]
    assert blocks == []
    assert digests(desk.count_rows(3, 3))


def test_a_piece_that_breaks_off_counts_for_nothing(desk: Desk) -> None:
    whole = digests(Desk(desk.directory.with_name("whole")).count_rows(1, 3))
    report, blocks = desk.ask(COUNTS, 1, 3, desk.read_rows(1, 2))
    assert report["partitions"]["1"]["status"] == "incomplete"
    assert blocks == []
    assert digests(desk.count_rows(1, 3)) == whole


def test_an_older_plan_is_refused(desk: Desk) -> None:
    desk.count_rows(1, 1, plan_epoch=3)
    outcome = desk.count_rows(2, 2, plan_epoch=2)
    assert outcome == {"status": "refused", "text": "plan and job (2, 1) came after (3, 1)"}
    assert desk.count_rows(2, 2, plan_epoch=4)["status"] == "ok"


def test_an_older_driver_is_refused_and_a_newer_one_starts_without_state(desk: Desk) -> None:
    desk.count_rows(1, 1)
    assert desk.count_rows(2, 2, generation=1)["status"] == "ok"
    report, _ = desk.ask(ROWS, 1, 1, generation=2)
    assert report["status"] == "ok"
    report, blocks = desk.ask(ROWS, 2, 2, generation=1)
    assert (report["status"], report["text"]) == ("refused", "generation 1 came after 2")
    assert (report["partitions"], blocks) == ({}, [])
    report, _ = desk.ask(COUNTS, 3, 3, generation=2)
    assert report["partitions"]["1"]["status"] == "missing"


def test_a_wrong_function_is_answered_with_step_and_remedy(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.ask(ROWS, 1, 1)
    copy = desk.host.programs[desk.named_program[2]]
    monkeypatch.setattr(copy.chains[ROWS].root.function, "read", divide, raising=False)
    report, blocks = desk.ask(ROWS, 1, 1)
    fault = report["partitions"]["0"]
    assert fault["status"] == "error"
    assert fault["where"] == "step rows"
    assert fault["what"].startswith("raised ZeroDivisionError: ")
    assert fault["remedy"]
    assert blocks == []


def test_dead_letters_are_a_file_beside_those_of_queries(tmp_path: Path) -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers())
    rows.map("checked", refuse_ninth, schema=SCHEMA, dead_letters=True).sink("out")
    desk = Desk(tmp_path, program=program.build(pipeline))
    desk.store.make_outputs(desk.program.chains[0].outputs)
    report, _ = desk.ask(ROWS, 1, 2)
    outcome = report["partitions"]["0"]
    first, second = outcome["epochs"]
    assert first[3]["checked.dead-letters"][:2] == [1, "0-000000001-1-1-1.parquet"]
    assert second[3].keys() == {"out"}
    path = tmp_path / "outputs" / "checked.dead-letters" / "0-000000001-1-1-1.parquet"
    letters = pq.read_table(path)
    assert letters["dead_letter_error"].to_pylist() == ["raised ValueError: the ninth second"]
    left, _ = first[5]["checked"]
    assert (tuple(left), len(second)) == ((9, 10), 5)

    written = path.read_bytes()
    choices = {"1": first[5], "2": {"checked": [[], []]}}
    repeat, _ = desk.ask(ROWS, 1, 2, choices=choices)
    assert digests(repeat["partitions"]["0"]) == digests(outcome)
    assert path.read_bytes() == written, "why it was left out is known no more"


def test_a_host_that_was_given_up_does_not_replace_the_file_of_one_that_left_out_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline("numbers")
    rows = pipeline.source("rows", Numbers())
    rows.map("checked", ask_for_each, schema=SCHEMA, dead_letters=True).sink("out")
    desk = Desk(tmp_path, program=program.build(pipeline))
    desk.store.make_outputs(desk.program.chains[0].outputs)
    report, _ = desk.ask(ROWS, 1, 1, generation=2)
    count, name, _ = report["partitions"]["0"]["epochs"][0][3]["out"]
    desk.host = Host(os.getpid())  # that of the driver before, which goes on late
    monkeypatch.setenv("SERVICE_AWAY", "1")
    report, _ = desk.ask(ROWS, 1, 1, generation=1)
    assert report["partitions"]["0"]["epochs"][0][3]["out"][0] == 9
    assert (count, pq.read_table(tmp_path / "outputs" / "out" / name).num_rows) == (10, 10)


def test_an_answer_comes_when_its_files_their_names_and_its_states_are_on_disk(
    desk: Desk, flushed: list[Path]
) -> None:
    folder = desk.directory / "outputs" / "out"
    outcome = desk.count_rows(1, 4)
    names = [sinks["out"][1] for *_, sinks, _ in outcome["epochs"] if sinks]
    assert len(names) > 1
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert [path.parent for path in flushed] == [folder] * len(names) + [folder.parent]


def test_every_frame_of_an_answer_names_its_epoch(desk: Desk) -> None:
    found = list(frames.frames(memoryview(desk.read_rows(1, 3))))
    assert [(frame.producer, frame.epoch, frame.rows) for frame in found] == [
        (ROWS, 1, 3),  # one row a key: they are counted before the exchange
        (ROWS, 2, 3),
        (ROWS, 3, 3),
    ]
    assert partition.initial(desk.program.owner[COUNTS]).watermark < found[0].watermark


def test_a_damaged_frame_is_no_input_and_whose_it_is_is_told(desk: Desk) -> None:
    received = desk.read_rows(1, 3)
    second = list(frames.frames(memoryview(received)))[1]
    at = received.index(frames.raw(second)) + len(frames.raw(second)) - 1
    damaged = received[:at] + bytes([received[at] ^ 4]) + received[at + 1 :]
    report, blocks = desk.ask(COUNTS, 1, 3, damaged)
    outcome = report["partitions"][str(COUNTS)]
    assert (outcome["status"], outcome["damaged"], blocks) == ("incomplete", [ROWS, 2], [])
    assert outcome["text"] == "no frame of rows/0 in epoch 2: what was read is damaged"
    report, _ = desk.ask(COUNTS, 1, 3, received)
    assert digests(report["partitions"][str(COUNTS)])


def test_a_frame_that_is_absent_from_sound_blocks_is_not_told_as_damaged(desk: Desk) -> None:
    report, _ = desk.ask(COUNTS, 1, 3, desk.read_rows(1, 2))
    assert "damaged" not in report["partitions"][str(COUNTS)]


def test_a_store_that_is_away_is_told_and_nothing_of_the_work_counts(desk: Desk) -> None:
    away = desk.directory.with_name("away")
    received = desk.read_rows(1, 4)
    desk.directory.rename(away)
    report, blocks = desk.ask(COUNTS, 1, 4, received)
    assert (report["status"], report["partitions"], blocks) == ("store-away", {}, [])
    away.rename(desk.directory)
    report, _ = desk.ask(COUNTS, 1, 4, received)
    assert digests(report["partitions"][str(COUNTS)])
    names = [path.name for path in (desk.directory / "outputs" / "out").iterdir()]
    assert all(name.endswith(".parquet") for name in names), "nothing is left of the first try"


def test_a_state_that_cannot_be_read_as_the_store_is_away_is_not_damaged(desk: Desk) -> None:
    received = desk.read_rows(4, 4)
    desk.directory.rename(desk.directory.with_name("away"))
    report, _ = desk.ask(COUNTS, 4, 4, received, restore_point=3)
    assert report["status"] == "store-away"


def test_a_host_imports_no_graphs() -> None:
    """They are slow to import, and a node that starts takes part only after all imports."""
    code = "import sys, rekindle_spark.executor.host; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def sent(*parts: bytes) -> socket.socket:
    """The host's end of a connection whose caller has said this and no more."""
    caller, end = socket.socketpair()
    with caller:
        caller.sendall(b"".join(parts))
    return end


@pytest.mark.parametrize(("urgency", "may_serve_others"), [(0, True), (1, True), (2, False)])
def test_a_thread_that_has_yielded_for_catching_up_serves_no_other_request(
    monkeypatch: pytest.MonkeyPatch, desk: Desk, urgency: int, may_serve_others: bool
) -> None:
    yielded: list[bool] = []
    monkeypatch.setattr(host_scheduler, "yield_to_others", lambda: yielded.append(True))
    header = json.dumps({"executor": "7", "urgency": urgency}).encode()
    asked = sent(struct.pack(">i", len(header)), header, struct.pack(">q", 0))
    assert host._serve(desk.host, asked) == may_serve_others
    assert bool(yielded) != may_serve_others


@pytest.mark.parametrize("length", [0, 3, 10, 24])
def test_a_caller_that_ends_before_its_request_is_whole_is_no_error(
    desk: Desk, length: int
) -> None:
    header = json.dumps({"executor": "7"}).encode()
    whole = struct.pack(">i", len(header)) + header + struct.pack(">q", 0)
    assert host._serve(desk.host, sent(whole[:length]))


def test_a_host_refuses_what_the_one_before_died_on_until_it_is_to_run_apart(desk: Desk) -> None:
    wanted = digests(Desk(desk.directory).count_rows(1, 1))
    desk.host.runner.beware([ROWS, COUNTS])
    desk.host.runner.check(ROWS, {"apart": {"searches": True, "seconds_max": 60.0}})
    refused = desk.count_rows(1, 1)
    assert refused["status"] == "refused"
    assert "the host before died" in refused["text"]
    apart = {"searches": True, "seconds_max": 60.0}
    outcome = desk.count_rows(1, 1, apart=apart)
    assert digests(outcome) == wanted
    assert outcome["deaths"] == 0
    # its state is here, and from now on it runs here too
    assert len(digests(desk.count_rows(2, 2))) == 1


def name_process(table: pa.Table) -> pa.Table:
    return table.set_column(1, "key", pa.array([str(os.getpid())] * table.num_rows))


def end_in_second_9(table: pa.Table) -> pa.Table:
    if any(at.second == 9 for at in table["at"].to_pylist()):
        os._exit(9)
    return table


def mapped(function: Callable[[pa.Table], pa.Table]) -> program.Program:
    pipeline = Pipeline("numbers")
    named = pipeline.source("rows", Numbers()).map("named", function, schema=SCHEMA)
    named.sink("out")
    return program.build(pipeline)


BESIDE = {"lane": host_scheduler.SECOND, "beside": {"seconds_max": 0.0}}


def keys_written(desk: Desk, epoch: int, **header: Any) -> set[str]:
    report, _ = desk.ask(ROWS, epoch, epoch, **header)
    assert report["partitions"]["0"]["status"] == "ok", report
    tables = [pq.read_table(file) for file in (desk.directory / "outputs/out").glob("*")]
    seconds = range(epoch * 10 - 10, epoch * 10)
    rows = [row for table in tables for row in table.to_pylist()]
    return {row["key"] for row in rows if row["at"].timestamp() in seconds}


def test_functions_that_no_epoch_waits_for_run_beside_the_host_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    desk = Desk(tmp_path / "store", program=mapped(name_process))
    here = keys_written(desk, 1)
    beside = [keys_written(desk, epoch, **BESIDE) for epoch in (2, 3)]
    assert here == {str(os.getpid())}
    assert beside[0] == beside[1] != here


def test_a_function_that_ends_the_process_beside_the_host_has_died_apart(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "store", program=mapped(end_in_second_9))
    report, _ = desk.ask(ROWS, 1, 1, **BESIDE)
    died = report["partitions"]["0"]
    assert (died["status"], died["epoch"]) == ("died", 1)
    assert died["where"] == "step named"
    assert died["what"].startswith("ended its process with exit code 9, at epoch 1 of rows/0, in ")
    report, _ = desk.ask(ROWS, 2, 2, **BESIDE)
    assert report["partitions"]["0"]["status"] == "ok", "others go on in a new one"


class Planted:
    """What somebody else has put into the store: loading it runs code."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_program_that_the_driver_has_not_written_is_refused_and_not_loaded(
    desk: Desk, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    (desk.directory / "program").write_bytes(pickle.dumps(Planted(mark)))
    report, blocks = desk.ask(ROWS, 1, 1)
    assert (report["status"], blocks) == ("refused", [])
    assert "is not the program that the driver has written there" in report["text"]
    assert not mark.exists()
    (desk.directory / "program").write_bytes(desk.pickled)
    report, _ = desk.ask(ROWS, 1, 1)
    assert report["status"] == "ok"


def test_a_trial_gets_no_program_that_the_driver_has_not_written(desk: Desk) -> None:
    report, _ = desk.ask(ROWS, 1, 1)
    assert report["status"] == "ok"  # the program is loaded, and is asked for again for a trial
    (desk.directory / "program").write_bytes(b"another")
    request = {"program": desk.named_program, "store": str(desk.directory)}
    with pytest.raises(RunError, match="SHA-256"):
        desk.host.runner._pickled(request)
