"""`rekindle output`: what it shows, and what it says of bad input."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from fresh_python import run_code
from output_stores import Writer

import rekindle
from rekindle_cli import command_line


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    made = Writer(tmp_path / "store")
    made.epoch("hourly", 0, 1, 1, 2)
    made.epoch("hourly", 1, 2, 3)
    made.epoch("checked.dead-letters", 0, 2, 9)
    return made


@pytest.fixture
def place(writer: Writer) -> str:
    return str(writer.place)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What the command prints, on the one stream that it prints on."""
    assert command_line.run(command_line.application, ["output", *arguments]) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    if code:
        assert printed.out == ""
        assert printed.err.count("\n") == 1, printed.err
    return printed.err if code else printed.out


def test_rows_are_shown_as_a_table(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, place, "hourly") == "n  name\n1  row 1\n2  row 2\n3  row 3\n"
    assert shown(capsys, place, "hourly", "--since", "2") == "n  name\n3  row 3\n"
    assert shown(capsys, place, "hourly", "--limit", "1") == "n  name\n1  row 1\n"
    assert shown(capsys, place, "hourly", "--since", "9") == "n  name\n"
    assert shown(capsys, place, "checked", "--dead-letters") == "n  name\n9  row 9\n"


def test_late_rows_are_shown_by_the_name_of_their_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ("pairs.late-left", "pairs.late-right")
    made = Writer(tmp_path / "late", ("hourly", "by-day.late", *sides))
    made.epoch("by-day.late", 0, 2, 9)
    assert shown(capsys, str(made.place), "by-day", "--late") == "n  name\n9  row 9\n"
    message = shown(capsys, str(made.place), "pairs", "--late", code=2)
    assert f"step 'pairs': keeps no late rows in checkpoint store {made.place}" in message
    assert f"it is a join: name {' or '.join(sides)}" in message
    message = shown(capsys, str(made.place), "pairs", code=2)
    assert f"it is a step that keeps rows beside: name {' or '.join(sides)}" in message


def test_without_a_query_all_are_listed(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, place, "--format", "json").splitlines()
    assert [json.loads(line) for line in lines][1:] == [
        {
            "query": "checked.dead-letters",
            "files": 1,
            "rows": 1,
            "first_epoch": 2,
            "last_epoch": 2,
            "committed_at": "2023-11-14T22:13:22.000000Z",
        },
        {
            "query": "hourly",
            "files": 2,
            "rows": 3,
            "first_epoch": 1,
            "last_epoch": 2,
            "committed_at": "2023-11-14T22:13:21.000000Z",
        },
    ]
    assert json.loads(lines[0])["query"] == "busiest"
    assert json.loads(lines[0])["first_epoch"] is None


def test_files_are_listed_instead_of_rows(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, place, "hourly", "--files", "--format", "json").splitlines()
    found = [json.loads(line) for line in lines]
    assert pl.read_parquet([file["path"] for file in found])["n"].to_list() == [1, 2, 3]
    assert [(file["partition"], file["epoch"], file["rows"]) for file in found] == [
        (0, 1, 2),
        (1, 2, 1),
    ]
    assert [file["bytes"] for file in found] == [
        file.bytes for file in rekindle.committed_files(place, "hourly")
    ]
    assert len(shown(capsys, place, "hourly", "--files", "--limit", "1").splitlines()) == 2


@pytest.mark.parametrize(
    ("option", "ending", "said"),
    [
        ("--dead-letters", ".dead-letters", "step by-day: it has left out no row so far\n"),
        ("--late", ".late", "step by-day: no row has come too late for it so far\n"),
    ],
)
def test_a_step_that_has_kept_nothing_beside_so_far_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, ending: str, said: str
) -> None:
    made = Writer(tmp_path / "store", ("hourly", f"by-day{ending}"))
    made.epoch("hourly", 0, 1, 1)
    assert (
        command_line.run(command_line.application, ["output", str(made.place), "by-day", option])
        == 0
    )
    assert capsys.readouterr() == ("", said)


def test_a_file_has_the_format_of_its_name(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending in ("parquet", "csv", "jsonl"):
        file = tmp_path / f"rows.{ending}"
        told = shown(capsys, place, "hourly", "--output", str(file))
        assert told == f"{file}: 3 rows as {'json' if ending == 'jsonl' else ending}\n"
    assert pl.read_parquet(tmp_path / "rows.parquet")["n"].to_list() == [1, 2, 3]
    assert pl.read_csv(tmp_path / "rows.csv")["n"].to_list() == [1, 2, 3]
    assert pl.read_ndjson(tmp_path / "rows.jsonl")["n"].to_list() == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hurly",), "query 'hurly': is no query of checkpoint store"),
        (("busiest",), "query 'busiest': has no output yet; wait until"),
        (
            ("hourly", "--dead-letters"),
            "step 'hourly': keeps no dead letters in checkpoint store",
        ),
        (
            ("hourly", "--dead-letters"),
            "; name one that does: checked; or give the step dead_",
        ),
        (("hourly", "--late"), "keeps no late rows in checkpoint store"),
        (("checked",), "it is a step that keeps rows beside: name checked.dead-letters"),
        (("\x1b[2J",), r"query '\x1b[2J': is no query of"),
        (("hourly", "--format", "xml"), "--format: is 'xml'; choose table or json or csv"),
        (("hourly", "--format", "parquet"), "--format parquet: is given without a file"),
        (("hourly", "--output", "x.doc"), "--output x.doc: has a name that does not say"),
        (("hourly", "--output", "/nowhere/x.csv"), "/nowhere/x.csv: cannot be written"),
        (("hourly", "--only-new"), "--only-new: is given without --follow"),
        (("hourly", "--follow", "--files"), "--files: is given beside --follow"),
        (("hourly", "--follow", "--output", "x.csv"), "--output: is given beside --follow"),
        (("--follow",), "--follow: is given without a query; name one"),
        (("--dead-letters",), "--dead-letters: is given without a query"),
        (("hourly", "--late", "--dead-letters"), "--dead-letters: is given beside --late"),
        (("--late",), "--late: is given without a query"),
        (("hourly", "--limit", "-1"), "--limit"),
        (("hourly", "--since", "x"), "--since"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: tuple[str, ...], message: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in shown(capsys, place, *arguments, code=2)


def test_a_store_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown(capsys, str(tmp_path / "none"), "hourly", code=2)
    assert told.endswith("name the place that `rekindle run --store` was given\n")
    assert "no pipeline has run on it" in shown(capsys, str(tmp_path), code=2)


def test_what_is_damaged_in_the_middle_ends_with_the_file_and_exit_code_2(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(place) / "outputs/hourly/1-000000002.parquet"
    file.write_bytes(b"damaged")
    assert command_line.run(command_line.application, ["output", place, "hourly"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"{file}: cannot be read (")
    assert told.count("\n") == 1


def test_who_follows_gets_rows_as_they_come_until_it_is_interrupted(
    writer: Writer, place: str
) -> None:
    command = [sys.executable, "-m", "rekindle_cli", "output", place, "busiest", "--follow"]
    running = subprocess.Popen(
        [*command, "--format", "json"],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stderr.readline() == "query 'busiest': has no output yet: waiting\n"
    writer.epoch("busiest", 0, 3, 7)
    assert running.stdout.readline() == '{"n":7,"name":"row 7"}\n'
    writer.epoch("busiest", 0, 4, 8)
    assert running.stdout.readline() == '{"n":8,"name":"row 8"}\n'
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert (running.returncode, errors) == (130, "")


def test_output_runs_where_no_runtime_is_installed(place: str) -> None:
    absent = ("aiohttp", "duckdb", "kazoo", "pandas", "py4j", "pyspark", "rekindle_spark")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"
        "from rekindle_cli import command_line as cli\n"
        f"sys.exit(cli.run(cli.application, ['output', {place!r}, 'hourly']))\n"
    )
    run = run_code(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "n  name\n1  row 1\n2  row 2\n3  row 3\n"


def test_who_follows_ends_with_enough_rows(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, place, "hourly", "--follow", "--limit", "2").splitlines()[1:] == [
        "1  row 1",
        "2  row 2",
    ]
