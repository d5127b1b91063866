"""Frames: what goes in comes out, empty is told from lost, and digests are of the rows alone."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_spark.executor import frames
from rekindle_spark.executor.frames import Label
from rekindle_spark.operators import arrow_columns

SCHEMA = pa.schema(
    [("name", pa.string()), ("size", pa.int64()), ("good", pa.bool_()), ("at", pa.timestamp("us"))]
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=5),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
        st.none() | st.integers(-(10**15), 10**15),
    ),
    max_size=8,
)


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def encoded(rows: list[tuple[object, ...]], producer: int = 3, epoch: int = 17) -> bytes:
    return frames.encode(Label(1, producer, 5, 2, epoch, -7), table(rows))


@given(ROWS)
def test_a_frame_gives_back_its_rows_and_whose_they_are(rows: list[tuple[object, ...]]) -> None:
    (frame,) = frames.frames(memoryview(encoded(rows)))
    assert (frame.edge, frame.producer, frame.target) == (1, 3, 5)
    assert (frame.plan_epoch, frame.epoch, frame.watermark) == (2, 17, -7)
    assert frame.rows == len(rows)
    assert frames.decode(frame, SCHEMA).equals(table(rows))


@given(st.lists(ROWS, max_size=4))
def test_frames_in_a_row_are_told_apart(several: list[list[tuple[object, ...]]]) -> None:
    data = b"".join(encoded(rows, producer) for producer, rows in enumerate(several))
    found = list(frames.frames(memoryview(data)))
    assert [frame.producer for frame in found] == list(range(len(several)))
    assert [frames.decode(f, SCHEMA).num_rows for f in found] == [len(rows) for rows in several]


@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
def test_a_frame_of_which_a_bit_has_changed_is_never_taken_for_sound(
    several: list[list[tuple[object, ...]]], data: st.DataObject
) -> None:
    made = [encoded(rows, producer) for producer, rows in enumerate(several)]
    found, is_sound = frames.sound(memoryview(b"".join(made)))
    assert (is_sound, [frames.raw(frame) for frame in found]) == (True, made)
    which = data.draw(st.integers(0, len(made) - 1))
    damaged = bytearray(made[which])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    blocks = b"".join((*made[:which], damaged, *made[which + 1 :]))
    found, is_sound = frames.sound(memoryview(blocks))
    assert not is_sound
    assert frames.sound(memoryview(blocks[:-1]))[1] is False
    left = [frames.raw(frame) for frame in found]
    assert left in (made[:which], made[:which] + made[which + 1 :])


def test_blocks_that_end_too_early_are_not_sound() -> None:
    whole = encoded([("a", 1, True, 5)])
    for size in range(1, len(whole)):
        assert frames.sound(memoryview(whole[:size])) == ([], False)


def test_frames_of_earlier_versions_are_read_where_their_file_has_a_checksum() -> None:
    whole = encoded([("a", 1, True, 5)])
    (frame,) = frames.frames(memoryview(whole))
    earlier = (1).to_bytes(2, "little") + whole[2:48] + whole[52:]
    assert list(frames.frames(memoryview(earlier + whole))) == [frame, frame]
    assert frames.sound(memoryview(earlier)) == ([], False)


def test_no_rows_make_a_frame_all_the_same_and_nothing_makes_none() -> None:
    (frame,) = frames.frames(memoryview(frames.encode(Label(0, 1, 2, 3, 4, 5), None)))
    assert frame.rows == 0
    assert frames.decode(frame, SCHEMA).equals(SCHEMA.empty_table())
    assert list(frames.frames(memoryview(b""))) == []


@given(ROWS, st.integers(0, 8))
def test_a_digest_does_not_see_how_memory_holds_the_rows(
    rows: list[tuple[object, ...]], at: int
) -> None:
    whole = table(rows)
    pieces = pa.concat_tables([table(rows[:at]), table(rows[at:])])
    within = table([(None, 1, None, 2), *rows, ("x", None, True, None)]).slice(1, len(rows))
    assert frames.digest(pieces) == frames.digest(whole)
    assert frames.digest(within) == frames.digest(whole)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), (True, False)),
        (pa.int8(), (1, 2)),
        (pa.int32(), (1, 2)),
        (pa.float32(), (0.5, 1.5)),
        (pa.date32(), (1, 2)),
        (pa.timestamp("us"), (1, 2)),
        (pa.string(), ("a", "bc")),
    ],
    ids=str,
)
def test_a_digest_does_not_see_what_follows_a_slice_in_its_whole(
    kind: pa.DataType, values: tuple[object, object]
) -> None:
    one, other = values
    slices = [
        pa.record_batch({"a": pa.array([one] * 5 + rest, kind)}).slice(0, 5)
        for rest in ([], [one] * 2, [other] * 2, [one] * 40, [other] * 40)
    ]
    assert len({frames.digest(pa.Table.from_batches([part])) for part in slices}) == 1
    packed = [frames.pack(part) for part in slices]
    assert len({part.digest for part in packed}) == 1


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", 1, True, 5), ("bc", -2, False, 6)], "6edadbc0c316779e"),
        ([(None, 1, True, 5), ("bc", None, None, None)], "65e8448153ee2b07"),
    ],
    ids=["without-nulls", "with-nulls"],
)
def test_digests_are_those_of_earlier_versions(
    rows: list[tuple[object, ...]], expected: str
) -> None:
    within = table([("x", 9, False, 9), *rows, ("y", 8, True, 8)]).slice(1, 2)
    assert frames.digest(within).hex() == expected
    packed = frames.pack(arrow_columns.batch(within))
    assert packed.digest.hex() == expected
    assert packed.rows == 2


def test_a_digest_does_not_see_what_lies_below_a_null() -> None:
    mask = [False, True]
    one = pa.Array.from_buffers(pa.int64(), 2, [pa.array(mask).buffers()[1], *below(1)])
    other = pa.Array.from_buffers(pa.int64(), 2, [pa.array(mask).buffers()[1], *below(9)])
    assert one.equals(other)
    assert frames.digest(pa.table({"a": one})) == frames.digest(pa.table({"a": other}))


def hidden(value: int) -> pa.Array:
    """Two nulls with a value below each, beside a 1."""
    return pa.array(np.array([1, value, value]), mask=np.array([False, True, True]))


@pytest.mark.parametrize(
    "nest",
    [
        lambda inner: pa.StructArray.from_arrays([inner], ["a"]),
        lambda inner: pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), inner),
        lambda inner: pa.LargeListArray.from_arrays(pa.array([0, 2, 3], pa.int64()), inner),
        lambda inner: pa.FixedSizeListArray.from_arrays(inner, 3),
        lambda inner: pa.MapArray.from_arrays(pa.array([0, 3], pa.int32()), list("abc"), inner),
        lambda inner: pa.StructArray.from_arrays(
            [pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), inner)], ["a"]
        ),
    ],
    ids=["struct", "list", "large-list", "fixed-size-list", "map", "list-in-struct"],
)
def test_a_digest_does_not_see_what_lies_below_nested_nulls(
    nest: Callable[[pa.Array], pa.Array],
) -> None:
    one, other = (pa.table({"a": nest(hidden(value))}) for value in (7, 9))
    assert one.equals(other)
    assert frames.digest(one) == frames.digest(other)
    shown = pa.table({"a": nest(pa.array([1, 7, 9]))})
    assert frames.digest(shown) != frames.digest(one)


def test_a_digest_does_not_see_what_lies_below_a_null_list_in_a_struct() -> None:
    lists = [
        pa.ListArray.from_arrays(
            pa.array([0, 1, end, end + 1], pa.int32()),
            pa.array([1, *[2] * (end - 1), 3]),
            mask=pa.array([False, True, False]),
        )
        for end in (1, 2)
    ]
    one, other = (pa.table({"a": pa.StructArray.from_arrays([part], ["b"])}) for part in lists)
    assert one.equals(other)
    assert frames.digest(one) == frames.digest(other)


def test_lists_that_are_cut_elsewhere_have_another_digest() -> None:
    cuts = [[[1], [2, 3]], [[1, 2], [3]], [[1, 2, 3], []], [[1, 2, 3], None]]
    assert len({frames.digest(pa.table({"a": pa.array(cut)})) for cut in cuts}) == 4


def below(value: int) -> list[pa.Buffer]:
    return [pa.array([value, 4], pa.int64()).buffers()[1]]


@pytest.mark.parametrize(
    "other",
    [
        [("a", 1, True, 5)],
        [("b", 2, True, 5), ("a", 1, True, 5)],
        [("a", 1, True, 5), ("b", 3, True, 5)],
        [("a", 1, True, 5), ("b", None, True, 5)],
        [("a", 1, True, 5), ("b", 2, True, 5), ("b", 2, True, 5)],
        [("a", 1, True, 5), ("", 2, True, 5)],
        [("a", 1, True, 5), (None, 2, True, 5)],
    ],
)
def test_other_rows_or_another_order_give_another_digest(other: list[tuple[object, ...]]) -> None:
    rows: list[tuple[object, ...]] = [("a", 1, True, 5), ("b", 2, True, 5)]
    assert frames.digest(table(other)) != frames.digest(table(rows))


def test_values_beside_a_null_count_in_a_digest() -> None:
    rows: list[tuple[object, ...]] = [("a", 1, True, 5), (None, None, None, None)]
    sums = {frames.digest(table(rows))}
    for place, value in enumerate(("b", 2, False, 6)):
        sums.add(frames.digest(table([(*rows[0][:place], value, *rows[0][place + 1 :]), rows[1]])))
    assert len(sums) == 5


def test_null_is_not_the_value_that_stands_for_it_in_a_digest() -> None:
    null, zero = table([(None, None, None, None)]), table([("", 0, False, 0)])
    assert frames.digest(null) != frames.digest(zero)


def test_an_encoded_frame_carries_the_digest_of_its_rows() -> None:
    rows: list[tuple[object, ...]] = [("a", 1, True, 5)]
    (frame,) = frames.frames(memoryview(encoded(rows)))
    assert frame.digest == frames.digest(table(rows))


@given(st.lists(ROWS, min_size=1, max_size=4), st.booleans())
def test_frames_that_are_made_together_are_those_that_are_made_one_by_one(
    several: list[list[tuple[object, ...]]], is_narrow: bool
) -> None:
    whole = pa.concat_tables([table(rows) for rows in several])
    if is_narrow:  # numbers without nulls, as windows exchange them
        whole = whole.select(["size", "at"]).filter(pc.field("size").is_valid())
        whole = whole.filter(pc.field("at").is_valid())
    batch, cut = arrow_columns.batch(whole), whole.num_rows // 2
    parts = [(1, batch.slice(0, cut)), (2, batch.slice(cut)), (3, None)]
    packed = [
        (target, frames.NOTHING if part is None else frames.pack(part)) for target, part in parts
    ]
    made = frames.encode_each(Label(1, 3, 0, 2, 17, -7), packed)
    assert list(made) == [
        frames.encode(
            Label(1, 3, target, 2, 17, -7), None if part is None else pa.Table.from_batches([part])
        )
        for target, part in parts
    ]


def test_a_combined_digest_depends_on_every_part_and_their_order() -> None:
    parts = [bytes([number] * 8) for number in range(3)]
    assert frames.combined_digest(parts) == frames.combined_digest(list(parts))
    assert frames.combined_digest(parts) != frames.combined_digest(parts[::-1])
    assert frames.combined_digest(parts) != frames.combined_digest(parts[:2])


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.decimal128(9, 2), pa.binary(), pa.float64(), pa.list_(pa.int64())]
)
def test_columns_of_any_type_with_nulls_have_a_digest(kind: pa.DataType) -> None:
    column = pa.array([None, None], kind)
    some = pa.table({"a": column})
    assert frames.digest(some) != frames.digest(pa.table({"a": column.slice(1)}))


def test_rows_without_columns_stay_as_many() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    assert batch.num_rows == 5
    (block,) = frames.encode_each(Label(1, 3, 5, 2, 17, -7), [(5, frames.pack(batch))])
    (frame,) = frames.frames(memoryview(block))
    assert frame.rows == frames.decode(frame, batch.schema).num_rows == 5
