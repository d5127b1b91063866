"""Wrong pipelines and sources end `rekindle run` with one line that names place and remedy.

Its exit code is 2, there is no traceback, and nothing has been started.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from wrong_pipelines import GOOD, NOBODY, write, write_pipeline

from rekindle_cli import command_line

Run = Callable[..., str]
CYCLE = """
    for name, before in (("first", "second"), ("second", "first")):
        built.add(Step(name, "map", (before,), 1, None, readings.schema, "event_time"))
    Stream(built, "second", readings.schema, "event_time").sink("rows")
"""
WINDOW = 'readings.window("hourly", keys=[{keys}], size_seconds=3600, aggregates={{{sums}}})'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(CYCLE, ["cycle", "first", "second"], id="a cycle"),
        pytest.param(
            'readings.sink("rows")\nreadings.sink("rows")',
            ["step rows: is there twice", "each source, step and sink a name of its own"],
            id="a name that is there twice",
        ),
        pytest.param(
            WINDOW.format(keys='"town"', sums='"n": count()') + '.sink("rows")',
            ["step hourly", "no column 'town'", "event_time, value"],
            id="an unknown key",
        ),
        pytest.param(
            WINDOW.format(keys='"value"', sums='"n": total("weight")') + '.sink("rows")',
            ["step hourly", "'weight'", "event_time, value"],
            id="an unknown column in an aggregate",
        ),
        pytest.param(
            'readings.sink("rows", priority=11)',
            ["step rows: priority: is 11", "from 1 (least) to 10"],
            id="a priority above ten",
        ),
        pytest.param(
            'readings.sink("rows", priority=0)',
            ["step rows: priority: is 0", "from 1 (least) to 10"],
            id="a priority below one",
        ),
        pytest.param(
            'readings.sink("rows", priority="high")',
            ["step rows: priority: is 'high'", "from 1 (least) to 10"],
            id="a priority that is no number",
        ),
        pytest.param(
            "async def waits(t): return t\n"
            'readings.map("changed", waits, schema=readings.schema).sink("rows")',
            ["step changed: function: is async, and nothing awaits it", "without async"],
            id="an async function",
        ),
        pytest.param(
            "class Half: schema, event_time, read = readings.schema, 'event_time', None\n"
            'built.source("half", Half()).sink("rows")',
            ["step half: source: is of type Half, which has no check and no rows_at", "protocol"],
            id="half a source",
        ),
        pytest.param("pass", ["pipeline readings: has no sink", ".sink(name)"], id="no sink"),
        pytest.param(
            'readings.sink("a/b")', ["step 'a/b': is no usable name"], id="an unusable name"
        ),
        pytest.param(
            'raise KeyError("LIMIT")',
            ["wrong.py", "pipeline()", "KeyError", "LIMIT", "mend"],
            id="a function that raises while it builds",
        ),
    ],
)
def test_a_wrong_pipeline_is_refused_with_step_and_remedy(
    refuse: Run, file: Path, body: str, words: list[str]
) -> None:
    message = refuse(write_pipeline(file, body))
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", ["has no function 'pipeline'", "define it"], id="no function"),
        pytest.param("1 / 0", ["cannot be imported: ZeroDivisionError", "mend"], id="raises"),
        pytest.param("def (", ["cannot be imported: SyntaxError", "mend"], id="no Python"),
        pytest.param(
            "import sys; sys.exit('now')", ["sys.exit('now') was called", "take it out"], id="exits"
        ),
        pytest.param(
            "def pipeline():\n    return 7", ["pipeline() gave a int", "return a"], id="other value"
        ),
        pytest.param(
            "def pipeline(name):\n    return 7",
            ["pipeline() cannot be called without name", "give parameters defaults"],
            id="parameters",
        ),
        pytest.param(
            "import os; os._exit(0)", ["wrong.py:1: calls os._exit(0)"], id="ends at once"
        ),
        pytest.param(
            "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()",
            ["wrong.py:2: starts Spark by itself; leave it out"],
            id="starts Spark",
        ),
        pytest.param("x = input()", ["wrong.py:1: reads standard input"], id="asks the user"),
        pytest.param(
            "import absent_package", ["No module named 'absent_package'", "install it"], id="import"
        ),
        pytest.param("def f(): f()\nf()", ["wrong.py:1", "RecursionError"], id="recursion"),
        pytest.param("raise SystemExit", ["sys.exit() was called"], id="exits with nothing"),
        pytest.param("def pipeline(): pass", ["pipeline() gave nothing"], id="no value"),
        pytest.param(
            "import threading\nthreading.Thread(target=len, args=('',)).start()\n1 / 0",
            ["wrong.py:3: cannot be imported: ZeroDivisionError"],
            id="fails beside a thread",
        ),
        pytest.param(
            "import os\nos.chdir('/')\nopen('absent.csv')",
            ["wrong.py:3: cannot be imported: FileNotFoundError"],
            id="a file beside another folder",
        ),
    ],
)
def test_a_wrong_pipeline_file_is_refused_with_its_name(
    refuse: Run, tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    message = refuse(path)
    assert str(path) in message
    for word in words:
        assert word in message


def test_a_pipeline_file_that_is_not_there_is_refused(refuse: Run, tmp_path: Path) -> None:
    assert "nowhere.py: is not there; name a Python file" in refuse(tmp_path / "nowhere.py")


def test_a_source_file_that_is_not_there_is_refused(refuse: Run, file: Path) -> None:
    path = write_pipeline(file.with_name("absent.parquet"), GOOD)
    assert f"source file {file.with_name('absent.parquet')}: is not there; check" in refuse(path)


def test_a_source_file_that_is_no_parquet_is_refused(refuse: Run, file: Path) -> None:
    file.write_text("time,value\n1,2\n")
    message = refuse(write_pipeline(file, GOOD))
    assert f"source file {file}: cannot be read as Parquet" in message


@pytest.mark.parametrize(
    ("times", "kind", "words"),
    [
        pytest.param([2, 1, 3], None, "not sorted by 'event_time'", id="not sorted"),
        pytest.param([], None, "is empty", id="empty"),
        pytest.param(
            [None, 1, 2], None, "has no event time in 'event_time' in row 0", id="a missing time"
        ),
        pytest.param(["noon", "one"], pa.string(), "has type string", id="no time"),
    ],
)
def test_a_source_file_that_cannot_be_replayed_is_refused(
    refuse: Run, file: Path, times: list[int | None], kind: pa.DataType | None, words: str
) -> None:
    write(file, times, kind)
    message = refuse(write_pipeline(file, GOOD))
    assert "step readings: " in message
    assert words in message


def test_times_that_are_no_whole_microseconds_are_refused(refuse: Run, file: Path) -> None:
    write(file, [1, 2], pa.timestamp("ns"))
    message = refuse(write_pipeline(file, GOOD))
    assert (
        f"source file {file}: column 'event_time': cannot be read exactly as timestamp[us]"
        in message
    )


MAPPED = 'readings.map("changed", {function}, schema=readings.schema).sink("rows")'


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param('lambda t: t["weight"]', ["raised KeyError", "weight"], id="unknown column"),
        pytest.param("lambda t: t.to_pylist()", ["returned list where"], id="a list"),
        pytest.param("lambda t: None", ["returned NoneType where"], id="nothing"),
        pytest.param('lambda t: t.drop_columns(["value"])', ["returned event_time"], id="columns"),
        pytest.param("lambda: 1", ["raised TypeError"], id="no parameter"),
        pytest.param("lambda t: exit(3)", ["raised SystemExit"], id="exits"),
        pytest.param("3", ["function: is 3", "wrong.py:9"], id="no function"),
    ],
)
def test_a_function_that_fails_on_the_first_rows_is_refused_with_its_step(
    refuse: Run, file: Path, function: str, words: list[str]
) -> None:
    message = refuse(write_pipeline(file, MAPPED.format(function=function)))
    for word in ("step changed: ", *words, "wrong.py:9"):
        assert word in message


def test_a_predicate_that_gives_numbers_is_refused(refuse: Run, file: Path) -> None:
    body = 'readings.filter("some", lambda t: t["value"]).sink("rows")'
    message = refuse(write_pipeline(file, body))
    assert message.startswith("step some: returned ChunkedArray of 0 values of type int64 where")
    assert f"by <lambda> ({file.with_name('wrong.py')}:9)" in message


def test_a_lambda_that_never_returns_is_warned_of_and_does_not_hold_up_the_command(
    tmp_path: Path, file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rekindle_cli import pipeline_file
    from rekindle_cli.guard import CallLimits

    monkeypatch.setattr(pipeline_file, "FUNCTION_LIMITS", CallLimits(0.3))
    body = "import time\n" + MAPPED.format(function="lambda t: time.sleep(1000)")
    path = write_pipeline(file, body)
    events = ("--events", str(tmp_path / "absent" / "events.jsonl"))
    arguments = ["run", str(path), "--store", str(tmp_path / "store"), "--master", NOBODY, *events]
    assert command_line.run(command_line.application, arguments) == 2
    warning, refusal = capfd.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {path}:10: has run for 0.3 s and is not done")
    assert refusal.startswith("event file ")


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("import threading; held = threading.Lock()", "uses the variable 'held'"),
        ("held = open(__file__, 'a')", "uses the variable 'held'"),
        ("import socket; held = socket.socket()", "uses the variable 'held'"),
        ("held = (number for number in range(3))", "uses the variable 'held'"),
    ],
)
def test_a_function_that_cannot_be_sent_is_refused_with_what_it_uses(
    refuse: Run, file: Path, head: str, words: str
) -> None:
    body = f"{head}\n" + MAPPED.format(function="lambda t: held and t")
    message = refuse(write_pipeline(file, body))
    assert message.startswith("step changed: ")
    assert words in message
    assert "make it inside the function" in message


def test_a_column_that_neither_steps_nor_parquet_can_hold_is_refused(
    refuse: Run, file: Path
) -> None:
    body = """
    kind = pa.month_day_nano_interval()
    schema = readings.schema.append(pa.field("gap", kind))
    changed = readings.map("changed", lambda t: t, schema=schema)
    changed.sink("rows")
    """
    message = refuse(write_pipeline(file, body))
    assert "step changed: column 'gap': has type month_day_nano_interval" in message
