"""Wrong pipelines, settings, options and environments: each ends `rekindle run` with one line that
names place and remedy, exit code 2, without a traceback and before anything is started.

The last tests run the command as a process.
"""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rekindle
from rekindle_cli import cli
from rekindle_spark.store import Store

Run = Callable[..., str]
# Of this process, so that it does not depend on what else the machine does.
SECONDS_MAX = 15.0
NOBODY = "spark://127.0.0.1:9"
SOURCES = str(Path(rekindle.__file__).parents[1])
HEAD = """
import pyarrow as pa, pyarrow.compute as pc
from rekindle_spark.pipeline import Pipeline, Step, Stream, count, total
from rekindle_spark.replay import Replay

def pipeline():
    built = Pipeline("readings")
    readings = built.source("readings", Replay("{file}", "event_time"))
"""
GOOD = 'readings.filter("all", lambda table: pc.is_valid(table["value"])).sink("every-row")'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sound source file of three rows."""
    path = tmp_path / "readings.parquet"
    write(path, [1, 2, 3])
    return path


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a pipeline file that must be refused; gives the message."""

    def run(pipeline: Path | str, *options: str) -> str:
        store = ("--store", str(tmp_path / "store"), "--master", NOBODY)
        began = time.process_time()
        code = cli.run(cli.application, ["run", str(pipeline), *store, *options])
        out, said = capsys.readouterr()
        assert time.process_time() - began < SECONDS_MAX
        assert code == 2, said
        assert said.count("\n") == 1, said
        assert out == ""
        assert "; " in said
        return said

    return run


def write(path: Path, times: list[int | None], kind: pa.DataType | None = None) -> None:
    kind = kind or pa.timestamp("us")
    columns = {"event_time": pa.array(times, kind), "value": pa.array(range(len(times)))}
    pq.write_table(pa.table(columns), path)


def write_pipeline(file: Path, body: str, head: str = HEAD) -> Path:
    path = file.parent / "wrong.py"
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    path.write_text(head.format(file=file) + lines + "\n    return built\n")
    return path


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
            ["step rows: is there twice", "a name of its own"],
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
            "def pipeline(name):\n    return 7", ["pipeline()", "TypeError"], id="parameters"
        ),
        pytest.param(
            "import os; os._exit(0)", ["wrong.py:1: calls os._exit(0)"], id="ends at once"
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
        pytest.param([None, 1, 2], None, "without event time", id="a missing time"),
        pytest.param(["noon", "one"], pa.string(), "has type string", id="no time"),
        pytest.param([1, 2], pa.timestamp("ns"), "has type timestamp[ns]", id="nanoseconds"),
    ],
)
def test_a_source_file_that_cannot_be_replayed_is_refused(
    refuse: Run, file: Path, times: list[int | None], kind: pa.DataType | None, words: str
) -> None:
    write(file, times, kind)
    message = refuse(write_pipeline(file, GOOD))
    assert "step readings: " in message
    assert words in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runtime: {epoch_secnds: 1}", "runtime.epoch_secnds: is not a setting; did you mean"),
        ("runtime: {epoch_seconds: soon}", "runtime.epoch_seconds: is 'soon'"),
        ("policy: {priorities: {rows: 12}}", "policy.priorities.rows: is 12"),
    ],
)
def test_wrong_settings_are_refused_with_file_and_field(
    refuse: Run, file: Path, text: str, words: str
) -> None:
    settings = file.with_name("settings.yaml")
    settings.write_text(text)
    message = refuse(write_pipeline(file, GOOD), "--settings", str(settings))
    assert message.startswith(str(settings))
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"runtime: [", "is not YAML"),
        (b"- runtime", "is "),
        (b"\xff\xfe", "settings.yaml"),
        (b"runtime: {epoch_seconds: 1, epoch_seconds: 2}", "epoch_seconds"),
        (b"policy: {strategy: fast}", "policy.strategy: is 'fast'"),
        (b"runtime: {nodes_expected: 0}", "runtime.nodes_expected: is 0"),
    ],
)
def test_a_settings_file_of_another_form_is_refused(
    refuse: Run, file: Path, content: bytes, words: str
) -> None:
    settings = file.with_name("settings.yaml")
    settings.write_bytes(content)
    message = refuse(write_pipeline(file, GOOD), "--settings", str(settings))
    assert message.startswith(str(settings))
    assert words in message


def test_settings_that_are_not_there_are_refused(refuse: Run, file: Path) -> None:
    path = write_pipeline(file, GOOD)
    assert "cannot be read" in refuse(path, "--settings", str(file.with_name("none.yaml")))


def test_an_option_that_is_no_pair_is_refused(refuse: Run, file: Path) -> None:
    message = refuse(write_pipeline(file, GOOD), "--conf", "spark.executor.memory")
    assert "--conf spark.executor.memory: is not KEY=VALUE" in message


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
    assert refuse(write_pipeline(file, body)).startswith("step some: ")


def test_a_lambda_that_never_returns_is_warned_of_and_does_not_hold_up_the_command(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rekindle_cli import pipeline_checks
    from rekindle_cli.guard import Limits

    monkeypatch.setattr(pipeline_checks, "FUNCTION_LIMITS", Limits(0.3))
    body = "import time\n" + MAPPED.format(function="lambda t: time.sleep(1000)")
    path = write_pipeline(file, body)
    events = ("--events", str(tmp_path / "absent" / "events.jsonl"))
    arguments = ["run", str(path), "--store", str(tmp_path / "store"), "--master", NOBODY, *events]
    assert cli.run(cli.application, arguments) == 2
    warning, refusal = capsys.readouterr().err.splitlines()
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


def test_a_column_that_parquet_cannot_hold_is_refused_where_the_sink_is_added(
    refuse: Run, file: Path
) -> None:
    body = """
    kind = pa.month_day_nano_interval()
    schema = readings.schema.append(pa.field("gap", kind))
    changed = readings.map("changed", lambda t: t, schema=schema)
    changed.sink("rows")
    """
    message = refuse(write_pipeline(file, body))
    assert message.startswith(f"{file.with_name('wrong.py')}:12: step rows: column 'gap': has type")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "3"], "no such option"),
        (["--settings"], "requires an argument"),
        (["--master", "local[4]"], "--master: is 'local[4]', which has no executors"),
        (["--master", "spark://host"], "--master: is 'spark://host'"),
        (["--conf", "executor.memory=1g"], "is no option of spark"),
        (["--local", "2"], "--master: is given beside --local"),
        (["--kill-after", "30s"], "--kill-after"),
        (["--import-seconds", "0"], "--import-seconds"),
        (["--name", "a/b/c"], "a/b/c"),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    refuse: Run, file: Path, options: list[str], words: str
) -> None:
    assert words in refuse(write_pipeline(file, GOOD), *options).lower()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--local", "0"], "--local: is 0"),
        (["--local", "many"], "--local"),
        (["--local", "4", "--kill", "2"], "--kill: is given without --kill-after"),
        (["--local", "4", "--kill-after", "soon"], "--kill-after"),
        (["--local", "4", "--kill-after", "5s", "--kill", "9"], "--kill"),
        ([], "--master: is missing"),
    ],
)
def test_a_wrong_option_of_a_local_run_is_refused_by_name(
    file: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    store = ("--store", str(file.with_name("store")))
    path = str(write_pipeline(file, GOOD))
    assert cli.run(cli.application, ["run", path, *store, *options]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(words)


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("/proc/store", "checkpoint store /proc/store: cannot be written"),
        ("ftp://host/store", "ftp"),
        ("s3://", "s3://"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(
    refuse: Run, file: Path, store: str, words: str
) -> None:
    assert words in refuse(write_pipeline(file, GOOD), "--store", store)


@pytest.mark.parametrize("options", [[], ["--local", "2"]])
def test_a_machine_without_java_is_told_where_it_was_looked_for(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    place = options or ["--master", NOBODY]
    path = str(write_pipeline(file, GOOD))
    arguments = ["run", path, "--store", str(tmp_path / "store"), *place]
    assert cli.run(cli.application, arguments) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"JAVA_HOME {tmp_path}: there is no java; install a JDK 17 or newer, "
        "or point JAVA_HOME to one"
    )


def test_an_old_java_is_refused_with_its_version(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    arguments = ["run", str(write_pipeline(file, GOOD)), "--store", str(tmp_path / "store")]
    assert cli.run(cli.application, [*arguments, "--local", "2"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"{java}: is not Java 17 or newer: openjdk version")


def test_the_store_of_another_pipeline_is_refused_and_its_driver_lives(
    refuse: Run, file: Path
) -> None:
    store = Store(file.with_name("store"))
    store.open(0.0)
    store.log_offsets(1, {"cut_at": 0.0, "offsets": {"other": [0, 1]}, "watermark": 0})
    store.commit({"at": 0.0, "plan_epoch": 1, "finished": {"other/0": [1, 1, [""]]}, "outputs": []})
    message = refuse(write_pipeline(file, GOOD))
    assert "pipeline readings: is not the one that wrote this checkpoint store" in message
    assert "empty store" in message
    store.check_generation()


def test_a_store_that_cannot_be_a_folder_is_refused(refuse: Run, file: Path) -> None:
    file.with_name("store").write_text("")
    assert "checkpoint store" in refuse(write_pipeline(file, GOOD))


def test_an_event_file_that_cannot_be_written_is_refused(refuse: Run, file: Path) -> None:
    path = write_pipeline(file, GOOD)
    message = refuse(path, "--events", str(file.with_name("absent") / "events.jsonl"))
    assert "event file" in message


def run_command(pipeline: Path, master: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "rekindle_cli", "run", str(pipeline)),
            *("--store", str(pipeline.with_name("store")), "--master", master),
        ],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_one_line_and_no_traceback(file: Path) -> None:
    ended = run_command(write_pipeline(file, 'readings.sink("rows", priority=70)'), NOBODY)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        f"{file.with_name('wrong.py')}:9: step rows: priority: is 70; "
        "give a number from 1 (least) to 10 (most important)\n"
    )


def test_a_master_that_spark_does_not_know_is_named(file: Path) -> None:
    ended = run_command(write_pipeline(file, GOOD), "park://nowhere")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("--master: is 'park://nowhere'")
