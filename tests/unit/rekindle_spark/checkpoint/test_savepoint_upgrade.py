"""A changed pipeline goes on from a savepoint: states by the names of steps, or a clear refusal."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_stories import Call, postponed
from log_source import Log

from rekindle.model.errors import DamagedError, InputError, RunError
from rekindle_spark.checkpoint import savepoint_upgrade, state_files
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.driver.source_intake import PartitionCut, StreamCut
from rekindle_spark.executor import partition
from rekindle_spark.operators import row_hash
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import checkpoint_records, store_integrity
from rekindle_store.checkpoint_records import file_name
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
SECOND = 1_000_000
WATERMARK = 5 * SECOND
KEYS = [f"key-{number}" for number in range(30)]
SAVED = 7
# written before records had `steps`
GOLDEN = Path(__file__).parents[3] / "golden" / "store"


class Clock(UnreadSource):
    """A source of which two rows have arrived in every second."""

    def rows_at(self, event_time: int) -> int:
        return 2 * event_time // SECOND


def built(
    parallelism: int = 2, size_seconds: int = 60, *, others: bool = False, largest: bool = True
) -> Program:
    """rows -> counted -> largest; with `others` a second source, counted as well."""
    pipeline = Pipeline("readings")
    rows = pipeline.source("rows", Clock(SCHEMA, "at"))
    counted = rows.window(
        "counted",
        keys=["key"],
        size_seconds=size_seconds,
        aggregates={"n": count()},
        parallelism=parallelism,
    )
    counted.sink("counts")
    if largest:
        counted.top("largest", by="n", count=1).sink("top")
    if others:
        more = pipeline.source("others", Clock(SCHEMA, "at"))
        more.window("more", keys=["key"], size_seconds=1, aggregates={"n": count()}).sink("most")
    return program.build(pipeline)


def state(one: Program, name: str) -> partition.PartitionState:
    """Open windows of the keys that are this partition's."""
    chain = one.owner[one.numbers[name]]
    operator = chain.root.function
    if chain.name != "counted":
        return partition.PartitionState(WATERMARK, operator.initial())
    rows = pa.table({"at": pa.array([4 * SECOND] * 30, pa.timestamp("us")), "key": KEYS})
    index = one.numbers[name] - chain.first
    part = row_hash.split(operator.combine(rows), ["key"], chain.parallelism)[index]
    held, _ = operator.process(operator.initial(), [part], partition.BEFORE_ALL, WATERMARK)
    return partition.PartitionState(WATERMARK, held)


def saved(directory: Path, one: Program, *, final: bool = False, **record: Any) -> CheckpointStore:
    """A store that a pipeline has left at a savepoint."""
    store = CheckpointStore(directory)
    store.open(1.0)
    cut = Cut(SAVED, 10.0, {"rows": (8, 10)}, WATERMARK, 100.0, final, 0.5)
    store.log_offsets(SAVED, cut.record())
    store.begin_checkpoint(SAVED)
    names = [name for name in one.partition_names if one.owner[one.numbers[name]].keyed]
    for name in names:
        chain, whole = one.owner[one.numbers[name]], state(one, name)
        data, _ = state_files.seal(chain.root.function.dump(whole.operator), whole.watermark)
        store.files.put({file_name(SAVED, name, "state"): data})
    store.complete_checkpoint(
        SAVED,
        {
            "program": one.hash,
            "steps": one.steps,
            "bytes": dict.fromkeys(names, 1),
            "published": None,
            "savepoint": True,
            **record,
        },
    )
    return store


def keys_of(store: CheckpointStore, one: Program, name: str) -> list[str]:
    file = file_name(SAVED + 1, name, "state")
    chain = one.owner[one.numbers[name]]
    found = state_files.load(store.files, file, chain, SAVED + 1)
    assert found.watermark == WATERMARK
    return sorted(found.operator.panes["key"].to_pylist())


def test_each_key_goes_where_its_input_will_go(tmp_path: Path) -> None:
    store, changed = saved(tmp_path, built(2)), built(3)
    savepoint_upgrade.check(changed, store.read())
    savepoint_upgrade.carry_over(changed, store, store.read(), 20.0)
    found = [keys_of(store, changed, f"counted/{index}") for index in range(3)]
    parts = row_hash.split(pa.table({"key": KEYS}), ["key"], 3)
    assert found == [sorted(parts[index]["key"].to_pylist()) for index in range(3)]


def test_what_it_makes_is_a_checkpoint_of_an_epoch_without_input(tmp_path: Path) -> None:
    store, changed = saved(tmp_path, built(2)), built(1, others=True, largest=False)
    savepoint_upgrade.carry_over(changed, store, store.read(), 20.0)
    history = store.read()
    assert history.checkpoint is not None
    assert (history.checkpoint["epoch"], history.checkpoint["program"]) == (8, changed.hash)
    assert sorted(history.checkpoint["bytes"]) == ["counted/0", "more/0"]
    cut = Cut.from_record(history.offsets[8])
    assert (cut.rows, cut.watermark, cut.cut_at, cut.row_fraction) == (0, WATERMARK, 10.0, 0.5)
    assert not savepoint_upgrade.is_needed(changed, history)


def test_a_new_source_begins_where_the_others_are_in_event_time(tmp_path: Path) -> None:
    store, changed = saved(tmp_path, built()), built(others=True)
    savepoint_upgrade.carry_over(changed, store, store.read(), 20.0)
    cut = Cut.from_record(store.read().offsets[8])
    assert dict(cut.offsets) == {"rows": (10, 10), "others": (10, 10)}


def test_event_times_that_no_cut_has_logged_are_carried_over() -> None:
    pipeline = Pipeline("orders")
    pipeline.source("orders", Log({"p": 9})).sink("all")
    stream = StreamCut((PartitionCut("p", 0, 9, 9, "made"),), 0, 0.0)
    last = Cut(SAVED, 0.0, {}, 0, 1.0, False, streams={"orders": stream})
    read = {"orders": {"p": ["made", 9, 5]}}
    cut = savepoint_upgrade._cut(program.build(pipeline), last, SAVED + 1, read)
    (found,) = cut.streams["orders"].partitions
    assert (found.begin, found.end, found.greatest) == (9, 9, 5)


def test_a_new_window_begins_with_the_next_whole_one_and_what_follows_it_too(
    tmp_path: Path,
) -> None:
    pipeline = Pipeline("readings")
    rows = pipeline.source("rows", Clock(SCHEMA, "at"))
    window: dict[str, Any] = {"keys": ["key"], "aggregates": {"n": count()}}
    rows.window("counted", size_seconds=60, parallelism=2, **window).sink("counts")
    fresh = rows.window("fresh", size_seconds=4, **window)
    fresh.window("summed", size_seconds=10, **window).sink("sums")
    changed = program.build(pipeline)
    store = saved(tmp_path, built(2))
    savepoint_upgrade.carry_over(changed, store, store.read(), 20.0)
    checkpoint = store.read().checkpoint
    assert checkpoint is not None
    # rows up to 5 s have gone by: the window from 4 s on lacks some, and ends at 8 s
    assert checkpoint["begun"] == {"fresh": 5 * SECOND + 1, "summed": 8 * SECOND + 1}

    def begins_at(name: str) -> int:
        chain = changed.owner[changed.numbers[name]]
        found = state_files.load(store.files, file_name(SAVED + 1, name, "state"), chain, SAVED + 1)
        begin: int = found.operator.begins_at
        return begin

    assert (begins_at("fresh/0"), begins_at("summed/0")) == (8 * SECOND, 10 * SECOND)
    assert begins_at("counted/0") == partition.BEFORE_ALL


def test_what_a_fenced_driver_carries_over_late_changes_nothing(tmp_path: Path) -> None:
    saved(tmp_path, built(2))
    fenced, newer = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    history, calls = fenced.open(2.0), list[Call]()
    fenced.files = postponed(fenced.files, calls, "put", "create")
    savepoint_upgrade.carry_over(built(3), fenced, history, 20.0)
    savepoint_upgrade.carry_over(built(1), newer, newer.open(3.0), 30.0)
    record = newer.read().checkpoint
    assert record is not None
    made = {name: newer.files.read(name) for name in checkpoint_records.files(record)}
    for call in calls:
        call()
    assert CheckpointStore(tmp_path).open(4.0).checkpoint == record
    assert {name: newer.files.read(name) for name in made} == made
    assert store_integrity.check(newer.files).damages == []


def test_epochs_of_upgrades_that_stand_still_are_claimed(
    tmp_path: Path,
) -> None:
    assert savepoint_upgrade.claimed(saved(tmp_path, built(2)).read(), 1) == 0
    epochs = list[int]()
    for generation in (2, 3, 4):
        store = CheckpointStore(tmp_path)
        history = store.open(float(generation))
        assert savepoint_upgrade.claimed(history, generation) == max([0, *epochs])
        states, records = list[Call](), list[Call]()
        store.files = postponed(postponed(store.files, records, "create"), states, "put")
        savepoint_upgrade.carry_over(built(3), store, history, 20.0)
        for put in states:
            put()
        epochs.append(SAVED + generation - 1)
        assert [*(tmp_path / f"checkpoints/{epochs[-1]}").glob("*.state")]
    last = CheckpointStore(tmp_path)
    history = last.open(5.0)
    assert savepoint_upgrade.claimed(history, last.generation) == epochs[-1]
    savepoint_upgrade.carry_over(built(3), last, history, 20.0)
    assert savepoint_upgrade.claimed(last.read(), last.generation) == 0


def test_where_its_epoch_is_taken_the_next_start_carries_over_to_another_one(
    tmp_path: Path,
) -> None:
    saved(tmp_path, built(2))
    fenced, store, calls = CheckpointStore(tmp_path), CheckpointStore(tmp_path), list[Call]()
    history = fenced.open(2.0)
    fenced.files = postponed(fenced.files, calls, "create")
    fenced.complete_checkpoint(SAVED + 2, {**history.checkpoint})  # type: ignore[dict-item]
    history = store.open(3.0)
    for call in calls:
        call()
    with pytest.raises(RunError, match=r"has a record of epoch 9 that a fenced driver .*start aga"):
        savepoint_upgrade.carry_over(built(3), store, history, 20.0)
    again = CheckpointStore(tmp_path)
    savepoint_upgrade.carry_over(built(3), again, again.open(4.0), 30.0)
    checkpoint = again.read().checkpoint
    assert checkpoint is not None
    assert checkpoint["epoch"] == SAVED + 3


def test_what_an_upgrade_that_was_killed_has_left_is_no_checkpoint(tmp_path: Path) -> None:
    store, changed = saved(tmp_path, built(2)), built(3)
    savepoint_upgrade.carry_over(changed, store, store.read(), 20.0)
    (tmp_path / "checkpoints" / "8.json").unlink()
    history = store.read()
    assert not savepoint_upgrade.is_needed(built(2), history)
    savepoint_upgrade.check(built(2), history)
    savepoint_upgrade.carry_over(built(1), store, history, 20.0)
    assert keys_of(store, built(1), "counted/0") == sorted(KEYS)


def test_a_step_that_holds_something_else_is_refused_by_name(tmp_path: Path) -> None:
    store = saved(tmp_path, built(size_seconds=60))
    with pytest.raises(InputError, match=r"step counted: has another operator.* another name"):
        savepoint_upgrade.check(built(size_seconds=30), store.read())


def test_only_a_checkpoint_of_all_partitions_will_do(tmp_path: Path) -> None:
    store = saved(tmp_path, built(2), older={"largest/0": SAVED - 1})
    store.log_offsets(SAVED - 1, Cut(SAVED - 1, 9.0, {"rows": (0, 8)}, 0, 1.0, False).record())
    with pytest.raises(InputError, match=r"end it with `rekindle savepoint STORE`"):
        savepoint_upgrade.check(built(3), store.read())


def test_a_checkpoint_that_a_driver_takes_on_its_way_is_no_savepoint(tmp_path: Path) -> None:
    """For a moment there is nothing behind it: who starts then must not fence that driver."""
    store = saved(tmp_path, built(2), savepoint=False)
    with pytest.raises(InputError, match="end it with `rekindle savepoint STORE`"):
        savepoint_upgrade.check(built(3), store.read())


def test_a_checkpoint_behind_which_there_are_epochs_is_no_savepoint(tmp_path: Path) -> None:
    store = saved(tmp_path, built(2))
    store.log_offsets(8, Cut(8, 11.0, {"rows": (10, 11)}, WATERMARK, 100.0, False).record())
    with pytest.raises(InputError, match=r"end it with `rekindle savepoint STORE`"):
        savepoint_upgrade.check(built(3), store.read())
    savepoint_upgrade.check(built(2), store.read())


def test_after_the_end_of_the_input_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    store = saved(tmp_path, built(2), final=True)
    with pytest.raises(InputError, match="the input of this one has ended"):
        savepoint_upgrade.check(built(3), store.read())


def test_a_pipeline_that_shares_nothing_but_has_no_checkpoint_yet_is_refused(
    tmp_path: Path,
) -> None:
    store = CheckpointStore(tmp_path)
    store.open(1.0)
    store.log_offsets(1, Cut(1, 10.0, {"others": (0, 1)}, WATERMARK, 100.0, False).record())
    finished = {"others/0": [1, 1, ["d"]]}
    store.commit({"at": 1.0, "plan_epoch": 1, "finished": finished, "outputs": []})
    with pytest.raises(InputError) as caught:
        savepoint_upgrade.check(built(), CheckpointStore(tmp_path).read())
    assert caught.value.where == "pipeline readings"
    assert caught.value.what == f"is not the one that wrote this checkpoint store, {tmp_path}"


@pytest.mark.parametrize(
    ("start", "owner"),
    [
        ({"pipeline": "orders"}, "pipeline orders"),
        ({"outputs": ["sales", "late"]}, "a pipeline with the outputs late, sales"),
        ({"outputs": ["sales"], "pipeline": "orders"}, "pipeline orders"),
    ],
)
def test_a_store_of_another_pipeline_is_refused_by_the_name_of_its_own(
    tmp_path: Path, start: dict[str, Any], owner: str
) -> None:
    store = CheckpointStore(tmp_path)
    store.open(1.0, **start)
    store.log_offsets(1, Cut(1, 10.0, {"others": (0, 1)}, WATERMARK, 100.0, False).record())
    finished = {"others/0": [1, 1, ["d"]]}
    store.commit({"at": 1.0, "plan_epoch": 1, "finished": finished, "outputs": []})
    with pytest.raises(InputError) as caught:
        savepoint_upgrade.check(built(), CheckpointStore(tmp_path).read())
    assert caught.value.what.endswith(f"{tmp_path}, which is that of {owner}")
    assert "an empty store" in caught.value.remedy


def test_a_damaged_file_of_what_was_carried_over_does_not_bring_the_old_pipeline_back(
    tmp_path: Path,
) -> None:
    store, changed = saved(tmp_path, built(2)), built(3)
    savepoint_upgrade.carry_over(changed, store, store.read(), 20.0)
    damage = DamagedError(where="checkpoints/8/counted-0.state", what="w", remedy="r")
    assert store.set_aside(damage) is damage
    assert (tmp_path / "checkpoints" / "8.json").exists()


def test_a_store_of_an_earlier_version_is_gone_on_from_by_the_same_pipeline_only(
    tmp_path: Path,
) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    store = CheckpointStore(tmp_path)
    history = store.open(20.0)
    savepoint_upgrade.check(built(2), history)
    assert not savepoint_upgrade.is_needed(built(2), history)
    chain = built(2).owner[1]
    names = [f"checkpoints/7/counted-{index}.state" for index in range(2)]
    held = [state_files.load(store.files, name, chain, SAVED).operator.panes for name in names]
    assert sorted(key for panes in held for key in panes["key"].to_pylist()) == KEYS[:6]
    with pytest.raises(InputError, match=r"end it with `rekindle savepoint STORE`"):
        savepoint_upgrade.check(built(3), history)
