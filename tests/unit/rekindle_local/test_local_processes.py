"""The processes of cluster and driver: their temporary files, and that none outlives its owner."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from rekindle.model.errors import RunError
from rekindle_local import cached_files, class_archives, process_sets, spark_distribution
from rekindle_local.daemons import Daemon
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.process_reaper import ProcessReaper
from rekindle_local.spark_cluster import LocalCluster

FOLDER = "rekindle-abcdefghij"  # as HostFolder.java calls them


@pytest.mark.parametrize("depth", [1, 30])
def test_the_socket_of_a_host_has_a_path_that_unix_takes(depth: int) -> None:
    with tempfile.TemporaryDirectory() as short:  # pytest's own folders are nearly too long
        directory = Path(short, *["deep"] * depth)
        cluster = LocalCluster(directory=directory, nodes=1, cpu_quota=None)
        cluster.temporary.mkdir(parents=True)
        path = cluster.temporary / FOLDER / "s"
        path.parent.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
        assert cluster.temporary.is_relative_to(directory) == (depth == 1)
        path.unlink()
        path.parent.rmdir()
        cluster.temporary.rmdir()


def test_a_driver_takes_nothing_from_another_installation_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3")
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark-3")
    code = "import os; print([os.environ.get(f'SPARK_{n}') for n in ('HOME', 'CONF_DIR')])"
    driver = DriverProcess(tmp_path)
    try:
        driver.launch([sys.executable, "-c", code], {})
        assert driver.process is not None
        driver.process.wait()
        assert driver.log.read_text() == "[None, None]\n"
    finally:
        driver.end()


def test_nobody_removes_what_a_cluster_runs_from(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    installed = spark_distribution.find_distribution()
    folder = class_archives.find_class_archives(cache, installed).directory
    with cached_files.locked(folder, print):
        pass
    cluster = LocalCluster(directory=tmp_path, nodes=1, cpu_quota=None, class_data_cache=cache)
    cluster._prepare()
    assert not cached_files.discard(folder)
    cluster.close()
    assert cached_files.discard(folder)


OWNER = """
import sys, time
from pathlib import Path
from rekindle_local.demo.driver_process import DriverProcess
directory = Path(sys.argv[1])
driver = DriverProcess(directory)
driver.start(directory / "pipeline.py", "spark://127.0.0.1:9", directory / "settings.yaml", {})
while "here" not in driver.log.read_text():
    time.sleep(0.05)
print(driver.process.pid, flush=True)
time.sleep(600)
"""


def test_a_driver_keeps_its_temporary_files_in_its_directory_and_its_end_removes_them(
    tmp_path: Path,
) -> None:
    pipeline = tmp_path / "pipeline.py"
    pipeline.write_text(
        "import os\nprint(os.environ['SPARK_LOCAL_DIRS'], os.environ['SPARK_SUBMIT_OPTS'])\n"
    )
    driver = DriverProcess(tmp_path)
    settings = tmp_path / "settings.yaml"
    settings.write_text("")
    driver.start(pipeline, "spark://127.0.0.1:9", settings, {})
    assert driver.process is not None
    driver.process.wait()
    said = driver.log.read_text()
    assert f"{driver.temporary} " in said
    assert f"-Djava.io.tmpdir={driver.temporary}\n" in said
    driver.end()
    assert not driver.temporary.exists()


# Takes no notice of SIGTERM, and says that it came.
DEAF = "trap 'echo asked' TERM; echo ready; while :; do sleep 60; done"


def test_ctrl_c_while_a_driver_ends_leaves_nothing_of_it(tmp_path: Path) -> None:
    driver = DriverProcess(tmp_path)
    driver.launch(["/bin/sh", "-c", DEAF], {})

    def has_said(word: str) -> bool:
        return process_sets.await_condition(
            lambda: word in driver.log.read_text(), limit_seconds=15.0
        )

    def interrupt() -> None:
        has_said("asked")
        os.kill(os.getpid(), signal.SIGINT)

    assert has_said("ready")
    user = threading.Thread(target=interrupt)
    user.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            driver.end()
        assert driver.processes == ()
        assert not driver.temporary.exists()
    finally:
        driver.kill()
        user.join()


def test_a_line_that_a_killed_driver_left_torn_is_no_event(tmp_path: Path) -> None:
    driver = DriverProcess(tmp_path)
    driver.events.write_text('{"kind": "cut"}\n{"kind": "com\n{"kind": "started"}\n{"ki')
    assert [event["kind"] for event in driver.fresh_events()] == ["cut", "started"]
    with driver.events.open("a") as file:
        file.write('nd": "warm"}\n')
    assert [event["kind"] for event in driver.fresh_events()] == ["warm"]


def test_a_driver_ends_with_its_owner(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.py"
    pipeline.write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    (tmp_path / "settings.yaml").write_text("")
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    driver = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert process_sets.await_condition(
        lambda: not process_sets.session_processes(driver), limit_seconds=15.0
    )


def test_a_daemon_that_does_not_start_is_told_with_the_cause_in_its_log(tmp_path: Path) -> None:
    said = (
        "INFO Master: starting\njava.net.BindException: first\n\tat a.B.c(B.java:1)\n"
        "Caused by: java.io.IOException: no port is free\n\t... 1 more"
    )
    daemon, watcher = Daemon("master", tmp_path, None), ProcessReaper((), tmp_path / "watcher.log")
    daemon.launch(["/bin/sh", "-c", 'echo "$0"; exit 3', said], {}, watcher)
    try:
        with pytest.raises(RunError) as caught:
            daemon.await_line(re.compile("ALIVE"))
    finally:
        daemon.bury(watcher)
        watcher.close()
    assert str(caught.value) == (
        f"{tmp_path}/master-1.log: master did not start: exit code 3, "
        "java.io.IOException: no port is free; read this log"
    )
