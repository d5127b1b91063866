"""Bad input to `rekindle run`: one line that names place and remedy, exit code 2, nothing started.

Every case ends before Spark starts; the last tests run the command as a process.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rekindle
from rekindle_cli import cli
from rekindle_spark.store import Store

Run = Callable[..., str]
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
        code = cli.run(cli.application, ["run", str(pipeline), *store, *options])
        said = capsys.readouterr().err
        assert code == 2, said
        assert said.count("\n") == 1
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
            "import sys; sys.exit('now')", ["cannot be imported: SystemExit", "mend"], id="exits"
        ),
        pytest.param(
            "def pipeline():\n    return 7", ["pipeline() gave a int", "return a"], id="other value"
        ),
        pytest.param(
            "def pipeline(name):\n    return 7", ["pipeline()", "TypeError"], id="parameters"
        ),
    ],
)
def test_a_wrong_pipeline_file_is_refused_with_its_name(
    refuse: Run, tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    message = refuse(path)
    assert message.startswith(f"pipeline file {path}: ")
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
    assert message.startswith("step readings: ")
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


def test_settings_that_are_not_there_are_refused(refuse: Run, file: Path) -> None:
    path = write_pipeline(file, GOOD)
    assert "cannot be read" in refuse(path, "--settings", str(file.with_name("none.yaml")))


def test_an_option_that_is_no_pair_is_refused(refuse: Run, file: Path) -> None:
    message = refuse(write_pipeline(file, GOOD), "--conf", "spark.executor.memory")
    assert "--conf spark.executor.memory: is not KEY=VALUE" in message


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
        "step rows: priority: is 70; give a number from 1 (least) to 10 (most important)\n"
    )


def test_a_master_that_spark_does_not_know_is_named(file: Path) -> None:
    ended = run_command(write_pipeline(file, GOOD), "park://nowhere")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("--master: is 'park://nowhere'")
