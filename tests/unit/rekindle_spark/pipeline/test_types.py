"""Every Arrow type in every kind of step: refused when the pipeline is built, or right.

What steps give is compared with what Python, and DuckDB where it has the type, make of all rows at
once. The table of types in docs/pipelines.md is made anew, and must be the one that is there.

`make test` has a few small tables of each type. `REKINDLE_TYPES=all` has more and larger ones, and
fails where a kind of step has had less than 200,000 rows.
"""

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
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
ALL = os.environ.get("REKINDLE_TYPES") == "all"
EXAMPLES = 60 if ALL else 3
# at most 1,000, which are a second apart: all of them are in one window, and meet in the join
COLUMN_ROWS_MAX = 600 if ALL else 60
ROWS_WANTED = 200_000
TOTAL = "total, mean"
# How many rows had the right result, and how many of them had it from DuckDB as well.
RIGHT: Counter[str] = Counter()
RIGHT_BESIDE_DUCKDB: Counter[str] = Counter()
NAMES = [type_world.name(typed) for typed in TYPES]
# The tests of this file that have been run in this process.
RUN: set[str] = set()


@pytest.fixture(autouse=True)
def _noted(request: pytest.FixtureRequest) -> None:
    RUN.add(request.node.name)


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
    values = array.to_pylist()
    if pa.types.is_floating(array.type) or pa.types.is_nested(array.type):
        return [_hashable(value) for value in values]
    return values


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
    groups = by_key(values)
    for row in found.to_pylist():
        group = groups[row["k"]]
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
    groups = by_key(values)
    for key, low, high in zip(found["k"].to_pylist(), least, most, strict=True):
        group = ordered(groups[key], pa.types.is_floating(typed.kind)) or [None]
        assert (low, high) == (group[0], group[-1])


def check_join(_: Typed, values: list[Any], found: pa.Table) -> None:
    same: dict[Any, list[int]] = {}
    for i, value in enumerate(values):
        if value is not None:
            same.setdefault(value, []).append(i)
    pairs = zip(found["i"].to_pylist(), found["i_right"].to_pylist(), strict=True)
    assert sorted(pairs) == [(i, j) for i, value in enumerate(values) for j in same.get(value, ())]


def check_top(typed: Typed, values: list[Any], found: pa.Table) -> None:
    is_float = pa.types.is_floating(typed.kind)
    order = {value: at for at, value in enumerate(ordered({*values} - {None}, is_float))}
    for key in range(3):
        mine = [i for i in range(len(values)) if i % 3 == key]
        best = sorted(mine, key=lambda i: (-order.get(values[i], -1), i))[:3]
        rows = [row for row in found.select(["k", "i", "rank"]).to_pylist() if row["k"] == key]
        rows.sort(key=lambda row: row["rank"])
        assert [row["i"] for row in rows] == best


def check_value(typed: Typed, values: list[Any], found: pa.Table) -> None:
    before = {i: values[i - 3] if i >= 3 else None for i in range(len(values))}
    assert dict(zip(found["i"].to_pylist(), plain(found["x"], typed.kind), strict=True)) == before


def check_group(typed: Typed, values: list[Any], found: pa.Table) -> None:
    seen: set[Any] = set()
    before = {}
    for i, value in enumerate(values):
        before[i] = value if value in seen else None
        seen.add(value)
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


# The same of DuckDB, for each kind of step.
STATEMENTS = {
    "map, filter, sink": "select i, x from rows where i % 2 = 1",
    "key": "select x, count(*) as n from rows group by x",
    TOTAL: "select k, sum(x), avg(x), max(abs(x::double)) from rows group by k",
    "smallest, largest": "select k, min(x) as least, max(x) as most from rows group by k",
    "join": "select a.i, b.i as i_right from rows a join rows b using (x)",
    "top": """select k, i, row_number() over (partition by k order by x desc nulls last, i) as rank
              from rows qualify rank <= 3""",
    "stateful value": "select i, lag(x) over (partition by k order by i) as x from rows",
    "stateful key": "select i, lag(x) over (partition by x order by i) as x from rows",
}


def for_duckdb(array: pa.Array) -> pa.Array | None:
    """The same values in a type that DuckDB reads exactly; None where it has none."""
    if pa.types.is_decimal256(array.type):
        return None  # its decimals have up to 38 digits
    if pa.types.is_duration(array.type):
        return array.view(pa.int64())  # its intervals lack nanoseconds
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def is_same_in_duckdb(connection: duckdb.DuckDBPyConnection, cell: str, found: pa.Table) -> bool:
    """Assert that DuckDB gives the rows that a step gave; False where it cannot give them."""
    if cell == TOTAL:
        return _has_same_totals_in_duckdb(connection, found)
    wanted = connection.sql(STATEMENTS[cell]).to_arrow_table()
    # no two rows of DuckDB's are the same
    assert found.num_rows == wanted.num_rows
    assert _rows(found.select(wanted.column_names), found.schema) == _rows(wanted, found.schema)
    return True


def _rows(table: pa.Table, schema: pa.Schema) -> set[tuple[Any, ...]]:
    columns = [plain(table[name], schema.field(name).type) for name in table.column_names]
    return set(zip(*columns, strict=True))


def _has_same_totals_in_duckdb(connection: duckdb.DuckDBPyConnection, found: pa.Table) -> bool:
    try:
        wanted = connection.sql(STATEMENTS[TOTAL]).fetchall()
    except duckdb.OutOfRangeException:
        return False  # on its way to a total that fits it may come to one that does not
    rows = {row["k"]: row for row in found.to_pylist()}
    assert len(rows) == len(wanted)
    for key, total, mean, largest in wanted:
        ours = rows[key]["total"], rows[key]["mean"]
        if total is None:
            assert ours == (None, None)
        elif math.isfinite(largest * COLUMN_ROWS_MAX):  # else the order of additions decides
            close = partial(pytest.approx, rel=1e-9, abs=largest * 1e-9)
            assert ours == (close(total) if isinstance(total, float) else total, close(mean))
    return True


@pytest.mark.parametrize("typed", TYPES, ids=NAMES)
def test_each_step_gives_what_all_rows_at_once_give(typed: Typed) -> None:
    cells = [cell for cell in CELLS if not type_world.refusal(cell, typed)]
    if not cells:
        return

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(type_world.columns(typed, COLUMN_ROWS_MAX), st.integers(1, 4))
    def check(drawn: list[Any], epochs: int) -> None:
        array = typed.array(drawn)
        values = plain(array, typed.kind)
        fitting = cells
        if TOTAL in cells and not _fits(typed.kind, by_key(values)):
            with pytest.raises(StepError, match="column 'x': has a total that does not fit"):
                run_pipeline(built_for([TOTAL], array), epochs=epochs)
            fitting = [cell for cell in cells if cell != TOTAL]
        outputs = run_pipeline(built_for(fitting, array), epochs=epochs)
        for cell in fitting:
            CHECKS[CELLS[cell].__name__](typed, values, outputs[sink_of(cell)])
            RIGHT[cell] += len(values)
        held = for_duckdb(array)
        if held is not None:
            rows = type_world.numbers(len(held)).append_column("x", held)
            connection.register("rows", rows)
            for cell in fitting:
                if is_same_in_duckdb(connection, cell, outputs[sink_of(cell)]):
                    RIGHT_BESIDE_DUCKDB[cell] += len(values)

    with duckdb.connect(config={"threads": 1}) as connection:
        # UUIDs and truth values stay what they are, in place of text and bytes
        connection.execute("set arrow_lossless_conversion = true")
        check()


@pytest.mark.parametrize("typed", TYPES, ids=NAMES)
def test_what_is_refused_is_told_with_step_and_column(typed: Typed) -> None:
    for cell in CELLS:
        said = type_world.refusal(cell, typed)
        assert not said or (said.startswith("step ") and "'x'" in said)


@pytest.mark.parametrize("typed", TYPES, ids=NAMES)
def test_a_source_gives_what_is_in_its_file(typed: Typed, tmp_path: Path) -> None:
    numbers = itertools.count()
    if type_world.written(typed.array(list(typed.edges))) is None:
        return

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(type_world.columns(typed, COLUMN_ROWS_MAX), st.integers(0, COLUMN_ROWS_MAX))
    def check(drawn: list[Any], end: int) -> None:
        array = typed.array(drawn)
        file = tmp_path / f"{next(numbers)}.parquet"
        file.write_bytes(type_world.written(array) or b"")
        source = Replay(file, "t")
        source.check("rows")
        end = min(end, len(array))
        parts = [source.read(0, end)["x"], source.read(end, len(array))["x"]]
        kind = parts[0].type
        wanted = array
        if pa.types.is_list_view(array.type):  # of which Arrow's cast leaves the last list out
            wanted = pa.array(array.to_pylist(), kind)
        elif kind != array.type:
            wanted = array.cast(kind)
        if isinstance(array.type, pa.BaseExtensionType) and kind == array.type.storage_type:
            wanted = array.storage
        assert [value for part in parts for value in plain(part, kind)] == plain(wanted, kind)
        RIGHT["source"] += len(array)

    check()


def test_the_table_in_the_docs_is_what_is_found(tmp_path: Path) -> None:
    page = (DOCS / "pipelines.md").read_text(encoding="utf-8")
    table = type_world.table(tmp_path)
    assert table in page, f"docs/pipelines.md needs this table:\n{table}"


def test_each_kind_of_step_has_had_enough_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts the rows of the tests above, so all of them have to run before it in this process."""
    if not ALL:
        pytest.skip("rows of each kind of step are counted under REKINDLE_TYPES=all only")
    counting = (
        test_each_step_gives_what_all_rows_at_once_give,
        test_a_source_gives_what_is_in_its_file,
    )
    if not {f"{test.__name__}[{name}]" for test in counting for name in NAMES} <= RUN:
        pytest.skip("rows are counted in a whole run of this file: no -k; -n with --dist loadfile")
    with capsys.disabled():
        print("\nrows with the right result, by kind of step:")
        for cell, rows in RIGHT.items():
            print(f"  {cell}: {rows:,}, of them beside DuckDB {RIGHT_BESIDE_DUCKDB[cell]:,}")
    assert set(RIGHT) == {"source", *CELLS}
    assert min(RIGHT.values()) >= ROWS_WANTED
