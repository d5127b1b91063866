"""Bookkeeping of partitions: who runs where, how far, and which exchanges are still needed."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import StepError
from rekindle_spark.checkpoint.restore_points import DurableInput, RestorePoints
from rekindle_spark.driver.partition_table import LeftOut, PartitionTable, Readers, Retained
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
# rows/0, rows/1, other/0, counted/0, counted/1, largest/0, others/0
ROWS0, ROWS1, OTHER, COUNTED0, COUNTED1, LARGEST, OTHERS = range(7)


def two_closures() -> PartitionTable:
    """rows x2 -> counted x2 -> largest, and other -> others, all on no executor yet."""
    built = Pipeline("two")
    rows, other = (
        built.source("rows", UnreadSource(SCHEMA, "at"), parallelism=2),
        built.source("other", UnreadSource(SCHEMA, "at")),
    )
    numbers = {"n": count()}
    counted = rows.window(
        "counted", keys=["key"], size_seconds=1, aggregates=numbers, parallelism=2
    )
    counted.top("largest", by="n", count=1).sink("top")
    other.window("others", keys=["key"], size_seconds=1, aggregates=numbers).sink("others-counted")
    return PartitionTable(program.build(built))


def running() -> PartitionTable:
    """All live on a, b and c, after epoch 7; restore point 4."""
    progress = two_closures()
    progress.restore_points = RestorePoints(4)
    places = {ROWS0: "a", ROWS1: "b", OTHER: "c", COUNTED0: "a", COUNTED1: "b", LARGEST: "c"}
    for partition, executor in {**places, OTHERS: "c"}.items():
        progress.place(partition, executor, 1)
        progress.finished[partition] = 7
        progress.live.add(partition)
    return progress


def up_to(last: int) -> Callable[[int, int], bool]:
    return lambda _, epoch: epoch <= last


def test_of_an_executor_that_is_lost_nothing_is_held_nor_counted_again() -> None:
    retained = Retained()
    retained.add(1, [("a", {ROWS0: (1, 1)}), ("b", {ROWS1: (1, 1)})], [100, 30])
    retained.lose("a")
    retained.trim(up_to(1))
    assert dict(retained.held) == {"b": 0}


def test_a_loss_takes_what_was_there_and_suspends_what_is_downstream() -> None:
    progress = running()
    progress.lose(["a"])
    assert progress.placed == {ROWS1: "b", OTHER: "c", OTHERS: "c"}
    assert progress.resident == {COUNTED1: "b", LARGEST: "c"}
    assert progress.live == {ROWS1, OTHER, OTHERS}
    assert not progress.complete


def test_what_is_held_back_keeps_its_place_and_holds_back_what_is_downstream() -> None:
    progress = running()
    progress.hold_back([ROWS0])
    assert progress.live == {ROWS1, OTHER, OTHERS}
    assert progress.placed.keys() == set(range(7))
    assert progress.finished[COUNTED0] == 7


def test_what_was_suspended_goes_on_from_its_state_and_what_was_lost_from_the_restore_point() -> (
    None
):
    progress = running()
    progress.lose(["a"])
    for partition, executor in {ROWS0: "b", COUNTED0: "c", COUNTED1: "b", LARGEST: "c"}.items():
        progress.place(partition, executor, 2)
    assert progress.finished[COUNTED1] == progress.finished[LARGEST] == 7
    assert progress.finished[ROWS0] == progress.finished[COUNTED0] == 4
    assert progress.catching_up == {ROWS0, COUNTED0, COUNTED1, LARGEST}


def test_what_is_stopped_takes_along_what_needs_it_and_what_nobody_else_needs() -> None:
    progress, fault = running(), StepError(where="step", what="raised", remedy="mend it")
    stopped = {ROWS0, ROWS1, COUNTED0, COUNTED1, LARGEST}
    assert progress.stop({COUNTED1: fault}) == dict.fromkeys(stopped, fault)
    assert progress.placed == {OTHER: "c", OTHERS: "c"}
    assert progress.resident == {}
    assert progress.finished.keys() == progress.live == progress.placed.keys()
    assert progress.complete
    assert progress.stop({COUNTED1: fault, LARGEST: fault}) == {}
    progress.lose(["a"])
    assert progress.complete
    progress.lose(["c"])
    assert not progress.complete


def test_what_others_need_goes_on_beside_what_is_stopped() -> None:
    progress, fault = running(), StepError(where="step", what="raised", remedy="mend it")
    assert progress.stop({OTHERS: fault}).keys() == {OTHER, OTHERS}
    assert progress.placed.keys() == {ROWS0, ROWS1, COUNTED0, COUNTED1, LARGEST}


def test_a_suspended_partition_that_is_put_elsewhere_starts_from_the_restore_point() -> None:
    progress = running()
    progress.lose(["a"])
    progress.place(LARGEST, "b", 2)
    assert progress.finished[LARGEST] == 4
    assert LARGEST not in progress.resident


def test_a_suspended_uncertain_partition_goes_on_where_it_is() -> None:
    progress = running()
    steps = progress.program.chains
    counted = next(chain for chain in steps if chain.name == "counted")
    uncertain = replace(counted, root=replace(counted.root, deterministic=False))
    chains = tuple(uncertain if chain is counted else chain for chain in steps)
    progress.program = replace(progress.program, chains=chains)
    progress.lose(["a"])
    progress.place(COUNTED1, "c", 2)
    assert progress.placed[COUNTED1] == "b"
    assert progress.finished[COUNTED1] == 7


def test_a_suspended_partition_is_lost_with_its_executor() -> None:
    progress = running()
    progress.lose(["a"])
    progress.lose(["c"])
    assert progress.resident == {COUNTED1: "b"}
    assert LARGEST not in progress.finished
    progress.place(LARGEST, "c", 3)  # a returned node joins empty
    assert progress.finished[LARGEST] == 4


def test_a_host_without_state_keeps_its_blocks() -> None:
    progress = running()
    progress.retained.add(11, [("a", {ROWS0: (5, 7)})], [1])
    progress.forget_state("a")
    assert ROWS0 not in progress.placed
    assert progress.retained.places[ROWS0, 6] == (11, 0)
    assert progress.lose(["a"]) == [11]
    assert progress.retained.places == {}


def test_a_partition_that_is_close_behind_may_join() -> None:
    progress = running()
    progress.finished[LARGEST] = 5
    assert progress.caught_up(LARGEST, 7, 2)
    assert not progress.caught_up(LARGEST, 8, 2)


def test_a_shuffle_is_needed_until_the_last_of_its_epochs_is_trimmed() -> None:
    retained = Retained()
    assert retained.add(1, [("a", {ROWS0: (1, 2)}), ("b", {ROWS1: (1, 3)})], [1, 1]) == []
    assert retained.trim(up_to(2)) == []
    assert retained.places == {(ROWS1, 3): (1, 1)}
    assert retained.trim(up_to(3)) == [1]


def test_blocks_made_again_take_the_place_of_the_old_ones() -> None:
    retained = Retained()
    retained.add(1, [("a", {ROWS0: (1, 2)})], [1])
    assert retained.add(2, [("b", {ROWS0: (1, 1)})], [1]) == []
    assert retained.add(3, [("b", {ROWS0: (2, 2)})], [1]) == [1]
    assert retained.places == {(ROWS0, 1): (2, 0), (ROWS0, 2): (3, 0)}


def test_a_shuffle_that_is_half_lost_serves_with_its_other_half() -> None:
    retained = Retained()
    retained.add(1, [("a", {ROWS0: (1, 2)}), ("b", {ROWS1: (1, 2)})], [1, 1])
    assert retained.lose("a") == []
    assert set(retained.places) == {(ROWS1, 1), (ROWS1, 2)}
    assert retained.lose("b") == [1]


JOBS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.lists(
                st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 6)),
                min_size=1,
                unique_by=lambda task: task[1],
            ),
        ),
        st.tuples(st.just("lose"), st.sampled_from("abc")),
        st.tuples(st.just("trim"), st.integers(0, 6)),
    ),
    max_size=12,
)


@given(JOBS)
def test_a_shuffle_is_removed_once_and_exactly_when_nothing_of_it_is_needed(
    jobs: list[tuple[str, object]],
) -> None:
    retained, made, removed = Retained(), 0, []
    for kind, value in jobs:
        if kind == "add":
            made += 1
            tasks = [(executor, {p: (first, 6)}) for executor, p, first in value]  # type: ignore[attr-defined]
            removed += retained.add(made, tasks, [1] * len(tasks))
        elif kind == "lose":
            removed += retained.lose(str(value))
        else:
            removed += retained.trim(up_to(int(str(value))))
        needed = {shuffle for shuffle, _ in retained.places.values()}
        assert len(removed) == len(set(removed))
        assert needed == set(range(1, made + 1)) - set(removed)
        assert set(retained.executors) == set(retained.contents) == needed


def test_what_sources_can_make_again_goes_first_made_first_until_executors_have_room() -> None:
    retained, sources = Retained(), {ROWS0, ROWS1}
    for epoch in (1, 2, 3):
        tasks = [("a", {ROWS0: (epoch, epoch)}), ("b", {ROWS1: (epoch, epoch)})]
        retained.add(10 * epoch, tasks, [40, 10])
        retained.add(10 * epoch + 1, [("a", {COUNTED0: (epoch, epoch)})], [20])
    assert retained.held == {"a": 180, "b": 30}
    assert retained.shed(180, sources) == []
    assert retained.shed(100, sources) == [10, 20]
    assert retained.held == {"a": 100, "b": 10}
    assert retained.shed(10, sources) == [30], "what others have made stays, whatever it takes"
    assert sorted(retained.places) == [(COUNTED0, 1), (COUNTED0, 2), (COUNTED0, 3)]
    assert retained.shed(10, sources) == []


def test_nothing_goes_for_the_sake_of_an_executor_that_is_lost() -> None:
    retained = Retained()
    retained.add(1, [("a", {ROWS0: (1, 1)}), ("b", {ROWS1: (1, 1)})], [100, 10])
    retained.lose("a")
    assert retained.shed(50, {ROWS0, ROWS1}) == []
    assert retained.held == {"b": 10}
    assert retained.trim(up_to(1)) == [1]
    assert retained.held["b"] == 0


def test_a_shuffle_that_jobs_read_is_removed_when_the_last_of_them_has_ended() -> None:
    readers = Readers()
    readers.begin({1, 2})
    readers.begin({2})
    assert readers.sift([1, 2, 3]) == [3]
    assert readers.end({2}) == []
    assert readers.end({1, 2}) == [1, 2]
    assert readers.end(()) == []
    assert readers.sift([1, 2]) == [1, 2]


def test_a_checkpoint_trims_what_nobody_would_lack() -> None:
    progress = running()
    progress.retained.add(11, [("a", {ROWS0: (5, 8)}), ("b", {ROWS1: (5, 8)})], [1, 1])
    progress.retained.add(12, [("c", {OTHER: (5, 8)})], [1])
    written = DurableInput(7, {ROWS0: (5, 8), ROWS1: (5, 7)}, frozenset({COUNTED0}))
    points = progress.restore_points.after(7, {COUNTED0, LARGEST}, written)
    assert progress.checkpointed(points) == []
    assert sorted(progress.retained.places) == [
        (ROWS0, 8),
        (ROWS1, 7),  # was made after the checkpoint had looked
        (ROWS1, 8),
        (OTHER, 8),
    ]
    assert progress.checkpointed(points.after(8, (), None)) == [11, 12]


def test_what_was_behind_goes_on_from_its_own_restore_point() -> None:
    progress = running()
    progress.lose(["a"])
    points = progress.restore_points
    progress.checkpointed(points.after(7, {ROWS0, COUNTED0, COUNTED1, LARGEST}, None))
    for partition in (ROWS0, COUNTED0):
        progress.place(partition, "b", 2)
    progress.place(OTHER, "b", 2)
    assert [progress.finished[number] for number in (ROWS0, COUNTED0, OTHER)] == [4, 4, 7]


def test_a_lost_uncertain_operator_undoes_what_was_made_of_its_output() -> None:
    progress = running()
    steps = progress.program.chains
    uncertain = replace(steps[0], root=replace(steps[0].root, deterministic=False))
    progress.program = replace(progress.program, chains=(uncertain, *steps[1:]))
    everything = dict.fromkeys((ROWS0, ROWS1, OTHER, COUNTED0, COUNTED1), (3, 7))
    progress.retained.add(1, [("c", everything)], [1])
    assert progress.undone_by(["a"]) == {COUNTED1, LARGEST}
    progress.lose(["a"])
    assert progress.placed == {ROWS1: "b", OTHER: "c", OTHERS: "c"}
    assert progress.resident == {}
    kept = {key for key in progress.retained.places if key[0] in (ROWS0, COUNTED0, COUNTED1)}
    assert {epoch for _, epoch in kept} == {3, 4}, "since the restore point all is made anew"
    assert (ROWS1, 7) in progress.retained.places


def apart_without_a_branch(progress: PartitionTable, partition: int, epoch: int) -> None:
    """A step of the partition has ended its process: it is left out from an epoch on."""
    fault = StepError(where="step dear", what="ended its process", remedy="mend it")
    progress.left_out[partition] = {"dear": LeftOut(epoch, fault)}
    progress.suspects.apart.add(partition)
    progress.suspects.relieved.add(partition)


def test_a_source_stays_apart_while_a_reader_may_have_it_run_with_what_is_left_out() -> None:
    progress = running()
    apart_without_a_branch(progress, ROWS0, 9)
    progress.checkpointed(RestorePoints(12, {COUNTED1: 5}))
    assert progress.suspects.apart == {ROWS0}
    progress.checkpointed(RestorePoints(20))
    assert progress.suspects.apart == set()


def test_a_reader_that_has_stopped_has_no_source_run_again() -> None:
    progress = running()
    apart_without_a_branch(progress, ROWS0, 9)
    progress.stop({OTHERS: StepError(where="step others", what="raised", remedy="mend it")})
    progress.checkpointed(RestorePoints(12, {OTHERS: 5}))
    assert progress.suspects.apart == set()


def test_an_operator_is_no_longer_apart_once_its_own_state_is_behind_what_is_left_out() -> None:
    progress = running()
    apart_without_a_branch(progress, COUNTED0, 9)
    progress.checkpointed(RestorePoints(12, {COUNTED1: 5}))
    assert progress.suspects.apart == set()
