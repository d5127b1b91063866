"""The commands `rekindle check`, `test` and `init`: what they print, and their exit codes."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle_cli import command_line

PIPELINE = """
import pyarrow as pa
import pyarrow.compute as pc
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.pipeline.replay import Replay

def doubled(table):
    return table.set_column(1, "value", pc.multiply(table["value"], 2))

def pipeline():
    built = Pipeline("readings")
    readings = built.source("readings", Replay({path!r}, "event_time"))
    {rest}
    return built
"""
GOOD = """
    readings.map("doubled", doubled, schema=readings.schema).sink("twice", priority=3)
    tens = readings.window("tens", keys=[], size_seconds=10, aggregates={"n": count()})
    tens.sink("sums", priority=7)
"""
TIMES = [1_000_000 * second for second in (1, 2, 3, 14, 25)]


def written(tmp_path: Path, rest: str = GOOD) -> str:
    """A pipeline over a sound source file of five rows."""
    source = tmp_path / "readings.parquet"
    times = pa.array(TIMES, pa.timestamp("us"))
    pq.write_table(pa.table({"event_time": times, "value": [1, 2, 3, 4, 5]}), source)
    file = tmp_path / "readings.py"
    file.write_text(PIPELINE.format(path=str(source), rest=rest))
    return str(file)


class Command:
    """Runs commands in this process and its children; what they print is in `out` and `err`."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        code = command_line.run(command_line.application, arguments)
        self.out, self.err = self.capfd.readouterr()
        assert "Traceback" not in self.out + self.err
        return code


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(capfd)


def test_a_sound_pipeline_is_said_to_be_sound(tmp_path: Path, command: Command) -> None:
    file = written(tmp_path)
    assert command("check", file) == 0
    assert command.out == f"{file}: nothing is wrong (1 source, 2 steps, 2 queries, 2 partitions)\n"
    assert command.err == ""


def test_warnings_alone_leave_the_exit_code_at_0(tmp_path: Path, command: Command) -> None:
    rest = 'readings.filter("old", lambda t: hash("x") and pc.is_valid(t["value"])).sink("out")'
    file = written(tmp_path, rest)
    assert command("check", file) == 0
    assert command.err.startswith(f"warning: {file}:13: step old: uses hash, so a repeat after")
    assert command.out.startswith(f"{file}: 1 warning (")


def test_all_errors_are_listed_and_the_exit_code_is_2(tmp_path: Path, command: Command) -> None:
    rest = """
    for n in range(3):
        readings.map(f"m{n}", lambda t: t[1], schema=readings.schema).sink(f"q{n}")
    """
    file = written(tmp_path, rest)
    assert command("check", file, "--json") == 2
    said = json.loads(command.out)
    assert [finding["where"] for finding in said["findings"]] == ["step m0", "step m1", "step m2"]
    assert {finding["severity"] for finding in said["findings"]} == {"error"}
    assert said["findings"][0]["what"].startswith("returned ChunkedArray where event_time: ")
    assert said["pipeline"] == {
        "name": "readings",
        "sources": 1,
        "steps": 3,
        "queries": 3,
        "partitions": 1,
    }


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("1 / 0", "error: {file}:13: pipeline() failed: ZeroDivisionError: division by zero; mend"),
        ("pass", "error: pipeline readings: has no sink; end at least one stream"),
        ("import sys; sys.exit()", "error: {file}:13: pipeline() failed: sys.exit() was called"),
    ],
)
def test_a_file_that_gives_no_pipeline_is_one_error(
    tmp_path: Path, command: Command, rest: str, message: str
) -> None:
    file = written(tmp_path, rest)
    assert command("check", file) == 2
    assert command.err.startswith(message.format(file=file))
    assert command.err.count("\n") == 1


def test_wrong_settings_are_an_error_of_a_check(tmp_path: Path, command: Command) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("policy: {priorities: {nobody: 3}}")
    assert command("check", written(tmp_path), "--settings", str(settings)) == 2
    assert "policy.priorities.nobody: there is no such query" in command.err
    settings.write_text("policy: {strategie: 3}")
    assert command("check", written(tmp_path), "--settings", str(settings)) == 2
    assert "did you mean strategy?" in command.err


def test_a_function_that_never_returns_is_an_error_of_a_check(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rekindle_cli import pipeline_file
    from rekindle_cli.guard import CallLimits

    monkeypatch.setattr(pipeline_file, "FUNCTION_LIMITS", CallLimits(0.3))
    rest = 'readings.filter("slow", lambda t: [None for _ in iter(int, 1)]).sink("out")'
    file = written(tmp_path, rest)
    assert command("check", file) == 2
    assert command.err.startswith(f"error: {file}:13: has run for 0.3 s and is not done; take out")


def test_each_querys_first_rows_are_shown_the_most_important_first(
    tmp_path: Path, command: Command
) -> None:
    assert command("test", written(tmp_path), "--show", "2") == 0
    assert command.err == ""
    lines = [line.strip() for line in command.out.splitlines() if line.strip()]
    assert lines[0] == "read 5 rows of readings, in 3 epochs"
    assert [line for line in lines if "priority" in line] == [
        "sums, priority 7: 3 rows, the first 2",
        "twice, priority 3: 5 rows, the first 2",
    ]
    assert "1970-01-01 00:00:00   1970-01-01 00:00:10   3" in command.out


def test_the_rows_of_a_test_are_whole_on_a_narrow_terminal(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    assert command("test", written(tmp_path), "--show", "2") == 0
    assert "1970-01-01 00:00:00   1970-01-01 00:00:10   3" in command.out


def test_what_a_test_gives_can_be_read_by_scripts(tmp_path: Path, command: Command) -> None:
    assert command("test", written(tmp_path), "--json", "--rows", "4", "--show", "1") == 0
    said = json.loads(command.out)
    assert said["inputs"] == {"readings": 4}
    assert said["has_more"] is True
    assert said["late_rows"] == {"tens": 0}
    assert said["queries"][1] == {
        "name": "twice",
        "priority": 3,
        "rows": 4,
        "first": [{"event_time": "1970-01-01T00:00:01", "value": 2}],
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "event_time,value,other\n2024-05-01T12:00:00,21,x\n2024-05-01 12:00:01,,y\n"),
        (
            "rows.jsonl",
            '{"value": 21, "event_time": "2024-05-01T12:00:00", "other": 1}\n'
            '{"event_time": "2024-05-01 12:00:01"}\n',
        ),
    ],
)
def test_a_source_can_be_given_a_file_of_rows(
    tmp_path: Path, command: Command, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    given = ("--input", f"readings={tmp_path / name}")
    assert command("test", written(tmp_path), "--json", *given) == 0, command.err
    said = json.loads(command.out)
    assert said["inputs"] == {"readings": 2}
    assert [row["value"] for row in said["queries"][1]["first"]] == [42, None]


def test_a_parquet_file_of_another_writer_is_taken_where_its_values_fit(
    tmp_path: Path, command: Command
) -> None:
    times = pa.array([1_000, 2_000], pa.timestamp("ms"))
    table = pa.table({"extra": [1, 2], "value": pa.array([7, 8], pa.int32()), "event_time": times})
    pq.write_table(table, tmp_path / "rows.parquet")
    given = ("--input", f"readings={tmp_path / 'rows.parquet'}")
    assert command("test", written(tmp_path), "--json", *given) == 0, command.err
    assert [row["value"] for row in json.loads(command.out)["queries"][1]["first"]] == [14, 16]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("readings", "--input readings: is not SOURCE=FILE; write it like that"),
        ("other={folder}/rows.csv", "there is no source 'other'; name one of: readings"),
        ("readings={folder}/none.csv", "none.csv: cannot be read (No such file or directory)"),
        ("readings={folder}/rows.txt", "rows.txt: has the ending '.txt'; give a file that ends in"),
        (
            "readings={folder}/rows.csv",
            "rows.csv: has no column 'value'; it needs event_time, value",
        ),
        (
            "readings={folder}/bad.csv",
            "bad.csv: does not hold the columns that are wanted (column 'value': line 2: CSV "
            "conversion error to int64: invalid value 'many')",
        ),
        (
            "readings={folder}/short.csv",
            "short.csv: does not hold the columns that are wanted (",
        ),
        ("readings={folder}/short.csv", "line 3: Expected 2 columns, got 1"),
        (
            "readings={folder}/kinds.parquet",
            "kinds.parquet: does not hold the columns that are wanted (column 'value': Failed to",
        ),
        (
            "readings={folder}/back.jsonl",
            "back.jsonl: is not sorted by 'event_time': line 2 is",
        ),
        ("readings={folder}/back.parquet", "back.parquet: is not sorted by 'event_time': row 1 is"),
        ("readings={folder}/absent.csv", "absent.csv: has no 'event_time' in line 3; give every"),
        ("readings={folder}/pipe.csv", "pipe.csv: is a named pipe; name another file"),
        (
            "readings={folder}/bad.jsonl",
            "bad.jsonl: does not hold the columns that are wanted (JSON",
        ),
        ("readings={folder}/bad.parquet", "bad.parquet: does not hold the columns"),
        (
            "readings={folder}/back.csv",
            "--input readings: {folder}/back.csv: is not sorted by 'event_time': line 3 is earlier "
            "than the row before",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, command: Command, given: str, message: str
) -> None:
    (tmp_path / "rows.csv").write_text("event_time\n2024-05-01\n")
    (tmp_path / "bad.csv").write_text("event_time,value\n2024-05-01T00:00:00,many\n")
    (tmp_path / "bad.jsonl").write_text("{'event_time'")
    (tmp_path / "bad.parquet").write_text("PAR1")
    (tmp_path / "short.csv").write_text("event_time,value\n2024-05-01T00:00:00,1\n2024-05-02\n")
    (tmp_path / "absent.csv").write_text("event_time,value\n2024-05-01T00:00:00,1\n,2\n")
    (tmp_path / "back.jsonl").write_text(
        '{"event_time": "2024-05-02T00:00:00"}\n{"event_time": "2024-05-01T00:00:00"}\n'
    )
    times = pa.array([2, 1], pa.timestamp("us"))
    pq.write_table(pa.table({"event_time": times, "value": [1, 2]}), tmp_path / "back.parquet")
    kinds = pa.table({"event_time": times, "value": ["x", "y"]})
    pq.write_table(kinds, tmp_path / "kinds.parquet")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "back.csv").write_text(
        "event_time,value\n2024-05-01T00:00:01,1\n2024-05-01T00:00:00,2\n"
    )
    file = written(tmp_path)
    assert command("test", file, "--input", given.format(folder=tmp_path)) == 2
    assert message.format(folder=tmp_path) in command.err
    assert command.err.count("\n") == 1


def test_a_function_that_raises_is_one_sentence_with_its_line(
    tmp_path: Path, command: Command
) -> None:
    rest = 'readings.map("failing", lambda t: t.column("x"), schema=readings.schema).sink("out")'
    file = written(tmp_path, rest)
    assert command("test", file) == 1
    assert command.out == ""
    assert command.err.startswith("step failing: raised KeyError: ")
    assert (
        f"in <lambda> ({file}:13); mend the step's function; or give the step dead_letters=True"
        in (command.err)
    )
    assert command.err.count("\n") == 1


def test_a_function_that_ends_the_process_is_one_sentence(tmp_path: Path, command: Command) -> None:
    rest = 'import os; readings.filter("ending", lambda t: os._exit(3)).sink("out")'
    file = written(tmp_path, rest)
    assert command("test", file) == 2
    assert command.err == f"{file}:13: calls os._exit(3); leave it out\n"


def test_what_functions_print_does_not_disturb_what_scripts_read(
    tmp_path: Path, command: Command
) -> None:
    rest = 'readings.filter("loud", lambda t: print("seen") or pc.is_valid(t["value"])).sink("out")'
    assert command("test", written(tmp_path, rest), "--json") == 0
    assert "seen" in command.err
    json.loads(command.out)


def test_outputs_are_what_a_later_test_can_be_compared_with(
    tmp_path: Path, command: Command
) -> None:
    file, folder = written(tmp_path), str(tmp_path / "expected")
    assert command("test", file, "--output", folder) == 0
    assert command("test", file, "--expect", folder, "--epochs", "1") == 0
    assert command("test", file, "--expect", folder, "--output", f"{folder}/../expected") == 2
    assert "is the folder of --expect, whose tables would be replaced; name" in command.err
    Path(folder, "twice.parquet").unlink()
    Path(folder, "twice.csv").write_text("event_time,value\n1970-01-01T00:00:01,2\n1970-01-01,9\n")
    assert command("test", file, "--expect", folder) == 1
    assert command.err.startswith(
        "query twice: 1 of 2 expected rows are missing and 4 others are there: "
        '{"event_time": "1970-01-01T00:00:00", "value": 9} is missing; mend'
    )


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda _: None, "is no folder; name one, see --output"),
        (lambda folder: folder.mkdir(), "holds no tables; put files into it that end in"),
        (
            lambda folder: folder.mkdir() or (folder / "others.csv").write_text("x\n1\n"),
            "others.csv: is no query's; name files after queries: twice, sums",
        ),
    ],
)
def test_a_folder_that_holds_no_expectations_is_refused(
    tmp_path: Path, command: Command, prepare: Any, message: str
) -> None:
    prepare(tmp_path / "expected")
    assert command("test", written(tmp_path), "--expect", str(tmp_path / "expected")) == 2
    assert message in command.err


def test_the_command_test_shows_dead_letters(tmp_path: Path, command: Command) -> None:
    rest = """
    def odd(t):
        if 2 in t["value"].to_pylist(): raise ValueError("two")
        return t
    readings.map("odd", odd, schema=readings.schema, dead_letters=True).sink("out")
    """
    assert command("test", written(tmp_path, rest)) == 0
    assert "odd.dead-letters: 1 row" in command.out
    assert "raised ValueError: two" in command.out


def test_the_example_is_made_and_nothing_is_overwritten(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "new" / "web-log"
    assert command("init", str(folder)) == 0
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    assert names == [
        "README.md",
        "data/requests.parquet",
        "settings.yaml",
        "test_web_log.py",
        "web_log.py",
    ]
    assert command.out.splitlines()[2:] == [
        f"  cd {folder}",
        "  rekindle check web_log.py --settings settings.yaml",
        "  rekindle test web_log.py",
        "  pytest",
        "  rekindle run web_log.py --settings settings.yaml --local 4 --kill-after 30s",
    ]
    (folder / "web_log.py").write_text("mine")
    for name in names[:-1]:
        (folder / name).unlink()
    assert command("init", str(folder)) == 2
    assert (
        command.err
        == f"{folder}: holds web_log.py already; name a new folder: nothing is overwritten\n"
    )
    assert (folder / "web_log.py").read_text() == "mine"


def test_a_folder_with_a_space_is_quoted_where_it_is_to_be_pasted(
    command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "web log"
    assert command("init", str(folder)) == 0
    assert f"  cd '{folder}'\n" in command.out


def test_the_examples_data_is_the_same_each_time_and_what_it_says() -> None:
    from rekindle_cli.example import request_log

    log = request_log.log()
    assert log.equals(request_log.log())
    assert log.num_rows == request_log.ROWS
    assert log["time"].to_pylist() == sorted(log["time"].to_pylist())
    statuses = log["status"].value_counts().to_pylist()
    assert {row["values"] for row in statuses} == {200, 304, 404, 500, 503}


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("")
    assert command("init", str(tmp_path / "file" / "example")) == 2
    assert command.err.endswith("cannot be written (Not a directory); name another folder\n")
