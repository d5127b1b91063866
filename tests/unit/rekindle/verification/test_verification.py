"""Verification finds a wrong row, a changed figure, a broken plan and a missing file."""

import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rekindle import report, verification
from rekindle.model.errors import InputError, RunError
from rekindle.verification import batch_check, report_check
from rekindle.verification.batch_check import BatchEngine
from rekindle_cli.commands.verify import verify
from rekindle_testing import run_builders
from rekindle_testing.run_builders import BuiltScenario

SCENARIO = BuiltScenario({"a": 1.0, "b": 2.0, "c": 9.0}, begin=-70.0, end=30.0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    run_builders.write(SCENARIO, directory, time.monotonic)
    return directory


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(written, copy)
    return copy


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def change_rows(run: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    path = run / "outputs" / "c" / "0.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def with_miles_times(table: pa.Table, factor: float) -> pa.Table:
    miles = pc.multiply(table["miles"], factor)
    return table.set_column(table.schema.get_field_index("miles"), "miles", miles)


def found(run: Path) -> list[str]:
    return [difference.where for difference in verification.verify(run, time.monotonic)]


def test_a_report_that_holds_shows_no_difference(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify(run)
    assert "every figure of the report holds" in capsys.readouterr().out


def test_a_report_of_a_release_that_had_fewer_figures_holds(run: Path) -> None:
    def forget(record: dict[str, Any]) -> None:
        del record["machine_limit"]
        for plan in record["plans"]:
            del plan["skipped"], plan["why"]

    change_json(run / "report.json", forget)
    assert found(run) == []


def test_a_changed_reason_of_a_plan_is_found(run: Path) -> None:
    change_json(run / "report.json", lambda record: record["plans"][0].update(why="for no reason"))
    assert found(run) == ["plans[0].why"]


@pytest.mark.parametrize(
    ("change", "kind", "count"),
    [
        (lambda table: table.slice(1), "missing", 1),
        (lambda table: pa.concat_tables([table, table.slice(0, 2)]), "duplicated", 2),
        (
            lambda table: pa.concat_tables([with_miles_times(table.slice(0, 4), 2.0), table[4:]]),
            "wrong",
            4,
        ),
    ],
)
def test_a_planted_row_is_found(
    run: Path, change: Callable[[pa.Table], pa.Table], kind: str, count: int
) -> None:
    change_rows(run, change)
    assert found(run) == [f"exactly_once.{kind}", f"outputs/c: {kind} rows"]
    row = r"row_index=\d+, departed=2013-01-01 00:00:\d\d, miles=[\d.]+"
    place = "" if kind == "missing" else r" \(epoch 1 of c/0\)"
    promise = rf"outputs/c: {kind} rows  0 \(the promise\) +{count}, such as {row}{place}$"
    with pytest.raises(RunError, match=promise):
        verify(run)


def test_wrong_rows_count_even_when_the_report_admits_them(run: Path) -> None:
    change_rows(run, lambda table: table.slice(3))
    change_json(run / "report.json", lambda record: record["exactly_once"].update(missing=3))
    assert found(run) == ["outputs/c: missing rows"]


def test_a_difference_in_the_last_bits_of_a_float_is_not_a_wrong_row(run: Path) -> None:
    change_rows(run, lambda table: with_miles_times(table, 1 + 1e-13))
    assert found(run) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_number_that_is_none_is_a_wrong_row(run: Path, value: float | None) -> None:
    def spoil(table: pa.Table) -> pa.Table:
        miles = pa.array([value, *table["miles"].to_pylist()[1:]], pa.float64())
        return table.set_column(table.schema.get_field_index("miles"), "miles", miles)

    change_rows(run, spoil)
    assert found(run) == ["exactly_once.wrong", "outputs/c: wrong rows"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda r: r.update(weighted_unavailable_seconds=1.0), "weighted_unavailable_seconds"),
        (lambda r: r["queries"]["c"].update(back_at=3.0), "queries.c.back_at"),
        (lambda r: r["queries"]["c"]["unavailable"].clear(), "queries.c.unavailable"),
        (lambda r: r["queries"].update(z={}), "queries.z"),
        (lambda r: r["plans"][0].update(gap=0.5), "plans[0].gap"),
        (lambda r: r.update(killed=1), "killed"),
        (lambda r: r.pop("first_plan_epochs"), "first_plan_epochs"),
    ],
)
def test_a_changed_figure_is_named(run: Path, change: Callable[[Any], None], where: str) -> None:
    change_json(run / "report.json", change)
    assert found(run) == [where]


@pytest.mark.parametrize(
    ("file", "change", "where"),
    [
        (
            "problems/1.json",
            lambda r: r.update(capacity_cpu_percent=1.0),
            ["plans[0].capacity_cpu_percent", "answers/1.json: capacity"],
        ),
        (
            "answers/1.json",
            lambda r: r.update(partitions=[]),
            ["answers/1.json: partitions"] * 2 + ["answers/1.json: used_cpu_percent"],
        ),
        (
            "answers/1.json",
            lambda r: r.update(upper_bound=18.0),
            ["answers/1.json: gap"],
        ),
        (
            "answers/1.json",
            lambda r: r.update(queries=["nobody"]),
            ["answers/1.json"],
        ),
    ],
)
def test_a_plan_that_does_not_follow_from_its_problem_is_named(
    run: Path, file: str, change: Callable[[Any], None], where: list[str]
) -> None:
    change_json(run / file, change)
    assert found(run)[: len(where)] == where


def test_a_plan_over_the_capacity_of_a_node_is_named(run: Path) -> None:
    def on_a_small_node(record: Any) -> None:
        del record["capacity_cpu_percent"]
        record["nodes"] = {"small": {"free_cpu_percent": 1.0}, "large": {"free_cpu_percent": 23.0}}

    change_json(run / "problems" / "1.json", on_a_small_node)
    partitions = json.loads((run / "answers" / "1.json").read_text())["partitions"]
    change_json(run / "answers" / "1.json", lambda r: r.update(placement={"small": partitions}))
    assert "answers/1.json: placement.small" in found(run)


def test_a_plan_that_places_partitions_on_a_node_that_is_not_there_is_named(run: Path) -> None:
    def on_a_node(record: Any) -> None:
        del record["capacity_cpu_percent"]
        record["nodes"] = {"there": {"free_cpu_percent": 1_000.0}}

    change_json(run / "problems" / "1.json", on_a_node)
    partitions = json.loads((run / "answers" / "1.json").read_text())["partitions"]
    change_json(run / "answers" / "1.json", lambda r: r.update(placement={"nowhere": partitions}))
    assert "answers/1.json: placement.nowhere" in found(run)


def without_commit(run: Path, query: str, number: int) -> int:
    """Takes one commit event of a query out, gives its epoch."""
    lines = (run / "events.jsonl").read_text().splitlines()
    commits = [
        line for line in lines if '"commit"' in line and json.loads(line).get("query") == query
    ]
    lines.remove(commits[number])
    (run / "events.jsonl").write_text("\n".join(lines))
    return int(json.loads(commits[number])["epoch"])


@pytest.mark.parametrize("number", [0, 1, 40, -1])
def test_a_single_commit_event_that_is_gone_is_named(run: Path, number: int) -> None:
    epoch = without_commit(run, "c", number)
    assert {"events.jsonl: commits of c/0", f"outputs/c/0.parquet: epoch {epoch}"} <= {*found(run)}


@pytest.mark.parametrize("seconds", [-1.5, 0.5])
def test_a_commit_time_that_is_not_that_of_the_commit_event_is_named(
    run: Path, seconds: float
) -> None:
    def shift(table: pa.Table) -> pa.Table:
        moved = pc.add(table["committed_at"], pc.if_else(pc.equal(table["epoch"], 50), seconds, 0))
        return table.set_column(table.schema.get_field_index("committed_at"), "committed_at", moved)

    change_rows(run, shift)
    assert found(run) == ["outputs/c/0.parquet: epoch 50"]


def test_rows_without_epoch_or_commit_time_are_named(run: Path) -> None:
    def strip(table: pa.Table) -> pa.Table:
        for name in ("epoch", "committed_at"):
            values = [*table[name].to_pylist()[:-1], None]
            column = table.schema.get_field_index(name)
            table = table.set_column(column, name, pa.array(values, table.schema.field(name).type))
        return table

    change_rows(run, strip)
    assert found(run) == ["outputs/c/0.parquet: epoch -1"]


def test_a_commit_event_without_its_first_epoch_is_bad_input(run: Path) -> None:
    text = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text(text.replace('"from_epoch": 7}', '"from_epoch": "7"}'))
    with pytest.raises(InputError, match=r"commit of a/0 at .*has '7' as from_epoch"):
        verify(run)


@pytest.mark.parametrize(
    "name",
    [
        *("report.json", "events.jsonl", "input.json", "queries.sql", "problems/1.json"),
        *("answers/1.json", "outputs", "outputs/c", "outputs/c/0.parquet"),
    ],
)
def test_a_missing_file_is_bad_input_that_names_it(run: Path, name: str) -> None:
    target = run / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(InputError) as raised:
        verify(run)
    assert raised.value.where == name
    assert "missing" in raised.value.what


def test_an_input_file_with_other_content_is_bad_input(run: Path) -> None:
    (run / "in.parquet").write_bytes(b"other")
    with pytest.raises(InputError, match=r"input file in\.parquet: has another SHA-256"):
        verify(run)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("report.json", "{", "report.json: is not JSON"),
        ("report.json", '{"version": 1, "version": 1}', "report.json: 'version': is there twice"),
        ("report.json", '{"version": 7}', "report.json: version: is 7"),
        ("queries.sql", "-- query: a\nSELEC 1", r"queries.sql: has no query b|queries.sql"),
        ("events.jsonl", "{}\n", "events.jsonl: line 1: has version None"),
    ],
)
def test_an_ill_formed_file_is_bad_input(run: Path, name: str, content: str, message: str) -> None:
    (run / name).write_text(content)
    with pytest.raises(InputError, match=message):
        verify(run)


def test_more_rows_read_than_a_file_has_is_bad_input(run: Path) -> None:
    change_json(run / "input.json", lambda r: r["files"][0].update(repeat_every_seconds=None))
    with pytest.raises(InputError, match=r"offsets\.flights: is \d+, but in\.parquet has 40 rows"):
        verify(run)


def test_a_statement_that_fails_is_named_by_its_query(run: Path) -> None:
    sql = (run / "queries.sql").read_text().replace("% 3 = 2", "% nothing = 2")
    (run / "queries.sql").write_text(sql)
    with pytest.raises(InputError, match=r"queries\.sql: c: cannot be used"):
        verify(run)


def test_whole_rows_are_compared_where_a_query_has_no_keys(run: Path) -> None:
    change_json(run / "input.json", lambda record: record["queries"]["c"].update(keys=[]))
    change_rows(
        run,
        lambda table: pa.concat_tables(
            [table.slice(3), table.slice(5, 1), with_miles_times(table.slice(1, 2), 2.0)]
        ),
    )
    record = json.loads((run / "input.json").read_text())
    rows = verification.exactly_once(
        run, report.Inputs.from_record(record), (run / "queries.sql").read_text()
    )
    assert (rows["missing"], rows["duplicated"], rows["wrong"]) == (3, 1, 2)


def test_a_query_without_any_row_lacks_all_of_them(run: Path) -> None:
    change_rows(run, lambda table: table.slice(0, 0))
    assert "outputs/c: missing rows" in found(run)


def test_output_that_belongs_to_no_query_is_named(run: Path) -> None:
    shutil.copytree(run / "outputs" / "c", run / "outputs" / "bogus")
    shutil.copy(run / "outputs" / "c" / "0.parquet", run / "outputs" / "c" / "1.parquet")
    assert found(run) == ["outputs/bogus", "outputs/bogus/0.parquet", "outputs/c/1.parquet"]


def test_progress_is_told_file_by_file_and_query_by_query(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify(run)
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "reading the records of the run",
        "checking the input file in.parquet",
        "checking the rows of a, query 1 of 3",
        "checking the rows of b, query 2 of 3",
        "checking the rows of c, query 3 of 3",
        "computing the figures of the report",
        "checking commits and plans",
    ]


def ask_until_interrupted() -> None:
    with BatchEngine() as engine:
        engine.ask("CREATE TABLE t AS SELECT range AS a FROM range(100000)", "t")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while True:
            engine.ask("SELECT a % 100, sum(hash(a) % 7) FROM t GROUP BY ALL", "t")


def test_an_interruption_in_mid_query_is_a_keyboard_interrupt() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                ask_until_interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_statements_are_split_at_their_headings() -> None:
    sql = "-- a remark\n-- prelude\nCREATE VIEW v AS SELECT 1;\n-- query: late-flights\nFROM v;\n"
    assert batch_check.split(sql) == batch_check.Statements(
        "CREATE VIEW v AS SELECT 1;", {"late-flights": "FROM v"}
    )


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1", "before the first"),
        ("-- query: a\n-- query: b\nFROM v", "no statement for the query a"),
        ("-- query: a\nFROM v;\n-- query: a\nFROM v;", "the query a twice"),
    ],
)
def test_statements_that_belong_to_no_query_are_refused(sql: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        batch_check.split(sql)


@pytest.mark.parametrize(
    ("reported", "computed", "equal"),
    [
        (1.0, 1.0 + 1e-7, True),
        (1.0, 1.0 + 1e-5, False),
        (1, 1.0, True),
        (1, True, False),
        (None, 0.0, False),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1, "added later": 2}, {"a": 1}, True),
    ],
)
def test_figures_are_equal_within_a_millionth(reported: Any, computed: Any, equal: bool) -> None:
    assert (report_check.differences(reported, computed) == []) is equal
