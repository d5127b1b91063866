"""Every Arrow type in every kind of step: whether it is refused when the pipeline is built.

The table in docs/pipelines.md is made of it.
"""

import decimal
import io
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from rekindle.model.errors import InputError
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, Stream, count, largest, mean, smallest, total
from rekindle_spark.testing import TableSource

NUMBERS = pa.schema([("t", pa.timestamp("us")), ("i", pa.int64()), ("k", pa.int64())])
SECOND = 1_000_000


@dataclass(frozen=True)
class Typed:
    """A type, with values of it and some that must be among them.

    `small` are values of which a thousand have a total that fits, where that is not so of all.
    """

    kind: pa.DataType
    values: st.SearchStrategy[Any]
    edges: tuple[Any, ...] = ()
    make: Callable[[Sequence[Any], pa.DataType], pa.Array] = lambda values, kind: pa.array(
        values, kind
    )
    small: st.SearchStrategy[Any] | None = None

    def array(self, values: Sequence[Any]) -> pa.Array:
        return self.make(values, self.kind)


def integers(bits: int, kind: pa.DataType, signed: bool = True) -> Typed:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = (low, high, 0, None)
    small = st.integers(low // 1000, high // 1000) if bits == 64 else None
    return Typed(kind, st.sampled_from(edges[:3]) | st.integers(low, high), edges, small=small)


def decimals(kind: pa.DataType) -> Typed:
    def scaled(digits: int) -> st.SearchStrategy[decimal.Decimal]:
        return st.integers(-(10**digits) + 1, 10**digits - 1).map(
            lambda number: decimal.Decimal(
                (int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale)
            )
        )

    small = scaled(35) if kind.precision == 38 else None
    return Typed(kind, scaled(kind.precision), (decimal.Decimal(0), None), small=small)


def floats(width: int, kind: pa.DataType) -> Typed:
    edges = (0.0, -0.0, float("nan"), float("inf"), -1.5, None)
    numbers = st.floats(width=width)
    return Typed(kind, numbers, edges, lambda values, kind: pa.array(_floats(values, kind), kind))


def _floats(values: Sequence[Any], kind: pa.DataType) -> Sequence[Any]:
    return (
        [None if v is None else np.float16(v) for v in values] if kind == pa.float16() else values
    )


def times(kind: pa.DataType, low: int, high: int) -> Typed:
    """Of any unit, from whole numbers of it."""

    def make(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, width).view(kind)

    edges = (low, high, 0, None)
    return Typed(kind, st.integers(low, high), edges, make)


def of_texts(kind: pa.DataType) -> Typed:
    return Typed(kind, st.text(max_size=20), ("", "UA", "ü" * 20, None))


def of_bytes(kind: pa.DataType) -> Typed:
    return Typed(kind, st.binary(max_size=20), (b"", b"\xff", b"x" * 20, None))


def encoded(kind: pa.DataType) -> Typed:
    def make(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)

    return Typed(kind, st.text(max_size=3), ("", "UA", None), make)


def runs(kind: pa.DataType) -> Typed:
    def make(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        ends = pa.array(range(1, len(values) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))

    return Typed(kind, st.text(max_size=3), ("UA", None), make)


DAY = 86_400
# Moments in the years 1 to 9999, in seconds since 1970.
FIRST, LAST = -62_135_596_800, 253_402_300_799
YEARS = {"s": 1, "ms": 1_000, "us": 1_000_000}
SMALL = st.integers(-3, 3)

TYPES: tuple[Typed, ...] = (
    Typed(pa.null(), st.none(), (None,)),
    Typed(pa.bool_(), st.booleans(), (True, False, None)),
    *(
        integers(bits, getattr(pa, f"{sign}int{bits}")(), not sign)
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    ),
    floats(16, pa.float16()),
    floats(32, pa.float32()),
    floats(64, pa.float64()),
    decimals(pa.decimal32(9, 2)),
    decimals(pa.decimal64(18, 3)),
    decimals(pa.decimal128(38, 5)),
    decimals(pa.decimal256(76, 10)),
    of_texts(pa.string()),
    of_texts(pa.large_string()),
    of_texts(pa.string_view()),
    of_bytes(pa.binary()),
    of_bytes(pa.large_binary()),
    of_bytes(pa.binary_view()),
    Typed(pa.binary(3), st.binary(min_size=3, max_size=3), (b"abc", None)),
    Typed(pa.uuid(), st.uuids().map(lambda u: u.bytes), (uuid.UUID(int=7).bytes, None)),
    Typed(pa.json_(), st.sampled_from(["{}", '{"a": 1}']), ("[]", None)),
    times(pa.date32(), FIRST // DAY, LAST // DAY),
    Typed(
        pa.date64(),
        st.integers(FIRST // DAY, LAST // DAY).map(lambda day: day * DAY * 1000),
        (0, None),
        lambda values, kind: pa.array(values, pa.int64()).view(kind),
    ),
    times(pa.time32("s"), 0, DAY - 1),
    times(pa.time32("ms"), 0, DAY * 1000 - 1),
    times(pa.time64("us"), 0, DAY * 1_000_000 - 1),
    times(pa.time64("ns"), 0, DAY * 1_000_000_000 - 1),
    *(times(pa.timestamp(unit), FIRST * n, LAST * n) for unit, n in YEARS.items()),
    times(pa.timestamp("ns"), -(2**63) + 1, 2**63 - 1),
    times(pa.timestamp("us", "UTC"), FIRST * SECOND, LAST * SECOND),
    times(pa.timestamp("us", "Europe/Berlin"), 0, 2_000_000_000 * SECOND),
    times(pa.duration("s"), -(10**9), 10**9),
    times(pa.duration("ms"), -(10**12), 10**12),
    times(pa.duration("us"), -(10**15), 10**15),
    times(pa.duration("ns"), -(2**63) + 1, 2**63 - 1),
    Typed(
        pa.month_day_nano_interval(),
        st.tuples(SMALL, SMALL, SMALL).map(pa.MonthDayNano),
        (None,),
    ),
    Typed(pa.list_(pa.float64()), st.lists(st.floats() | st.none(), max_size=3), ([], None)),
    Typed(pa.large_list(pa.int8()), st.lists(SMALL, max_size=3), ([], None)),
    Typed(pa.list_view(pa.int8()), st.lists(SMALL, max_size=3), ([], None)),
    Typed(pa.list_(pa.int8(), 2), st.lists(SMALL, min_size=2, max_size=2), ([1, 2], None)),
    Typed(
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": SMALL | st.none(), "b": st.text(max_size=2)}),
        ({"a": None, "b": ""}, None),
    ),
    Typed(
        pa.map_(pa.string(), pa.int8()),
        st.dictionaries(st.text(max_size=2), SMALL, max_size=2).map(lambda d: list(d.items())),
        ([], None),
    ),
    encoded(pa.dictionary(pa.int32(), pa.string())),
    runs(pa.run_end_encoded(pa.int32(), pa.string())),
    Typed(
        pa.sparse_union([pa.field("a", pa.int8())]),
        st.just(1),
        (),
        lambda values, _: pa.UnionArray.from_sparse(
            pa.array([0] * len(values), pa.int8()),
            [pa.array([1] * len(values), pa.int8())],
            field_names=["a"],
        ),
    ),
    Typed(
        pa.fixed_shape_tensor(pa.int8(), [2]),
        st.lists(SMALL, min_size=2, max_size=2),
        ([1, 2],),
        lambda values, kind: pa.ExtensionArray.from_storage(
            kind, pa.array(values, kind.storage_type)
        ),
    ),
)


@st.composite
def columns(draw: st.DrawFn, typed: Typed, rows_max: int) -> list[Any]:
    """Values of a column: the edges of its type, and behind them up to `rows_max` more.

    Hypothesis draws a pool, and a seed spreads it over the rows: it would take longer to draw a
    value for each row than steps take for it. Keys are skewed where the pool's first values are in
    most rows. A third of the columns has a few rows, so that some epochs have none.
    """
    values, edges = typed.values, typed.edges
    if typed.small is not None and draw(st.booleans()):
        values, edges = typed.small, (None,)
    few, many = st.lists(values, min_size=1, max_size=8), st.lists(values, min_size=60, max_size=90)
    pool = [*edges, *draw(few | many)]
    large = st.integers(rows_max * 9 // 10, rows_max)
    rows = draw(st.integers(0, 25) | large | large)
    chance = random.Random(draw(st.integers(0, 2**32)))
    chance.shuffle(pool)
    is_skewed = draw(st.booleans())
    weights = [1 / rank if is_skewed else 1.0 for rank in range(1, len(pool) + 1)]
    return [*edges, *chance.choices(pool, weights, k=rows)]


class Kept(StatefulOperator):
    """Emits the value of the row before, of each key."""

    def __init__(self, kind: pa.DataType) -> None:
        self.value_schema = pa.schema([("x", kind)])

    def handle(self, key, rows, value):
        del key
        for row in rows:
            before = value.get()[0] if value.exists() else None
            value.update((row["x"],))
            yield (row["t"], row["i"], before)


class Made:
    """A map that gives each row of numbers its value, which stand in a row as the numbers do."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    def __call__(self, table: pa.Table) -> pa.Table:
        begin = table["i"][0].as_py() if table.num_rows else 0
        return table.append_column("x", self.values.slice(begin, table.num_rows))


def numbers(rows: int) -> pa.Table:
    """Rows that a map gives values: three keys, ten rows to a window."""
    moments = pa.array([i * SECOND for i in range(rows)], pa.timestamp("us"))
    return pa.table(
        [moments, pa.array(range(rows)), pa.array([i % 3 for i in range(rows)], pa.int64())],
        schema=NUMBERS,
    )


def made(built: Pipeline, values: pa.Array, name: str = "made") -> Stream:
    """The stream of a pipeline that has the values."""
    schema = NUMBERS.append(pa.field("x", values.type))
    if name in built.steps:
        return Stream(built, name, schema, "t")
    rows = built.source(f"{name}-rows", TableSource(numbers(len(values)), "t"))
    return rows.map(name, Made(values), schema=schema)


def of_filter(built: Pipeline, values: pa.Array) -> Stream:
    odd = lambda table: pa.array([i % 2 == 1 for i in table["i"].to_pylist()], pa.bool_())  # noqa: E731
    return made(built, values).filter("odd", odd)


def of_key(built: Pipeline, values: pa.Array) -> Stream:
    aggregates = {"n": count()}
    return made(built, values).window(
        "by-value", keys=["x"], size_seconds=1000, aggregates=aggregates, parallelism=2
    )


def of_sum(built: Pipeline, values: pa.Array) -> Stream:
    aggregates = {"total": total("x"), "mean": mean("x")}
    return made(built, values).window("sums", keys=["k"], size_seconds=1000, aggregates=aggregates)


def of_extreme(built: Pipeline, values: pa.Array) -> Stream:
    aggregates = {"least": smallest("x"), "most": largest("x")}
    return made(built, values).window(
        "extremes", keys=["k"], size_seconds=1000, aggregates=aggregates
    )


def of_join(built: Pipeline, values: pa.Array) -> Stream:
    other = made(built, values, "other")
    return made(built, values).join("pairs", other, keys=["x"], within_seconds=1000, parallelism=2)


def at_once(table: pa.Table) -> pa.Table:
    return table.set_column(0, "t", pa.array([10**9] * table.num_rows, pa.timestamp("us")))


def of_top(built: Pipeline, values: pa.Array) -> Stream:
    schema = NUMBERS.append(pa.field("x", values.type))
    together = made(built, values).map("at-once", at_once, schema=schema)
    return together.top("best", by="x", count=3, keys=["k"], ties=["i"])


def of_value(built: Pipeline, values: pa.Array) -> Stream:
    return _kept("by-key", ["k"], built, values)


def of_group(built: Pipeline, values: pa.Array) -> Stream:
    return _kept("by-same", ["x"], built, values)


def _kept(name: str, keys: list[str], built: Pipeline, values: pa.Array) -> Stream:
    schema = pa.schema([("t", pa.timestamp("us")), ("i", pa.int64()), ("x", values.type)])
    return made(built, values).stateful(name, Kept(values.type), keys=keys, schema=schema)


CELLS: dict[str, Callable[[Pipeline, pa.Array], Stream]] = {
    "map, filter, sink": of_filter,
    "key": of_key,
    "total, mean": of_sum,
    "smallest, largest": of_extreme,
    "join": of_join,
    "top": of_top,
    "stateful value": of_value,
    "stateful key": of_group,
}


def built_for(cells: Sequence[str], values: pa.Array) -> Pipeline:
    """A pipeline with a type in some kinds of steps, each of which leads to a sink."""
    pipeline = Pipeline("types")
    for cell in cells:
        CELLS[cell](pipeline, values).sink(sink_of(cell))
    return pipeline


def sink_of(cell: str) -> str:
    return f"to-{CELLS[cell].__name__}"


def refusal(cell: str, typed: Typed) -> str:
    """What is said where a type is refused when the pipeline is built; empty where it is not."""
    try:
        program.build(built_for([cell], typed.array(list(typed.edges))))
    except InputError as error:
        return str(error)
    return ""


def written(array: pa.Array) -> bytes | None:
    """A Parquet file with a column; None where Parquet cannot hold it."""
    moments = pa.array([i * SECOND for i in range(len(array))], pa.timestamp("us"))
    sink = io.BytesIO()
    try:
        pq.write_table(pa.table({"t": moments, "x": array}), sink)
    except (pa.ArrowException, NotImplementedError):
        return None
    return sink.getvalue()


def source_type(typed: Typed, folder: Path) -> str:
    """What a source makes of a column of a type in a Parquet file."""
    content = written(typed.array(list(typed.edges) or [1]))
    if content is None:
        return "not in Parquet"
    file = folder / "x.parquet"
    file.write_bytes(content)
    kind = Replay(file, "t").schema.field("x").type
    return "yes" if kind == typed.kind else f"as `{kind}`"


def table(folder: Path) -> str:
    """The table of docs/pipelines.md."""
    lines = ["| type | source | " + " | ".join(CELLS) + " |", "|---" * (len(CELLS) + 2) + "|"]
    for typed in TYPES:
        cells = ["–" if refusal(cell, typed) else "yes" for cell in CELLS]
        lines.append(f"| `{name(typed)}` | {source_type(typed, folder)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def name(typed: Typed) -> str:
    text = str(typed.kind)
    return text.removeprefix("extension<arrow.").removesuffix(">") if "arrow." in text else text
