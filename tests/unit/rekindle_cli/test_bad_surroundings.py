"""Wrong settings, options, stores and machines end `rekindle run` with one line.

It names place and remedy; the exit code is 2, and nothing has been started.

The last tests run the command as a process.
"""

import locale
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import loud_skips
import pytest
from wrong_pipelines import GOOD, NOBODY, write_pipeline

import rekindle
from rekindle.model.errors import InputError
from rekindle_cli import command_line
from rekindle_spark.spark import spark_installation
from rekindle_spark.store.checkpoint_store import CheckpointStore

Run = Callable[..., str]
SOURCES = str(Path(rekindle.__file__).parents[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runtime: {epoch_secnds: 1}", "runtime.epoch_secnds: is not a setting; did you mean"),
        ("runtime: {epoch_seconds: soon}", "runtime.epoch_seconds: is 'soon'"),
        ("policy: {priorities: {rows: 12}}", "policy.priorities.rows: is 12"),
        ("nodes_expected: 4", "nodes_expected: is not a setting; write it below `runtime:`"),
        ("runtime: {priorities: {rows: 1}}", "runtime.priorities: is not a setting; write it "),
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
    assert command_line.run(command_line.application, ["run", path, *store, *options]) == 2
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


def run_places(pipeline: Path) -> list[list[str]]:
    """The commands that start Spark, on a cluster, on this machine, and with a demo's pipeline."""
    run = ["run", str(pipeline), "--store", str(pipeline.with_name("store"))]
    demo = ["demo", "--report", str(pipeline.with_name("report"))]
    return [[*run, "--master", NOBODY], [*run, "--local", "2"], demo]


@pytest.fixture
def refuse_machine(file: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., set[str]]:
    """Runs commands that must be refused before the pipeline is tried; gives their messages."""

    def run(commands: list[list[str]]) -> set[str]:
        messages = set()
        for command in commands:
            assert command_line.run(command_line.application, command) == 2
            out, said = capfd.readouterr()
            assert (out, said.count("\n")) == ("", 1)
            messages.add(said.rstrip("\n"))
        assert {path.name for path in file.parent.iterdir()} <= {"readings.parquet", "wrong.py"}
        return messages

    return run


def write_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


# Nothing of it is called: what is wrong with the machine is said before the pipeline is tried.
HANGS = "import time; time.sleep(600)"


def test_a_machine_without_java_is_told_where_it_was_looked_for(
    tmp_path_factory: pytest.TempPathFactory,
    file: Path,
    refuse_machine: Callable[..., set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    commands = run_places(write_pipeline(file, HANGS))
    monkeypatch.setenv("JAVA_HOME", str(empty))
    assert refuse_machine(commands) == {
        f"JAVA_HOME {empty}: there is no java; install a JDK 17 or newer, or point JAVA_HOME to one"
    }
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(empty))
    assert refuse_machine(commands) == {
        "PATH: there is no java; install a JDK 17 or newer, or point JAVA_HOME to one"
    }


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "openjdk version"),
        ("exit 1", "it printed no version"),
    ],
)
def test_an_old_or_broken_java_is_refused_with_what_it_printed(
    tmp_path_factory: pytest.TempPathFactory,
    file: Path,
    refuse_machine: Callable[..., set[str]],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    words: str,
) -> None:
    java = write_java(tmp_path_factory.mktemp("java"), script)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    (message,) = refuse_machine(run_places(write_pipeline(file, HANGS)))
    assert message.startswith(f"{java}: is not Java 17 or newer: {words}")


@pytest.mark.parametrize(
    ("jar", "words"),
    [
        ("spark-core_2.12-3.4.1.jar", "is Spark 3.4.1, needed is 4.3"),
        (None, "is no installation of Spark"),
    ],
)
def test_another_spark_home_is_refused_where_it_would_count(
    tmp_path_factory: pytest.TempPathFactory,
    file: Path,
    refuse_machine: Callable[..., set[str]],
    monkeypatch: pytest.MonkeyPatch,
    jar: str | None,
    words: str,
) -> None:
    home = tmp_path_factory.mktemp("spark")
    if jar is not None:
        (home / "jars").mkdir()
        (home / "jars" / jar).touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    on_cluster, *_ = run_places(write_pipeline(file, HANGS))
    assert refuse_machine([on_cluster]) == {
        f"SPARK_HOME {home}: {words}; unset SPARK_HOME, or let it name a Spark 4.3"
    }


def test_a_pyspark_of_another_version_is_refused_by_all_that_use_it(
    tmp_path_factory: pytest.TempPathFactory,
    file: Path,
    refuse_machine: Callable[..., set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packages = tmp_path_factory.mktemp("packages")
    (packages / "pyspark-3.5.1.dist-info").mkdir()
    (packages / "pyspark-3.5.1.dist-info" / "METADATA").write_text(
        "Name: pyspark\nVersion: 3.5.1\n"
    )
    monkeypatch.syspath_prepend(packages)
    path = str(write_pipeline(file, HANGS))
    (message,) = refuse_machine([*run_places(Path(path)), ["test", path]])
    assert message == (
        f"pyspark in {packages}: is version 3.5.1, needed is 4.3; "
        "pip install 'pyspark==4.3.*', or use an environment with nothing but rekindle[spark]"
    )


# Run in a network of its own, as a container has that was given none: its loopback interface is
# down, and it has no server that knows names.
ALONE = """
import fcntl, socket, struct, sys
from rekindle_cli import command_line
if sys.argv.pop(1) == "up":
    with socket.socket() as any_socket:  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
    socket.sethostname("nowhere")
sys.exit(command_line.main())
"""


@pytest.mark.parametrize(
    ("loopback", "message"),
    [
        (
            "down",
            "127.0.0.1: cannot be reached on this machine (Network is unreachable); bring its "
            "loopback interface up, with `ip link set lo up`",
        ),
        ("up", "host name nowhere: cannot be resolved on this machine"),
    ],
)
def test_a_machine_without_loopback_or_a_name_is_refused_before_anything_waits(
    file: Path, monkeypatch: pytest.MonkeyPatch, loopback: str, message: str
) -> None:
    apart = ["unshare", "--map-root-user", "--net", "--uts"]
    if shutil.which(apart[0]) is None or subprocess.run([*apart, "true"], check=False).returncode:
        loud_skips.skip("networks of their own need root or user namespaces")
    for variable in spark_installation.ADDRESSES:
        monkeypatch.delenv(variable, raising=False)
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    _, locally, _ = run_places(write_pipeline(file, HANGS))
    done = subprocess.run(
        [*apart, sys.executable, "-c", ALONE, loopback, *locally],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(message)


@pytest.mark.parametrize("variable", ["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_CONF_DIR"])
def test_a_machine_whose_address_spark_is_told_needs_no_name(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for known in spark_installation.ADDRESSES:
        monkeypatch.delenv(known, raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "a" * 64)  # no name may be so long
    with pytest.raises(InputError, match=r"^host name a+: cannot be resolved .* SPARK_LOCAL_IP"):
        spark_installation.check(None)
    monkeypatch.setenv(variable, "127.0.0.1")
    spark_installation.check(None)


@pytest.mark.parametrize(
    ("codeset", "wanted"),
    [("ANSI_X3.4-1968", "C.UTF-8"), ("ISO-8859-1", "a"), ("US-ASCII", "a"), ("UTF-8", "a")],
)
def test_spark_reads_paths_as_utf8_in_an_ascii_locale_and_others_stay(
    monkeypatch: pytest.MonkeyPatch, codeset: str, wanted: str
) -> None:
    monkeypatch.setenv("LC_ALL", "a")
    monkeypatch.setattr(locale, "nl_langinfo", lambda _: codeset)
    spark_installation.check(None)
    assert os.environ["LC_ALL"] == "a"
    spark_installation.replace_ascii_locale()
    assert os.environ["LC_ALL"] == wanted


def test_the_spark_that_is_needed_is_the_one_that_is_installed_with_us() -> None:
    project = tomllib.loads((Path(SOURCES).parent / "pyproject.toml").read_text(encoding="utf-8"))
    needed = project["project"]["optional-dependencies"]["spark"]
    assert f"pyspark=={spark_installation.VERSION}.*" in needed


def test_the_store_of_another_pipeline_is_refused_and_its_driver_lives(
    refuse: Run, file: Path
) -> None:
    store = CheckpointStore(file.with_name("store"))
    store.open(0.0)
    store.log_offsets(1, {"cut_at": 0.0, "offsets": {"other": [0, 1]}, "watermark": 0})
    store.commit({"at": 0.0, "plan_epoch": 1, "finished": {"other/0": [1, 1, [""]]}, "outputs": []})
    message = refuse(write_pipeline(file, GOOD))
    place = file.with_name("store")
    assert f"pipeline readings: is not the one that wrote this checkpoint store, {place}" in message
    assert "empty store" in message
    store.check_generation()


def test_a_folder_of_something_else_is_refused_before_anything_is_started(
    refuse: Run, file: Path
) -> None:
    folder = file.with_name("store")
    folder.mkdir()
    (folder / "budget.xlsx").write_text("")
    (folder / "notes").mkdir()
    message = refuse(write_pipeline(file, GOOD))
    assert message == (
        f"checkpoint store {folder}: is a folder of something else: it holds 'budget.xlsx' and 1 "
        "more; name an empty folder, or one that is yet to be made\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["budget.xlsx", "notes"]


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
