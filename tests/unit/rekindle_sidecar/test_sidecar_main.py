"""The sidecar's container: what it is told by its environment, and its probe."""

import http.server
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rekindle_sidecar import sidecar_main
from rekindle_sidecar.sidecar_options import SidecarOptions

TOLD = {
    "REKINDLE_ZOOKEEPER": "127.0.0.1:1",
    "REKINDLE_NAMESPACE": "flights",
    "REKINDLE_APPLICATION": "departures",
    "REKINDLE_SIDECAR_SOCKET": "/run/rekindle/sidecar.sock",
}
COMMAND = [sys.executable, "-c", "from rekindle_sidecar.sidecar_main import main; main()"]
START_SECONDS_MAX = 60.0

Ended = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    """An environment with a socket that may be made."""
    return {**os.environ, **TOLD, "REKINDLE_SIDECAR_SOCKET": str(tmp_path / "s")}


def ended(told: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], env=told, capture_output=True, text=True)


def test_a_sidecar_takes_its_options_from_the_environment() -> None:
    assert sidecar_main._options(TOLD) == SidecarOptions(
        zookeeper="127.0.0.1:1",
        namespace="flights",
        application="departures",
        socket="/run/rekindle/sidecar.sock",
    )
    more = {
        "REKINDLE_SECRET_FILE": "/secret",
        "REKINDLE_CA_FILE": "/ca",
        "REKINDLE_SESSION_SECONDS": "6",
        "REKINDLE_METRICS_HOST": "::1",
        "REKINDLE_METRICS_PORT": "9465",
    }
    found = sidecar_main._options(TOLD | more)
    assert (found.secret_file, found.session_seconds) == ("/secret", 6.0)
    assert found.ca_file == "/ca"
    assert (found.host, found.port) == ("::1", 9465)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"REKINDLE_ZOOKEEPER": ""}, "REKINDLE_ZOOKEEPER: is not set; see docs/injection.md"),
        ({"REKINDLE_APPLICATION": ""}, "REKINDLE_APPLICATION: is not set"),
        ({"REKINDLE_SESSION_SECONDS": "1"}, "REKINDLE_SESSION_SECONDS: is '1'; give seconds"),
        ({"REKINDLE_SESSION_SECONDS": "soon"}, "give seconds from 2 to 60"),
        ({"REKINDLE_SESSION_SECONDS": "nan"}, "give seconds from 2 to 60"),
        ({"REKINDLE_METRICS_PORT": "0"}, "REKINDLE_METRICS_PORT: is '0'; give a port from 1 to"),
        ({"REKINDLE_METRICS_PORT": "9" * 5_000}, "give a port from 1 to 65535"),
        ({"REKINDLE_ZOOKEEPER": "zk:2181:1"}, "'zk:2181:1' is no server"),
        ({"REKINDLE_CA_FILE": "/nowhere"}, "CA file /nowhere: cannot be read (No such file"),
    ],
)
def test_what_it_cannot_follow_is_told_in_a_line(
    changed: dict[str, str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = {**TOLD, "REKINDLE_SIDECAR_SOCKET": str(tmp_path / "s"), **changed}
    assert sidecar_main._run([], environment) == 2
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]


def test_it_takes_no_argument_but_the_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert sidecar_main._run(["--help"], TOLD) == 2
    assert "takes no argument but --probe" in capsys.readouterr().err


def test_the_probe_fails_until_the_sidecar_answers_and_needs_no_store(
    told: dict[str, str],
) -> None:
    before = ended(told, "--probe")
    assert before.returncode == 1
    assert "does not answer (No such file or directory); see the log" in before.stderr
    with subprocess.Popen(COMMAND, env=told, stderr=subprocess.PIPE) as process:
        try:
            limit = time.monotonic() + START_SECONDS_MAX
            while ended(told, "--probe").returncode != 0:
                assert time.monotonic() < limit
        finally:
            process.terminate()
            process.communicate()
    assert process.returncode == 0
    assert ended(told, "--probe").returncode == 1


class Failing(http.server.BaseHTTPRequestHandler):
    """Answers with an error."""

    def do_GET(self) -> None:
        self.send_error(500)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "s"
    with socketserver.UnixStreamServer(str(path), Failing) as server:
        server.get_request = lambda: (server.socket.accept()[0], ("", 0))  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_the_probe_fails_when_the_answer_is_an_error(
    failing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sidecar_main._run(["--probe"], TOLD | {"REKINDLE_SIDECAR_SOCKET": str(failing)}) == 1
    assert "answers with status 500" in capsys.readouterr().err


def test_a_run_finds_its_sidecar_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from rekindle_cli import command_line

    path = tmp_path / "file"
    path.touch()
    monkeypatch.setenv("REKINDLE_SIDECAR_SOCKET", str(path))
    arguments = ["run", "none.py", "--store", str(tmp_path / "store"), "--master", "k8s://a:1"]
    assert command_line.run(command_line.application, arguments) == 2
    assert f"--sidecar {path}: is no socket" in capfd.readouterr().err
    assert (
        command_line.run(
            command_line.application, [*arguments, "--sidecar", str(tmp_path / "other")]
        )
        == 2
    )
    assert "pipeline file none.py: is not there" in capfd.readouterr().err
