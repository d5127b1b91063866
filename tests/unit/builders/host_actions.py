"""Requests to hosts, as actions: each kind of step, type, state, source, store and fault."""
# Arguments are those that callers pass.
# ruff: noqa: ARG002, ARG005

import datetime as dt
import decimal
import io
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import host_sandboxes
import host_services
import host_sources
import host_topics
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import type_world
from host_story import Action, Story
from pyspark import cloudpickle

from rekindle_spark.operators import (
    FINAL_WATERMARK,
    StatefulOperator,
    aggregates,
    column_types,
    grouping,
    joins,
    row_hash,
)
from rekindle_spark.operators.aggregates import Aggregate
from rekindle_spark.output import sink_files
from rekindle_spark.pipeline.steps import (
    Pipeline,
    Stream,
    count,
    largest,
    mean,
    smallest,
    total,
)
from rekindle_spark.user_code import print_forwarding

SECOND = 1_000_000
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("key", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("u", pa.uint64()),
        ("d", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("on", pa.bool_()),
    ]
)


def rows(count_: int = 24, seconds: float = 1.0, dull: bool = False) -> pa.Table:
    """Rows in order; each column but time and key has nulls, unless it is `dull`."""
    numbers = range(count_)

    def some(values: Sequence[Any], kind: pa.DataType, every: int) -> pa.Array:
        return pa.array(
            [
                None if n % every == 1 and not dull else v
                for n, v in zip(numbers, values, strict=True)
            ],
            kind,
        )

    return pa.Table.from_arrays(
        [
            pa.array([round(n * seconds * SECOND) for n in numbers], pa.timestamp("us")),
            pa.array([f"key-{n % 3}" for n in numbers]),
            some([n - 5 for n in numbers], pa.int64(), 7),
            some([float("nan") if n == 4 else n / 3 for n in numbers], pa.float64(), 6),
            some([n * 0.5 for n in numbers], pa.float32(), 5),
            some([2**63 + n for n in numbers], pa.uint64(), 8),
            some([decimal.Decimal(n) for n in numbers], pa.decimal128(12, 2), 9),
            some([dt.date(2024, 1, 1 + n % 28) for n in numbers], pa.date32(), 10),
            some([n % 2 == 0 for n in numbers], pa.bool_(), 11),
        ],
        schema=ROWS,
    )


def cut(table: pa.Table, epochs: int = 2, name: str = "rows", lag: int = 2) -> list[dict[str, Any]]:
    """Offsets of each epoch, with a watermark that lags behind; the last one closes all."""
    moments = table[0].cast(pa.int64()).to_pylist()
    ends = [table.num_rows * epoch // epochs for epoch in range(epochs + 1)]
    return [
        {name: [begin, end, FINAL_WATERMARK if end == ends[-1] else moments[end] - lag * SECOND]}
        for begin, end in pairwise(ends)
    ]


class Held:
    """A source of the rows of a table, in whatever order these are."""

    event_time = "at"

    def __init__(self, table: pa.Table) -> None:
        self.table, self.schema = table, table.schema

    def check(self, step: str) -> None: ...
    def rows_at(self, event_time: int) -> int: ...
    def event_time_at(self, offset: int) -> int: ...

    def read(self, begin: int, end: int) -> pa.Table:
        return self.table.slice(begin, end - begin)


def built(attach: Callable[[Stream], Any], table: pa.Table | None = None, **given: Any) -> Pipeline:
    """One source with steps attached to it, and a sink for each stream."""
    pipeline = Pipeline("story")
    source = pipeline.source("rows", Held(rows() if table is None else table), **given)
    found = attach(source)
    for number, stream in enumerate(found if isinstance(found, tuple) else (found,)):
        stream.sink(f"out-{number}")
    return pipeline


class Kept(StatefulOperator):
    """Counts a key's rows, and keeps their list."""

    value_schema = pa.schema([("n", pa.int64()), ("seen", pa.list_(pa.int64()))])
    ttl_seconds = 5.0

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        number, seen = value.get() if value.exists() else (0, [])
        for row in rows:
            number += 1
            seen.append(row["n"])
            yield {"at": row["at"], "key": key[0], "n": number}
        value.update((number, seen[-3:]))


OUT = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("n", pa.int64())])


class Small(StatefulOperator):
    """A value of a type that cuts, given as another one."""

    value_schema = pa.schema([("day", pa.date32()), ("f", pa.float32())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        value.update((dt.datetime(2024, 1, 1), 0.1))
        return [(row["at"], key[0], 1.0) for row in rows]


AGGREGATES = {
    "n": count(),
    "ns": Aggregate("count", "n"),
    "nt": total("n"),
    "nm": mean("n"),
    "xt": total("x"),
    "xm": mean("x"),
    "ft": total("f"),
    "ut": total("u"),
    "um": mean("u"),
    "dt": total("d"),
    "dm": mean("d"),
    "low": smallest("d"),
    "key0": smallest("key"),
    "day1": largest("day"),
    "u0": smallest("u"),
    "x1": largest("x"),
    "on1": largest("on"),
}


def windows(stream: Stream) -> tuple[Stream, ...]:
    return (
        stream.window(
            "tumbling",
            keys=["key"],
            size_seconds=4,
            aggregates=_fitting(AGGREGATES),
            parallelism=2,
            late=True,
        ),
        stream.window(
            "sliding",
            keys=["key", "day"],
            size_seconds=6,
            slide_seconds=4,
            aggregates=_fitting(AGGREGATES),
            parallelism=2,
        ),
        stream.window(
            "same",
            keys=["key", "day"],
            size_seconds=6,
            slide_seconds=4,
            aggregates=_fitting(AGGREGATES),
            parallelism=2,
        ),
        stream.window(
            "keyless", keys=[], size_seconds=100, aggregates={"n": count(), "xm": mean("x")}
        ),
        stream.window("by-float", keys=["x", "on"], size_seconds=100, aggregates={"n": count()}),
        stream.window(
            "by-decimal",
            keys=["d", "u"],
            size_seconds=100,
            aggregates={"n": count()},
            parallelism=2,
        ),
    )


def _fitting(aggregates: dict[str, Any]) -> dict[str, Any]:
    """Without the total that does not fit its type."""
    return {name: one for name, one in aggregates.items() if name != "ut"}


def keyed(stream: Stream) -> tuple[Stream, ...]:
    other = stream.filter("other", lambda table: pc.field("n") > 3)
    return (
        stream.top("best", by="x", count=2, keys=["key"], parallelism=2, late=True),
        stream.top("first", by="key", count=1, ties=["n"]),
        stream.join("pairs", other, keys=["key"], within_seconds=3, parallelism=2, late=True),
        stream.join("close", other, keys=["x", "d"], within_seconds=3),
        stream.stateful("kept", Kept(), keys=["key"], schema=OUT, parallelism=2, late=True),
        stream.stateful("arriving", Kept(), keys=["key", "n"], schema=OUT, arrival_order=True),
        stream.stateful("small", Small(), keys=["key"], schema=OUT),
    )


def unite(stream: Stream) -> Stream:
    odd = stream.filter("odd", lambda table: np.asarray(table["n"].is_valid()))
    even = stream.filter("even", lambda table: pc.is_valid(table["x"]))
    both = stream.pipeline.union("both", odd, even)
    return both.window("counts", keys=["key"], size_seconds=4, aggregates={"n": count()})


VIEW = pa.list_view(pa.int8())


def in_other_layouts(table: pa.Table) -> pa.Table:
    """The same values, each column in a layout that is not the one that was declared."""
    listed = pa.array([[1, 2], None, []][: table.num_rows], pa.list_view(pa.int64()))
    filler = pa.array([[3]] * max(0, table.num_rows - 3), pa.list_view(pa.int64()))
    ends = pa.array(range(1, table.num_rows + 1), pa.int32())
    runs = pa.RunEndEncodedArray.from_arrays(ends, table["n"].combine_chunks())
    return pa.table(
        {
            "at": table["at"],
            "key": table["key"].combine_chunks().dictionary_encode(),
            "runs": runs,
            "large": table["key"].cast(pa.large_string()),
            "listed": pa.chunked_array([listed, filler]),
            "bytes": table["key"].cast(pa.large_binary()),
            "map": pa.array(_some_of([("a", [1])], table.num_rows), pa.map_(pa.string(), VIEW)),
            "pair": pa.array([[1, 2]] * table.num_rows, pa.list_(pa.int8(), 2)),
            "struct": pa.array([{"a": [1]}] * table.num_rows, pa.struct([("a", VIEW)])),
        }
    )


def _some_of(value: Any, count: int) -> list[Any]:
    return [value if number % 2 else None for number in range(count)]


DECLARED = pa.schema(
    [
        pa.field("at", pa.timestamp("us")),
        pa.field("key", pa.string(), nullable=False),
        ("runs", pa.int64()),
        ("large", pa.string()),
        ("listed", pa.list_(pa.int64())),
        ("bytes", pa.binary()),
        ("map", pa.map_(pa.string(), pa.list_(pa.int8()))),
        ("pair", pa.list_(pa.int8(), 2)),
        ("struct", pa.struct([("a", pa.list_(pa.int8()))])),
    ]
)


def layouts(stream: Stream) -> tuple[Stream, ...]:
    made = stream.map("made", in_other_layouts, schema=DECLARED)
    full = stream.map("full", lambda table: table.cast(STRICT), schema=STRICT)
    return made, full, made.stateful("each", Few(), keys=["key"], schema=OUT)


class Few(StatefulOperator):
    value_schema = pa.schema([("n", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        value.update((len(rows),))
        return [(row["at"], key[0], len(row["listed"] or ())) for row in rows]


def bad(*numbers: int) -> Callable[[pa.Table], pa.Table]:
    """A map that raises where it is given one of some rows."""

    def function(table: pa.Table) -> pa.Table:
        if {*numbers} & {*table["n"].to_pylist()}:
            raise ValueError("bad row\x1b")  # no terminal is to obey it
        return table

    return function


class Picky(StatefulOperator):
    value_schema = pa.schema([("n", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        if any(row["n"] == 3 for row in rows):
            raise ValueError("bad row")
        value.update((len(rows),))
        return [(row["at"], key[0], 1) for row in rows]


def letters(stream: Stream) -> tuple[Stream, ...]:
    return (
        stream.map("picky", bad(3, -2), schema=ROWS, dead_letters=True),
        stream.filter("mask", lambda t: pc.equal(bad(5)(t)["n"], 3), dead_letters=True),
        stream.stateful("careful", Picky(), keys=["key"], schema=OUT, dead_letters=True),
    )


class Returns(StatefulOperator):
    """Returns the rows that it was made with."""

    value_schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])

    def __init__(self, value: Any, emitted: Any) -> None:
        self.value, self.emitted = value, emitted

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        value.update(self.value)
        return self.emitted


MISFITS: dict[str, tuple[Any, Any]] = {
    "value": (("x",), []),
    "fraction": ((1.5,), []),
    "null": ((None,), []),
    "width": ((1, 2), []),
    "text": ((1,), "rows"),
    "row": ((1,), [{"other": 1}]),
    "nothing": ((1,), None),
    "number": ((np.int32(1),), [(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "k", 1.0)]),
}


def stateful(name: str) -> Callable[[Stream], Stream]:
    return lambda stream: stream.stateful(name, Returns(*MISFITS[name]), keys=["key"], schema=OUT)


def wrong(function: Callable[[pa.Table], Any]) -> Callable[[Stream], Stream]:
    return lambda stream: stream.map("wrong", function, schema=ROWS)


def unwritable(table: pa.Table) -> pa.Table:
    return table.set_column(1, "key", pa.array([None] * table.num_rows, pa.string()))


def far(table: pa.Table) -> pa.Table:
    times = pa.array([2**62 + 5] * table.num_rows, pa.int64()).view(pa.timestamp("us"))
    return table.set_column(0, "at", times)


def unreadable(table: pa.Table) -> pa.Table:
    text = pa.array([b"\xff"] * table.num_rows).view(pa.string())
    return table.set_column(1, "key", text)


def odd_columns(table: pa.Table) -> pa.Table:
    """Of another type, twice, and not declared."""
    text = table["n"].cast(pa.string())
    return table.set_column(2, "n", text).append_column("key", text).append_column("new", text)


STRICT = pa.schema([ROWS.field(0), pa.field("key", pa.string(), nullable=False), *[*ROWS][2:]])
FAULTS: dict[str, Callable[[Stream], Any]] = {
    "no-table": wrong(lambda table: 3),
    "other-columns": wrong(lambda table: table.select(["at"])),
    "other-order": wrong(lambda table: table.select(ROWS.names[::-1])),
    "odd-columns": wrong(odd_columns),
    "a-null": lambda s: s.map("null", unwritable, schema=STRICT),
    "raises": wrong(bad(0)),
    "no-mask": lambda s: s.filter("mask", lambda table: [True]),
    "short-mask": lambda s: s.filter("mask", lambda table: np.array([1])),
    "far-times": lambda s: s.map("far", far, schema=ROWS).top("t", by="n", count=1),
    "no-text": lambda s: s.map("odd", unreadable, schema=ROWS).stateful(
        "kept", Kept(), keys=["n"], schema=OUT
    ),
    "overflow": lambda s: s.window(
        "w", keys=["key"], size_seconds=99, aggregates={"t": total("u")}
    ),
    **{f"misfit-{name}": stateful(name) for name in MISFITS},
}


def of_steps(folder: Path) -> Iterator[Action]:
    """Each kind of step."""
    table = rows()
    shuffled = table.take(pa.array([*range(12), *range(20, 24), *range(12, 16), 3, *range(16, 20)]))
    for name, attach in (("windows", windows), ("keyed", keyed), ("unite", unite)):
        for kind, given in (("", table), ("-late", shuffled)):
            pipeline = built(attach, given, parallelism=2)
            offsets = cut(table, 3)
            yield from (
                Story(f"{name}{kind}", folder / f"{name}{kind}", pipeline, offsets)
                .begin()
                .actions(restores=not kind)
            )
    yield from (
        Story("layouts", folder / "layouts", built(layouts, rows(dull=True)), cut(table))
        .begin()
        .actions()
    )
    yield from Story("letters", folder / "letters", built(letters), cut(table)).begin().actions()
    for name, attach in FAULTS.items():
        yield from Story(name, folder / name, built(attach), cut(table, 1)).begin().actions()


class Cut(StatefulOperator):
    """A value of which a coarse type keeps a part alone."""

    value_schema = pa.schema([("day", pa.date32())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        value.update((dt.datetime(2024, 1, 1, 5),))
        return []


class Parts(StatefulOperator):
    """A value of parts that Arrow may cut, as numpy's arrays and as others."""

    value_schema = pa.schema(
        [
            ("floats", pa.list_(pa.float32())),
            ("moments", pa.list_(pa.timestamp("us"))),
            ("spans", pa.list_(pa.duration("us"))),
            ("numbers", pa.map_(pa.string(), pa.int8())),
            ("moment", pa.timestamp("us")),
        ]
    )

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        floats = np.arange(2.0)  # longer ones than those of the type
        moments = np.array(["2024-01-01"], "M8[us]")
        spans = np.array([1], "m8[us]")
        value.update((floats, moments, spans, {"a": 1}, 2.0))
        return []


class Together(StatefulOperator):
    """Raises for rows together, and for none of them alone."""

    value_schema = pa.schema([("n", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        if len(rows) > 1:
            raise ValueError("too many")
        return []


def timeless(table: pa.Table) -> pa.Table:
    return table.set_column(0, "at", pa.array([None] * table.num_rows, pa.timestamp("us")))


FAR = pa.schema(
    [("at", pa.timestamp("us")), ("far", pa.list_(pa.timestamp("us"))), ("n", pa.int64())]
)


def far_days(table: pa.Table) -> pa.Table:
    moments = pa.array([2**60] * table.num_rows, pa.int64()).view(pa.timestamp("us"))
    days = pa.FixedSizeListArray.from_arrays(moments, 1).cast(pa.list_(pa.timestamp("us")))
    return pa.table({"at": table["at"], "far": days, "n": table["n"]})


def loud(table: pa.Table) -> pa.Table:
    print("one\ntwo\nthree")
    return table


def little(table: pa.Table) -> pa.Table:
    return table.set_column(5, "u", pa.array(range(table.num_rows), pa.uint64()))


def _kept(name: str, operator: StatefulOperator, **given: Any) -> Callable[[Stream], Stream]:
    return lambda s: s.stateful(name, operator, keys=["key"], schema=OUT, **given)


ODD: dict[str, Callable[[Stream], Any]] = {
    "cut": _kept("cut", Cut()),
    "parts": _kept("parts", Parts()),
    "together": _kept("together", Together()),
    "together-letters": _kept("together", Together(), dead_letters=True),
    "uncertain": _kept("kept", Picky(), deterministic=False, dead_letters=True),
    "timeless": lambda s: s.map("none", timeless, schema=ROWS).top("t", by="n", count=1),
    "far-days": lambda s: s.map("days", far_days, schema=FAR).map("bad", bad(-5), schema=FAR),
    "little": lambda s: s.map("few", little, schema=ROWS).window(
        "w", keys=["key"], size_seconds=99, aggregates={"t": total("u")}
    ),
    "no-text-letters": lambda s: s.map("odd", unreadable, schema=ROWS).stateful(
        "kept", Kept(), keys=["n"], schema=OUT, dead_letters=True
    ),
    "no-text-by-key": lambda s: s.map("odd", unreadable, schema=ROWS).stateful(
        "kept", Kept(), keys=["key"], schema=OUT
    ),
}


def of_limits(folder: Path) -> Iterator[Action]:
    """Rare inputs, and limits, which are lowered for it."""
    for name, attach in ODD.items():
        yield from Story(name, folder / name, built(attach), cut(rows())).begin().actions()
    changes = (
        (joins, "CHUNKS_MAX", 0),
        (aggregates, "CACHED_ROWS_MAX", 0),
        (grouping, "ROWS_AT_ONCE_MAX", 0),
        (row_hash, "hashes", lambda table, _: np.zeros(table.num_rows, np.uint64)),
    )
    lowered = [lambda c=change: mock.patch.object(*c) for change in changes]
    for name, attach in (("windows", windows), ("keyed", keyed)):
        story = Story(name, folder / name, built(attach), cut(rows(), 3)).begin()
        for number, chain in enumerate(story.program.owner):
            if chain.keyed:
                yield story.again(1, number, restored=0).within(*lowered)
                yield story.again(2, number).within(*lowered)
    picky = lambda s: s.map("picky", bad(3), schema=ROWS, dead_letters=True)  # noqa: E731
    story = Story("known", folder / "known", built(picky), cut(rows())).begin()
    yield story.again(1, 0, item={"choices": {"1": {"picky": [[0, 1], []]}}})
    refuses = lambda: mock.patch.object(sink_files, "_parquet", side_effect=pa.ArrowInvalid("no"))  # noqa: E731
    yield story.again(1, 0).within(refuses)
    loud_one = Story(
        "loud", folder / "loud", built(lambda s: s.map("loud", loud, schema=ROWS)), cut(rows())
    )
    yield loud_one.again(1, 0).within(
        lambda: mock.patch.object(sys, "stdout", print_forwarding._Recorder(io.StringIO())),
        lambda: mock.patch.object(print_forwarding, "LINES_MAX", 1),
    )
    yield Action("2 GiB of text", _large, raises=True)
    place = f"file://{folder / 'url'}"
    yield Story("file URL", folder / "url", built(picky), cut(rows()), place=place).again(1, 0)


def _large() -> Any:
    """Text that does not go into one array of its plain type; its memory is never written."""
    zeros = pa.py_buffer(mmap.mmap(-1, 2**31 + 100))
    ends = pa.array([0, 2**31 - 100, 2**31 + 99, 2**31 + 100], pa.int64()).buffers()[1]
    text = pa.Array.from_buffers(pa.large_string(), 3, [None, ends, zeros])
    return column_types.column(pa.chunked_array([text]), pa.string()).num_chunks


def of_types(folder: Path) -> Iterator[Action]:
    """Each kind of type in each kind of step."""
    wanted = [
        *(pa.null(), pa.float16(), pa.decimal64(18, 3), pa.decimal256(76, 10), pa.large_string()),
        *(
            pa.binary(3),
            pa.uuid(),
            pa.date64(),
            pa.time32("s"),
            pa.timestamp("us", "UTC"),
            pa.uint8(),
        ),
        *(
            pa.duration("ns"),
            pa.list_(pa.float64()),
            pa.struct([("a", pa.int8()), ("b", pa.string())]),
        ),
        *(pa.map_(pa.string(), pa.int8()), pa.bool_(), pa.json_()),
    ]
    for typed in type_world.TYPES:
        if typed.kind not in wanted:
            continue
        cells = [cell for cell in type_world.CELLS if not type_world.refusal(cell, typed)]
        cells = [cell for cell in cells if cell != "total, mean"] or cells
        array = typed.array([*typed.edges, *typed.edges[::-1], *typed.edges])
        if not cells:
            continue
        pipeline = type_world.built_for(cells, array)
        name = (
            type_world.name(typed)
            .replace("<", "-")
            .replace(">", "")
            .replace(" ", "")
            .replace(":", "")
        )
        offsets = [
            {source: [begin, end, mark] for source in ("made-rows", "other-rows")}
            for begin, end, mark in ((0, 3, SECOND), (3, len(array), FINAL_WATERMARK))
        ]
        story = Story(f"type {name}", folder / name[:40], pipeline, offsets).begin()
        yield from story.actions(restores=True)


GROUPS: dict[str, Callable[[Path], Iterator[Action]]] = {
    "states": host_services.of_states,
    "requests": host_services.of_requests,
    "processes": host_services.of_processes,
    "sandboxes": host_sandboxes.of_sandboxes,
    "replays": host_sources.of_replays,
    "files": host_sources.of_files,
    "kafka": host_topics.of_kafka,
    "logs": host_sources.of_logs,
    "stores": host_sources.of_stores,
    "steps": of_steps,
    "limits": of_limits,
    "types": of_types,
}
