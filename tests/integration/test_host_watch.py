"""The JVM's watch over a host: which of the calls in its two lanes is blamed."""

import subprocess
import sys
from pathlib import Path

import java_probe
import pytest

from rekindle_spark.user_code import watchdog

PROBE = """
package rekindle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

public final class Probe {
  public static void main(String[] arguments) throws Exception {
    Path note = Path.of(arguments[2]);
    Process process = new ProcessBuilder(arguments).inheritIO().start();
    HostWatch watch = new HostWatch(process, note);
    watch.start();
    process.waitFor();
    System.out.println(watch.exitCode());
    System.out.println(HexFormat.of().formatHex(watch.blamed(Files.readAllBytes(note))));
  }
}
"""
HOST = '''
"""Two calls at a time, of partition 7 in the first lane and of 8 in the second."""
import ctypes
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

from rekindle_spark.executor import host_scheduler
from rekindle_spark.user_code import watchdog

PR_SET_PDEATHSIG = 1
# a test that gives up ends the JVM, and so this process
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
first, second = host_scheduler.lanes(watchdog.mapped(Path(sys.argv[1])))
begun, held = threading.Event(), threading.Event()


def called(lane, partition, function):
    lane.watchdog.seconds_max = 0.0 if function is compute else 1.0
    lane.watchdog.begin(partition, 12, "step")
    lane.watchdog.calling("step")
    begun.set()
    function(lane.watchdog)


def hold_interpreter(_):
    time.sleep(0.1)
    held.set()
    re.match(r"(a+)+$", "a" * 60 + "b")


def need_interpreter(_):
    held.wait()
    time.sleep(0.3)


def hang(_):
    time.sleep(600)


def compute(_):
    while True:
        pass


def go_on(dog):
    while True:
        time.sleep(0.01)
        dog.calling("step")


def die(_):
    time.sleep(0.3)
    os._exit(3)


threading.Thread(target=called, args=(first, 7, FIRST)).start()
begun.wait()
called(second, 8, SECOND)
'''


@pytest.fixture(name="probe", scope="module")
def _probe(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command line, to be continued with that of a host."""
    return java_probe.command(tmp_path_factory.mktemp("probe"), PROBE)


@pytest.mark.parametrize(
    ("first", "second", "exit_code", "blamed"),
    [
        ("need_interpreter", "hold_interpreter", watchdog.TOOK_TOO_LONG, [8]),
        ("hold_interpreter", "need_interpreter", watchdog.TOOK_TOO_LONG, [7]),
        ("hang", "go_on", watchdog.TOOK_TOO_LONG, [7]),
        ("go_on", "hang", watchdog.TOOK_TOO_LONG, [8]),
        ("hang", "compute", watchdog.TOOK_TOO_LONG, [7]),
        ("compute", "hang", watchdog.TOOK_TOO_LONG, [8]),
        ("go_on", "die", 0, [7, 8]),
    ],
)
def test_the_call_that_takes_too_long_is_blamed_and_not_one_that_waits_for_it(
    probe: list[str],
    tmp_path: Path,
    first: str,
    second: str,
    exit_code: int,
    blamed: list[int],
) -> None:
    host, note = tmp_path / "host.py", tmp_path / "note"
    host.write_text(HOST.replace("FIRST", first).replace("SECOND", second))
    note.write_bytes(b"")
    command = [*probe, sys.executable, str(host), str(note)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    code, notes = ended.stdout.splitlines()
    assert int(code) == exit_code
    assert [one.partition for one in watchdog.read_all(bytes.fromhex(notes))] == blamed
