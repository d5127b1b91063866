"""How often the JVM starts its host again: as often as it dies, unless it never gets that far."""

import subprocess
import sys
from pathlib import Path

import java_probe
import pytest

PROBE = """
package rekindle;

import java.io.IOException;
import java.util.List;

public final class Probe {
  public static void main(String[] arguments) throws IOException {
    HostProcess host = HostProcess.start(arguments[0]);
    for (int i = 0; i < Integer.parseInt(arguments[1]); i++) {
      try {
        host.call(new byte[1], List.of());
      } catch (HostProcess.Ended ended) {
        System.out.println(ended.exitCode);
      }
    }
  }
}
"""
# As the JVM starts a host: with `-m`, the module and the socket.
MORTAL = f"""#!{sys.executable}
import os
import socket
import sys

SECONDS_MAX = 120  # where the JVM has been killed
REQUEST_BYTES = 13
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[3])
server.settimeout(SECONDS_MAX)
server.listen()
while True:
    with server.accept()[0] as connection:
        if connection.recv(REQUEST_BYTES, socket.MSG_WAITALL):
            os._exit(3)
"""
STILLBORN = f"""#!{sys.executable}
import sys

print(sys.argv[2], file=sys.stderr)
"""
# As often as the JVM starts a host in vain; and more often.
STARTS_MAX = 5
DEATHS = 7


@pytest.fixture(name="probe", scope="module")
def _probe(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command line, to be continued with a program in Python's place and a number of requests."""
    return java_probe.command(tmp_path_factory.mktemp("probe"), PROBE)


def run(probe: list[str], folder: Path, host: str) -> subprocess.CompletedProcess[str]:
    program = folder / "host"
    program.write_text(host)
    program.chmod(0o755)
    command = [*probe, str(program), str(DEATHS)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_host_that_dies_now_and_then_is_started_again_each_time(
    probe: list[str], tmp_path: Path
) -> None:
    ended = run(probe, tmp_path, MORTAL)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["3"] * DEATHS


def test_a_host_that_never_starts_is_given_up(probe: list[str], tmp_path: Path) -> None:
    ended = run(probe, tmp_path, STILLBORN)
    assert ended.returncode == 1
    assert f"the host ended {STARTS_MAX} times; see the executor's stderr" in ended.stderr
    assert ended.stderr.splitlines().count("rekindle_spark.executor.host") == STARTS_MAX
