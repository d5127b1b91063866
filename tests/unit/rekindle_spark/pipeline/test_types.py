"""Every Arrow type in every kind of step: refused when the pipeline is built, or right.

What steps give is compared with what Python, and DuckDB where it has the type, make of all rows at
once. The table of types in docs/pipelines.md is made anew, and must be the one that is there.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

# builders of this suite, on its path
import type_world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from type_world import CELLS, TYPES, Typed, built_for, sink_of

from rekindle.model.errors import StepError
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.testing import run_pipeline

DOCS = Path(__file__).parents[4] / "docs"
EXAMPLES = int(os.environ.get("REKINDLE_TYPE_EXAMPLES", "3"))
NAMES = [type_world.name(typed) for typed in TYPES]


def plain(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    """Values that compare, hash and sort as those of a type do; NaN as text."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type != kind:
        array = array.cast(kind)
    if isinstance(kind, pa.BaseExtensionType):
        array = array.storage
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [_hashable(value) for value in array.to_pylist()]


def _hashable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((key, _hashable(inner)) for key, inner in value.items())
    return value


def rank(value: Any) -> tuple[bool, Any]:
    """A NaN is above all numbers."""
    return (True, 0) if isinstance(value, str) and value == "nan" else (False, value)


def ordered(values: Sequence[Any], is_float: bool) -> list[Any]:
    return sorted(values, key=rank if is_float else lambda value: value)


Check = Callable[[Typed, list[Any], pa.Table], None]


def check_filter(typed: Typed, values: list[Any], found: pa.Table) -> None:
    wanted = {i: value for i, value in enumerate(values) if i % 2}
    assert dict(zip(found["i"].to_pylist(), plain(found["x"], typed.kind), strict=True)) == wanted


def check_key(typed: Typed, values: list[Any], found: pa.Table) -> None:
    counts = zip(plain(found["x"], typed.kind), found["n"].to_pylist(), strict=True)
    assert sorted(counts, key=repr) == sorted(Counter(values).items(), key=repr)


def by_key(values: list[Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for i, value in enumerate(values):
        groups.setdefault(i % 3, []).extend([] if value is None else [value])
    return groups


def check_sum(_: Typed, values: list[Any], found: pa.Table) -> None:
    for row in found.to_pylist():
        group = by_key(values)[row["k"]]
        if not group:
            assert (row["total"], row["mean"]) == (None, None)
        elif isinstance(group[0], float | str):
            exact = [math.nan if value == "nan" else value for value in group]
            _check_float(row["total"], exact, 1)
            _check_float(row["mean"], exact, len(exact))
        else:
            exact_total = sum(map(Fraction, group))  # Decimals would be rounded to 28 digits
            assert Fraction(row["total"]) == exact_total
            assert row["mean"] == pytest.approx(float(exact_total / len(group)), rel=1e-12)


def _check_float(found: float, values: list[float], count: int) -> None:
    if all(map(math.isfinite, values)) and math.isfinite(sum(map(abs, values))):
        largest = max(map(abs, values))
        assert found == pytest.approx(math.fsum(values) / count, rel=1e-9, abs=largest * 1e-9)
    else:
        assert not math.isfinite(found) or abs(found) > 1e300


def check_extreme(typed: Typed, values: list[Any], found: pa.Table) -> None:
    least, most = plain(found["least"], typed.kind), plain(found["most"], typed.kind)
    for key, low, high in zip(found["k"].to_pylist(), least, most, strict=True):
        group = ordered(by_key(values)[key], pa.types.is_floating(typed.kind)) or [None]
        assert (low, high) == (group[0], group[-1])


def check_join(_: Typed, values: list[Any], found: pa.Table) -> None:
    pairs = zip(found["i"].to_pylist(), found["i_right"].to_pylist(), strict=True)
    assert sorted(pairs) == [
        (i, j)
        for i, one in enumerate(values)
        for j, other in enumerate(values)
        if one is not None and one == other
    ]


def check_top(typed: Typed, values: list[Any], found: pa.Table) -> None:
    is_float = pa.types.is_floating(typed.kind)
    for key in range(3):
        mine = [i for i in range(len(values)) if i % 3 == key]
        order = {value: at for at, value in enumerate(ordered({*values} - {None}, is_float))}
        best = sorted(mine, key=lambda i: (-order.get(values[i], -1), i))[:3]
        rows = [row for row in found.select(["k", "i", "rank"]).to_pylist() if row["k"] == key]
        rows.sort(key=lambda row: row["rank"])
        assert [row["i"] for row in rows] == best


def check_value(typed: Typed, values: list[Any], found: pa.Table) -> None:
    before = {i: values[i - 3] if i >= 3 else None for i in range(len(values))}
    assert dict(zip(found["i"].to_pylist(), plain(found["x"], typed.kind), strict=True)) == before


def check_group(typed: Typed, values: list[Any], found: pa.Table) -> None:
    before = {i: value if value in values[:i] else None for i, value in enumerate(values)}
    assert dict(zip(found["i"].to_pylist(), plain(found["x"], typed.kind), strict=True)) == before


CHECKS: dict[str, Check] = {
    "of_filter": check_filter,
    "of_key": check_key,
    "of_sum": check_sum,
    "of_extreme": check_extreme,
    "of_join": check_join,
    "of_top": check_top,
    "of_value": check_value,
    "of_group": check_group,
}


def _fits(kind: pa.DataType, groups: dict[int, list[Any]]) -> bool:
    """Whether totals fit their types."""
    if pa.types.is_floating(kind):
        return True
    limits = (-(2**63), 2**63 - 1)
    if pa.types.is_uint64(kind):
        limits = (0, 2**64 - 1)
    if pa.types.is_decimal(kind):
        limits = (-(10**38) + 1, 10**38 - 1)
        scale = 10**kind.scale
        groups = {k: [Fraction(v) * scale for v in group] for k, group in groups.items()}
    return all(limits[0] <= sum(group) <= limits[1] for group in groups.values())


@pytest.mark.parametrize("typed", TYPES, ids=NAMES)
def test_each_step_gives_what_all_rows_at_once_give(typed: Typed) -> None:
    cells = [cell for cell in CELLS if not type_world.refusal(cell, typed)]
    if not cells:
        return

    some_or_none = typed.values | st.none()
    few, many = st.lists(some_or_none, max_size=25), st.lists(some_or_none, min_size=50)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(few | many, st.integers(1, 4))
    def check(drawn: list[Any], epochs: int) -> None:
        array = typed.array([*typed.edges, *drawn])
        values = plain(array, typed.kind)
        for some in ([cell for cell in cells if cell != "total, mean"], ["total, mean"]):
            if not set(some) <= set(cells):
                continue
            if some == ["total, mean"] and not _fits(typed.kind, by_key(values)):
                with pytest.raises(StepError, match="column 'x': has a total that does not fit"):
                    run_pipeline(built_for(some, array), epochs=epochs)
                continue
            outputs = run_pipeline(built_for(some, array), epochs=epochs)
            for cell in some:
                CHECKS[CELLS[cell].__name__](typed, values, outputs[sink_of(cell)])

    check()


@pytest.mark.parametrize("typed", TYPES, ids=NAMES)
def test_what_is_refused_is_told_with_step_and_column(typed: Typed) -> None:
    for cell in CELLS:
        said = type_world.refusal(cell, typed)
        assert not said or (said.startswith("step ") and "'x'" in said)


@pytest.mark.parametrize("typed", TYPES, ids=NAMES)
def test_a_source_gives_what_is_in_its_file(typed: Typed, tmp_path: Path) -> None:
    array = typed.array(list(typed.edges))
    content = type_world.written(array) if len(array) else None
    if content is None:
        return
    file = tmp_path / "x.parquet"
    file.write_bytes(content)
    source = Replay(file, "t")
    source.check("rows")
    given_ = source.read(0, len(array))["x"]
    wanted = array.cast(given_.type) if given_.type != array.type else array
    if isinstance(array.type, pa.BaseExtensionType) and given_.type == array.type.storage_type:
        wanted = array.storage
    assert plain(given_, given_.type) == plain(wanted, given_.type)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint8(), pa.decimal128(38, 5), pa.string(), pa.date32(), pa.bool_()]
)
def test_duckdb_gives_the_same_rows_as_a_pipeline(kind: pa.DataType) -> None:
    (typed,) = [typed for typed in TYPES if typed.kind == kind]

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(st.lists(typed.values | st.none(), min_size=1, max_size=25))
    def check(drawn: list[Any]) -> None:
        array = typed.array(drawn)
        rows = type_world.numbers(len(array)).append_column("x", array)
        cells = ["key", "smallest, largest", "join"]
        outputs = run_pipeline(built_for(cells, array))
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            for cell, statement, names in (
                ("key", "select x, count(*) from rows group by x", ["x", "n"]),
                (
                    "smallest, largest",
                    "select k, min(x), max(x) from rows group by k",
                    ["k", "least", "most"],
                ),
                ("join", "select a.i, b.i from rows a join rows b using (x)", ["i", "i_right"]),
            ):
                found = outputs[sink_of(cell)].select(names).to_pylist()
                wanted = connection.execute(statement).fetchall()
                assert sorted((tuple(r.values()) for r in found), key=repr) == sorted(
                    wanted, key=repr
                )

    check()


def test_the_table_in_the_docs_is_what_is_found(tmp_path: Path) -> None:
    page = (DOCS / "pipelines.md").read_text(encoding="utf-8")
    table = type_world.table(tmp_path)
    assert table in page, f"docs/pipelines.md needs this table:\n{table}"
