"""The command `rekindle run`: what it refuses before Spark starts, and that it leaves nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle_cli import command_line
from rekindle_local import local_run

MASTER = "spark://127.0.0.1:9"
PIPELINE = """
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.pipeline.replay import Replay

def pipeline():
    built = Pipeline("readings")
    readings = built.source("readings", Replay({path!r}, "event_time"))
    {rest}
    return built
"""


def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a refused run, of which nothing is there afterwards."""
    before = sorted(tmp_path.rglob("*"))
    store = ("--store", str(tmp_path / "shared" / "store"))
    assert command_line.run(command_line.application, ["run", *arguments, *store]) == 2
    left = [path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts]
    assert sorted(left) == before
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    ("master", "message"),
    [
        ("local[4]", "--master: is 'local[4]', which has no executors that could be lost"),
        ("local-cluster[2,1,512]", "which has no executors"),
        ("yarn", "--master: is 'yarn'; give spark://HOST:PORT or k8s://"),
        ("spark://host", "--master: is 'spark://host'; give"),
        ("spark://:7077", "--master: is 'spark://:7077'; give"),
        ("spark://host:7077/", "--master: is"),
        ("k8s://", "--master: is"),
        ("", "--master: is ''"),
    ],
)
def test_a_master_that_cannot_serve_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], master: str, message: str
) -> None:
    assert message in refused(tmp_path, capfd, "none.py", "--master", master)


@pytest.mark.parametrize("master", ["spark://a:7077,b:7077", "spark://[::1]:7077", "k8s://a:1"])
def test_a_master_with_executors_of_its_own_is_accepted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], master: str
) -> None:
    message = refused(tmp_path, capfd, "none.py", "--master", master)
    assert message == "pipeline file none.py: is not there; name a Python file\n"


def test_without_a_master_spark_submit_must_have_started_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert "--master: is missing; give spark://HOST:PORT" in refused(tmp_path, capfd, "none.py")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "9")
    assert "none.py: is not there" in refused(tmp_path, capfd, "none.py")


def test_a_master_that_spark_submit_was_told_is_not_said_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "9")
    message = refused(tmp_path, capfd, "none.py", "--master", MASTER)
    assert message.startswith("--master: was said to spark-submit already; leave it out")


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("spark.executor.memory", "--conf spark.executor.memory: is not KEY=VALUE"),
        ("executor.memory=1g", "--conf executor.memory=1g: is no option of Spark; give a key"),
        ("=1g", "--conf =1g: is no option of Spark"),
        ("spark.=1g", "--conf spark.=1g: is no option of Spark"),
    ],
)
def test_a_spark_option_of_another_form_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], conf: str, message: str
) -> None:
    assert message in refused(tmp_path, capfd, "none.py", "--master", MASTER, "--conf", conf)


def pipeline_file(tmp_path: Path, rest: str) -> str:
    """A pipeline over a sound source file."""
    source = tmp_path / "readings.parquet"
    times = pa.array([1, 2, 3], pa.timestamp("us"))
    pq.write_table(pa.table({"event_time": times, "value": [1, 2, 3]}), source)
    file = tmp_path / "readings.py"
    file.write_text(PIPELINE.format(path=str(source), rest=rest))
    return str(file)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("pass", "pipeline readings: has no sink"),
        ('readings.sink("rows", priority=11)', "step rows: priority: is 11"),
    ],
)
def test_a_refused_pipeline_leaves_no_store_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], rest: str, message: str
) -> None:
    file = pipeline_file(tmp_path, rest)
    (tmp_path / "log").mkdir()
    events = str(tmp_path / "log" / "events.jsonl")
    said = refused(tmp_path, capfd, file, "--master", MASTER, "--events", events)
    assert message in said


def test_refused_settings_leave_no_store_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = pipeline_file(tmp_path, 'readings.sink("rows")')
    settings = tmp_path / "settings.yaml"
    settings.write_text("policy: {priorities: {nobody: 3}}")
    said = refused(tmp_path, capfd, file, "--master", MASTER, "--settings", str(settings))
    assert "nobody" in said


@pytest.mark.parametrize("events", ["absent/events.jsonl", "."])
def test_an_event_file_that_cannot_be_written_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], events: str
) -> None:
    file = pipeline_file(tmp_path, 'readings.sink("rows")')
    place = str(tmp_path / events)
    said = refused(tmp_path, capfd, file, "--master", MASTER, "--events", place)
    assert said.startswith(f"event file {Path(place)}: cannot be written (")


def test_a_store_below_a_file_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shared").write_text("")
    file = pipeline_file(tmp_path, 'readings.sink("rows")')
    said = refused(tmp_path, capfd, file, "--master", MASTER)
    assert said.startswith(f"checkpoint store {tmp_path / 'shared' / 'store'}: cannot be written")


def test_a_sidecar_that_is_no_socket_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = ("--master", MASTER, "--sidecar", str(tmp_path / "file"))
    message = refused(tmp_path, capfd, "none.py", *options)
    assert message.startswith(f"--sidecar {tmp_path / 'file'}: is no socket; name the file")


def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], rest: str, *options: str) -> list[str]:
    """What a run says that is refused because of its event file, at the latest."""
    file = pipeline_file(tmp_path, rest)
    arguments = ("--master", MASTER, "--store", str(tmp_path / "store"), *options)
    events = ("--events", str(tmp_path / "absent" / "events.jsonl"))
    assert command_line.run(command_line.application, ["run", file, *arguments, *events]) == 2
    said: list[str] = capfd.readouterr().err.splitlines()
    return said


FAILING = 'readings.map("failing", lambda t: t["x"], schema=readings.schema).sink("out")'


def test_a_function_that_cannot_be_sent_is_refused_before_the_store_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rest = """
    import threading
    lock = threading.Lock()
    readings.map("locked", lambda t: lock and t, schema=readings.schema).sink("out")
    """
    (said,) = run(tmp_path, capfd, rest)
    assert said.startswith("step locked: uses the variable 'lock', which cannot be sent to exec")
    assert not (tmp_path / "store").exists()


def test_all_that_is_wrong_is_said_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rest = """
    for n in range(2):
        failing = readings.map(f"failing-{n}", lambda t: t["x"], schema=readings.schema)
        failing.filter(f"odd-{n}", lambda t: hash("x") and t["value"].is_valid()).sink(f"out-{n}")
    """
    said = run(tmp_path, capfd, rest)
    assert [line.partition(" uses ")[0].partition(" raised ")[0] for line in said] == [
        f"warning: {tmp_path / 'readings.py'}:11: step odd-0:",
        f"warning: {tmp_path / 'readings.py'}:11: step odd-1:",
        "step failing-0:",
        "step failing-1:",
    ]


def test_on_a_store_that_was_run_before_no_function_is_called(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store" / "generations").mkdir(parents=True)
    (tmp_path / "store" / "generations" / "1.json").write_text("{}")
    (end,) = run(tmp_path, capfd, FAILING)
    assert end.startswith("event file ")


def known_store(tmp_path: Path) -> Path:
    """A store on which a driver was started before."""
    store = tmp_path / "store"
    (store / "generations").mkdir(parents=True)
    (store / "generations" / "1.json").write_text("{}")
    return store


def run_on(store: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of a run on a store, on this machine, of which only the cluster is left out."""
    monkeypatch.setattr(local_run, "perform", lambda *_: None)
    file = pipeline_file(store.parent, 'readings.sink("rows")')
    arguments = ["run", file, "--local", "1", "--store", str(store)]
    assert command_line.run(command_line.application, arguments) == 0
    return capfd.readouterr().out


@pytest.mark.parametrize("has", ["nothing", "generations", "finish"])
def test_a_run_on_a_store_that_was_asked_to_finish_says_that_it_will_end(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    has: str,
) -> None:
    store = tmp_path / "store" if has == "nothing" else known_store(tmp_path)
    if has == "finish":
        (store / "finish").touch()
    said = run_on(store, capfd, monkeypatch)
    assert (f"{store} has a file named finish: the run ends" in said) == (has == "finish")
    assert ("or remove finish from it" in said) == (has == "finish")


def test_a_store_that_does_not_say_whether_it_was_asked_to_finish_ends_no_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = known_store(tmp_path)
    (store / "finish").mkdir()  # cannot be read
    assert "finish" not in run_on(store, capfd, monkeypatch)


def test_functions_need_not_be_called_beforehand(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (end,) = run(tmp_path, capfd, FAILING, "--no-check")
    assert end.startswith("event file ")
    (end,) = run(tmp_path, capfd, FAILING)
    assert end.startswith("step failing: raised KeyError")


def test_a_file_that_blocks_on_import_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rest = "import time; time.sleep(1000)"
    (said,) = run(tmp_path, capfd, rest, "--import-seconds", "0.3")
    assert said.startswith(f"{tmp_path / 'readings.py'}:8: has run for 0.3 s and is not done; take")
