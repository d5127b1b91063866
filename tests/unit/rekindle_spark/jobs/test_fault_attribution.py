"""Deaths of hosts: who is suspected, what goes on where it is, and what is said of it."""

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from rekindle.model.errors import StepError
from rekindle.model.switch_mode import OFF, ON
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.jobs import fault_attribution
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.user_code.watchdog import Watchdog
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
# rows/0, by-key/0, by-key/1, largest/0
ROWS, KEYS0, KEYS1, LARGEST = range(4)
FAULT = StepError(where="step by-key", what="ended its process with SIGSEGV", remedy="mend it")


def application() -> Any:
    """rows -> by-key x2 -> largest, all live after epoch 7; KEYS1 on b, all else on a; restore
    point 4."""
    built = Pipeline("three")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"))
    keys = rows.window(
        "by-key", keys=["key"], size_seconds=1, aggregates={"n": count()}, parallelism=2
    )
    keys.top("largest", by="n", count=1).sink("top")
    made = program.build(built)
    progress, told = PartitionTable(made, RestorePoints(4)), list[dict[str, Any]]()
    for partition, executor in enumerate("aaba"):
        progress.place(partition, executor, 1)
        progress.finished[partition] = 7
        progress.live.add(partition)
    return SimpleNamespace(
        program=made,
        progress=progress,
        events=SimpleNamespace(write=lambda kind, **fields: told.append({"kind": kind, **fields})),
        told=told,
        lock=threading.RLock(),
        executors={"a": "127.0.0.2", "b": "127.0.0.3"},
        names=lambda numbers: [made.partition_names[number] for number in sorted(numbers)],
        remove=lambda _: None,
        buffering=ON,
        losses=0,
        newest=7,
    )


def death(partition: int | None, *, process: int = 40) -> dict[str, Any]:
    """What a task reports that has found its host dead, of a segmentation fault in epoch 8."""
    dog = Watchdog()
    dog.end()
    if partition is not None:
        dog.begin(partition, 8, "by-key")
    return {
        "status": "host-lost",
        "executor": "a",
        "host": process,
        "exit_code": 128 + signal.SIGSEGV,
        "note": bytes(dog.memory).hex(),
    }


def test_the_partition_that_a_host_has_died_on_is_suspected_once_and_held_back() -> None:
    found = application()
    assert fault_attribution.note_deaths(found, [death(KEYS0), death(KEYS0)]) == {"a": 1}
    assert fault_attribution.note_deaths(found, [death(KEYS0)]) == {"a": 1}
    assert found.progress.suspects.alone.keys() == {KEYS0}
    assert found.progress.live == {ROWS, KEYS1}
    (event,) = found.told
    assert event["kind"] == "function-suspected"
    assert (event["step"], event["partition"], event["epoch"]) == ("by-key", "by-key/0", 8)
    assert (event["executor"], event["node"]) == ("a", "127.0.0.2")
    words = "step by-key: ended its process with SIGSEGV, at epoch 8 of by-key/0; it runs apart"
    assert event["text"].startswith(words)


def test_where_functions_ran_in_both_lanes_both_partitions_are_suspected() -> None:
    found = application()
    first, second = death(KEYS0), death(KEYS1)
    both = {**first, "note": first["note"] + second["note"]}
    assert fault_attribution.note_deaths(found, [both, both]) == {"a": 1}
    assert found.progress.suspects.alone.keys() == {KEYS0, KEYS1}
    assert found.progress.live == {ROWS}
    assert [event["partition"] for event in found.told] == ["by-key/0", "by-key/1"]


def test_a_host_that_dies_without_work_says_nothing_against_anybody() -> None:
    found = application()
    plain = {"status": "host-lost", "executor": "a", "text": "connection reset"}
    assert fault_attribution.note_deaths(found, [death(None), plain]) == {}
    assert not found.progress.suspects.blamed
    assert not found.told


def test_partitions_of_a_host_that_a_function_has_ended_go_on_where_they_are() -> None:
    found = application()
    fault_attribution.note_deaths(found, [death(KEYS0)])
    assert fault_attribution.restart(found, "a") == set()
    assert found.progress.placed == {ROWS: "a", KEYS0: "a", KEYS1: "b", LARGEST: "a"}
    # what has lost its state goes back, and what has none or still has it does not
    assert found.progress.finished == {ROWS: 7, KEYS0: 4, KEYS1: 7, LARGEST: 4}
    assert not found.progress.resident
    assert found.losses == 1
    assert found.told[-1]["kind"] == "host-restarted"
    assert found.told[-1]["node"] == "127.0.0.2"
    assert not found.progress.suspects.blamed


def test_what_lost_its_state_for_another_reason_or_has_no_input_kept_waits_for_a_plan() -> None:
    found = application()
    assert fault_attribution.restart(found, "a") is None
    found.buffering = OFF
    fault_attribution.note_deaths(found, [death(KEYS0)])
    assert fault_attribution.restart(found, "a") is None
    assert found.losses == 0
    assert found.progress.finished[LARGEST] == 7


def test_who_dies_apart_beside_others_runs_alone_and_stops_when_that_happens_again() -> None:
    found = application()
    assert fault_attribution.hold_back(found, {KEYS0: (FAULT, 8)}) == {}
    assert found.progress.suspects.alone.keys() == {KEYS0}
    assert found.progress.live == {ROWS, KEYS1}
    assert fault_attribution.hold_back(found, {KEYS0: (FAULT, 8)}) == {KEYS0: FAULT}


def test_who_dies_beside_its_host_is_suspected_without_a_remedy() -> None:
    found = application()
    fault_attribution.hold_back(found, {KEYS0: (FAULT, 8)})
    suspected = "step by-key: ended its process with SIGSEGV"
    assert found.progress.suspects.alone[KEYS0].text == suspected
    (event,) = found.told
    assert event["step"] == "by-key"
    assert event["text"] == (
        f"{suspected}; it runs apart from all others until it has passed that epoch"
    )


def test_who_passes_the_epoch_is_suspected_no_more_and_that_is_said() -> None:
    found = application()
    fault_attribution.note_passed(found, {KEYS0: {"epochs": [[8]]}})
    fault_attribution.note_deaths(found, [death(KEYS0)])
    fault_attribution.note_passed(found, {KEYS0: {"epochs": [[6], [7]]}})
    assert [event["kind"] for event in found.told] == ["function-suspected"]
    fault_attribution.note_passed(found, {KEYS0: {"epochs": [[8]], "deaths": 0}})
    assert found.told[-1]["kind"] == "function-cleared"
    assert found.told[-1]["text"] == "by-key/0 has passed epoch 8: it runs in its host again."
    assert not found.progress.suspects.apart
